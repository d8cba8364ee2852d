"""Runs the application on uvicorn, which listens, starts workers and hears signals.

Connections are the gateway's own (`client_connection`). A server that is told to stop finishes what runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from math import ceil
from multiprocessing import parent_process
from tempfile import TemporaryDirectory
from time import monotonic
from types import FrameType
from typing import Any

import msgspec
import uvicorn
from prometheus_client.multiprocess import mark_process_dead
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import multiprocess

from lamina.gateway.app import GatewayApp, create_app, tune_garbage_collection
from lamina.gateway.client_connection import ClientConnection
from lamina.gateway.metrics import METRICS_FOLDER_VARIABLE
from lamina.relay import limits
from lamina.relay.config import GatewaySettings

LAST_WORDS = 5.0
"""Seconds for the errors of requests that are cut off, after `drain_seconds`."""

_LOGGER = logging.getLogger("uvicorn.error")

SETTINGS_VARIABLE = "LAMINA_GATEWAY_SETTINGS"
"""Has the settings as JSON for the worker processes of one gateway. They hold no secrets."""


Announce = Callable[[int], object]


def run_server(
    settings: GatewaySettings, *, listener: socket.socket | None = None, announce: Announce | None = None
) -> None:
    """Serve until the process is told to stop. A `listener` replaces the address of the settings.

    `announce` is called once, with the port, when requests are answered.
    """
    tune_garbage_collection()
    _allow_open_files()
    if listener is not None or settings.workers == 1:
        app = create_app(settings, is_supervised=listener is not None)
        server = GatewayServer(make_config(settings, app))
        server.announce = announce
        server.run(sockets=[listener] if listener is not None else None)
        return
    os.environ[SETTINGS_VARIABLE] = msgspec.json.encode(settings).decode()
    config = make_config(settings, "lamina.gateway.server:create_worker_app")
    config.factory = True
    config.workers = settings.workers
    # `Multiprocess` takes no class for its workers, and uvicorn's own would not drain.
    multiprocess.Process = GatewayWorker  # type: ignore[misc]
    with TemporaryDirectory(prefix="lamina-metrics-") as folder:
        os.environ[METRICS_FOLDER_VARIABLE] = folder
        workers = GatewayWorkers(config, [config.bind_socket()])
        workers.announce = announce
        workers.run()


def _allow_open_files() -> None:
    """Let this process and its workers have a file for each connection, to clients and to upstreams.

    Linux gives a process 1,024 by default, and lets it ask for more. With those, a gateway that had 980 idle
    clients could not reach its upstream.
    """
    with suppress(ImportError, OSError, ValueError):  # Windows has no such limit
        import resource  # noqa: PLC0415 - not on every system

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        files = 4 * limits.CONNECTIONS
        if hard != resource.RLIM_INFINITY:
            files = min(files, hard)
        if soft != resource.RLIM_INFINITY:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, files), hard))


def create_worker_app() -> GatewayApp:
    """The application of one worker process, with the settings that its parent left in the environment."""
    settings = msgspec.json.decode(os.environ[SETTINGS_VARIABLE], type=GatewaySettings)
    tune_garbage_collection()
    return create_app(settings)


def make_config(settings: GatewaySettings, app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=ClientConnection,
        ws="none",
        interface="asgi3",  # none is used, but uvicorn would wrap the application to make one
        lifespan="off",
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # nothing here depends on what they say
        server_header=False,
        timeout_graceful_shutdown=ceil(settings.drain_seconds + LAST_WORDS),
    )


class GatewayServer(uvicorn.Server):
    """uvicorn's server, which finishes what runs before it ends (`shared.Drain`), and ends with status 0.

    uvicorn closes the port as soon as a signal comes, cancels what runs after a while without a word to the
    client, and then ends by the signal.
    """

    announce: Announce | None = None
    _signal_count = 0
    _closes_at: float | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._running = self._app.run()
        try:
            await self._running.__aenter__()
        except Exception:
            _LOGGER.exception("the gateway cannot start")
            sys.exit(STARTUP_FAILURE)  # the parent of workers does not try again then
        await super().startup(sockets)
        if self.started and self.announce is not None:
            self.announce(self.servers[0].sockets[0].getsockname()[1])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop. A second signal cuts off what runs, and a third one ends without a word."""
        del frame
        self._signal_count += 1
        if not self.config.loaded:  # a signal at the very start
            self.should_exit = True
            return
        app = self._app
        match self._signal_count:
            case 1:
                app.drain.is_stopping = True
                notice = 0.0
                if sig == signal.SIGTERM and app.settings.is_public:
                    notice = limits.NOTICE_SECONDS
                self._closes_at = monotonic() + notice
            case 2:
                self.should_exit = True
                asyncio.get_running_loop().call_soon_threadsafe(app.drain.cut_requests)
            case _:
                self.force_exit = True

    async def on_tick(self, counter: int) -> bool:
        if self._closes_at is not None and monotonic() >= self._closes_at:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the port, wait for the requests that run, and cut off those that take too long."""
        app = self._app
        asyncio.get_running_loop().call_later(app.settings.drain_seconds, app.drain.cut_requests)
        await super().shutdown(sockets)
        if not self.force_exit:
            await self._running.__aexit__(None, None, None)

    @property
    def _app(self) -> GatewayApp:
        app: GatewayApp = self.config.loaded_app
        return app


class GatewayWorker(multiprocess.Process):
    """A worker process of uvicorn with the gateway's server in it. It ends when its parent has ended."""

    _has_answered = False

    def target(self, sockets: list[socket.socket] | None = None) -> None:
        threading.Thread(target=_stop_with_parent, daemon=True).start()
        self.child_conn.send(b"everything is imported")
        super().target(sockets)

    def is_alive(self, timeout: float = 5) -> bool:
        """Whether the worker need not be replaced.

        uvicorn kills a worker that does not answer in time, while it still imports too. A slow machine would
        begin workers for ever.
        """
        if not self.process.is_alive():
            return False
        return not self._has_come_up() or self.ping(timeout)

    def is_ready(self, timeout: float = 5) -> bool:
        return self._has_come_up() and super().is_ready(timeout)

    def _has_come_up(self) -> bool:
        if not self._has_answered and self.parent_conn.poll(0):
            self.parent_conn.recv()
            self._has_answered = True
        return self._has_answered

    @cached_property
    def server(self) -> uvicorn.Server:
        return GatewayServer(self.config)


def _stop_with_parent() -> None:
    """Stop when the parent was killed. Its workers would hold the port, and a new gateway could not start."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


class GatewayWorkers(multiprocess.Multiprocess):
    """The parent of the worker processes."""

    announce: Announce | None = None

    def keep_subprocess_alive(self) -> None:
        """Replace workers that died. Their counters stay, and the requests that they answered are over."""
        pids = {process.pid for process in self.processes}
        super().keep_subprocess_alive()
        for pid in pids - {process.pid for process in self.processes}:
            mark_process_dead(pid)  # type: ignore[no-untyped-call]
            _LOGGER.warning("worker %s ended, and another one was started", pid)
        if self.announce is not None and any(worker.is_ready() for worker in self.processes):
            self.announce(self.sockets[0].getsockname()[1])
            self.announce = None

    def terminate_all(self) -> None:
        """Stop the workers, and close the socket here too: clients would wait in its queue for nobody."""
        super().terminate_all()
        for listener in self.sockets:
            listener.close()
