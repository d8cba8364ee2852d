"""The ledger at work: what was sent lowered is sent the same way again, while the history stands.

Lines and folds are keyed by content, never by position, so merging, repair, forks and reloads do not move
them. A client may edit, delete, cut off or rewind its history. Then a fold of which a part is missing is
undone and its text leaves the ledger. A line whose segment is gone holds no text; it stays, so that a
segment which comes back does not rise. The prompt and the last step are never sent as an old cut left them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import msgspec

from lamina.core.arrange import pairs
from lamina.core.hashing import parts_digest, stem
from lamina.core.repair import closing_line, empty, omitted, own, side
from lamina.core.text.arguments import telling
from lamina.core.text.tags import tag
from lamina.core.values import (
    Digest,
    Entry,
    Fold,
    Form,
    Layer,
    Ledger,
    LedgerLine,
    Part,
    Raw,
    Ref,
    Role,
    Segment,
    Text,
    Thinking,
    ToolResult,
)
from lamina.core.wording import Wording, guard, named

SAME_TEXT_LATER = "the same system text stands again later"
STEP_IS_FOLDED = "thinking of a step that is folded"
"""Why an old reminder is left out. It holds only while the later one stands."""


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """Entries as the ledger wants them, and the part of the ledger that holds for them.

    `reworded` are lines whose parts are not what was sent: this release says them differently. `followed` are
    lines of thinking that goes with its step, which is folded.
    """

    entries: list[Entry]
    ledger: Ledger
    reworded: dict[Ref, LedgerLine] = {}
    followed: dict[Ref, LedgerLine] = {}


def rewind(ledger: Ledger, log: Iterable[Ref]) -> Ledger:
    """The ledger without what concerns segments that the user took back. For an explicit rewind only."""
    there = frozenset(log)
    stems = frozenset(stem(ref) for ref in there)
    return msgspec.structs.replace(
        ledger,
        lines={ref: line for ref, line in ledger.lines.items() if ref in there},
        folds=tuple(fold for fold in ledger.folds if there.issuperset(fold.covers)),
        repairs={name: what for name, what in ledger.repairs.items() if _mended(name) in there | stems},
        bound={ref: prefix for ref, prefix in ledger.bound.items() if ref in there},
        promoted=tuple(ref for ref in ledger.promoted if ref in there),
    )


def _mended(name: Ref) -> Ref:
    """The entry that a line of the repairs is about: its ref, without what says which side of it is meant."""
    return Ref(name.removesuffix(":id").removesuffix(":wire").removesuffix(":end"))


def apply_ledger(
    entries: list[Entry], ledger: Ledger, *, wording: Wording, with_folds: bool = True
) -> Applied:
    """The entries of a log with every line and fold in force that still holds for it.

    Without folds, `entries` are the end of a log in whose beginning all folds are in force already.
    """
    lines = _standing_lines(entries, ledger.lines)
    reworded: dict[Ref, LedgerLine] = {}
    if lines:
        entries = [_lowered_again(entry, lines.get(entry.ref), wording, reworded) for entry in entries]
    folds = _standing_folds(entries, ledger.folds) if with_folds else ledger.folds
    if len(lines) < len(ledger.lines) or len(folds) < len(ledger.folds):
        ledger = msgspec.structs.replace(ledger, lines=lines, folds=folds)
    followed: dict[Ref, LedgerLine] = {}
    if folds and with_folds:
        entries, followed = _without_thoughts_of(folds, entries)
        entries = lay_folds(entries, folds, wording=wording)
    return Applied(entries=entries, ledger=ledger, reworded=reworded, followed=followed)


def _without_thoughts_of(
    folds: Sequence[Fold], entries: list[Entry]
) -> tuple[list[Entry], dict[Ref, LedgerLine]]:
    """Without thinking that led to what is folded now, and the lines for that."""
    folded_at = {ref: fold.cut for fold in folds for ref in fold.covers}
    left = list(entries)
    lines: dict[Ref, LedgerLine] = {}
    for i, entry in enumerate(entries):
        if entry.form is not Form.FULL or not _is_thinking(entry) or entry.ref in folded_at:
            continue
        led_to = _led_to(entries, i, folded_at)
        if led_to is None or led_to.ref not in folded_at:
            continue
        left[i] = omitted(entry, STEP_IS_FOLDED)
        lines[entry.ref] = LedgerLine(
            form=Form.OMITTED, why=STEP_IS_FOLDED, wording=0, sent=Digest(""), cut=folded_at[led_to.ref]
        )
    return left, lines


def _led_to(entries: Sequence[Entry], at: int, folded_at: Mapping[Ref, int]) -> Entry | None:
    """What the model said or did in the same step after this thinking, or else before it."""
    for places in (range(at + 1, len(entries)), range(at - 1, -1, -1)):
        for i in places:
            entry = entries[i]
            if entry.step != entries[at].step:
                break
            is_sent = entry.form is not Form.OMITTED or entry.ref in folded_at
            if is_sent and entry.role is Role.ASSISTANT and not _is_thinking(entry):
                return entry
    return None


def _is_thinking(entry: Entry) -> bool:
    return bool(entry.segment.parts) and isinstance(entry.segment.parts[0], Thinking)


def current_turn(entries: Sequence[Entry]) -> frozenset[int]:
    """Positions of the prompt and of the last step, which go out as they came.

    Where the user spoke up within the turn, beside the results of tools, the newest of these words belong to
    the prompt. Thinking, or an item of the provider's own, that follows the last step belongs to it.
    """
    last_step = max((e.step for e in entries if e.layer is not Layer.SYSTEM and not _is_aside(e)), default=0)
    last_turn = max((e.turn for e in entries if e.layer is not Layer.SYSTEM), default=0)
    spoke_up = max((e.step for e in entries if e.turn == last_turn and said_beside_results(e)), default=-1)
    return frozenset(
        i
        for i, entry in enumerate(entries)
        if entry.layer is not Layer.SYSTEM
        and (
            entry.step >= last_step
            or (entry.layer is Layer.PROMPT and entry.turn == last_turn)
            or (entry.step == spoke_up and said_beside_results(entry))
        )
    )


def _is_aside(entry: Entry) -> bool:
    """Whether the model neither says nor does anything here: thinking, or an item of the provider's own."""
    parts = entry.segment.parts
    return entry.role is Role.ASSISTANT and bool(parts) and isinstance(parts[0], Thinking | Raw)


