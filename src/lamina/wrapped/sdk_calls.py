"""One call of an SDK's endpoint: a fitted request, one deeper cut after an overflow, recalls answered.

SDKs send a request at different times: when the method is called, when the first chunk of a generator is
read, or when a context manager is entered. Each of these exists with and without `await`. All of them are
written once here, as generators that yield what is to be done next. `lamina.clients.steps` does it, with or
without `await`. If the model recalled something, the client sees a `ShownStream` or a `ShownResponse`, of
which everything but the answer itself is the SDK's own.

Only for `lamina.wrapped.client`.
"""

from __future__ import annotations

import inspect
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial, wraps
from io import IOBase
from os import PathLike
from pathlib import Path
from typing import Any, Self

from lamina.clients.steps import Steps, StreamValue, iterate, iterate_async, run, run_async
from lamina.conversations.conversations import Conversations
from lamina.conversations.pending_call import PendingCall
from lamina.conversations.recall_filter import RecallFilter, add_event_usage, read_usage
from lamina.conversations.remedies import read_refusal
from lamina.dialects.bedrock_converse import to_sdk_arguments
from lamina.dialects.json_values import change_items, mapping_or_empty, read_field, to_same_dict
from lamina.dialects.port import Absorbed, Dialect
from lamina.dialects.usage import NOTHING_REPORTED, Usage
from lamina.fitting.recalls import TURN_FIELDS
from lamina.fitting.server_reports import with_headers

CONVERSATION_FIELDS = (*TURN_FIELDS, "prompt", "previous_response_id", "conversation")
"""The fields that hold a conversation, or say which one goes on."""

END = object()
"""What a stream gives after its last chunk."""


def fit_calls(
    send: Callable[..., Any], conversations: Conversations, dialect: Dialect, path: str
) -> Callable[..., Any]:
    """A function like `send` that fits its request first. `path` is where the client has it.

    Some methods send when they are called, with or without `await`. Those that return a context manager
    send when it is entered.
    """
    is_async = inspect.iscoroutinefunction(inspect.unwrap(send))

    def make_call(arguments: tuple[Any, ...], request: dict[str, Any], *, is_async: bool) -> SdkCall:
        named_arguments = describe_tools(name_arguments(send, arguments, request))
        if dialect.name == "anthropic":
            named_arguments = to_same_dict(change_items(named_arguments, "messages", encode_files_of_message))
        return SdkCall(send, conversations, dialect, path, named_arguments, is_async=is_async)

    @wraps(send)
    def send_now(*arguments: Any, **request: Any) -> Any:
        return run(make_call(arguments, request, is_async=False).send())

    @wraps(send)
    async def send_async(*arguments: Any, **request: Any) -> Any:
        return await run_async(make_call(arguments, request, is_async=True).send())

    @wraps(send)
    def send_when_entered(*arguments: Any, **request: Any) -> Any:
        if _has_no_turns(name_arguments(send, arguments, request)):
            return send(*arguments, **request)
        return StreamContext(partial(make_call, arguments, request))

    if path.endswith(".stream") or ".with_streaming_response." in path:
        return send_when_entered
    if is_async:
        return send_async
    return send_now


def name_arguments(
    send: Callable[..., Any], arguments: tuple[Any, ...], request: dict[str, Any]
) -> dict[str, Any]:
    """All arguments by their names.

    SDKs take the request by keyword, and a few arguments by position too. If they do not match, the SDK
    itself says so.
    """
    if not arguments:
        return request
    names = list(inspect.signature(send).parameters)[: len(arguments)]
    if len(names) < len(arguments) or not request.keys().isdisjoint(names):
        send(*arguments, **request)  # raises the SDK's own error
    return dict(zip(names, arguments, strict=False)) | request


def describe_tools(request: dict[str, Any]) -> dict[str, Any]:
    """The request with its tools as definitions. Anthropic's SDK takes objects that describe themselves."""
    tools = request.get("tools")
    if not isinstance(tools, list | tuple) or not any(hasattr(tool, "to_dict") for tool in tools):
        return request
    definitions = [tool.to_dict() if hasattr(tool, "to_dict") else tool for tool in tools]
    return {**request, "tools": definitions}


