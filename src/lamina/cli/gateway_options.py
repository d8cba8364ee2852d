"""The options that the commands of the gateway share, and the error if its packages are not installed."""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from lamina.cli.parser import add_tool_rules, window_size
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


def add_gateway_options(parser: argparse.ArgumentParser) -> None:
    """Where the gateway sends requests, in which window they must fit, and where it keeps them."""
    add = parser.add_argument
    add("--settings", metavar="FILE", help="a TOML file with the settings of the gateway")
    add("--upstream", metavar="URL", help="send everything to this one server")
    add(
        "--profile",
        metavar="NAME",
        help="what kind of server that is (default: by the client, else openai)",
    )
    add("--window", metavar="N", type=window_size, help="the window of every upstream, in tokens")
    add_tool_rules(parser)
    add("--store", metavar="STORE", help="a path, files:FOLDER or postgresql://...; by default, yours")
    add("--key-file", metavar="FILE", help="the key of the store: with it the store is sealed")
