"""Passes the upstream's answer on to the client as it arrives, and learns from what it reports.

    count ──▶ relay, piece by piece ──▶ learn: record, log, metrics, telemetry, the conversation

If the model may recall something, the answer goes through `recalls`, which hides that from the client. What
an answer reports is learnt even if the client has gone meanwhile.
"""

from __future__ import annotations

from time import monotonic
from typing import NamedTuple

import aiohttp

from lamina.conversations.encodings import Unpacker
from lamina.core.text.characters import lower_ascii
from lamina.dialects.usage import Usage
from lamina.gateway.calls import IncomingRequest, OutgoingRequest
from lamina.gateway.client_request import ClientRequest
from lamina.gateway.learning import AnswerLearner
from lamina.gateway.packed_bodies import make_answer_unpacker
from lamina.gateway.recalls import RecallRelay
from lamina.gateway.recording import ExchangeRecord
from lamina.gateway.refusals import Refusal
from lamina.gateway.shared import Gateway
from lamina.gateway.stream import AnswerWriter, read_piece, read_pieces
from lamina.gateway.telemetry import record_answered
from lamina.gateway.upstream_answer import ERROR_CHARACTERS, UpstreamAnswer, read_late_error, unpack_error
from lamina.gateway.upstreams import response_headers
from lamina.gateway.usage import UsageReader
from lamina.telemetry import CallTrace


class _AnsweredCall(NamedTuple):
    """An answer that has begun, with the request that it answers and the reader of what it reports."""

    outgoing: OutgoingRequest
    answer: aiohttp.ClientResponse
    reader: UsageReader
    sent_id: str


