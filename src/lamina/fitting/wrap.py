"""A client of an official SDK that fits every request before it is sent.

    client = lamina.wrap(Anthropic())
    client.messages.create(model=..., max_tokens=..., messages=history)

A request goes with the ledger of the conversation that it continues; `client.conversation("support-42")`
says which, so that nothing is guessed. When a request is refused as too long all the same, one deeper cut
is made and it is sent once more. Everything else is the client's own: answers, streams, errors and
attributes. Clients are known by their shape: endpoints that lamina has no dialect for are not touched, and
no SDK is imported here.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any, NamedTuple, Self

import msgspec

from lamina.core.text.characters import lower_ascii
from lamina.core.tokens import Counter
from lamina.core.values import Budget, Ledger
from lamina.dialects import DIALECTS
from lamina.dialects.anthropic.server import BETAS, cleared, merged_betas
from lamina.dialects.overflow import overflow
from lamina.dialects.port import Dialect
from lamina.dialects.usage import Usage, usage_in
from lamina.errors import BadInput
from lamina.fitting.conversations import Conversations, PendingCall
from lamina.fitting.request import Breakpoints, Fitted, ServerHelp


def wrap(
    client: Any,
    *,
    budget: Budget | None = None,
    counter: Counter | None = None,
    breakpoints: Breakpoints = "keep",
    server: ServerHelp | None = None,
) -> Any:
    """The client, with every request fitted. The arguments are those of `fit_request`."""
    if not any(_there(client, path) for path in _ENDPOINTS):
        raise BadInput(
            f"{type(client).__name__} is not a client that lamina knows",
            place="wrap",
            hint="pass a client of an official SDK; or call fit_request before your own call",
        )
    return Wrapped(client, Conversations(budget, counter, breakpoints=breakpoints, server=server))


class Wrapped:
    """Stands for a client or a part of it: its endpoints fit their requests."""

    def __init__(self, inner: Any, conversations: Conversations, path: str = "") -> None:
        vars(self).update(_inner=inner, _conversations=conversations, _path=path)

    def conversation(self, name: str, *, ledger: Ledger | None = None) -> Wrapped:
        """The same client, for one conversation by name; `ledger` continues one of an earlier process."""
        return Wrapped(self._inner, self._conversations.named(name, ledger=ledger), self._path)

    @property
    def fitted(self) -> Fitted | None:
        """The last request that was answered, as `fit_request` gave it: ledger, account, `recall`.

        Of this conversation, where it has a name. A client without one gives it only while all its calls
        are of one conversation, and raises BadInput after that: the last call may be somebody else's.
        """
        last: Fitted | None = self._conversations.last()
        return last

    def fitted_of(self, answer: Any) -> Fitted:
        """The request that this answer, or this stream, is the answer to, as `fit_request` gave it."""
        call: PendingCall | None = self._conversations.answers.call_of(answer)
        if call is None:
            raise BadInput(
                f"{type(answer).__name__} is no answer of this client",
                place="fitted_of",
                hint="pass the object that the client returned; or use client.conversation(name).fitted",
            )
        return call.fitted

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # `copy` asks an object that has no attributes yet
            raise AttributeError(name)
        inner, path = getattr(self._inner, name), f"{self._path}.{name}".lstrip(".")
        if path in _ENDPOINTS and callable(inner):
            return _sending(inner, self._conversations, path)
        if path in ("copy", "with_options"):
            return lambda **options: Wrapped(inner(**options), self._conversations)
        return Wrapped(inner, self._conversations, path) if path in _ON_THE_WAY else inner

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._inner, name, value)

    def __repr__(self) -> str:
        return f"lamina.wrap({self._inner!r})"

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> Any:
        return self._inner.__exit__(*error)

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> Any:
        return await self._inner.__aexit__(*error)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Frameworks ask what a client is an instance of."""
        return type(self._inner)


def _sending(send: Callable[..., Any], conversations: Conversations, path: str) -> Callable[..., Any]:
    """`send` with its request fitted before, and one deeper cut after an overflow."""

    def made(given: tuple[Any, ...], request: dict[str, Any]) -> _Sent:
        return _Sent(send, PendingCall(conversations, _ENDPOINTS[path], _by_name(send, given, request)), path)

    @wraps(send)
    def now(*given: Any, **request: Any) -> Any:
        return made(given, request).now()

    @wraps(send)
    async def later(*given: Any, **request: Any) -> Any:
        return await made(given, request).later()

    @wraps(send)
    def when_entered(*given: Any, **request: Any) -> Any:
        return Entered(made(given, request))

    if path.endswith(".stream") or ".with_streaming_response." in path:
        return when_entered
    return later if inspect.iscoroutinefunction(inspect.unwrap(send)) else now


class _Sent(NamedTuple):
    """A call, and how it is sent."""

    send: Callable[..., Any]
    call: PendingCall
    path: str

    def once(self) -> Any:
        beta = self.path.startswith("beta.")
        return self.send(**with_headers(self.call.request, self.call.headers, beta=beta))

    def now(self) -> Any:
        try:
            answer = self.once()
        except Exception as error:
            if not _deepened(self.call, error):
                raise
            answer = self.once()
        if inspect.isgenerator(answer):
            return self.call.remembered(_chunks(self, answer))
        return self._answered(answer)

    async def later(self) -> Any:
        try:
            answer = await self.once()
        except Exception as error:
            if not _deepened(self.call, error):
                raise
            answer = await self.once()
        if inspect.isasyncgen(answer):
            return self.call.remembered(_later_chunks(self, answer))
        return self._answered(answer)

    def _answered(self, answer: Any) -> Any:
        self.call.done(usage=_reported(answer))
        return self.call.remembered(answer)


