"""Checks a client and the gateway for `lamina doctor`.

Of a client: its program, its key, its variables, its window and its caching. Of the gateway: its journal and
its upstreams. Each check says that something is ok, a remark on it, or that it is wrong.
"""

from __future__ import annotations

import http.client
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from lamina.cli.serve import describe_window
from lamina.cli.stored import hide_password
from lamina.errors import LaminaError
from lamina.models.facts import VARIABLE, model_or_none

if TYPE_CHECKING:
    from lamina.gateway.clients import ClientRow
    from lamina.relay.config import GatewaySettings, UpstreamSettings


SMALLEST_ROOM = 48_000
"""Tokens for the request below which Claude Code has little room beside its own tools and system text."""

ANTHROPIC_HOST = "api.anthropic.com"

PATIENCE = 5.0


class CheckLine(msgspec.Struct, frozen=True, kw_only=True):
    """What one check found, and what to do."""

    subject: str
    verdict: Literal["ok", "remark", "wrong"]
    text: str
    next_step: str = ""


def ok(subject: str, text: str, *, next_step: str = "") -> CheckLine:
    return CheckLine(subject=subject, verdict="ok", text=text, next_step=next_step)


def remark(subject: str, text: str, *, next_step: str) -> CheckLine:
    return CheckLine(subject=subject, verdict="remark", text=text, next_step=next_step)


def wrong(subject: str, text: str, *, next_step: str) -> CheckLine:
    return CheckLine(subject=subject, verdict="wrong", text=text, next_step=next_step)


def check_client(
    name: str, window: int, settings: GatewaySettings | None, environment: Mapping[str, str]
) -> Iterator[CheckLine]:
    """Whether a client is here, and would reach the gateway with a window that leaves room.

    A window of 0 is none. Without settings, nothing is known of the upstreams.
    """
    from lamina.gateway.clients import OWN_ADDRESSES, find_client  # noqa: PLC0415 - an extra

    yield _check_program(name)
    if name in OWN_ADDRESSES:
        yield remark("address", "lamina run alone does not reach it", next_step=OWN_ADDRESSES[name])
    row = find_client(name)
    yield _check_key(row, settings, environment)
    yield from _check_variables(row, environment)
    if window:
        yield from _check_own_compaction(row, window, environment)
        yield _check_window(row, window, environment)
    elif settings is not None:
        yield ok("window", describe_window(settings))
    if settings is not None:
        yield from _check_markers(row, settings)
        yield from _check_attribution(row, settings, environment)


def _check_program(client: str) -> CheckLine:
    path = shutil.which(client)
    if path is None:
        return wrong(client, "there is no such program in PATH", next_step=f"install {client}")
    return ok(client, path)


def _check_key(row: ClientRow, settings: GatewaySettings | None, environment: Mapping[str, str]) -> CheckLine:
    """Whether a key is in sight. A client may have one of its own, so that none is only a remark."""
    for name in row.keys:
        if environment.get(name):
            return ok("key", f"{name} is set")
    if settings is not None and any(upstream.key_env for upstream in settings.upstreams.values()):
        return ok("key", "the settings name one for an upstream")
    step = "log in with the client itself, or export one of them"
    return remark("key", f"none of {', '.join(row.keys)} is set", next_step=step)


def _check_variables(row: ClientRow, environment: Mapping[str, str]) -> Iterator[CheckLine]:
    """Where the client would go from this shell, without `lamina run`."""
    values = {name: environment[name] for name in row.variables if name in environment}
    for name, value in values.items():
        step = "lamina run keeps this server as its upstream; unset it if that is not what you want"
        yield remark(name, f"is set to {hide_password(value)}", next_step=step)
    if not values:
        step = f"start it with lamina run -- {row.name or 'your command'}"
        yield ok("variables", "the client is not pointed at a gateway in this shell", next_step=step)


