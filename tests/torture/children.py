"""Processes to be killed: a fork of this one that works, and says on a socket how far it is.

    child = forked(work)              work(line) says so after each step
    child.kill(); lines = child.said()

A fork, and not a new interpreter, so that work can be any function and many can be killed in a second. What
the child raises is its last line. It knows nothing of stores.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import warnings
from collections.abc import Callable, Sequence

Say = Callable[[str], None]
Work = Callable[[Say], None]

RAISED = "raised "
"""Begins the line of a child whose work failed."""


class Child:
    """A process of one's own. Every one has to be waited for: `said` does it."""

    def __init__(self, pid: int, ear: socket.socket) -> None:
        self.pid = pid
        self._ear = ear
        self._heard = b""

    def go(self) -> None:
        """Let a child begin that was forked with `waits`."""
        self._ear.send(b"g")

    def first(self) -> None:
        """Until it has said something, or is gone."""
        self._heard += self._ear.recv(65536)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def said(self) -> Sequence[str]:
        """All of its lines, once it is gone. A line without an end was never said."""
        while more := self._ear.recv(1 << 20):
            self._heard += more
        self._ear.close()
        os.waitpid(self.pid, 0)
        return self._heard.decode().split("\n")[:-1]


def forked(work: Work, *, waits: bool = False) -> Child:
    ear, mouth = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Threads of the parent are not in the child; nothing that they may hold is used there.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        ear.close()
        _live(work, mouth, waits=waits)
    mouth.close()
    return Child(pid, ear)


def _live(work: Work, mouth: socket.socket, *, waits: bool) -> None:
    """The life of a child: it never returns to what the parent was doing."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silence, stream)
        if waits:
            mouth.recv(1)
        work(lambda line: mouth.sendall(line.encode() + b"\n"))
        code = 0
    except BaseException as error:  # noqa: BLE001 - the parent is told
        words = f"{type(error).__name__}: {error}".replace("\n", " ")
        mouth.sendall(f"{RAISED}{words}\n".encode(errors="replace"))
    finally:
        os._exit(code)


def failure(lines: Sequence[str]) -> str:
    """What a child's work raised, in its words; empty if nothing."""
    return lines[-1].removeprefix(RAISED) if lines and lines[-1].startswith(RAISED) else ""
