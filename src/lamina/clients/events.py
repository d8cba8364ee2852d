"""One stream of events for every model: text, thinking, tool calls, usage, stop.

    async with client.send(request) as reply:
        async for event in reply:
            ...
    await session.record(reply.raw)

A client is anything that has a `dialect` and can `send` a request of that dialect. The events are for whoever
watches the answer. What the SDK returned is in `reply.raw`, for the log: the dialect absorbs it. The same
reading gives the events of its calls, its usage and its end, so watchers and the log hear the same. Only text
and thinking are read twice, since watchers want them at once. This module knows no SDK and no wire format.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, Self

import anyio
import msgspec

from lamina.clients.failures import map_error
from lamina.core.values import ToolCall
from lamina.dialects.json_values import list_or_empty, read_field, text_or_empty
from lamina.dialects.port import Absorbed
from lamina.dialects.usage import Usage
from lamina.errors import BadInput

Reason = Literal["end", "tool", "length", "refused", "error", "other"]
"""Why an answer stopped, in one vocabulary: finished, tools are called, a limit, a filter, a failure."""

CLOSE_SECONDS = 5.0
"""How long closing a stream may take, even if the task was cancelled."""


class TextEvent(msgspec.Struct, frozen=True, tag="text"):
    """A piece of the answer, as it arrives. All pieces joined are its text."""

    text: str


class ThinkingEvent(msgspec.Struct, frozen=True, tag="thinking"):
    """A piece of the model's reasoning, if the API shows it."""

    text: str


class CallEvent(msgspec.Struct, frozen=True, kw_only=True, tag="tool_call"):
    """A complete call of a tool, with the id and the arguments (JSON text) that the log has."""

    id: str
    name: str
    arguments: str = "{}"


class UsageEvent(Usage, frozen=True, kw_only=True, tag="usage"):
    """The tokens of the call. `input` counts everything that was read, from the cache too."""


class StopEvent(msgspec.Struct, frozen=True, kw_only=True, tag="stop"):
    """The end of the answer. `reported` is the API's own word for it, "error" or "" if it broke off."""

    reason: Reason
    reported: str = ""


Event = TextEvent | ThinkingEvent | CallEvent | UsageEvent | StopEvent
"""What a client streams, for every provider the same."""


class StreamFormat(msgspec.Struct, frozen=True, kw_only=True):
    """How the stream of one API is read.

    - `read_pieces` yields the text and the thinking of one item. It raises `CallFailed` if the item reports
      an error.
    - `absorb` is the dialect's reading of all items, from which the other events come.
    - `reasons` has the API's own words for why an answer stopped.
    """

    read_pieces: Callable[[Any], Iterable[TextEvent | ThinkingEvent]]
    absorb: Callable[[Sequence[Any]], Absorbed]
    reasons: Mapping[str, Reason]


class Client(Protocol):
    """Sends requests of one dialect. Nothing is sent before the reply is read."""

    @property
    def dialect(self) -> str: ...

    def send(self, request: Mapping[str, Any]) -> Reply: ...


class Reply:
    """An answer on its way. It can be read once. Leaving its context closes the stream."""

    def __init__(
        self, open_stream: Callable[[], Awaitable[AsyncIterator[Any]]], stream_format: StreamFormat
    ) -> None:
        self.raw: list[Any] = []
        self._open_stream = open_stream
        self._format = stream_format
        self._events = self._read_events()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._events.aclose()  # type: ignore[attr-defined]

    async def _read_events(self) -> AsyncIterator[Event]:
        """Open the stream, and yield its events. An SDK's error is raised as one of `failures`."""
        stream: Any = None
        try:
            stream = await self._open_stream()
            async for item in stream:
                self.raw.append(item)
                for event in self._format.read_pieces(item):
                    yield event
            for last_event in read_end(self.raw, self._format):
                yield last_event
        except Exception as error:
            failure = map_error(error)
            if failure is None or failure is error:
                raise
            raise failure from error
        finally:
            await _close_stream(stream)


