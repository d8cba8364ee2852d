"""The time of a prompt, as a source. It stands in its own turn only: a request has one time, the newest.

It stands after the question, at the very end of the request, so that it can leave when the turn is over
without a cached byte moving. A turn in which the model calls tools goes on behind it; there it stays until
the next cut, which leaves it out first.

The clock is the caller's: nothing here is read from the system unless `clock()` is left to do so.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from lamina.context.port import GatheredSegments, Source, named
from lamina.core.text.characters import WHITE_SPACE
from lamina.segments import clock as the_time

FORMAT = "%A, %Y-%m-%d %H:%M %Z"


def clock(now: Callable[[], datetime] | None = None, *, form: str = FORMAT) -> Source:
    """A source of one segment that says the time, to the minute."""

    async def find(_: str, __: int | None) -> GatheredSegments:
        moment = now() if now else datetime.now(UTC)
        return GatheredSegments((the_time(moment.strftime(form).strip(WHITE_SPACE)),))

    return named("clock", find)
