"""The settings in effect, and where each comes from: the line of a file, a variable, or the default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lamina.cli.output import show
from lamina.cli.stored import hide_password
from lamina.errors import BadInput
from lamina.fitting.policy import PLAIN_FIELDS
from lamina.sessions.setup import load_user_policy
from lamina.settings import STORE_VARIABLE, find_line, find_settings_file, load_settings
from lamina.stores.address import KEY_VARIABLE

if TYPE_CHECKING:
    from lamina.relay.config import GatewaySettings, UpstreamSettings

_SECRET_VARIABLES = (KEY_VARIABLE, "LAMINA_GATEWAY_TOKEN", "LAMINA_MCP_TOKEN")
"""Variables whose values are never printed, only whether they are set."""


class EffectiveSetting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting: its group, its name, its value as text, and its origin."""

    group: str
    name: str
    value: str
    origin: str = "default"


def list_settings(path: Path | None, environment: Mapping[str, str]) -> list[EffectiveSetting]:
    """Every setting with its value and where that comes from. Raises BadInput for a wrong one.

    Two groups: the settings of every command, and those of the gateway. Keys and tokens are never shown.
    """
    return [*_trace_user_settings(environment), *_trace_gateway_settings(path, environment)]


def print_settings(rows: Sequence[EffectiveSetting]) -> None:
    """Print the settings as a table, with a line above each group."""
    name_width = max((len(row.name) for row in rows), default=0)
    value_width = min(max((len(row.value) for row in rows), default=0), 48)
    group = ""
    for row in rows:
        if row.group != group:
            group = row.group
            show(f"{group}:")
        show(f"  {row.name:<{name_width}}  {row.value:<{value_width}}  {row.origin}")


def _trace_user_settings(environment: Mapping[str, str]) -> Iterator[EffectiveSetting]:
    """The settings of every command. Raises BadInput for a wrong one."""
    settings = load_settings(environment=environment)
    file = find_settings_file(None, environment)
    text = _read_if_there(file)
    values = msgspec.structs.asdict(settings)
    policy = load_user_policy(settings, environment)
    del values["policy"]
    if not settings.store:
        values["store"] = settings.store_address()
    values |= {f"policy.{name}": getattr(policy, name) for name in PLAIN_FIELDS}
    for name, value in values.items():
        origin = "default"
        line = find_line(text, name)
        if line:
            origin = f"{file}:{line}"
        if name == "store" and environment.get(STORE_VARIABLE):
            origin = f"${STORE_VARIABLE}"
        yield EffectiveSetting(group="settings", name=name, value=_write_value(value), origin=origin)
    for variable in _SECRET_VARIABLES:
        if environment.get(variable):
            yield EffectiveSetting(
                group="settings", name=variable, value="set, not shown", origin=f"${variable}"
            )


def _trace_gateway_settings(path: Path | None, environment: Mapping[str, str]) -> Iterator[EffectiveSetting]:
    """The settings of the gateway. None without the extra that it needs."""
    try:
        from lamina.relay.config import check_settings, load_gateway_settings  # noqa: PLC0415 - an extra
    except ImportError:
        return
    settings = load_gateway_settings(path, environment)
    check_settings(settings, environment, path)
    text = _read_if_there(path)
    for name, value in _flatten(settings).items():
        line = find_line(text, name)
        origin = "default"
        if line:
            origin = f"{path}:{line}"
        elif name == "tokens" and value != "none":
            origin = "$LAMINA_GATEWAY_TOKEN"
        yield EffectiveSetting(group="gateway", name=name, value=value, origin=origin)


def _flatten(settings: GatewaySettings) -> dict[str, str]:
    """Every setting by its name in the file, such as `policy.keep`, with its value as text.

    The policy and upstreams are taken apart into their fields.
    """
    values: dict[str, Any] = {}
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        match name:
            case "tokens":
                values[name] = _describe_tokens(value)
            case "upstreams":
                for upstream_name, upstream in value.items():
                    values |= _flatten_upstream(f"upstreams.{upstream_name}", upstream)
            case "policy":
                values |= {f"policy.{field}": getattr(value, field) for field in PLAIN_FIELDS}
            case _:
                values[name] = value
    return {name: _write_value(value) for name, value in values.items()}


def _flatten_upstream(prefix: str, upstream: UpstreamSettings) -> dict[str, Any]:
    """The fields of an upstream. Of its policy, only what differs from the gateway's."""
    values = _prefix_fields(prefix, upstream)
    del values[f"{prefix}.policy"]
    for name, value in upstream.policy.dump().items():
        values[f"{prefix}.policy.{name}"] = value
    return values


def _prefix_fields(prefix: str, struct: msgspec.Struct) -> dict[str, Any]:
    """The fields of a part of the settings, each by its name in the file."""
    return {f"{prefix}.{name}": value for name, value in msgspec.structs.asdict(struct).items()}


def _describe_tokens(tokens: Any) -> str:
    """The workspaces that tokens open. Not even their digests are printed."""
    if not tokens:
        return "none"
    return f"{len(tokens)}, for {', '.join(sorted({token.workspace for token in tokens}))}"


def _write_value(value: Any) -> str:
    """A value as a table shows it. A password in an address is hidden."""
    match value:
        case "" | None | ():
            return "-"
        case bool():
            return str(value).lower()
        case msgspec.Struct():
            return _write_value(msgspec.to_builtins(value))
        case dict():
            return ", ".join(f"{name} {_write_value(part)}" for name, part in value.items())
        case tuple():
            return ", ".join(map(str, value))
        case _:
            return hide_password(str(value))


def _read_if_there(path: Path | None) -> str:
    """The text of a file that has been read before, "" without one."""
    if path is None:
        return ""
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot be read: {error}", place=str(path), hint="check the path") from None
