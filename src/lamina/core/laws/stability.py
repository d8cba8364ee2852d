"""Laws of a request beside the one before it: the same again, within the room, and only ever lower."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lamina.core.arrange import is_worded
from lamina.core.build import build
from lamina.core.entries import begins_with, find_logged, find_prefix, index_by_ref, is_attachment
from lamina.core.envelope import Envelope, find_late_layers, find_overflow
from lamina.core.hashing import canonical_json
from lamina.core.laws.case import Case
from lamina.core.references import is_reference
from lamina.core.tokens import part_cost
from lamina.core.turns import current_turn, said_beside_results
from lamina.core.values import Cut, Digest, Entry, Form, Layer, Ledger, Part, Ref, Role, ToolCall
from lamina.core.wording import text_of


def deterministic(case: Case) -> Iterator[str]:
    """Built again from the same inputs, it is the same; and its hashes say what was sent.

    Equal log, head, budget, ledger, counter and idle time give equal bytes, whatever the clock, the hash
    seed, the process or the machine. A memo may make a build faster, and never changes it.
    """
    envelope = case.envelope
    if find_prefix(envelope.sent, envelope.root) != envelope.prefix:
        yield "the prefix hash is not that of the last entry sent"
    if case.inputs is None:
        return
    again = build(
        case.log,
        head=envelope.head,
        budget=case.inputs.budget,
        ledger=Ledger.load(case.inputs.ledger.dump()),
        counter=case.counter,
        idle=case.inputs.idle,
        options=case.options,
    )
    if not is_same_request(envelope, again):
        yield "built again from the same inputs, it is another request"


def is_same_request(one: Envelope, other: Envelope) -> bool:
    """Whether two requests are equal byte for byte: entries, account and ledger."""
    return canonical_json(_comparable_fields(one)) == canonical_json(_comparable_fields(other))


def _comparable_fields(envelope: Envelope) -> tuple[object, ...]:
    """What must be equal when a request is built again."""
    return (envelope.entries, envelope.account, envelope.ledger, envelope.root, envelope.notes)


def within_the_room(case: Case) -> Iterator[str]:
    """A request has at most as many tokens as its room.

    The room is the window less the reserve, by the counter in use. If a request cannot be that small, the
    build raises `BudgetExceeded` and there is nothing to audit.
    """
    yield from find_overflow(case.envelope)


def append_only_within_an_epoch(case: Case) -> Iterator[str]:
    """Without a new cut, the last stream, up to its tail, is a prefix of this one.

    When a turn ends, its entries become history in the same order and with the same bytes. What leaves with
    its turn is the tail, behind which nothing was cached. The more stable layers stand before the others.
    """
    yield from find_late_layers(case.envelope.sent, Layer.HISTORY)
    if case.before is None or case.has_new_cut:
        return
    sent_before = _list_sent(case.before.lasting)
    sent_now = _list_sent(case.envelope.sent)
    if sent_now[: len(sent_before)] != sent_before:
        yield "bytes already sent have changed and no cut is recorded"


def _list_sent(entries: Iterable[Entry]) -> list[tuple[Digest, bool]]:
    """The bytes of each entry, and whether they open a message: what a provider would compare."""
    return [(entry.sent, entry.opens) for entry in entries]


def forms_never_rise(case: Case) -> Iterator[str]:
    """While the history is unchanged, no form rises. The prompt is whole, whatever the client changed.

    A line or fold of the ledger holds only as long as everything that it covers is in the log, unchanged and
    in order. If the client edited its history, what no longer holds is undone at a recorded cut.
    """
    yield from _check_prompt(case)
    yield from _check_folds(case)
    if case.before is None or not case.history_continues:
        return
    entries_before = {entry.ref: entry for entry in case.before.entries}
    for entry in find_logged(case.envelope.entries):
        before = entries_before.get(entry.ref, entry)  # what is new has nothing to be compared with
        yield from _compare_forms(before, entry, case)


def _compare_forms(before: Entry, entry: Entry, case: Case) -> Iterator[str]:
    """What is wrong with the form of an entry, beside that of the same entry in the request before.

    Other words in the same form are allowed only at a recorded cut.
    """
    if entry.form < before.form:
        return
    if entry.form > before.form:
        if not _may_move(before, entry, case):
            yield f"{entry.ref} rose from {before.form} to {entry.form}"
        return
    if entry.sent != before.sent and not case.has_new_cut:
        yield f"{entry.ref} was reworded"


def _may_move(before: Entry, entry: Entry, case: Case) -> bool:
    """Whether the full form of an attachment may move to this place, which it does at a recorded cut.

    A reference is sent in full if the copy that it referred to was lowered. In the hoisted layout an
    attachment is only named while it stands in the library. If a cut lowers it there, it is sent in full in
    its own turn.
    """
    if not case.has_new_cut or not is_attachment(entry, case.kinds):
        return False
    return is_reference(before, case.kinds) or case.options.layout.library == "hoisted"


def _check_prompt(case: Case) -> Iterator[str]:
    """The prompt is sent in full, and of the last step only results that do not fit are touched.

    Thinking may be left out even there: a provider refuses it if its past has changed.
    """
    for entry in _find_touched_now(case):
        is_prompt = entry.layer is Layer.PROMPT or said_beside_results(entry)
        is_thinking = entry.segment.kind == "thinking"
        if is_prompt:
            yield f"the prompt {entry.ref} is sent {entry.form}"
        elif entry.form is Form.OMITTED and not is_thinking:
            yield f"{entry.ref} of the last step is not sent"
        elif begins_with(entry.segment.parts, ToolCall):
            yield f"the call {entry.ref} of the last step is sent {entry.form}"


def _find_touched_now(case: Case) -> Iterator[Entry]:
    """What belongs to the prompt or the last step, and is not sent in full although it came in order.

    A filter, or a format that cannot express everything, may leave out anything. An attachment may be
    replaced by a reference to equal content.
    """
    options = case.options
    if options.layout.include or options.layout.exclude:
        return
    if options.carries is not None:
        return
    entries = case.envelope.entries
    repairs = case.envelope.ledger.repairs
    for at in current_turn(entries):
        entry = entries[at]
        if entry.form is Form.FULL or entry.ref in repairs:
            continue
        if not is_attachment(entry, case.kinds):
            yield entry


def _check_folds(case: Case) -> Iterator[str]:
    """A fold covers what is in the log, in order, and nothing that must be sent.

    Otherwise its digest would speak of something that the user took back, or instead of the prompt.
    """
    entries = case.envelope.entries
    position_of = index_by_ref(entries)
    must_stand = _find_protected(entries)
    for fold in case.envelope.ledger.folds:
        positions = [position_of[ref] for ref in fold.covers if ref in position_of]
        if len(positions) < len(fold.covers):
            yield f"{fold.key} covers what is not in the log"
        if positions != sorted(positions):
            yield f"{fold.key} covers what stands in another order"
        for ref in must_stand.intersection(fold.covers):
            yield f"{fold.key} covers {ref}, which must stand"


def _find_protected(entries: Sequence[Entry]) -> set[Ref]:
    """What must be sent: the prompt, the last step, system text and what is pinned.

    No fold may cover any of it, whatever was current when the fold was made.
    """
    protected = {entries[at].ref for at in current_turn(entries)}
    for entry in entries:
        if entry.role is Role.SYSTEM or entry.segment.pinned:
            protected.add(entry.ref)
    return protected


def lowering_shrinks(case: Case) -> Iterator[str]:
    """A lower form has fewer tokens than the full one, in a tag or not, in the library or not.

    What the format cannot express has no full form there, so its stub is compared with nothing.
    """
    carries = case.options.carries
    for entry in find_logged(case.envelope.entries):
        if entry.form in (Form.FULL, Form.OMITTED):
            continue
        if carries is not None and carries(entry.segment):
            continue
        tokens_in_full = _count_tokens(_find_full_parts(entry, case), case)
        tokens = _count_tokens(entry.parts, case)
        if tokens > tokens_in_full:
            yield f"{entry.ref} has {tokens} tokens lowered and {tokens_in_full} in full"
    yield from _check_cut_shrinks(case.envelope.cut)


def _check_cut_shrinks(cut: Cut | None) -> Iterator[str]:
    """A cut that lowered something left fewer tokens than there were.

    An edit by the client is recorded as a cut as well, and lowers nothing.
    """
    if cut is None or not cut.lowered:
        return
    if cut.after >= cut.before:
        yield f"cut {cut.number} went from {cut.before} to {cut.after} tokens"


def _find_full_parts(entry: Entry, case: Case) -> Sequence[Part]:
    wording = case.options.wording
    if entry.layer is Layer.LIBRARY:
        length = len(text_of(entry.source.parts))
        return wording.prior(entry.source, entry.content, limit=length)
    if is_worded(entry.segment, case.options.wording):
        return wording(entry.source, Form.FULL, entry.content)
    return entry.source.parts


def _count_tokens(parts: Sequence[Part], case: Case) -> int:
    """Tokens of these parts, without the framing of a message."""
    return sum(part_cost(part, case.counter) for part in parts)
