"""`lamina mcp`: recall, explain and search for any client that speaks the Model Context Protocol."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

import anyio

from lamina.cli.output import tell
from lamina.cli.parser import whole_number
from lamina.cli.stored import add_store, open_named_store
from lamina.errors import BadInput

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

_EXAMPLES = """\
The server reads a store, and never writes to it. It has three tools: recall brings back what was shortened
or left out, explain says what a request had in it and why, and search finds texts in kept conversations. A
client starts it by itself and speaks to it over standard input and output. With --http it listens on a port
instead: on this machine, or elsewhere if an access token is set in $LAMINA_MCP_TOKEN.

examples:
  lamina mcp --store chats.db --conversation support-42
  claude mcp add lamina -- lamina mcp
  lamina mcp --http --port 4950
  LAMINA_MCP_TOKEN=... lamina mcp --http --host 0.0.0.0 --allow-host mcp.example

exit status: 0 stopped, 2 input that cannot be used, 4 a store that cannot be opened
"""

_HINT = "pip install 'lamina-context[mcp]'"


def describe(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    add_store(parser)
    parser.add_argument(
        "--conversation", metavar="NAME", default="", help="show only this one; by default, all of them"
    )
    parser.add_argument("--http", action="store_true", help="listen on a port, not on standard input")
    parser.add_argument("--host", metavar="HOST", default="127.0.0.1", help="with --http: the address")
    parser.add_argument(
        "--port",
        metavar="N",
        type=whole_number,
        default=0,
        help="with --http: the port; by default, a free one",
    )
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="with --http: a host name that clients may use besides those of this machine",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve the tools until the client goes, or Ctrl-C."""
    try:
        import lamina.mcp.http  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise BadInput(str(error), place="mcp", hint=_HINT) from None
    try:
        anyio.run(_serve, arguments)
    except KeyboardInterrupt:
        return 0
    return 0


async def _serve(arguments: argparse.Namespace) -> None:
    from lamina.mcp.library import open_library  # noqa: PLC0415 - an extra
    from lamina.mcp.tools import make_server  # noqa: PLC0415 - an extra

    async with (
        open_named_store(arguments) as (store, workspace),
        open_library(store, workspace=workspace, only=arguments.conversation) as library,
    ):
        server = make_server(library)
        if arguments.http:
            await _serve_http(server, arguments)
            return
        await _serve_stdio(server)


async def _serve_http(server: Server[Any], arguments: argparse.Namespace) -> None:
    from lamina.mcp.http import TOKEN_VARIABLE, HttpAddress, serve_http  # noqa: PLC0415 - an extra

    address = HttpAddress(
        host=arguments.host,
        port=arguments.port,
        token=os.environ.get(TOKEN_VARIABLE, ""),
        hosts=tuple(arguments.allow_host),
    )
    await serve_http(server, address, lambda url: tell(f"lamina: MCP at {url}  (Ctrl-C ends it)"))


async def _serve_stdio(server: Server[Any]) -> None:
    from mcp.server.stdio import stdio_server  # noqa: PLC0415 - an extra

    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
