"""Stands in for a client under `lamina run`: starts the client, pointed at the recorder.

    python -m tools.clients.pointed RECORDER PROGRAM ARGUMENT...

`lamina run` has put the address of the gateway into the environment or the arguments. The recorder is told
that address, and the client gets the recorder's instead.
"""

from __future__ import annotations

import os
import re
import sys
from urllib.request import urlopen

from tools.clients.recorder import SET_TARGET

_ADDRESS = re.compile(r"http://127\.0\.0\.1:[0-9]+")
_NAMES = ("BASE_URL", "API_BASE", "OPENCODE_CONFIG_CONTENT")


def main() -> None:
    recorder = sys.argv[1]
    environment = dict(os.environ)
    pointing = {name: value for name, value in environment.items() if name.endswith(_NAMES)}
    texts = [*sys.argv[3:], *pointing.values()]
    addresses = [match[0] for text in texts for match in _ADDRESS.finditer(text)]
    gateway = next(address for address in addresses if address != environment["UPSTREAM"])
    with urlopen(f"{recorder}{SET_TARGET}{gateway.removeprefix('http://')}"):  # noqa: S310 - on this machine
        pass
    for name, value in pointing.items():
        environment[name] = value.replace(gateway, recorder)
    arguments = [argument.replace(gateway, recorder) for argument in sys.argv[3:]]
    os.execve(sys.argv[2], [sys.argv[2], *arguments], environment)  # noqa: S606 - the client itself


if __name__ == "__main__":
    main()
