"""The last messages of another conversation, read when a prompt comes.

    last_n(lambda: other.log, 6, source="planning")

Without a name they are the messages themselves, for a request that is built without a session. With a name
they are one excerpt, for a prompt in another conversation. Tool calls and context are not messages.

Do not use this for a session's own history, which the session sends by itself. To send only the end of that,
open the session with `Policy(history=LastN(6))`. A session does not take in again what it has already.
"""

from __future__ import annotations

from collections.abc import Callable

from lamina.context.port import GatheredSegments, Log, Source, fit_into_room, name_source
from lamina.core.values import Role, Segment
from lamina.core.wording import text_of
from lamina.segments import excerpt

__all__ = ["last_n"]

MESSAGES = 6


def last_n(log: Log, n: int | Callable[[], int] = MESSAGES, *, source: str = "") -> Source:
    """A source of the last `n` messages, in the order in which they were said."""

    async def find(_: str, room: int | None) -> GatheredSegments:
        count = n
        if callable(count):
            count = count()
        messages = [segment for segment in log() if segment.kind in {"user", "assistant"}]
        last = messages[max(len(messages) - count, 0) :]
        if not source or not last:
            return GatheredSegments(tuple(last))
        text = "\n\n".join(_write_message(message) for message in last)
        return fit_into_room(GatheredSegments((excerpt(text, source=source),)), room)

    return name_source("last_n", find)


def _write_message(message: Segment) -> str:
    """A message as a line of a transcript: `User: Hello`."""
    speaker = "Assistant"
    if message.role is Role.USER:
        speaker = "User"
    return f"{speaker}: {text_of(message.parts)}"
