"""One request through the gateway: read it, fit it, send it, pass the answer on. Read this file first.

    admit ──▶ route ──▶ read ──▶ fit ──▶ send ──▶ relay ──▶ learn

Whatever happens, the client gets an answer in the shape of its own API. A client that goes away cancels
everything that is done for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from time import monotonic
from typing import Any

import aiohttp
import msgspec

from lamina.conversations.encodings import Unpacker, make_unpacker
from lamina.core.text.characters import lower_ascii
from lamina.dialects import DIALECTS
from lamina.dialects.anthropic.server import refuses_binding_switch, refuses_editing
from lamina.dialects.cache_reports import refuses_question
from lamina.dialects.overflow import read_overflow
from lamina.gateway.bodies import RequestBody, decode_body
from lamina.gateway.calls import IncomingRequest, OutgoingRequest, call_upstream
from lamina.gateway.client_connection import LINK, ClientConnection, Receive
from lamina.gateway.identity import identify_client
from lamina.gateway.recalls import RecallRelay
from lamina.gateway.recorder import AnswerRecorder
from lamina.gateway.recording import ExchangeRecord
from lamina.gateway.refusals import Refusal
from lamina.gateway.routes import match_route
from lamina.gateway.security import Headers, Visitor, admit_visitor, read_header, read_list
from lamina.gateway.shared import Gateway
from lamina.gateway.stream import FLOW, AnswerWriter, ClientGone, read_piece, read_pieces
from lamina.gateway.telemetry import record_answered, record_prepared, watch_status
from lamina.gateway.twins import AnswerBody, TwinCall
from lamina.gateway.upstream_answer import (
    ERROR_CHARACTERS,
    UpstreamAnswer,
    UpstreamRequest,
    read_late_error,
    read_overflow_body,
    unpack_error,
)
from lamina.gateway.upstreams import Upstream, request_headers, response_headers, upstream_url
from lamina.gateway.usage import UsageReader
from lamina.gateway.warming import Warming
from lamina.telemetry import CallTrace

STOPPING = "the gateway is stopping, and this request took too long to wait for; try again"

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


async def answer_request(gateway: Gateway, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one HTTP request. Its trace ends with the answer."""
    trace = gateway.telemetry.start_request(scope["method"], scope["path"], scope["headers"])
    try:
        with gateway.drain.running_request():
            await _answer_traced(gateway, scope, receive, watch_status(trace, send), trace)
    finally:
        trace.end()


async def _answer_traced(
    gateway: Gateway, scope: Scope, receive: Receive, send: Send, trace: CallTrace
) -> None:
    path = scope["path"]
    writer = AnswerWriter(send, gateway.settings.deadlines, scope.get(FLOW))
    try:
        visitor = admit_visitor(scope["headers"], gateway.settings)
        _refuse_unserved(scope)
        gateway.enter(visitor.workspace)
        try:
            exchange = ProxiedExchange(gateway, scope, receive, writer, visitor, trace=trace)
            await exchange.run()
        finally:
            gateway.leave(visitor.workspace)
    except Refusal as refusal:
        dialect = match_route("POST", path).dialect
        gateway.metrics.add("lamina_requests_total", upstream="", dialect=dialect, outcome="refused")
        gateway.journal.write("refused", status=refusal.status, reason=refusal.message, path=path)
        await _refuse(writer, refusal, dialect)
    except ClientGone:
        gateway.journal.write("client gone", path=path)
    except asyncio.CancelledError:
        if not gateway.drain.take_cut():
            raise
        gateway.journal.write("cut off", path=path)
        await _refuse(writer, Refusal(503, STOPPING, retry_after=1), match_route("POST", path).dialect)
    except Exception as error:  # noqa: BLE001 - a client always gets an answer in its own shape
        gateway.metrics.add("lamina_failures_total", kind=type(error).__name__)
        gateway.journal.write("failed", error=type(error).__name__, path=path)
        failure = Refusal(500, "the gateway failed; its log names the error")
        await _refuse(writer, failure, match_route("POST", path).dialect)


