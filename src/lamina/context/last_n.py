"""The last messages of another conversation, asked for when a prompt comes.

    last_n(lambda: other.log, 6, source="planning")

Without a name they are the messages themselves, for a request that is built without a session; with one they
are one excerpt, for a prompt in another conversation. Tool calls and context are not messages.

It is not for a session's own history, which the session sends by itself: to send only the end of that, open
the session with `history=LastN(6)`. What a session has already, it does not take in again.
"""

from __future__ import annotations

from collections.abc import Callable

from lamina.context.port import GatheredSegments, Log, Source, named, within
from lamina.core.values import Role, Segment
from lamina.core.wording import text_of
from lamina.segments import excerpt

MESSAGES = 6


def last_n(log: Log, n: int | Callable[[], int] = MESSAGES, *, source: str = "") -> Source:
    """A source of the last `n` messages, in the order in which they were said."""

    async def find(_: str, room: int | None) -> GatheredSegments:
        count = n() if callable(n) else n
        said = [one for one in log() if one.kind in {"user", "assistant"}]
        last = tuple(said[-count:]) if count > 0 else ()
        if not source or not last:
            return GatheredSegments(last)
        return within(GatheredSegments((excerpt("\n\n".join(map(_line, last)), source=source),)), room)

    return named("last_n", find)


def _line(message: Segment) -> str:
    who = "User" if message.role is Role.USER else "Assistant"
    return f"{who}: {text_of(message.parts)}"
