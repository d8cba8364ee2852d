"""Passes the upstream's answer on to the client as it arrives, and learns from what it reports.

    count ──▶ relay, piece by piece ──▶ learn: record, log, metrics, telemetry, the conversation

If the model may recall something, the answer goes through a `RecallRelay`, which hides that from the client.
What an answer reports is learnt even if the client has gone meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

import msgspec
from anyio import to_thread

from lamina.conversations.answer_bodies import AnswerEvent, splitter_for
from lamina.conversations.encodings import UNPACK_ERRORS, Unpacker, make_unpacker
from lamina.conversations.recall_filter import RecallFilter
from lamina.conversations.recall_loop import RecallLoop
from lamina.core.text.characters import lower_ascii
from lamina.dialects.bedrock_converse.event_stream import CONTENT_TYPE as FRAMES
from lamina.dialects.port import Dialect
from lamina.relay import limits
from lamina.relay.calls import IncomingRequest, OutgoingRequest
from lamina.relay.client_request import ClientRequest
from lamina.relay.events import AnsweredEvent, AnswerListener, SentEvent
from lamina.relay.misses import measure_account
from lamina.relay.recording import describe_error
from lamina.relay.refusals import Refusal
from lamina.relay.relay import Relay
from lamina.relay.sent_calls import SentCalls
from lamina.relay.stream import AnswerWriter, read_piece, read_pieces
from lamina.relay.upstream_answer import ERROR_CHARACTERS, read_late_error, unpack_error
from lamina.relay.upstream_port import ProviderReply
from lamina.relay.upstreams import response_headers
from lamina.relay.usage import UsageReader


class _AnsweredCall(NamedTuple):
    """An answer that has begun, with the request that it answers and the reader of what it reports."""

    sent: SentEvent
    answer: ProviderReply
    reader: UsageReader


class AnswerRelay:
    """The answers to one request of a client: one, and another one after each recall of the model."""

    def __init__(
        self,
        relay: Relay,
        client_request: ClientRequest,
        incoming: IncomingRequest,
        writer: AnswerWriter,
        *,
        listeners: Sequence[AnswerListener],
        keeps_bodies: bool,
    ) -> None:
        self._relay = relay
        self._client_request = client_request
        self._incoming = incoming
        self._writer = writer
        self._listeners = listeners
        self._keeps_bodies = keeps_bodies
        self._recalls: RecallRelay | None = None

    async def relay(self, sent: SentEvent, answer: ProviderReply) -> OutgoingRequest | None:
        """Pass an answer on. Returns the request to send next, if the model recalled something."""
        outgoing = sent.outgoing
        if answer.status < 300:
            self._relay.sent_calls.note_answered(outgoing)
        reader = UsageReader(
            lower_ascii(answer.headers.get("content-type", "")),
            lower_ascii(answer.headers.get("content-encoding", "")),
            keeps_body=self._keeps_bodies,
            request=outgoing.request,
        )
        call = _AnsweredCall(sent, answer, reader)
        # A request that goes on after a recall may have no room for the tool.
        if (outgoing.own_names or self._recalls is not None) and answer.status < 300:
            return await self._relay_recalls(call)
        await self._relay_pieces(call)
        return None

    async def relay_error(self, answer: ProviderReply, body: bytes) -> None:
        """Pass an error on whose body has been read already."""
        if self._writer.started:
            raise Refusal(answer.status, unpack_error(body, answer)[:ERROR_CHARACTERS])
        await relay_unread(self._writer, answer, first=body)

    def tell(self, event: AnsweredEvent) -> None:
        """Tell that an answer has ended."""
        for listener in self._listeners:
            listener(event)

    async def _relay_pieces(self, call: _AnsweredCall) -> None:
        """Pass an answer on in the pieces in which it arrives."""
        sent, answer, reader = call
        outgoing = sent.outgoing
        unpack: Unpacker = _take_packed
        if not self._writer.started:
            headers = _answer_headers(answer, outgoing)
            await self._writer.start(answer.status, headers, is_whole=answer.is_complete)
        elif answer.status >= 400:
            refusal = await read_late_error(answer)
            self.tell(AnsweredEvent(sent, answer, error=refusal.message))
            raise refusal
        else:  # comments have begun it, with headers that announce no encoding
            unpack = make_answer_unpacker(answer.headers.get("content-encoding", ""))
        on_silence = None
        if reader.is_plain_event_stream:
            on_silence = self._writer.comment
        held_pieces = _HeldPieces(self._relay.sent_calls, outgoing, reader, succeeded=answer.status < 300)
        last_piece = b""
        try:
            while piece := await read_piece(answer, on_silence):
                ready = unpack(await held_pieces.take(piece))
                # The piece that ends the answer also ends the write: a small answer is one write, not two.
                if answer.is_read:
                    last_piece = ready
                elif ready:
                    await self._writer.write(ready)
            await self._writer.finish(last_piece + unpack(await held_pieces.finish()))
        except BaseException as error:
            self._learn(call, error=describe_error(error))
            raise
        self._learn(call)

    async def _relay_recalls(self, call: _AnsweredCall) -> OutgoingRequest | None:
        """Pass on what the client may see of an answer that may recall something."""
        sent, answer, reader = call
        outgoing = sent.outgoing
        if self._recalls is None:
            self._recalls = RecallRelay(
                self._relay.sent_calls,
                self._writer,
                self._incoming.dialect,
                outgoing.own_names,
            )
        headers = _answer_headers(answer, outgoing)
        try:
            following = await self._recalls.relay(outgoing, answer, headers, reader)
        except BaseException as error:
            self._learn(call, error=describe_error(error))
            raise
        self._learn(call, recalled=following is not None)
        return following

    def _learn(self, call: _AnsweredCall, *, recalled: bool = False, error: str = "") -> None:
        """Tell what the answer reported, also if it has not come to its end: `error` says why.

        `recalled`: it was for the gateway, and the request goes on.
        """
        sent, answer, reader = call
        usage = reader.finish()
        event = AnsweredEvent(sent, answer, reader, recalled=recalled, error=error)
        if event.is_counted and usage.input:
            event = event._replace(account=measure_account(sent, usage))
        self.tell(event)
        if recalled or not event.is_counted:
            return
        if self._recalls is not None:  # the relay of recalls has recorded it, unless the answer broke off
            return
        relay = self._relay
        if not relay.sent_calls.record_if_free(sent.outgoing, usage):
            # Not here: the client's connection may end, and with it what runs for it.
            relay.finish_later(relay.sent_calls.record_answer(sent.outgoing, usage))


class _HeldPieces:
    """Holds an answer back until what it reports is stored, where the next request depends on it.

    A client that has the whole answer may send its next request at once, to another worker or to a gateway
    that was killed and started again. So if the conversation is near a cut, the report is in the store before
    the client has seen it: an event stream waits at the event with the usage, any other answer before its
    last piece.
    """

    def __init__(
        self, sent_calls: SentCalls, sent: OutgoingRequest, reader: UsageReader, *, succeeded: bool
    ) -> None:
        self._sent_calls = sent_calls
        self._sent = sent
        self._reader = reader
        self._waits = sent.is_near and succeeded
        self._held = b""

    async def take(self, piece: bytes) -> bytes:
        """Read a piece. Returns what may be sent now: this piece, or the one before it."""
        self._reader.feed(piece)
        if not self._waits:
            return piece
        if not self._reader.is_stream:
            ready = self._held
            self._held = piece
            return ready
        if self._reader.usage.input:
            await self._store_report()
        return piece

    async def finish(self) -> bytes:
        """The piece that was held back to the end."""
        self._reader.finish()
        if self._waits:
            await self._store_report()
        return self._held

    async def _store_report(self) -> None:
        self._waits = False
        await self._sent_calls.record_answer(self._sent, self._reader.usage, at_once=True)


async def relay_unread(writer: AnswerWriter, answer: ProviderReply, *, first: bytes = b"") -> None:
    """Pass an answer on without reading it. `first` is the part of it that has been read already."""
    await writer.start(answer.status, response_headers(answer.raw_headers, answer.status))
    if first:
        await writer.write(first)
    async for piece in read_pieces(answer, None):
        await writer.write(piece)
    await writer.finish()


def _take_packed(piece: bytes) -> bytes:
    """Leave a piece as it came: the client got the upstream's headers, which announce its encoding."""
    return piece


