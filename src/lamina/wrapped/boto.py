"""The hook by which the requests of a boto3 client for Bedrock go through a relay.

boto3 has no transport to stand in front of, and signs a request before it is sent. The event `before-send`
has the signed request, and its handler may answer in the place of the server. What the relay sends instead of
the client's request is signed anew, by the handlers of `request-created`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from botocore.awsrequest import AWSRequest, AWSResponse
from botocore.exceptions import ConnectionClosedError
from botocore.hooks import first_non_none_response

from lamina.core.text.characters import lower_ascii
from lamina.relay.routes import match_route
from lamina.wrapped.in_process import running_call
from lamina.wrapped.transport import HttpModule, SyncDriver

_SERVICE = "bedrock-runtime"
_OPERATIONS = ("Converse", "ConverseStream")


def hook_in(client: Any) -> None:
    """Let the calls of wrapped clients go through their relay."""
    for operation in _OPERATIONS:
        answer = partial(_answer, client, operation)
        event = f"before-send.{_SERVICE}.{operation}"
        client.meta.events.register_first(event, answer, unique_id=f"lamina-{operation}")


def _answer(client: Any, operation: str, request: Any, **_: Any) -> Any:
    """Answer a request of a wrapped client through its relay. None lets boto3 send it."""
    running = running_call.get()
    if running is None:
        return None
    url = urlsplit(request.url)
    came = BotoRequest(
        request.method,
        _Address(url),
        headers=_list_headers(request.headers),
        content=_encode(request.body),
        extensions=request,
    )
    driver = SyncDriver(_BOTO, _Sender(partial(_send, client, operation)), came)
    return driver.answer(running.relay, match_route(request.method, unquote(url.path)), running.outcome)


def _send(client: Any, operation: str, request: BotoRequest) -> Any:
    """Send a request as boto3 does. If it is another one than boto3 has signed, it is signed first."""
    events = client.meta.events
    prepared = request.extensions
    if request.content != _encode(prepared.body):
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.raw}
        unsigned = AWSRequest(request.method, prepared.url, headers, request.content)
        unsigned.stream_output = prepared.stream_output
        unsigned.context = getattr(prepared, "context", None) or {}
        events.emit(f"request-created.{_SERVICE}.{operation}", request=unsigned, operation_name=operation)
        prepared = unsigned.prepare()
    response = first_non_none_response(events.emit(f"before-send.{_SERVICE}.{operation}", request=prepared))
    if response is None:
        response = vars(client)["_endpoint"].http_session.send(prepared)
    return response


class _Sender(NamedTuple):
    """What sends, by the name that httpx has for it."""

    send: Callable[[BotoRequest], Any]

    def handle_request(self, request: BotoRequest) -> BotoAnswer:
        token = running_call.set(None)  # or lamina's own handler would answer
        try:
            return BotoAnswer(self.send(request))
        finally:
            running_call.reset(token)


class _Address:
    """The parts of a URL, by the names that httpx has for them."""

    def __init__(self, url: SplitResult) -> None:
        self.scheme = url.scheme
        self.netloc = url.netloc.encode()
        self.raw_path = url.path.encode()


class _Headers(NamedTuple):
    raw: list[tuple[bytes, bytes]]

    def get(self, header: str, default: str) -> str:
        values = [value for name, value in self.raw if lower_ascii(name.decode("latin-1")) == header]
        return values[0].decode("latin-1") if values else default


def _list_headers(headers: Any) -> list[tuple[bytes, bytes]]:
    return [(_encode(name), _encode(value)) for name, value in headers.items()]


def _encode(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


class BotoRequest:
    """A request as the driver knows one. `extensions` is the one that boto3 has signed."""

    def __init__(self, method: str, url: Any, *, headers: Any, content: bytes, extensions: Any) -> None:
        self.method = method
        self.url = url
        self.headers = _Headers(headers)
        self.content = content
        self.extensions = extensions


class BotoAnswer:
    """An answer as the driver knows one. The body of a stream is not read yet; any other is."""

    def __init__(self, response: Any) -> None:
        self.status_code = response.status_code
        self.headers = _Headers(_list_headers(response.headers))
        self.extensions = response
        self.stream = self

    def __iter__(self) -> Iterator[bytes]:
        response = self.extensions
        if response.headers.get("content-type", "").startswith("application/vnd.amazon.eventstream"):
            yield from response.raw.stream()
        else:
            yield response.content

    def close(self) -> None:
        self.extensions.raw.close()


class _Body:
    """The body that boto3 reads."""

    def __init__(self, driver: SyncDriver) -> None:
        self._driver = driver

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        return self._driver.iterate()

    def close(self) -> None:
        self._driver.close()

    def __del__(self) -> None:
        self._driver.abandon()


def _make_response(status: int, *, headers: list[tuple[bytes, bytes]], stream: Any, extensions: Any) -> Any:
    named = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
    return AWSResponse(getattr(extensions, "url", ""), status, named, stream)


def _break_off(reason: str) -> Any:
    return ConnectionClosedError(endpoint_url=reason)


_NAMES = SimpleNamespace(Request=BotoRequest, Response=_make_response, RemoteProtocolError=_break_off)
_BOTO = HttpModule(_NAMES, _Body, None)