def said_beside_results(entry: Entry) -> bool:
    """Whether the user says this in a message that has results of tools, in the midst of a turn."""
    segment = entry.segment
    if entry.layer is not Layer.STEPS or entry.role is not Role.USER or segment.role is not Role.USER:
        return False
    return segment.origin != "lamina" and not segment.covers and not empty(segment.parts)


def _standing_lines(entries: Sequence[Entry], lines: Mapping[Ref, LedgerLine]) -> dict[Ref, LedgerLine]:
    """The lines that hold. A line of a cut never concerns the prompt or the last step.

    Only going back in the history makes an old entry one of these again. What entered lowered, since it did
    not fit or cannot be said where the request goes, stays so. What is pinned stands in full.
    """
    if not lines:
        return {}
    newest_system_text = {e.content: i for i, e in enumerate(entries) if e.role is Role.SYSTEM}
    undone = {
        entry.ref
        for i, entry in enumerate(entries)
        if (line := lines.get(entry.ref)) is not None
        and line.why == SAME_TEXT_LATER
        and newest_system_text.get(entry.content, i) <= i
    }
    undone |= {entry.ref for entry in entries if entry.segment.pinned}
    for i in current_turn(entries):
        line = lines.get(entries[i].ref)
        if line is not None and line.cut:
            undone.add(entries[i].ref)
    return {ref: line for ref, line in lines.items() if ref not in undone}


def _lowered_again(
    entry: Entry, line: LedgerLine | None, wording: Wording, reworded: dict[Ref, LedgerLine]
) -> Entry:
    """The entry as its line says; a line that says it differently than it was sent is noted."""
    if line is None or entry.form <= line.form:
        return entry
    words = wording.of(line.wording)
    if line.reference:
        lowered = _with_parts(entry, line.form, words.reference(entry.segment, entry.content), line.why)
    else:
        lowered = lower(entry, line.form, line.why, wording=words, limit=line.limit)
    if lowered.sent != line.sent:
        reworded[entry.ref] = msgspec.structs.replace(line, sent=lowered.sent)
    return lowered


