"""An upstream for tests: a raw HTTP/1.1 server on the loopback address that records bytes and plays faults.

    async with run_stub() as stub:
        stub.play(broken_off)               # what it does instead of its usual answer, once
        ...
    assert stub.seen[0].body == body

It answers like each API, with the same bytes for the same request, so that an answer through the gateway can
be compared with a direct one.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import zstandard

Fault = Callable[["SeenRequest", asyncio.StreamWriter], Awaitable[None]]

SAID = "Certainly: é ✓ done."
CACHED = 1_000


_Stub = TypeVar("_Stub", bound="Stub")


class SeenRequest(NamedTuple):
    """A request as it arrived."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def header_map(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers}

    @property
    def json(self) -> Any:
        body = self.body
        encoding = self.header_map.get("content-encoding", "")
        if encoding == "gzip":
            body = gzip.decompress(body)
        elif encoding == "zstd":
            body = zstandard.ZstdDecompressor().decompressobj().decompress(body)
        return json.loads(body)


class Stub:
    """What an upstream has seen, and what it will do."""

    def __init__(self) -> None:
        self.port = 0
        self.seen: list[SeenRequest] = []
        self.faults: list[Fault] = []
        self.cancelled = 0
        self.window = 0
        self.packs = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def play(self, *faults: Fault) -> None:
        self.faults.extend(faults)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await _read_request(reader)
                if request is None:
                    break
                self.seen.append(request)
                if self.faults:
                    await self.faults.pop(0)(request, writer)
                else:
                    await self._answer(request, writer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.cancelled += 1
        finally:
            writer.close()

    async def _answer(self, request: SeenRequest, writer: asyncio.StreamWriter) -> None:
        tokens = len(request.body)
        if self.window and tokens > self.window:
            message = f"prompt is too long: {tokens} tokens > {self.window} maximum"
            error = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
            writer.write(response(400, "application/json", json.dumps(error).encode()))
            return
        content_type, body = answer_of(request)
        writer.write(response(200, content_type, body, packed=self.packs))


def answer_of(request: SeenRequest) -> tuple[str, bytes]:  # noqa: PLR0911 - one for each API
    """The usual answer: its content type and its bytes, which depend on the request alone."""
    path = request.path.partition("?")[0]
    if request.method != "POST":
        return "application/json", b'{"object":"list","data":[{"id":"m"}]}'
    fields: dict[str, Any] = {}
    if request.body and "/files" not in path:
        fields = request.json
    streams = fields.get("stream") is True or ":stream" in path
    if path.endswith("/count_tokens"):
        return "application/json", b'{"input_tokens":1234}'
    if path.endswith("/messages"):
        return _answer_anthropic(len(request.body) // 4, streams=streams)
    if path.endswith("/chat/completions"):
        return _answer_chat(streams=streams)
    if path.endswith("/responses"):
        return _answer_responses(streams=streams)
    if path.endswith("/api/chat"):
        return _answer_ollama(streams=fields.get("stream", True))
    if "enerateContent" in path:
        return _answer_gemini(streams=streams)
    return "application/json", b'{"echo":' + str(len(request.body)).encode() + b"}"


def events(*values: Any, named: bool = False) -> bytes:
    lines: list[str] = []
    for value in values:
        if named:
            lines.append(f"event: {value['type']}")
        lines += [f"data: {value if isinstance(value, str) else json.dumps(value)}", ""]
    return ("\n".join(lines) + "\n").encode()


def _answer_anthropic(tokens: int, *, streams: bool) -> tuple[str, bytes]:
    usage = {"input_tokens": tokens, "cache_creation_input_tokens": 9, "cache_read_input_tokens": CACHED}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    block = {"type": "text", "text": SAID}
    if not streams:
        whole = message | {
            "content": [block],
            "stop_reason": "end_turn",
            "usage": usage | {"output_tokens": 5},
        }
        return "application/json", json.dumps(whole).encode()
    begun: dict[str, Any] = message | {
        "content": [],
        "stop_reason": None,
        "usage": usage | {"output_tokens": 1},
    }
    delta = {"type": "text_delta", "text": SAID}
    return "text/event-stream", events(
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
        named=True,
    )


def _answer_chat(*, streams: bool) -> tuple[str, bytes]:
    usage = {"prompt_tokens": 1029, "completion_tokens": 5, "total_tokens": 1034}
    usage["prompt_tokens_details"] = {"cached_tokens": CACHED}  # type: ignore[assignment]
    base = {"id": "c", "created": 1, "model": "m"}
    if not streams:
        choice = {"index": 0, "message": {"role": "assistant", "content": SAID}, "finish_reason": "stop"}
        whole = base | {"object": "chat.completion", "choices": [choice], "usage": usage}
        return "application/json", json.dumps(whole).encode()
    chunk = base | {"object": "chat.completion.chunk"}
    first = {"index": 0, "delta": {"role": "assistant", "content": SAID}, "finish_reason": None}
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    return "text/event-stream", events(
        chunk | {"choices": [first]},
        chunk | {"choices": [last]},
        chunk | {"choices": [], "usage": usage},
        "[DONE]",
    )


def _answer_responses(*, streams: bool) -> tuple[str, bytes]:
    usage = {"input_tokens": 1029, "output_tokens": 5, "total_tokens": 1034}
    usage["input_tokens_details"] = {"cached_tokens": CACHED}  # type: ignore[assignment]
    text = {"type": "output_text", "text": SAID, "annotations": []}
    item = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
    base = {"id": "r", "object": "response", "created_at": 0, "model": "m", "parallel_tool_calls": True}
    base |= {"tool_choice": "auto", "tools": []}
    done = base | {"status": "completed", "output": [item], "usage": usage}
    if not streams:
        return "application/json", json.dumps(done).encode()
    begun = base | {"status": "in_progress", "output": []}
    return "text/event-stream", events(
        {"type": "response.created", "response": begun, "sequence_number": 0},
        {"type": "response.output_item.done", "output_index": 0, "item": item, "sequence_number": 1},
        {"type": "response.completed", "response": done, "sequence_number": 2},
        named=True,
    )


def _answer_gemini(*, streams: bool) -> tuple[str, bytes]:
    content = {"role": "model", "parts": [{"text": SAID}]}
    usage = {"promptTokenCount": 1029, "cachedContentTokenCount": CACHED, "candidatesTokenCount": 5}
    whole = {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}
    if streams:
        return "text/event-stream", events(whole)
    return "application/json", json.dumps(whole).encode()


def _answer_ollama(*, streams: bool) -> tuple[str, bytes]:
    base = {"model": "m", "created_at": "2026-01-01T00:00:00Z"}
    said = {"role": "assistant", "content": SAID}
    end = {"done": True, "done_reason": "stop", "prompt_eval_count": 1029, "eval_count": 5}
    if not streams:
        return "application/json", json.dumps(base | {"message": said} | end).encode()
    first = json.dumps(base | {"message": said, "done": False})
    last = json.dumps(base | {"message": {"role": "assistant", "content": ""}} | end)
    return "application/x-ndjson", f"{first}\n{last}\n".encode()


def answer_with(body: Any, *, status: int = 200, content_type: str = "application/json") -> Fault:
    """An upstream that answers with these bytes, or with this value as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def answer(_: SeenRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(response(status, content_type, data))

    return answer


def response(status: int, content_type: str, body: bytes, *, packed: str = "") -> bytes:
    head = f"HTTP/1.1 {status} Said\r\ncontent-type: {content_type}\r\nx-request-id: req-1\r\n"
    if packed == "gzip":
        body = gzip.compress(body, mtime=0)
        head += "content-encoding: gzip\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def _read_request(reader: asyncio.StreamReader) -> SeenRequest | None:
    line = await reader.readline()
    if not line:
        return None
    method, path, _ = line.decode("latin-1").split(" ")
    headers: list[tuple[str, str]] = []
    while (text := (await reader.readline()).decode("latin-1").rstrip("\r\n")) != "":
        name, _, value = text.partition(":")
        headers.append((name, value.strip()))
    by_name = {name.lower(): value for name, value in headers}
    body = b""
    if "chunked" in by_name.get("transfer-encoding", ""):
        while size := int((await reader.readline()).strip(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    elif "content-length" in by_name:
        body = await reader.readexactly(int(by_name["content-length"]))
    return SeenRequest(method, path, tuple(headers), body)


@asynccontextmanager
async def run_stub() -> AsyncIterator[Stub]:
    """A stub on a free port until the context ends."""
    async with serve_stub(Stub()) as stub:
        yield stub


@asynccontextmanager
async def serve_stub(stub: _Stub) -> AsyncIterator[_Stub]:
    """Serve a stub on a free port until the context ends."""
    server = await asyncio.start_server(stub.serve, "127.0.0.1", 0, limit=1 << 26)
    stub.port = server.sockets[0].getsockname()[1]
    try:
        yield stub
    finally:
        server.close()
