"""A gateway for tests: the real application on a real uvicorn and a real socket, in this event loop."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import uvicorn

from lamina.conversations.addresses import Group
from lamina.conversations.store import ConversationState
from lamina.fitting import Policy
from lamina.gateway import GatewaySettings
from lamina.gateway.app import create_app
from lamina.gateway.metrics import GatewayMetrics
from lamina.gateway.server import GatewayServer, make_config
from lamina.relay.config import UpstreamSettings
from lamina.relay.fit_call import CallFitter
from lamina.relay.journal import Journal
from lamina.relay.live_conversation import LiveConversation
from lamina.relay.sent_calls import SentCalls
from lamina.relay.stream import AnswerWriter
from lamina.telemetry import CallTrace
from tests.gateway.upstream_stub import Stub, run_stub


class RunningGateway(NamedTuple):
    """A gateway that answers at `url`."""

    url: str
    log: io.StringIO
    server: uvicorn.Server

    def events(self, name: str) -> list[dict[str, Any]]:
        """The lines of the log about one kind of event."""
        lines = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [line for line in lines if line["event"] == name]


def settings_for(stub: Stub | str, store: Path | str = "", **changes: Any) -> GatewaySettings:
    """Settings with one upstream for each API, all of them this stub.

    Requests of these tests have no cache markers, and get none: most tests compare what was sent.
    """
    url = stub if isinstance(stub, str) else stub.url
    upstream = group_policy({"breakpoints": "keep"} | changes.pop("upstream", {}))
    upstreams = {
        "claude": UpstreamSettings(url=url, profile="anthropic", **upstream),
        "openai": UpstreamSettings(url=url, profile="openai", **upstream),
        "gemini": UpstreamSettings(url=url, profile="gemini", **upstream),
        "ollama": UpstreamSettings(url=url, profile="ollama", **upstream),
    }
    if not store:
        changes.setdefault("keep", "nothing")
    values: dict[str, Any] = {"port": 0, "store": str(store), "upstreams": upstreams} | changes
    return GatewaySettings(**group_policy(values))


def group_policy(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of settings, with those of a policy put into one."""
    policy = {name: fields.pop(name) for name in Policy.__struct_fields__ if name in fields}
    return {**fields, "policy": Policy(**policy)}


@asynccontextmanager
async def run_gateway(
    settings: GatewaySettings,
    environment: Mapping[str, str] | None = None,
    *,
    journal_path: Path | None = None,
) -> AsyncIterator[RunningGateway]:
    """The gateway until the context ends."""
    log = io.StringIO()
    app = create_app(settings, environment=environment or {}, journal=Journal(log, path=journal_path))
    server = GatewayServer(make_config(settings, app))
    serving = asyncio.ensure_future(server.serve())
    while not server.started:
        if serving.done():
            serving.result()
            raise RuntimeError("the gateway did not start")
        await asyncio.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield RunningGateway(f"http://127.0.0.1:{port}", log, server)
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def open_client() -> AsyncIterator[aiohttp.ClientSession]:
    """A client that adds no headers and unpacks nothing."""
    session = aiohttp.ClientSession(
        auto_decompress=False,
        skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
        timeout=aiohttp.ClientTimeout(total=60),
    )
    async with session:
        yield session


class Proxied(NamedTuple):
    """An upstream, a gateway in front of it, and a client."""

    stub: Stub
    gateway: RunningGateway
    client: aiohttp.ClientSession


@asynccontextmanager
async def proxied(store: Path | str = "", **changes: Any) -> AsyncIterator[Proxied]:
    """All three until the context ends. The settings are those of `settings_for` with these changes."""
    async with (
        run_stub() as stub,
        run_gateway(settings_for(stub, store, **changes)) as gateway,
        open_client() as client,
    ):
        yield Proxied(stub, gateway, client)


def read_files(folder: Path) -> bytes:
    """All bytes of the store `gateway.db` in a folder, with the files that belong to it."""
    return b"".join(path.read_bytes() for path in folder.glob("gateway.db*"))


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether this becomes true within so many seconds."""
    for _ in range(int(seconds / 0.02)):
        if condition():
            return True
        await asyncio.sleep(0.02)
    return False


class TakenAnswer:
    """A client that takes everything. `pieces` are the parts of the body that it got."""

    is_write_paused = False

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.writer = AnswerWriter(self, CallTrace())

    async def send_head(self, *_: object, **__: object) -> None:
        """Take a status and headers."""

    async def send_body(self, piece: bytes, *, is_last: bool = False) -> None:
        del is_last
        self.pieces.append(piece)

    def abort(self) -> None:
        raise AssertionError("it takes everything")


def make_conversation(**state: Any) -> LiveConversation:
    """A conversation that a gateway has in memory."""
    return LiveConversation("default", "name", (Group("default", "", ""), b"hi"), ConversationState(**state))


def follow_calls(index: Any, saver: Any) -> SentCalls:
    """What follows requests that were sent, with nothing behind it but this index and this saver."""
    unused: Any = None
    return SentCalls(
        CallFitter(
            settings=GatewaySettings(),
            policies=unused,
            store=unused,
            index=index,
            saver=saver,
            metrics=GatewayMetrics(),
            journal=unused,
        )
    )
