"""What comes of a turn, and what a listener hears while it goes on. Values only."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal

import msgspec

from lamina.agent.limits import Spent
from lamina.clients.events import Event
from lamina.core.text.characters import WHITE_SPACE
from lamina.core.values import Segment, ToolCall

Ending = Literal["end", "steps", "tokens", "money", "length", "refused", "error", "empty"]
"""Why a turn ended: the model was done, a limit was reached, or its answer was cut off, refused, broken."""


class Citation(msgspec.Struct, frozen=True, kw_only=True):
    """A segment that an answer names: its key, where it comes from, and the place in it."""

    key: str
    source: str
    place: str = ""


class TurnOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that ended. `unfounded` are sources that the answer names and nobody gave."""

    text: str = ""
    ending: Ending = "end"
    spent: Spent = Spent()
    ran: tuple[ToolCall, ...] = ()
    citations: tuple[Citation, ...] = ()
    unfounded: tuple[str, ...] = ()


class Ran(msgspec.Struct, frozen=True, kw_only=True, tag="ran"):
    """A tool was called, and this is its result, as it goes to the log."""

    call: ToolCall
    result: Segment


Heard = Event | Ran
Hear = Callable[[Heard], Awaitable[None]]
"""Is told each event of the model and each result of a tool, as it happens."""


async def deaf(_: Heard) -> None:
    """Hears nothing."""


_CITED = re.compile(r"\[\[([^\[\]\n]{1,300})\]\]")


def cited(text: str, given: Iterable[Segment]) -> tuple[tuple[Citation, ...], tuple[str, ...]]:
    """What an answer cites of the segments it was given, and what it cites that it was not."""
    known: dict[str, Citation] = {}
    for segment in given:
        for name, citation in _names(segment):
            known.setdefault(name, citation)
    said = list(dict.fromkeys(name.strip(WHITE_SPACE) for name in _CITED.findall(text)))
    found = dict.fromkeys(known[name] for name in said if name in known)
    return tuple(found), tuple(name for name in said if name not in known)


def _names(segment: Segment) -> list[tuple[str, Citation]]:
    """What a segment may be called: by its source, source and place, or key."""
    shown = ("source", "path", "url", "name", "title")
    source = next((segment.attrs[name] for name in shown if segment.attrs.get(name)), segment.key)
    place = segment.attrs.get("place", "")
    citation = Citation(key=segment.key, source=source, place=place)
    ways = [
        source,
        *([f"{source}:{place}", f"{source} {place}", f"{source}#{place}"] if place else []),
        segment.key,
    ]
    return [(name, citation) for name in ways if name]
