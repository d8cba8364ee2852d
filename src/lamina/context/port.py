"""What a source is: an async function from a prompt, and the tokens that are left, to segments.

A source that has something to tell beside its segments returns `GatheredSegments`. It decides nothing about
the request: what it finds is placed, fitted and explained by the core.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import msgspec
from anyio import to_thread

from lamina.core.text.estimate import estimate
from lamina.core.values import Segment
from lamina.core.wording import text_of

Source = Callable[[str, int | None], Awaitable[Iterable[Segment]]]
"""Finds context for a prompt, in at most so many tokens; None where there is no limit."""

Log = Callable[[], Sequence[Segment]]
"""The log of a conversation, as it is when it is called."""

T = TypeVar("T")


class GatheredSegments(msgspec.Struct, frozen=True):
    """Segments in order, and a note for each thing that was left out or went wrong."""

    segments: tuple[Segment, ...] = ()
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments)

    def __len__(self) -> int:
        return len(self.segments)


def named(name: str, find: Callable[[str, int | None], Awaitable[GatheredSegments]]) -> Source:
    """A source under the name that notes give it."""

    async def source(prompt: str, room: int | None) -> GatheredSegments:
        return await find(prompt, room)

    source.__name__ = source.__qualname__ = name
    return source


async def in_thread(work: Callable[..., T], *given: object, **named_: object) -> T:
    """Runs blocking work that changes nothing; a caller that gives up does not wait for it."""
    return await to_thread.run_sync(partial(work, *given, **named_), abandon_on_cancel=True)


def within(found: GatheredSegments, room: int | None) -> GatheredSegments:
    """What fits into the room by the estimate, in order; the rest is noted."""
    if room is None:
        return found
    kept: list[Segment] = []
    notes = list(found.notes)
    for segment in found.segments:
        tokens = estimate(text_of(segment.parts))
        if tokens > room:
            notes.append(f"{segment.key or segment.kind}: left out, {tokens:,} tokens and {room:,} are left")
            continue
        room -= tokens
        kept.append(segment)
    return GatheredSegments(tuple(kept), tuple(notes))


def unsaid(wanted: Iterable[Segment], log: Log | None) -> tuple[Segment, ...]:
    """The segments that a log does not end up with as they are wanted: what stands is not said again."""
    newest = {(old.kind, old.key): (old.parts, old.attrs) for old in (log() if log else ())}
    return tuple(new for new in wanted if newest.get((new.kind, new.key)) != (new.parts, new.attrs))