def _by_name(send: Callable[..., Any], given: tuple[Any, ...], request: dict[str, Any]) -> dict[str, Any]:
    """All arguments by their names."""
    if not given:
        return request
    names = list(inspect.signature(send).parameters)[: len(given)]
    if len(names) < len(given) or not request.keys().isdisjoint(names):
        send(*given, **request)  # the SDK's own error
    return dict(zip(names, given, strict=False)) | request


def with_headers(request: dict[str, Any], headers: Mapping[str, str], *, beta: bool) -> dict[str, Any]:
    """An SDK's arguments with these headers besides the caller's own; betas join those that are there."""
    if not headers:
        return request
    extra = dict(request.get("extra_headers") or {})
    there = next((name for name in extra if lower_ascii(name) == BETAS), "")
    if beta and not there:  # the endpoint makes the header of this argument
        betas = request.get("betas")
        known = [str(name) for name in betas] if isinstance(betas, list | tuple) else []
        return {**request, "betas": merged_betas(*known, headers[BETAS]).split(",")}
    extra[there or BETAS] = merged_betas(str(extra.get(there, "")), headers[BETAS])
    return {**request, "extra_headers": extra}


def _chunks(sent: _Sent, stream: Iterator[Any]) -> Iterator[Any]:
    """The chunks of a generator that sends its request when the first one is asked for."""
    chunk = None
    try:
        chunk = next(stream, None)
    except Exception as error:
        if not _deepened(sent.call, error):
            raise
        stream = sent.once()
        chunk = next(stream, None)
    sent.call.done()
    while chunk is not None:
        last = chunk
        yield chunk
        chunk = next(stream, None)
        if chunk is None:
            sent.call.counted(_reported(last))


async def _later_chunks(sent: _Sent, stream: AsyncIterator[Any]) -> AsyncIterator[Any]:
    try:
        chunk = await anext(stream, None)
    except Exception as error:
        if not _deepened(sent.call, error):
            raise
        stream = await sent.once()
        chunk = await anext(stream, None)
    sent.call.done()
    while chunk is not None:
        last = chunk
        yield chunk
        chunk = await anext(stream, None)
        if chunk is None:
            sent.call.counted(_reported(last))


class Entered:
    """For a context of an SDK that sends its request when it is entered; what that gives is the SDK's own."""

    def __init__(self, sent: _Sent) -> None:
        self._sent = sent
        self._inner: Any = None
        self._stream: Any = None

    def __enter__(self) -> Any:
        self._inner = self._sent.once()
        try:
            self._stream = self._inner.__enter__()
        except Exception as error:
            if not _deepened(self._sent.call, error):
                raise
            self._inner = self._sent.once()
            self._stream = self._inner.__enter__()
        self._sent.call.done()
        return self._sent.call.remembered(self._stream)

    def __exit__(self, *error: object) -> Any:
        self._sent.call.counted(_reported(_final(self._stream)))
        return self._inner.__exit__(*error)

    async def __aenter__(self) -> Any:
        self._inner = self._sent.once()
        try:
            self._stream = await self._inner.__aenter__()
        except Exception as error:
            if not _deepened(self._sent.call, error):
                raise
            self._inner = self._sent.once()
            self._stream = await self._inner.__aenter__()
        self._sent.call.done()
        return self._sent.call.remembered(self._stream)

    async def __aexit__(self, *error: object) -> Any:
        self._sent.call.counted(_reported(_final(self._stream)))
        return await self._inner.__aexit__(*error)


def _final(stream: Any) -> Any:
    """The answer as far as a stream of an SDK has put it together; None if it does not."""
    for name in ("current_message_snapshot", "current_completion_snapshot"):
        with suppress(Exception):  # it is not there before the first event
            return getattr(stream, name)
    return None


def _deepened(call: PendingCall, error: Exception) -> bool:
    said = " ".join(str(part) for part in (error, getattr(error, "code", ""), getattr(error, "type", "")))
    status = getattr(error, "status_code", None) or getattr(error, "code", None)
    found = overflow(status if isinstance(status, int) else None, said)
    return found is not None and call.deepened(found)


def _reported(answer: Any) -> Usage:
    """The tokens that an answer says were read, and what its server cleared before.

    A stream says it later, to whoever reads it.
    """
    return msgspec.structs.replace(usage_in(answer), cleared=cleared(answer))


def _there(client: Any, path: str) -> bool:
    for name in path.split("."):
        client = getattr(client, name, None)
    return callable(client)


_RESOURCES = (
    ("messages", "anthropic"),
    ("beta.messages", "anthropic"),
    ("chat.completions", "openai_chat"),
    ("beta.chat.completions", "openai_chat"),
    ("responses", "openai_responses"),
)
_METHODS = (
    ("models.generate_content", "gemini"),
    ("models.generate_content_stream", "gemini"),
    ("aio.models.generate_content", "gemini"),
    ("aio.models.generate_content_stream", "gemini"),
    ("chat", "ollama"),
)
_PATHS = {
    f"{resource}{response}.{method}": dialect
    for resource, dialect in _RESOURCES
    for response in ("", ".with_raw_response", ".with_streaming_response")
    for method in ("create", "parse", "stream")
} | dict(_METHODS)

_ENDPOINTS: dict[str, Dialect] = {
    path: DIALECTS[dialect] for path, dialect in _PATHS.items() if dialect in DIALECTS
}

_ON_THE_WAY = frozenset(
    ".".join(path.split(".")[:length]) for path in _ENDPOINTS for length in range(1, path.count(".") + 1)
)
