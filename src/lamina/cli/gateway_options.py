"""The options that the commands of the gateway share, and the error if its packages are not installed."""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from lamina.cli.parser import whole_number
from lamina.errors import BadInput

INSTALL = "pip install 'lamina-context[run]'"
_PACKAGES = ("starlette", "uvicorn", "aiohttp")


def find_missing_package() -> str:
    """The first package of the gateway that is not installed, or ""."""
    for name in _PACKAGES:
        if find_spec(name) is None:
            return name
    return ""


def require_gateway(command: str) -> None:
    """Raise BadInput if a package of the gateway is not installed."""
    name = find_missing_package()
    if name:
        raise BadInput(f"the gateway needs {name}, which is not installed", place=command, hint=INSTALL)


def add_listening_options(parser: argparse.ArgumentParser) -> None:
    """Where the gateway listens, and with how many processes."""
    add = parser.add_argument
    add("--host", metavar="HOST", help="the address to listen on (default: 127.0.0.1)")
    add("--port", metavar="N", type=whole_number, help="the port (default: 4949); 0 is a free one")
    add("--workers", metavar="N", type=whole_number, help="processes that share the port and the store")


def add_gateway_options(parser: argparse.ArgumentParser) -> None:
    """Where the gateway sends requests, in which window they must fit, and what it keeps of them."""
    add = parser.add_argument
    add("--settings", metavar="FILE", help="a TOML file with the settings of the gateway")
    add("--upstream", metavar="URL", help="send everything to this one server")
    add("--profile", metavar="NAME", help="what kind of server that is (default: openai)")
    add("--window", metavar="N", type=whole_number, help="the window of every upstream, in tokens")
    add("--store", metavar="STORE", help="a path, files:FOLDER or postgresql://...; by default, yours")
    add("--key-file", metavar="FILE", help="the key of the store: with it the store is sealed")
    add(
        "--keep",
        choices=("all", "lowered", "nothing"),
        help="what is stored of the contents of conversations: all, what was shortened or left out "
        "(lowered, the default), or nothing",
    )
    add(
        "--recall",
        choices=("tool", "handles", "off"),
        help="how the model reads again what was cut: a tool that the gateway adds and answers (tool, the "
        "default), the tool of `lamina mcp` in the client (handles), or not at all (off)",
    )
    add(
        "--context-tools",
        action="store_true",
        default=None,
        help="also give the model a tool with which it pins, releases and notes (off by default)",
    )
