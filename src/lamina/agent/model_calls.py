"""One call of the model: request, stream, record. The only place where a session and a client meet.

A request that is refused as too long is cut deeper, once, and sent again. What had arrived when the caller
went away is kept, and says that it was interrupted. It knows no tools.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import msgspec

from lamina.agent.outcome import Hear
from lamina.clients.events import Client, Reason, Reply, Spoke, Stopped
from lamina.clients.failures import CallFailed, RequestRefused
from lamina.core.text.characters import WHITE_SPACE
from lamina.core.values import Budget
from lamina.dialects.overflow import Overflow, overflow
from lamina.errors import BudgetExceeded
from lamina.models.facts import model
from lamina.sessions import Recorded, Session

INTERRUPTED = "[interrupted]"
"""What stands after the words of an answer that did not come to its end."""

DEEPER = 0.75
"""Of a request that was refused without a word about the limit, what the next one may have."""

Before = Callable[[Session, dict[str, Any]], Awaitable[dict[str, Any] | None]]
"""Sees each request before it is sent; may give another one to send in its place."""

After = Callable[[Session, Recorded], Awaitable[None]]
"""Sees each answer after it was kept."""


class Hooks(msgspec.Struct, frozen=True, kw_only=True):
    """What an application does around each call of the model, in order."""

    before: tuple[Before, ...] = ()
    after: tuple[After, ...] = ()


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that was kept, its text, and why it stopped."""

    recorded: Recorded
    text: str
    reason: Reason


async def infer(session: Session, client: Client, hooks: Hooks, hear: Hear) -> ModelAnswer:
    """Asks the model for the next step of a session."""
    try:
        reply = await _asked(session, client, hooks.before, hear)
    except RequestRefused as error:
        found = overflow(error.status, error.said)
        if found is None or not session.pending or not await deepened(session, found):
            raise
        reply = await _asked(session, client, hooks.before, hear)
    recorded = await session.record(reply.raw)
    for hook in hooks.after:
        await hook(session, recorded)
    return ModelAnswer(recorded=recorded, text="".join(reply.text), reason=reply.reason)


class _Read(msgspec.Struct, kw_only=True):
    """What has been read of a reply."""

    raw: list[Any]
    text: list[str]
    reason: Reason = "error"


async def _asked(session: Session, client: Client, before: Sequence[Before], hear: Hear) -> _Read:
    request = await session.request()
    for hook in before:
        request = await hook(session, request) or request
    reply = client.send(request)
    read = _Read(raw=reply.raw, text=[])
    try:
        await _heard(reply, read, hear)
    except (CallFailed, anyio.get_cancelled_exc_class()):
        await _kept(session, read)
        raise
    return read


async def _heard(reply: Reply, read: _Read, hear: Hear) -> None:
    async with reply:
        async for event in reply:
            if isinstance(event, Spoke):
                read.text.append(event.text)
            elif isinstance(event, Stopped):
                read.reason = event.reason
            await hear(event)


async def _kept(session: Session, read: _Read) -> None:
    """Keeps what was said before an answer broke off: its words, and no call that nobody will answer."""
    if said := "".join(read.text).strip(WHITE_SPACE):
        with anyio.CancelScope(shield=True):
            await session.record(f"{said}\n{INTERRUPTED}")


async def deepened(session: Session, found: Overflow) -> bool:
    """Makes the session's next request smaller, as much as the API asked for; False if that cannot be."""
    counted = (await session.build()).tokens
    usual = session.budget or model(session.setup.model).budget
    try:
        await _limited(session, usual, found.window(counted, otherwise=DEEPER))
    except BudgetExceeded as full:
        if full.floor >= counted:
            session.limit(usual)
            return False
        await _limited(session, usual, full.floor, reserve=0)
    return True


async def _limited(session: Session, usual: Budget, window: int, *, reserve: int | None = None) -> None:
    """Builds the request again within another window, which stays the session's while it is open."""
    if reserve is None and usual.reserve is not None:
        reserve = min(usual.reserve, window // 2)
    session.limit(msgspec.structs.replace(usual, window=max(window, 1), reserve=reserve))
    await session.build()