def _refuse_unserved(scope: Scope) -> None:
    """Say at once what is not served here.

    After a 426 Codex uses POST instead of a websocket; after a 404 it would try again. `OPTIONS *` asks about
    no path, so no upstream can answer it.
    """
    headers = scope["headers"]
    if lower_ascii(read_header(headers, b"upgrade")) == "websocket":
        raise Refusal(426, "websockets are not served; use POST")
    if lower_ascii(read_list(headers, b"transfer-encoding")) not in ("", "chunked"):
        raise Refusal(400, "the only transfer-encoding that is served is chunked")
    path = scope["path"]
    if not path.startswith("/"):
        raise Refusal(400, "the request names no path")
    if not {".", ".."}.isdisjoint(path.split("/")):  # an upstream may resolve it to a path outside of its own
        raise Refusal(400, "the path has . or .. as a segment; write it without")


def _refuse_malformed(request: Mapping[str, Any]) -> None:
    """Refuse messages that no API takes, before they are sent. `input` may be empty: a prompt has an id."""
    for field in ("messages", "contents", "input"):
        messages = request.get(field)
        if not isinstance(messages, list):
            continue
        if not messages and field != "input":
            raise Refusal(400, f"{field} is empty; send at least one message")
        for place, message in enumerate(messages):
            if not isinstance(message, dict):
                raise Refusal(400, f"{field}[{place}] is not an object; send messages as objects")


async def _refuse(writer: AnswerWriter, refusal: Refusal, dialect: str) -> None:
    """Write an error. In a stream that has begun it is the last event.

    Any other answer that has begun cannot say that it is broken, nor can a stream in the middle of an event:
    the client would read the error as the rest of it. It is left unfinished, and the connection is closed, as
    the upstream did.
    """
    try:
        if writer.started and not writer.takes_events:
            return
        if writer.started:
            await writer.write(refusal.event(dialect, writer.next_number))
            await writer.finish()
        else:
            await writer.answer(refusal.status, refusal.headers, refusal.body(dialect))
    except (ClientGone, OSError):
        return


