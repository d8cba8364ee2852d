"""Bringing back what was left out: whole, a slice of it, or the places where a text occurs in it.

The model's own `recall` calls are answered in pieces of at most `PIECE` characters, so that recalling
something never fills the window again. No store is needed: the log has everything.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from lamina.core.recall import recall
from lamina.core.text.characters import fold_case, quote_text
from lamina.core.values import Ledger, Segment, ToolCall
from lamina.core.wording import text_of
from lamina.errors import BadInput, NotFound
from lamina.segments import result

PIECE = 8_000
"""How many characters one call of the recall tool brings back at most."""

AROUND = 200
"""How many characters are shown on either side of a match."""

MATCHES = 20
"""How many matches are shown."""


class TextMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A place where the text occurs: its first character, and the text around it."""

    at: int
    text: str


class Recalled(msgspec.Struct, frozen=True, kw_only=True):
    """What a key stands for.

    It is `text` from character `start` on, of `total` characters, or the `matches` of a search with `more`
    that are not shown.
    """

    key: str
    text: str
    start: int = 0
    total: int = 0
    matches: tuple[TextMatch, ...] = ()
    more: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def recall_text(
    log: Sequence[Segment], key: str, *, ledger: Ledger, part: tuple[int, int] | None = None, find: str = ""
) -> Recalled:
    """Return the full text, a `part` of it as (start, length), or the text around each match of `find`."""
    whole = "\n".join(text_of(segment.parts) for segment in recall(log, key, ledger=ledger))
    if find:
        return _find_matches(key, whole, find)
    start, length = part or (0, len(whole))
    if start < 0 or length < 0:
        raise BadInput(f"{part!r}", place="part", hint="give (start, length) in characters, from 0")
    return Recalled(key=key, text=whole[start : start + length], start=start, total=len(whole))


def answer_recall(log: Sequence[Segment], call: ToolCall, *, ledger: Ledger) -> Segment:
    """Return the result of a recall that the model asked for. A problem is a result, too."""
    try:
        text = _answer_text(log, _read_arguments(call), ledger)
    except (NotFound, BadInput) as problem:
        return result(str(problem), id=call.id, name=call.name, error=True)
    return result(text, id=call.id, name=call.name, error=False)


def _read_arguments(call: ToolCall) -> dict[str, Any]:
    """Read the arguments of a recall. Raises BadInput, in words for the model, if there is no key."""
    hint = 'give {"key": "..."}, and `start` or `find` if you like'
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        raise BadInput("the arguments are not JSON", place="recall", hint=hint) from None
    match arguments:
        case {"key": str()}:
            return dict(arguments)
    raise BadInput("no key", place="recall", hint=hint)


def _answer_text(log: Sequence[Segment], arguments: dict[str, Any], ledger: Ledger) -> str:
    """Return what the model reads: the text, one piece of it with its place, or a list of matches."""
    start = arguments.get("start") or 0
    find = arguments.get("find") or ""
    if not isinstance(start, int) or not isinstance(find, str):
        raise BadInput(f"{start!r}, {find!r}", place="recall", hint="start is a number, find a text")
    if find:
        return _list_matches(recall_text(log, arguments["key"], ledger=ledger, find=find), find)
    piece = recall_text(log, arguments["key"], ledger=ledger, part=(start, PIECE))
    if piece.end >= piece.total and start == 0:
        return piece.text
    next_piece = ""
    if piece.end < piece.total:
        next_piece = f"; go on with start={piece.end}"
    return f"[characters {start:,} to {piece.end:,} of {piece.total:,}{next_piece}]\n{piece.text}"


def _list_matches(recalled: Recalled, find: str) -> str:
    if not recalled.matches:
        return f"[{quote_text(find)} does not occur in its {recalled.total:,} characters]"
    lines = [f"[at character {match.at:,}]\n{match.text}" for match in recalled.matches]
    if recalled.more:
        lines.append(f"[{recalled.more:,} more places]")
    return "\n".join(lines)


def _find_matches(key: str, whole: str, find: str) -> Recalled:
    """Search a text, whatever its case.

    `fold_case` keeps the length of a text, so the places are those in the text itself, and a slice can be
    asked for there.
    """
    folded_text = fold_case(whole)
    folded_find = fold_case(find)
    places: list[int] = []
    at = folded_text.find(folded_find)
    while at >= 0:
        places.append(at)
        at = folded_text.find(folded_find, at + len(folded_find))
    matches: list[TextMatch] = []
    for at in places[:MATCHES]:
        context = whole[max(at - AROUND, 0) : at + len(find) + AROUND]
        matches.append(TextMatch(at=at, text=context))
    more = max(len(places) - MATCHES, 0)
    return Recalled(key=key, text="", total=len(whole), matches=tuple(matches), more=more)
