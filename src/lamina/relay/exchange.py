"""One call through the relay: fit it, send it, pass the answer on. Read this file first.

    read ──▶ fit ──▶ send ──▶ relay ──▶ learn
    door     fit     upstream_answer    answer, recording

A door gives it a request whose body was read, and takes what the client may see of the answer. If the
upstream refuses a request, `sent_calls` may know a remedy.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from lamina.dialects import DIALECTS
from lamina.relay.answer import AnswerRelay, relay_unread
from lamina.relay.calls import IncomingRequest, OutgoingRequest
from lamina.relay.client_request import ClientRequest
from lamina.relay.events import AnsweredEvent, AnswerListener, CallSpans, SentEvent, count_answer
from lamina.relay.identity import identify_client
from lamina.relay.recording import ExchangeRecord
from lamina.relay.refusals import BrokenOff, Refusal
from lamina.relay.relay import Relay
from lamina.relay.request_bodies import RequestBody
from lamina.relay.security import Headers, read_header
from lamina.relay.stream import AnswerWriter, ClientGone
from lamina.relay.upstream_answer import UpstreamAnswer, read_overflow_body, unpack_error
from lamina.relay.upstream_port import Connections
from lamina.relay.upstreams import Upstream
from lamina.telemetry import CallTrace


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


async def write_refusal(writer: AnswerWriter, refusal: Refusal, dialect: str) -> None:
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


class Exchange:
    """One request and its answer."""

    def __init__(
        self,
        relay: Relay,
        request: ClientRequest,
        writer: AnswerWriter,
        trace: CallTrace,
        *,
        connections: Connections,
        listener: AnswerListener | None = None,
        on_sent: Callable[[SentEvent], None] | None = None,
    ) -> None:
        self._relay = relay
        self._connections = connections
        self._request = request
        self._writer = writer
        self._trace = trace
        self._record = ExchangeRecord(relay.saver, relay.settings.policy.keep, relay.door.name)
        self._waits_with_comments = listener is None
        self._on_sent = on_sent
        self._spans = CallSpans(trace)
        self._listeners: list[AnswerListener] = [
            relay.log.answered,
            self._record.answered,
            self._spans.answered,
            partial(count_answer, relay.metrics),
        ]
        if listener is not None:
            self._listeners.append(listener)

    async def answer(self, body: RequestBody) -> None:
        """Answer a request whose body was read."""
        incoming = self._describe(body)
        relay = self._relay
        if self._request.route.action == "count":
            tokens = await relay.fitter.count(incoming)
            if tokens is not None:
                await self._write_count(tokens)
                return
            outgoing = OutgoingRequest()
        else:
            with self._trace.fitting():
                outgoing = await relay.fitter.prepare(incoming)
        relay.metrics.add(
            "lamina_requests_total",
            upstream=incoming.upstream.name,
            dialect=incoming.dialect.name,
            outcome=outgoing.outcome,
        )
        answers = AnswerRelay(
            relay,
            self._request,
            incoming,
            self._writer,
            listeners=self._listeners,
            keeps_bodies=self._record.keeps_bodies,
        )
        following: OutgoingRequest | None = outgoing
        try:
            while following is not None:  # once more after each recall of the model
                following = await self._send_fitting(incoming, following, answers)
        except BaseException as error:
            self._record.failed(error)
            raise

    def _describe(self, body: RequestBody) -> IncomingRequest:
        """The request with everything that fitting depends on."""
        route = self._request.route
        model = route.model or body.model
        upstream = self._request.prefixed or self._relay.upstreams.choose(route.dialect, model)
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
        self, incoming: IncomingRequest, outgoing: OutgoingRequest, answers: AnswerRelay
    ) -> OutgoingRequest | None:
        """Send the request, and another one if it was refused and can be mended.

        Returns the request to send next, if the model recalled something.
        """
        sent = self._note_sent(incoming, outgoing)
        async with self._send(sent) as answer:
            self._record.first_byte()
            error_body = await read_overflow_body(answer)
            if error_body is None:
                return await answers.relay(sent, answer)
            answers.tell(AnsweredEvent(sent, answer, body=error_body))
            error_text = unpack_error(error_body, answer)
            mended = await self._relay.sent_calls.mend(outgoing, answer.status, error_text)
            if mended is None:
                await answers.relay_error(answer, error_body)
                return None
        return await self._send_fitting(incoming, mended, answers)

    def _note_sent(self, incoming: IncomingRequest, outgoing: OutgoingRequest) -> SentEvent:
        """Tell that a request leaves. A count is not told: it costs nothing."""
        relay = self._relay
        began = self._request.began
        if self._request.route.action == "count":
            return SentEvent(incoming, outgoing, "", began)
        sent_id = relay.journal.write_sent(
            conversation=outgoing.conversation_name, upstream=incoming.upstream.name, model=incoming.model
        )
        sent = SentEvent(incoming, outgoing, sent_id, began, relay.policies.find_window(incoming, outgoing))
        self._record.sent(sent)
        self._spans.sent(sent)
        if self._on_sent is not None:
            self._on_sent(sent)
        return sent

    def _send(self, sent: SentEvent) -> UpstreamAnswer:
        """Send a request that was read."""
        relay = self._relay
        incoming, outgoing = sent.incoming, sent.outgoing
        body = outgoing.body
        if body is None:
            body = incoming.body.packed
        headers = self._request.headers_for(
            incoming.upstream,
            relay.environment,
            betas=outgoing.betas,
            unpacked=outgoing.body is not None,
        )
        keeps_alive = self._waits_with_comments and self._request.wants_events(incoming)
        return self._ask(incoming.upstream, body, headers, keeps_alive=keeps_alive, sent_id=sent.id)

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
            self._relay,
            self._request,
            upstream,
            self._writer,
            connections=self._connections,
            headers=headers,
            body=body,
            keeps_alive=keeps_alive,
            is_sent_once=is_sent_once,
            sent_id=sent_id,
        )

    async def pass_through(self, body: bytes | AsyncIterator[bytes] | None) -> None:
        """Pass a request on without looking into it."""
        relay = self._relay
        upstream = self._request.prefixed or self._choose_unread()
        headers = self._request.headers_for(upstream, relay.environment)
        length = read_header(self._request.headers, b"content-length")
        if length and not isinstance(body, bytes):
            headers = [*headers, (b"content-length", length.encode())]
        relay.metrics.add(
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
            return self._relay.upstreams.choose(route.dialect, route.model)
        return self._relay.upstreams.for_other_paths(self._request.path, self._request.headers)