class AnswerRelay:
    """The answers to one request of a client: one, and another one after each recall of the model."""

    def __init__(
        self,
        gateway: Gateway,
        client_request: ClientRequest,
        incoming: IncomingRequest,
        writer: AnswerWriter,
        *,
        record: ExchangeRecord,
        trace: CallTrace,
    ) -> None:
        self._gateway = gateway
        self._client_request = client_request
        self._incoming = incoming
        self._writer = writer
        self._record = record
        self._trace = trace
        self._recalls: RecallRelay | None = None

    async def relay(
        self, outgoing: OutgoingRequest, answer: aiohttp.ClientResponse, sending: UpstreamAnswer
    ) -> OutgoingRequest | None:
        """Pass an answer on. Returns the request to send next, if the model recalled something."""
        self._count(answer)
        reader = UsageReader(
            lower_ascii(answer.headers.get("content-type", "")),
            lower_ascii(answer.headers.get("content-encoding", "")),
            keeps_body=self._record.keeps_bodies,
            request=outgoing.request,
        )
        call = _AnsweredCall(outgoing, answer, reader, sending.sent_id)
        if outgoing.own_names and answer.status < 300:
            return await self._relay_recalls(call)
        await self._relay_pieces(call)
        return None

    async def relay_error(self, answer: aiohttp.ClientResponse, body: bytes) -> None:
        """Pass an error on whose body has been read already."""
        self._count(answer)
        self._trace.end_call(error=str(answer.status))
        if self._writer.started:
            raise Refusal(answer.status, unpack_error(body, answer)[:ERROR_CHARACTERS])
        await relay_unread(self._writer, answer, first=body)

    def _count(self, answer: aiohttp.ClientResponse) -> None:
        status = f"{answer.status // 100}xx"
        upstream = self._incoming.upstream.name
        self._gateway.metrics.add("lamina_answers_total", upstream=upstream, status=status)

    async def _relay_pieces(self, call: _AnsweredCall) -> None:
        """Pass an answer on in the pieces in which it arrives."""
        outgoing, answer, reader, _ = call
        unpack: Unpacker = _take_packed
        if not self._writer.started:
            await self._writer.start(answer.status, _answer_headers(answer, outgoing))
        elif answer.status >= 400:
            raise await read_late_error(answer)
        else:  # comments have begun it, with headers that announce no encoding
            unpack = make_answer_unpacker(answer.headers.get("content-encoding", ""))
        on_silence = None
        if reader.is_plain_event_stream:
            on_silence = self._writer.comment
        held_pieces = _HeldPieces(self._gateway.learner, outgoing, reader, succeeded=answer.status < 300)
        last_piece = b""
        try:
            while piece := await read_piece(answer, on_silence):
                ready = unpack(await held_pieces.take(piece))
                # The piece that ends the answer also ends the write: a small answer is one write, not two.
                if answer.content.at_eof():
                    last_piece = ready
                elif ready:
                    await self._writer.write(ready)
            await self._writer.finish(last_piece + unpack(await held_pieces.finish()))
        finally:
            self._learn(call)

    async def _relay_recalls(self, call: _AnsweredCall) -> OutgoingRequest | None:
        """Pass on what the client may see of an answer that may recall something."""
        outgoing, answer, reader, _ = call
        if self._recalls is None:
            self._recalls = RecallRelay(
                self._gateway.recall_turns,
                self._writer,
                self._incoming.dialect,
                outgoing.own_names,
            )
        following = None
        try:
            headers = _answer_headers(answer, outgoing)
            following = await self._recalls.relay(outgoing, answer, headers, reader)
        finally:
            self._learn(call, recalled=following is not None)
        return following

    def _learn(self, call: _AnsweredCall, *, recalled: bool = False) -> None:
        """Record what the answer reported. `recalled`: it was for the gateway, and the request goes on."""
        outgoing, answer, reader, sent_id = call
        if answer.status >= 300 or self._client_request.route.action == "count":
            self._record.answered(answer, reader=reader)
            error = ""
            if answer.status >= 400:
                error = str(answer.status)
            self._trace.end_call(error=error)
            return
        gateway = self._gateway
        usage = reader.finish()
        account = gateway.misses.report(
            self._incoming,
            outgoing,
            usage,
            sent_id=sent_id,
            recalled=recalled,
            report=reader.report,
            window=gateway.policies.find_window(self._incoming, outgoing),
        )
        self._record.answered(answer, reader=reader, account=account, recalled=recalled)
        record_answered(self._trace, usage, reader.facts, recalled=recalled)
        self._trace.end_call()
        self._count_tokens(usage)
        if recalled:
            gateway.metrics.add("lamina_recalls_total", upstream=self._incoming.upstream.name)
            return
        began = self._client_request.began
        gateway.metrics.observe("lamina_request_seconds", monotonic() - began, part="whole")
        if self._recalls is not None:  # the relay of recalls has recorded it, unless the answer broke off
            return
        if not gateway.learner.record_if_free(outgoing, usage):
            # Not here: the client's connection may end, and with it what runs for it.
            gateway.finish_later(gateway.learner.record_answer(outgoing, usage))

    def _count_tokens(self, usage: Usage) -> None:
        amounts = {
            "input": usage.input,
            "cached": usage.cached,
            "written": usage.written,
            "output": usage.output,
        }
        for kind, amount in amounts.items():
            if amount:
                self._gateway.metrics.add("lamina_tokens_total", amount, kind=kind)


class _HeldPieces:
    """Holds an answer back until what it reports is stored, where the next request depends on it.

    A client that has the whole answer may send its next request at once, to another worker or to a gateway
    that was killed and started again. So if the conversation is near a cut, the report is in the store before
    the client has seen it: an event stream waits at the event with the usage, any other answer before its
    last piece.
    """

    def __init__(
        self, learner: AnswerLearner, sent: OutgoingRequest, reader: UsageReader, *, succeeded: bool
    ) -> None:
        self._learner = learner
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
        await self._learner.record_answer(self._sent, self._reader.usage, at_once=True)


async def relay_unread(writer: AnswerWriter, answer: aiohttp.ClientResponse, *, first: bytes = b"") -> None:
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


def _answer_headers(answer: aiohttp.ClientResponse, outgoing: OutgoingRequest) -> list[tuple[bytes, bytes]]:
    """The upstream's headers for the client, and what the gateway did to the request."""
    headers = response_headers(answer.raw_headers, answer.status)
    if outgoing.is_as_it_came:
        return headers
    change = b"fitted"
    if outgoing.cut:
        change = b"cut"
    return [*headers, (b"x-lamina", change)]
