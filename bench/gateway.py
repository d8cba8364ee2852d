"""What the gateway adds to a request: time, CPU and memory, beside direct calls and other proxies.

    python bench/gateway.py
    python bench/gateway.py --peer "litellm=/path/to/bin/litellm --config {folder}/litellm.yaml --port {port}"

The upstream is a stub that answers at once. Every request is the next one of its conversation, so the
gateway decodes, recognises and checks it as in earnest. "lamina, off" is the same gateway with
`x-lamina: off`: its HTTP server and client alone. Each proxy is a process of its own; its CPU is what the
system counted for it. Times depend on the machine and on who else uses it, so the table also has the ratio
to one `orjson.loads` and `dumps` of the same body, measured in the same run. `{port}`, `{url}` and `{folder}`
in a peer's command are its port, the stub's address, and a folder with a configuration for LiteLLM.
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

CONNECTIONS = (1, 16, 64)
TICK = os.sysconf("SC_CLK_TCK")

STUB = """
import asyncio, sys
try:
    import uvloop
    run = uvloop.run
except ImportError:
    run = asyncio.run
BODY = (b'{"id":"c","object":"chat.completion","created":1,"model":"gpt-5","choices":[{"index":0,'
        b'"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":5000,"completion_tokens":1,"total_tokens":5001,'
        b'"prompt_tokens_details":{"cached_tokens":4000}}}')
HEAD = b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(BODY)
async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            lines = head.lower().split(b"\\r\\n")
            for line in lines:
                if line.startswith(b"content-length:"):
                    await reader.readexactly(int(line[15:]))
            if b"transfer-encoding: chunked" in lines:
                while int((await reader.readline()).strip() or b"0", 16):
                    pass
            writer.write(HEAD + BODY)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), limit=1 << 26)
    async with server:
        await server.serve_forever()
run(main())
"""

LITELLM = """\
general_settings: {{dangerously_permit_weak_or_unset_master_key: true}}
model_list:
  - model_name: gpt-5
    litellm_params: {{model: openai/gpt-5, api_base: "{url}/v1", api_key: none}}
"""


class Row(NamedTuple):
    """One proxy under one load. Times are milliseconds; `cpu` is the proxy's, for one request."""

    name: str
    size: str
    connections: int
    p50: float
    p99: float
    rate: float
    cpu: float
    memory: float


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
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file as well")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.requests = 8
        arguments.sizes = "5k"
    with tempfile.TemporaryDirectory() as folder:
        run_all(arguments, Path(folder))


def run_all(arguments: argparse.Namespace, folder: Path) -> None:
    stub_port = free_port()
    url = f"http://127.0.0.1:{stub_port}"
    (folder / "litellm.yaml").write_text(LITELLM.format(url=url))
    commands = {"lamina": lamina_command(folder, url)}
    for peer in arguments.peer:
        name, _, command = peer.partition("=")
        commands[name] = command
    sizes = arguments.sizes.split(",")
    bodies = {size: make_bodies(*SIZES[size]) for size in sizes}
    rows: list[Row] = []
    with running([sys.executable, "-c", STUB, str(stub_port)], stub_port):
        connections = CONNECTIONS[:1] if arguments.quick else CONNECTIONS
        load = Load(bodies, connections, arguments.requests)
        rows += measure("direct", stub_port, None, load)
        for name, command in commands.items():
            port = free_port()
            words = shlex.split(command.format(port=port, url=url, folder=folder))
            began = time.perf_counter()
            with running(words, port) as process:
                print(f"{name}: ready after {time.perf_counter() - began:.2f} s", flush=True)
                rows += measure(name, port, process.pid, load)
                if name == "lamina":
                    rows += measure("lamina, off", port, process.pid, load)
    json_costs = {size: json_cost(bodies[size][-1]) for size in sizes}
    print_table(rows, json_costs)
    if arguments.json:
        figures = {"rows": [row._asdict() for row in rows], "json": json_costs}
        arguments.json.write_bytes(orjson.dumps(figures))


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
        text = f"line {step} of some output, as tools write it\n" * (size // 43)
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{step}", "content": text})
        bodies.append(orjson.dumps({"model": "gpt-5", "max_tokens": 1000, "messages": messages}))
    return bodies[steps // 2 :]


def measure(name: str, port: int, pid: int | None, load: Load) -> list[Row]:
    requests = load.requests
    rows: list[Row] = []
    for size, conversation in load.bodies.items():
        for connections in load.connections:
            headers = {"x-lamina": "off"} if name.endswith("off") else {}
            asyncio.run(send_all(port, conversation, connections, connections * 4, headers))
            cpu_before = cpu_seconds(pid)
            began = time.perf_counter()
            times = asyncio.run(send_all(port, conversation, connections, requests, headers))
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
            )
            rows.append(row)
    return rows


async def send_all(
    port: int, bodies: list[bytes], connections: int, requests: int, more_headers: dict[str, str]
) -> list[float]:
    """The seconds that each request took, with so many of them at a time."""
    times: list[float] = []
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    headers = {"content-type": "application/json", "authorization": "Bearer none"} | more_headers

    async def send(worker: int, client: aiohttp.ClientSession) -> None:
        for number in range(worker, requests, connections):
            cycle, place = divmod(number // connections, len(bodies))
            body = bodies[place]
            own = headers | {"x-session-id": f"ses_{connections}_{worker}_{cycle}"}
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


def print_table(rows: list[Row], json_costs: dict[str, float]) -> None:
    direct = {(row.size, row.connections): row for row in rows if row.name == "direct"}
    print("| proxy | tokens | conns | p50 ms | added | p99 ms | req/s | CPU ms | x JSON | MB |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for row in rows:
        added = row.p50 - direct[(row.size, row.connections)].p50
        ratio = row.cpu / json_costs[row.size]
        print(
            f"| {row.name} | {row.size} | {row.connections} | {row.p50:.2f} | {added:.2f} | {row.p99:.2f} | "
            f"{row.rate:.0f} | {row.cpu:.2f} | {ratio:.1f} | {row.memory:.0f} |"
        )
    for size, cost in json_costs.items():
        print(f"one orjson.loads and dumps of the {size} body: {cost:.3f} ms of CPU")


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
    """CPU seconds of a process and of the children that it has waited for."""
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:13]) / TICK


def memory_mebibytes(pid: int | None) -> float:
    if pid is None:
        return 0.0
    pages = int(Path(f"/proc/{pid}/statm").read_text("utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


if __name__ == "__main__":
    main()