def _standing_folds(entries: Sequence[Entry], folds: tuple[Fold, ...]) -> tuple[Fold, ...]:
    """The folds of which everything is there, in order, with nothing new between, and of which none is kept.

    A call and its result are in one fold or in none, and no fold stands between the two.
    """
    if not folds:
        return folds
    structure = _structure(entries)
    return tuple(fold for fold in folds if _stands(fold, structure))


class _Structure(msgspec.Struct, frozen=True, kw_only=True):
    """A log as folds look at it.

    `place` is the position of each ref, `partner` the result of a call or the call of a result, `protected`
    the prompt and the last step. `open_until` has for each position where the last result stands of the
    calls up to there.
    """

    entries: Sequence[Entry]
    place: Mapping[Ref, int]
    partner: Mapping[Ref, Ref]
    open_until: Sequence[int]
    protected: frozenset[int]


def _structure(entries: Sequence[Entry]) -> _Structure:
    partner: dict[Ref, Ref] = {}
    answered_at = [-1] * len(entries)
    for call_at, result_at in pairs(entries):
        call, result = entries[call_at].ref, entries[result_at].ref
        partner[call] = result
        partner[result] = call
        answered_at[call_at] = result_at
    return _Structure(
        entries=entries,
        place={entry.ref: i for i, entry in enumerate(entries)},
        partner=partner,
        open_until=list(accumulate(answered_at, max)),
        protected=current_turn(entries),
    )


def _stands(fold: Fold, log: _Structure) -> bool:
    places = [log.place.get(ref) for ref in fold.covers]
    here = [place for place in places if place is not None]
    if not here or len(here) < len(places) or here != sorted(here):
        return False
    first, last = here[0], here[-1]
    covered = frozenset(fold.covers)
    for i in range(first, last + 1):
        entry = log.entries[i]
        if entry.ref not in covered:
            if entry.form is not Form.OMITTED and entry.role is not Role.SYSTEM:
                return False
            continue
        kept = entry.segment.pinned or entry.role is Role.SYSTEM or i in log.protected
        if kept or log.partner.get(entry.ref, entry.ref) not in covered:
            return False
    return first == 0 or log.open_until[first - 1] <= last


def lower(entry: Entry, form: Form, why: str, *, wording: Wording, limit: int = 0) -> Entry:
    """The entry in a lower form."""
    if form is Form.OMITTED:
        return omitted(entry, why)
    if _is_late_result(entry):
        return _with_parts(entry, form, _late_parts(entry, form, wording, limit), why)
    return _with_parts(entry, form, wording(_described(entry), form, entry.content, limit=limit), why)


def _is_late_result(entry: Entry) -> bool:
    """Whether a result came after its call was answered, and is quoted in the model's voice."""
    parts = entry.segment.parts
    return entry.role is Role.ASSISTANT and bool(parts) and isinstance(parts[0], ToolResult)


def _late_parts(entry: Entry, form: Form, wording: Wording, limit: int) -> tuple[Part, ...]:
    """A late result in a lower form: it stays a quotation."""
    (lowered,) = wording(entry.segment, form, entry.content, limit=limit)
    return wording.late(lowered) if isinstance(lowered, ToolResult) else (lowered,)


def _with_parts(entry: Entry, form: Form, parts: tuple[Part, ...], why: str) -> Entry:
    return msgspec.structs.replace(
        entry, form=form, parts=parts, sent=parts_digest(entry.role, parts), why=why
    )


def _described(entry: Entry) -> Segment:
    """The segment to word; a result that does not say so itself is named by what its call asked for."""
    segment, asked = entry.source, entry.asked
    if asked is None or named(segment):
        return segment
    about = {"tool": asked.name, "path": telling(asked.arguments)}
    return msgspec.structs.replace(segment, attrs=segment.attrs | about)


def line(lowered: Entry, *, wording: Wording, limit: int = 0, cut: int = 0) -> LedgerLine:
    """What the ledger keeps of a lowered entry."""
    return LedgerLine(
        form=lowered.form, why=lowered.why, wording=wording.version, sent=lowered.sent, limit=limit, cut=cut
    )


