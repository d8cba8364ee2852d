"""`lamina doctor`: checks what a gateway and a client need, line by line, with the next step."""

from __future__ import annotations

import argparse
import http.client
import os
import shutil
import socket
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import anyio
import msgspec

from lamina.cli.output import emit
from lamina.cli.parser import add_json, whole_number
from lamina.cli.serve import apply_arguments
from lamina.cli.stored import find_key
from lamina.errors import LaminaError
from lamina.settings import load_settings
from lamina.stores.address import open_default_store, open_store
from lamina.stores.port import Store, Where

if TYPE_CHECKING:
    from lamina.gateway.clients import ClientRow
    from lamina.gateway.config import GatewaySettings

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
SMALLEST_ROOM = 48_000
"""Tokens for the request below which Claude Code has little room beside its own tools and system text."""

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
    lines = list(_check_all(arguments, os.environ))
    if arguments.json:
        emit({"lines": msgspec.to_builtins(lines)})
    else:
        for line in lines:
            print(f"{_MARKS[line.verdict]}  {line.subject}: {line.text}")
            if line.next_step:
                print(f"        -> {line.next_step}")
    return int(any(line.verdict == "wrong" for line in lines))


def _check_all(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Iterator[CheckLine]:
    yield _check_user_settings()
    yield _check_store(arguments)
    try:
        from lamina.gateway.clients import find_client  # noqa: PLC0415 - an extra
        from lamina.gateway.server import run_server  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        step = "pip install 'lamina[gateway]'"
        yield CheckLine(subject="gateway", verdict="wrong", text=str(error), next_step=step)
        return
    settings = None
    try:
        settings = _read_gateway_settings(arguments, environment)
    except LaminaError as error:
        yield CheckLine(subject="gateway", verdict="wrong", text=str(error), next_step="mend the settings")
    if settings is not None:
        names = ", ".join(f"{name} ({upstream.url})" for name, upstream in settings.upstreams.items())
        yield CheckLine(subject="gateway", verdict="ok", text=f"upstreams: {names}")
    if arguments.client:
        yield _check_program(arguments.client)
        row = find_client(arguments.client)
        yield _check_key(row, settings, environment)
        yield from _check_variables(row, environment)
        yield from _check_window(row, arguments.window or 0, environment)
    if (arguments.reach or arguments.upstream) and settings is not None:
        for name, upstream in settings.upstreams.items():
            yield _check_upstream(name, upstream.url)


def _check_user_settings() -> CheckLine:
    try:
        settings = load_settings()
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
    shown = address.partition("://")[0] if "://" in address else address  # an address may have a password
    return CheckLine(subject="store", verdict="ok", text=f"{shown} opens and can be read")


async def _read_from_store(arguments: argparse.Namespace) -> None:
    key = find_key(arguments.key_file)
    if arguments.store:
        opening = open_store(arguments.store, key=key, create=False)
    else:
        opening = open_default_store(load_settings(), key=key, create=False)
    async with opening as store:
        await _read_once(store)


async def _read_once(store: Store) -> None:
    await store.read(Where("gateway/default", "ready"), last=0)


def _is_missing_file(arguments: argparse.Namespace) -> bool:
    """Whether the store is a file that does not exist yet, in a place where it can be made."""
    try:
        address = arguments.store or load_settings().store_address()
        find_key(arguments.key_file)
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


def _read_gateway_settings(arguments: argparse.Namespace, environment: Mapping[str, str]) -> GatewaySettings:
    from lamina.gateway.config import check_settings, load_gateway_settings  # noqa: PLC0415 - an extra

    path = Path(arguments.settings).expanduser() if arguments.settings else None
    settings = apply_arguments(load_gateway_settings(path, environment), arguments, place="doctor")
    check_settings(settings, environment)
    return settings


def _check_program(client: str) -> CheckLine:
    path = shutil.which(client)
    if path is None:
        text = "there is no such program in PATH"
        return CheckLine(subject=client, verdict="wrong", text=text, next_step=f"install {client}")
    return CheckLine(subject=client, verdict="ok", text=path)


def _check_key(row: ClientRow, settings: GatewaySettings | None, environment: Mapping[str, str]) -> CheckLine:
    """Whether a key is in sight. A client may have one of its own, so that none is only a remark."""
    names = [name for name in row.keys if environment.get(name)]
    if names:
        return CheckLine(subject="key", verdict="ok", text=f"{names[0]} is set")
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
            text=f"is set to {_hide_password(value)}",
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
    if not name or not window:
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


def _hide_password(url: str) -> str:
    """An address without the user and the password that may be in it."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