def _check_window(row: ClientRow, window: int, environment: Mapping[str, str]) -> CheckLine:
    """Whether the answer that the client reserves leaves room for a request."""
    from lamina.gateway.clients import CLAUDE_CODE_OUTPUT, limit_output  # noqa: PLC0415 - an extra

    name = row.window_variable
    if not name:
        client = row.name or "the client"
        return ok("window", f"requests are fitted to {window:,} tokens; {client} needs no limit of its own")
    limit = limit_output(window)
    value = environment.get(name, "")
    if not value:
        text = f"is not set: the client reserves {CLAUDE_CODE_OUTPUT:,} of {window:,} tokens for an answer"
        step = f"lamina run --window {window} sets it to {limit}; else export that yourself"
        return remark(name, text, next_step=step)
    output = _read_number(value)
    if output is None:
        return wrong(name, f"{value!r} is not a number", next_step=f"export {name}={limit}")
    room = window - output
    if room >= min(SMALLEST_ROOM, window * 3 // 4):
        return ok(name, f"{output:,} of {window:,} tokens for an answer, {room:,} for the request")
    text = f"{output:,} of {window:,} tokens for an answer leave {max(room, 0):,} for the request"
    return wrong(name, text, next_step=f"export {name}={limit}")


def _check_own_compaction(row: ClientRow, window: int, environment: Mapping[str, str]) -> Iterator[CheckLine]:
    """Whether the client would summarise by itself before lamina cuts."""
    name = row.compact_variable
    limit = _read_number(environment.get(name, ""))
    if limit is None or limit >= window:
        return
    text = f"is {limit:,}: the client summarises before {window:,} tokens are full"
    yield remark(
        name, text, next_step=f"unset {name}, so that lamina cuts and what it leaves out can be recalled"
    )


def _read_number(value: str) -> int | None:
    if value.isascii() and value.isdecimal():
        return int(value)
    return None


def _check_markers(row: ClientRow, settings: GatewaySettings) -> Iterator[CheckLine]:
    """Whether somebody sets breakpoints for Anthropic's API. Without one it caches nothing."""
    upstream = _find_anthropic(row, settings)
    if upstream is None:
        return
    subject = f"breakpoints at {upstream.name}"
    match upstream.settings.policy.breakpoints:
        case "plan":
            yield ok(subject, "lamina places cache breakpoints")
        case "keep" | "auto" if row.marks_cache:
            yield ok(subject, f"{row.name} places its own cache breakpoints")
        case "auto":
            yield ok(subject, "lamina places cache breakpoints in requests that have none")
        case _:
            client = row.name or "this client"
            text = f"{client} may place no cache breakpoints, and then nothing is read from the cache"
            step = f'set `policy.breakpoints = "auto"` under [upstreams.{upstream.name}]'
            yield remark(subject, text, next_step=step)


def _check_attribution(
    row: ClientRow, settings: GatewaySettings, environment: Mapping[str, str]
) -> Iterator[CheckLine]:
    """Whether the client's block about who pays would end the cached prefix at its first words."""
    from lamina.relay.profiles import drops_billing  # noqa: PLC0415 - an extra

    variable = row.billing_variable
    upstream = _find_anthropic(row, settings)
    if not variable or upstream is None:
        return
    subject = f"attribution at {upstream.name}"
    url = upstream.settings.url
    if environment.get(variable) == "0":
        yield ok(subject, f"{variable}=0: no block says who pays")
    elif drops_billing(upstream.settings.profile):
        yield ok(subject, "lamina leaves the block out that says who pays: it differs between requests")
    elif urlsplit(url).hostname == ANTHROPIC_HOST:
        yield ok(subject, "the block that says who pays passes as it is: it is meant for Anthropic")
    else:
        text = f"{hide_password(url)} may cache by prefix, and the first block differs"
        step = f"export {variable}=0, or give the upstream the profile of its server"
        yield remark(subject, text, next_step=step)


class _NamedUpstream(NamedTuple):
    name: str
    settings: UpstreamSettings


def _find_anthropic(row: ClientRow, settings: GatewaySettings) -> _NamedUpstream | None:
    """The upstream that gets a client's requests of Anthropic's API: the first that speaks it."""
    from lamina.relay.profiles import PROFILES  # noqa: PLC0415 - an extra

    if "anthropic" not in row.apis:
        return None
    for name, upstream in settings.list_upstreams().items():
        if "anthropic" in PROFILES[upstream.profile].dialects:
            return _NamedUpstream(name, upstream)
    return None


def check_gateway(settings: GatewaySettings, environment: Mapping[str, str]) -> Iterator[CheckLine]:
    """Where requests go, and where they are noted."""
    from lamina.relay.journal import find_journal, read_journal  # noqa: PLC0415 - an extra

    names = ", ".join(f"{name} ({upstream.url})" for name, upstream in settings.upstreams.items())
    yield ok("gateway", f"upstreams: {names}")
    path = None
    try:
        path = find_journal(settings, environment)
    except LaminaError:
        pass  # wrong settings of the user have a line already
    else:
        yield _describe_journal(path)
    if path is not None and path.exists():
        yield from check_models(
            (str(event["model"]), str(event.get("dialect", "")))
            for event in read_journal(path)
            if event.get("model")
        )


def check_models(names: Iterable[tuple[str, str]]) -> Iterator[CheckLine]:
    """Say of each model, with its dialect, what is taken from the nearest one since no table has it."""
    for name, dialect in sorted(dict(sorted(names)).items()):
        facts = model_or_none(name, dialect=dialect)
        step = f"if that is wrong, say what is right in a file that {VARIABLE} names"
        if facts is None:
            yield remark(f"model {name}", "neither its window nor its prices are known", next_step=step)
        elif facts.inferred:
            yield remark(f"model {name}", facts.describe_inferred(), next_step=step)


def _describe_journal(path: Path | None) -> CheckLine:
    """Where the gateway writes a line for each request."""
    if path is None:
        step = 'set `journal = "FILE"` in the settings to follow requests with lamina log -f'
        return ok("journal", "no file of requests is written", next_step=step)
    return ok("journal", f"one line a request in {path}", next_step="lamina log -f follows it")


def check_upstream(name: str, url: str) -> CheckLine:
    """Connect to a server and ask for its first page, with no key."""
    parts = urlsplit(url)
    subject = f"upstream {name}"
    try:
        with closing(_open_connection(parts.scheme, parts.netloc)) as connection:
            connection.request("HEAD", parts.path or "/")
            status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        step = "start the server, or check its address and the network"
        return wrong(subject, f"{url} does not answer: {error}", next_step=step)
    return ok(subject, f"{url} answers (status {status})")


def _open_connection(scheme: str, netloc: str) -> http.client.HTTPConnection:
    if scheme == "https":
        return http.client.HTTPSConnection(netloc, timeout=PATIENCE)
    return http.client.HTTPConnection(netloc, timeout=PATIENCE)
