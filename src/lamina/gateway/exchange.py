"""One request through the gateway: admit it, read it, and give it to the relay. Read this file first.

    admit ──▶ route ──▶ read ──▶ relay
    security  routes    bodies   lamina.relay.exchange

Whatever happens, the client gets an answer in the shape of its own API (`refusals`). A client that goes away
cancels everything that is done for it.
"""

from __future__ import annotations

import asyncio

from lamina.gateway.client_bodies import BodyTicket, ClientBody
from lamina.gateway.client_connection import ClientCall
from lamina.gateway.shared import Gateway
from lamina.relay.client_request import UPGRADE_REQUIRED, ClientRequest
from lamina.relay.exchange import Exchange, write_refusal
from lamina.relay.refusals import Refusal
from lamina.relay.routes import match_route
from lamina.relay.stream import AnswerWriter, ClientGone
from lamina.telemetry import CallTrace

STOPPING = "the gateway is stopping, and this request took too long to wait for; try again"


async def answer_request(gateway: Gateway, call: ClientCall) -> None:
    """Answer one HTTP request. Its trace ends with the answer."""
    trace = gateway.relay.telemetry.start_request(call.line.method, call.line.path, call.line.headers)
    task = gateway.drain.begin_request()
    try:
        await _answer_traced(gateway, call, trace)
    finally:
        gateway.drain.end_request(task)
        trace.end()


async def _answer_traced(gateway: Gateway, call: ClientCall, trace: CallTrace) -> None:
    relay = gateway.relay
    path = call.line.path
    writer = AnswerWriter(call, trace)
    try:
        head = call.last_head.read(call.line.headers, relay.settings)
        _refuse_path(path)
        workspace = head.visitor.workspace
        gateway.enter(workspace)
        try:
            request = ClientRequest.read(call.line, head, relay.upstreams)
            exchange = Exchange(relay, request, writer, trace, connections=gateway.connections)
            await _answer(gateway, request, call, exchange)
        finally:
            gateway.leave(workspace)
    except Refusal as refusal:
        dialect = match_route("POST", path).dialect
        if refusal.status != UPGRADE_REQUIRED:  # the same request comes again by POST
            relay.metrics.add("lamina_requests_total", upstream="", dialect=dialect, outcome="refused")
        relay.journal.write("refused", status=refusal.status, reason=refusal.message, path=path)
        await write_refusal(writer, refusal, dialect)
    except ClientGone:
        relay.journal.write("client gone", path=path)
    except asyncio.CancelledError:
        if not gateway.drain.take_cut():  # somebody else cancelled it, who does not want an answer
            raise
        relay.journal.write("cut off", path=path)
        await write_refusal(writer, Refusal(503, STOPPING, retry_after=1), match_route("POST", path).dialect)
    except Exception as error:  # noqa: BLE001 - a client always gets an answer in its own shape
        relay.metrics.add("lamina_failures_total", kind=type(error).__name__)
        relay.journal.write("failed", error=type(error).__name__, path=path)
        failure = Refusal(500, "the gateway failed; its log names the error")
        await write_refusal(writer, failure, match_route("POST", path).dialect)


async def _answer(gateway: Gateway, request: ClientRequest, call: ClientCall, exchange: Exchange) -> None:
    """Answer the request, or stop as soon as the client goes away."""
    client_body = ClientBody(call, request.headers, gateway.relay.settings)
    if request.passes_unread:
        await call.work_until_left(_pass_through(gateway, client_body, exchange))
        return
    with BodyTicket(gateway.bodies) as ticket:
        packed = await client_body.read_body(ticket)
        text = await client_body.unpack_body(packed, ticket)
        ticket.set_size(len(text))
        body = gateway.relay.decode(text, request.head.visitor.workspace, packed=packed)
        await call.work_until_left(exchange.answer(body))


async def _pass_through(gateway: Gateway, client_body: ClientBody, exchange: Exchange) -> None:
    with BodyTicket(gateway.bodies) as ticket:
        body = await client_body.open_body(ticket)
    await exchange.pass_through(body)


def _refuse_path(path: str) -> None:
    """Refuse a path that is none. `OPTIONS *` asks about no path, so no upstream can answer it."""
    if not path.startswith("/"):
        raise Refusal(400, "the request names no path")
    if not {".", ".."}.isdisjoint(path.split("/")):  # an upstream may resolve it to a path outside of its own
        raise Refusal(400, "the path has . or .. as a segment; write it without")
