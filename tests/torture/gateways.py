"""Two gateways over one PostgreSQL, under clients of nine kinds, while everything around them fails.

Each client sends a conversation that grows past its window, by turns through both gateways, and tries again
where it gets no answer. Meanwhile gateways and the database are killed, the gateways' clock jumps, and the
disk of the database fills up. The upstream refuses what breaks a rule of its API. At the end of each
conversation the model recalls what was left out. What must hold:

- every request is answered in the end, and none of them breaks a rule;
- what was recalled comes back in full, and the client sees no recall;
- each line of a gateway's account is a call that the upstream answered, token for token. A call without a
  line was under way when its gateway was killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import aiohttp

from lamina.dialects import recognise
from lamina.fitting import translate
from tests.gateway.growing import chat_request, output
from tests.gateway.running import open_client
from tests.servers.ports import free_port
from tests.servers.postgres import Server, postgres
from tests.torture.clock import DECADE
from tests.torture.full import can_mount, mount
from tests.torture.outcome import Outcome, Tally
from tests.wrapped.scripted_api import ApiFailure, Call, Said, ScriptedApi, estimate_size, scripted_api
from tools.scale_postgres import GatewayAt, Place

STEPS = 24
SIZE = 2_000
CLIENTS = 8
FAULT_EVERY = 200
"""Answers between two faults."""

TOLD_EVERY = 5_000
PAUSE = 0.1
MOST_ATTEMPTS = 1_200
DISK = 2_000_000_000
JUMPS = (3_600.0, -3_600.0, DECADE, -DECADE, 0.0)
ANSWER = "Done."
LOOK_BACK = "Look back."
HANDLE = re.compile(r'recall[(=]\\*"([a-z0-9-]+)')
TASK = re.compile(r"Task (\d+)\.")

SETTINGS = """
host = "{host}"
hosts = ["{host}"]
port = {port}
store = "{store}"
"""
UPSTREAM = """
[upstreams.{profile}]
url = "{url}"
profile = "{profile}"
policy.budget = {{ window = 8000, reserve = 500 }}
"""
PROFILES = ("anthropic", "openai", "gemini", "ollama")

JUMPING_CLOCK = """
import os, pathlib, time
offset = pathlib.Path(os.environ["LAMINA_TORTURE_CLOCK"])
real, real_ns = time.time, time.time_ns
time.time = lambda: real() + float(offset.read_text())
time.time_ns = lambda: real_ns() + int(float(offset.read_text()) * 1e9)
"""
"""A `sitecustomize` for the gateways: their clock is off by what a file says."""


class Kind(NamedTuple):
    """How a client speaks."""

    dialect: str
    path: str
    model: str
    streams: bool


GEMINI = "/v1beta/models/gemini-3-pro"
KINDS = (
    Kind("anthropic", "/v1/messages", "claude-sonnet-5", streams=False),
    Kind("anthropic", "/v1/messages", "claude-sonnet-5", streams=True),
    Kind("openai_chat", "/v1/chat/completions", "gpt-5", streams=False),
    Kind("openai_chat", "/v1/chat/completions", "gpt-5", streams=True),
    Kind("openai_responses", "/v1/responses", "gpt-5", streams=False),
    Kind("openai_responses", "/v1/responses", "gpt-5", streams=True),
    Kind("gemini", f"{GEMINI}:generateContent", "gemini-3-pro", streams=False),
    Kind("gemini", f"{GEMINI}:streamGenerateContent?alt=sse", "gemini-3-pro", streams=True),
    Kind("ollama", "/api/chat", "qwen3", streams=False),
)


@cache
def write_request(kind: Kind, step: int) -> bytes:
    """The body of a step. The number of its conversation stands in for NUMBER."""
    request = chat_request(step, task="Task NUMBER.", size=SIZE)
    if step == STEPS - 1:
        request["messages"].append({"role": "user", "content": LOOK_BACK})
    body = dict(translate(request, to=kind.dialect, model=kind.model, budget=10_000_000).request)
    if kind.dialect == "gemini":
        del body["model"]
    else:
        body["stream"] = kind.streams
    if kind.dialect == "openai_chat" and kind.streams:
        body["stream_options"] = {"include_usage": True}  # without it, no stream says what it cost
    return json.dumps(body).encode()


class Upstream:
    """State: a strict API, what it answered, and what it found."""

    def __init__(self) -> None:
        self.sizes: Counter[int] = Counter()
        self.violations: list[str] = []
        self.cut = self.recalled = 0
        self._api: ScriptedApi | None = None
        self._in_full: dict[str, set[int]] = {}

    @contextmanager
    def serve(self) -> Iterator[str]:
        with scripted_api(self.answer, count_tokens=self.count) as api:
            self._api = api
            yield api.url

    def count(self, request: dict[str, Any]) -> int:
        """What the answer to a request is billed for."""
        size = estimate_size(request)
        self.sizes[size] += 1
        return size

    def answer(self, request: dict[str, Any]) -> Said:
        if self._api is not None:  # a long run must not keep every request
            self._api.requests.clear()
            self._api.answers.clear()
        problems = [violation.message for violation in recognise(request).wire.check(request)]
        if problems:
            self.violations.append(f"refused: {problems[0]}")
            raise ApiFailure(400)
        text = json.dumps(request)
        handles = HANDLE.findall(text)
        self.cut += bool(handles)
        if LOOK_BACK not in text or not handles:
            return [ANSWER]
        return self._look_back(text, handles)

    def _look_back(self, text: str, handles: list[str]) -> Said:
        """Recall the first things that were left out, and see that one of them stands in full then.

        Results are compared one by one: a recall may cost the room of another result.
        """
        number = TASK.findall(text)[0]
        in_full = {step for step in range(STEPS) if json.dumps(output(step, SIZE))[1:-1] in text}
        if text.count('"name": "recall"') < 2:  # the tool itself is one
            self._in_full[number] = in_full
            first_handles = list(dict.fromkeys(handles))[:3]
            return [
                Call("recall", {"key": handle}, f"look_{place}") for place, handle in enumerate(first_handles)
            ]
        self.recalled += 1
        if in_full <= self._in_full.get(number, set()):
            self.violations.append(f"conversation {number}: what was recalled did not come back")
        return [ANSWER]


class Rough:
    """State: one run, from the clients' side."""

    def __init__(self, requests: int, gateways: list[GatewayAt], token: str) -> None:
        self.conversations = max(len(KINDS), requests // STEPS)
        self.violations: list[str] = []
        self.answered = self.failed = self.kills = 0
        self.is_over = False
        self._gateways = gateways
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        self._numbers = iter(range(self.conversations))

    async def converse(self) -> None:
        """Send one conversation after the other, until there is none left."""
        async with open_client() as client:
            for number in self._numbers:
                for step in range(STEPS):
                    await self._send(client, number, step)

    async def _send(self, client: aiohttp.ClientSession, number: int, step: int) -> None:
        kind = KINDS[number % len(KINDS)]
        body = write_request(kind, step).replace(b"NUMBER", str(number).encode())
        for attempt in range(MOST_ATTEMPTS):
            url = self._gateways[(number + step + attempt) % 2].url
            status, text = await self._post(client, f"{url}{kind.path}", body)
            if status == 200:
                self.answered += 1
                if self.answered % TOLD_EVERY == 0:
                    print(f"{self.answered:,} requests answered", file=sys.stderr, flush=True)
                if ANSWER not in text or '"recall"' in text:
                    self.violations.append(f"{kind.dialect}, step {step}: answered {text[-200:]}")
                return
            if status and status < 500 and status != 429:
                self.violations.append(f"{kind.dialect}, step {step}: {status} {text[:200]}")
                return
            self.failed += 1
            await asyncio.sleep(PAUSE)
        self.violations.append(f"{kind.dialect}, step {step}: no answer")

    async def _post(self, client: aiohttp.ClientSession, url: str, body: bytes) -> tuple[int, str]:
        try:
            async with client.post(url, data=body, headers=self._headers) as answer:
                return answer.status, await answer.text()
        except (aiohttp.ClientError, TimeoutError, OSError):
            return 0, ""


class Trouble:
    """Everything that goes wrong, one thing after the other."""

    def __init__(
        self, run: Rough, gateways: list[GatewayAt], server: Server, clock: Path, tally: Tally
    ) -> None:
        self._run = run
        self._gateways = gateways
        self._server = server
        self._clock = clock
        self._tally = tally

    async def make(self, random_order: random.Random, *, fills_disk: bool) -> None:
        faults: list[tuple[str, Callable[[random.Random], Awaitable[None]]]] = [
            ("gateways killed", self._kill_gateway),
            ("databases killed", self._kill_database),
            ("jumps of the clock", self._jump),
        ]
        if fills_disk:
            faults.append(("full disks", self._fill_disk))
        while True:
            random_order.shuffle(faults)
            for name, make_fault in faults:
                if not await self._wait(FAULT_EVERY):
                    return
                await make_fault(random_order)
                self._tally.note(name)

    async def _wait(self, answers: int) -> bool:
        """Wait for so many answers. Returns whether the run goes on."""
        goal = self._run.answered + answers
        while self._run.answered < goal:
            if self._run.is_over:
                return False
            await asyncio.sleep(0.05)
        return True

    async def _kill_gateway(self, random_order: random.Random) -> None:
        gateway = random_order.choice(self._gateways)
        gateway.kill()
        self._run.kills += 1
        await self._wait(CLIENTS)
        await gateway.start()

    async def _kill_database(self, _: random.Random) -> None:
        await asyncio.to_thread(self._server.kill)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(self._server.start)

    async def _jump(self, random_order: random.Random) -> None:
        self._clock.write_text(str(random_order.choice(JUMPS)))

    async def _fill_disk(self, _: random.Random) -> None:
        filler = self._server.folder.parent / "filler"
        disk = os.statvfs(filler.parent)
        with suppress(OSError), filler.open("wb") as file:  # it is full if the database was faster
            os.posix_fallocate(file.fileno(), 0, disk.f_bavail * disk.f_frsize)
        failed = self._run.failed
        until = time.monotonic() + 3
        while self._run.failed == failed and time.monotonic() < until:  # noqa: ASYNC110 - clients fail
            await asyncio.sleep(0.05)
        filler.unlink()
        if not self._server.is_running:
            await asyncio.to_thread(self._server.start)


def rough(requests: int, *, seed: int = 0) -> Outcome:
    """Send about so many requests, and see what did not hold."""
    tally = Tally("two gateways")
    upstream = Upstream()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="torture-", ignore_cleanup_errors=True)))
        folder.chmod(0o755)  # the database may run as somebody else
        disk = folder / "disk"
        disk.mkdir(mode=0o777)
        fills_disk = can_mount()
        if fills_disk:
            mount(str(disk), DISK)
            stack.callback(subprocess.run, ["umount", str(disk)], check=True)
        server = stack.enter_context(postgres(within=disk))
        url = stack.enter_context(upstream.serve())
        token = secrets.token_hex(8)
        clock = folder / "clock"
        clock.write_text("0")
        gateways = [
            _make_gateway(folder, name, server.url, url, token) for name in ("127.0.0.2", "127.0.0.3")
        ]
        for gateway in gateways:
            stack.callback(gateway.kill)
        run = Rough(requests, gateways, token)
        asyncio.run(_run(run, Trouble(run, gateways, server, clock, tally), seed, fills_disk=fills_disk))
        account = _read_account(folder)
    tally.tries = run.conversations * STEPS
    tally.acknowledged = run.answered
    tally.violations += [*run.violations, *upstream.violations, *_compare(upstream, account, run)]
    unwritten = (upstream.sizes - account).total()
    tally.found |= {
        "calls upstream": upstream.sizes.total(),
        "of them shortened": upstream.cut,
        "recalls in full": upstream.recalled,
        "attempts without an answer": run.failed,
        "calls that a kill kept out of the account": unwritten,
    }
    if not fills_disk:
        tally.note("reason for no full disk: nothing can be mounted here")
    return tally.outcome()


