"""One request through the gateway: read it, fit it, send it, pass the answer on. Read this file first.

    admit ──▶ route ──▶ read ──▶ fit ──▶ send ──▶ relay ──▶ learn

Whatever happens, the client gets an answer in the shape of its own API. A client that goes away cancels
everything that is done for it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, MutableMapping
from io import BytesIO
from time import monotonic
from typing import Any

import aiohttp
import msgspec

from lamina.core.text.characters import lower_ascii
from lamina.dialects import DIALECTS
from lamina.dialects.overflow import STATUS as OVERFLOW_STATUS
from lamina.dialects.overflow import read_overflow
from lamina.gateway.bodies import RequestBody, Unpacker, decode_body, make_unpacker, unpack
from lamina.gateway.config import GatewaySettings
from lamina.gateway.fit import Fitter, IncomingRequest, OutgoingRequest
from lamina.gateway.identity import identify_client
from lamina.gateway.journal import Journal
from lamina.gateway.metrics import GatewayMetrics
from lamina.gateway.misses import MissReporter
from lamina.gateway.recalls import RecallRelay
from lamina.gateway.recorder import AnswerRecorder
from lamina.gateway.refusals import Refusal
from lamina.gateway.routes import match_route
from lamina.gateway.security import Headers, Visitor, admit_visitor, read_header
from lamina.gateway.stream import FLOW, AnswerWriter, ClientGone, read_pieces
from lamina.gateway.telemetry import record_answered, record_prepared, watch_status
from lamina.gateway.turn_memory import TurnMemory
from lamina.gateway.upstreams import Upstream, Upstreams, request_headers, response_headers, upstream_url
from lamina.gateway.usage import UsageReader
from lamina.telemetry import CallTrace, Telemetry

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

ERROR_BYTES = 1 << 20
"""Of an error body that are read to see whether a request was too long."""

LARGE_BODY = 1 << 20
_NUMBER = re.compile(r"[0-9]{1,18}")

RETRIED = frozenset((429, 503, 529))
LONGEST_PAUSE = 30
"""Seconds of `Retry-After` that the gateway waits for at most. Longer ones are the client's to wait."""


class Gateway:
    """What all requests share."""

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        session: aiohttp.ClientSession,
        fitter: Fitter,
        metrics: GatewayMetrics,
        journal: Journal,
        environment: Mapping[str, str],
        telemetry: Telemetry | None = None,
    ) -> None:
        self.telemetry = telemetry or Telemetry()
        self.settings = settings
        self.session = session
        self.fitter = fitter
        self.metrics = metrics
        self.journal = journal
        self.environment = environment
        self.upstreams = Upstreams(settings)
        self.misses = MissReporter(metrics, journal)
        self._memories: dict[str, TurnMemory] = {}
        self._active: dict[str, int] = {}
        self._tasks: set[asyncio.Future[None]] = set()

    def memory(self, workspace: str) -> TurnMemory:
        """The decoded messages of a workspace. How fast one is decoded tells nothing about another's."""
        if workspace not in self._memories:
            self._memories[workspace] = TurnMemory()
        return self._memories[workspace]

    def finish_later(self, work: Coroutine[Any, Any, None]) -> None:
        """Finish something that must not end with the client's connection."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish_all(self) -> None:
        """Wait for what is being finished."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def enter(self, workspace: str) -> None:
        """Count a request. Raises Refusal if the workspace has too many at once."""
        active = self._active.get(workspace, 0)
        if active >= self.settings.limits.requests:
            raise Refusal(429, "too many requests at once in this workspace", retry_after=1)
        self._active[workspace] = active + 1
        self.metrics.add("lamina_requests_active", 1)

    def leave(self, workspace: str) -> None:
        self._active[workspace] -= 1
        self.metrics.add("lamina_requests_active", -1)


