"""`lamina doctor`: checks what a gateway and a client need, line by line, with the next step."""

from __future__ import annotations

import argparse
import http.client
import os
import shutil
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import anyio
import msgspec

from lamina.cli.colour import Tone, paint
from lamina.cli.foreign import describe_clash, describe_remedy, find_foreign_distributions
from lamina.cli.gateway_options import INSTALL, find_missing_package
from lamina.cli.output import emit
from lamina.cli.parser import add_json, whole_number
from lamina.cli.serve import read_settings
from lamina.cli.stored import find_key, hide_password
from lamina.cli.tail import JournalReader
from lamina.errors import LaminaError
from lamina.sessions.user_policy import load_user_policy
from lamina.settings import load_settings
from lamina.stores.address import open_chosen_store
from lamina.stores.port import OwnName, Where

if TYPE_CHECKING:
    from lamina.gateway.clients import ClientRow
    from lamina.gateway.config import GatewaySettings, UpstreamSettings

_EXAMPLES = """\
Each line is ok, a remark, or wrong, with what to do next. Nothing is sent anywhere unless --reach or
--upstream is given: then each upstream is connected to, without a key and without a request to a model.

examples:
  lamina doctor
  lamina doctor --client claude --window 64000
  lamina doctor --settings gateway.toml --reach

exit status: 0 nothing is wrong, 1 something is
"""

_MARKS = {"ok": "ok    ", "remark": "remark", "wrong": "wrong "}
_TONES: dict[str, Tone] = {"ok": "good", "remark": "remark", "wrong": "bad"}
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


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "lamina doctor [--client NAME] [--window N] [--settings FILE] [--store STORE] [--key-file FILE]\n"
        "                [--upstream URL] [--profile NAME] [--reach] [--json]"
    )
    parser.epilog = _EXAMPLES
    parser.add_argument("--client", metavar="NAME", default="", help="the client that you want to run")
    parser.add_argument(
        "--window", metavar="N", type=whole_number, help="the window that you want, in tokens"
    )
    parser.add_argument("--settings", metavar="FILE", help="a TOML file with the settings of the gateway")
    parser.add_argument(
        "--store", metavar="STORE", help="a path, files:FOLDER or postgresql://...; by default, yours"
    )
    parser.add_argument("--key-file", metavar="FILE", help="the key of a sealed store")
    parser.add_argument("--upstream", metavar="URL", help="the one server of the gateway; connect to it")
    parser.add_argument("--profile", metavar="NAME", help="what kind of server that is (default: openai)")
    parser.add_argument("--reach", action="store_true", help="connect to each upstream")
    add_json(parser, "the lines")


def run(arguments: argparse.Namespace) -> int:
    """Print what was checked, and what to do about it. The exit code is 1 if something is wrong."""
    lines: list[CheckLine] = []
    for line in _check_all(arguments, os.environ):
        lines.append(line)
        if not arguments.json:
            _print_line(line)
    if arguments.json:
        emit({"lines": msgspec.to_builtins(lines)})
    return int(any(line.verdict == "wrong" for line in lines))


def _print_line(line: CheckLine) -> None:
    """Print what was found at once: the next check may wait for an upstream that does not answer."""
    print(f"{paint(_MARKS[line.verdict], _TONES[line.verdict])}  {line.subject}: {line.text}", flush=True)
    if line.next_step:
        print(f"        -> {line.next_step}", flush=True)


