"""What each client needs to speak to a gateway: one row per client.

A client is pointed at an address by variables of the environment, by arguments, or by settings that it reads
from a variable. A row knows nothing about the gateway itself. If a client is not listed it gets the
variables that most SDKs read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, Literal

import msgspec

from lamina.errors import BadInput

Api = Literal["anthropic", "openai", "gemini"]

BASE_URLS: dict[Api, str] = {
    "anthropic": "ANTHROPIC_BASE_URL",
    "openai": "OPENAI_BASE_URL",
    "gemini": "GOOGLE_GEMINI_BASE_URL",
}
"""The variable that the SDKs of each API read, and most clients with them."""

OPENAI_PATH = "/v1"
"""Ends the base URL of OpenAI's API, and of no other."""

OUTPUT_VARIABLE = "CLAUDE_CODE_MAX_OUTPUT_TOKENS"
CLAUDE_CODE_OUTPUT = 128_000
"""How many tokens Claude Code reserves for an answer if the variable is not set."""

ATTRIBUTION_VARIABLE = "CLAUDE_CODE_ATTRIBUTION_HEADER"
"""Set to 0, Claude Code sends no system block that says who pays."""

COMPACT_VARIABLE = "CLAUDE_CODE_AUTO_COMPACT_WINDOW"
"""The window at which Claude Code summarises by itself."""

OPENCODE_VARIABLE = "OPENCODE_CONFIG_CONTENT"
"""Has settings of opencode as JSON, over those of its files."""

_PROXY_VARIABLES = ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
_LOOPBACK = "127.0.0.1,localhost"


class ClientRow(msgspec.Struct, frozen=True, kw_only=True):
    """How a client is pointed at a gateway.

    In the values `{url}` is the address of the gateway. `arguments` come before the user's own. `config` is
    merged into the JSON that the variable `config_variable` has. `keys` are the variables with a key for
    the API; one of them is enough. `window_variable` limits the answer, so that it leaves room in a small
    window. `compact_variable` is the window at which the client summarises by itself, `billing_variable`
    switches its block about who pays off. `marks_cache`: it places cache markers in Anthropic's API.
    """

    name: str
    apis: tuple[Api, ...]
    variables: Mapping[str, str] = {}
    arguments: tuple[str, ...] = ()
    config_variable: str = ""
    config: Mapping[str, Any] = {}
    keys: tuple[str, ...] = ()
    window_variable: str = ""
    compact_variable: str = ""
    billing_variable: str = ""
    marks_cache: bool = False


_ANTHROPIC = {"ANTHROPIC_BASE_URL": "{url}"}
_OPENAI = {"OPENAI_BASE_URL": "{url}/v1"}
_GEMINI = {"GOOGLE_GEMINI_BASE_URL": "{url}"}
_ANTHROPIC_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
_ANY_KEY = (*_ANTHROPIC_KEYS, "OPENAI_API_KEY", "GEMINI_API_KEY")

CLIENTS = {
    row.name: row
    for row in (
        ClientRow(
            name="claude",
            apis=("anthropic",),
            variables=_ANTHROPIC,
            keys=_ANTHROPIC_KEYS,
            window_variable=OUTPUT_VARIABLE,
            compact_variable=COMPACT_VARIABLE,
            billing_variable=ATTRIBUTION_VARIABLE,
            marks_cache=True,
        ),
        ClientRow(
            name="codex",
            apis=("openai",),
            arguments=("-c", 'openai_base_url="{url}/v1"'),
            keys=("CODEX_API_KEY", "OPENAI_API_KEY"),
        ),
        ClientRow(name="gemini", apis=("gemini",), variables=_GEMINI, keys=("GEMINI_API_KEY",)),
        ClientRow(
            name="opencode",
            apis=("anthropic", "openai", "gemini"),
            config_variable=OPENCODE_VARIABLE,
            config={
                "provider": {
                    "anthropic": {"options": {"baseURL": "{url}/v1"}},
                    "openai": {"options": {"baseURL": "{url}/v1"}},
                    "google": {"options": {"baseURL": "{url}/v1beta"}},
                }
            },
            keys=_ANY_KEY,
            marks_cache=True,
        ),
        ClientRow(
            name="aider",
            apis=("anthropic", "openai"),
            variables={"ANTHROPIC_API_BASE": "{url}", "OPENAI_API_BASE": "{url}/v1", **_ANTHROPIC, **_OPENAI},
            keys=("ANTHROPIC_API_KEY", "OPENAI_API_KEY"),
        ),
        ClientRow(name="qwen", apis=("openai",), variables=_OPENAI, keys=("OPENAI_API_KEY",)),
    )
}

OTHER = ClientRow(
    name="",
    apis=("anthropic", "openai", "gemini"),
    variables={**_ANTHROPIC, **_OPENAI, **_GEMINI},
    keys=_ANY_KEY,
)
"""Every command that is not in the table."""


