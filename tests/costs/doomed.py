"""Calls that kill their process, or wait in it: for workers, which import this module and little else."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path


def double_unless_doomed(item: tuple[int, str]) -> int:
    """Twice the number. A file that is named is removed, and the process dies; "always" kills every time."""
    number, doom = item
    if doom == "always":
        os.kill(os.getpid(), signal.SIGKILL)
    if doom and Path(doom).exists():
        Path(doom).unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def hold_connection(port: int) -> None:
    """Say the process's own number to whoever listens there, and wait until that one hangs up."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(os.getpid().to_bytes(8))
        connection.recv(1)