def make_answer_unpacker(encoding: str) -> Unpacker:
    """What unpacks an answer piece by piece. Both an unknown encoding and a broken piece raise Refusal."""
    unpacker = make_unpacker(encoding)
    if unpacker is None:
        raise Refusal(502, "the upstream packed its answer in a way that the gateway cannot read")

    def unpack_piece(piece: bytes) -> bytes:
        try:
            return unpacker(piece)
        except UNPACK_ERRORS as error:
            raise Refusal(502, f"the upstream's answer cannot be unpacked: {type(error).__name__}") from None

    return unpack_piece


def _answer_headers(answer: ProviderReply, outgoing: OutgoingRequest) -> list[tuple[bytes, bytes]]:
    """The upstream's headers for the client, and what the gateway did to the request."""
    headers = response_headers(answer.raw_headers, answer.status)
    if outgoing.is_as_it_came:
        return headers
    change = b"fitted"
    if outgoing.cut:
        change = b"cut"
    return [*headers, (b"x-lamina", change)]


Header = tuple[bytes, bytes]

_STREAMS = ("text/event-stream", "application/x-ndjson", FRAMES)
_BODY_HEADERS = ("content-length", "content-encoding")
"""Headers that are no longer true of an answer that was changed."""


class RecallRelay:
    """Passes the answers to one request of a client on, and answers calls of lamina's own tools in them.

        client ──▶ gateway ──▶ model: recall("k…")
                      └──────▶ the request again, with the text ──▶ model: answer ──▶ client

    The client gets one answer: one begin, blocks that are numbered through, one end. `RecallFilter` leaves
    the calls out of it. They are stored with the conversation, and put back into every later request
    (`recall_loop`). They are stored before the client sees the end of the answer, since the client may go on
    at once, with another worker or after a restart.
    """

    def __init__(
        self,
        sent_calls: SentCalls,
        writer: AnswerWriter,
        dialect: Dialect,
        own_names: Collection[str],
    ) -> None:
        self._sent_calls = sent_calls
        self._writer = writer
        self._dialect = dialect
        self._filter = RecallFilter(dialect, own_names)
        self._loop: RecallLoop | None = None
        self._last_written = monotonic()

    async def relay(
        self,
        outgoing: OutgoingRequest,
        answer: ProviderReply,
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
            return await self._sent_calls.add_turns(outgoing, turns, usage)
        exchange = loop.exchange(outgoing.place)
        keeps_answers = outgoing.request.get("store") is not False  # only then a request can continue one
        if exchange is not None and keeps_answers:
            shown_id, last_id = self._filter.find_ids()
            exchange = msgspec.structs.replace(exchange, shown_id=shown_id, last_id=last_id)
        await self._sent_calls.record_exchange(outgoing, usage, exchange)
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
    answer: ProviderReply
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


def _read_content_type(answer: ProviderReply) -> str:
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
