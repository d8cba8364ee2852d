"""Answers the requests of clients: its own few paths here, and everything else through `exchange`."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from anyio import to_thread

from lamina.gateway.client_connection import ClientCall
from lamina.gateway.exchange import answer_request
from lamina.gateway.metrics import GatewayMetrics
from lamina.gateway.shared import Drain, Gateway
from lamina.gateway.upstream_connection import UpstreamConnections
from lamina.relay.config import GatewaySettings
from lamina.relay.journal import Journal, open_journal
from lamina.relay.recording import record_lost_answers
from lamina.relay.refusals import Refusal
from lamina.relay.relay import Relay
from lamina.relay.routes import INSPECTOR, PROBES, is_below
from lamina.relay.security import admit_visitor
from lamina.relay.store_access import GatewayStore, StoreGone
from lamina.relay.telemetry import open_telemetry

if TYPE_CHECKING:
    from lamina.gateway.inspection import GatewayPages

OWN_PATHS = ("/healthz", "/readyz", "/metrics")

MMAP_THRESHOLD = -3
"""glibc's number for the option `M_MMAP_THRESHOLD`: larger blocks are mapped one by one."""

LARGE_BLOCK = 256 << 10

SWITCH_SECONDS = 0.0005
"""After how long a thread that computes lets another one go on.

A read of the store gives the interpreter away a dozen times. With Python's 5 ms a first request, which asks
the store, waited 2.3 times as long as a later one, beside 64 streams; with this it is 2.0 times.
"""

FIRST_PRUNE, PRUNE_PAUSE = 10.0, 3600.0
"""Seconds after its start, and then between two times, that a gateway deletes what is beyond its limits."""

YOUNG_OBJECTS = 20_000
"""New objects after which Python looks for garbage. A request has hundreds that stay."""


def create_app(
    settings: GatewaySettings,
    *,
    environment: Mapping[str, str] | None = None,
    journal: Journal | None = None,
    is_supervised: bool = False,
) -> GatewayApp:
    """The application. Its store and its connections are opened when it starts.

    `is_supervised`: somebody reads its log, and wants to know of requests that it was killed before it
    answered.
    """
    app_environment = os.environ if environment is None else environment
    if journal is None:
        journal = open_journal(settings, app_environment, is_supervised=is_supervised)
    return GatewayApp(settings, app_environment, journal)


class GatewayApp:
    """What answers requests, and lives as long as `run` does."""

    def __init__(self, settings: GatewaySettings, environment: Mapping[str, str], journal: Journal) -> None:
        self.settings = settings
        self.environment = environment
        self.journal = journal
        self.metrics = GatewayMetrics()
        self.drain = Drain()
        self._inspector: GatewayPages | None = None

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Open everything, and close it in order at the end: what waits to be saved is saved."""
        telemetry = open_telemetry(self.settings)
        self._store = GatewayStore(self.settings)
        await self._store.open()
        await record_lost_answers(self._store, self.journal)
        connections = UpstreamConnections()
        relay = Relay(
            self.settings,
            store=self._store,
            metrics=self.metrics,
            journal=self.journal,
            environment=self.environment,
            telemetry=telemetry,
        )
        self._gateway = Gateway(relay, connections, self.drain)
        saver = relay.saver
        writing = asyncio.gather(saver.save_pending(), saver.record_pending(), self._prune())
        try:
            yield
        finally:
            writing.cancel()
            with suppress(asyncio.CancelledError):
                await writing
            await relay.finish_all()
            await saver.flush()
            await saver.flush_records()
        connections.close()
        await self._store.close()
        await to_thread.run_sync(telemetry.close)
        if self.drain.is_stopping:
            self.journal.write_stopped(cut_off=self.drain.cut_count)

    async def _prune(self) -> None:
        """Delete what is beyond the limits of the settings, now and then."""
        await asyncio.sleep(FIRST_PRUNE)
        while True:
            with suppress(StoreGone):
                deleted = await self._store.prune()
                if deleted:
                    self.journal.write("pruned", conversations=deleted)
            await asyncio.sleep(PRUNE_PAUSE)

    async def answer(self, call: ClientCall) -> None:
        """Answer one request of a client."""
        path = call.line.path
        if path in OWN_PATHS:
            await self._answer_itself(call)
        elif call.line.method == "HEAD" and path in PROBES:
            await _write(call, 200, b"")
        elif self.settings.inspect and is_below(path, INSPECTOR):
            await self._inspect(call)
        else:
            await answer_request(self._gateway, call)

    async def _answer_itself(self, call: ClientCall) -> None:
        """Say how the gateway is. The counters are for whoever may use it."""
        if call.line.method not in ("GET", "HEAD"):
            await _write(call, 405, b"use GET\n", (b"allow", b"GET, HEAD"))
            return
        match call.line.path:
            case "/healthz":
                await _write(call, 200, b"ok\n")
            case "/readyz" if self.drain.is_stopping:
                await _write(call, 503, b"the gateway is stopping\n")
            case "/readyz" if await self._store.is_ready():
                await _write(call, 200, b"ready\n")
            case "/readyz":
                await _write(call, 503, b"the store does not answer\n")
            case _:
                try:
                    admit_visitor(call.line.headers, self.settings)
                except Refusal as refusal:
                    await _write(call, refusal.status, refusal.body(""), *refusal.headers)
                    return
                version = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
                await _write(call, 200, self.metrics.write().encode(), version)

    async def _inspect(self, call: ClientCall) -> None:
        """Show the inspector's pages. They are imported when somebody first looks."""
        if self._inspector is None:
            from lamina.gateway.inspection import GatewayPages  # noqa: PLC0415 - takes a while, and memory

            self._inspector = GatewayPages(self.settings, self._store, self._gateway.relay.saver)
        await self._inspector.answer(call)


async def _write(call: ClientCall, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    """Write a short answer, of plain text if the headers do not say what it is."""
    if not headers:
        headers = ((b"content-type", b"text/plain; charset=utf-8"),)
    await call.send_head(status, [*headers, (b"content-length", b"%d" % len(body))], joins_body=True)
    await call.send_body(body, is_last=True)


def tune_garbage_collection() -> None:
    """Tell Python that what is in memory now stays. Call it once, in a process that only serves.

    Otherwise it looks through all modules again whenever it looks for garbage.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)
    sys.setswitchinterval(SWITCH_SECONDS)
    _return_large_blocks()


def _return_large_blocks() -> None:
    """Have the C library give blocks of a large body back to the system as soon as they are free.

    By default glibc keeps blocks of up to 32 MB for itself once one of that size was freed: the gateway would
    stay as large as its largest request made it. Other libraries have no such function, and no such habit.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, LARGE_BLOCK)
