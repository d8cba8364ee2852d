"""A port for a server that starts later, or comes back under the same number."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress

BELOW_THE_SYSTEMS_OWN = range(20_000, 32_000)
"""The system gives ports above these to clients and to servers that ask for any: one would soon be taken."""


def free_port(*, address: str = "127.0.0.1") -> int:
    """A port that nobody listens at, and that no other test is given."""
    for _ in range(1_000):
        port = secrets.choice(BELOW_THE_SYSTEMS_OWN)
        with suppress(OSError), socket.socket() as probe:
            probe.bind((address, port))
            return port
    raise RuntimeError("no port is free")
