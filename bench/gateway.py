"""What the gateway adds to a request: time, CPU and memory, beside direct calls and other proxies.

    python bench/gateway.py
    python bench/gateway.py --peer "litellm=/path/to/bin/litellm --config {folder}/litellm.yaml --port {port}"

The upstream is a stub that answers at once. Every request is the next one of its conversation, so the
gateway decodes, recognises and checks it as in earnest. No two conversations have the same contents.
"floor" is the least that a proxy of these libraries does: uvicorn reads the body and aiohttp sends it on.
Each proxy is a process of its own; its CPU is what the system counted for it. Times depend on the machine and
on who else uses it, so the table also has the ratio to one `orjson.loads` and `dumps` of the same body,
measured in the same run. `{port}`, `{url}` and `{folder}` in a peer's command are its port, the stub's
address, and a folder with a configuration for LiteLLM. A peer that is not installed is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
import orjson

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.samples import QUICK_HELP

SIZES = {"5k": (20, 900), "100k": (40, 9_000)}
"""Tool calls and bytes of each result, so that a conversation has about so many tokens."""

MARK = b"conversation"
"""Stands in the text of every message, and is replaced by a number in each conversation."""

WARM_UP = 2
"""Requests on each connection that are not measured."""

CPU_CLOCK = 2
"""The kind of clock that counts the CPU of a process, as Linux numbers it."""

STUB = """
import asyncio, sys
try:
    import uvloop
    run = uvloop.run
except ImportError:
    run = asyncio.run
