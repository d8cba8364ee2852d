"""One call of an SDK's endpoint, with its request fitted before and one deeper cut after an overflow.

SDKs send a request at different times: when the method is called, when the first chunk of a generator is
read, or when a context manager is entered. Each of these exists with and without `await`.

Only for `lamina.fitting.wrap`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any, NamedTuple

import msgspec

from lamina.core.text.characters import lower_ascii
from lamina.dialects.anthropic.server import BETAS, merge_betas, read_cleared
from lamina.dialects.overflow import read_overflow
from lamina.dialects.port import Dialect
from lamina.dialects.usage import Usage, find_usage
from lamina.fitting.conversations import Conversations
from lamina.fitting.pending_call import PendingCall


def fit_calls(
    send: Callable[..., Any], conversations: Conversations, dialect: Dialect, path: str
) -> Callable[..., Any]:
    """Return a function like `send` that fits its request first. `path` is where the client has it."""

    def prepare_call(arguments: tuple[Any, ...], request: dict[str, Any]) -> _SdkCall:
        named_arguments = _name_arguments(send, arguments, request)
        return _SdkCall(send, PendingCall(conversations, dialect, named_arguments), path)

    @wraps(send)
    def send_now(*arguments: Any, **request: Any) -> Any:
        return prepare_call(arguments, request).send_now()

    @wraps(send)
    async def send_async(*arguments: Any, **request: Any) -> Any:
        return await prepare_call(arguments, request).send_async()

    @wraps(send)
    def send_when_entered(*arguments: Any, **request: Any) -> Any:
        return StreamContext(prepare_call(arguments, request))

    if path.endswith(".stream") or ".with_streaming_response." in path:
        return send_when_entered
    if inspect.iscoroutinefunction(inspect.unwrap(send)):
        return send_async
    return send_now


class _SdkCall(NamedTuple):
    """A pending call, and the SDK's function that sends it."""

    send: Callable[..., Any]
    pending: PendingCall
    path: str

    def send_once(self) -> Any:
        is_beta = self.path.startswith("beta.")
        return self.send(**with_headers(self.pending.request, self.pending.headers, beta=is_beta))

    def send_now(self) -> Any:
        """Send the request, and once more if it was too long. Returns the SDK's answer."""
        try:
            answer = self.send_once()
        except Exception as error:
            if not _shrink_after(self.pending, error):
                raise
            answer = self.send_once()
        if inspect.isgenerator(answer):
            return self.pending.remember_answer(_pass_chunks(self, answer))
        return self._finish(answer)

    async def send_async(self) -> Any:
        """Do as `send_now` with an async client."""
        try:
            answer = await self.send_once()
        except Exception as error:
            if not _shrink_after(self.pending, error):
                raise
            answer = await self.send_once()
        if inspect.isasyncgen(answer):
            return self.pending.remember_answer(_pass_chunks_async(self, answer))
        return self._finish(answer)

    def _finish(self, answer: Any) -> Any:
        self.pending.finish(usage=_read_usage(answer))
        return self.pending.remember_answer(answer)


def _name_arguments(
    send: Callable[..., Any], arguments: tuple[Any, ...], request: dict[str, Any]
) -> dict[str, Any]:
    """Return all arguments by their names."""
    if not arguments:
        return request
    names = list(inspect.signature(send).parameters)[: len(arguments)]
    if len(names) < len(arguments) or not request.keys().isdisjoint(names):
        send(*arguments, **request)  # raises the SDK's own error
    return dict(zip(names, arguments, strict=False)) | request


def with_headers(request: dict[str, Any], headers: Mapping[str, str], *, beta: bool) -> dict[str, Any]:
    """Return an SDK's arguments with lamina's betas added to the caller's own.

    The endpoints under `client.beta` make the header of their argument `betas`. If the caller set the header
    itself, or the endpoint has no such argument, the betas are added to the header.
    """
    if not headers:
        return request
    extra_headers = dict(request.get("extra_headers") or {})
    header_name = _find_betas_header(extra_headers)
    if beta and not header_name:
        betas = request.get("betas")
        own_betas: list[str] = []
        if isinstance(betas, list | tuple):
            own_betas = [str(name) for name in betas]
        return {**request, "betas": merge_betas(*own_betas, headers[BETAS]).split(",")}
    own_header = str(extra_headers.get(header_name, ""))
    extra_headers[header_name or BETAS] = merge_betas(own_header, headers[BETAS])
    return {**request, "extra_headers": extra_headers}