def _check_all(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Iterator[CheckLine]:
    """Check the user's settings and the store, then the gateway and what it needs.

    Without its packages nothing of the gateway can be checked. If its settings cannot be read, its
    upstreams are not known, so none is tried.
    """
    yield from _check_package()
    yield _check_user_settings()
    yield _check_store(arguments)
    yield from _check_sqlite()
    missing_package = find_missing_package()
    if missing_package:
        yield _describe_missing(missing_package, arguments)
        return
    settings = None
    try:
        settings = read_settings(arguments, environment, place="doctor")
    except LaminaError as error:
        yield CheckLine(subject="gateway", verdict="wrong", text=str(error), next_step="mend the settings")
    else:
        names = ", ".join(f"{name} ({upstream.url})" for name, upstream in settings.upstreams.items())
        yield CheckLine(subject="gateway", verdict="ok", text=f"upstreams: {names}")
        yield from _check_journal(settings, environment)
        yield from _check_reports(settings, environment)
        yield from _check_twins(settings, environment)
    if arguments.client:
        yield from _check_client(arguments, settings, environment)
    if settings is not None and (arguments.reach or arguments.upstream):
        for name, upstream in settings.upstreams.items():
            yield _check_upstream(name, upstream.url)


def _check_package() -> Iterator[CheckLine]:
    """Say if another distribution has overwritten files of this one, or may do so."""
    foreign = find_foreign_distributions()
    if foreign:
        yield CheckLine(
            subject="package",
            verdict="wrong",
            text=describe_clash(foreign),
            next_step=describe_remedy(foreign),
        )


def _check_sqlite() -> Iterator[CheckLine]:
    """Say once and plainly if the SQLite in use has a fault that lamina works around."""
    from lamina.stores.sqlite.drivers import describe_fault, remedy, usual_driver  # noqa: PLC0415

    driver = usual_driver()
    fault = describe_fault(driver)
    if fault:
        next_step = f"{remedy(driver)}, for faster writes by several processes"
        yield CheckLine(subject="sqlite", verdict="remark", text=fault, next_step=next_step)


def _describe_missing(package: str, arguments: argparse.Namespace) -> CheckLine:
    """The gateway cannot run. That is wrong only if the arguments ask for something of the gateway."""
    verdict: Literal["remark", "wrong"] = "remark"
    if any((arguments.client, arguments.settings, arguments.upstream, arguments.reach)):
        verdict = "wrong"
    text = f"it needs {package}, which is not installed"
    return CheckLine(subject="gateway", verdict=verdict, text=text, next_step=INSTALL)


def _check_client(
    arguments: argparse.Namespace, settings: GatewaySettings | None, environment: Mapping[str, str]
) -> Iterator[CheckLine]:
    """Whether a client is here, and would reach the gateway with a window that leaves room."""
    from lamina.gateway.clients import find_client  # noqa: PLC0415 - an extra

    yield _check_program(arguments.client)
    row = find_client(arguments.client)
    yield _check_key(row, settings, environment)
    yield from _check_variables(row, environment)
    yield from _check_window(row, arguments.window or 0, environment)
    if settings is not None:
        yield from _check_markers(row, settings)
        yield from _check_attribution(row, settings, environment)


def _check_user_settings() -> CheckLine:
    """Whether the user's settings can be read, and which of them are set."""
    try:
        settings = load_settings()
        load_user_policy(settings, os.environ)
    except LaminaError as error:
        return CheckLine(
            subject="settings",
            verdict="wrong",
            text=str(error),
            next_step="mend the file, or the LAMINA_ variable that it names",
        )
    named = [name for name in settings.__struct_fields__ if getattr(settings, name)]
    text = f"set: {', '.join(named)}" if named else "nothing is set; the defaults hold"
    return CheckLine(subject="settings", verdict="ok", text=text)


def _check_store(arguments: argparse.Namespace) -> CheckLine:
    """Open the store and read from it. A store that is not there yet is not made."""
    try:
        address = arguments.store or load_settings().store_address()
        anyio.run(_read_from_store, arguments)
    except (LaminaError, OSError) as error:
        if _is_missing_file(arguments):
            text = "there is none yet; it is made by the first conversation"
            return CheckLine(subject="store", verdict="ok", text=text)
        step = "check its path and its key, or name another with --store"
        return CheckLine(subject="store", verdict="wrong", text=str(error), next_step=step)
    scheme, separator, _ = address.partition("://")
    if separator:
        address = scheme  # the rest may have a password
    return CheckLine(subject="store", verdict="ok", text=f"{address} opens and can be read")


async def _read_from_store(arguments: argparse.Namespace) -> None:
    key = await find_key(arguments.key_file)
    async with open_chosen_store(arguments.store, load_settings(), key=key, create=False) as store:
        await store.read(Where(OwnName("lamina.conversations/default"), "ready"), last=0)


def _is_missing_file(arguments: argparse.Namespace) -> bool:
    """Whether the store is a file that does not exist yet, in a place where it can be made.

    The next command that writes makes it, so this is no fault.
    """
    try:
        address = arguments.store or load_settings().store_address()
        anyio.run(find_key, arguments.key_file)
    except LaminaError:
        return False
    if "://" in address:
        return False
    path = Path(address.rpartition(":")[2]).expanduser()
    if path.exists():
        return False
    parent = path.parent
    while not parent.exists():
        parent = parent.parent
    return parent.is_dir() and os.access(parent, os.W_OK)


def _check_program(client: str) -> CheckLine:
    path = shutil.which(client)
    if path is None:
        text = "there is no such program in PATH"
        return CheckLine(subject=client, verdict="wrong", text=text, next_step=f"install {client}")
    return CheckLine(subject=client, verdict="ok", text=path)


def _check_key(row: ClientRow, settings: GatewaySettings | None, environment: Mapping[str, str]) -> CheckLine:
    """Whether a key is in sight. A client may have one of its own, so that none is only a remark."""
    for name in row.keys:
        if environment.get(name):
            return CheckLine(subject="key", verdict="ok", text=f"{name} is set")
    if settings is not None and any(upstream.key_env for upstream in settings.upstreams.values()):
        return CheckLine(subject="key", verdict="ok", text="the settings name one for an upstream")
    return CheckLine(
        subject="key",
        verdict="remark",
        text=f"none of {', '.join(row.keys)} is set",
        next_step="log in with the client itself, or export one of them",
    )


def _check_variables(row: ClientRow, environment: Mapping[str, str]) -> Iterator[CheckLine]:
    """Where the client would go from this shell, without `lamina run`."""
    for name in row.variables:
        value = environment.get(name)
        if value is None:
            continue
        yield CheckLine(
            subject=name,
            verdict="remark",
            text=f"is set to {hide_password(value)}",
            next_step="lamina run keeps this server as its upstream; unset it if that is not what you want",
        )
    if not any(name in environment for name in row.variables):
        command = f"lamina run -- {row.name or 'your command'}"
        text = "the client is not pointed at a gateway in this shell"
        yield CheckLine(subject="variables", verdict="ok", text=text, next_step=f"start it with {command}")


def _check_window(row: ClientRow, window: int, environment: Mapping[str, str]) -> Iterator[CheckLine]:
    """Whether the answer that the client reserves leaves room for a request."""
    from lamina.gateway.clients import CLAUDE_CODE_OUTPUT, limit_output  # noqa: PLC0415 - an extra

    name = row.window_variable
    if not window:
        return
    yield from _check_own_compaction(row, window, environment)
    if not name:
        text = (
            f"requests are fitted to {window:,} tokens; {row.name or 'the client'} needs no limit of its own"
        )
        yield CheckLine(subject="window", verdict="ok", text=text)
        return
    value = environment.get(name, "")
    if value and not (value.isascii() and value.isdecimal()):
        step = f"export {name}={limit_output(window)}"
        yield CheckLine(subject=name, verdict="wrong", text=f"{value!r} is not a number", next_step=step)
        return
    if not value:
        text = f"is not set: the client reserves {CLAUDE_CODE_OUTPUT:,} of {window:,} tokens for an answer"
        step = f"lamina run --window {window} sets it to {limit_output(window)}; else export that yourself"
        yield CheckLine(subject=name, verdict="remark", text=text, next_step=step)
        return
    room = window - int(value)
    if room >= min(SMALLEST_ROOM, window * 3 // 4):
        text = f"{int(value):,} of {window:,} tokens for an answer, {room:,} for the request"
        yield CheckLine(subject=name, verdict="ok", text=text)
        return
    text = f"{int(value):,} of {window:,} tokens for an answer leave {max(room, 0):,} for the request"
    step = f"export {name}={limit_output(window)}"
    yield CheckLine(subject=name, verdict="wrong", text=text, next_step=step)


def _check_own_compaction(row: ClientRow, window: int, environment: Mapping[str, str]) -> Iterator[CheckLine]:
    """Whether the client would summarise by itself before lamina cuts."""
    name = row.compact_variable
    value = environment.get(name, "") if name else ""
    if not (value.isascii() and value.isdecimal()) or int(value) >= window:
        return
    yield CheckLine(
        subject=name,
        verdict="remark",
        text=f"is {int(value):,}: the client summarises before {window:,} tokens are full",
        next_step=f"unset {name}, so that lamina cuts and what it leaves out can be recalled",
    )


def _check_journal(settings: GatewaySettings, environment: Mapping[str, str]) -> Iterator[CheckLine]:
    """Where the gateway writes a line for each request."""
    from lamina.gateway.journal import find_journal  # noqa: PLC0415 - an extra

    try:
        path = find_journal(settings, environment)
    except LaminaError:
        return  # wrong settings of the user have a line already
    text = "no file of requests is written"
    step = 'set `journal = "FILE"` in the settings to follow requests with lamina tail'
    if path is not None:
        text = f"one line a request in {path}"
        step = "lamina tail follows it"
    yield CheckLine(subject="journal", verdict="ok", text=text, next_step=step)


def _check_reports(settings: GatewaySettings, environment: Mapping[str, str]) -> Iterator[CheckLine]:
    """How often the providers' own reasons for cache misses agreed with lamina's causes so far."""
    from lamina.gateway.account import GatewayAccount  # noqa: PLC0415 - an extra
    from lamina.gateway.journal import find_journal  # noqa: PLC0415 - an extra

    try:
        path = find_journal(settings, environment)
    except LaminaError:
        return
    if path is None or not path.is_file():
        return
    account = GatewayAccount()
    with JournalReader(path) as reader:
        for line in (*reader.read_older(), *reader.read_new()):
            if _REPORT_SIGN in line:
                account.read_line(line)
    rate = account.reports
    if not str(rate):
        return
    if rate.differed:
        step = "lamina tail --json prints them: each names both requests and the byte that differs"
        yield CheckLine(subject="cache reports", verdict="remark", text=str(rate), next_step=step)
        return
    yield CheckLine(subject="cache reports", verdict="ok", text=str(rate))


_REPORT_SIGN = b'"cache report"'
"""What a line about a provider's word has. Other lines are not decoded."""


def _check_twins(settings: GatewaySettings, environment: Mapping[str, str]) -> Iterator[CheckLine]:
    """What the twin run has found so far at each upstream, if there is one."""
    from lamina.gateway.journal import find_journal, read_journal  # noqa: PLC0415 - an extra

    if not settings.twin.share:
        return
    path = None
    with suppress(LaminaError):
        path = find_journal(settings, environment)
    last_events: dict[str, Mapping[str, Any]] = {}
    if path is not None:
        last_events = {
            str(event.get("upstream")): event for event in read_journal(path) if event.get("event") == "twin"
        }
    for name in settings.upstreams:
        event = last_events.get(name)
        if event is None:
            text = (
                f"no call was compared yet; {100 * settings.twin.share:g} % of those that lamina changes are"
            )
            yield CheckLine(subject=f"twin at {name}", verdict="ok", text=text)
            continue
        verdict: Literal["ok", "remark"] = "ok"
        step = ""
        if event.get("decision") == "below the bar":
            verdict = "remark"
            step = 'give a larger window, or prefer = "memory", under [policy]; then set another twin.salt'
        text = str(event.get("report", ""))
        yield CheckLine(subject=f"twin at {name}", verdict=verdict, text=text, next_step=step)


def _check_markers(row: ClientRow, settings: GatewaySettings) -> Iterator[CheckLine]:
    """Whether somebody marks what Anthropic's API shall cache. Without a mark it caches nothing."""
    for name, upstream in _list_anthropic(row, settings):
        subject = f"breakpoints at {name}"
        if upstream.policy.breakpoints == "plan":
            yield CheckLine(subject=subject, verdict="ok", text="lamina places cache breakpoints")
        elif row.marks_cache and upstream.policy.breakpoints != "none":
            yield CheckLine(
                subject=subject, verdict="ok", text=f"{row.name} places its own cache breakpoints"
            )
        elif upstream.policy.breakpoints == "auto":
            text = "lamina places cache breakpoints in requests that have none"
            yield CheckLine(subject=subject, verdict="ok", text=text)
        else:
            client = row.name or "this client"
            yield CheckLine(
                subject=subject,
                verdict="remark",
                text=f"{client} may place no cache breakpoints, and then nothing is read from the cache",
                next_step=f'set `policy.breakpoints = "auto"` under [upstreams.{name}]',
            )


def _check_attribution(
    row: ClientRow, settings: GatewaySettings, environment: Mapping[str, str]
) -> Iterator[CheckLine]:
    """Whether the client's block about who pays would end the cached prefix at its first words."""
    from lamina.gateway.profiles import drops_billing  # noqa: PLC0415 - an extra

    variable = row.billing_variable
    if not variable:
        return
    for name, upstream in _list_anthropic(row, settings):
        subject = f"attribution at {name}"
        if environment.get(variable) == "0":
            yield CheckLine(subject=subject, verdict="ok", text=f"{variable}=0: no block says who pays")
        elif drops_billing(upstream.profile):
            text = "lamina leaves the block out that says who pays: it differs between requests"
            yield CheckLine(subject=subject, verdict="ok", text=text)
        elif urlsplit(upstream.url).hostname == ANTHROPIC_HOST:
            text = "the block that says who pays passes as it is: it is meant for Anthropic"
            yield CheckLine(subject=subject, verdict="ok", text=text)
        else:
            yield CheckLine(
                subject=subject,
                verdict="remark",
                text=f"{hide_password(upstream.url)} may cache by prefix, and the first block differs",
                next_step=f"export {variable}=0, or give the upstream the profile of its server",
            )


def _list_anthropic(row: ClientRow, settings: GatewaySettings) -> Iterator[tuple[str, UpstreamSettings]]:
    """The upstream that gets a client's requests of Anthropic's API, if it speaks that."""
    from lamina.gateway.profiles import PROFILES  # noqa: PLC0415 - an extra

    if "anthropic" not in row.apis:
        return
    for name, upstream in settings.list_upstreams().items():
        if "anthropic" in PROFILES[upstream.profile].dialects:
            yield name, upstream
            return  # the first one that speaks an API gets its requests


def _check_upstream(name: str, url: str) -> CheckLine:
    """Connect to a server and ask for its first page, with no key."""
    parts = urlsplit(url)
    subject = f"upstream {name}"
    try:
        connection = _open_connection(parts.scheme, parts.netloc)
        try:
            connection.request("HEAD", parts.path or "/")
            status = connection.getresponse().status
        finally:
            connection.close()
    except (OSError, ssl.SSLError, socket.gaierror, http.client.HTTPException) as error:
        return CheckLine(
            subject=subject,
            verdict="wrong",
            text=f"{url} does not answer: {error}",
            next_step="start the server, or check its address and the network",
        )
    return CheckLine(subject=subject, verdict="ok", text=f"{url} answers (status {status})")


def _open_connection(scheme: str, netloc: str) -> http.client.HTTPConnection:
    if scheme == "https":
        return http.client.HTTPSConnection(netloc, timeout=PATIENCE)
    return http.client.HTTPConnection(netloc, timeout=PATIENCE)