def lay_folds(entries: Sequence[Entry], folds: Iterable[Fold], *, wording: Wording) -> list[Entry]:
    """Each fold's segments omitted, and its digest where the first of them stood.

    System text among them stays. It stands between the two voices of the digest: after the user's words
    and before what is said in the model's voice, which is where every provider takes it.
    """
    owner = {ref: fold for fold in folds for ref in fold.covers}
    last_covered = {owner[entry.ref].key: entry.ref for entry in entries if entry.ref in owner}
    result: list[Entry] = []
    before: Role | None = None
    opened: set[str] = set()
    with_words: set[str] = set()
    for i, entry in enumerate(entries):
        fold = owner.get(entry.ref)
        if fold is None:
            result.append(entry)
            if entry.form is not Form.OMITTED and entry.role is not Role.SYSTEM:
                before = entry.role
            continue
        if fold.key not in opened:
            opened.add(fold.key)
            if _needs_words(fold, before):
                with_words.add(fold.key)
                result.append(_words_entry(fold, at=entry, wording=wording))
                before = Role.USER
        result.append(omitted(entry, f"folded into {fold.key}"))
        if fold.notes and entry.ref == last_covered[fold.key]:
            named = fold.key not in with_words
            result.append(_notes_entry(fold, at=entry, wording=wording, named=named))
            before = Role.ASSISTANT
            if _next_role(entries, i + 1, owner) is Role.ASSISTANT:
                result.append(_closing_entry(fold, at=entry))
                before = Role.USER
    return result


def _needs_words(fold: Fold, before: Role | None) -> bool:
    """Whether the first voice is needed: there are words of the user, or no user's message stands before."""
    if fold.speaks or not fold.notes:
        return True
    return before is None or side(before) != "user"


def _next_role(entries: Sequence[Entry], start: int, owner: Mapping[Ref, Fold]) -> Role:
    """Who speaks after a digest; a digest that follows begins with the user's voice."""
    for entry in entries[start:]:
        if entry.ref in owner:
            return Role.ASSISTANT if not _needs_words(owner[entry.ref], Role.USER) else Role.USER
        if entry.form is not Form.OMITTED and entry.role is not Role.SYSTEM:
            return entry.role
    return Role.ASSISTANT


def _words_entry(fold: Fold, *, at: Entry, wording: Wording) -> Entry:
    """What a digest says in the user's voice: fenced data, a message of its own."""
    text = tag("digest", _digest_attributes(fold, wording), guard(fold.text, wording.kinds))
    why = f"stands for {len(fold.covers)} folded segments"
    segment = _digest_segment(fold, key=fold.key, role=Role.USER, text=text)
    return own(segment, why, layer=_digest_layer(at), turn=at.turn, step=at.step)


def _notes_entry(fold: Fold, *, at: Entry, wording: Wording, named: bool) -> Entry:
    """What a digest quotes of the model and the tools, in the model's voice.

    `named`: it stands alone, so its tag says what the tag of the user's words would say.
    """
    attributes = _digest_attributes(fold, wording) if named else {}
    text = tag("digest_notes", attributes, guard(fold.notes, wording.kinds))
    why = f"says what was done in {len(fold.covers)} folded segments"
    segment = _digest_segment(fold, key=f"{fold.key}!notes", role=Role.ASSISTANT, text=text)
    return own(segment, why, layer=_digest_layer(at), turn=at.turn, step=at.step)


def _closing_entry(fold: Fold, *, at: Entry) -> Entry:
    key = f"{fold.key}!end"
    layer = _digest_layer(at)
    return closing_line(key, "[end of the digest]", kind="digest", layer=layer, turn=at.turn, step=at.step)


def is_digest(entry: Entry) -> bool:
    """Whether an entry is a part of a fold's digest."""
    return entry.segment.kind == "digest" and entry.segment.origin == "lamina"


def _digest_attributes(fold: Fold, wording: Wording) -> dict[str, str]:
    attributes = {"covers": str(len(fold.covers))}
    if wording.handles:
        attributes["recall"] = fold.key
    return attributes


def _digest_segment(fold: Fold, *, key: str, role: Role, text: str) -> Segment:
    return Segment(
        role=role, kind="digest", parts=(Text(text),), key=key, origin="lamina", covers=fold.covers
    )


def _digest_layer(at: Entry) -> Layer:
    """Where a digest stands: with what it covers, and never among the system text."""
    return Layer.HISTORY if at.layer in (Layer.SYSTEM, Layer.LIBRARY) else at.layer
