"""`lamina.transport()`: the transport of an HTTP client, which fits what SDKs send over it.

    client = OpenAI(http_client=httpx.Client(transport=lamina.transport(store="chats.db")))

An SDK's request is read on its way out, and what fits leaves through the transport behind this one. So
whatever takes an `http_client` needs no adapter. Requests of other kinds pass untouched. The same object
serves sync and async clients, of httpx and of httpx2: nothing of either is imported before a request comes.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from os import PathLike
from queue import SimpleQueue
from typing import Any, NamedTuple, Self

from lamina.conversations.events import CutEvent, Listeners, MissEvent, RepairEvent
from lamina.core.text.characters import lower_ascii
from lamina.core.values import Budget
from lamina.errors import BadInput
from lamina.fitting.policy import Policy, choose_policy
from lamina.relay.routes import RouteMatch, match_route
from lamina.stores.port import Store
from lamina.wrapped.in_process import (
    BrokenAnswer,
    CallOutcome,
    InProcessRelay,
    ProcessCall,
    Received,
    Sending,
    Step,
)

_OWN = b"x-lamina-"
_BETAS = b"anthropic-beta"
_RETURNED = (b"set-cookie", b"date", b"server")
"""Headers of an answer that the relay keeps from the clients of a gateway, and not from this one."""

_STREAMS = ("text/event-stream", "application/x-ndjson", "application/vnd.amazon.eventstream")
_LAST_EVENT = b"data: [DONE]\n\n"


def transport(
    inner: Any = None,
    *,
    policy: Policy | None = None,
    budget: Budget | int | None = None,
    store: Store | str | PathLike[str] | None = None,
    key: Any = None,
    on_cut: Callable[[CutEvent], Any] | None = None,
    on_repair: Callable[[RepairEvent], Any] | None = None,
    on_miss: Callable[[MissEvent], Any] | None = None,
) -> Any:
    """A transport for `httpx.Client` or `httpx.AsyncClient` that fits every request of a model's API.

    `inner` is the transport that sends them, by default one of httpx with its defaults. Everything else is
    as for `wrap`. A request may name its conversation with the header `x-lamina-conversation`; it never
    leaves.
    """
    if (
        inner is not None
        and not hasattr(inner, "handle_request")
        and not hasattr(inner, "handle_async_request")
    ):
        hint = "pass a transport of httpx, as httpx.HTTPTransport(proxy=...)"
        raise BadInput(f"{type(inner).__name__} is no transport", place="transport", hint=hint)
    listeners = Listeners(on_cut=on_cut, on_repair=on_repair, on_miss=on_miss)
    chosen_policy = choose_policy(policy, budget=budget, place="transport")
    return FittingTransport(inner, InProcessRelay(chosen_policy, store=store, key=key, listeners=listeners))


class FittingTransport:
    """Gives requests of a model's API to a relay, and all others to the transport behind it."""

    def __init__(self, inner: Any, relay: InProcessRelay) -> None:
        self._inner = inner
        self._sync_default: Any = None
        self._async_default: Any = None
        self._relay = relay

    def handle_request(self, request: Any) -> Any:
        """Answer a request of a sync client."""
        inner = self._inner or self._sync_default
        if inner is None:
            inner = self._sync_default = HttpModule.of(request).module.HTTPTransport()
        return answer_request(self._relay, inner, request, CallOutcome())

    async def handle_async_request(self, request: Any) -> Any:
        """Answer a request of an async client."""
        inner = self._inner or self._async_default
        if inner is None:
            inner = self._async_default = HttpModule.of(request).module.AsyncHTTPTransport()
        return await answer_async_request(self._relay, inner, request, CallOutcome())

    def close(self) -> None:
        """Close the store, and the transport behind this one."""
        self._relay.close()
        inner = self._inner or self._sync_default
        if inner is not None:
            inner.close()

    async def aclose(self) -> None:
        """Close the store, and the transport behind this one."""
        await asyncio.to_thread(self._relay.close)
        inner = self._inner or self._async_default
        if inner is not None:
            await inner.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def answer_request(relay: InProcessRelay, inner: Any, request: Any, outcome: CallOutcome) -> Any:
    """The response to a request of a sync client. What is no call of a model passes."""
    route = _find_route(request, outcome)
    if route is None:
        return inner.handle_request(request)
    request.read()
    return SyncDriver(HttpModule.of(request), inner, request).answer(relay, route, outcome)


async def answer_async_request(relay: InProcessRelay, inner: Any, request: Any, outcome: CallOutcome) -> Any:
    """The response to a request of an async client. What is no call of a model passes."""
    route = _find_route(request, outcome)
    if route is None:
        return await inner.handle_async_request(request)
    await request.aread()
    return await _AsyncDriver(HttpModule.of(request), inner, request).answer(relay, route, outcome)


