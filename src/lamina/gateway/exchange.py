"""One request through the gateway: read it, fit it, send it, pass the answer on. Read this file first.

    admit ──▶ route ──▶ read ──▶ fit ──▶ send ──▶ relay ──▶ learn
    security  routes    bodies   fit     upstream_answer    answer, recording

If the upstream refuses a request, `sent_calls` may know a remedy. Whatever happens, the client gets an answer
in the shape of its own API (`refusals`). A client that goes away cancels everything that is done for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import msgspec

from lamina.dialects import DIALECTS
from lamina.gateway.answer import AnswerRelay, relay_unread
from lamina.gateway.calls import IncomingRequest, OutgoingRequest
from lamina.gateway.client_connection import LINK, BodyTicket, ClientConnection, ClientLink, Receive
from lamina.gateway.client_request import UPGRADE_REQUIRED, ClientRequest, Scope
from lamina.gateway.identity import identify_client
from lamina.gateway.recording import ExchangeRecord
from lamina.gateway.refusals import BrokenOff, Refusal
from lamina.gateway.request_bodies import RequestBody, decode_body
from lamina.gateway.routes import match_route
from lamina.gateway.security import Headers, read_header
from lamina.gateway.shared import Gateway
from lamina.gateway.stream import AnswerWriter, ClientGone
from lamina.gateway.telemetry import record_prepared, watch_status
from lamina.gateway.upstream_answer import UpstreamAnswer, read_overflow_body, unpack_error
from lamina.gateway.upstreams import Upstream
from lamina.telemetry import CallTrace

STOPPING = "the gateway is stopping, and this request took too long to wait for; try again"

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


async def answer_request(gateway: Gateway, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one HTTP request. Its trace ends with the answer."""
    trace = gateway.telemetry.start_request(scope["method"], scope["path"], scope["headers"])
    task = gateway.drain.begin_request()
    try:
        await _answer_traced(gateway, scope, receive, watch_status(trace, send), trace)
    finally:
        gateway.drain.end_request(task)
        trace.end()


async def _answer_traced(
    gateway: Gateway, scope: Scope, receive: Receive, send: Send, trace: CallTrace
) -> None:
    path = scope["path"]
    link: ClientLink = scope[LINK]
    writer = AnswerWriter(send, link.flow, link.join_writes, link.abort)
    try:
        head = link.last_head.read(scope["headers"], gateway.settings)
        _refuse_path(path)
        workspace = head.visitor.workspace
        gateway.enter(workspace)
        try:
            request = ClientRequest.read(scope, head, gateway.upstreams)
            client = ClientConnection(receive, request.headers, gateway.settings, link)
            await ProxiedExchange(gateway, request, client, writer, trace).run()
        finally:
            gateway.leave(workspace)
    except Refusal as refusal:
        dialect = match_route("POST", path).dialect
        if refusal.status != UPGRADE_REQUIRED:  # the same request comes again by POST
            gateway.metrics.add("lamina_requests_total", upstream="", dialect=dialect, outcome="refused")
        gateway.journal.write("refused", status=refusal.status, reason=refusal.message, path=path)
        await _refuse(writer, refusal, dialect)
    except ClientGone:
        gateway.journal.write("client gone", path=path)
    except asyncio.CancelledError:
        if not gateway.drain.take_cut():  # somebody else cancelled it, who does not want an answer
            raise
        gateway.journal.write("cut off", path=path)
        await _refuse(writer, Refusal(503, STOPPING, retry_after=1), match_route("POST", path).dialect)
    except Exception as error:  # noqa: BLE001 - a client always gets an answer in its own shape
        gateway.metrics.add("lamina_failures_total", kind=type(error).__name__)
        gateway.journal.write("failed", error=type(error).__name__, path=path)
        failure = Refusal(500, "the gateway failed; its log names the error")
        await _refuse(writer, failure, match_route("POST", path).dialect)


def _refuse_path(path: str) -> None:
    """Refuse a path that is none. `OPTIONS *` asks about no path, so no upstream can answer it."""
    if not path.startswith("/"):
        raise Refusal(400, "the request names no path")
    if not {".", ".."}.isdisjoint(path.split("/")):  # an upstream may resolve it to a path outside of its own
        raise Refusal(400, "the path has . or .. as a segment; write it without")


def _refuse_malformed(request: Mapping[str, Any]) -> None:
    """Refuse messages that no API takes, before they are sent."""
    for field in ("messages", "contents", "input"):
        messages = request.get(field)
        if not isinstance(messages, list):
            continue
        if not messages and field != "input":  # the Responses API may have all of it in a stored prompt
            raise Refusal(400, f"{field} is empty; send at least one message")
        if set(map(type, messages)) <= {dict}:  # no step of Python for a message: there may be thousands
            continue
        place = next(place for place, message in enumerate(messages) if type(message) is not dict)
        raise Refusal(400, f"{field}[{place}] is not an object; send messages as objects")