async def _run(run: Rough, trouble: Trouble, seed: int, *, fills_disk: bool) -> None:
    for gateway in run._gateways:  # noqa: SLF001
        await gateway.start()
    task = asyncio.ensure_future(trouble.make(random.Random(seed), fills_disk=fills_disk))  # noqa: S311
    await asyncio.gather(*(run.converse() for _ in range(CLIENTS)))
    run.is_over = True
    await task


def _make_gateway(folder: Path, address: str, store: str, upstream: str, token: str) -> GatewayAt:
    port = free_port(address=address)
    settings = folder / f"{address}.toml"
    upstreams = "".join(UPSTREAM.format(profile=profile, url=upstream) for profile in PROFILES)
    settings.write_text(SETTINGS.format(host=address, port=port, store=store) + upstreams)
    (folder / "sitecustomize.py").write_text(JUMPING_CLOCK)
    variables = {"PYTHONPATH": str(folder), "LAMINA_TORTURE_CLOCK": str(folder / "clock")}
    place = Place(address, "127.0.0.1", (), port)
    return GatewayAt(place, settings, token, variables=variables, log=folder / f"{address}.log")


def _read_account(folder: Path) -> Counter[int]:
    """The input tokens of every call that the gateways have written down."""
    account: Counter[int] = Counter()
    for log in folder.glob("*.log"):
        for line in log.read_text(errors="replace").splitlines():
            if '"answered"' in line:
                account[json.loads(line)["input"]] += 1
    return account


def _compare(upstream: Upstream, account: Counter[int], run: Rough) -> list[str]:
    """What is wrong with the accounts. A kill may cut off one call of each client."""
    invented = account - upstream.sizes
    unwritten = upstream.sizes - account
    complaints = [f"the accounts have {invented.total()} calls that the upstream has not"] * bool(invented)
    if unwritten.total() > run.kills * CLIENTS:
        complaints.append(f"{unwritten.total()} calls are in no account, after {run.kills} kills")
    return complaints
