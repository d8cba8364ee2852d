"""The laws, as code: each takes a case and yields what breaks it.

`seal` checks on every build what the build or the ledger could have broken. `audit` checks every law as
strictly as it is written, on one request or on two in a row. The name of a function is the name of its law.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Sequence

import msgspec

from lamina.core.build import build
from lamina.core.cut import find_untouchable
from lamina.core.entries import OWN_TURN_ONLY, begins_with
from lamina.core.envelope import Envelope, find_unpaired, prefix_at
from lamina.core.folds import FOLD_VERSION, has_words, map_covered
from lamina.core.hashing import canonical_json, handle
from lamina.core.kinds import Kinds, kind_of
from lamina.core.ledger import current_turn, said_beside_results
from lamina.core.options import DEFAULT_OPTIONS, Options
from lamina.core.orders import goes_last
from lamina.core.recall import identify_segments, index_by_name
from lamina.core.text.characters import WHITE_SPACE
from lamina.core.tokens import ESTIMATE, Counter, part_cost
from lamina.core.values import (
    Budget,
    Digest,
    Entry,
    Fold,
    Form,
    Layer,
    Ledger,
    Part,
    Ref,
    Role,
    Segment,
    Text,
    ToolCall,
    ToolResult,
)
from lamina.core.wording import has_balanced_tags, text_of
from lamina.errors import LawBroken

SMALL = 100
"""Tokens below which lowering may not pay, so an entry may be sent in full at the floor."""

QUOTED = 30
"""Characters of a line that a digest cannot have by chance."""

BY_CHOICE = frozenset(("empty", OWN_TURN_ONLY))
"""Reasons of entries that are left out for another reason than the room."""


class BuildInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What a request was built with, besides its log and head: enough to build it once more."""

    budget: Budget | None = None
    ledger: Ledger = Ledger()
    idle: float = 0


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A request, the log that it was built from, and the request before it, if any."""

    log: tuple[Segment, ...]
    envelope: Envelope
    before: Envelope | None = None
    counter: Counter = ESTIMATE
    options: Options = DEFAULT_OPTIONS
    inputs: BuildInputs | None = None

    @property
    def kinds(self) -> Kinds:
        return self.options.kinds

    @property
    def has_new_cut(self) -> bool:
        """Whether a cut was recorded since the request before."""
        if self.before is None:
            return False
        return len(self.envelope.ledger.cuts) > len(self.before.ledger.cuts)

    @property
    def history_continues(self) -> bool:
        """Whether the log continues that of the request before: nothing in it was edited or taken back."""
        if self.before is None:
            return False
        refs_before = _logged_refs(self.before)
        return _logged_refs(self.envelope)[: len(refs_before)] == refs_before


def audit(case: Case) -> None:
    """Raises LawBroken with the first law that does not hold."""
    for name, law in LAWS.items():
        for problem in law(case):
            raise LawBroken(name, problem)


def deterministic(case: Case) -> Iterator[str]:
    """Built again from the same inputs, it is the same; and its hashes say what was sent."""
    envelope = case.envelope
    if prefix_at(envelope.entries, len(envelope.sent), envelope.root) != envelope.prefix:
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
    """A request has at most as many tokens as its room."""
    if case.envelope.room is not None and case.envelope.tokens > case.envelope.room:
        yield f"{case.envelope.tokens} tokens in a room of {case.envelope.room}"


def append_only_within_an_epoch(case: Case) -> Iterator[str]:
    """Without a new cut, the last stream, up to its tail, is a prefix of this one."""
    if case.before is None or case.has_new_cut:
        return
    sent_before = [(entry.sent, entry.opens) for entry in case.before.lasting]
    sent_now = [(entry.sent, entry.opens) for entry in case.envelope.sent[: len(sent_before)]]
    if sent_before != sent_now:
        yield "bytes already sent have changed and no cut is recorded"


def forms_never_rise(case: Case) -> Iterator[str]:
    """While the history is unchanged, no form rises. The prompt is whole, whatever the client changed."""
    yield from _check_prompt(case)
    yield from _check_folds(case)
    if case.before is None or not case.history_continues:
        return
    entries_before = {entry.ref: entry for entry in case.before.entries}
    for entry in _find_logged(case.envelope):
        before = entries_before.get(entry.ref)
        if before is None:
            continue
        if entry.form > before.form and not _moves_in_library(entry, case):
            yield f"{entry.ref} rose from {before.form} to {entry.form}"
        is_reworded = entry.form is before.form and entry.sent != before.sent
        if is_reworded and not case.has_new_cut:
            yield f"{entry.ref} was reworded"


def _moves_in_library(entry: Entry, case: Case) -> bool:
    """Whether the hoisted layout put an attachment elsewhere, which it does at a recorded cut.

    An attachment is only named while it stands in the library. If a cut lowers it there, it is sent in full
    in its own turn.
    """
    if case.options.layout.library != "hoisted" or not case.has_new_cut:
        return False
    return _is_attachment(entry, case)


def _check_prompt(case: Case) -> Iterator[str]:
    """The prompt is sent in full, and of the last step only results that do not fit are touched."""
    if case.options.layout.include or case.options.layout.exclude:
        return
    if case.options.carries is not None:
        return
    entries = case.envelope.entries
    for at in current_turn(entries):
        entry = entries[at]
        if entry.form is Form.FULL or entry.ref in case.envelope.ledger.repairs:
            continue
        if _is_attachment(entry, case):
            continue
        if entry.layer is Layer.PROMPT or said_beside_results(entry):
            yield f"the prompt {entry.ref} is sent {entry.form}"
        elif entry.form is Form.OMITTED and entry.segment.kind != "thinking":
            yield f"{entry.ref} of the last step is not sent"
        elif begins_with(entry.segment.parts, ToolCall):
            yield f"the call {entry.ref} of the last step is sent {entry.form}"


def _check_folds(case: Case) -> Iterator[str]:
    """A fold covers what is in the log, in order, and nothing that must be sent."""
    positions = {entry.ref: at for at, entry in enumerate(case.envelope.entries)}
    current = current_turn(case.envelope.entries)
    for fold in case.envelope.ledger.folds:
        covered = [positions[ref] for ref in fold.covers if ref in positions]
        if len(covered) < len(fold.covers):
            yield f"{fold.key} covers what is not in the log"
        if covered != sorted(covered):
            yield f"{fold.key} covers what stands in another order"
        for at in covered:
            entry = case.envelope.entries[at]
            must_be_sent = entry.role is Role.SYSTEM or entry.segment.pinned
            if at in current or must_be_sent:
                yield f"{fold.key} covers {entry.ref}, which must stand"


def calls_and_results_pair(case: Case) -> Iterator[str]:
    """Each call has its one result before anything else is said; no result stands alone."""
    yield from find_unpaired(case.envelope.sent)


def conservation(case: Case) -> Iterator[str]:
    """Every segment is exactly one entry with a reason, and the parts sum to the total."""
    entry_refs = Tally(_logged_refs(case.envelope))
    segment_refs = Tally(each.ref for each in identify_segments(case.log))
    if entry_refs != segment_refs:
        difference = (entry_refs - segment_refs) + (segment_refs - entry_refs)
        yield f"segments and entries differ: {sorted(difference)[:5]}"
    for entry in case.envelope.entries:
        if not entry.why:
            yield f"{entry.ref} has no reason"
        is_omitted = entry.form is Form.OMITTED
        has_parts = bool(entry.parts)
        has_wrong_tokens = is_omitted and entry.tokens
        if is_omitted is has_parts or has_wrong_tokens:
            yield f"{entry.ref} is {entry.form} with {len(entry.parts)} parts and {entry.tokens} tokens"
    if sum(entry.tokens for entry in case.envelope.entries) != case.envelope.account.entries:
        yield "tokens of the entries do not sum to the account"


def nothing_is_lost(case: Case) -> Iterator[str]:
    """What was lowered comes back in full by its handle, or by the key of its digest."""
    by_name = index_by_name(identify_segments(case.log))
    for entry in _find_logged(case.envelope):
        if entry.form is Form.FULL:
            continue
        segment = by_name.get(handle(entry.content))
        if segment is None or segment.parts != entry.segment.parts:
            yield f"{entry.ref} does not come back"
    refs = {entry.ref for entry in case.envelope.entries}
    for fold in case.envelope.ledger.folds:
        if not refs.issuperset(fold.covers):
            yield f"{fold.key} does not bring back all that it covers"


def what_cannot_be_recovered_goes_last(case: Case) -> Iterator[str]:
    """What cannot be recovered is never summarised, and lowered only when everything else is.

    A window over history takes out all that is beyond it.
    """
    lost = _find_lost(case)
    for entry in lost:
        if entry.form is Form.COMPACT or entry.why.startswith("covered by"):
            yield f"{entry.ref} is summarised"
    lost_for_room = _find_lost_for_room(lost, case)
    if not lost_for_room:
        return
    protected = find_untouchable(case.envelope.entries)
    for at, entry in enumerate(case.envelope.entries):
        if at in protected or entry.segment.origin == "lamina":
            continue
        if entry.form is not Form.FULL or entry.tokens <= SMALL:
            continue
        if not _is_unrecoverable(entry, case):
            yield f"{lost_for_room[0].ref} was lowered while {entry.ref} stands in full"


def _find_lost(case: Case) -> list[Entry]:
    """Entries that cannot be recovered and are lowered, unless a digest has all their words."""
    fold_of = map_covered(case.envelope.ledger.folds)
    lost: list[Entry] = []
    for entry in case.envelope.entries:
        if entry.form is Form.FULL or not _is_unrecoverable(entry, case):
            continue
        fold = fold_of.get(entry.ref)
        if fold is None or not has_words(fold.text, [entry.segment]):
            lost.append(entry)
    return lost


def _find_lost_for_room(lost: Sequence[Entry], case: Case) -> list[Entry]:
    """Those of the lost entries that the cut of this request lowered for want of room."""
    taken_by_window: frozenset[Ref] = frozenset()
    if case.options.window is not None:
        taken_by_window = case.options.window.may_take(case.envelope.entries)
    lost_for_room: list[Entry] = []
    for entry in lost:
        if entry.ref in taken_by_window:
            continue
        if _is_lowered_now(entry, case):
            lost_for_room.append(entry)
    return lost_for_room


def _is_unrecoverable(entry: Entry, case: Case) -> bool:
    """Whether an entry cannot be had again, and was not left out by choice."""
    if entry.segment.origin == "lamina" or entry.role is Role.SYSTEM:
        return False
    return goes_last(entry, case.kinds) and entry.why not in BY_CHOICE


def _is_lowered_now(entry: Entry, case: Case) -> bool:
    """Whether the cut of this request lowered the entry."""
    ledger = case.envelope.ledger
    cut = case.envelope.cut
    if cut is None:
        return False
    for fold in ledger.folds:
        if fold.cut == cut.number and entry.ref in fold.covers:
            return True
    line = ledger.lines.get(entry.ref)
    return line is not None and line.cut == cut.number


def once_in_full(case: Case) -> Iterator[str]:
    """Equal content of attachments is sent in full once, however short. What is pinned may repeat it."""
    contents: set[str] = set()
    for entry in case.envelope.sent:
        if entry.form is not Form.FULL or not _is_attachment(entry, case):
            continue
        may_repeat = entry.segment.pinned or bool(entry.segment.meta.get("override"))
        if entry.content in contents and not may_repeat:
            yield f"{entry.ref} stands in full twice"
        contents.add(entry.content)
    yield from _check_names(case)


def _check_names(case: Case) -> Iterator[str]:
    """A name shows one content in the library, and one among the attachments of each question.

    A turn can have several questions, if the model's answer between them was empty. What came with the first
    of them was sent before the second came, so it stays.
    """
    contents: dict[tuple[Layer, str], Digest] = {}
    for entry in case.envelope.sent:
        if entry.layer is Layer.PROMPT:
            contents = {name: content for name, content in contents.items() if name[0] is Layer.LIBRARY}
        if not entry.segment.key or entry.segment.meta.get("override"):
            continue
        if entry.layer not in (Layer.LIBRARY, Layer.TURN) or entry.form < Form.COMPACT:
            continue
        if not _is_attachment(entry, case):
            continue
        name = (entry.layer, entry.segment.key)
        if contents.get(name, entry.content) != entry.content:
            yield f"{entry.segment.key} stands twice in the {entry.layer} layer"
        contents[name] = entry.content


def lowering_shrinks(case: Case) -> Iterator[str]:
    """A lower form has fewer tokens than the full one, in a tag or not, in the library or not.

    What the format cannot express has no full form there, so its stub is compared with nothing.
    """
    carries = case.options.carries
    for entry in _find_logged(case.envelope):
        if entry.form in (Form.FULL, Form.OMITTED):
            continue
        if carries is not None and carries(entry.segment):
            continue
        tokens_in_full = _count_tokens(_find_full_parts(entry, case), case)
        tokens = _count_tokens(entry.parts, case)
        if tokens > tokens_in_full:
            yield f"{entry.ref} has {tokens} tokens lowered and {tokens_in_full} in full"
    cut = case.envelope.cut
    if cut is None or not cut.lowered:
        return
    if cut.after >= cut.before:
        yield f"cut {cut.number} went from {cut.before} to {cut.after} tokens"


def _find_full_parts(entry: Entry, case: Case) -> Sequence[Part]:
    """The parts of an entry as they would be sent in full."""
    wording = case.options.wording
    if entry.layer is Layer.LIBRARY:
        length = len(text_of(entry.source.parts))
        return wording.prior(entry.source, entry.content, limit=length)
    if wording.tagged or _is_worded(entry, case):
        return wording(entry.source, Form.FULL, entry.content)
    return entry.source.parts


def _count_tokens(parts: Sequence[Part], case: Case) -> int:
    return sum(part_cost(part, case.counter) for part in parts)


def untouched_means_untouched(case: Case) -> Iterator[str]:
    """What was not lowered or repaired has the parts that it came with; a result may have another id."""
    if case.options.wording.tagged or case.options.repairs.strip_tags:
        return
    repairs = case.envelope.ledger.repairs
    for entry in case.envelope.entries:
        if entry.form is not Form.FULL or entry.role is not entry.segment.role:
            continue
        if _is_worded(entry, case):
            continue
        logged_parts = entry.segment.parts
        if begins_with(logged_parts, ToolResult) and begins_with(entry.parts, ToolResult):
            sent_id = entry.parts[0].id  # type: ignore[union-attr]
            logged_parts = (msgspec.structs.replace(logged_parts[0], id=sent_id),)
        if entry.parts != logged_parts and f"{entry.ref}:id" not in repairs:
            yield f"{entry.ref} was changed"


def no_authority_is_gained(case: Case) -> Iterator[str]:
    """Content stays in its role and closes or opens no tag; no tool is quoted in the user's voice."""
    for entry in case.envelope.sent:
        yield from _check_voice(entry)
        kind = kind_of(case.kinds, entry.segment)
        has_tag = kind.attachment or kind.section
        if has_tag and not has_balanced_tags(entry.parts, case.kinds):
            yield f"{entry.ref} breaks out of its tag"
    by_ref = {entry.ref: entry.segment for entry in case.envelope.entries}
    for fold in case.envelope.ledger.folds:
        if fold.version >= FOLD_VERSION:
            yield from _check_digest_voices(fold, by_ref)