class ProxiedExchange:
    """One request and its answer."""

    def __init__(
        self,
        gateway: Gateway,
        scope: Scope,
        receive: Receive,
        writer: AnswerWriter,
        visitor: Visitor,
        *,
        trace: CallTrace,
    ) -> None:
        self._trace = trace
        self._gateway = gateway
        self._scope = scope
        self._writer = writer
        self._visitor = visitor
        self._headers: Headers = scope["headers"]
        self._client = ClientConnection(receive, self._headers, gateway.settings, scope.get(LINK))
        self._began = monotonic()
        self._prefixed, path = gateway.upstreams.by_prefix(scope["path"])
        self._raw_path = _remove_prefix(scope["raw_path"], self._prefixed)
        self._route = match_route(scope["method"], path)
        self._recalls: RecallRelay | None = None
        self._sent_id = ""
        self._record = ExchangeRecord(gateway.saver, gateway.settings.policy.keep)

    async def run(self) -> None:
        """Answer the request, or stop as soon as the client goes away."""
        is_off = lower_ascii(read_header(self._headers, b"x-lamina")) == "off"
        if self._route.action == "pass" or is_off:
            await self._pass_through()
            return
        gateway = self._gateway
        with gateway.bodies.open_ticket() as ticket:
            packed = await self._client.read_body(ticket)
            encoding = read_list(self._headers, b"content-encoding")
            memory = gateway.memory(self._visitor.workspace)
            body = decode_body(packed, encoding, gateway.settings.limits, memory)
            ticket.set_size(len(body.text))
            await self._client.work_until_left(self._answer(body))

    async def _answer(self, body: RequestBody) -> None:
        incoming = self._describe(body)
        gateway = self._gateway
        if self._route.action == "count":
            tokens = await gateway.fitter.count(incoming)
            if tokens is not None:
                await self._write_count(tokens)
                return
            outgoing = OutgoingRequest()
        else:
            with self._trace.fitting():
                outgoing = await gateway.fitter.prepare(incoming)
            record_prepared(self._trace, incoming, outgoing)
        gateway.metrics.add(
            "lamina_requests_total",
            upstream=incoming.upstream.name,
            dialect=incoming.dialect.name,
            outcome=outgoing.outcome,
        )
        following: OutgoingRequest | None = outgoing
        why = ""
        try:
            while following is not None:  # once more after each recall of the model
                following = await self._send_fitting(incoming, following, why=why)
                why = "recall"
        except BaseException as error:
            self._record.failed(error)
            raise

    def _describe(self, body: RequestBody) -> IncomingRequest:
        """The request with everything that fitting depends on."""
        route = self._route
        model = route.model or body.model
        upstream = self._prefixed or self._gateway.upstreams.choose(route.dialect, model)
        request = body.request
        _refuse_malformed(request)
        model_field = "model"
        if route.dialect == "bedrock_converse":
            model_field = "modelId"
        if route.model and model_field not in request:
            request = {model_field: route.model, **request}
        return IncomingRequest(
            workspace=self._visitor.workspace,
            identity=identify_client(self._headers, request),
            dialect=DIALECTS[route.dialect],
            upstream=upstream,
            body=body,
            request=request,
            model=model,
        )

    async def _write_count(self, tokens: int) -> None:
        field = "input_tokens"
        if self._route.dialect == "gemini":
            field = "totalTokens"
        body = msgspec.json.encode({field: tokens})
        await self._writer.answer(200, [(b"content-type", b"application/json")], body)

    async def _send_fitting(
        self, incoming: IncomingRequest, outgoing: OutgoingRequest, *, why: str = ""
    ) -> OutgoingRequest | None:
        """Send the request, and once more if it was refused and can be mended.

        Returns the request to send next, if the model recalled something. `why`: it was sent before.
        """
        opened = self._open_answer(incoming, outgoing, why=why)
        async with opened as answer:
            self._record.first_byte()
            error_body = await read_overflow_body(answer)
            if error_body is None:
                return await self._relay(incoming, outgoing, answer, retries=opened.retries)
            self._record.answered(answer, body=error_body, retries=opened.retries)
            error_text = unpack_error(error_body, answer)
            mended = await self._mend(incoming, outgoing, answer.status, error_text)
            if mended is None:
                await self._relay_error(incoming, answer, error_body)
                return None
        opened = self._open_answer(incoming, mended, why=f"refused with the status {answer.status}")
        async with opened as answer:
            self._record.first_byte()
            return await self._relay(incoming, mended, answer, retries=opened.retries)

    async def _mend(
        self, incoming: IncomingRequest, outgoing: OutgoingRequest, status: int, error_text: str
    ) -> OutgoingRequest | None:
        """The request to send after the upstream refused one; None if the client gets the error.

        A request that was too long is made shorter. One that asks its server for something which that does
        not know is fitted anew without it, and one with a question about the cache is sent without that.
        """
        gateway = self._gateway
        if refuses_question(status, error_text):
            unasked = gateway.fitter.forgo_report(incoming, outgoing)
            if unasked is not None:
                return unasked
        if refuses_binding_switch(status, error_text):
            return await gateway.fitter.forgo_server(incoming, outgoing, use="never")
        if refuses_editing(status, error_text):
            return await gateway.fitter.forgo_server(incoming, outgoing, use="thinking")
        overflow = read_overflow(status, error_text)
        if overflow is None:
            return None
        shorter = await gateway.fitter.shrink(incoming, outgoing, overflow)
        if shorter is not None:
            gateway.metrics.add("lamina_overflows_total", upstream=incoming.upstream.name)
        return shorter

    def _open_answer(
        self, incoming: IncomingRequest, outgoing: OutgoingRequest, *, why: str = ""
    ) -> UpstreamAnswer:
        body = outgoing.body
        if body is None:
            body = incoming.body.packed
        headers = request_headers(
            self._headers,
            incoming.upstream,
            environment=self._gateway.environment,
            drop_key=self._visitor.key_is_token,
            betas=outgoing.betas,
            unpacked=outgoing.body is not None,
        )
        if self._route.action != "count":
            self._sent_id = self._gateway.journal.write_sent(
                conversation=outgoing.conversation_name, upstream=incoming.upstream.name, model=incoming.model
            )
            if outgoing.conversation is not None:
                outgoing.conversation.sent_id = self._sent_id
            window = self._gateway.fitter.find_window(incoming, outgoing)
            tokens = window.tokens if window is not None else 0
            self._record.sent(incoming, outgoing, self._sent_id, window=tokens, why=why)
        return self._ask(incoming.upstream, body, headers, keeps_alive=self._wants_events(incoming))

    def _ask(
        self, upstream: Upstream, body: Any, headers: Any, *, keeps_alive: bool = False
    ) -> UpstreamAnswer:
        headers.update(self._trace.start_sending())
        request = UpstreamRequest(
            upstream=upstream,
            method=self._scope["method"],
            url=upstream_url(upstream, self._raw_path, self._scope["query_string"]),
            headers=headers,
            body=body,
            keeps_alive=keeps_alive,
            sent_id=self._sent_id,
        )
        return UpstreamAnswer(request, self._gateway, self._writer)

    def _wants_events(self, incoming: IncomingRequest) -> bool:
        """Whether the client expects an event stream, in which comments are allowed."""
        if self._route.dialect == "gemini":
            return self._route.streams and b"alt=sse" in self._scope["query_string"]
        if self._route.dialect == "bedrock_converse":
            return False  # its streams are frames of bytes
        return incoming.dialect.name != "ollama" and incoming.request.get("stream") is True

    async def _relay(
        self,
        incoming: IncomingRequest,
        outgoing: OutgoingRequest,
        answer: aiohttp.ClientResponse,
        *,
        retries: int = 0,
    ) -> OutgoingRequest | None:
        """Pass the answer on, and learn from the usage that it reports.

        Returns the request to send next, if the model recalled something.
        """
        content_type = lower_ascii(answer.headers.get("content-type", ""))
        encoding = lower_ascii(answer.headers.get("content-encoding", ""))
        keeps_body = self._record.keeps_bodies or self._is_twin(incoming, outgoing)
        reader = UsageReader(content_type, encoding, keeps_body=keeps_body, request=outgoing.request)
        self._count_answer(incoming, answer)
        if outgoing.own_names and answer.status < 300:
            return await self._relay_recalls(incoming, outgoing, answer, reader, retries=retries)
        deadlines = self._gateway.settings.deadlines
        unpacker = None
        if self._writer.started:
            if answer.status >= 400:
                raise await read_late_error(answer, deadlines.idle)
            unpacker = make_unpacker(encoding)
        else:
            await self._writer.start(answer.status, _answer_headers(answer, outgoing))
        on_silence = None
        if content_type.startswith("text/event-stream") and not encoding:
            on_silence = self._writer.comment
        recorder = AnswerRecorder(self._gateway.learner, outgoing, reader, succeeded=answer.status < 300)
        last_piece = b""
        try:
            while piece := await read_piece(answer, deadlines, on_silence):
                ready = _unpack(await recorder.take(piece), unpacker)
                if answer.content.at_eof():
                    last_piece = ready
                elif ready:
                    await self._writer.write(ready)
            await self._writer.finish(last_piece + _unpack(await recorder.finish(), unpacker))
        finally:
            self._learn(incoming, outgoing, answer, reader, retries=retries)
        return None

    async def _relay_recalls(
        self,
        incoming: IncomingRequest,
        outgoing: OutgoingRequest,
        answer: aiohttp.ClientResponse,
        reader: UsageReader,
        *,
        retries: int,
    ) -> OutgoingRequest | None:
        """Pass on what the client may see of an answer that may recall something."""
        gateway = self._gateway
        if self._recalls is None:
            self._recalls = RecallRelay(
                gateway.fitter,
                self._writer,
                gateway.settings.deadlines,
                incoming.dialect,
                outgoing.own_names,
            )
        following = None
        try:
            headers = _answer_headers(answer, outgoing)
            following = await self._recalls.relay(outgoing, answer, headers, reader)
        finally:
            recalled = following is not None
            self._learn(incoming, outgoing, answer, reader, recalled=recalled, retries=retries)
        return following

    def _count_answer(self, incoming: IncomingRequest, answer: aiohttp.ClientResponse) -> None:
        status = f"{answer.status // 100}xx"
        self._gateway.metrics.add("lamina_answers_total", upstream=incoming.upstream.name, status=status)

    def _learn(
        self,
        incoming: IncomingRequest,
        outgoing: OutgoingRequest,
        answer: aiohttp.ClientResponse,
        reader: UsageReader,
        *,
        recalled: bool = False,
        retries: int = 0,
    ) -> None:
        """Record what the answer reported, also if the client has gone meanwhile.

        `recalled`: the answer was for the gateway, and the request goes on.
        """
        if answer.status >= 300 or self._route.action == "count":
            self._record.answered(answer, reader=reader, retries=retries)
            self._trace.end_call(error=str(answer.status) if answer.status >= 400 else "")
            return
        gateway = self._gateway
        usage = reader.finish()
        gateway.learner.note_answer(outgoing, reader.facts.id)
        account = gateway.misses.report(
            incoming,
            outgoing,
            usage,
            sent_id=self._sent_id,
            recalled=recalled,
            report=reader.report,
            window=gateway.fitter.find_window(incoming, outgoing),
        )
        self._record.answered(answer, reader=reader, account=account, recalled=recalled, retries=retries)
        record_answered(self._trace, outgoing, usage, reader.facts, recalled=recalled)
        self._trace.end_call()
        for kind in ("input", "cached", "written", "output"):
            amount = getattr(usage, kind)
            if amount:
                gateway.metrics.add("lamina_tokens_total", amount, kind=kind)
        if recalled:
            gateway.metrics.add("lamina_recalls_total", upstream=incoming.upstream.name)
            return
        gateway.metrics.observe("lamina_request_seconds", monotonic() - self._began, part="whole")
        self._plan_warming(incoming, outgoing)
        if answer.content.at_eof():
            self._send_twin(incoming, outgoing, answer, reader)
        if self._recalls is not None:  # the relay of recalls has recorded it, unless the answer broke off
            return
        if not gateway.learner.record_if_free(outgoing, usage):
            gateway.finish_later(gateway.learner.record_answer(outgoing, usage))

    def _plan_warming(self, incoming: IncomingRequest, outgoing: OutgoingRequest) -> None:
        """Plan to read the prefix of this request again before its cache ends, where the policy says so."""
        if incoming.upstream.settings.policy.keep_warm == "never":
            return
        headers = request_headers(
            self._headers,
            incoming.upstream,
            environment=self._gateway.environment,
            drop_key=self._visitor.key_is_token,
            betas=outgoing.betas,
            unpacked=True,
        )
        url = upstream_url(incoming.upstream, self._raw_path, self._scope["query_string"])
        self._gateway.warmer.plan(Warming(incoming=incoming, outgoing=outgoing, url=url, headers=headers))

    def _is_twin(self, incoming: IncomingRequest, outgoing: OutgoingRequest) -> bool:
        """Whether this call is among those that a twin run sends twice."""
        twins = self._gateway.twins
        return twins is not None and self._route.action != "count" and twins.chooses(incoming, outgoing)

    def _send_twin(
        self,
        incoming: IncomingRequest,
        outgoing: OutgoingRequest,
        answer: aiohttp.ClientResponse,
        reader: UsageReader,
    ) -> None:
        """Send the client's own request, too, if a twin run wants to. The client has its answer already."""
        twins = self._gateway.twins
        body = reader.kept_body()
        if twins is None or body is None or not self._is_twin(incoming, outgoing):
            return
        salted = bool(self._gateway.settings.tokens)
        own_body = call_upstream(incoming, salted=salted).unchanged().body
        headers = request_headers(
            self._headers,
            incoming.upstream,
            environment=self._gateway.environment,
            drop_key=self._visitor.key_is_token,
            unpacked=own_body is not None,
        )
        twins.send(
            TwinCall(
                incoming=incoming,
                outgoing=outgoing,
                url=upstream_url(incoming.upstream, self._raw_path, self._scope["query_string"]),
                headers=headers,
                body=incoming.body.packed if own_body is None else own_body,
                answer=AnswerBody.of(answer, body),
                usage=reader.usage,
            )
        )

    async def _relay_error(
        self, incoming: IncomingRequest, answer: aiohttp.ClientResponse, body: bytes
    ) -> None:
        """Pass an error on whose body has been read already."""
        self._count_answer(incoming, answer)
        self._trace.end_call(error=str(answer.status))
        if self._writer.started:
            raise Refusal(answer.status, unpack_error(body, answer)[:ERROR_CHARACTERS])
        await self._relay_unread(answer, first=body)

    async def _pass_through(self) -> None:
        """Pass a request on without reading it. Its body is sent as it arrives."""
        upstream = self._prefixed or self._choose_unread()
        headers = request_headers(
            self._headers,
            upstream,
            environment=self._gateway.environment,
            drop_key=self._visitor.key_is_token,
        )
        length = read_header(self._headers, b"content-length")
        body = None
        if length or read_header(self._headers, b"transfer-encoding"):
            body = self._client.read_pieces()
        if length:
            headers["content-length"] = length
        self._gateway.metrics.add(
            "lamina_requests_total", upstream=upstream.name, dialect=self._route.dialect, outcome="passed"
        )
        async with self._ask(upstream, body, headers) as answer:
            if body is None or self._client.body_is_read:
                await self._client.work_until_left(self._relay_unread(answer))
            else:  # what is left of the body may be read by one only
                await self._relay_unread(answer)

    async def _relay_unread(self, answer: aiohttp.ClientResponse, first: bytes = b"") -> None:
        """Pass an answer on without reading it. `first` is the part of it that has been read already."""
        await self._writer.start(answer.status, response_headers(answer.raw_headers, answer.status))
        if first:
            await self._writer.write(first)
        async for piece in read_pieces(answer, self._gateway.settings.deadlines, None):
            await self._writer.write(piece)
        await self._writer.finish()

    def _choose_unread(self) -> Upstream:
        if self._route.dialect:
            return self._gateway.upstreams.choose(self._route.dialect, self._route.model)
        return self._gateway.upstreams.for_other_paths(self._scope["path"], self._headers)


def _unpack(piece: bytes, unpacker: Unpacker | None) -> bytes:
    if unpacker is None or not piece:
        return piece
    return unpacker(piece)


def _answer_headers(answer: aiohttp.ClientResponse, outgoing: OutgoingRequest) -> list[tuple[bytes, bytes]]:
    """The upstream's headers for the client, and what the gateway did to the request."""
    headers = response_headers(answer.raw_headers, answer.status)
    if outgoing.is_as_it_came:
        return headers
    change = b"fitted"
    if outgoing.cut:
        change = b"cut"
    return [*headers, (b"x-lamina", change)]


def _remove_prefix(raw_path: bytes, prefixed: Upstream | None) -> bytes:
    """The path as the client wrote it, without the prefix that chose the upstream."""
    if prefixed is None:
        return raw_path
    prefix = prefixed.settings.prefix.encode()
    if not raw_path.startswith(prefix):
        raise Refusal(400, "the prefix of a path must not be percent-encoded")
    return raw_path[len(prefix) :] or b"/"
