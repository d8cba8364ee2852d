"""Answers calls of lamina's own tools inside one answer, recalls above all: the client never sees them.

    client ──▶ gateway ──▶ model: recall("k…")
                  └──────▶ the request again, with the text ──▶ model: answer ──▶ client

The client gets one answer: one begin, blocks that are numbered through, one end. `recall_filter` in
`lamina.conversations` leaves the calls and their results out of it. They are stored with the conversation,
and put back into every later request (`recall_loop` there). They are stored before the client sees the end of
the answer, since the client may go on at once, with another worker or after a restart.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

import aiohttp
import msgspec
from anyio import to_thread

from lamina.conversations.answer_events import AnswerEvent, splitter_for
from lamina.conversations.encodings import Unpacker
from lamina.conversations.recall_filter import RecallFilter
from lamina.conversations.recall_loop import RecallLoop
from lamina.core.text.characters import lower_ascii
from lamina.dialects.bedrock_converse.event_stream import CONTENT_TYPE as FRAMES
from lamina.dialects.port import Dialect
from lamina.gateway import limits
from lamina.gateway.calls import OutgoingRequest
from lamina.gateway.packed_bodies import make_answer_unpacker
from lamina.gateway.recall_turns import RecallTurns
from lamina.gateway.stream import AnswerWriter, read_pieces
from lamina.gateway.usage import UsageReader

Header = tuple[bytes, bytes]

_STREAMS = ("text/event-stream", "application/x-ndjson", FRAMES)
_BODY_HEADERS = ("content-length", "content-encoding")
"""Headers that are no longer true of an answer that was changed."""


class RecallRelay:
    """Passes the answers to one request of a client on, without the recalls in them."""

    def __init__(
        self,
        turns: RecallTurns,
        writer: AnswerWriter,
        dialect: Dialect,
        own_names: Collection[str],
    ) -> None:
        self._turns = turns
        self._writer = writer
        self._dialect = dialect
        self._filter = RecallFilter(dialect, own_names)
        self._loop: RecallLoop | None = None
        self._last_written = monotonic()

    async def relay(
        self,
        outgoing: OutgoingRequest,
        answer: aiohttp.ClientResponse,
        headers: Sequence[Header],
        reader: UsageReader,
    ) -> OutgoingRequest | None:
        """Pass an answer on. Returns the request to send next, if the model only recalled something.

        Returns None when the client has the whole answer. `headers` are those of the answer, for the client.
        """
        unpacker = make_answer_unpacker(answer.headers.get("content-encoding", ""))
        received = _ReceivedAnswer(outgoing, answer, headers, reader, unpacker)
        is_stream = _read_content_type(answer).startswith(_STREAMS)
        if self._loop is None:
            self._loop = RecallLoop(self._dialect, streams=is_stream)
        if is_stream:
            return await self._relay_stream(received, self._loop)
        return await self._relay_whole(received, self._loop)

    async def _relay_stream(self, received: _ReceivedAnswer, loop: RecallLoop) -> OutgoingRequest | None:
        answer = received.answer
        content_type = _read_content_type(answer)
        stream = _AnswerStream(content_type)
        on_silence = None
        if content_type.startswith("text/event-stream"):  # lines of JSON and frames have no comments
            on_silence = self._comment
        if not self._writer.started:
            await self._writer.start(answer.status, _without_body_headers(received.headers))
        async for piece in received.read_pieces(on_silence):
            for event in stream.splitter.take(received.unpacker(piece)):
                await self._pass_event(event, stream)
            if on_silence is not None and self._is_silent():
                await on_silence()
        for event in stream.splitter.finish():
            await self._pass_event(event, stream)

        # The events that end the answer wait meanwhile: whether it has ended is known only now.
        following = await self._recall(received, loop)
        if following is None:
            await self._close_stream(stream, loop)
            return None
        for value in self._filter.next_round():
            await self._write(stream.encode(value))
        return following

    async def _pass_event(self, event: AnswerEvent, stream: _AnswerStream) -> None:
        """Write what the client may see of an event now."""
        if event.is_end:
            stream.closing.append(event)
            return
        if event.value is None:
            await self._write(event.source)
            return
        stream.events[id(event.value)] = event
        for value in self._filter.take(event.value):
            await self._write(stream.encode(value))

    async def _close_stream(self, stream: _AnswerStream, loop: RecallLoop) -> None:
        """Write the events that end the answer."""
        for value in self._filter.list_closing(shows_nothing=loop.shows_nothing):
            await self._write(stream.encode(value))
        for event in stream.closing:
            await self._write(event.source)
        await self._writer.finish()

    def _is_silent(self) -> bool:
        """Whether the client has got nothing for long, because all that came was held back."""
        return monotonic() - self._last_written > limits.KEEP_ALIVE_SECONDS

    async def _comment(self) -> None:
        self._last_written = monotonic()
        await self._writer.comment()

    async def _relay_whole(self, received: _ReceivedAnswer, loop: RecallLoop) -> OutgoingRequest | None:
        """Pass an answer on that is one JSON value: an answer, or the list of chunks that Gemini sends."""
        pieces = [piece async for piece in received.read_pieces(None)]
        source = b"".join(pieces)
        value = _decode(received.unpacker(source))
        self._filter.take_whole(value)
        following = await self._recall(received, loop)
        if following is not None:
            self._filter.next_round()
            return following
        shown_value = self._filter.show_whole(shows_nothing=loop.shows_nothing)
        status = received.answer.status
        if shown_value is value:
            await self._write_whole(status, list(received.headers), source)
            return None
        body = msgspec.json.encode(shown_value)
        length = (b"content-length", str(len(body)).encode())
        await self._write_whole(status, [*_without_body_headers(received.headers), length], body)
        return None

    async def _write_whole(self, status: int, headers: list[Header], body: bytes) -> None:
        if not self._writer.started:
            await self._writer.start(status, headers)
        await self._write(body)
        await self._writer.finish()

    async def _recall(self, received: _ReceivedAnswer, loop: RecallLoop) -> OutgoingRequest | None:
        """Answer the recalls of the model, or store what there is to remember of this request."""
        outgoing = received.outgoing
        usage = received.reader.finish()
        assert outgoing.fitted is not None  # noqa: S101 - it has own tools
        assert outgoing.place is not None  # noqa: S101
        absorbed = self._filter.absorb()
        # in a thread, since a tool of lamina's own may wait for the store
        take = partial(loop.take, absorbed, outgoing.fitted, shows_call=self._filter.shows_call)
        turns = await to_thread.run_sync(take)
        if turns:  # `RecallLoop` ends a model that recalls without end
            return await self._turns.add_turns(outgoing, turns, usage)
        exchange = loop.exchange(outgoing.place)
        keeps_answers = outgoing.request.get("store") is not False  # only then a request can continue one
        if exchange is not None and keeps_answers:
            shown_id, last_id = self._filter.find_ids()
            exchange = msgspec.structs.replace(exchange, shown_id=shown_id, last_id=last_id)
        await self._turns.record_exchange(outgoing, usage, exchange)
        return None

    async def _write(self, data: bytes) -> None:
        if data:
            self._last_written = monotonic()
            await self._writer.write(data)


class _ReceivedAnswer(NamedTuple):
    """An answer of the upstream, with the request that it answers and what is needed to read it.

    `headers` are those of the answer, for the client.
    """

    outgoing: OutgoingRequest
    answer: aiohttp.ClientResponse
    headers: Sequence[Header]
    reader: UsageReader
    unpacker: Unpacker

    async def read_pieces(self, on_silence: Callable[[], Awaitable[None]] | None) -> AsyncIterator[bytes]:
        """The pieces of the answer as they arrive, still packed. The reader of the usage sees them first."""
        async for piece in read_pieces(self.answer, on_silence):
            self.reader.feed(piece)
            yield piece


class _AnswerStream:
    """The events of one stream, by the identity of their values, and those that end it."""

    def __init__(self, content_type: str) -> None:
        self.splitter = splitter_for(content_type)
        self.events: dict[int, AnswerEvent] = {}
        self.closing: list[AnswerEvent] = []

    def encode(self, value: Any) -> bytes:
        """The bytes of an event for the client: as they came, if the filter left the event as it was."""
        event = self.events.get(id(value))
        if event is not None and event.value is value:
            return event.source
        name = b""
        if any(event.name for event in self.events.values()):
            name = str(value.get("type", "")).encode()
        return self.splitter.write(value, name)


def _read_content_type(answer: aiohttp.ClientResponse) -> str:
    """The type of an answer in small letters: its case has no meaning."""
    return lower_ascii(answer.headers.get("content-type", ""))


def _without_body_headers(headers: Sequence[Header]) -> list[Header]:
    kept_headers: list[Header] = []
    for name, value in headers:
        if lower_ascii(name.decode("latin-1")) not in _BODY_HEADERS:
            kept_headers.append((name, value))
    return kept_headers


def _decode(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