async def _refuse(writer: AnswerWriter, refusal: Refusal, dialect: str) -> None:
    """Write an error. In a stream that has begun it is the last event.

    Any other answer that has begun cannot say that it is broken, nor can a stream in the middle of an event:
    the client would read the error as the rest of it. It is left unfinished, and the connection is closed. So
    is an answer that its upstream broke off.
    """
    try:
        if writer.started and (isinstance(refusal, BrokenOff) or not writer.takes_events):
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
        request: ClientRequest,
        client: ClientConnection,
        writer: AnswerWriter,
        trace: CallTrace,
    ) -> None:
        self._gateway = gateway
        self._request = request
        self._client = client
        self._writer = writer
        self._trace = trace
        self._record = ExchangeRecord(gateway.saver, gateway.settings.policy.keep)

    async def run(self) -> None:
        """Answer the request, or stop as soon as the client goes away."""
        if self._request.passes_unread:
            await self._client.work_until_left(self._pass_through())
            return
        gateway = self._gateway
        with BodyTicket(gateway.bodies) as ticket:
            packed = await self._client.read_body(ticket)
            text = await self._client.unpack_body(packed, ticket)
            memory = gateway.memory(self._request.head.visitor.workspace)
            ticket.set_size(len(text))
            body = decode_body(text, memory, packed=packed)
            await self._client.work_until_left(self._answer(body))

    async def _answer(self, body: RequestBody) -> None:
        incoming = self._describe(body)
        gateway = self._gateway
        if self._request.route.action == "count":
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
        relay = AnswerRelay(
            gateway, self._request, incoming, self._writer, record=self._record, trace=self._trace
        )
        following: OutgoingRequest | None = outgoing
        try:
            while following is not None:  # once more after each recall of the model
                following = await self._send_fitting(incoming, following, relay)
        except BaseException as error:
            self._record.failed(error)
            raise

    def _describe(self, body: RequestBody) -> IncomingRequest:
        """The request with everything that fitting depends on."""
        route = self._request.route
        model = route.model or body.model
        upstream = self._request.prefixed or self._gateway.upstreams.choose(route.dialect, model)
        request = body.request
        _refuse_malformed(request)
        model_field = "model"
        if route.dialect == "bedrock_converse":
            model_field = "modelId"
        if route.model and model_field not in request:
            request = {model_field: route.model, **request}
        return IncomingRequest(
            workspace=self._request.head.visitor.workspace,
            identity=identify_client(self._request.head.identity, request),
            dialect=DIALECTS[route.dialect],
            upstream=upstream,
            body=body,
            request=request,
            model=model,
        )

    async def _write_count(self, tokens: int) -> None:
        field = "input_tokens"
        if self._request.route.dialect == "gemini":
            field = "totalTokens"
        body = msgspec.json.encode({field: tokens})
        await self._writer.answer(200, [(b"content-type", b"application/json")], body)

    async def _send_fitting(
        self, incoming: IncomingRequest, outgoing: OutgoingRequest, relay: AnswerRelay
    ) -> OutgoingRequest | None:
        """Send the request, and another one if it was refused and can be mended.

        Returns the request to send next, if the model recalled something.
        """
        sending = self._send(incoming, outgoing)
        async with sending as answer:
            self._record.first_byte()
            error_body = await read_overflow_body(answer)
            if error_body is None:
                return await relay.relay(outgoing, answer, sending)
            self._record.answered(answer, body=error_body)
            error_text = unpack_error(error_body, answer)
            mended = await self._gateway.sent_calls.mend(outgoing, answer.status, error_text)
            if mended is None:
                await relay.relay_error(answer, error_body)
                return None
        return await self._send_fitting(incoming, mended, relay)

    def _send(self, incoming: IncomingRequest, outgoing: OutgoingRequest) -> UpstreamAnswer:
        """Send a request that was read. A count is not logged: it costs nothing."""
        gateway = self._gateway
        body = outgoing.body
        if body is None:
            body = incoming.body.packed
        headers = self._request.headers_for(
            incoming.upstream,
            gateway.environment,
            betas=outgoing.betas,
            unpacked=outgoing.body is not None,
        )
        sent_id = ""
        if self._request.route.action != "count":
            sent_id = gateway.journal.write_sent(
                conversation=outgoing.conversation_name, upstream=incoming.upstream.name, model=incoming.model
            )
            window = gateway.policies.find_window(incoming, outgoing)
            self._record.sent(incoming, outgoing, sent_id, window=window)
        keeps_alive = self._request.wants_events(incoming)
        return self._ask(incoming.upstream, body, headers, keeps_alive=keeps_alive, sent_id=sent_id)

    def _ask(
        self,
        upstream: Upstream,
        body: bytes | AsyncIterator[bytes] | None,
        headers: Headers,
        *,
        keeps_alive: bool = False,
        is_sent_once: bool = False,
        sent_id: str = "",
    ) -> UpstreamAnswer:
        traced = [(name.encode(), value.encode()) for name, value in self._trace.start_sending().items()]
        if traced:
            names = {name for name, _ in traced}
            headers = [header for header in headers if header[0] not in names] + traced
        return UpstreamAnswer(
            self._gateway,
            self._request,
            upstream,
            self._writer,
            headers=headers,
            body=body,
            keeps_alive=keeps_alive,
            is_sent_once=is_sent_once,
            sent_id=sent_id,
        )

    async def _pass_through(self) -> None:
        """Pass a request on without looking into it."""
        gateway = self._gateway
        upstream = self._request.prefixed or self._choose_unread()
        headers = self._request.headers_for(upstream, gateway.environment)
        with BodyTicket(gateway.bodies) as ticket:
            body = await self._client.open_body(ticket)
        length = read_header(self._request.headers, b"content-length")
        if length and not isinstance(body, bytes):
            headers = [*headers, (b"content-length", length.encode())]
        gateway.metrics.add(
            "lamina_requests_total",
            upstream=upstream.name,
            dialect=self._request.route.dialect,
            outcome="passed",
        )
        async with self._ask(upstream, body, headers, is_sent_once=body is not None) as answer:
            await relay_unread(self._writer, answer)

    def _choose_unread(self) -> Upstream:
        route = self._request.route
        if route.dialect:
            return self._gateway.upstreams.choose(route.dialect, route.model)
        return self._gateway.upstreams.for_other_paths(self._request.path, self._request.headers)
