"""`lamina serve`: the gateway, a base URL that any client can be pointed at."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lamina.cli.gateway_options import add_gateway_options, require_gateway
from lamina.cli.output import tell
from lamina.cli.parser import whole_number
from lamina.errors import BadInput

if TYPE_CHECKING:
    from lamina.gateway.config import GatewaySettings

_EXAMPLES = """\
Without settings there is one upstream for each public API: requests of Claude Code go to Anthropic, those
of Codex to OpenAI, those of Gemini CLI to Google, Ollama's to this machine. docs/gateway.md has the settings.

examples:
  lamina serve
  ANTHROPIC_BASE_URL=http://127.0.0.1:4949 claude
  lamina serve --settings gateway.toml
  lamina serve --upstream http://127.0.0.1:8080 --profile llama.cpp

exit status: 0 stopped, 2 settings that cannot be used, 4 a store that cannot be opened
"""


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "lamina serve [--settings FILE] [--host HOST] [--port N] [--store STORE] [--key-file FILE]\n"
        "                [--upstream URL] [--profile NAME] [--window N|price|model]\n"
        "                [--prefer memory|balanced|cost] [--tool NAME=RULE]"
    )
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add("--host", metavar="HOST", help="the address to listen on (default: 127.0.0.1)")
    add("--port", metavar="N", type=whole_number, help="the port (default: 4949); 0 is a free one")
    add_gateway_options(parser)


def run(arguments: argparse.Namespace) -> int:
    require_gateway("serve")
    from lamina.gateway.routes import INSPECTOR  # noqa: PLC0415 - an extra
    from lamina.gateway.server import run_server  # noqa: PLC0415 - an extra
    from lamina.gateway.serving import check_start  # noqa: PLC0415 - an extra

    settings = read_settings(arguments, os.environ, place="serve")
    check_start(settings, os.environ, settings_path(arguments))
    names = ", ".join(f"{name} ({upstream.url})" for name, upstream in settings.upstreams.items())

    def announce(port: int) -> None:
        address = f"http://{settings.host}:{port}"
        tell(f"lamina: serving on {address}, upstreams: {names}")
        if settings.inspect:
            tell(f"lamina: what went through it is shown at {address}{INSPECTOR}/")

    run_server(settings, announce=announce)
    return 0


def read_settings(
    arguments: argparse.Namespace, environment: Mapping[str, str], *, place: str, client: str = ""
) -> GatewaySettings:
    """The settings that a gateway would run with. `place` is the command, for the errors."""
    from lamina.gateway.config import check_settings, load_gateway_settings  # noqa: PLC0415 - an extra

    path = settings_path(arguments)
    settings = apply_arguments(
        load_gateway_settings(path, environment), arguments, place=place, client=client
    )
    check_settings(settings, environment, path)
    return settings


def settings_path(arguments: argparse.Namespace) -> Path | None:
    if not arguments.settings:
        return None
    return Path(arguments.settings).expanduser()


def apply_arguments(
    settings: GatewaySettings, arguments: argparse.Namespace, *, place: str, client: str = ""
) -> GatewaySettings:
    """The settings of the file, with those of the command line over them. `place` is the command.

    `--upstream` replaces all upstreams of the file, and `--window` is set for each of them. Without
    `--profile` it is a server of the API that the `client` speaks.
    """
    values = msgspec.to_builtins(settings)
    values |= _read_given(arguments, ("host", "port", "store", "key_file"))
    values["policy"] |= _read_given(arguments, ("keep", "prefer"))
    if getattr(arguments, "tools", None):
        values["policy"]["tools"] = dict(arguments.tools)
    if arguments.upstream:
        upstream = {
            "url": arguments.upstream,
            "profile": arguments.profile or _choose_profile(client),
            "policy": {},
        }
        values["upstreams"] = {"upstream": upstream}
    elif arguments.profile:
        raise BadInput("--profile needs --upstream", place=place, hint="or use --settings")
    if isinstance(arguments.window, str):
        values["policy"]["window"] = arguments.window
    elif arguments.window:
        for upstream in values["upstreams"].values():
            upstream["policy"]["budget"] = arguments.window
    try:
        return msgspec.convert(values, type(settings))
    except msgspec.ValidationError as error:
        raise BadInput(str(error), place=place, hint=f"see lamina {place} --help") from None


def _choose_profile(client: str) -> str:
    """What kind of server an upstream is if nobody says so. Most speak OpenAI's API."""
    from lamina.gateway.clients import find_client  # noqa: PLC0415 - an extra

    apis = find_client(client).apis
    if len(apis) == 1:
        return apis[0]
    return "openai"


def _read_given(arguments: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """The options that were given. Not every command has all of them."""
    values = {name: getattr(arguments, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}
