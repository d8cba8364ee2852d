"""The time of a prompt, as a source. It is part of its own turn only: a request has one time, the newest.

It comes after the question, at the very end of the request. So it can be removed when the turn is over
without moving a cached byte. If the model calls tools, the turn goes on after it, and it stays until the next
cut, which leaves it out first.

The caller can pass a clock. Without one, `clock()` reads the time of the system.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from lamina.context.port import GatheredSegments, Source, name_source
from lamina.core.text.characters import WHITE_SPACE
from lamina.segments import clock as make_clock_segment

__all__ = ["clock"]

FORMAT = "%A, %Y-%m-%d %H:%M %Z"


def clock(now: Callable[[], datetime] | None = None) -> Source:
    """A source of one segment that says the time, to the minute."""

    async def find(_: str, __: int | None) -> GatheredSegments:
        moment = datetime.now(UTC)
        if now:
            moment = now()
        text = moment.strftime(FORMAT).strip(WHITE_SPACE)
        return GatheredSegments((make_clock_segment(text),))

    return name_source("clock", find)