def _find_betas_header(headers: Mapping[str, str]) -> str:
    """Return the name of the betas header as the caller spelled it, or ""."""
    for name in headers:
        if lower_ascii(name) == BETAS:
            return name
    return ""


def _pass_chunks(call: _SdkCall, stream: Iterator[Any]) -> Iterator[Any]:
    """Yield the chunks of a generator, which sends its request when the first one is read."""
    try:
        chunk = next(stream, None)
    except Exception as error:
        if not _shrink_after(call.pending, error):
            raise
        stream = call.send_once()
        chunk = next(stream, None)
    call.pending.finish()
    while chunk is not None:
        last_chunk = chunk
        yield chunk
        chunk = next(stream, None)
        if chunk is None:
            call.pending.record_usage(_read_usage(last_chunk))


async def _pass_chunks_async(call: _SdkCall, stream: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """Do as `_pass_chunks` with an async generator."""
    try:
        chunk = await anext(stream, None)
    except Exception as error:
        if not _shrink_after(call.pending, error):
            raise
        stream = await call.send_once()
        chunk = await anext(stream, None)
    call.pending.finish()
    while chunk is not None:
        last_chunk = chunk
        yield chunk
        chunk = await anext(stream, None)
        if chunk is None:
            call.pending.record_usage(_read_usage(last_chunk))


class StreamContext:
    """A context manager of an SDK, which sends its request when it is entered. Its stream is the SDK's."""

    def __init__(self, call: _SdkCall) -> None:
        self._call = call
        self._inner: Any = None
        self._stream: Any = None

    def __enter__(self) -> Any:
        self._inner = self._call.send_once()
        try:
            self._stream = self._inner.__enter__()
        except Exception as error:
            if not _shrink_after(self._call.pending, error):
                raise
            self._inner = self._call.send_once()
            self._stream = self._inner.__enter__()
        self._call.pending.finish()
        return self._call.pending.remember_answer(self._stream)

    def __exit__(self, *error: object) -> Any:
        self._call.pending.record_usage(_read_usage(_read_snapshot(self._stream)))
        return self._inner.__exit__(*error)

    async def __aenter__(self) -> Any:
        self._inner = self._call.send_once()
        try:
            self._stream = await self._inner.__aenter__()
        except Exception as error:
            if not _shrink_after(self._call.pending, error):
                raise
            self._inner = self._call.send_once()
            self._stream = await self._inner.__aenter__()
        self._call.pending.finish()
        return self._call.pending.remember_answer(self._stream)

    async def __aexit__(self, *error: object) -> Any:
        self._call.pending.record_usage(_read_usage(_read_snapshot(self._stream)))
        return await self._inner.__aexit__(*error)


def _read_snapshot(stream: Any) -> Any:
    """Return the answer as far as a stream of an SDK has assembled it; None if the SDK does not do that."""
    for name in ("current_message_snapshot", "current_completion_snapshot"):
        with suppress(Exception):  # the attribute raises before the first event
            return getattr(stream, name)
    return None


def _shrink_after(pending: PendingCall, error: Exception) -> bool:
    """Make the request smaller if the error says that it was too long. Returns whether it is smaller now."""
    code = getattr(error, "code", "")
    error_type = getattr(error, "type", "")
    status = getattr(error, "status_code", None) or getattr(error, "code", None)
    if not isinstance(status, int):
        status = None
    reported = read_overflow(status, f"{error} {code} {error_type}")
    if reported is None:
        return False
    return pending.shrink(reported)


def _read_usage(answer: Any) -> Usage:
    """Return the tokens that an answer reports, and what its server cleared before."""
    return msgspec.structs.replace(find_usage(answer), cleared=read_cleared(answer))
