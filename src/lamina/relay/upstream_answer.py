"""Sends a request to its upstream, in time, and reads its errors.

An upstream that is overloaded for a moment, or drops the connection before it answers, is asked once more:
many clients give up then. It is never asked again after the client has got a byte.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from time import monotonic

from lamina.conversations.encodings import UNPACK_ERRORS, make_unpacker
from lamina.core.text.characters import is_digits
from lamina.dialects.overflow import STATUS as OVERFLOW_STATUS
from lamina.relay import limits
from lamina.relay.client_request import ClientRequest
from lamina.relay.refusals import BrokenOff, Refusal
from lamina.relay.relay import Relay
from lamina.relay.security import Headers
from lamina.relay.stream import AnswerWriter
from lamina.relay.upstream_port import (
    BadAnswer,
    CannotConnect,
    Connections,
    DroppedByUpstream,
    ProviderReply,
    read_origin,
)
from lamina.relay.upstreams import Upstream

ERROR_BYTES = 1 << 20
"""Of an error body that are read to see whether a request was too long."""

_STEP = 1 << 10
"""Packed bytes after which the size of what they became is looked at."""

ERROR_SECONDS = 30
"""How long an upstream may take for such a body."""

ERROR_CHARACTERS = 2000
"""Of an error that are passed on in an event, to a client whose stream has begun."""

OVERLOADED = (503, 529)
"""Statuses of an upstream that may have time in a moment. 529 is Anthropic's."""

PAUSE_SECONDS = 0.5
"""Before an upstream is asked again that does not say when, with `Retry-After`."""

RELAYED = range(200, 600)
"""Statuses that end a request. 101 would switch the connection to a protocol that is not served here."""


class UpstreamAnswer:
    """The answer of an upstream to one request, as a context. Leaving it early closes the connection.

    `sent_id` is the id under which the request is logged, "" if it is not. `is_sent_once`: an upstream that
    fails for a moment is not asked again, since nobody knows what the request does. `keeps_alive`: the client
    expects events, so comments are allowed. If the upstream takes long, they begin the stream before it has
    said anything.
    """

    def __init__(
        self,
        relay: Relay,
        request: ClientRequest,
        upstream: Upstream,
        writer: AnswerWriter,
        *,
        connections: Connections,
        headers: Headers,
        body: bytes | AsyncIterator[bytes] | None,
        keeps_alive: bool = False,
        is_sent_once: bool = False,
        sent_id: str = "",
    ) -> None:
        self._relay = relay
        self._request = request
        self._upstream = upstream
        self._writer = writer
        self._connections = connections
        self._headers = headers
        self._body = body
        self._keeps_alive = keeps_alive
        self._answer: ProviderReply | None = None
        self._is_sent_once = is_sent_once
        self._is_again = False
        self.sent_id = sent_id

    async def __aenter__(self) -> ProviderReply:
        try:
            return await self._ask_until_answered()
        except BaseException:
            self._log_unanswered(0)
            raise

    async def _ask_until_answered(self) -> ProviderReply:
        began = monotonic()
        answer = await self._ask_twice_at_most()
        if answer.status not in RELAYED:
            answer.release()
            problem = f"upstream {self._upstream.name!r} answered with the status {answer.status}"
            raise Refusal(502, f"{problem}, which is no answer to a request")
        self._relay.metrics.observe("lamina_request_seconds", monotonic() - began, part="first_byte")
        self._answer = answer
        return answer

    async def __aexit__(self, *error: object) -> None:
        if self._answer is None:
            return
        if self._answer.status >= 300:
            self._log_unanswered(self._answer.status)
        self._answer.release()

    def _log_unanswered(self, status: int) -> None:
        """Log that a request has no answer to account for."""
        if self.sent_id:
            self._relay.journal.write("unanswered", id=self.sent_id, status=status)

    async def _ask_twice_at_most(self) -> ProviderReply:
        """Ask, and once more if what went wrong may be over in a moment.

        A second answer or error is passed on, whatever it is.
        """
        began = monotonic()
        try:
            answer = await self._ask()
        except DroppedConnection as dropped:
            if not self._may_ask_again(began, PAUSE_SECONDS, was_sent=not dropped.had_left):
                raise
            pause = PAUSE_SECONDS
            status = 0
        else:
            status = answer.status
            if status not in OVERLOADED:
                return answer
            pause = _read_pause(answer)
            if not self._may_ask_again(began, pause):
                return answer
            answer.release()
        await asyncio.sleep(pause)
        self._relay.journal.write("retried", upstream=self._upstream.name, status=status)
        self._relay.metrics.add("lamina_retries_total", upstream=self._upstream.name)
        self._is_again = True
        return await self._ask()

    def _may_ask_again(self, began: float, pause: float, *, was_sent: bool = True) -> bool:
        """Whether the client has got nothing, the body may be sent again, and it can be so soon enough."""
        if self._writer.started or (self._is_sent_once and was_sent):
            return False
        return monotonic() - began + pause <= self._relay.settings.retry_seconds

    async def _ask(self) -> ProviderReply:
        name = self._upstream.name
        try:
            if self._keeps_alive:
                return await self._ask_with_comments()
            return await self._ask_in_time()
        except CannotConnect as error:
            problem = f"upstream {name!r} cannot be reached: {_describe_refusal(error)}"
            raise Refusal(502, f"{problem}; check that it runs, and its address") from None
        except BadAnswer as error:
            raise BrokenOff(f"upstream {name!r} failed: {type(error).__name__}") from None
        except ConnectionError as error:
            dropped = DroppedConnection(f"upstream {name!r} failed: {type(error).__name__}")
            dropped.had_left = isinstance(error, DroppedByUpstream) and error.had_left
            raise dropped from None
        except OSError as error:
            raise BrokenOff(f"upstream {name!r} failed: {type(error).__name__}") from None

    async def _send(self) -> ProviderReply:
        origin = read_origin(self._upstream.settings.url)
        request = self._request
        return await self._connections.ask(
            request.method, origin, request.target, self._headers, self._body, is_again=self._is_again
        )

    async def _ask_in_time(self) -> ProviderReply:
        deadline = asyncio.timeout(self._relay.settings.first_byte_seconds)
        try:
            async with deadline:
                return await self._send()
        except TimeoutError:
            if deadline.expired():
                raise self._too_late() from None
            raise

    async def _ask_with_comments(self) -> ProviderReply:
        """Wait for the upstream's headers, with signs of life for a client that expects events."""
        asking = asyncio.ensure_future(self._send())
        try:
            await self._comment_until_answered(asking)
        except BaseException:
            asking.cancel()
            asking.add_done_callback(_close_unread)
            raise
        return asking.result()

    async def _comment_until_answered(self, asking: asyncio.Future[ProviderReply]) -> None:
        began = monotonic()
        while not asking.done():
            left = self._relay.settings.first_byte_seconds - (monotonic() - began)
            if left <= 0:
                raise self._too_late()
            done, _ = await asyncio.wait({asking}, timeout=min(left, limits.KEEP_ALIVE_SECONDS))
            if not done and left > limits.KEEP_ALIVE_SECONDS:  # at the end the client gets a 504
                await self._begin_early()

    def _too_late(self) -> Refusal:
        return Refusal(504, f"upstream {self._upstream.name!r} did not answer in time")

    async def _begin_early(self) -> None:
        if not self._writer.started:
            headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
            await self._writer.start(200, headers)
        await self._writer.comment()


