"""Clients of the official SDKs in talk with a server: what tests of wrapped clients share.

A `Speaker` says one request in one of the ways that its SDK has, to a sync or an async client alike, and
gives the answer as users append it to their history: as the SDK's own object wherever there is one.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

import anthropic
import openai
from anthropic.types import TextBlock, ToolUseBlock
from openai.types.chat import ChatCompletionMessage

import lamina
from lamina.core import Counter
from lamina.fitting import Breakpoints, Policy
from lamina.testing.model_server import COUNTER, MODEL, PATIENCE
from tests.servers.serving import serve_http

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


class Answer(NamedTuple):
    """What was said, as it goes into the history, and the tokens of the prompt that the server reports."""

    said: Any
    prompt: int
    cached: int


class Wire:
    """Everything that went to the server: the bodies, and the status of each answer."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.statuses: list[int] = []

    def watch(self, http: Any) -> Any:
        """The client of httpx, of which everything that it sends is seen here."""
        http._transport = WatchedTransport(http._transport, self)  # noqa: SLF001 - as it was made by an SDK
        return http

    def saw(self, request: Any, response: Any) -> None:
        self.bodies.append(request.content)
        self.statuses.append(response.status_code)


class WatchedTransport:
    """The transport of a client, and somebody who watches it."""

    def __init__(self, inner: Any, wire: Wire) -> None:
        self._inner = inner
        self._wire = wire

    def handle_request(self, request: Any) -> Any:
        response = self._inner.handle_request(request)
        self._wire.saw(request, response)
        return response

    async def handle_async_request(self, request: Any) -> Any:
        response = await self._inner.handle_async_request(request)
        self._wire.saw(request, response)
        return response

    def close(self) -> None:
        self._inner.close()

    async def aclose(self) -> None:
        await self._inner.aclose()


class Speaker(NamedTuple):
    """One SDK, sync or async. `ways` are the calls of it that an answer can be had by."""

    sdk: str
    is_async: bool

    def client(self, url: str, wire: Wire | None = None, **options: Any) -> Any:
        """An SDK client that retries nothing by itself."""
        module: Any = openai if self.sdk == "openai" else anthropic
        name, address = ("OpenAI", f"{url}/v1") if self.sdk == "openai" else ("Anthropic", url)
        client, http = name, "DefaultHttpxClient"
        if self.is_async:
            client, http = f"Async{name}", "DefaultAsyncHttpxClient"
        wire = wire or Wire()
        own = {
            "http_client": wire.watch(getattr(module, http)()),
            "default_headers": {"Connection": "close"},  # the server ends idle connections as it likes
            "max_retries": 0,
            "timeout": PATIENCE,
        }
        return getattr(module, client)(base_url=address, api_key="none", **(own | options))

    @asynccontextmanager
    async def wrapped(
        self,
        url: str,
        wire: Wire | None = None,
        *,
        budget: lamina.Budget,
        counter: Counter = COUNTER,
        breakpoints: Breakpoints = "auto",
        **options: Any,
    ) -> AsyncIterator[Any]:
        policy = Policy(budget=budget, counter=counter, breakpoints=breakpoints)
        wrapped = lamina.wrap(self.client(url, wire), policy=policy, **options)
        async with entered(wrapped, self) as client:
            yield client

    @property
    def ways(self) -> Sequence[Callable[..., Awaitable[Answer]]]:
        if self.sdk == "openai":
            return (_chat_create, _chat_chunks, _chat_stream)
        return (_messages_create, _messages_events, _messages_stream)

    async def ask(self, client: Any, history: list[Any], *, way: int = 0) -> Answer:
        """The answer to a history, which is left as it is."""
        request = {"model": MODEL, "max_tokens": 6, "messages": history, "tools": [self.tool]}
        return await self.ways[way % len(self.ways)](self, client, request)

    @property
    def tool(self) -> dict[str, Any]:
        named = {"name": "read_file", "description": "Reads a file."}
        if self.sdk == "openai":
            return {"type": "function", "function": {**named, "parameters": PATH}}
        return {**named, "input_schema": PATH}

    def calling(self, said: Any, id_: str, path: str) -> Any:
        """The answer, as it would be had the model called a tool besides."""
        if self.sdk == "anthropic":
            block = ToolUseBlock(type="tool_use", id=id_, name="read_file", input={"path": path})
            return {"role": "assistant", "content": [*said["content"], block]}
        function = {"name": "read_file", "arguments": json.dumps({"path": path})}
        call = {"id": id_, "type": "function", "function": function}
        as_dict = said if isinstance(said, dict) else said.model_dump(exclude_unset=True)
        return ChatCompletionMessage.model_validate(as_dict | {"tool_calls": [call]})

    def result(self, id_: str, text: str) -> dict[str, Any]:
        if self.sdk == "openai":
            return {"role": "tool", "tool_call_id": id_, "content": text}
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id_, "content": text}]}

    def past(self, steps: int, *, about: str = "part") -> list[Any]:
        """A history in which a file was read in each step, and explained after it."""
        history: list[Any] = [{"role": "user", "content": f"Explain every {about}."}]
        for step in range(steps):
            said = {"role": "assistant", "content": [TextBlock(type="text", text="Next.")]}
            if self.sdk == "openai":
                said = {"role": "assistant", "content": "Next."}
            history.append(self.calling(said, f"c{step}", f"src/{about}_{step}.py"))
            history.append(self.result(f"c{step}", listing(f"{about}_{step}")))
        return history