def _find_route(request: Any, outcome: CallOutcome) -> RouteMatch | None:
    """The API that a request is for; None if it is not fitted: a list of models, a file, a count.

    Nor is what AWS's signature protects, unless somebody can sign it anew.
    """
    if outcome.sign is None and request.headers.get("authorization", "").startswith("AWS4-"):
        return None
    if lower_ascii(request.headers.get("x-lamina", "")) == "off" or "content-encoding" in request.headers:
        return None
    route = match_route(request.method, request.url.path)
    if route.action != "generate":
        return None
    return route


class HttpModule(NamedTuple):
    """httpx, or httpx2: the module of a request, with the streams that its responses need."""

    module: Any
    sync_body: Any
    async_body: Any

    @staticmethod
    def of(request: Any) -> HttpModule:
        return _describe_module(type(request).__module__.partition(".")[0])


@cache
def _describe_module(name: str) -> HttpModule:
    module: Any = sys.modules[name]

    class SyncBody(module.SyncByteStream):  # type: ignore[misc]
        def __init__(self, driver: SyncDriver) -> None:
            self._driver = driver

        def __iter__(self) -> Iterator[bytes]:
            return self._driver.iterate()

        def close(self) -> None:
            self._driver.close()

        def __del__(self) -> None:
            self._driver.abandon()

    class AsyncBody(module.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, driver: _AsyncDriver) -> None:
            self._driver = driver

        def __aiter__(self) -> AsyncIterator[bytes]:
            return self._driver.iterate()

        async def aclose(self) -> None:
            await self._driver.close()

        def __del__(self) -> None:
            self._driver.abandon()

    return HttpModule(module, SyncBody, AsyncBody)


class _Driver:
    """The client's side of one call. What is opened here is closed here."""

    def __init__(self, http: HttpModule, inner: Any, request: Any) -> None:
        self._http = http
        self._inner = inner
        self._request = request
        self._response: Any = None
        self._pieces: Any = None
        self._error: Exception | None = None
        self._task: Any = None
        self._sign: Callable[[Any], Any] | None = None
        self._tail = b""
        self._has_ended = False

    def _begin(self, relay: InProcessRelay, route: RouteMatch, outcome: CallOutcome) -> None:
        self._sign = outcome.sign
        origin, target = self._read_address()
        call = ProcessCall(
            self,  # type: ignore[arg-type]
            origin=origin,
            target=target,
            headers=[(name.lower(), value) for name, value in self._request.headers.raw],
            body=self._request.content,
            route=route,
            reports=relay.reports,
            outcome=outcome,
        )
        self._task = relay.start(call)

    def _read_address(self) -> tuple[str, bytes]:
        url = self._request.url
        return f"{url.scheme}://{url.netloc.decode('ascii')}", url.raw_path

    def abandon(self) -> None:
        """Nobody holds the response any more, and nobody has closed it."""
        if not self._has_ended:
            self._has_ended = True
            self._task.cancel()

    def _make_request(self, sending: Sending) -> Any:
        """The request as it leaves: the client's own, with another body if it was changed."""
        request = self._request
        betas = [header for header in sending.headers if header[0] == _BETAS]
        own = [value for name, value in request.headers.raw if name.lower() == _BETAS]
        has_own = any(name.lower().startswith(_OWN) for name, _ in request.headers.raw)
        same_betas = b",".join(own) == b",".join(value for _, value in betas)
        if sending.body == request.content and not has_own and same_betas:
            return request
        headers: list[tuple[bytes, bytes]] = []
        for name, value in request.headers.raw:
            lowered = name.lower()
            if lowered not in (b"content-length", _BETAS) and not lowered.startswith(_OWN):
                headers.append((name, value))
        return self._http.module.Request(
            request.method,
            request.url,
            headers=[*headers, *betas],
            content=sending.body,
            extensions=request.extensions,
        )

    def _receive(self, response: Any, body: bytes | None) -> Received:
        return Received(response.status_code, response.headers.raw, body)

    def _make_response(self, step: Step, stream: Any) -> Any:
        """The response for the client. It has the headers that only a gateway keeps for itself."""
        assert step.head is not None  # noqa: S101
        status, headers = step.head
        extensions = {}
        if self._response is not None:
            extensions = self._response.extensions
            names = {name.lower() for name, _ in headers}
            for name, value in self._response.headers.raw:
                if name.lower() in _RETURNED and name.lower() not in names:
                    headers = [*headers, (name, value)]
        return self._http.module.Response(status, headers=headers, stream=stream, extensions=extensions)

    def _describe_error(self, error: BaseException) -> BaseException:
        if isinstance(error, BrokenAnswer):
            return self._http.module.RemoteProtocolError(str(error))  # type: ignore[no-any-return]
        return error

    def _note_piece(self, piece: bytes) -> None:
        self._tail = (self._tail + piece)[-len(_LAST_EVENT) :]

    @property
    def _was_told_all(self) -> bool:
        """Whether the client has the last event: OpenAI's SDK closes a stream without reading its end."""
        return self._tail == _LAST_EVENT


def _is_stream(response: Any) -> bool:
    return lower_ascii(str(response.headers.get("content-type", ""))).startswith(_STREAMS)


