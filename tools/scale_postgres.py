"""Two gateways over one PostgreSQL with a standby: one gateway is killed, then the primary.

    python -m tools.scale_postgres [--conversations N] [--steps N] [--json FILE]

Clients send conversations that grow, by turns through both gateways. Each gateway runs in a network namespace
of its own, or on a loopback address of its own where namespaces are not allowed. One gateway is killed and
started again, then the primary is killed and its standby promoted. A client that gets no answer tries the
other gateway. It fails if a request has no answer in the end, if one was sent in two versions, if the bytes
differ from those of a gateway that nothing happened to, or if a conversation that was cut is stored twice.
One that was not cut yet may be: a gateway saves it a moment later, and another may not find it before. It
also fails if no request was under way between a fault and its end: then nothing was tried.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from lamina.conversations.store import decode_state
from lamina.core.values import Budget
from lamina.stores import Where, open_postgres
from lamina.stores.port import OwnName
from tests.gateway.growing import dump, messages_request
from tests.gateway.running import open_client, run_gateway, settings_for
from tests.gateway.upstream_stub import Stub, run_stub
from tests.servers.postgres import Server, postgres
from tests.servers.standby import promote, run_standby, url_of_both

PORT = 4949
PAUSE = 0.1
"""Seconds before a client tries again."""

GATEWAY_KILLED = "gateway killed"
PRIMARY_KILLED = "primary killed"
FAULTS = (GATEWAY_KILLED, PRIMARY_KILLED)

BEFORE_FAILOVER = 0.6
"""The share of the requests that are answered before the primary is killed."""

MOST_ATTEMPTS = 1_200
UPSTREAM = {"budget": Budget(window=8_000, reserve=500)}
SETTINGS = """
host = "{host}"
hosts = ["{host}"]
port = {port}
store = "{store}"

[upstreams.claude]
url = "{url}"
profile = "anthropic"
policy.budget = {{ window = 8000, reserve = 500 }}
policy.breakpoints = "keep"
"""


class Place(NamedTuple):
    """Where a gateway runs: its address, that of the upstream seen from there, and how to start it there."""

    address: str
    upstream: str
    prefix: tuple[str, ...]
    port: int = PORT


class Run:
    """State: what the clients saw."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.allowed = total
        self.begun = 0
        self.answered = 0
        self.lost = 0
        self.failures: list[float] = []
        self.waits: list[tuple[float, float]] = []
        self.faults: dict[str, float] = {}
        self.mended: dict[str, float] = {}

    async def wait_for(self, share: float) -> None:
        while self.answered < share * self.total:  # noqa: ASYNC110 - many tasks answer
            await asyncio.sleep(0.02)

    async def take_turn(self) -> None:
        """Wait until one more request may begin."""
        while self.begun >= self.allowed:  # noqa: ASYNC110 - another task allows more
            await asyncio.sleep(0.02)
        self.begun += 1

    def count_met(self, fault: str) -> int:
        """How many requests were under way at some time between a fault and its end."""
        begun = self.faults[fault]
        end = self.mended.get(fault, float("inf"))
        return sum(start <= end and begun <= start + seconds for start, seconds in self.waits)

    def describe_fault(self, fault: str) -> dict[str, float]:
        """From a fault to the next one: attempts that failed, until when, and the longest wait."""
        begun = self.faults[fault]
        end = min((at for at in self.faults.values() if at > begun), default=float("inf"))
        failures = [at - begun for at in self.failures if begun <= at < end]
        waits = [seconds for at, seconds in self.waits if begun <= at + seconds and at < end]
        return {
            "requests_that_met_it": self.count_met(fault),
            "failed_attempts": len(failures),
            "last_failure_after_s": round(max(failures, default=0.0), 1),
            "longest_wait_s": round(max(waits, default=0.0), 1),
        }


class GatewayAt:
    """`lamina serve` at one place, with its log in a file if one is named."""

    def __init__(
        self,
        place: Place,
        settings: Path,
        token: str,
        *,
        variables: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        self.url = f"http://{place.address}:{place.port}"
        self._command = [*place.prefix, sys.executable, "-m", "lamina", "serve", "--settings", str(settings)]
        self._environment = os.environ | {"LAMINA_GATEWAY_TOKEN": token} | dict(variables or {})
        self._log = log or Path(os.devnull)
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - it starts at once
                self._command, env=self._environment, stderr=log, start_new_session=True
            )
        async with open_client() as client:
            for _ in range(1_200):
                await asyncio.sleep(0.05)
                if self._process.poll() is not None:  # another server may answer at its address
                    break
                with contextlib.suppress(aiohttp.ClientError):
                    async with client.get(f"{self.url}/readyz") as answer:
                        if answer.status == 200:
                            return
        raise RuntimeError(f"the gateway at {self.url} did not start; its log is {self._log}")

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