def encode_files_of_message(message: Any) -> Any:
    """The message or result with files in its content as base64.

    Anthropic's SDK takes a path or an open file where the API takes base64. It reads them when it sends.
    """
    if not isinstance(message, dict):
        return message
    return change_items(message, "content", encode_file)


def encode_file(block: Any) -> Any:
    """The block with its file as base64. A result has blocks of its own."""
    source = mapping_or_empty(block).get("source")
    if not isinstance(source, dict):
        return encode_files_of_message(block)
    data = source.get("data")
    if isinstance(data, PathLike):
        content = Path(data).read_bytes()
    elif isinstance(data, IOBase):
        content = data.read()
    else:
        return block
    return {**block, "source": {**source, "data": b64encode(content).decode()}}


class SdkCall:
    """A call of an SDK's function. Its methods are steps, which run with or without `await`."""

    def __init__(
        self,
        send: Callable[..., Any],
        conversations: Conversations,
        dialect: Dialect,
        path: str,
        request: dict[str, Any],
        *,
        is_async: bool,
    ) -> None:
        self._send = send
        self._request = request
        self._path = path
        self._is_async = is_async
        self._has_store = conversations.store is not None
        self._streams = request.get("stream") is True or "stream" in path.rpartition(".")[2]
        self._make_pending = partial(
            PendingCall,
            conversations,
            dialect,
            request,
            streams=self._streams,
            # The caller reads the bytes of such an answer, and nobody could take a recall out of them.
            answers_recalls=".with_streaming_response." not in path,
        )
        self._pending: PendingCall | None = None
        self._open_streams: list[Any] = []
        self._kept_events: list[Any] = []
        self._stream_usage = NOTHING_REPORTED

    @property
    def pending(self) -> PendingCall:
        """The request on its way. It is made by the first step."""
        assert self._pending is not None  # noqa: S101
        return self._pending

    def send(self) -> Steps:
        """Send the request, and return the SDK's answer.

        A stream is passed on while it comes. Of a whole answer, recalls are answered first: the request
        is sent again until the model says something else.
        """
        if _has_no_turns(self._request):
            return (yield partial(self._send, **self._request))
        yield from self._prepare()
        answer = yield from self._send_fitting(self._send_once)
        if inspect.isgenerator(answer) or inspect.isasyncgen(answer):
            # Gemini and Ollama send the request only when the first chunk is read.
            return self.pending.remember_answer(self._start(self._pass_events(answer, self._send_once)))
        has_own_tools = bool(self.pending.fitted.own_tools)
        # Otherwise the stream is the SDK's own object, and nobody is told what it took.
        is_read = has_own_tools or self.pending.keeps_figures or _holds_stream(answer)
        if self._streams and is_read:
            return (yield from self._show_stream(answer))
        if has_own_tools:
            return (yield from self._answer_recalls(answer))
        return (yield from self._finish_answer(answer))

    def enter(self) -> Steps:
        """Enter the SDK's context manager, which sends the request. Returns the manager and its stream."""
        yield from self._prepare()
        manager, stream = yield from self._send_fitting(self._send_and_enter)
        yield from self._finish(Usage(), is_whole=False)
        raw_stream = getattr(stream, "_raw_stream", None)
        if self.pending.fitted.own_tools and raw_stream is not None:
            # The SDK puts the answer together from these events, so it never sees a recall.
            steps = self._pass_events(raw_stream, self._send_for_raw_stream)
            stream._raw_stream = self._show(raw_stream, self._start(steps))  # noqa: SLF001
        self.pending.remember_answer(stream)
        return manager, stream

    def exit(self, manager: Any, stream: Any, error: tuple[object, ...]) -> Steps:
        snapshot = _read_snapshot(stream)
        error_type = getattr(error[0], "__name__", "")
        record = partial(self.pending.record_usage, read_usage(snapshot), answer=snapshot, error=error_type)
        yield partial(self._wait, record)
        leave = manager.__aexit__ if self._is_async else manager.__exit__
        left = yield partial(leave, *error)
        yield from self._close_streams()
        return left

    def _show_stream(self, answer: Any) -> Steps:
        """A stream in which the client sees no recall."""
        stream = yield from self._parse(answer)
        if not _is_stream(stream):
            return (yield from self._finish_answer(answer))
        events = self._start(self._pass_events(stream, self._send_for_stream))
        if _holds_stream(answer):
            return {**answer, "stream": self._show(answer["stream"], events)}
        shown_stream = self._show(stream, events)
        if stream is not answer:
            shown_stream = ShownResponse(answer, shown_stream)
        return self.pending.remember_answer(shown_stream)

    def _answer_recalls(self, answer: Any) -> Steps:
        """Answer the recalls in a whole answer, until there is one for the client, and return that."""
        recall_filter = RecallFilter(self.pending.dialect, self.pending.fitted.own_names)
        while True:
            parsed_answer = yield from self._parse(answer)
            recall_filter.take_whole(parsed_answer)
            is_recall = yield from self._take_answer(recall_filter, recall_filter.absorb(), parsed_answer)
            if not is_recall:
                break
            recall_filter.next_round()
            answer = yield from self._send_fitting(self._send_once)
        self.pending.remember_id(*recall_filter.find_ids())
        yield from self._finish(read_usage(parsed_answer), answer=parsed_answer)
        shown_answer = recall_filter.show_whole(shows_nothing=self.pending.shows_nothing)
        if shown_answer is parsed_answer:
            shown_answer = answer
        elif parsed_answer is not answer:
            shown_answer = ShownResponse(answer, shown_answer)
        return self.pending.remember_answer(shown_answer)

    def _prepare(self) -> Steps:
        """Fit the request. With a store this waits for it."""
        self._pending = yield partial(self._wait, self._make_pending)

    def _finish(self, usage: Usage, *, answer: Any = None, is_whole: bool = True) -> Steps:
        finish = partial(self.pending.finish, usage=usage, answer=answer, is_whole=is_whole)
        yield partial(self._wait, finish)

    def _finish_answer(self, answer: Any) -> Steps:
        shown_answer = None if _is_stream(answer) else answer
        yield from self._finish(read_usage(answer), answer=shown_answer)
        return self.pending.remember_answer(answer)

    def _send_fitting(self, send: Callable[[], Steps]) -> Steps:
        """Send the request, and again if the API refuses it for a reason that has a remedy.

        If the API refuses it for the same reason again, its error is the caller's.
        """
        tried: set[str] = set()
        while True:
            try:
                return (yield from send())
            except Exception as error:
                status, message = _read_error(error)
                self.pending.note_error(status, error)
                refusal = read_refusal(status, message)
                is_mended = False
                if refusal is not None and refusal.why not in tried:
                    tried.add(refusal.why)
                    is_mended = yield partial(self._wait, partial(self.pending.mend, refusal))
                if not is_mended:
                    yield partial(self._wait, partial(self.pending.fail, error))
                    raise

    def _send_once(self) -> Steps:
        pending = self.pending
        request = with_headers(pending.request, pending.headers, beta=self._path.startswith("beta."))
        if pending.dialect.name == "bedrock_converse":
            request = to_sdk_arguments(request)
        self.pending.note_sent()
        return (yield partial(self._send, **request))

    def _send_for_stream(self) -> Steps:
        answer = yield from self._send_once()
        return (yield from self._parse(answer))

    def _send_and_enter(self) -> Steps:
        manager = yield from self._send_once()
        entering = manager.__aenter__ if self._is_async else manager.__enter__
        return manager, (yield entering)

    def _send_for_raw_stream(self) -> Steps:
        _, stream = yield from self._send_and_enter()
        return stream._raw_stream  # noqa: SLF001

    def _open_stream(self, send: Callable[[], Steps]) -> Steps:
        """Send the request, and read the first event: some streams are sent only then."""
        stream = yield from send()
        return stream, (yield self._next(stream))

    def _pass_events(self, stream: Any, send: Callable[[], Steps]) -> Steps:
        """Show the events of a stream, without recalls, and those of the streams that follow a recall.

        The first event is read before anything is shown: an overflow is reported then, and the request
        can still be sent anew. The client sees one stream, whose end is that of the last.
        """
        streams = iter([stream])

        def send_or_reuse() -> Steps:
            opened = next(streams, None)
            if opened is None:
                opened = yield from send()
                self._open_streams.append(opened)
            return opened

        open_stream = partial(self._open_stream, send_or_reuse)
        stream, event = yield from self._send_fitting(open_stream)
        yield from self._finish(Usage(), is_whole=False)
        own_names = self.pending.fitted.own_names
        if not own_names:
            yield from self._pass_all(stream, event)
            return
        recall_filter = RecallFilter(self.pending.dialect, own_names)
        while True:
            while event is not END:
                self._read_event(event)
                for shown_event in recall_filter.take(event):
                    yield StreamValue(shown_event)
                event = yield from self._read_next(stream)
            absorbed = recall_filter.absorb()
            is_recall = yield from self._take_answer(recall_filter, absorbed, self._kept_events)
            if not is_recall:
                break
            self._kept_events = []
            self._stream_usage = NOTHING_REPORTED
            for shown_event in recall_filter.next_round():
                yield StreamValue(shown_event)
            stream, event = yield from self._send_fitting(open_stream)
        self.pending.remember_id(*recall_filter.find_ids())
        yield from self._finish(absorbed.usage, answer=self._kept_events)
        for shown_event in recall_filter.list_closing(
            shows_nothing=self.pending.shows_nothing, stream=stream
        ):
            yield StreamValue(shown_event)

    def _pass_all(self, stream: Any, event: Any) -> Steps:
        """Show every event: there is nothing to answer."""
        while event is not END:
            self._read_event(event)
            yield StreamValue(event)
            event = yield from self._read_next(stream)
        yield self._record_stream()

    def _read_next(self, stream: Any) -> Steps:
        """The next event of a stream that has begun. If there is an error instead, the record says so."""
        try:
            return (yield self._next(stream))
        except Exception as error:
            yield self._record_stream(type(error).__name__)
            raise

    def _record_stream(self, error: str = "") -> Callable[[], Any]:
        record = partial(self.pending.record_usage, self._stream_usage, answer=self._kept_events, error=error)
        return partial(self._wait, record)

    def _take_answer(self, recall_filter: RecallFilter, absorbed: Absorbed, answer: Any) -> Steps:
        """Take an answer of the model. Returns whether the request has to be sent once more."""
        shows_call = recall_filter.shows_call
        take = partial(self.pending.take_answer, absorbed, shows_call=shows_call, answer=answer)
        return (yield partial(self._wait, take))

    def _read_event(self, event: Any) -> None:
        """Read what an event reports, and keep it if the record keeps answers."""
        self._stream_usage = add_event_usage(self._stream_usage, event)
        if self.pending.keeps_bodies:
            self._kept_events.append(event)

    def _close_streams(self) -> Steps:
        """Close the streams that followed a recall. The client knows only the first, and closes that.

        Its reader may have stopped early. A stream that nobody holds any more is closed by the garbage
        collector, in any thread: so this must wait for no store.
        """
        self.pending.leave(self._stream_usage, answer=self._kept_events)
        while self._open_streams:
            stream = self._open_streams.pop()
            close = getattr(stream, "close", None) or getattr(stream, "aclose", None)
            if close is not None:
                yield close

    def _parse(self, answer: Any) -> Steps:
        """The answer inside a raw response of the SDK, or the stream inside one; any other as it is."""
        if _holds_stream(answer):
            return iter(answer["stream"])
        if ".with_raw_response." not in self._path:
            return answer
        return (yield answer.parse)

    def _start(self, steps: Steps) -> Any:
        if self._is_async:
            return iterate_async(steps, self._close_streams)
        return iterate(steps, self._close_streams)

    def _show(self, stream: Any, events: Any) -> Any:
        if self._is_async:
            return AsyncShownStream(stream, events)
        return SyncShownStream(stream, events)

    def _next(self, stream: Any) -> Callable[[], Any]:
        if self._is_async:
            return partial(anext, stream, END)
        return partial(next, stream, END)

    def _wait(self, action: Callable[[], Any]) -> Any:
        """Do something that may wait for the store. An event loop goes on meanwhile."""
        if not self._is_async or not self._has_store:
            return action()
        from anyio import to_thread  # noqa: PLC0415 - a client without a store needs no anyio

        return to_thread.run_sync(action)