def _check_voice(entry: Entry) -> Iterator[str]:
    """An entry does not speak with more authority than its segment."""
    if entry.role is Role.SYSTEM and entry.segment.role is not Role.SYSTEM:
        yield f"{entry.ref} became system text"
    if entry.layer is Layer.SYSTEM and entry.role is not Role.SYSTEM:
        yield f"{entry.ref} stands among the system text"
    is_quoted_result = begins_with(entry.segment.parts, ToolResult) and begins_with(entry.parts, Text)
    if entry.role is Role.USER and is_quoted_result:
        yield f"{entry.ref} is a result in the user's voice"


def _check_digest_voices(fold: Fold, by_ref: dict[Ref, Segment]) -> Iterator[str]:
    """In the user's voice a digest has a title, headings, and words of the user."""
    covered = [by_ref[ref] for ref in fold.covers if ref in by_ref]
    users_words = "\n".join(text_of(segment.parts) for segment in covered if segment.role is Role.USER)
    for segment in covered:
        if segment.role is Role.USER:
            continue
        for text_line in text_of(segment.parts).split("\n"):
            words = text_line.strip(WHITE_SPACE)
            if len(words) <= QUOTED or words not in fold.text:
                continue
            if words not in users_words:
                yield f"{fold.key} says {words[:40]!r} in the user's voice"