def read_end(items: Sequence[Any], stream_format: StreamFormat) -> list[Event]:
    """Read the calls, the usage and the end of an answer from all items of its stream.

    An answer without a word for its end broke off.
    """
    absorbed = stream_format.absorb(items)
    events: list[Event] = []
    for segment in absorbed.segments:
        part = segment.parts[0]
        if isinstance(part, ToolCall):
            events.append(CallEvent(id=part.id, name=part.name, arguments=part.arguments))
    reason = stream_format.reasons.get(absorbed.stop, "other")
    if not absorbed.stop:
        reason = "error"
    if reason == "end" and events:  # Gemini says STOP and Ollama "stop" for both
        reason = "tool"
    if absorbed.usage != Usage():
        events.append(UsageEvent(**msgspec.structs.asdict(absorbed.usage)))
    events.append(StopEvent(reason=reason, reported=absorbed.stop))
    return events


async def _close_stream(stream: Any) -> None:
    """Close a stream of an SDK, which has `close`, or a generator, which has `aclose`."""
    close = getattr(stream, "close", None) or getattr(stream, "aclose", None)
    if close is not None:
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            await close()


def make_later(module: str, name: str, **arguments: Any) -> Callable[[], Any]:
    """A function that makes an SDK's client, such as `openai.AsyncOpenAI`.

    The SDK is imported only then: whoever uses one provider needs no other's.
    """

    def make() -> Any:
        return getattr(importlib.import_module(module), name)(**arguments)

    return make


class SdkClient:
    """A client over an SDK. The SDK is imported with the first request, unless its client is given.

    `make` makes the SDK's client, and `begin` starts one call with it.
    """

    def __init__(
        self,
        dialect: str,
        *,
        client: Any,
        make: Callable[[], Any],
        begin: Callable[[Any, dict[str, Any]], Any],
        stream_format: StreamFormat,
    ) -> None:
        self.dialect = dialect
        self._client = client
        self._owns_client = client is None
        self._make = make
        self._begin = begin
        self._format = stream_format

    def send(self, request: Mapping[str, Any]) -> Reply:
        return Reply(lambda: self._open_stream(dict(request)), self._format)

    async def aclose(self) -> None:
        """Close the SDK's client, if it was made here."""
        if not self._owns_client:
            return
        close = getattr(self._client, "close", None)
        self._client = None
        if close is not None:
            await close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _open_stream(self, request: dict[str, Any]) -> AsyncIterator[Any]:
        """Send the request. Raises BadInput for the SDK's blocking client."""
        if self._client is None:
            self._client = self._make_client()
        call = self._begin(self._client, request)
        if not hasattr(call, "__await__"):
            hint = "give the SDK's async client, such as AsyncOpenAI()"
            raise BadInput(f"{type(self._client).__name__} is not async", place="client", hint=hint)
        stream: AsyncIterator[Any] = await call
        return stream

    def _make_client(self) -> Any:
        try:
            return self._make()
        except ImportError as error:
            hint = f"install {error.name}, or pass a client"
            raise BadInput(f"{error.name} is not installed", place=self.dialect, hint=hint) from None


def move_into_body(create: Callable[..., Any], request: dict[str, Any]) -> dict[str, Any]:
    """The arguments for an SDK's function. Fields that it has no argument for go to `extra_body`."""
    parameters = inspect.signature(create).parameters
    kinds = [parameter.kind for parameter in parameters.values()]
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return request  # it takes any field
    arguments = dict(request)
    other_fields = {name: arguments.pop(name) for name in request if name not in parameters}
    if not other_fields:
        return request
    arguments["extra_body"] = other_fields | (arguments.get("extra_body") or {})
    return arguments


def value_at(value: Any, *path: str) -> Any:
    """What is at a path of an SDK's object or of plain JSON; None if there is nothing."""
    for name in path:
        value = read_field(value, name)
    return value


def text_at(value: Any, *path: str) -> str:
    """The text at a path, or ""."""
    return text_or_empty(value_at(value, *path))


def first_at(value: Any, *path: str) -> Any:
    """The first item of the list at a path; None if there is no list, or it is empty."""
    return next(iter(list_or_empty(value_at(value, *path))), None)