BODY = (b'{"id":"c","object":"chat.completion","created":1,"model":"gpt-5","choices":[{"index":0,'
        b'"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":%d,"completion_tokens":1,"total_tokens":%d,'
        b'"prompt_tokens_details":{"cached_tokens":%d}}}')
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
            body = BODY % (tokens, tokens + 1, tokens * 9 // 10)
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

LITELLM = """\
general_settings: {{dangerously_permit_weak_or_unset_master_key: true}}
model_list:
  - model_name: gpt-5
    litellm_params: {{model: openai/gpt-5, api_base: "{url}/v1", api_key: none}}
"""


class Row(NamedTuple):
    """One proxy under one load. Times are milliseconds; `cpu` is the proxy's, for one request.

    `json` is the CPU of one `orjson.loads` and `dumps` of the body just before and after.
    """

    name: str
    size: str
    connections: int
    p50: float
    p99: float
    rate: float
    cpu: float
    memory: float
    json: float


class Load(NamedTuple):
    """What every proxy is sent: conversations by size, numbers of connections, and requests for each row."""

    bodies: dict[str, list[bytes]]
    connections: tuple[int, ...]
    requests: int


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND", help="another proxy")
    parser.add_argument("--requests", type=int, default=300, help="for each row (default: 300)")
    parser.add_argument("--sizes", default="5k,100k", help="of conversations (default: 5k,100k)")
    parser.add_argument("--connections", default="1,16,64", help="at a time (default: 1,16,64)")
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file as well")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.requests = 8
        arguments.sizes = "5k"
        arguments.connections = "1"
    with tempfile.TemporaryDirectory() as folder:
        run_all(arguments, Path(folder))


def run_all(arguments: argparse.Namespace, folder: Path) -> None:
    stub_port = free_port()
    url = f"http://127.0.0.1:{stub_port}"
    (folder / "litellm.yaml").write_text(LITELLM.format(url=url))
    (folder / "floor.py").write_text(FLOOR)
    commands = {
        "floor": f"{sys.executable} {folder}/floor.py {{port}} {{url}}",
        "lamina": lamina_command(folder, url),
    }
    for peer in arguments.peer:
        name, _, command = peer.partition("=")
        if shutil.which(shlex.split(command)[0]) is None:
            print(f"{name}: left out, {shlex.split(command)[0]} is not installed")
            continue
        commands[name] = command
    sizes = arguments.sizes.split(",")
    bodies = {size: make_bodies(*SIZES[size]) for size in sizes}
    rows: list[Row] = []
    with running([sys.executable, "-c", STUB, str(stub_port)], stub_port):
        connections = tuple(int(count) for count in arguments.connections.split(","))
        load = Load(bodies, connections, arguments.requests)
        rows += measure("direct", stub_port, None, load)
        for name, command in commands.items():
            port = free_port()
            words = shlex.split(command.format(port=port, url=url, folder=folder))
            try:
                rows += measure_proxy(name, words, port, load)
            except (aiohttp.ClientError, RuntimeError) as error:
                print(f"{name}: left out, {error}", flush=True)
    print_table(rows)
    if arguments.json:
        arguments.json.write_bytes(orjson.dumps({"rows": [row._asdict() for row in rows]}))


def lamina_command(folder: Path, url: str) -> str:
    file = folder / "gateway.toml"
    file.write_text(
        f'store = "{folder}/gateway.db"\n[upstreams.stub]\nurl = "{url}"\nprofile = "openai"\n', "utf-8"
    )
    return f"{sys.executable} -m lamina serve --settings {file} --port {{port}}"


def make_bodies(steps: int, size: int) -> list[bytes]:
    """The last requests of a conversation, each with one tool call more than the one before it."""
    messages: list[object] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go."}]
    bodies: list[bytes] = []
    for step in range(steps):
        function = {"name": "read", "arguments": f'{{"path": "file_{step}.py"}}'}
        call = {"id": f"call_{step}", "type": "function", "function": function}
        text = f"line {step} of {MARK.decode()}, as tools write it\n" * (size // 43)
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{step}", "content": text})
        bodies.append(orjson.dumps({"model": "gpt-5", "max_tokens": 1000, "messages": messages}))
    return bodies[steps // 2 :]


def measure_proxy(name: str, words: list[str], port: int, load: Load) -> list[Row]:
    """Start a proxy, say when it was ready, and measure it."""
    began = time.perf_counter()
    with running(words, port) as process:
        wall = time.perf_counter() - began
        print(f"{name}: ready after {wall:.2f} s, {cpu_seconds(process.pid):.2f} s of CPU", flush=True)
        return measure(name, port, process.pid, load)


def measure(name: str, port: int, pid: int | None, load: Load) -> list[Row]:
    requests = load.requests
    rows: list[Row] = []
    for size, conversation in load.bodies.items():
        for connections in load.connections:
            first = WARM_UP * connections
            asyncio.run(send_all(port, conversation, connections, range(first)))
            json_before = json_cost(conversation[-1])
            cpu_before = cpu_seconds(pid)
            began = time.perf_counter()
            measured = range(first, first + requests)
            times = asyncio.run(send_all(port, conversation, connections, measured))
            wall = time.perf_counter() - began
            cpu = (cpu_seconds(pid) - cpu_before) / requests * 1000
            times.sort()
            p99 = times[min(len(times) - 1, round(len(times) * 0.99))]
            row = Row(
                name,
                size,
                connections,
                statistics.median(times) * 1000,
                p99 * 1000,
                requests / wall,
                cpu,
                memory_mebibytes(pid),
                (json_before + json_cost(conversation[-1])) / 2,
            )
            rows.append(row)
            print(f"{name}, {size}, {connections} connections: {row.p50:.1f} ms", flush=True)
    return rows


async def send_all(port: int, bodies: list[bytes], connections: int, requests: range) -> list[float]:
    """The seconds that each request took, with so many of them at a time.

    Each connection has a conversation that grows, and begins another one when it has reached its size.
    """
    times: list[float] = []
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    headers = {"content-type": "application/json", "authorization": "Bearer none"}

    async def send(worker: int, client: aiohttp.ClientSession) -> None:
        for number in requests[worker::connections]:
            cycle, place = divmod(number // connections, len(bodies))
            name = f"{connections:02}_{worker:02}_{cycle:06}"
            body = bodies[place].replace(MARK, name.encode())
            own = headers | {"x-session-id": f"ses_{name}"}
            began = time.perf_counter()
            async with client.post(url, data=body, headers=own) as answer:
                await answer.read()
                if answer.status != 200:
                    raise RuntimeError(f"{answer.status}: {(await answer.text())[:200]}")
            times.append(time.perf_counter() - began)

    connector = aiohttp.TCPConnector(limit=connections)
    async with aiohttp.ClientSession(connector=connector) as client:
        await asyncio.gather(*(send(worker, client) for worker in range(connections)))
    return times


def json_cost(body: bytes) -> float:
    """Milliseconds of CPU for one `orjson.loads` and `dumps` of a body."""
    orjson.dumps(orjson.loads(body))
    began = time.process_time()
    for _ in range(200):
        orjson.dumps(orjson.loads(body))
    return (time.process_time() - began) * 5


def print_table(rows: list[Row]) -> None:
    direct = {(row.size, row.connections): row for row in rows if row.name == "direct"}
    print("| proxy | tokens | conns | p50 ms | added | p99 ms | req/s | CPU ms | JSON ms | x JSON | MB |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for row in rows:
        added = row.p50 - direct[(row.size, row.connections)].p50
        ratio = row.cpu / row.json
        print(
            f"| {row.name} | {row.size} | {row.connections} | {row.p50:.2f} | {added:.2f} | {row.p99:.2f} | "
            f"{row.rate:.0f} | {row.cpu:.2f} | {row.json:.3f} | {ratio:.1f} | {row.memory:.0f} |"
        )


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
