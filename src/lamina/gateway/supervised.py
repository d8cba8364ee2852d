"""A gateway process under a supervisor: `python -m lamina.gateway.supervised SOCKET`.

Everything is imported first. Then the process waits for one line on its standard input: the settings as
JSON. So a spare process costs no time when it is needed. SOCKET is the number of a listening socket that the
supervisor holds open: while no gateway runs, clients wait in its queue and are not refused. When standard
input ends the supervisor is gone, and the gateway stops.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading

import msgspec

from lamina.gateway.server import run_server
from lamina.relay.config import GatewaySettings


def main() -> None:
    """Serve with the settings that the supervisor sends, until it is gone."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    line = sys.stdin.buffer.readline()
    if not line:  # it was a spare one, and its supervisor has ended
        return
    settings = msgspec.json.decode(line, type=GatewaySettings)
    threading.Thread(target=_stop_with_supervisor, daemon=True).start()
    run_server(settings, listener=listener)


def _stop_with_supervisor() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
