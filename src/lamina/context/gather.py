"""Asks all sources at once, and keeps the order in which they were given.

    found = await gather([clock(), files("docs", globs=["*.md"])], prompt, room, seconds=5)

Each has its own time limit. One that fails, is late or gives something that is no segment becomes a note;
the others do not suffer. Every source is told the whole room: what they find together is the core's to fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import anyio

from lamina.context.port import GatheredSegments, Source
from lamina.core.values import Segment

SECONDS = 10.0
"""Long enough for a web page, short enough for a person who waits."""

LONGEST = 200
"""Characters of an error that a note repeats."""


async def gather(
    sources: Sequence[Source], prompt: str, room: int | None = None, *, seconds: float = SECONDS
) -> GatheredSegments:
    """What all sources find for a prompt, in the order of the sources, with their notes."""
    found: list[GatheredSegments] = [GatheredSegments()] * len(sources)

    async def ask(place: int, source: Source) -> None:
        found[place] = await _asked(source, prompt, room, seconds)

    async with anyio.create_task_group() as tasks:
        for place, source in enumerate(sources):
            tasks.start_soon(ask, place, source)
    segments = tuple(segment for each in found for segment in each.segments)
    return GatheredSegments(segments, tuple(note for each in found for note in each.notes))


async def _asked(source: Source, prompt: str, room: int | None, seconds: float) -> GatheredSegments:
    with anyio.move_on_after(seconds):
        try:
            return _checked(await source(prompt, room), _name(source))
        except Exception as error:  # noqa: BLE001 - whatever a source does wrong, the turn goes on
            told = str(error) or type(error).__name__
            return GatheredSegments(notes=(f"source {_name(source)} failed: {told[:LONGEST]}",))
    return GatheredSegments(notes=(f"source {_name(source)} was left out: no answer in {seconds:g} seconds",))


def _checked(given: Iterable[object], name: str) -> GatheredSegments:
    notes = tuple(str(note) for note in getattr(given, "notes", ()))
    things = tuple(given)
    mine = tuple(one for one in things if isinstance(one, Segment))
    strange = len(things) - len(mine)
    told = f"source {name}: {strange} of {len(things)} things that it gave are no segments"
    return GatheredSegments(mine, (*notes, told) if strange else notes)


def _name(source: Source) -> str:
    return getattr(source, "__name__", "") or type(source).__name__
