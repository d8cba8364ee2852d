"""The laws, as code: each takes a case and yields what breaks it.

`seal` checks on every build what the build or the ledger could have broken; `audit` checks everything, on
one request or on two in a row, as strictly as the laws are written.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Sequence

import msgspec

from lamina.core.arrange import OWN_TURN_ONLY
from lamina.core.build import build
from lamina.core.cut import untouchable
from lamina.core.envelope import Envelope, prefix_at, unpaired
from lamina.core.folds import FOLD_VERSION, keeps
from lamina.core.hashing import canonical, handle
from lamina.core.kinds import Kinds, row
from lamina.core.ledger import current_turn, said_beside_results
from lamina.core.options import DEFAULT, Options
from lamina.core.orders import goes_last
from lamina.core.recall import identified, names
from lamina.core.text.characters import WHITE_SPACE
from lamina.core.tokens import ESTIMATE, Counter, part_cost
from lamina.core.values import (
    Budget,
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
from lamina.core.wording import tag_balance, text_of
from lamina.errors import LawBroken


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
    options: Options = DEFAULT
    inputs: BuildInputs | None = None

    @property
    def kinds(self) -> Kinds:
        return self.options.kinds

    @property
    def has_new_cut(self) -> bool:
        return self.before is not None and len(self.envelope.ledger.cuts) > len(self.before.ledger.cuts)

    @property
    def history_stands(self) -> bool:
        """Whether the log continues that of the request before: nothing in it was edited or taken back."""
        if self.before is None:
            return False
        then = _refs_of_log(self.before)
        return _refs_of_log(self.envelope)[: len(then)] == then


def audit(case: Case) -> None:
    """Raises LawBroken with the first law that does not hold."""
    for name, law in LAWS.items():
        for detail in law(case):
            raise LawBroken(name, detail)


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
    if not same(envelope, again):
        yield "built again from the same inputs, it is another request"


def same(one: Envelope, other: Envelope) -> bool:
    """Byte for byte: entries, account and ledger."""
    return canonical(_compared(one)) == canonical(_compared(other))


def _compared(envelope: Envelope) -> tuple[object, ...]:
    return (envelope.entries, envelope.account, envelope.ledger, envelope.root, envelope.notes)


def within_the_room(case: Case) -> Iterator[str]:
    if case.envelope.room is not None and case.envelope.tokens > case.envelope.room:
        yield f"{case.envelope.tokens} tokens in a room of {case.envelope.room}"


def append_only_within_an_epoch(case: Case) -> Iterator[str]:
    """Without a new cut, the last stream, up to its tail, is a prefix of this one."""
    before, after = case.before, case.envelope
    if before is None or case.has_new_cut:
        return
    lasting = [(e.sent, e.opens) for e in before.lasting]
    if lasting != [(e.sent, e.opens) for e in after.sent[: len(lasting)]]:
        yield "bytes already sent have changed and no cut is recorded"


def forms_never_rise(case: Case) -> Iterator[str]:
    """While the history stands; and the prompt is whole, whatever the client did to its history."""
    yield from _prompt_is_whole(case)
    yield from _folds_stand(case)
    if case.before is None or not case.history_stands:
        return
    then = {entry.ref: entry for entry in case.before.entries}
    for entry in case.envelope.entries:
        was = then.get(entry.ref)
        if was is None or entry.segment.origin == "lamina":
            continue
        if entry.form > was.form and not _moves_in_library(entry, case):
            yield f"{entry.ref} rose from {was.form} to {entry.form}"
        if entry.form is was.form and entry.sent != was.sent and not case.has_new_cut:
            yield f"{entry.ref} was reworded"


def _moves_in_library(entry: Entry, case: Case) -> bool:
    """Whether the hoisted layout put an attachment elsewhere, which it does at a recorded cut.

    An attachment is only named while it stands in the library. If a cut lowers it there, it stands in full
    in its own turn.
    """
    hoisted = case.options.layout.library == "hoisted"
    return hoisted and case.has_new_cut and row(case.kinds, entry.segment).attachment


def _prompt_is_whole(case: Case) -> Iterator[str]:
    """The prompt is sent in full, and of the last step nothing is touched but results that do not fit."""
    entries = case.envelope.entries
    chosen_away = bool(case.options.layout.include or case.options.layout.exclude)
    if chosen_away or case.options.carries is not None:
        return
    repaired = case.envelope.ledger.repairs
    for i in current_turn(entries):
        entry = entries[i]
        attached = row(case.kinds, entry.segment).attachment
        if entry.form is Form.FULL or entry.ref in repaired or attached:
            continue
        if entry.layer is Layer.PROMPT or said_beside_results(entry):
            yield f"the prompt {entry.ref} is sent {entry.form}"
        elif entry.form is Form.OMITTED and not _thinks(entry):
            yield f"{entry.ref} of the last step is not sent"
        elif _first(entry.segment.parts, ToolCall):
            yield f"the call {entry.ref} of the last step is sent {entry.form}"


def _folds_stand(case: Case) -> Iterator[str]:
    """A fold covers what is in the log, in order, and nothing that must stand."""
    places = {entry.ref: i for i, entry in enumerate(case.envelope.entries)}
    current = current_turn(case.envelope.entries)
    for fold in case.envelope.ledger.folds:
        there = [places[ref] for ref in fold.covers if ref in places]
        if len(there) < len(fold.covers):
            yield f"{fold.key} covers what is not in the log"
        if there != sorted(there):
            yield f"{fold.key} covers what stands in another order"
        for i in there:
            entry = case.envelope.entries[i]
            if i in current or entry.role is Role.SYSTEM or entry.segment.pinned:
                yield f"{fold.key} covers {entry.ref}, which must stand"


def calls_and_results_pair(case: Case) -> Iterator[str]:
    """Each call has its one result before anything else is said; no result stands alone."""
    yield from unpaired(case.envelope.sent)


def conservation(case: Case) -> Iterator[str]:
    """Every segment is exactly one entry with a reason, and the parts sum to the total."""
    mine = Tally(_refs_of_log(case.envelope))
    logged = Tally(each.ref for each in identified(case.log))
    if mine != logged:
        yield f"segments and entries differ: {sorted((mine - logged) + (logged - mine))[:5]}"
    for entry in case.envelope.entries:
        omitted = entry.form is Form.OMITTED
        if not entry.why:
            yield f"{entry.ref} has no reason"
        if omitted is bool(entry.parts) or (omitted and entry.tokens):
            yield f"{entry.ref} is {entry.form} with {len(entry.parts)} parts and {entry.tokens} tokens"
    if sum(e.tokens for e in case.envelope.entries) != case.envelope.account.entries:
        yield "tokens of the entries do not sum to the account"


def nothing_is_lost(case: Case) -> Iterator[str]:
    """What was lowered comes back in full by its handle, or by the key of its digest."""
    by_name = names(identified(case.log))
    there = {entry.ref for entry in case.envelope.entries}
    for entry in case.envelope.entries:
        if entry.form is Form.FULL or entry.segment.origin == "lamina":
            continue
        segment = by_name.get(handle(entry.content))
        if segment is None or segment.parts != entry.segment.parts:
            yield f"{entry.ref} does not come back"
    for fold in case.envelope.ledger.folds:
        if not there.issuperset(fold.covers):
            yield f"{fold.key} does not bring back all that it covers"


def what_cannot_be_recovered_goes_last(case: Case) -> Iterator[str]:
    """Never summarised; lowered only when everything else that may be lowered is.

    A window over history takes out all that is beyond it, as it was told to.
    """
    folds = {ref: fold for fold in case.envelope.ledger.folds for ref in fold.covers}
    lowered = [e for e in case.envelope.entries if _unrecoverable(e, case) and e.form is not Form.FULL]
    lost = [e for e in lowered if e.ref not in folds or not keeps(folds[e.ref].text, [e.segment])]
    for entry in lost:
        if entry.form is Form.COMPACT or entry.why.startswith("covered by"):
            yield f"{entry.ref} is summarised"
    window = case.options.window
    taken_out = window.may_take(case.envelope.entries) if window else frozenset()
    lost_for_room = [e for e in lost if e.ref not in taken_out and _lowered_now(e, case)]
    if case.envelope.cut is None or not lost_for_room:
        return
    fixed = untouchable(case.envelope.entries)
    for i, entry in enumerate(case.envelope.entries):
        large = entry.form is Form.FULL and entry.tokens > SMALL and entry.segment.origin != "lamina"
        if large and i not in fixed and not _unrecoverable(entry, case):
            yield f"{lost_for_room[0].ref} was lowered while {entry.ref} stands in full"


SMALL = 100
"""Tokens below which lowering may not pay, so an entry may stand in full at the floor."""


def _unrecoverable(entry: Entry, case: Case) -> bool:
    mine = entry.segment.origin != "lamina" and entry.role is not Role.SYSTEM
    return mine and goes_last(entry, case.kinds) and entry.why not in BY_CHOICE


BY_CHOICE = frozenset(("empty", OWN_TURN_ONLY))


def _lowered_now(entry: Entry, case: Case) -> bool:
    ledger, cut = case.envelope.ledger, case.envelope.cut
    if cut is None:
        return False
    if any(entry.ref in fold.covers and fold.cut == cut.number for fold in ledger.folds):
        return True
    line = ledger.lines.get(entry.ref)
    return line is not None and line.cut == cut.number


def once_in_full(case: Case) -> Iterator[str]:
    """Equal content of attachments stands in full once, however short it is. What is pinned may repeat it."""
    shown: set[str] = set()
    for entry in case.envelope.sent:
        if entry.form is not Form.FULL or not row(case.kinds, entry.segment).attachment:
            continue
        insisted = entry.segment.pinned or bool(entry.segment.meta.get("override"))
        if entry.content in shown and not insisted:
            yield f"{entry.ref} stands in full twice"
        shown.add(entry.content)
    yield from _names_that_stand_twice(case)


def _names_that_stand_twice(case: Case) -> Iterator[str]:
    """A name shows one content in the library, and one among the attachments of the turn."""
    shown: set[tuple[Layer, str]] = set()
    for entry in case.envelope.sent:
        key, layer = entry.segment.key, entry.layer
        if not key or layer not in (Layer.LIBRARY, Layer.TURN) or entry.form < Form.COMPACT:
            continue
        if not row(case.kinds, entry.segment).attachment or entry.segment.meta.get("override"):
            continue
        if (layer, key) in shown:
            yield f"{key} stands twice in the {layer} layer"
        shown.add((layer, key))


def lowering_shrinks(case: Case) -> Iterator[str]:
    """A lower form has fewer tokens than the full one, in a tag or not, in the library or not."""
    for entry in case.envelope.entries:
        if entry.form in (Form.FULL, Form.OMITTED) or entry.segment.origin == "lamina":
            continue
        full = _cost(_full_parts(entry, case), case)
        now = _cost(entry.parts, case)
        if now > full:
            yield f"{entry.ref} has {now} tokens lowered and {full} in full"
    cut = case.envelope.cut
    if cut is not None and cut.lowered and cut.after >= cut.before:
        yield f"cut {cut.number} went from {cut.before} to {cut.after} tokens"


def _full_parts(entry: Entry, case: Case) -> Sequence[Part]:
    """The parts of an entry as they would be sent in full."""
    kind = row(case.kinds, entry.segment)
    wording = case.options.wording
    if entry.layer is Layer.LIBRARY:
        whole = len(text_of(entry.source.parts))
        return wording.prior(entry.source, entry.content, limit=whole)
    if wording.tagged or kind.attachment or kind.section or entry.segment.kind in wording.words:
        return wording(entry.source, Form.FULL, entry.content)
    return entry.source.parts


def _cost(parts: Sequence[Part], case: Case) -> int:
    return sum(part_cost(part, case.counter) for part in parts)


def untouched_means_untouched(case: Case) -> Iterator[str]:
    """What was not lowered or mended has the parts that it came with; a result may have another id."""
    if case.options.wording.tagged or case.options.repairs.strip_tags:
        return
    renamed = case.envelope.ledger.repairs
    for entry in case.envelope.entries:
        kind = row(case.kinds, entry.segment)
        worded = kind.attachment or kind.section or entry.segment.kind in case.options.wording.words
        if entry.form is not Form.FULL or worded or entry.role is not entry.segment.role:
            continue
        came = entry.segment.parts
        if _first(came, ToolResult) and _first(entry.parts, ToolResult):
            came = (msgspec.structs.replace(came[0], id=entry.parts[0].id),)  # type: ignore[union-attr]
        if entry.parts != came and f"{entry.ref}:id" not in renamed:
            yield f"{entry.ref} was changed"


def no_authority_is_gained(case: Case) -> Iterator[str]:
    """Content stays in its role and closes or opens no tag; no tool is quoted in the user's voice."""
    for entry in case.envelope.sent:
        if entry.role is Role.SYSTEM and entry.segment.role is not Role.SYSTEM:
            yield f"{entry.ref} became system text"
        if entry.layer is Layer.SYSTEM and entry.role is not Role.SYSTEM:
            yield f"{entry.ref} stands among the system text"
        if entry.role is Role.USER and _first(entry.segment.parts, ToolResult) and _first(entry.parts, Text):
            yield f"{entry.ref} is a result in the user's voice"
        kind = row(case.kinds, entry.segment)
        if (kind.attachment or kind.section) and not tag_balance(entry.parts, case.kinds):
            yield f"{entry.ref} breaks out of its tag"
    by_ref = {entry.ref: entry.segment for entry in case.envelope.entries}
    for fold in case.envelope.ledger.folds:
        if fold.version >= FOLD_VERSION:
            yield from _digest_keeps_voices(fold, by_ref)


def _digest_keeps_voices(fold: Fold, by_ref: dict[Ref, Segment]) -> Iterator[str]:
    """In the user's voice a digest has a title, headings, and words of the user."""
    covered = [by_ref[ref] for ref in fold.covers if ref in by_ref]
    theirs = "\n".join(text_of(each.parts) for each in covered if each.role is Role.USER)
    for each in covered:
        if each.role is Role.USER:
            continue
        for line in text_of(each.parts).split("\n"):
            quoted = line.strip(WHITE_SPACE)
            if len(quoted) > QUOTED and quoted in fold.text and quoted not in theirs:
                yield f"{fold.key} says {quoted[:40]!r} in the user's voice"


QUOTED = 30
"""Characters of a line that a digest cannot have by chance."""


def _refs_of_log(envelope: Envelope) -> list[Ref]:
    """The refs of what came from the log, in order of the stream."""
    return [entry.ref for entry in envelope.entries if entry.segment.origin != "lamina"]


def _first(parts: Sequence[Part], sort: type) -> bool:
    return bool(parts) and isinstance(parts[0], sort)


def _thinks(entry: Entry) -> bool:
    return entry.segment.kind == "thinking"


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
