"""Asks all sources at once, and returns what they find in the order of the sources.

    gathered = await gather([clock(), files("docs", globs=["*.md"])], prompt, room, seconds=5)

Each source has its own time limit. A source that fails, is late or returns something that is not a segment
becomes a note, and the others go on. Every source gets the whole room: the core fits what they find together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from lamina.context.port import GatheredSegments, Source, join_gathered
from lamina.core.values import Segment
from lamina.errors import BadInput

__all__ = ["gather"]

SECONDS = 10.0
"""Long enough for a web page, short enough for a person who waits."""

LONGEST = 200
"""Characters of an error that a note repeats."""


async def gather(
    sources: Sequence[Source], prompt: str, room: int | None = None, *, seconds: float = SECONDS
) -> GatheredSegments:
    """What all sources find for a prompt, in the order of the sources, with their notes."""
    gathered = [GatheredSegments()] * len(sources)

    async def ask(index: int, source: Source) -> None:
        name = source_name(source) or f"sources[{index}]"
        gathered[index] = await _ask_source(source, name, prompt, room, seconds)

    async with anyio.create_task_group() as tasks:
        for index, source in enumerate(sources):
            tasks.start_soon(ask, index, source)
    return join_gathered(gathered)


async def _ask_source(
    source: Source, name: str, prompt: str, room: int | None, seconds: float
) -> GatheredSegments:
    """What one source finds. Errors and lateness become a note."""
    with anyio.move_on_after(seconds):
        try:
            return _check_answer(await source(prompt, room), name)
        except Exception as error:  # noqa: BLE001 - whatever a source does wrong, the turn goes on
            problem = str(error) or type(error).__name__
            return GatheredSegments(notes=(f"source {name} failed: {problem[:LONGEST]}",))
        except anyio.get_cancelled_exc_class():
            # The turn is cancelled or time is over, or only something that the source has waited for. That
            # would end the sources beside it without a note.
            await checkpoint_if_cancelled()
            return GatheredSegments(notes=(f"source {name} failed: what it waited for was cancelled",))
    return GatheredSegments(notes=(f"source {name} was left out: no answer in {seconds:g} seconds",))


def _check_answer(answer: Iterable[object], name: str) -> GatheredSegments:
    """The segments of an answer. Anything else in it is noted."""
    notes = list(map(str, getattr(answer, "notes", ())))
    things = tuple(answer)
    segments = tuple(thing for thing in things if isinstance(thing, Segment))
    strange = len(things) - len(segments)
    if strange:
        notes.append(f"source {name}: {strange} of {len(things)} things that it gave are no segments")
    return GatheredSegments(segments, tuple(notes))


def source_name(source: object) -> str:
    """What notes call a source: its own name, that of the function in it, or of its class; "" if it has none.

    A lambda has no name that says anything.
    """
    while isinstance(source, partial):
        source = source.func
    name = getattr(source, "__name__", "") or type(source).__name__
    if name == "<lambda>":
        return ""
    return str(name)


def check_source(source: object, place: str) -> None:
    """Raise BadInput for what is no source, such as an index that was not entered yet."""
    if hasattr(source, "__aenter__") or hasattr(source, "__enter__"):
        hint = f"enter it first, and give what it yields: async with {source_name(source)}(...) as index"
        raise BadInput(f"{source_name(source)} was not entered", place=place, hint=hint)
    if not callable(source):
        hint = "give an async function from a prompt to segments, such as search(index) or files(root)"
        raise BadInput(f"a value of type {type(source).__name__} is no source", place=place, hint=hint)