def _find_logged(envelope: Envelope) -> list[Entry]:
    """The entries that came from the log, in the order of the stream, without lamina's own."""
    return [entry for entry in envelope.entries if entry.segment.origin != "lamina"]


def _logged_refs(envelope: Envelope) -> list[Ref]:
    """The refs of what came from the log, in the order of the stream."""
    return [entry.ref for entry in _find_logged(envelope)]


def _is_attachment(entry: Entry, case: Case) -> bool:
    return kind_of(case.kinds, entry.segment).attachment


def _is_worded(entry: Entry, case: Case) -> bool:
    """Whether the kind of an entry has words of its own, such as a tag."""
    kind = kind_of(case.kinds, entry.segment)
    if kind.attachment or kind.section:
        return True
    return entry.segment.kind in case.options.wording.words


LAWS: dict[str, Callable[[Case], Iterator[str]]] = {
    law.__name__: law
    for law in (
        deterministic,
        within_the_room,
        append_only_within_an_epoch,
        forms_never_rise,
        calls_and_results_pair,
        conservation,
        nothing_is_lost,
        what_cannot_be_recovered_goes_last,
        once_in_full,
        lowering_shrinks,
        untouched_means_untouched,
        no_authority_is_gained,
    )
}
"""Every law by its name, in the order in which `audit` checks them."""