OWN_ADDRESSES: Mapping[str, str] = {
    "cline": "start lamina serve, and run cline auth -p openai -b http://127.0.0.1:4949/v1",
    "cn": "start lamina serve, and set apiBase: http://127.0.0.1:4949/v1 in ~/.continue/config.yaml",
    "copilot": """lamina run -- sh -c 'COPILOT_PROVIDER_BASE_URL="$OPENAI_BASE_URL" copilot'""",
    "crush": 'start lamina serve, and set "base_url": "http://127.0.0.1:4949/v1" in crush.json',
    "grok": """lamina run --upstream https://api.x.ai -- sh -c 'GROK_BASE_URL="$OPENAI_BASE_URL" grok'""",
    "kimi": 'start lamina serve, and set base_url = "http://127.0.0.1:4949/v1" in ~/.kimi-code/config.toml',
    "nanocoder": 'start lamina serve, and set "baseUrl": "http://127.0.0.1:4949/v1" in agents.config.json',
    "openhands": """lamina run -- sh -c 'LLM_BASE_URL="$OPENAI_BASE_URL" openhands --override-with-envs'""",
    "pi": 'start lamina serve, and set "baseUrl": "http://127.0.0.1:4949" in ~/.pi/agent/models.json',
}
"""What to do for clients that read none of our variables, by the name of their program."""


class ClientLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """A command and the environment that it is started with."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


def find_client(command: str) -> ClientRow:
    """The row of a command, by the name of its program."""
    return CLIENTS.get(PurePath(command).stem, OTHER)


def point_client(
    command: tuple[str, ...], url: str, environment: Mapping[str, str], *, window: int = 0
) -> ClientLaunch:
    """The command and the environment with which a client speaks to the gateway at `url`."""
    row = find_client(command[0])
    changed = dict(environment)
    for name, value in row.variables.items():
        changed[name] = value.replace("{url}", url)
    if row.config_variable:
        changed[row.config_variable] = _merge_config(row, url, environment)
    if window and row.window_variable and row.window_variable not in environment:  # the user's own wins
        changed[row.window_variable] = str(limit_output(window))
    _exempt_from_proxies(changed)
    arguments = tuple(argument.replace("{url}", url) for argument in row.arguments)
    return ClientLaunch(command=(command[0], *arguments, *command[1:]), environment=changed)


def explain_bypass(command: str) -> str:
    """What to say of a client that sent nothing through its gateway, and how to point it there."""
    name = PurePath(command).stem
    row = find_client(command)
    settings = [*row.variables]
    if row.config_variable:
        settings.append(row.config_variable)
    if row.arguments:
        settings.append(f"the argument {row.arguments[0]}")
    way = f"it got the address by {', '.join(settings)}"
    advice = OWN_ADDRESSES.get(name, f"{way}, and docs/clients.md lists clients that read it elsewhere")
    return f"no request came from {name}: it asked no model, or its requests went past lamina; {advice}"


def limit_output(window: int) -> int:
    """How long an answer may be, at most, so that three quarters of a window are left for the request."""
    return max(min(window // 4, CLAUDE_CODE_OUTPUT), 1)


def read_direct_urls(environment: Mapping[str, str], apis: Iterable[Api]) -> dict[Api, str]:
    """The servers that the user's environment names already, by API, as a gateway's settings write them.

    An address of OpenAI's API that does not end in /v1 is not one that a gateway can stand in front of. It
    raises BadInput: the key for that server must not go to another one.
    """
    urls: dict[Api, str] = {}
    for api in apis:
        variable = BASE_URLS[api]
        url = environment.get(variable, "").rstrip("/")
        if api == "openai" and url:
            if not url.endswith(OPENAI_PATH):
                hint = f"end it in {OPENAI_PATH}, name the server with --upstream, or unset {variable}"
                raise BadInput(f"{url} does not end in {OPENAI_PATH}", place=variable, hint=hint)
            url = url.removesuffix(OPENAI_PATH)
        if url:
            urls[api] = url
    return urls


def _merge_config(row: ClientRow, url: str, environment: Mapping[str, str]) -> str:
    """The client's settings in the environment with the gateway's address in them.

    Settings that are not a JSON object would be refused by the client, so they are replaced.
    """
    try:
        config = json.loads(environment.get(row.config_variable) or "{}")
    except (ValueError, RecursionError):
        config = {}
    if not isinstance(config, dict):
        config = {}
    return json.dumps(_merge(config, _fill_address(row.config, url)))


def _fill_address(value: Any, url: str) -> Any:
    """The settings with the gateway's address where {url} stands."""
    if isinstance(value, str):
        return value.replace("{url}", url)
    if isinstance(value, Mapping):
        return {name: _fill_address(inner, url) for name, inner in value.items()}
    return value


def _merge(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for key, value in new.items():
        before = merged.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            merged[key] = _merge(before, value)
        else:
            merged[key] = value
    return merged


def _exempt_from_proxies(environment: dict[str, str]) -> None:
    """Let the client reach the gateway without the proxy of the environment, if there is one."""
    if not any(environment.get(name) for name in _PROXY_VARIABLES):
        return
    for name in ("NO_PROXY", "no_proxy"):
        hosts = environment.get(name, "")
        environment[name] = f"{hosts},{_LOOPBACK}" if hosts else _LOOPBACK
