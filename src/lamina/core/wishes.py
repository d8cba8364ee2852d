"""What the model asked to keep, to let go and to remember, read from its own calls of one tool.

The log is the only state: a pin holds while the call that made it is in the log. So it survives a restart and
is in every fork, and a rewind behind the call takes it back. Only calls of the assistant count, and only
those that were answered with an acceptance: a text that asks for a pin, wherever it stands, is not a call.

A wish never changes a voice, and never lowers what the user said. Pins together hold at most one part in
`PINNED_PART` of the room; what is beyond that is not held.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from lamina.core.entries import find_sent, is_users_text, pair_parts
from lamina.core.hashing import handle
from lamina.core.recall import find_fold
from lamina.core.text.characters import WHITE_SPACE, fold_case, split_words
from lamina.core.text.excerpts import to_one_line
from lamina.core.text.json_text import DEEPEST_ARGUMENTS, decode_json
from lamina.core.values import Entry, Fold, Ledger, Ref, Role, ToolCall, Wish
from lamina.core.wording import text_of

PINNED_PART = 4
"""Pins hold at most one part in so many of the room."""

MOST_WISHES = 256
"""So many calls of the model count, the newest. A model that pins without end would only slow the build."""

NOTE_LIMIT = 240
"""Characters of one note."""

LEAST_QUOTE = 12
"""Characters of a quotation that names a message. A shorter one would fit too many."""

ACCEPTED = {"pin": "pinned: ", "release": "released: ", "note": "noted: "}
"""How the result of a call begins that was accepted. Not every API says whether a result is an error."""

PINNED_TEXT = "pinned: its text stands here now"
"""How the result begins that brings back what was pinned. Then the result itself is held, too."""

BY_THE_MODEL = "asked by the model"


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the model asked for, as it holds at the end of a log.

    `pins` have what each pin holds, oldest first. `released` are segments that go first at the next cut.
    `notes` are the model's own lines by the call that made them. `own` are the calls and results of the tool.
    `account` has all of it, in order.
    """

    pins: tuple[frozenset[Ref], ...] = ()
    released: frozenset[Ref] = frozenset()
    notes: Mapping[Ref, str] = {}
    own: frozenset[Ref] = frozenset()
    account: tuple[Wish, ...] = ()


NO_WISHES = Wishes()


def read_wishes(entries: Sequence[Entry], ledger: Ledger, *, tool: str) -> Wishes:
    """Read the calls of this tool, in their order. A later wish about the same segment replaces an earlier.

    What a call named is found once, and stands in the ledger from then on.
    """
    exchanges = _find_exchanges(entries, tool)
    if not exchanges:
        return NO_WISHES
    reading = _Reading(entries, ledger, exchanges)
    for call_at, result_at in exchanges[-MOST_WISHES:]:
        reading.take(call_at, result_at)
    return reading.finish()


class _Reading:
    """The wishes of a log while its calls are read, one after the other."""

    def __init__(
        self, entries: Sequence[Entry], ledger: Ledger, exchanges: Sequence[tuple[int, int]]
    ) -> None:
        self._entries = entries
        self._folds = ledger.folds
        self._own = frozenset(entries[at].ref for exchange in exchanges for at in exchange)
        self._earlier_targets = {earlier.ref: frozenset(earlier.targets) for earlier in ledger.wishes}
        self._pins: dict[Ref, frozenset[Ref]] = {}
        self._released: set[Ref] = set()
        self._notes: dict[Ref, str] = {}
        self._account: list[Wish] = []

    def take(self, call_at: int, result_at: int) -> None:
        """Take one call with its result. One that was refused asks for nothing."""
        call = self._entries[call_at]
        result_text = text_of(self._entries[result_at].segment.parts)
        action, what = read_arguments(call.segment.parts[0])
        if not result_text.startswith(ACCEPTED.get(action, "\0")):
            return
        targets: frozenset[Ref] = frozenset()
        match action:
            case "note":
                self._notes[call.ref] = to_one_line(what, NOTE_LIMIT)
            case "pin":
                targets = self._find_targets(call_at, what)
                self._pins[call.ref] = targets
                if result_text.startswith(PINNED_TEXT):
                    self._pins[call.ref] = targets | {call.ref, self._entries[result_at].ref}
                self._released -= targets
            case "release":
                targets = self._find_targets(call_at, what)
                self._release(targets, what)
        line = to_one_line(what, NOTE_LIMIT)
        self._account.append(Wish(ref=call.ref, action=action, what=line, targets=tuple(sorted(targets))))

    def _find_targets(self, call_at: int, what: str) -> frozenset[Ref]:
        """What a call named. A call can only name what was there before it."""
        earlier_targets = self._earlier_targets.get(self._entries[call_at].ref)
        if earlier_targets is not None:
            return earlier_targets
        return find_targets(self._entries[:call_at], self._folds, what, own=self._own)

    def _release(self, targets: frozenset[Ref], what: str) -> None:
        """Take back the pins and the note that are named; what may be let go, goes first from now on."""
        self._pins = {ref: pin for ref, pin in self._pins.items() if targets.isdisjoint(pin)}
        line = " ".join(split_words(what))
        # A note has no key of its own, so it is released by its words.
        self._notes = {ref: text for ref, text in self._notes.items() if text != line}
        named = [entry for entry in self._entries if entry.ref in targets]
        self._released.update(entry.ref for entry in filter(may_release, named))

    def finish(self) -> Wishes:
        """What holds after the last call."""
        return Wishes(
            pins=tuple(self._pins.values()),
            released=frozenset(self._released),
            notes=self._notes,
            own=self._own,
            account=tuple(self._account),
        )