class StreamContext:
    """A context manager of an SDK, which sends its request when it is entered. Its stream is the SDK's."""

    def __init__(self, make_call: Callable[..., SdkCall]) -> None:
        self._make_call = make_call
        self._call: Any = None
        self._manager: Any = None
        self._stream: Any = None

    def __enter__(self) -> Any:
        self._call = self._make_call(is_async=False)
        self._manager, self._stream = run(self._call.enter())
        return self._stream

    def __exit__(self, *error: object) -> Any:
        return run(self._call.exit(self._manager, self._stream, error))

    async def __aenter__(self) -> Any:
        self._call = self._make_call(is_async=True)
        self._manager, self._stream = await run_async(self._call.enter())
        return self._stream

    async def __aexit__(self, *error: object) -> Any:
        return await run_async(self._call.exit(self._manager, self._stream, error))


def _has_no_turns(request: dict[str, Any]) -> bool:
    """Whether a request says nothing and continues nothing. It is sent as it is, and the API answers it.

    Ollama loads the model when it gets one. The other APIs refuse it with their own error.
    """
    return not any(request.get(name) for name in CONVERSATION_FIELDS)


def _is_stream(answer: Any) -> bool:
    """Whether an answer is read event by event, with or without `await`."""
    return hasattr(answer, "__next__") or hasattr(answer, "__anext__")


