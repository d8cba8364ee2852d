"""`lamina serve`: the gateway, a base URL that any client can be pointed at.

The options that the commands of the gateway share are here, and the error if its packages are not installed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from lamina.cli.output import tell
from lamina.cli.parser import add_tool_rules, whole_number, window_size
from lamina.core.cut_target import PRICING
from lamina.core.values import Preference
from lamina.errors import BadInput

if TYPE_CHECKING:
    from lamina.relay.config import GatewaySettings


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

INSTALL = "pip install 'lamina-context[run]'"
_PACKAGES = ("uvicorn", "httptools", "aiohappyeyeballs")


def _window_choice(text: str) -> int | str:
    """A context window in tokens, or a word for how it is chosen (`lamina.fitting.policy.WindowChoice`)."""
    if text in ("model", "price"):
        return text
    return window_size(text)


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
    add_window(parser)
    add(
        "--prefer",
        choices=get_args(Preference),
        help="whether cuts keep more of what was said (memory) or save more (cost); default: balanced",
    )
    add_tool_rules(parser)
    add("--store", metavar="STORE", help="a path, files:FOLDER or postgresql://...; by default, yours")
    add("--key-file", metavar="FILE", help="the key of the store: with it the store is sealed")


def add_window(parser: argparse.ArgumentParser) -> None:
    """How much of a conversation is sent."""
    parser.add_argument(
        "--window",
        metavar="N",
        type=_window_choice,
        help="the window of every upstream in tokens; price: what of a conversation is worth its price, "
        "within the model's window; model: all of the model's window",
    )


def read_size(arguments: argparse.Namespace) -> int:
    """The window that was given in tokens, or 0."""
    if isinstance(arguments.window, int):
        return arguments.window
    return 0


def choose_run_window(settings: GatewaySettings, arguments: argparse.Namespace) -> GatewaySettings:
    """The settings of `lamina run`: by price, unless a settings file or --window says something else."""
    if arguments.settings or arguments.window is not None:
        return settings
    policy = msgspec.structs.replace(settings.policy, window="price")
    return msgspec.structs.replace(settings, policy=policy)


def describe_window(settings: GatewaySettings) -> str:
    """When cuts are made, in one line: above a window that was set, by price, or in the model's window."""
    policies = [upstream.policy for upstream in settings.list_upstreams().values()]
    budgets = [policy.own_budget for policy in policies]
    sizes = sorted({budget.window for budget in budgets if budget is not None})
    if sizes:
        windows = " or ".join(f"{size:,}" for size in sizes)
        return f"requests are fitted to {windows} tokens, as it is set"
    policy = settings.policy
    if policy.window == "model":
        return "requests may fill the window of their model; --window price costs less"
    if all(each.window == "model" for each in policies):
        return "requests may fill the window of their model, since your own server reads for free"
    prefer = policy.prefer or "balanced"
    return (
        f"about {PRICING[prefer].working:,} tokens of a conversation are sent with each request, beside "
        f"system text and tools (--prefer {prefer}); the rest can be recalled, and --window model sends all "
        "that fits"
    )


def describe(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add("--host", metavar="HOST", help="the address to listen on (default: 127.0.0.1)")
    add("--port", metavar="N", type=whole_number, help="the port (default: 4949); 0 is a free one")
    add_gateway_options(parser)


def run(arguments: argparse.Namespace) -> int:
    require_gateway("serve")
    from lamina.gateway.server import run_server  # noqa: PLC0415 - an extra
    from lamina.gateway.serving import check_start  # noqa: PLC0415 - an extra
    from lamina.relay.routes import INSPECTOR  # noqa: PLC0415 - an extra

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
    from lamina.relay.config import check_settings, load_gateway_settings  # noqa: PLC0415 - an extra

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
