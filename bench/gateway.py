"""What the gateway adds to a request: CPU, time and memory, beside a plain proxy.

    python bench/gateway.py
    python bench/gateway.py --window 16000                         a window in which conversations are cut
    python bench/gateway.py --store postgresql://user@host/database

The upstream is a stub that answers at once. Every request is the next one of its conversation, from the first
one on, so the gateway decodes, recognises and checks it as in earnest. No two conversations have the same
contents. "floor" is the least that a proxy of these libraries does: uvicorn reads the body and aiohttp sends
it on. Each proxy is a process of its own; its CPU is what the system counted for it. Both run, and
take turns, so that whoever else uses the machine disturbs them alike.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import orjson

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.samples import QUICK_HELP

SIZES = {"1k": (4, 900), "5k": (20, 900), "100k": (40, 9_000)}
"""Tool calls and bytes of each result, so that the last request has about so many tokens."""

MARK = b"conversation"
"""Stands in the text of every message, and is replaced by a number in each conversation."""

WARM_UP = 4
"""Conversations on each connection that are not measured."""

TURNS = 8
"""How often the proxies take turns in one row."""

CPU_CLOCK = 2
"""The kind of clock that counts the CPU of a process, as Linux numbers it."""

HEADERS = {
    "content-type": "application/json",
    "authorization": "Bearer none",
    "x-api-key": "none",
    "x-goog-api-key": "none",
    "anthropic-version": "2023-06-01",
}

STUB = """
import asyncio, sys
try:
    import uvloop
    run = uvloop.run
except ImportError:
    run = asyncio.run
CHAT = b'{"id":"c","object":"chat.completion","created":1,"model":"gpt-5","choices":[{"index":0,' \\
    b'"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,' \\
    b'"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":%d}}}'
MESSAGES = b'{"id":"m","type":"message","role":"assistant","model":"claude-sonnet-5","content":' \\
    b'[{"type":"text","text":"ok"}],"stop_reason":"end_turn","usage":{"input_tokens":%d,' \\
    b'"cache_read_input_tokens":%d,"cache_creation_input_tokens":0,"output_tokens":1}}'
RESPONSES = b'{"id":"r","object":"response","status":"completed","model":"gpt-5","output":[' \\
    b'{"type":"message","id":"m","role":"assistant","status":"completed","content":[' \\
    b'{"type":"output_text","text":"ok","annotations":[]}]}],"usage":{"input_tokens":%d,' \\
    b'"input_tokens_details":{"cached_tokens":%d},"output_tokens":1}}'
GEMINI = b'{"candidates":[{"content":{"role":"model","parts":[{"text":"ok"}]},"finishReason":"STOP"}],' \\
    b'"usageMetadata":{"promptTokenCount":%d,"candidatesTokenCount":1,"cachedContentTokenCount":%d}}'
OLLAMA = b'{"model":"gpt-oss:20b","message":{"role":"assistant","content":"ok"},"done":true,' \\
    b'"done_reason":"stop","prompt_eval_count":%d,"eval_count":1,"cached":%d}'
BODIES = {b"/v1/messages": MESSAGES, b"/v1/responses": RESPONSES, b"/api/chat": OLLAMA, b"/v1beta": GEMINI}
HEAD = b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n"
async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            lines = head.lower().split(b"\\r\\n")
            size = 0
            for line in lines:
                if line.startswith(b"content-length:"):
                    size = int(line[15:])
                    await reader.readexactly(size)
            if b"transfer-encoding: chunked" in lines:
                while piece := int((await reader.readline()).strip() or b"0", 16):
                    await reader.readexactly(piece + 2)
                    size += piece
                await reader.readline()
            tokens = size // 4
            path = head.split(b" ", 2)[1]
            template = next((body for start, body in BODIES.items() if path.startswith(start)), CHAT)
            uncached = tokens if template is not MESSAGES else tokens // 10
            body = template % (uncached, tokens * 9 // 10)
            writer.write(HEAD % len(body) + body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), limit=1 << 26)
    async with server:
        await server.serve_forever()
