"""What a source is: an async function from a prompt, and the tokens that are left, to segments.

A source that has something to say besides its segments returns `GatheredSegments` with notes. It decides
nothing about the request: the core places, fits and explains what it finds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import msgspec
from anyio import to_thread

from lamina.core.entries import is_empty
from lamina.core.system_text import FORGETS
from lamina.core.text.estimate import estimate_tokens
from lamina.core.values import Segment
from lamina.core.wording import text_of

__all__ = ["GatheredSegments", "Source"]

Source = Callable[[str, int | None], Awaitable[Iterable[Segment]]]
"""Finds context for a prompt, in at most so many tokens. None means without limit."""

Log = Callable[[], Sequence[Segment]]
"""Returns the log of a conversation, as it is at that moment."""

T = TypeVar("T")


class GatheredSegments(msgspec.Struct, frozen=True):
    """Segments in order, and a note for each thing that was left out or went wrong."""

    segments: tuple[Segment, ...] = ()
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments)

    def __len__(self) -> int:
        return len(self.segments)


def join_gathered(parts: Iterable[GatheredSegments]) -> GatheredSegments:
    """All segments and all notes, in the order of the parts."""
    segments: list[Segment] = []
    notes: list[str] = []
    for part in parts:
        segments += part.segments
        notes += part.notes
    return GatheredSegments(tuple(segments), tuple(notes))


def name_source(name: str, source: Source) -> Source:
    """The same source, with the name that notes use for it."""

    async def named(prompt: str, room: int | None) -> Iterable[Segment]:
        return await source(prompt, room)

    named.__name__ = named.__qualname__ = name
    return named


async def run_in_thread(function: Callable[..., T], *arguments: object, **named_arguments: object) -> T:
    """Run a blocking function that changes nothing. A caller that is cancelled does not wait for it."""
    call = partial(function, *arguments, **named_arguments)
    return await to_thread.run_sync(call, abandon_on_cancel=True)


def fit_into_room(gathered: GatheredSegments, room: int | None) -> GatheredSegments:
    """The segments that fit into the room by the estimate, in order. The others are noted.

    A large segment is passed over, and smaller ones after it may still fit.
    """
    if room is None:
        return gathered
    fitting: list[Segment] = []
    notes = list(gathered.notes)
    for segment in gathered.segments:
        tokens = estimate_tokens(text_of(segment.parts))
        if tokens > room:
            notes.append(f"{segment.key or segment.kind}: left out, {tokens:,} tokens and {room:,} are left")
            continue
        room -= tokens
        fitting.append(segment)
    return GatheredSegments(tuple(fitting), tuple(notes))


def drop_unchanged(segments: Iterable[Segment], log: Log | None) -> tuple[Segment, ...]:
    """The segments that differ from the newest of their kind and key in the log.

    What was sent before and has not changed need not be sent again.
    """
    if log is None:
        return tuple(segments)
    segments = tuple(segments)
    kinds = frozenset(segment.kind for segment in segments)
    newest: dict[tuple[str, str], Segment] = {}
    if kinds:
        newest = {(old.kind, old.key): old for old in log() if old.kind in kinds}
    return tuple(select_changed(segments, newest))


def select_changed(
    segments: Iterable[Segment], newest: Mapping[tuple[str, str], Segment]
) -> Iterator[Segment]:
    """The segments that differ from the newest one of their kind and key.

    An empty one says that the older one no longer holds, so it needs an older one. One that has forgotten
    something says so to the core, which waits for no cut then.
    """
    for segment in segments:
        old = newest.get((segment.kind, segment.key))
        if old is None:
            if not is_empty(segment.parts):
                yield segment
        elif (old.parts, old.attrs) != (segment.parts, segment.attrs):
            yield _mark_forgetful(segment, old)


KNOWN_FACTS = "facts"
"""Where the `meta` of a section has the place that its facts came from, and their names."""


def _mark_forgetful(segment: Segment, old: Segment) -> Segment:
    """The segment with a mark, if it lacks a fact that the older one from the same place has."""
    facts = segment.meta.get(KNOWN_FACTS)
    old_facts = old.meta.get(KNOWN_FACTS)
    if not facts or not old_facts or facts["place"] != old_facts["place"]:
        return segment
    if set(old_facts["names"]) <= set(facts["names"]):
        return segment
    return msgspec.structs.replace(segment, meta={**segment.meta, FORGETS: True})