async def answer_request(gateway: Gateway, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one HTTP request. Its trace ends with the answer, or when the answer's usage has been read."""
    trace = gateway.telemetry.start_request(scope["method"], scope["path"], scope["headers"])
    try:
        await _answer_traced(gateway, scope, receive, watch_status(trace, send), trace)
    finally:
        if not trace.is_unfinished:
            trace.end()


async def _answer_traced(
    gateway: Gateway, scope: Scope, receive: Receive, send: Send, trace: CallTrace
) -> None:
    path = scope["path"]
    dialect = match_route("POST", path).dialect
    writer = AnswerWriter(send, gateway.settings.deadlines, scope.get(FLOW))
    try:
        visitor = admit_visitor(scope["headers"], gateway.settings)
        _refuse_websocket(scope["headers"])
        gateway.enter(visitor.workspace)
        try:
            exchange = ProxiedExchange(gateway, scope, receive, writer, visitor, trace=trace)
            await exchange.run()
        finally:
            gateway.leave(visitor.workspace)
    except Refusal as refusal:
        gateway.metrics.add("lamina_requests_total", upstream="", dialect=dialect, outcome="refused")
        gateway.journal.write("refused", status=refusal.status, reason=refusal.message, path=path)
        await _refuse(writer, refusal, dialect)
    except ClientGone:
        gateway.journal.write("client gone", path=path)
    except Exception as error:  # noqa: BLE001 - a client always gets an answer in its own shape
        gateway.metrics.add("lamina_failures_total", kind=type(error).__name__)
        gateway.journal.write("failed", error=type(error).__name__, path=path)
        await _refuse(writer, Refusal(500, "the gateway failed; its log names the error"), dialect)


def _refuse_websocket(headers: Headers) -> None:
    """Say at once that there are no websockets here. Codex then uses POST; after a 404 it would try again."""
    if lower_ascii(read_header(headers, b"upgrade")) == "websocket":
        raise Refusal(426, "websockets are not served; use POST")


async def _refuse(writer: AnswerWriter, refusal: Refusal, dialect: str) -> None:
    """Write an error. In a stream that has begun it is the last event.

    Any other answer that has begun cannot say that it is broken. It is left unfinished, and the connection
    is closed, as the upstream did.
    """
    try:
        if writer.started and not writer.takes_events:
            return
        if writer.started:
            await writer.write(refusal.event(dialect))
        else:
            body = refusal.body(dialect)
            length = (b"content-length", str(len(body)).encode())
            await writer.start(refusal.status, [*refusal.headers, length])
            await writer.write(body)
        await writer.finish()
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
        self._receive = receive
        self._writer = writer
        self._visitor = visitor
        self._headers: Headers = scope["headers"]
        self._began = monotonic()
        self._client_left = False
        self._body_is_read = False
        self._prefixed, path = gateway.upstreams.by_prefix(scope["path"])
        self._raw_path = _remove_prefix(scope["raw_path"], self._prefixed)
        self._route = match_route(scope["method"], path)
        self._recalls: RecallRelay | None = None
        self._sent_id = ""

    async def run(self) -> None:
        """Answer the request, or stop as soon as the client goes away."""
        is_off = lower_ascii(read_header(self._headers, b"x-lamina")) == "off"
        if self._route.action == "pass" or is_off:
            await self._pass_through()
            return
        packed = await self._read_body()
        body = self._decode(packed)
        await self._until_client_leaves(self._answer(body))

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
        await self._send_until_answered(incoming, outgoing)

    def _describe(self, body: RequestBody) -> IncomingRequest:
        """The request with everything that fitting depends on."""
        route = self._route
        model = route.model or body.model
        upstream = self._prefixed or self._gateway.upstreams.choose(route.dialect, model)
        request = body.request
        if route.model and "model" not in request:
            request = {"model": route.model, **request}
        return IncomingRequest(
            workspace=self._visitor.workspace,
            identity=identify_client(self._headers, request),
            dialect=DIALECTS[route.dialect],
            upstream=upstream,
            body=body,
            request=request,
            model=model,
        )

    async def _send_until_answered(self, incoming: IncomingRequest, outgoing: OutgoingRequest) -> None:
        """Send the request until the client has its answer: once more after each recall of the model."""
        following: OutgoingRequest | None = outgoing
        while following is not None:
            following = await self._send_fitting(incoming, following)

    async def _send_fitting(
        self, incoming: IncomingRequest, outgoing: OutgoingRequest
    ) -> OutgoingRequest | None:
        """Send the request, and once more if it was too long and can be made shorter.

        Returns the request to send next, if the model recalled something.
        """
        async with self._open_answer(incoming, outgoing) as answer:
            error_body = await _read_overflow_body(answer)
            if error_body is None:
                return await self._relay(incoming, outgoing, answer)
            shorter = await self._shorten(incoming, outgoing, answer, error_body)
            if shorter is None:
                await self._relay_error(incoming, answer, error_body)
                return None
        self._gateway.metrics.add("lamina_overflows_total", upstream=incoming.upstream.name)
        async with self._open_answer(incoming, shorter) as answer:
            return await self._relay(incoming, shorter, answer)

    async def _shorten(
        self,
        incoming: IncomingRequest,
        outgoing: OutgoingRequest,
        answer: aiohttp.ClientResponse,
        error_body: bytes,
    ) -> OutgoingRequest | None:
        text = _unpack_error(error_body, answer.headers.get("content-encoding", ""))
        overflow = read_overflow(answer.status, text)
        if overflow is None:
            return None
        return await self._gateway.fitter.shrink(incoming, outgoing, overflow)

    def _open_answer(self, incoming: IncomingRequest, outgoing: OutgoingRequest) -> UpstreamAnswer:
        body = incoming.body.packed if outgoing.body is None else outgoing.body
        headers = request_headers(
            self._headers,
            incoming.upstream,
            environment=self._gateway.environment,
            drop_key=self._visitor.key_is_token,
            betas=outgoing.betas,
            unpacked=outgoing.body is not None,
        )
        headers.update(self._trace.start_sending())
        keeps_alive = self._wants_events(incoming)
        if self._route.action != "count":
            conversation = outgoing.conversation.name if outgoing.conversation is not None else ""
            self._sent_id = self._gateway.journal.write_sent(
                conversation=conversation, upstream=incoming.upstream.name, model=incoming.model
            )
        return UpstreamAnswer(
            self, incoming.upstream, body, headers, keeps_alive=keeps_alive, sent_id=self._sent_id
        )

    def _wants_events(self, incoming: IncomingRequest) -> bool:
        """Whether the client expects an event stream, in which comments are allowed."""
        if self._route.dialect == "gemini":
            return self._route.streams and b"alt=sse" in self._scope["query_string"]
        return incoming.dialect.name != "ollama" and incoming.request.get("stream") is True

    async def _relay(
        self, incoming: IncomingRequest, outgoing: OutgoingRequest, answer: aiohttp.ClientResponse
    ) -> OutgoingRequest | None:
        """Pass the answer on, and learn from the usage that it reports.

        Returns the request to send next, if the model recalled something.
        """
        if outgoing.has_recall and answer.status < 300:
            return await self._relay_recalls(incoming, outgoing, answer)
        content_type = answer.headers.get("content-type", "")
        encoding = answer.headers.get("content-encoding", "")
        reader = UsageReader(content_type, encoding)
        can_comment = content_type.startswith("text/event-stream") and not encoding
        late = self._writer.started
        self._count_answer(incoming, answer)
        if late and answer.status >= 400:
            idle = self._gateway.settings.deadlines.idle
            raise Refusal(answer.status, await _read_late_error(answer, idle))
        if not late:
            await self._writer.start(answer.status, _answer_headers(answer, outgoing))
        unpacker = make_unpacker(encoding) if late else None
        on_silence = self._writer.comment if can_comment else None
        recorder = AnswerRecorder(self._gateway.fitter, outgoing, reader, succeeded=answer.status < 300)
        try:
            async for piece in read_pieces(answer, self._gateway.settings.deadlines, on_silence):
                await self._write(await recorder.take(piece), unpacker)
            await self._write(await recorder.finish(), unpacker)
        finally:
            self._trace.is_unfinished = self._trace.is_on
            self._gateway.finish_later(self._learn(incoming, outgoing, answer, reader, sent_id=self._sent_id))
        await self._writer.finish()
        return None

    async def _relay_recalls(
        self, incoming: IncomingRequest, outgoing: OutgoingRequest, answer: aiohttp.ClientResponse
    ) -> OutgoingRequest | None:
        """Pass on what the client may see of an answer that may recall something."""
        gateway = self._gateway
        if self._recalls is None:
            self._recalls = RecallRelay(
                gateway.fitter, self._writer, gateway.settings.deadlines, incoming.dialect
            )
        reader = UsageReader(
            answer.headers.get("content-type", ""), answer.headers.get("content-encoding", "")
        )
        self._count_answer(incoming, answer)
        following = None
        try:
            headers = _answer_headers(answer, outgoing)
            following = await self._recalls.relay(outgoing, answer, headers, reader)
        finally:
            recalled = following is not None
            learning = self._learn(
                incoming, outgoing, answer, reader, sent_id=self._sent_id, recalled=recalled
            )
            gateway.finish_later(learning)
        return following

    async def _write(self, piece: bytes, unpacker: Unpacker | None) -> None:
        if unpacker is not None:
            piece = unpacker(piece)
        if piece:
            await self._writer.write(piece)

    def _count_answer(self, incoming: IncomingRequest, answer: aiohttp.ClientResponse) -> None:
        status = f"{answer.status // 100}xx"
        self._gateway.metrics.add("lamina_answers_total", upstream=incoming.upstream.name, status=status)

    async def _learn(
        self,
        incoming: IncomingRequest,
        outgoing: OutgoingRequest,
        answer: aiohttp.ClientResponse,
        reader: UsageReader,
        *,
        sent_id: str,
        recalled: bool = False,
    ) -> None:
        """Record what the answer reported, also if the client has gone meanwhile.

        `recalled`: the answer was for the gateway, and the request goes on.
        """
        if answer.status >= 300 or self._route.action == "count":
            self._trace.end(error=str(answer.status) if answer.status >= 400 else "")
            return
        usage = reader.finish()
        self._gateway.misses.report(incoming, outgoing, usage, sent_id=sent_id, recalled=recalled)
        record_answered(self._trace, outgoing, usage)
        self._trace.end()
        for kind in ("input", "cached", "written", "output"):
            amount = getattr(usage, kind)
            if amount:
                self._gateway.metrics.add("lamina_tokens_total", amount, kind=kind)
        if recalled:
            self._gateway.metrics.add("lamina_recalls_total", upstream=incoming.upstream.name)
        else:
            self._gateway.metrics.add("lamina_seconds_total", monotonic() - self._began, part="whole")
            if self._recalls is None:  # the relay of recalls has recorded it, unless the answer broke off
                await self._gateway.fitter.record_answer(outgoing, usage)

    async def _relay_error(
        self, incoming: IncomingRequest, answer: aiohttp.ClientResponse, body: bytes
    ) -> None:
        """Pass an error on whose body has been read already."""
        self._count_answer(incoming, answer)
        if self._writer.started:
            text = _unpack_error(body, answer.headers.get("content-encoding", ""))
            raise Refusal(answer.status, text[:2000])
        await self._writer.start(answer.status, response_headers(answer.raw_headers, answer.status))
        await self._writer.write(body)
        async for piece in read_pieces(answer, self._gateway.settings.deadlines, None):
            await self._writer.write(piece)
        await self._writer.finish()

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
        data: Any = None
        if length or read_header(self._headers, b"transfer-encoding"):
            data = self._body_pieces()
        if length:
            headers["content-length"] = length
        headers.update(self._trace.start_sending())
        self._gateway.metrics.add(
            "lamina_requests_total", upstream=upstream.name, dialect=self._route.dialect, outcome="passed"
        )
        self._body_is_read = data is None
        async with UpstreamAnswer(self, upstream, data, headers) as answer:
            if self._body_is_read:
                await self._until_client_leaves(self._relay_unread(answer))
            else:  # what is left of the body may be read by one only
                await self._relay_unread(answer)

    async def _relay_unread(self, answer: aiohttp.ClientResponse) -> None:
        await self._writer.start(answer.status, response_headers(answer.raw_headers, answer.status))
        async for piece in read_pieces(answer, self._gateway.settings.deadlines, None):
            await self._writer.write(piece)
        await self._writer.finish()

    def _choose_unread(self) -> Upstream:
        if self._route.dialect:
            return self._gateway.upstreams.choose(self._route.dialect, self._route.model)
        return self._gateway.upstreams.for_other_paths(self._scope["path"], self._headers)

    async def _read_body(self) -> bytes:
        """The whole body, as large as the limit allows and no slower than the deadline."""
        limits = self._gateway.settings.limits
        _check_length(read_header(self._headers, b"content-length"), limits.body)
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._gateway.settings.deadlines.body):
                async for piece in self._body_pieces():
                    size += len(piece)
                    if size > limits.body:
                        raise Refusal(413, f"the body is larger than {limits.body:,} bytes")
                    pieces.append(piece)
        except TimeoutError:
            raise Refusal(408, "the body came too slowly") from None
        return b"".join(pieces)

    async def _body_pieces(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone("before its request was read")
            piece = message.get("body", b"")
            if piece:
                yield piece
            if not message.get("more_body"):
                self._body_is_read = True
                return

    def _decode(self, packed: bytes) -> RequestBody:
        encoding = read_header(self._headers, b"content-encoding")
        memory = self._gateway.memory(self._visitor.workspace)
        return decode_body(packed, encoding, self._gateway.settings.limits, memory)

    async def _write_count(self, tokens: int) -> None:
        field = "totalTokens" if self._route.dialect == "gemini" else "input_tokens"
        body = msgspec.json.encode({field: tokens})
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await self._writer.start(200, headers)
        await self._writer.write(body)
        await self._writer.finish()

    async def _until_client_leaves(self, work: Awaitable[None]) -> None:
        """Do the work in this task. It is cancelled when the client closes the connection."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker
        leaving = asyncio.ensure_future(self._cancel_on_leaving(task))
        try:
            await work
        except asyncio.CancelledError:
            if not self._client_left:
                raise
            task.uncancel()
            raise ClientGone("while it was answered") from None
        finally:
            leaving.cancel()

    async def _cancel_on_leaving(self, task: asyncio.Task[Any]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            continue
        self._client_left = True
        task.cancel()

    # What `UpstreamAnswer` needs.

    @property
    def gateway(self) -> Gateway:
        return self._gateway

    @property
    def writer(self) -> AnswerWriter:
        return self._writer

    def url(self, upstream: Upstream) -> Any:
        return upstream_url(upstream, self._raw_path, self._scope["query_string"])

    @property
    def method(self) -> str:
        method: str = self._scope["method"]
        return method


class UpstreamAnswer:
    """The answer of an upstream to one request, as a context. Leaving it early closes the connection.

    If the client expects events and the upstream takes long, the stream is begun with comments before the
    upstream has said anything.
    """

    def __init__(
        self,
        exchange: ProxiedExchange,
        upstream: Upstream,
        body: Any,
        headers: Any,
        *,
        keeps_alive: bool = False,
        sent_id: str = "",
    ) -> None:
        self._sent_id = sent_id
        self._exchange = exchange
        self._upstream = upstream
        self._body = body
        self._headers = headers
        self._keeps_alive = keeps_alive
        self._answer: aiohttp.ClientResponse | None = None

    async def __aenter__(self) -> aiohttp.ClientResponse:
        try:
            return await self._ask_until_answered()
        except BaseException:
            self._log_unanswered(0)
            raise

    async def _ask_until_answered(self) -> aiohttp.ClientResponse:
        answer = await self._ask()
        retries = 0
        while self._may_retry(answer, retries):
            pause = int(answer.headers["retry-after"])
            answer.close()
            await asyncio.sleep(pause)
            retries += 1
            answer = await self._ask()
        self._answer = answer
        return answer

    async def __aexit__(self, *error: object) -> None:
        if self._answer is None:
            return
        if self._answer.status >= 300:
            self._log_unanswered(self._answer.status)
        if self._answer.content.at_eof():
            self._answer.release()
        else:
            self._answer.close()

    def _log_unanswered(self, status: int) -> None:
        """Log that a request has no answer to account for."""
        if self._sent_id:
            self._exchange.gateway.journal.write("unanswered", id=self._sent_id, status=status)

    def _may_retry(self, answer: aiohttp.ClientResponse, retries: int) -> bool:
        """Whether the upstream itself asks to try again soon, and nothing was sent to the client."""
        if retries >= self._upstream.settings.retries or not isinstance(self._body, bytes):
            return False
        pause = answer.headers.get("retry-after", "")
        if answer.status not in RETRIED or not _NUMBER.fullmatch(pause):
            return False
        return int(pause) <= LONGEST_PAUSE

    async def _ask(self) -> aiohttp.ClientResponse:
        try:
            if self._keeps_alive:
                return await self._ask_with_comments()
            return await self._ask_in_time()
        except aiohttp.ClientConnectorError as error:
            raise Refusal(
                502, f"upstream {self._upstream.name!r} cannot be reached: {_reason(error)}"
            ) from None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Refusal(502, f"upstream {self._upstream.name!r} failed: {_reason(error)}") from None

    async def _request(self) -> aiohttp.ClientResponse:
        exchange = self._exchange
        return await exchange.gateway.session.request(
            exchange.method,
            exchange.url(self._upstream),
            data=_as_payload(self._body),
            headers=self._headers,
            allow_redirects=False,
        )

    async def _ask_in_time(self) -> aiohttp.ClientResponse:
        deadline = asyncio.timeout(self._exchange.gateway.settings.deadlines.first_byte)
        try:
            async with deadline:
                return await self._request()
        except TimeoutError:
            if deadline.expired():
                raise self._too_late() from None
            raise

    async def _ask_with_comments(self) -> aiohttp.ClientResponse:
        """Wait for the upstream's headers, with signs of life for a client that expects events."""
        deadlines = self._exchange.gateway.settings.deadlines
        asking = asyncio.ensure_future(self._request())
        began = monotonic()
        try:
            while not asking.done():
                left = deadlines.first_byte - (monotonic() - began)
                if left <= 0:
                    raise self._too_late()
                done, _ = await asyncio.wait({asking}, timeout=min(left, deadlines.keep_alive))
                if not done:
                    await self._begin_early()
            return asking.result()
        finally:
            if not asking.done():
                asking.cancel()

    def _too_late(self) -> Refusal:
        return Refusal(504, f"upstream {self._upstream.name!r} did not answer in time")

    async def _begin_early(self) -> None:
        writer = self._exchange.writer
        if not writer.started:
            await writer.start(
                200, [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
            )
        await writer.comment()


def _answer_headers(answer: aiohttp.ClientResponse, outgoing: OutgoingRequest) -> list[tuple[bytes, bytes]]:
    """The upstream's headers for the client, and what the gateway did to the request."""
    headers = response_headers(answer.raw_headers, answer.status)
    if outgoing.body is not None:
        headers.append((b"x-lamina", b"cut" if outgoing.cut else b"fitted"))
    return headers


def _remove_prefix(raw_path: bytes, prefixed: Upstream | None) -> bytes:
    """The path as the client wrote it, without the prefix that chose the upstream."""
    if prefixed is None:
        return raw_path
    prefix = prefixed.settings.prefix.encode()
    if not raw_path.startswith(prefix):
        raise Refusal(400, "the prefix of a path must not be percent-encoded")
    return raw_path[len(prefix) :] or b"/"


def _as_payload(body: Any) -> Any:
    """A body as aiohttp sends it. It writes a large one in pieces only if it can read it like a file."""
    if isinstance(body, bytes) and len(body) >= LARGE_BODY:
        return BytesIO(body)
    return body


def _check_length(length: str, limit: int) -> None:
    """Refuse a body by its announced length, before any of it is read."""
    if _NUMBER.fullmatch(length) and int(length) > limit:
        raise Refusal(413, f"the body is larger than {limit:,} bytes")


async def _read_overflow_body(answer: aiohttp.ClientResponse) -> bytes | None:
    """The body of an error that may say that the request was too long; None for every other answer."""
    if answer.status not in OVERFLOW_STATUS:
        return None
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(30):
            async for piece in answer.content.iter_any():
                pieces.append(piece)
                size += len(piece)
                if size > ERROR_BYTES:
                    break
    except (aiohttp.ClientError, OSError, TimeoutError):
        return b"".join(pieces)
    return b"".join(pieces)


async def _read_late_error(answer: aiohttp.ClientResponse, idle: float) -> str:
    body = b""
    try:
        async with asyncio.timeout(idle):
            body = await answer.content.read(ERROR_BYTES)
    except (aiohttp.ClientError, OSError, TimeoutError):
        pass  # the status alone has to do
    text = _unpack_error(body, answer.headers.get("content-encoding", ""))
    return text[:2000] or f"the upstream answered {answer.status}"


def _unpack_error(body: bytes, encoding: str) -> str:
    try:
        return unpack(body, encoding, ERROR_BYTES).decode("utf-8", "replace")
    except Refusal:
        return ""


def _reason(error: BaseException) -> str:
    return type(error).__name__
