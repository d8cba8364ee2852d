"""Bringing back what was left out: whole, a slice of it, or the places where a text occurs in it.

The model's own `recall` calls are answered in pieces of at most `PIECE` characters, so that bringing
something back never fills the window again. Knows no store: the log has everything.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from lamina.core.recall import recall
from lamina.core.text.characters import fold_case, in_quotes
from lamina.core.values import Ledger, Segment, ToolCall
from lamina.core.wording import text_of
from lamina.errors import BadInput, NotFound
from lamina.segments import result

PIECE = 8_000
"""Characters that one call of the recall tool brings back at most."""

AROUND, MATCHES = 200, 20
"""Characters on either side of a place that was found, and how many places are shown."""


class TextMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A place where the text occurs: its first character, and what stands around it."""

    at: int
    text: str


class Recalled(msgspec.Struct, frozen=True, kw_only=True):
    """What a key stands for: `text` from character `start` on, of `total`; or the places that were found."""

    key: str
    text: str
    start: int = 0
    total: int = 0
    matches: tuple[TextMatch, ...] = ()
    more: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def recalled(
    log: Sequence[Segment], key: str, *, ledger: Ledger, part: tuple[int, int] | None = None, find: str = ""
) -> Recalled:
    """The full text, `part` of it as (start, length), or what stands around each place of `find`."""
    whole = "\n".join(text_of(segment.parts) for segment in recall(log, key, ledger=ledger))
    if find:
        return _found(key, whole, find)
    start, length = part or (0, len(whole))
    if start < 0 or length < 0:
        raise BadInput(f"{part!r}", place="part", hint="give (start, length) in characters, from 0")
    return Recalled(key=key, text=whole[start : start + length], start=start, total=len(whole))


def answered(log: Sequence[Segment], call: ToolCall, *, ledger: Ledger) -> Segment:
    """The result of a recall that the model asked for."""
    try:
        text, error = _told(log, _arguments(call), ledger), False
    except (NotFound, BadInput) as problem:
        text, error = str(problem), True
    return result(text, id=call.id, name=call.name, error=error)


def _arguments(call: ToolCall) -> dict[str, Any]:
    hint = 'give {"key": "..."}, and `start` or `find` if you like'
    try:
        given = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        raise BadInput("the arguments are not JSON", place="recall", hint=hint) from None
    match given:
        case {"key": str()}:
            return dict(given)
    raise BadInput("no key", place="recall", hint=hint)


def _told(log: Sequence[Segment], given: dict[str, Any], ledger: Ledger) -> str:
    start, find = given.get("start") or 0, given.get("find") or ""
    if not isinstance(start, int) or not isinstance(find, str):
        raise BadInput(f"{start!r}, {find!r}", place="recall", hint="start is a number, find a text")
    if find:
        return _listed(recalled(log, given["key"], ledger=ledger, find=find), find)
    piece = recalled(log, given["key"], ledger=ledger, part=(start, PIECE))
    if piece.end >= piece.total and start == 0:
        return piece.text
    left = f"; go on with start={piece.end}" if piece.end < piece.total else ""
    return f"[characters {start:,} to {piece.end:,} of {piece.total:,}{left}]\n{piece.text}"


def _listed(found: Recalled, find: str) -> str:
    if not found.matches:
        return f"[{in_quotes(find)} does not occur in its {found.total:,} characters]"
    shown = [f"[at character {match.at:,}]\n{match.text}" for match in found.matches]
    return "\n".join([*shown, *([f"[{found.more:,} more places]"] if found.more else [])])


def _found(key: str, whole: str, find: str) -> Recalled:
    """Case does not matter; places are those in the text itself, so that a slice can be asked for there."""
    text, wanted = fold_case(whole), fold_case(find)
    places: list[int] = []
    at = text.find(wanted)
    while at >= 0:
        places.append(at)
        at = text.find(wanted, at + len(wanted))
    matches = tuple(
        TextMatch(at=at, text=whole[max(at - AROUND, 0) : at + len(find) + AROUND]) for at in places[:MATCHES]
    )
    more = max(len(places) - MATCHES, 0)
    return Recalled(key=key, text="", total=len(whole), matches=matches, more=more)
