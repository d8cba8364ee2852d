"""The options that the commands of the gateway share, and the error if its packages are not installed."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from typing import TYPE_CHECKING, get_args

import msgspec

from lamina.cli.parser import add_tool_rules, window_size
from lamina.core.cut_target import PRICING
from lamina.core.values import Preference
from lamina.errors import BadInput

if TYPE_CHECKING:
    from lamina.gateway.config import GatewaySettings

INSTALL = "pip install 'lamina-context[run]'"
_PACKAGES = ("starlette", "uvicorn", "aiohttp")


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
