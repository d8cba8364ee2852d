"""The gateway as an ASGI application: its own few paths, and everything else through `exchange`."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from lamina.gateway.client_connection import Receive
from lamina.gateway.exchange import Send, answer_request
from lamina.gateway.metrics import GatewayMetrics
from lamina.gateway.shared import Drain, Gateway
from lamina.gateway.upstream_connection import UpstreamConnections
from lamina.inspector.page_cookies import make_key
from lamina.relay.client_request import Scope
from lamina.relay.config import GatewaySettings
from lamina.relay.journal import Journal, open_journal
from lamina.relay.recording import record_lost_answers
from lamina.relay.refusals import Refusal
from lamina.relay.relay import Relay
from lamina.relay.routes import INSPECTOR, PROBES, is_below
from lamina.relay.security import admit_visitor
from lamina.relay.store_access import GatewayStore, StoreGone
from lamina.relay.telemetry import open_telemetry

PAGE_KEY_VARIABLE = "LAMINA_GATEWAY_PAGE_KEY"
"""Has the key for the inspector's cookies in the environment of worker processes, which share it."""

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
    return GatewayApp(_Shared(settings, app_environment, journal))


class GatewayApp:
    """Starlette answers the gateway's own paths. All other requests go by it, straight to the exchange."""

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared
        self.settings = shared.settings
        self.drain = shared.drain
        self._pages = Starlette(
            routes=[
                Route("/healthz", shared.health),
                Route("/readyz", shared.ready),
                Route("/metrics", shared.write_metrics),
            ],
            lifespan=shared.run,
        )
        self._own_paths = frozenset(("/healthz", "/readyz", "/metrics"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._own_paths:
            await self._pages(scope, receive, send)
            return
        path = scope["path"]
        if scope["method"] == "HEAD" and path in PROBES:
            await Response(status_code=200)(scope, receive, send)
            return
        if self._shared.settings.inspect and is_below(path, INSPECTOR):
            with self.drain.running_page():
                await self._shared.inspect(scope, receive, send)
            return
        await answer_request(self._shared.started_gateway(), scope, receive, send)


class _Shared:
    """What lives as long as the application."""

    def __init__(self, settings: GatewaySettings, environment: Mapping[str, str], journal: Journal) -> None:
        self.settings = settings
        self.environment = environment
        self.journal = journal
        self.metrics = GatewayMetrics()
        self.drain = Drain()
        self.store: GatewayStore | None = None
        self.gateway: Gateway | None = None
        self._inspector: Any = None

    @asynccontextmanager
    async def run(self, _: Starlette) -> AsyncIterator[None]:
        """Open everything, and close it in order at the end: what waits to be saved is saved."""
        telemetry = open_telemetry(self.settings)
        self.store = GatewayStore(self.settings)
        await self.store.open()
        await record_lost_answers(self.store, self.journal)
        connections = UpstreamConnections()
        relay = Relay(
            self.settings,
            connections=connections,
            store=self.store,
            metrics=self.metrics,
            journal=self.journal,
            environment=self.environment,
            telemetry=telemetry,
        )
        self.gateway = Gateway(relay, self.drain)
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
        await self.store.close()
        await to_thread.run_sync(telemetry.close)
        if self.drain.is_stopping:
            self.journal.write_stopped(cut_off=self.drain.cut_count)

    async def _prune(self) -> None:
        """Delete what is beyond the limits of the settings, now and then."""
        await asyncio.sleep(FIRST_PRUNE)
        while self.store is not None:
            with suppress(StoreGone):
                deleted = await self.store.prune()
                if deleted:
                    self.journal.write("pruned", conversations=deleted)
            await asyncio.sleep(PRUNE_PAUSE)

    def started_gateway(self) -> Gateway:
        if self.gateway is None:
            raise RuntimeError("the application has not been started")
        return self.gateway

    async def health(self, _: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(self, _: Request) -> Response:
        if self.drain.is_stopping:
            return PlainTextResponse("the gateway is stopping\n", status_code=503)
        if self.store is not None and await self.store.is_ready():
            return PlainTextResponse("ready\n")
        return PlainTextResponse("the store does not answer\n", status_code=503)

    async def write_metrics(self, request: Request) -> Response:
        """The counters, for whoever may use the gateway."""
        try:
            admit_visitor(request.scope["headers"], self.settings)
        except Refusal as refusal:
            headers = {name.decode(): value.decode() for name, value in refusal.headers}
            return Response(refusal.body(""), refusal.status, headers)
        return PlainTextResponse(self.metrics.write(), media_type="text/plain; version=0.0.4")

    async def inspect(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The inspector's pages. They are imported when somebody first looks."""
        if self._inspector is None:
            from lamina.gateway.inspection import InspectorPages  # noqa: PLC0415 - takes a while, and memory

            gateway = self.started_gateway()
            assert self.store is not None  # noqa: S101 - it was opened before the gateway
            page_key = self.environment.get(PAGE_KEY_VARIABLE, "")  # that of all workers
            cookie_key = bytes.fromhex(page_key) or make_key()
            self._inspector = InspectorPages(self.settings, self.store, gateway.relay.saver, cookie_key)
        await self._inspector(scope, receive, send)


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
