"""How many files and functions of lamina one call enters, by door, with a cut and without.

    python -m tools.entered          print them, and how much each is above its record
    python -m tools.entered --write  record today's in tools/entered.json

Whoever follows a request has to open these files. The figures may fall freely; a change that raises one says
why in its commit. Each door is called before it is measured, so that nothing counts that only importing runs.
The gateway's figures hold everything from the first byte of a request until its answer is recorded.
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import anthropic

from lamina import Budget, Policy, fit_request, wrap
from lamina.gateway import GatewaySettings
from lamina.gateway.app import create_app
from lamina.gateway.server import GatewayServer, make_config
from lamina.relay.config import UpstreamSettings
from lamina.relay.journal import Journal
from lamina.sessions import Session
from tests.servers.serving import serve_http
from tools.size import show_beside_record

SOURCE = Path(__file__).resolve().parent.parent / "src" / "lamina"
MODEL = "claude-sonnet-4-5"
LARGE, SMALL = 200_000, 6_000
"""Windows in tokens: in the small one the last request of the talk is cut."""

TURNS = 6
SPARE = 5
"""Functions more or less that the threads of a gateway enter from one run to the next."""

ANSWER = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": MODEL,
    "content": [{"type": "text", "text": "Noted."}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1_000, "output_tokens": 2},
}


class Entered(NamedTuple):
    """What one call entered: files, and functions by file and line."""

    files: int
    functions: int


class Watch:
    """Notes the functions of lamina that are entered in any thread, while it is on."""

    def __init__(self) -> None:
        self._places: set[tuple[str, int]] = set()
        self._is_on = False
        threading.setprofile(self._note)  # threads that a door starts before it is watched

    def _note(self, frame: Any, event: str, _argument: object) -> None:
        if self._is_on and event == "call":
            self._places.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    @contextmanager
    def on(self) -> Iterator[None]:
        """Watch from here on, and forget what was seen before."""
        self._places.clear()
        self._is_on = True
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            self._is_on = False

    @property
    def entered(self) -> Entered:
        """What was entered while it was on."""
        own = [place for place in self._places if Path(place[0]).is_relative_to(SOURCE)]
        return Entered(files=len({name for name, _ in own}), functions=len(own))


def main() -> int:
    figures: dict[str, int] = {}
    for name, entered in measure(Watch()):
        figures |= {f"{name}: files": entered.files, f"{name}: functions": entered.functions}
    show_beside_record("entered", figures, spare=SPARE)
    return 0


def measure(watch: Watch) -> Iterator[tuple[str, Entered]]:
    """The last request of a talk through each door, with room for all of it and in a small window."""
    for case, window in (("nothing to do", LARGE), ("a cut", SMALL)):
        policy = Policy(budget=Budget(window=window, reserve=500))
        yield f"fit_request, {case}", _enter_fit_request(watch, policy)
        with serve_http(_Answering) as url, tempfile.TemporaryDirectory() as folder:
            store = str(Path(folder) / "conversations.db")
            yield f"wrap, {case}", _enter_wrap(watch, policy, url, store)
            yield f"Session.ask, {case}", asyncio.run(_enter_session(watch, policy, f"{store}-session"))
            yield f"gateway, {case}", asyncio.run(_enter_gateway(watch, policy, url, f"{store}-gateway"))


def _make_requests() -> list[dict[str, Any]]:
    """The requests of a talk, one for each turn. The last one has 10,000 tokens."""
    messages: list[dict[str, Any]] = []
    requests: list[dict[str, Any]] = []
    for turn in range(TURNS):
        text = f"This is report {turn}. " + f"Line {turn} of the report says that all is well. " * 150
        messages = [*messages, {"role": "user", "content": text}]
        requests.append({"model": MODEL, "max_tokens": 500, "system": "Be brief.", "messages": messages})
        messages = [*messages, {"role": "assistant", "content": "Noted."}]
    return requests


def _enter_fit_request(watch: Watch, policy: Policy) -> Entered:
    *earlier, last = _make_requests()
    ledger = None
    for request in earlier:
        ledger = fit_request(request, policy=policy, ledger=ledger).ledger
    with watch.on():
        fit_request(last, policy=policy, ledger=ledger)
    return watch.entered


def _enter_wrap(watch: Watch, policy: Policy, url: str, store: str) -> Entered:
    *earlier, last = _make_requests()
    with anthropic.Anthropic(api_key="none", base_url=url, max_retries=0) as plain_client:
        client = wrap(plain_client, policy=policy, store=store)
        for request in earlier:
            client.messages.create(**request)
        with watch.on():
            client.messages.create(**last)
        client.close()
    return watch.entered


async def _enter_session(watch: Watch, policy: Policy, store: str) -> Entered:
    *earlier, last = [request["messages"][-1]["content"] for request in _make_requests()]
    async with Session.open(store, "talk", model=MODEL, policy=policy) as session:
        for question in earlier:
            await session.ask(question)
            await session.request()
            await session.record("Noted.")
        with watch.on():
            await session.ask(last)
            await session.request()
        await session.record("Noted.")
    return watch.entered


async def _enter_gateway(watch: Watch, policy: Policy, url: str, store: str) -> Entered:
    upstream = UpstreamSettings(url=url, profile="anthropic")
    settings = GatewaySettings(port=0, store=store, policy=policy, upstreams={"claude": upstream})
    server = GatewayServer(
        make_config(settings, create_app(settings, environment={}, journal=Journal(io.StringIO())))
    )
    serving = asyncio.ensure_future(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn sets a flag, and has no event to wait for
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    *earlier, last = _make_requests()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        for request in earlier:
            await _post(client, request)
        with watch.on():
            await _post(client, last)
    server.should_exit = True
    await serving
    return watch.entered


async def _post(client: aiohttp.ClientSession, request: dict[str, Any]) -> None:
    async with client.post("/v1/messages", json=request) as answer:
        answer.raise_for_status()
        await answer.read()
    await asyncio.sleep(0.2)  # until the answer is recorded


class _Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    sys.exit(main())