run(main())
"""

FLOOR = """
import sys
import aiohttp, uvicorn
UPSTREAM = sys.argv[2]
DROPPED = (b"host", b"content-length", b"date", b"server", b"transfer-encoding", b"connection")
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await run_lifespan(receive, send)
        return
    pieces = []
    while True:
        message = await receive()
        pieces.append(message["body"])
        if not message.get("more_body"):
            break
    headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"] if k not in DROPPED}
    async with session.post(UPSTREAM + scope["path"], data=b"".join(pieces), headers=headers) as answer:
        passed = [(k, v) for k, v in answer.raw_headers if k.lower() not in DROPPED[2:]]
        await send({"type": "http.response.start", "status": answer.status, "headers": passed})
        async for piece in answer.content.iter_any():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
async def run_lifespan(receive, send):
    global session
    await receive()
    session = aiohttp.ClientSession(
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None),
        connector=aiohttp.TCPConnector(limit=0),
    )
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await session.close()
    await send({"type": "lifespan.shutdown.complete"})
options = {"log_level": "warning", "access_log": False, "http": "httptools", "ws": "none"}
uvicorn.run(app, port=int(sys.argv[1]), proxy_headers=False, **options)
"""


class Kind(NamedTuple):
    """One kind of request: where it goes, and how a call of a tool makes its conversation longer."""

    path: str
    begin: dict[str, Any]
    field: str
    grow: Callable[[int, str], list[Any]]
    marks: bool = False


def _grow_chat(step: int, text: str) -> list[Any]:
    function = {"name": "read", "arguments": f'{{"path": "file_{step}.py"}}'}
    call = {"id": f"call_{step}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{step}", "content": text},
    ]


def _grow_messages(step: int, text: str) -> list[Any]:
    call = {"type": "tool_use", "id": f"call_{step}", "name": "read", "input": {"path": f"file_{step}.py"}}
    result = {"type": "tool_result", "tool_use_id": f"call_{step}", "content": text}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def _grow_responses(step: int, text: str) -> list[Any]:
    call = {"type": "function_call", "call_id": f"call_{step}", "name": "read"}
    return [
        call | {"arguments": f'{{"path": "file_{step}.py"}}'},
        {"type": "function_call_output", "call_id": f"call_{step}", "output": text},
    ]


def _grow_gemini(step: int, text: str) -> list[Any]:
    call = {"functionCall": {"name": "read", "args": {"path": f"file_{step}.py"}}}
    result = {"functionResponse": {"name": "read", "response": {"output": text}}}
    return [{"role": "model", "parts": [call]}, {"role": "user", "parts": [result]}]


def _grow_ollama(step: int, text: str) -> list[Any]:
    call = {"function": {"name": "read", "arguments": {"path": f"file_{step}.py"}}}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_name": "read", "content": text},
    ]


_USER = {"role": "user", "content": "Go."}
_TOOL = {"name": "read", "description": "Read a file", "input_schema": {"type": "object"}}
_CLAUDE = {"model": "claude-sonnet-5", "max_tokens": 1000, "tools": [_TOOL], "messages": [_USER]}
_CHAT = [{"role": "system", "content": "Be brief."}, _USER]
KINDS = {
    "chat": Kind(
        "/v1/chat/completions",
        {"model": "gpt-5", "max_tokens": 1000, "messages": _CHAT},
        "messages",
        _grow_chat,
    ),
    "responses": Kind(
        "/v1/responses", {"model": "gpt-5", "store": False, "input": [_USER]}, "input", _grow_responses
    ),
    "marked": Kind("/v1/messages", _CLAUDE, "messages", _grow_messages, marks=True),
    "unmarked": Kind("/v1/messages", _CLAUDE, "messages", _grow_messages),
    "gemini": Kind(
        "/v1beta/models/gemini-2.5-pro:generateContent",
        {"contents": [{"role": "user", "parts": [{"text": "Go."}]}]},
        "contents",
        _grow_gemini,
    ),
    "ollama": Kind(
        "/api/chat", {"model": "gpt-oss:20b", "stream": False, "messages": _CHAT}, "messages", _grow_ollama
    ),
}


class Load(NamedTuple):
    """What every proxy is sent in one row: a growing conversation, on so many connections."""

    kind: str
    size: str
    connections: int

    def make_bodies(self) -> list[bytes]:
        """The requests of a conversation, each with one call of a tool more than the one before it."""
        kind = KINDS[self.kind]
        steps, size = SIZES[self.size]
        messages = list(kind.begin[kind.field])
        bodies: list[bytes] = []
        for step in range(steps):
            text = f"line {step} of {MARK.decode()}, as tools write it\n" * (size // 43)
            messages += kind.grow(step, text)
            sent = messages
            if kind.marks:
                block = {**messages[-1]["content"][0], "cache_control": {"type": "ephemeral"}}
                sent = [*messages[:-1], {"role": "user", "content": [block]}]
            bodies.append(orjson.dumps(kind.begin | {kind.field: sent}))
        return bodies


class Proxy(NamedTuple):
    name: str
    port: int
    pid: int


class Row(NamedTuple):
    """One proxy under one load. Times are milliseconds; `cpu` is the proxy's, for one request."""

    proxy: str
    kind: str
    size: str
    connections: int
    p50: float
    p99: float
    cpu: float
    memory: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=640, help="for each row (default: 640)")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of requests (default: all)")
    parser.add_argument("--sizes", default=",".join(SIZES), help="of conversations (default: all)")
    parser.add_argument("--connections", default="1,16", help="at a time (default: 1,16)")
    parser.add_argument("--store", default="", help="of the gateway (default: a new SQLite file)")
    parser.add_argument("--window", type=int, help="of all models (default: their own, and nothing is cut)")
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file as well")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.requests = 8
        arguments.kinds = "chat"
        arguments.sizes = "1k"
        arguments.connections = "1"
    with tempfile.TemporaryDirectory() as folder:
        run_all(arguments, Path(folder))