def _close_unread(asking: asyncio.Future[ProviderReply]) -> None:
    """Close an answer that came in the moment in which the client left: nobody else has it."""
    if not asking.cancelled() and asking.exception() is None:
        asking.result().release()


class DroppedConnection(BrokenOff):
    """The upstream dropped the connection before it answered. `had_left`: maybe before it was asked."""

    had_left = False


def _read_pause(answer: ProviderReply) -> float:
    """The seconds that an upstream asks to wait. A date, or anything else that is no number, says nothing."""
    words = answer.headers.get("retry-after", "")
    if is_digits(words):
        return float(words)
    return PAUSE_SECONDS


async def read_overflow_body(answer: ProviderReply) -> bytes | None:
    """The body of an error that may say that the request was too long; None for every other answer."""
    if answer.status not in OVERFLOW_STATUS:
        return None
    return await _read_error(answer, ERROR_SECONDS)


async def read_late_error(answer: ProviderReply) -> Refusal:
    """An error of the upstream, for a client whose stream has begun already."""
    body = await _read_error(answer, limits.IDLE_SECONDS)
    text = unpack_error(body, answer)
    return Refusal(answer.status, text[:ERROR_CHARACTERS] or f"the upstream answered {answer.status}")


async def _read_error(answer: ProviderReply, seconds: float) -> bytes:
    """The body of an error, as far as it comes in time."""
    pieces: list[bytes] = []
    size = 0
    with suppress(OSError):
        async with asyncio.timeout(seconds):
            while size <= ERROR_BYTES and (piece := await answer.read()):
                pieces.append(piece)
                size += len(piece)
    return b"".join(pieces)


def unpack_error(body: bytes, answer: ProviderReply) -> str:
    """The text of an error, as far as it is read; "" if it cannot be."""
    unpacker = make_unpacker(answer.headers.get("content-encoding", ""))
    if unpacker is None:
        return ""
    unpacked = bytearray()
    try:
        # In steps: a small packed body may unpack to gigabytes.
        for start in range(0, len(body), _STEP):
            unpacked += unpacker(body[start : start + _STEP])
            if len(unpacked) > ERROR_BYTES:
                break
    except UNPACK_ERRORS:
        return ""
    return unpacked.decode("utf-8", "replace")


def _describe_refusal(error: CannotConnect) -> str:
    """Why there is no connection, in the system's words.

    A name that was not found has a number that is not the system's, so its type is named.
    """
    cause = error.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted ({cause.verify_message})"
    if isinstance(cause, OSError) and not isinstance(cause, socket.gaierror | ssl.SSLError):
        return os.strerror(cause.errno) if cause.errno else type(cause).__name__
    return type(cause).__name__
