"""Keeps a gateway running in a child process, on one port, and reads its log.

The supervisor holds the listening socket. If the gateway dies, a spare process that has imported everything
already takes over the socket: no connection is refused meanwhile, and the state comes from the store. The
new gateway answers the requests that waited, and the client's own retry repeats the one that was cut off.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Self

import msgspec

from lamina.errors import LaminaError
from lamina.relay.config import GatewaySettings
from lamina.relay.journal import decode_event

HOST = "127.0.0.1"
START_SECONDS = 60.0
"""How long the first gateway may take to answer."""

STOP_SECONDS = 15.0
"""How long a gateway may take to finish what it does when it is stopped."""

SHORTEST_LIFE = 1.0
"""A gateway that died sooner is started again after a pause, so that a broken one does not use a core."""

LAST_LINES = 20
"""Lines of the child's standard error that are remembered, to say why it did not start."""

BACKLOG = 1024

LogReader = Callable[[Mapping[str, Any]], None]


class GatewayNotStarted(LaminaError, RuntimeError):
    """The gateway did not start. The message says why."""


class GatewaySupervisor:
    """A gateway that comes back. Use it as a context: it is stopped at the end.

    `read_event` gets every line of the log, from one thread at a time.
    """

    def __init__(self, settings: GatewaySettings, read_event: LogReader) -> None:
        self._settings = settings
        self._read_event = read_event
        self._listener = socket.create_server((HOST, 0), backlog=BACKLOG)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://{HOST}:{self.port}"
        self.restarts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._spare: subprocess.Popen[bytes] | None = None
        self._readers: list[threading.Thread] = []
        self._last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    @property
    def pid(self) -> int:
        """The process that serves now."""
        process = self._process
        return process.pid if process is not None else 0

    def __enter__(self) -> Self:
        """Start the gateway and wait until it answers. Raises GatewayNotStarted."""
        try:
            self._process = self._spawn()
            self._serve(self._process)
            self._wait_until_ready(self._process)
        except BaseException:
            self._end()
            raise
        self._spare = self._spawn()
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _spawn(self) -> subprocess.Popen[bytes]:
        """A process that has not got its settings yet.

        It has a session of its own, so that Ctrl-C in the client does not end it. With -P a folder named
        `lamina` in the user's project is not imported.
        """
        number = self._listener.fileno()
        process = subprocess.Popen(  # noqa: S603 - this interpreter and a module of this package
            [sys.executable, "-P", "-m", "lamina.gateway.supervised", str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(number,),
            start_new_session=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        reader = threading.Thread(target=self._read_log, args=(process,), daemon=True)
        reader.start()
        self._readers.append(reader)
        return process

    def _serve(self, process: subprocess.Popen[bytes]) -> None:
        """Send a process its settings: it begins to serve."""
        assert process.stdin is not None  # noqa: S101 - for the type checker
        with contextlib.suppress(OSError):  # it is dead already; the watcher sees that
            process.stdin.write(msgspec.json.encode(self._settings) + b"\n")
            process.stdin.flush()

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = monotonic() + START_SECONDS
        while monotonic() < deadline:
            if process.poll() is not None:
                raise GatewayNotStarted(self._explain_end(process))
            if self._answers():
                return
        raise GatewayNotStarted(f"it did not answer within {START_SECONDS:g} seconds")

    def _answers(self) -> bool:
        """Whether the gateway is ready. The socket accepts connections before there is one."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=0.5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            self._stopping.wait(0.02)
            return False
        finally:
            connection.close()

    def _explain_end(self, process: subprocess.Popen[bytes]) -> str:
        for reader in self._readers:
            reader.join(1.0)
        for line in reversed(self._last_lines):
            if "Error" in line or "lamina.errors." in line:
                return line.rstrip("\n")
        return f"it ended with status {process.returncode}"

    def _watch(self) -> None:
        """Replace the process whenever it ends."""
        while True:
            process = self._process
            if process is None:
                return
            began = monotonic()
            process.wait()
            if self._stopping.is_set():
                return
            # The first one is replaced at once, since the client waits for it.
            if monotonic() - began < SHORTEST_LIFE and self.restarts:
                self._stopping.wait(SHORTEST_LIFE / 2)
            with self._lock:
                if self._stopping.is_set():
                    return
                self._replace_process()

    def _replace_process(self) -> None:
        if self._process is not None:
            _close_input(self._process)
        spare = self._spare
        if spare is not None and spare.poll() is not None:
            _close_input(spare)
            spare = None
        if spare is None:
            spare = self._spawn()
        self.restarts += 1
        self._process = spare
        self._serve(spare)
        self._spare = self._spawn()

    def _read_log(self, process: subprocess.Popen[bytes]) -> None:
        """Read the log of one process to its end. What is no event is remembered for an error message."""
        assert process.stderr is not None  # noqa: S101 - for the type checker
        with process.stderr as lines:
            for line in lines:
                self._read_line(line)

    def _read_line(self, line: bytes) -> None:
        """Read a line. Only one process at a time: two may write while one takes over from the other."""
        with self._lock:
            event = decode_event(line)
            if event is None:
                self._last_lines.append(line.decode("utf-8", "replace"))
            else:
                self._read_event(event)

    def _end(self) -> None:
        """Stop everything and read the log to its end, so that the account is complete."""
        self._stopping.set()
        with self._lock:
            processes = [process for process in (self._process, self._spare) if process is not None]
        for process in processes:  # all of them first, so that they finish at the same time
            _close_input(process)
        for process in processes:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for reader in self._readers:
            reader.join(STOP_SECONDS)
        if self._watcher.is_alive():
            self._watcher.join(STOP_SECONDS)
        self._listener.close()


def _close_input(process: subprocess.Popen[bytes]) -> None:
    """Tell a process that its supervisor is done. It finishes what it does, and ends."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