def run_all(arguments: argparse.Namespace, folder: Path) -> None:
    stub_port = free_port()
    url = f"http://127.0.0.1:{stub_port}"
    rows: list[Row] = []
    with ExitStack() as stack:
        stack.enter_context(running([sys.executable, "-c", STUB, str(stub_port)], stub_port))
        proxies: list[Proxy] = []
        for name, command in list_commands(arguments, folder, url).items():
            port = free_port()
            words = shlex.split(command.format(port=port, url=url, folder=folder))
            process = stack.enter_context(running(words, port))
            print(f"{name}: {cpu_seconds(process.pid):.2f} s of CPU until it was ready", flush=True)
            proxies.append(Proxy(name, port, process.pid))
        print("| proxy | kind | tokens | conns | p50 ms | p99 ms | CPU ms | x floor | MB |")
        print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
        for size in arguments.sizes.split(","):
            for kind in arguments.kinds.split(","):
                for connections in map(int, arguments.connections.split(",")):
                    rows += measure(proxies, Load(kind, size, connections), arguments.requests)
    if arguments.json:
        arguments.json.write_bytes(orjson.dumps({"rows": [row._asdict() for row in rows]}))


def list_commands(arguments: argparse.Namespace, folder: Path, url: str) -> dict[str, str]:
    (folder / "floor.py").write_text(FLOOR)
    settings = [f'store = "{arguments.store or folder / "gateway.db"}"', "[policy]"]
    if arguments.window:
        settings.append(f"budget = {arguments.window}")
    for profile in ("openai", "anthropic", "gemini", "ollama"):
        settings += [f"[upstreams.{profile}]", f'url = "{url}"', f'profile = "{profile}"']
    (folder / "gateway.toml").write_text("\n".join(settings), "utf-8")
    return {
        "floor": f"{sys.executable} {folder}/floor.py {{port}} {{url}}",
        "lamina": f"{sys.executable} -m lamina serve --settings {folder}/gateway.toml --port {{port}}",
    }


