"""One stream of events for every model: text, thinking, tool calls, usage, stop.

    async with client.send(request) as reply:
        async for event in reply:
            ...
    await session.record(reply.raw)

A client is whatever has a `dialect` and can `send` a request of that dialect. What the SDK gave stands in
`reply.raw`, as the dialect absorbs it: events are for who watches, the raw answer for the log. It knows no
SDK and no wire format; each file beside it reads one.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, Protocol, Self

import anyio
import msgspec

from lamina.clients.failures import mapped
from lamina.dialects.usage import read_usage
from lamina.errors import BadInput

Reason = Literal["end", "tool", "length", "refused", "error", "other"]
"""Why an answer stopped, in one vocabulary: finished, tools are called, a limit, a filter, a failure."""

CLOSING = 5.0
"""Seconds that closing a stream may take, even of a task that was cancelled."""


class Spoke(msgspec.Struct, frozen=True, tag="text"):
    """A piece of the answer."""

    text: str


class Thought(msgspec.Struct, frozen=True, tag="thinking"):
    """A piece of the model's reasoning, where it is shown."""

    text: str


class Called(msgspec.Struct, frozen=True, kw_only=True, tag="tool_call"):
    """A call of a tool, whole. `arguments` is JSON text; `id` is "" where the API has none."""

    id: str
    name: str
    arguments: str = "{}"


class CallUsage(msgspec.Struct, frozen=True, kw_only=True, tag="usage"):
    """What the call took, in tokens; `input` counts everything that was read."""

    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0


def used(usage: Any) -> CallUsage:
    """What a usage object of any API says."""
    found = read_usage(usage)
    return CallUsage(input=found.input, cached=found.cached, written=found.written, output=found.output)


class Stopped(msgspec.Struct, frozen=True, kw_only=True, tag="stop"):
    """The end of the answer. `said` is the API's own word for it."""

    reason: Reason
    said: str = ""


Event = Spoke | Thought | Called | CallUsage | Stopped


class EventReader(Protocol):
    """Makes events of what one SDK's stream brings; one for each answer."""

    def read(self, item: Any) -> Iterable[Event]: ...

    def end(self) -> Iterable[Event]: ...


class Client(Protocol):
    """Sends requests of one dialect. Nothing is sent before the reply is read."""

    @property
    def dialect(self) -> str: ...

    def send(self, request: Mapping[str, Any]) -> Reply: ...


class Reply:
    """An answer on its way. Read once; leaving its context closes the stream, read to its end or not."""

    def __init__(self, opened: Callable[[], Awaitable[AsyncIterator[Any]]], reader: EventReader) -> None:
        self.raw: list[Any] = []
        self._opened, self._reader = opened, reader
        self._events = self._flow()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._events.aclose()  # type: ignore[attr-defined]

    async def _flow(self) -> AsyncIterator[Event]:
        stream: Any = None
        try:
            stream = await self._opened()
            async for item in stream:
                self.raw.append(item)
                for event in self._reader.read(item):
                    yield event
            for event in self._reader.end():
                yield event
        except Exception as error:
            found = mapped(error)
            if found is None or found is error:
                raise
            raise found from error
        finally:
            await _closed(stream)


async def _closed(stream: Any) -> None:
    close = getattr(stream, "close", None) or getattr(stream, "aclose", None)
    if close is not None:
        with anyio.move_on_after(CLOSING, shield=True):
            await close()


class Sdk:
    """A client over an SDK. The SDK is imported with the first request, unless its client is given."""

    def __init__(
        self,
        dialect: str,
        *,
        client: Any,
        make: Callable[[], Any],
        begin: Callable[[Any, dict[str, Any]], Any],
        reader: Callable[[], EventReader],
    ) -> None:
        self.dialect = dialect
        self._client, self._own = client, client is None
        self._make, self._begin, self._reader = make, begin, reader

    def send(self, request: Mapping[str, Any]) -> Reply:
        return Reply(lambda: self._opened(dict(request)), self._reader())

    async def aclose(self) -> None:
        """Closes the SDK's client, if it was made here."""
        close = getattr(self._client, "close", None) if self._own else None
        self._client = None if self._own else self._client
        if close is not None:
            await close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _opened(self, request: dict[str, Any]) -> AsyncIterator[Any]:
        if self._client is None:
            self._client = self._made()
        begun = self._begin(self._client, request)
        if not hasattr(begun, "__await__"):
            hint = "give the SDK's async client, such as AsyncOpenAI()"
            raise BadInput(f"{type(self._client).__name__} is not async", place="client", hint=hint)
        stream: AsyncIterator[Any] = await begun
        return stream

    def _made(self) -> Any:
        try:
            return self._make()
        except ImportError as error:
            hint = f"install {error.name}, or pass a client"
            raise BadInput(f"{error.name} is not installed", place=self.dialect, hint=hint) from None


def in_body(create: Callable[..., Any], request: dict[str, Any]) -> dict[str, Any]:
    """Arguments for an SDK's function: fields that it has no argument for stand in `extra_body`."""
    known = inspect.signature(create).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known.values()):
        return request
    other = {name: value for name, value in request.items() if name not in known}
    if not other:
        return request
    own = {name: value for name, value in request.items() if name in known}
    return own | {"extra_body": other | (own.get("extra_body") or {})}


class GrowingCalls:
    """Calls whose arguments arrive in pieces, in the order in which they began."""

    def __init__(self) -> None:
        self._calls: dict[int, tuple[str, str, list[str]]] = {}
        self._places: dict[Any, int] = {}

    def add(self, index: Any, id_: str, name: str, piece: str) -> None:
        """A piece of the call at an index; another id at the same index begins a new call."""
        at = self._places.get(index) if index is not None else (len(self._calls) - 1 if self._calls else None)
        known = self._calls.get(-1 if at is None else at)
        if at is None or known is None or (id_ and known[0] and known[0] != id_):
            at = self._places[index] = len(self._calls)
            self._calls[at] = (id_, name, [piece])
            return
        self._calls[at] = (known[0] or id_, known[1] or name, known[2])
        known[2].append(piece)

    def __bool__(self) -> bool:
        return bool(self._calls)

    def events(self) -> list[Event]:
        return [
            Called(id=id_, name=name, arguments="".join(pieces) or "{}")
            for id_, name, pieces in self._calls.values()
        ]


def at(value: Any, *path: str | int) -> Any:
    """What stands at a path of an SDK's object or of plain JSON; None where nothing does."""
    for name in path:
        if isinstance(name, int):
            value = value[name] if isinstance(value, list | tuple) and len(value) > name else None
        elif isinstance(value, Mapping):
            value = value.get(name)
        else:
            value = getattr(value, name, None)
    return value


def text_at(value: Any, *path: str | int) -> str:
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def count_at(value: Any, *path: str | int) -> int:
    found = at(value, *path)
    return found if isinstance(found, int) and found > 0 else 0