def main() -> int:
    options = _read_options()
    with tempfile.TemporaryDirectory(prefix="lamina-scale-") as name, _open_places() as places:
        figures = asyncio.run(measure(Path(name), places, options.conversations, options.steps))
    figures["namespaces"] = bool(places[0].prefix)
    print(json.dumps(figures, indent=1))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    complaints = list_complaints(figures)
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return int(bool(complaints))


def list_complaints(figures: dict[str, Any]) -> list[str]:
    """What went wrong, or was not tried at all."""
    wanted = {"lost": 0, "two_versions": 0, "other_bytes": 0, "stored_cut": figures["conversations"]}
    complaints = [
        f"{name} is {figures[name]}, and should be {value}"
        for name, value in wanted.items()
        if figures[name] != value
    ]
    unmet = [fault for fault in FAULTS if not figures["faults"].get(fault, {}).get("requests_that_met_it")]
    advice = "give more --conversations or --steps"
    return [*complaints, *(f"no request met this fault: {fault}; {advice}" for fault in unmet)]


async def measure(
    folder: Path, places: tuple[Place, Place], conversations: int, steps: int
) -> dict[str, Any]:
    twin = await run_twin(folder, conversations, steps)
    token = secrets.token_hex(8)
    with postgres() as primary, run_standby(primary) as standby:
        store = url_of_both(primary, standby)
        async with _run_upstream() as stub:
            gateways = _make_gateways(folder, places, store, stub, token)
            run = Run(conversations * steps)
            try:
                for gateway in gateways:
                    await gateway.start()
                trouble = asyncio.ensure_future(make_trouble(run, gateways[1], primary, standby))
                await asyncio.gather(
                    *(converse(run, gateways, token, number, steps) for number in range(conversations))
                )
                await trouble
            finally:
                for gateway in gateways:
                    gateway.kill()
        stored, stored_cut = await _count_stored(store)
    versions = _bodies_by_step(stub)
    cut = sum(twin[step] != dump(_request(*step)) for step in twin)
    return {
        "conversations": conversations,
        "requests": run.total,
        "cut_or_after_a_cut": cut,
        "lost": run.lost,
        "two_versions": sum(len(set(bodies)) > 1 for bodies in versions.values()),
        "sent_again": sum(len(bodies) - 1 for bodies in versions.values()),
        "other_bytes": sum(bodies[-1] != twin[step] for step, bodies in versions.items()),
        "stored": stored,
        "stored_cut": stored_cut,
        "longest_wait_s": round(max(seconds for _, seconds in run.waits), 1),
        "faults": {name: run.describe_fault(name) for name in run.faults},
    }


async def run_twin(folder: Path, conversations: int, steps: int) -> dict[tuple[int, int], bytes]:
    """What one gateway sends for the same conversations if nothing happens to it."""
    async with run_stub() as stub:
        settings = settings_for(stub, folder / "twin.db", upstream=UPSTREAM)
        async with run_gateway(settings) as gateway, open_client() as client:
            for number in range(conversations):
                for step in range(steps):
                    headers = {"x-place": f"{number} {step}"}
                    body = dump(_request(number, step))
                    async with client.post(
                        f"{gateway.url}/v1/messages", data=body, headers=headers
                    ) as answer:
                        await answer.read()
        return {step: bodies[-1] for step, bodies in _bodies_by_step(stub).items()}


async def converse(run: Run, gateways: list[GatewayAt], token: str, number: int, steps: int) -> None:
    async with open_client() as client:
        for step in range(steps):
            headers = {"x-place": f"{number} {step}", "authorization": f"Bearer {token}"}
            body = dump(_request(number, step))
            await run.take_turn()
            begun = time.monotonic()
            for attempt in range(MOST_ATTEMPTS):
                url = gateways[(number + step + attempt) % 2].url
                if await _post(client, f"{url}/v1/messages", body, headers):
                    run.waits.append((begun, time.monotonic() - begun))
                    run.answered += 1
                    break
                run.failures.append(time.monotonic())
                await asyncio.sleep(PAUSE)
            else:
                run.lost += 1
                run.answered += 1


async def make_trouble(run: Run, gateway: GatewayAt, primary: Server, standby: Server) -> None:
    """Kill a gateway, and then the primary.

    Four in ten requests may begin only when the primary is dead. A gateway that starts slowly would else come
    back when all of them are answered, and nothing would meet the second fault.
    """
    run.allowed = int(BEFORE_FAILOVER * run.total)
    try:
        await _make_trouble(run, gateway, primary, standby)
    finally:
        run.allowed = run.total