def _holds_stream(answer: Any) -> bool:
    """Whether this is what boto3 returns for a stream: a dict with the events in one of its fields."""
    return isinstance(answer, dict) and hasattr(answer.get("stream"), "__iter__")


def _read_snapshot(stream: Any) -> Any:
    """The answer as far as a stream of an SDK has assembled it; None if the SDK does not do that."""
    for name in ("current_message_snapshot", "current_completion_snapshot"):
        with suppress(Exception):  # the attribute raises before the first event
            return getattr(stream, name)
    return None


def _read_error(error: Exception) -> tuple[int | None, str]:
    """The status and the text of an error. SDKs have the status under one of two names, boto3 inside."""
    code = getattr(error, "code", "")
    error_type = getattr(error, "type", "")
    metadata = read_field(getattr(error, "response", None), "ResponseMetadata")
    status = getattr(error, "status_code", None) or code or read_field(metadata, "HTTPStatusCode")
    if not isinstance(status, int):
        status = None
    return status, f"{error} {code} {error_type}"


class ShownStream:
    """An SDK's stream of which other events are seen. Everything else is the stream's own."""

    def __init__(self, stream: Any, events: Any) -> None:
        self._stream = stream
        self._events = events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Frameworks ask what a stream is an instance of."""
        return type(self._stream)


class SyncShownStream(ShownStream):
    """The stream of a sync client."""

    def __iter__(self) -> Iterator[Any]:
        return iter(self._events)

    def __next__(self) -> Any:
        return next(self._events)

    def close(self) -> None:
        """Close this stream, and those that followed a recall."""
        self._events.close()
        self._stream.close()

    def __enter__(self) -> Self:
        self._stream.__enter__()
        return self

    def __exit__(self, *error: object) -> Any:
        self._events.close()
        return self._stream.__exit__(*error)


class AsyncShownStream(ShownStream):
    """The stream of an async client."""

    def __aiter__(self) -> Any:
        return self._events

    def __anext__(self) -> Any:
        return anext(self._events)

    async def close(self) -> None:
        """Close this stream, and those that followed a recall."""
        await self._events.aclose()
        await self._stream.close()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> Any:
        await self._events.aclose()
        return await self._stream.__aexit__(*error)


class ShownResponse:
    """A raw response of an SDK, as `with_raw_response` gives it, whose `parse` gives another answer."""

    def __init__(self, response: Any, answer: Any) -> None:
        self._response = response
        self._answer = answer

    def parse(self, **options: Any) -> Any:
        """The answer without recalls. A caller that asks for another type gets the SDK's own."""
        if options:
            return self._response.parse(**options)
        return self._answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._response, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Frameworks ask what a response is an instance of."""
        return type(self._response)