class SyncDriver(_Driver):
    """Does the steps of a call in the thread that called."""

    def __init__(self, http: HttpModule, inner: Any, request: Any) -> None:
        super().__init__(http, inner, request)
        self._steps: SimpleQueue[Step] = SimpleQueue()
        self.put = self._steps.put

    def answer(self, relay: InProcessRelay, route: RouteMatch, outcome: CallOutcome) -> Any:
        self._begin(relay, route, outcome)
        try:
            step = self._advance()
        except BaseException:
            self.close()
            raise
        return self._make_response(step, self._http.sync_body(self))

    def iterate(self) -> Iterator[bytes]:
        """The pieces of the answer."""
        while not self._has_ended:
            step = self._advance()
            if not step.is_end:
                self._note_piece(step.piece)
                yield step.piece

    def close(self) -> None:
        """End the call. If the client has all of the answer, what follows it is still done."""
        if self._was_told_all:
            for _ in self.iterate():
                pass
        if not self._has_ended:
            self._task.cancel()
            self._has_ended = True
        self._close_response()

    def send(self, sending: Sending) -> Received:
        """Send a request with the client's own transport."""
        self._close_response()
        request = self._make_request(sending)
        if self._sign is not None and request is not self._request:
            self._sign(request)
        response = self._inner.handle_request(request)
        self._response = response
        self._pieces = iter(response.stream)
        if _is_stream(response):
            return self._receive(response, None)
        try:
            return self._receive(response, b"".join(self._pieces))
        except Exception as error:  # noqa: BLE001 - raised when the relay reads on, which has the head now
            self._error = error
            return self._receive(response, None)

    def read(self) -> bytes:
        """The next piece of its answer."""
        if self._error is not None:
            raise self._error
        return next((piece for piece in self._pieces if piece), b"")

    def _advance(self) -> Step:
        """Do what comes until there is something for the client. Raises the error of the call."""
        while True:
            step = self._steps.get()
            if step.action is None:
                if step.is_end:
                    self._has_ended = True
                    self._close_response()
                if step.error is not None:
                    raise self._describe_error(step.error)
                return step
            try:
                outcome = step.action(*step.arguments)
            except Exception as error:  # noqa: BLE001 - the relay hears of it, and the client through it
                step.give(None, error)
            except BaseException:
                self.close()
                raise
            else:
                step.give(outcome)

    def _close_response(self) -> None:
        if self._response is not None:
            self._response.stream.close()


class _AsyncDriver(_Driver):
    """Does the steps of a call in the event loop that called."""

    def __init__(self, http: HttpModule, inner: Any, request: Any) -> None:
        super().__init__(http, inner, request)
        self._loop = asyncio.get_running_loop()
        self._steps: asyncio.Queue[Step] = asyncio.Queue()

    def put(self, step: Step) -> None:
        """Do this next. Any thread may say so."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._steps.put_nowait, step)

    async def answer(self, relay: InProcessRelay, route: RouteMatch, outcome: CallOutcome) -> Any:
        self._begin(relay, route, outcome)
        try:
            step = await self._advance()
        except BaseException:
            await self.close()
            raise
        return self._make_response(step, self._http.async_body(self))

    async def iterate(self) -> AsyncIterator[bytes]:
        """The pieces of the answer."""
        while not self._has_ended:
            step = await self._advance()
            if not step.is_end:
                self._note_piece(step.piece)
                yield step.piece

    async def close(self) -> None:
        """End the call. If the client has all of the answer, what follows it is still done."""
        if self._was_told_all:
            async for _ in self.iterate():
                pass
        if not self._has_ended:
            self._task.cancel()
            self._has_ended = True
        await self._close_response()

    async def send(self, sending: Sending) -> Received:
        """Send a request with the client's own transport."""
        await self._close_response()
        request = self._make_request(sending)
        if self._sign is not None and request is not self._request:
            await self._sign(request)
        response = await self._inner.handle_async_request(request)
        self._response = response
        self._pieces = aiter(response.stream)
        if _is_stream(response):
            return self._receive(response, None)
        try:
            return self._receive(response, b"".join([piece async for piece in self._pieces]))
        except Exception as error:  # noqa: BLE001 - raised when the relay reads on, which has the head now
            self._error = error
            return self._receive(response, None)

    async def read(self) -> bytes:
        """The next piece of its answer."""
        if self._error is not None:
            raise self._error
        async for piece in self._pieces:
            if piece:
                return piece  # type: ignore[no-any-return]
        return b""

    async def _advance(self) -> Step:
        """Do what comes until there is something for the client. Raises the error of the call."""
        while True:
            step = await self._steps.get()
            if step.action is None:
                if step.is_end:
                    self._has_ended = True
                    await self._close_response()
                if step.error is not None:
                    raise self._describe_error(step.error)
                return step
            try:
                outcome = await step.action(*step.arguments)
            except Exception as error:  # noqa: BLE001 - the relay hears of it, and the client through it
                step.give(None, error)
            else:
                step.give(outcome)

    async def _close_response(self) -> None:
        if hasattr(self._pieces, "aclose"):
            await self._pieces.aclose()
        if self._response is not None:
            await self._response.stream.aclose()