async def _make_trouble(run: Run, gateway: GatewayAt, primary: Server, standby: Server) -> None:
    await run.wait_for(0.25)
    run.faults[GATEWAY_KILLED] = time.monotonic()
    gateway.kill()
    await run.wait_for(0.4)
    await gateway.start()
    run.mended[GATEWAY_KILLED] = time.monotonic()
    await run.wait_for(run.allowed / run.total)
    run.faults[PRIMARY_KILLED] = time.monotonic()
    await asyncio.to_thread(primary.kill)
    run.allowed = run.total
    await asyncio.sleep(1)  # somebody has to notice
    await asyncio.to_thread(promote, standby)
    run.mended[PRIMARY_KILLED] = time.monotonic()


async def _count_stored(url: str) -> tuple[int, int]:
    """The conversations in the store, and those of them that were cut."""
    async with open_postgres(url) as store:
        place = OwnName("lamina.conversations/default")
        listed = await store.list(place)
        pages = [await store.read(Where(place, each.conversation), last=0) for each in listed]
    return len(listed), sum(decode_state(page.head.state).was_cut for page in pages)


def _request(number: int, step: int) -> dict[str, Any]:
    return messages_request(step, task=f"Task {number}.")


async def _post(client: aiohttp.ClientSession, url: str, body: bytes, headers: dict[str, str]) -> bool:
    try:
        async with client.post(url, data=body, headers=headers) as answer:
            text = await answer.text()
            if answer.status in (400, 401, 403, 404, 421):
                raise RuntimeError(f"the gateway refuses the request: {text}")
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False


def _bodies_by_step(stub: Stub) -> dict[tuple[int, int], list[bytes]]:
    """What the upstream got for each step of each conversation: more than once, if a client tried again."""
    bodies: defaultdict[tuple[int, int], list[bytes]] = defaultdict(list)
    for request in stub.seen:
        place = request.header_map.get("x-place", "")
        if place:
            number, step = place.split()
            bodies[int(number), int(step)].append(request.body)
    return bodies


@asynccontextmanager
async def _run_upstream() -> AsyncIterator[Stub]:
    """An upstream that the gateways reach from their namespaces, too."""
    stub = Stub()
    server = await asyncio.start_server(stub.serve, "0.0.0.0", 0, limit=1 << 26)  # noqa: S104 - for this run
    stub.port = server.sockets[0].getsockname()[1]
    try:
        yield stub
    finally:
        server.close()
        await asyncio.sleep(0.2)  # connections of gateways that were killed end


def _make_gateways(
    folder: Path, places: tuple[Place, Place], store: str, stub: Stub, token: str
) -> list[GatewayAt]:
    gateways = []
    for place in places:
        url = f"http://{place.upstream}:{stub.port}"
        settings = folder / f"{place.address}.toml"
        settings.write_text(SETTINGS.format(host=place.address, port=PORT, store=store, url=url))
        gateways.append(GatewayAt(place, settings, token))
    return gateways


@contextmanager
def _open_places() -> Iterator[tuple[Place, Place]]:
    """Two namespaces, each joined to this one by a cable of its own; else two loopback addresses."""
    with contextlib.ExitStack() as stack:
        try:
            yield stack.enter_context(_open_namespace(1)), stack.enter_context(_open_namespace(2))
        except (OSError, subprocess.CalledProcessError):
            yield Place("127.0.0.2", "127.0.0.1", ()), Place("127.0.0.3", "127.0.0.1", ())


@contextmanager
def _open_namespace(number: int) -> Iterator[Place]:
    name = f"lamina{os.getpid()}-{number}"
    here, there = f"10.201.{number}.1", f"10.201.{number}.2"
    _ip("netns", "add", name)
    try:
        _ip("link", "add", f"lam{number}a", "type", "veth", "peer", "name", f"lam{number}b", "netns", name)
        _ip("addr", "add", f"{here}/24", "dev", f"lam{number}a")
        _ip("link", "set", f"lam{number}a", "up")
        _ip("-n", name, "addr", "add", f"{there}/24", "dev", f"lam{number}b")
        _ip("-n", name, "link", "set", f"lam{number}b", "up")
        _ip("-n", name, "link", "set", "lo", "up")
        yield Place(there, here, ("ip", "netns", "exec", name))
    finally:
        _ip("netns", "delete", name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)  # noqa: S607 - where the system has it


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--conversations", type=int, default=8)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
