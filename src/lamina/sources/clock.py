"""The time of a prompt, as a source. It stands in its own turn only, so that no cached text grows old.

The clock is the caller's: nothing here is read from the system unless `clock()` is left to do so.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from lamina.segments import clock as the_time
from lamina.sources.port import Found, Source, named
from lamina.text.characters import WHITE_SPACE

FORMAT = "%A, %Y-%m-%d %H:%M %Z"


def clock(now: Callable[[], datetime] | None = None, *, form: str = FORMAT) -> Source:
    """A source of one segment that says the time, to the minute."""

    async def find(_: str, __: int | None) -> Found:
        moment = now() if now else datetime.now(UTC)
        return Found((the_time(moment.strftime(form).strip(WHITE_SPACE)),))

    return named("clock", find)
