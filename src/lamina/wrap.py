"""A client of the OpenAI or Anthropic SDK that fits every request before it is sent.

    client = lamina.wrap(Anthropic())
    client.messages.create(model=..., max_tokens=..., messages=history)

A request goes with the ledger of the conversation that it continues; `client.conversation("support-42")`
says which, so that nothing is guessed. When a request is refused as too long all the same, one deeper cut
is made and it is sent once more. Everything else is the client's own: answers, streams, errors and
attributes. Endpoints that lamina has no dialect for are not touched, and no SDK is imported here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Self

from lamina.calls import Call, Conversations
from lamina.core.tokens import Counter
from lamina.core.values import Budget, Ledger
from lamina.dialects.anthropic import DIALECT as ANTHROPIC
from lamina.dialects.openai_chat import DIALECT as OPENAI_CHAT
from lamina.dialects.overflow import overflow
from lamina.dialects.port import Dialect
from lamina.errors import BadInput
from lamina.request import Fitted


def wrap(client: Any, *, budget: Budget | None = None, counter: Counter | None = None) -> Any:
    """The client, with every request fitted. `budget` and `counter` are those of `fit_request`."""
    if not any(_there(client, path) for path in _ENDPOINTS):
        raise BadInput(
            f"{type(client).__name__} is not a client that lamina knows",
            place="wrap",
            hint="pass a client of OpenAI's or Anthropic's SDK; or call fit_request before your own call",
        )
    return Wrapped(client, Conversations(budget, counter))


class Wrapped:
    """Stands for a client or a part of it: its endpoints fit their requests."""

    def __init__(self, inner: Any, conversations: Conversations, path: str = "") -> None:
        vars(self).update(_inner=inner, _conversations=conversations, _path=path)

    def conversation(self, name: str, *, ledger: Ledger | None = None) -> Wrapped:
        """The same client, for one conversation by name; `ledger` continues one of an earlier process."""
        return Wrapped(self._inner, self._conversations.named(name, ledger=ledger), self._path)

    @property
    def fitted(self) -> Fitted | None:
        """The last request that was answered, as `fit_request` gave it: ledger, account, `recall`."""
        last: Fitted | None = self._conversations.last()
        return last

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # `copy` asks an object that has no attributes yet
            raise AttributeError(name)
        inner, path = getattr(self._inner, name), f"{self._path}.{name}".lstrip(".")
        if path in _ENDPOINTS:
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
    dialect = _ENDPOINTS[path]

    @wraps(send)
    def now(**request: Any) -> Any:
        call = Call(conversations, dialect, request)
        try:
            answer = send(**call.request)
        except Exception as error:
            if not _deepened(call, error):
                raise
            answer = send(**call.request)
        call.done(usage=_reported(answer))
        return answer

    @wraps(send)
    async def later(**request: Any) -> Any:
        call = Call(conversations, dialect, request)
        try:
            answer = await send(**call.request)
        except Exception as error:
            if not _deepened(call, error):
                raise
            answer = await send(**call.request)
        call.done(usage=_reported(answer))
        return answer

    @wraps(send)
    def when_entered(**request: Any) -> Any:
        return Entered(send, Call(conversations, dialect, request))

    if path.endswith(".stream") or ".with_streaming_response." in path:
        return when_entered
    return later if inspect.iscoroutinefunction(inspect.unwrap(send)) else now


class Entered:
    """For a context of an SDK that sends its request when it is entered; what that gives is the SDK's own."""

    def __init__(self, send: Callable[..., Any], call: Call) -> None:
        self._send, self._call = send, call
        self._inner: Any = None

    def __enter__(self) -> Any:
        self._inner = self._send(**self._call.request)
        try:
            stream = self._inner.__enter__()
        except Exception as error:
            if not _deepened(self._call, error):
                raise
            self._inner = self._send(**self._call.request)
            stream = self._inner.__enter__()
        self._call.done()
        return stream

    def __exit__(self, *error: object) -> Any:
        return self._inner.__exit__(*error)

    async def __aenter__(self) -> Any:
        self._inner = self._send(**self._call.request)
        try:
            stream = await self._inner.__aenter__()
        except Exception as error:
            if not _deepened(self._call, error):
                raise
            self._inner = self._send(**self._call.request)
            stream = await self._inner.__aenter__()
        self._call.done()
        return stream

    async def __aexit__(self, *error: object) -> Any:
        return await self._inner.__aexit__(*error)


def _deepened(call: Call, error: Exception) -> bool:
    said = " ".join(str(part) for part in (error, getattr(error, "code", ""), getattr(error, "type", "")))
    found = overflow(getattr(error, "status_code", None), said)
    return found is not None and call.deepened(found)


_INPUT = ("prompt_tokens", "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def _reported(answer: Any) -> int:
    """The tokens that an answer says were read. A stream says it later, to whoever reads it."""
    counts = (getattr(getattr(answer, "usage", None), name, None) for name in _INPUT)
    return sum(tokens for tokens in counts if isinstance(tokens, int))


def _there(client: Any, path: str) -> bool:
    for name in path.split("."):
        client = getattr(client, name, None)
    return callable(client)


_ENDPOINTS: dict[str, Dialect] = {
    f"{version}{resource}{response}.{method}": dialect
    for version in ("", "beta.")
    for resource, dialect in (("messages", ANTHROPIC), ("chat.completions", OPENAI_CHAT))
    for response in ("", ".with_raw_response", ".with_streaming_response")
    for method in ("create", "parse", "stream")
}

_ON_THE_WAY = frozenset(
    ".".join(path.split(".")[:length]) for path in _ENDPOINTS for length in range(1, path.count(".") + 1)
)
