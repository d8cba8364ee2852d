"""One call of the model: request, stream, record. It is the only place where a session and a client meet.

If the API refuses a request as too long, it is cut deeper and sent once more. If it does not know the switch
for bound thinking, the request is sent once more without it. If the caller goes away, the
text that had arrived is recorded, with a note that it was interrupted. This module knows no tools.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import Any

import anyio
import msgspec

from lamina.agent.outcome import Listener
from lamina.clients.events import Client, Reason, Reply, StopEvent, TextEvent
from lamina.clients.failures import CallFailed, RequestRefused
from lamina.conversations.pending_call import RETRY_SHARE, limit_budget
from lamina.core.text.characters import WHITE_SPACE
from lamina.core.values import Budget
from lamina.dialects.anthropic.server import refuses_binding_switch
from lamina.dialects.overflow import Overflow, read_overflow
from lamina.errors import BudgetExceeded
from lamina.models.facts import model
from lamina.sessions import Recorded, Session

INTERRUPTED = "[interrupted]"
"""What is written after the text of an answer that did not come to its end."""

Before = Callable[[Session, dict[str, Any]], Awaitable[dict[str, Any] | None] | dict[str, Any] | None]
"""Sees each request before it is sent, and may return another one to send in its place. It may be async."""

After = Callable[[Session, Recorded], Awaitable[None] | None]
"""Sees each answer after it was recorded. It may be async."""


class Hooks(msgspec.Struct, frozen=True, kw_only=True):
    """What an application does around each call of the model, in order."""

    before: tuple[Before, ...] = ()
    after: tuple[After, ...] = ()


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that was recorded, its text, and why it stopped."""

    recorded: Recorded
    text: str
    reason: Reason


async def call_model(session: Session, client: Client, hooks: Hooks, hear: Listener) -> ModelAnswer:
    """Ask the model for the next step of a session."""
    try:
        reading = await _send_request(session, client, hooks.before, hear)
    except RequestRefused as error:
        # If text had arrived before the refusal, it was recorded: then it is not the model's turn any more.
        if not session.pending or not await _mend_request(session, error):
            raise
        reading = await _send_request(session, client, hooks.before, hear)
    recorded = Recorded()
    if reading.has_content or reading.reason != "error":
        recorded = await session.record(reading.raw)
    for hook in hooks.after:
        noticed = hook(session, recorded)
        if isawaitable(noticed):
            await noticed
    return ModelAnswer(recorded=recorded, text="".join(reading.text), reason=reading.reason)


class _Reading(msgspec.Struct, kw_only=True):
    """What has been read of a reply so far. `has_content`: something came besides its end."""

    raw: list[Any]
    text: list[str]
    reason: Reason = "error"
    has_content: bool = False


async def _send_request(
    session: Session, client: Client, before: Sequence[Before], hear: Listener
) -> _Reading:
    """Send the session's next request and read the reply. What arrived before a failure is recorded."""
    request = await session.request()
    for hook in before:
        other_request = hook(session, request)
        if isawaitable(other_request):
            other_request = await other_request
        request = other_request or request
    reply = client.send(request)
    reading = _Reading(raw=reply.raw, text=[])
    try:
        await _read_reply(reply, reading, hear)
    except (CallFailed, anyio.get_cancelled_exc_class()):
        await _record_interrupted(session, reading)
        raise
    return reading


async def _read_reply(reply: Reply, reading: _Reading, hear: Listener) -> None:
    async with reply:
        async for event in reply:
            if isinstance(event, StopEvent):
                reading.reason = event.reason
            else:
                reading.has_content = True
            if isinstance(event, TextEvent):
                reading.text.append(event.text)
            await hear(event)


async def _record_interrupted(session: Session, reading: _Reading) -> None:
    """Record the text of an answer that broke off. Its calls are dropped, since nobody will answer them."""
    text = "".join(reading.text).strip(WHITE_SPACE)
    if not text:
        return
    with anyio.CancelScope(shield=True):
        await session.record(f"{text}\n{INTERRUPTED}")


async def _mend_request(session: Session, error: RequestRefused) -> bool:
    """Change the session's next request so that the API may take it. Returns False if that is not possible.

    Raises BudgetExceeded if the API does not know the switch for bound thinking, and nothing fits without it.
    """
    if refuses_binding_switch(error.status, error.said):
        session.forgo_switch()
        return True
    reported = read_overflow(error.status, error.said)
    return reported is not None and await _shrink_request(session, reported)


async def _shrink_request(session: Session, reported: Overflow) -> bool:
    """Make the session's next request smaller, by as much as the API asked for.

    Returns False if it cannot be made smaller.
    """
    counted = (await session.build()).tokens
    usual_budget = session.budget or model(session.setup.model).budget
    window = reported.window(counted, otherwise=RETRY_SHARE)
    try:
        await _limit_session(session, limit_budget(usual_budget, window))
    except BudgetExceeded as error:
        # The API may want less than can be cut. The smallest request that is possible may still be accepted.
        if error.floor >= counted:
            session.limit(usual_budget)
            return False
        await _limit_session(session, limit_budget(usual_budget, error.floor, reserve=0))
    return True


async def _limit_session(session: Session, budget: Budget) -> None:
    """Build the request again within another budget, which stays while the session is open."""
    session.limit(budget)
    await session.build()
