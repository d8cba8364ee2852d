"""Applying a ledger: what was sent lowered is sent the same way again, as long as the history is unchanged.

Lines and folds are keyed by content, never by position. So merging, repair, forks and reloads do not move
them. A client may edit, delete, cut off or rewind its history. Then a fold of which a part is missing is
undone, and its text leaves the ledger. A line whose segment is gone holds no text; it stays, so that a
segment which comes back does not rise. The prompt and the last step are never sent as an old cut left them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import accumulate, chain, takewhile
from typing import Any, TypeVar

import msgspec

from lamina.core.digests import lay_folds, map_covered
from lamina.core.entries import begins_with, index_by_ref, is_kept, omit, omit_by_ref, pair_calls
from lamina.core.lowering import lower_entry, make_omitted_line
from lamina.core.references import is_reference_line, lacks_later_copy
from lamina.core.reminders import find_valid_reminders
from lamina.core.turns import current_turn
from lamina.core.values import Entry, Fold, Form, Ledger, LedgerLine, Ref, Role, Thinking
from lamina.core.wording import WORDING_VERSION, Wording
from lamina.errors import BadInput

SAME_TEXT_LATER = "the same system text stands again later"
"""Why an old reminder is left out. It holds only while the later one stands."""

STEP_IS_FOLDED = "thinking of a step that is folded"

_REPAIR_SUFFIXES = (":id", ":wire", ":end")
"""What may follow the ref of an entry in the name of a repair: it says which aspect was repaired."""


_Value = TypeVar("_Value")


def load_ledger(ledger: Ledger | Mapping[str, Any] | None) -> Ledger:
    """A ledger, or the one that `dump` wrote. Anything else raises BadInput.

    None is an empty ledger. The hint says what to do with a text, and with what a build or a fit returned.
    """
    if ledger is None:
        return Ledger()
    if isinstance(ledger, Ledger):
        return ledger
    if isinstance(ledger, Mapping):
        return Ledger.load(ledger)
    hint = "give the ledger that the last call returned, or what its dump() gave"
    if isinstance(ledger, str | bytes):
        hint = "read the text first: ledger=json.loads(text)"
    elif isinstance(getattr(ledger, "ledger", None), Ledger):
        hint = "give its ledger: ledger=fitted.ledger"
    raise BadInput(f"{type(ledger).__name__} is not a ledger", place="ledger", hint=hint)


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """Entries as the ledger wants them, and the part of the ledger that holds for them.

    `reworded` are lines that this release words differently than they were sent. `followed` are new lines,
    for what is left out because something else is: thinking of a step that is folded, and a new answer to a
    call that is not sent.
    """

    entries: list[Entry]
    ledger: Ledger
    reworded: dict[Ref, LedgerLine] = {}
    followed: dict[Ref, LedgerLine] = {}


def rewind(ledger: Ledger, log: Iterable[Ref]) -> Ledger:
    """The ledger without what concerns segments that the user took back. For an explicit rewind only.

    If a client only cut off its history, the lines stay: the segments may come back, and must not rise then.
    """
    logged = frozenset(log)
    repairs = {name: what for name, what in ledger.repairs.items() if _repaired_ref(name) in logged}
    return msgspec.structs.replace(
        ledger,
        lines=_select(ledger.lines, logged),
        folds=tuple(fold for fold in ledger.folds if logged.issuperset((*fold.covers, *fold.replaced_by))),
        reminders=find_valid_reminders(ledger.reminders, logged),
        repairs=repairs,
        bound=_select(ledger.bound, logged),
        promoted=tuple(ref for ref in ledger.promoted if ref in logged),
    )


def _select(by_ref: Mapping[Ref, _Value], refs: frozenset[Ref]) -> dict[Ref, _Value]:
    """What belongs to these refs. The rest concerns segments that are gone."""
    return {ref: value for ref, value in by_ref.items() if ref in refs}


def _repaired_ref(name: Ref) -> Ref:
    """The ref of the entry that a repair concerns: `k1~2:id` is about `k1~2`."""
    ref = str(name)
    for suffix in _REPAIR_SUFFIXES:
        ref = ref.removesuffix(suffix)
    return Ref(ref)


def apply_ledger(
    entries: list[Entry], ledger: Ledger, *, wording: Wording, with_folds: bool = True
) -> Applied:
    """The entries of a log, with every line and fold of the ledger in force that still holds for it.

    Without folds, `entries` are the end of a log; all folds are in force in its beginning already.
    """
    lines = find_valid_lines(entries, ledger.lines)
    folds = ledger.folds
    folded: dict[Ref, Fold] = {}
    if with_folds and folds:
        # Whether a fold holds depends on what is left out, and not on how the rest is worded.
        reasons = {ref: line.why for ref, line in lines.items() if line.form is Form.OMITTED}
        folds = _find_valid_folds(omit_by_ref(entries, reasons), folds)
        folded = map_covered(folds)
    followed = _find_lines_of_answers(entries, lines)
    reworded: dict[Ref, LedgerLine] = {}
    if lines:
        entries, reworded = _lower_again(entries, lines | followed, wording, folded=folded)
    # If nothing has ended it must stay the same object: by that a memo sees that no form has changed.
    if len(lines) < len(ledger.lines) or len(folds) < len(ledger.folds):
        ledger = msgspec.structs.replace(ledger, lines=lines, folds=folds)
    if folds and with_folds:
        entries, thinking_lines = _omit_folded_thinking(entries, folds)
        followed |= thinking_lines
        entries = lay_folds(entries, folds, wording=wording)
    return Applied(entries=entries, ledger=ledger, reworded=reworded, followed=followed)


def find_valid_lines(entries: Sequence[Entry], lines: Mapping[Ref, LedgerLine]) -> dict[Ref, LedgerLine]:
    """The lines that hold. Only lines of entries that are there can be undone.

    The line of a segment that is gone stays. If the segment comes back, it is sent as it was before.
    """
    valid = dict(lines)
    if not valid:
        return valid
    newest_system_text = {entry.content: at for at, entry in enumerate(entries) if entry.role is Role.SYSTEM}
    current = current_turn(entries)
    refs = {entry.ref for entry in entries}
    for at, entry in enumerate(entries):
        previous = lines.get(entry.ref)
        if previous is None:
            continue
        # An old reminder was left out for a later one. If the client took that away, the old one is sent.
        is_newest_text = newest_system_text.get(entry.content, at) <= at
        is_undone = _is_undone(previous, entry, is_current=at in current, is_newest_text=is_newest_text)
        # The same holds for an attachment whose full form moved to a later appearance.
        if is_undone or lacks_later_copy(previous.why, refs):
            valid.pop(entry.ref, None)
    return valid


def _is_undone(previous: LedgerLine, entry: Entry, *, is_current: bool, is_newest_text: bool) -> bool:
    """Whether a line does not hold any more.

    A line of a cut never concerns the prompt or the last step: only a rewind makes an old entry one of these
    again. What entered lowered, since it did not fit or the format cannot express it, stays lowered. What is
    pinned is sent in full. A reminder is sent again if the later one is gone.
    """
    if entry.segment.pinned:
        return True
    if previous.cut and is_current:
        return True
    return previous.why == SAME_TEXT_LATER and is_newest_text


def _lower_again(
    entries: Sequence[Entry], lines: Mapping[Ref, LedgerLine], wording: Wording, *, folded: Container[Ref]
) -> tuple[list[Entry], dict[Ref, LedgerLine]]:
    """The entries as their lines say, and the lines that this release words differently than was sent.

    An entry that is lower already stays so: a filter or a summary may have left it out. One under a digest is
    not worded: nobody would see it, and in a small window most entries are. Whether a reference is still one,
    `refer_to_earlier` decides.
    """
    result: list[Entry] = []
    reworded: dict[Ref, LedgerLine] = {}
    for entry in entries:
        previous = lines.get(entry.ref)
        if previous is None or entry.form <= previous.form or entry.ref in folded:
            result.append(entry)
            continue
        if is_reference_line(previous):
            result.append(entry)
            continue
        lowered = lower_entry(entry, previous.form, previous.why, wording=wording, limit=previous.limit)
        result.append(lowered)
        if lowered.sent != previous.sent:
            reworded[entry.ref] = msgspec.structs.replace(
                previous, sent=lowered.sent, wording=WORDING_VERSION
            )
    return result, reworded


def _find_lines_of_answers(
    entries: Sequence[Entry], lines: Mapping[Ref, LedgerLine]
) -> dict[Ref, LedgerLine]:
    """Lines for results without one, whose calls are left out.

    If the client deletes the result of such a call, repair puts an answer in its place. No cut has seen it.
    """
    omitted = {ref for ref, line in lines.items() if line.form is Form.OMITTED}
    if not omitted:
        return {}
    new_lines: dict[Ref, LedgerLine] = {}
    for call_at, result_at in pair_calls(entries):
        call_ref = entries[call_at].ref
        result_ref = entries[result_at].ref
        if call_ref in omitted and result_ref not in lines:
            new_lines[result_ref] = lines[call_ref]
    return new_lines


def without_lines(ledger: Ledger, ended: frozenset[Ref]) -> Ledger:
    """The ledger without these lines; the same ledger if it has none of them."""
    if ended.isdisjoint(ledger.lines):
        return ledger
    lines = {ref: line for ref, line in ledger.lines.items() if ref not in ended}
    return msgspec.structs.replace(ledger, lines=lines)


def _omit_folded_thinking(
    entries: list[Entry], folds: Sequence[Fold]
) -> tuple[list[Entry], dict[Ref, LedgerLine]]:
    """The entries without thinking that led to what is folded now, and the lines for it.

    Reasoning says nothing without the step that it led to.
    """
    fold_of = map_covered(folds)
    result = list(entries)
    lines: dict[Ref, LedgerLine] = {}
    for at, entry in enumerate(entries):
        is_sent_thinking = entry.form is Form.FULL and _is_thinking(entry)
        if not is_sent_thinking or entry.ref in fold_of:
            continue
        fold = _find_fold_of_outcome(entries, at, fold_of)
        if fold is not None:
            result[at] = omit(entry, STEP_IS_FOLDED)
            lines[entry.ref] = make_omitted_line(STEP_IS_FOLDED, cut=fold.cut)
    return result, lines


def _find_fold_of_outcome(entries: Sequence[Entry], at: int, fold_of: Mapping[Ref, Fold]) -> Fold | None:
    """The fold of what the model said or did in the same step after this thinking, or else before it.

    None if that is sent, or if there is nothing. What is left out counts only if a fold left it out: nothing
    else says what became of the step.
    """

    def is_in_step(entry: Entry) -> bool:
        return entry.step == entries[at].step

    after = takewhile(is_in_step, map(entries.__getitem__, range(at + 1, len(entries))))
    before = takewhile(is_in_step, map(entries.__getitem__, range(at - 1, -1, -1)))
    for entry in chain(after, before):
        if entry.role is not Role.ASSISTANT or _is_thinking(entry):
            continue
        if entry.form is Form.OMITTED and entry.ref not in fold_of:
            continue
        return fold_of.get(entry.ref)
    return None


def _is_thinking(entry: Entry) -> bool:
    """Whether an entry came as a block of reasoning, whether or not it is sent."""
    return begins_with(entry.segment.parts, Thinking)


class _LogStructure(msgspec.Struct, frozen=True, kw_only=True):
    """A log as folds look at it.

    `position` is the place of each ref, and `partner` the result of a call or the call of a result.
    `open_until` says for each position where the last result stands of the calls before it. `current` are
    the positions of the prompt and the last step.
    """

    entries: Sequence[Entry]
    position: Mapping[Ref, int]
    partner: Mapping[Ref, Ref]
    open_until: Sequence[int]
    current: frozenset[int]


def _find_valid_folds(entries: Sequence[Entry], folds: tuple[Fold, ...]) -> tuple[Fold, ...]:
    """The folds that hold: all that they cover is there, in order, and nothing new stands between.

    Where a mark says that a later message replaced a rule, that message is there too: if the user took it
    back, the rule is in force again.

    A call and its result are in one fold or in none, and no fold stands between the two. What must be sent
    is in no fold.
    """
    structure = _find_structure(entries)
    return tuple(fold for fold in folds if _is_valid_fold(fold, structure))


def _find_structure(entries: Sequence[Entry]) -> _LogStructure:
    """The positions and pairs of a log, found once for all folds."""
    partner: dict[Ref, Ref] = {}
    answered_at = [-1] * len(entries)
    for call_at, result_at in pair_calls(entries):
        call_ref = entries[call_at].ref
        result_ref = entries[result_at].ref
        partner[call_ref] = result_ref
        partner[result_ref] = call_ref
        answered_at[call_at] = result_at
    return _LogStructure(
        entries=entries,
        position=index_by_ref(entries),
        partner=partner,
        open_until=list(accumulate(answered_at, max, initial=-1)),
        current=current_turn(entries),
    )


def _is_valid_fold(fold: Fold, log: _LogStructure) -> bool:
    """Whether a fold holds for this log.

    All that it covers must be there in its order. A call before it may have its result before it too, but
    not after it: the digest would stand between the two.
    """
    if not fold.covers or not log.position.keys() >= {*fold.covers, *fold.replaced_by}:
        return False
    positions = [log.position[ref] for ref in fold.covers]
    if positions != sorted(positions):
        return False
    first = positions[0]
    last = positions[-1]
    if log.open_until[first] > last:
        return False
    covers = frozenset(fold.covers)
    return all(_may_stand_in_fold(at, covers, log) for at in range(first, last + 1))


def _may_stand_in_fold(at: int, covers: frozenset[Ref], log: _LogStructure) -> bool:
    """Whether the entry at this position may stand between the first and the last entry of a fold.

    What the fold does not cover may be there only if it is left out, is a kept message of the user, or is
    system text, which is never folded. What it covers must be free to be folded, and its call or result must
    be covered too.
    """
    entry = log.entries[at]
    is_system_text = entry.role is Role.SYSTEM
    if entry.ref not in covers:
        return is_system_text or is_kept(entry) or entry.form is Form.OMITTED
    if is_system_text or entry.segment.pinned:
        return False
    if at in log.current:
        return False
    return log.partner.get(entry.ref, entry.ref) in covers