def listing(name: str) -> str:
    """A file of some 400 bytes."""
    return "".join(f"def {name}_{line}(): return {line * line}\n" for line in range(14))


SPEAKERS = tuple(Speaker(sdk, is_async) for sdk in ("openai", "anthropic") for is_async in (False, True))


def named(speaker: Speaker) -> str:
    return f"{speaker.sdk}-{'async' if speaker.is_async else 'sync'}"


@asynccontextmanager
async def entered(context: Any, speaker: Speaker) -> AsyncIterator[Any]:
    """A context of a sync or an async client, entered in its own way."""
    if speaker.is_async:
        async with context as inside:
            yield inside
    else:
        with context as inside:
            yield inside


async def got(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def all_of(stream: Any) -> list[Any]:
    return [item async for item in stream] if hasattr(stream, "__aiter__") else list(stream)


async def _chat_create(_: Speaker, client: Any, request: dict[str, Any]) -> Answer:
    answer = await got(client.chat.completions.create(**request))
    return _chat_answer(answer.choices[0].message, answer.usage)


async def _chat_chunks(_: Speaker, client: Any, request: dict[str, Any]) -> Answer:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = await all_of(await got(client.chat.completions.create(**request, **options)))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    return _chat_answer({"role": "assistant", "content": text}, chunks[-1].usage)


async def _chat_stream(speaker: Speaker, client: Any, request: dict[str, Any]) -> Answer:
    context = client.chat.completions.stream(**request, stream_options={"include_usage": True})
    async with entered(context, speaker) as stream:
        await all_of(stream)
        answer = stream.current_completion_snapshot  # the final one is refused where it ends at the limit
    return _chat_answer(answer.choices[0].message, answer.usage)


def _chat_answer(said: Any, usage: Any) -> Answer:
    return Answer(said, usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens)


async def _messages_create(_: Speaker, client: Any, request: dict[str, Any]) -> Answer:
    answer = await got(client.messages.create(**request))
    return _messages_answer(answer.content, answer.usage)


async def _messages_events(_: Speaker, client: Any, request: dict[str, Any]) -> Answer:
    events = await all_of(await got(client.messages.create(**request, stream=True)))
    deltas = (event.delta for event in events if event.type == "content_block_delta")
    text = "".join(delta.text for delta in deltas)
    return _messages_answer([TextBlock(type="text", text=text)], events[0].message.usage)


async def _messages_stream(speaker: Speaker, client: Any, request: dict[str, Any]) -> Answer:
    async with entered(client.messages.stream(**request), speaker) as stream:
        answer = await got(stream.get_final_message())
    return _messages_answer(answer.content, answer.usage)


def _messages_answer(content: Any, usage: Any) -> Answer:
    cached = usage.cache_read_input_tokens or 0
    return Answer({"role": "assistant", "content": content}, usage.input_tokens + cached, cached)


@contextmanager
def refusing(status: int, message: str) -> Iterator[tuple[str, list[bytes]]]:
    """A server that answers every request with the same error: its address, and the requests it had."""
    seen: list[bytes] = []

    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps({"type": "error", "error": {"type": "error", "message": message}}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with serve_http(Refusing) as url:
        yield url, seen