def _find_exchanges(entries: Sequence[Entry], tool: str) -> list[tuple[int, int]]:
    """Positions of each call of the tool and of its result, whether or not they are still sent."""
    parts = [next(iter(entry.segment.parts), None) for entry in entries]
    exchanges: list[tuple[int, int]] = []
    for call_at, result_at in pair_parts(parts):
        segment = entries[call_at].segment
        match segment.parts:
            case (ToolCall(name=name),) if name == tool and segment.role is Role.ASSISTANT:
                exchanges.append((call_at, result_at))
    return sorted(exchanges)


def read_arguments(call: Any) -> tuple[str, str]:
    """The action and what it is about, or ("", "") for a call that cannot be read."""
    if not isinstance(call, ToolCall):
        return "", ""
    match decode_json(call.arguments, deepest=DEEPEST_ARGUMENTS):
        case {"action": str(action), "what": str(what)}:
            return action, what
        case {"action": str(action)}:
            return action, ""
    return "", ""


def find_targets(
    entries: Sequence[Entry], folds: Iterable[Fold], what: str, *, own: frozenset[Ref] = frozenset()
) -> frozenset[Ref]:
    """What a key or a quotation stands for among these entries; nothing if it stands for nothing.

    A key is a handle, the key of a digest, or the key of a segment. Anything else is a quotation: the newest
    message with these words. System text stays in any case, and calls of the tool itself have no name.
    """
    name = what.strip(WHITE_SPACE)
    if not name:
        return frozenset()
    fold = find_fold(name, folds)
    if fold is not None:
        return frozenset(fold.covers).intersection(entry.ref for entry in entries)
    newest_first = [entry for entry in reversed(entries) if _may_be_named(entry, own)]
    entry = _find_by_key(newest_first, name)
    if entry is None and len(name) >= LEAST_QUOTE:
        entry = _find_by_quotation(newest_first, name)
    return frozenset() if entry is None else frozenset((entry.ref,))


def _may_be_named(entry: Entry, own: frozenset[Ref]) -> bool:
    segment = entry.segment
    if segment.role is Role.SYSTEM or segment.is_own or not segment.parts:
        return False
    return entry.ref not in own


def _find_by_key(entries: Iterable[Entry], name: str) -> Entry | None:
    """The first of these entries with this ref, key or handle."""
    for entry in entries:
        if name in (entry.ref, entry.segment.key, handle(entry.content)):
            return entry
    return None


def _find_by_quotation(entries: Iterable[Entry], words: str) -> Entry | None:
    """The first of these entries in which these words stand, whatever their case and the spaces between."""
    quotation = fold_words(words)
    for entry in entries:
        if quotation in fold_words(text_of(entry.segment.parts)):
            return entry
    return None


def fold_words(text: str) -> str:
    """A text as quotations are compared: whatever its case, and the spaces between its words."""
    return fold_case(" ".join(split_words(text)))


def may_release(entry: Entry) -> bool:
    """Whether the model may let an entry go: what it did and what tools returned, never the user's words."""
    return entry.role is not Role.SYSTEM and not is_users_text(entry)


def choose_held(wishes: Wishes, entries: Sequence[Entry], room: int) -> frozenset[Ref]:
    """The segments that pins hold, as far as they fit into their part of the room, oldest pin first.

    What was lowered before it was pinned takes what it takes now: a pin never raises a form.
    """
    if not wishes.pins:
        return frozenset()
    tokens = {entry.ref: entry.tokens for entry in find_sent(entries)}
    left = room // PINNED_PART
    held: set[Ref] = set()
    for pin in wishes.pins:
        new = tokens.keys() & pin - held
        cost = sum(tokens[ref] for ref in new)
        # A pin that is too large holds nothing. A smaller one after it still may.
        if cost <= left:
            left -= cost
            held |= new
    return frozenset(held)


def list_notes(run: Iterable[Entry], wishes: Wishes) -> tuple[str, ...]:
    """The notes that the model made in this run of entries, in their order."""
    return tuple(wishes.notes[entry.ref] for entry in run if entry.ref in wishes.notes)


def write_notes(notes: Sequence[str], limit: int) -> str:
    """The model's own lines for the head of a digest's notes: the newest, in at most `limit` characters."""
    lines: list[str] = []
    for text in reversed(notes):
        line = f"  noted by the model: {text}"
        limit -= len(line) + 1
        if limit < 0:
            break
        lines.append(line)
    lines.reverse()
    return "\n".join(lines)