def measure(proxies: list[Proxy], load: Load, requests: int) -> list[Row]:
    bodies = load.make_bodies()
    for proxy in proxies:
        asyncio.run(send_all(proxy, load, bodies, range(WARM_UP * load.connections), "warm"))
    times: dict[str, list[float]] = {proxy.name: [] for proxy in proxies}
    cpu = dict.fromkeys(times, 0.0)
    step = max(requests // TURNS, 1)
    for start in range(0, requests, step):
        for proxy in proxies:
            before = cpu_seconds(proxy.pid)
            numbers = range(start, min(start + step, requests))
            times[proxy.name] += asyncio.run(send_all(proxy, load, bodies, numbers, "run"))
            cpu[proxy.name] += cpu_seconds(proxy.pid) - before
    rows: list[Row] = []
    for proxy in proxies:
        sorted_times = sorted(times[proxy.name])
        p99 = sorted_times[min(len(sorted_times) - 1, round(len(sorted_times) * 0.99))]
        row = Row(
            proxy.name,
            *load,
            statistics.median(sorted_times) * 1000,
            p99 * 1000,
            cpu[proxy.name] / requests * 1000,
            memory_mebibytes(proxy.pid),
        )
        ratio = cpu[proxy.name] / cpu[proxies[0].name]
        print(
            f"| {row.proxy} | {row.kind} | {row.size} | {row.connections} | {row.p50:.2f} | {row.p99:.2f} | "
            f"{row.cpu:.2f} | {ratio:.1f} | {row.memory:.0f} |",
            flush=True,
        )
        rows.append(row)
    return rows


async def send_all(proxy: Proxy, load: Load, bodies: list[bytes], numbers: range, name: str) -> list[float]:
    """The seconds that each request took, with so many of them at a time.

    Each connection has a conversation that grows, and begins another one when it has reached its size.
    """
    times: list[float] = []
    url = f"http://127.0.0.1:{proxy.port}{KINDS[load.kind].path}"
    connections = load.connections

    async def send(worker: int, client: aiohttp.ClientSession) -> None:
        for number in numbers[worker::connections]:
            cycle, place = divmod(number // connections, len(bodies))
            conversation = f"{name}_{load.kind}_{load.size}_{connections:02}_{worker:02}_{cycle:06}"
            body = bodies[place].replace(MARK, conversation.encode())
            headers = HEADERS | {"x-session-id": conversation}
            began = time.perf_counter()
            async with client.post(url, data=body, headers=headers) as answer:
                await answer.read()
                if answer.status != 200:
                    raise RuntimeError(f"{answer.status}: {(await answer.text())[:200]}")
            times.append(time.perf_counter() - began)

    connector = aiohttp.TCPConnector(limit=connections)
    async with aiohttp.ClientSession(connector=connector) as client:
        await asyncio.gather(*(send(worker, client) for worker in range(connections)))
    return times


@contextmanager
def running(command: list[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process until the context ends, once its port answers."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"{command[0]} did not start") from None
                time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def cpu_seconds(pid: int | None) -> float:
    """CPU seconds of a process and its children.

    Linux has a clock for each process, with its number in the clock's. `/proc` counts in hundredths of a
    second, which is too coarse for a few requests.
    """
    return sum(time.clock_gettime((~process << 3) | CPU_CLOCK) for process in list_processes(pid))


def memory_mebibytes(pid: int | None) -> float:
    """The resident memory of a process and its children."""
    pages = 0
    for process in list_processes(pid):
        pages += int(Path(f"/proc/{process}/statm").read_text("utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def list_processes(pid: int | None) -> list[int]:
    """A process and its children, and theirs."""
    if pid is None:
        return []
    processes = [pid]
    for process in processes:
        for thread in Path(f"/proc/{process}/task").iterdir():
            children = (thread / "children").read_text("utf-8").split()
            processes += [int(child) for child in children]
    return processes


if __name__ == "__main__":
    main()
