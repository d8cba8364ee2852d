"""Writes an answer to the client as it arrives. A silent stream gets comments, and a dead one an end.

Bytes are passed in the pieces in which they arrive. The next piece is read when the client has taken the last
one. After some seconds of silence an event stream gets a comment, which every reader of event streams
skips; only between two events, and never in a packed stream. A comment does not hide a dead upstream: after
minutes without a byte from it the stream ends with an error (`limits`).
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

from lamina.relay import limits
from lamina.relay.refusals import BrokenOff, Refusal
from lamina.relay.upstream_port import ProviderReply
from lamina.telemetry import CallTrace

COMMENT = b": keepalive\n\n"

RECENT_PIECES = 8
"""Pieces of an answer that are held, to see how its last events were numbered if it has to end early."""

_SEQUENCE_NUMBER = re.compile(rb'(?<!\\)"sequence_number": ?(\d{1,15})')
"""The number of an event, and not the same words in a text, where the quotes have backslashes before them."""


class ClientSide(Protocol):
    """Takes one answer for a client: a connection, or the response of an SDK's own HTTP client."""

    @property
    def is_write_paused(self) -> bool:
        """Whether the client does not take what was sent, so that sending waits until it does."""

    async def send_head(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], *, joins_body: bool = False
    ) -> None:
        """Begin the answer. `joins_body`: its body is at hand, and follows at once."""

    async def send_body(self, piece: bytes, *, is_last: bool = False) -> None:
        """Send a piece of its body."""

    def abort(self) -> None:
        """Drop the client: it takes nothing."""


class ClientGone(Exception):
    """The client does not take the answer: it has gone, or is far too slow."""


class AnswerWriter:
    """Writes one answer to the client.

    `started` says whether a status has been sent.
    """

    def __init__(self, client: ClientSide, trace: CallTrace) -> None:
        self._client = client
        self._trace = trace
        self._headers: list[tuple[bytes, bytes]] = []
        self._last_pieces: deque[bytes] = deque(maxlen=RECENT_PIECES)
        self._tail = b""
        self.started = False

    @property
    def takes_events(self) -> bool:
        """Whether an event may be added: to a stream that is not packed, and not inside an event."""
        headers = {name.lower(): value.lower() for name, value in self._headers}
        if headers.keys() & {b"content-length", b"content-encoding"}:
            return False
        is_stream = headers.get(b"content-type", b"").startswith(b"text/event-stream")
        return is_stream and self._is_between_events

    @property
    def _is_between_events(self) -> bool:
        return not self._tail or self._tail.endswith((b"\n\n", b"\r\n\r\n", b"\r\r"))

    @property
    def next_number(self) -> int:
        """The `sequence_number` of an event that is added now; 0 if the last events have none."""
        numbers = _SEQUENCE_NUMBER.findall(b"".join(self._last_pieces))
        if not numbers:
            return 0
        return int(numbers[-1]) + 1

    async def start(self, status: int, headers: list[tuple[bytes, bytes]], *, is_whole: bool = False) -> None:
        """Begin the answer. `is_whole`: its body is at hand, and follows at once."""
        self.started = True
        self._headers = headers
        self._trace.record_status(status)
        await self._deliver(self._client.send_head(status, headers, joins_body=is_whole))

    async def write(self, piece: bytes) -> None:
        self._last_pieces.append(piece)
        self._tail = (self._tail + piece[-4:])[-4:]
        await self._deliver(self._client.send_body(piece))

    async def finish(self, last_piece: bytes = b"") -> None:
        await self._deliver(self._client.send_body(last_piece, is_last=True))

    async def answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """A whole answer of the gateway's own."""
        await self.start(status, [*headers, (b"content-length", str(len(body)).encode())])
        await self.finish(body)

    async def comment(self) -> None:
        """A sign of life, if the stream is between two events."""
        if not self._is_between_events:
            return
        await self._deliver(self._client.send_body(COMMENT))

    async def _deliver(self, sending: Awaitable[None]) -> None:
        """Send a part. A client that does not take it in time is given up."""
        # A client that takes what is written needs no deadline: sending does not wait.
        if not self._client.is_write_paused:
            await sending
            return
        try:
            async with asyncio.timeout(limits.CLIENT_SECONDS):
                await sending
        except TimeoutError:
            self._client.abort()
            raise ClientGone("the client takes nothing") from None


async def read_pieces(
    answer: ProviderReply, on_silence: Callable[[], Awaitable[None]] | None
) -> AsyncIterator[bytes]:
    """The pieces of an answer as they arrive. Raises Refusal if the upstream falls silent or breaks off."""
    while piece := await read_piece(answer, on_silence):
        yield piece


async def read_piece(answer: ProviderReply, on_silence: Callable[[], Awaitable[None]] | None) -> bytes:
    """The next piece of an answer, b"" after the last. Raises Refusal as `read_pieces` does."""
    silent = 0.0  # a comment does not begin a new wait: the upstream has said nothing all the while
    while True:
        wait = limits.IDLE_SECONDS - silent
        if on_silence is not None:
            wait = min(wait, limits.KEEP_ALIVE_SECONDS)
        try:
            if answer.is_at_hand:  # a deadline would cost more than the rest
                return await answer.read()
            async with asyncio.timeout(wait):
                return await answer.read()
        except TimeoutError:
            silent += wait
            if silent >= limits.IDLE_SECONDS:
                raise Refusal(504, "the upstream fell silent in the middle of its answer") from None
            if on_silence is not None:
                await on_silence()
        except OSError as error:
            raise BrokenOff(f"the upstream broke off its answer: {type(error).__name__}") from None
