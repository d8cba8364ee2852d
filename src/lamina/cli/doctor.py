"""`lamina doctor`: checks what a gateway and a client need, line by line, with the next step."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec

from lamina.cli.doctor_checks import (
    CheckLine,
    check_client,
    check_gateway,
    check_models,
    check_upstream,
    ok,
    remark,
    wrong,
)
from lamina.cli.effective_settings import EffectiveSetting, list_settings, print_settings
from lamina.cli.foreign import describe_clash, describe_remedy, find_foreign_distributions
from lamina.cli.output import Tone, emit, paint, show
from lamina.cli.parser import add_json
from lamina.cli.serve import (
    INSTALL,
    add_window,
    choose_run_window,
    find_missing_package,
    read_settings,
    read_size,
    settings_path,
)
from lamina.cli.stored import find_key
from lamina.errors import BadInput, LaminaError
from lamina.sessions.setup import load_user_policy
from lamina.settings import load_settings
from lamina.stores.address import open_chosen_store
from lamina.stores.port import OwnName, Where

_EXAMPLES = """\
Each line is ok, a remark, or wrong, with what to do next. Nothing is sent anywhere unless --reach or
--upstream is given: then each upstream is connected to, without a key and without a request to a model. With
--all it prints the settings of every command and of the gateway, each with its origin: the line of a file, a
variable, or the default. Keys and tokens are never printed.

examples:
  lamina doctor
  lamina doctor claude
  lamina doctor --settings gateway.toml --reach
  lamina doctor --all --json | jq '.settings[] | select(.group == "gateway")'

exit status: 0 nothing is wrong, 1 something is
"""

_MARKS = {"ok": "ok    ", "remark": "remark", "wrong": "wrong "}
_TONES: dict[str, Tone] = {"ok": "good", "remark": "remark", "wrong": "bad"}


def describe(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "client", metavar="CLIENT", nargs="?", default="", help="the client that you want to run"
    )
    add_window(parser)
    parser.add_argument("--settings", metavar="FILE", help="a TOML file with the settings of the gateway")
    parser.add_argument(
        "--store", metavar="STORE", help="a path, files:FOLDER or postgresql://...; by default, yours"
    )
    parser.add_argument("--key-file", metavar="FILE", help="the key of a sealed store")
    parser.add_argument("--upstream", metavar="URL", help="the one server of the gateway; connect to it")
    parser.add_argument(
        "--profile", metavar="NAME", help="what kind of server that is (default: by the client, else openai)"
    )
    parser.add_argument("--reach", action="store_true", help="connect to each upstream")
    parser.add_argument(
        "--all", action="store_true", help="also every setting in effect, and where each comes from"
    )
    add_json(parser, "the lines, and with --all the settings")


def run(arguments: argparse.Namespace) -> int:
    """Print what was checked, and what to do about it. The exit code is 1 if something is wrong."""
    lines: list[CheckLine] = []
    for line in _check_all(arguments, os.environ):
        lines.append(line)
        if not arguments.json:
            _print_line(line)
    settings: list[EffectiveSetting] = []
    if arguments.all:
        with suppress(BadInput):  # a line above says what is wrong with them
            settings = list_settings(settings_path(arguments), os.environ)
    if arguments.json:
        emit({"lines": msgspec.to_builtins(lines), "settings": msgspec.to_builtins(settings)})
    else:
        print_settings(settings)
    return int(any(line.verdict == "wrong" for line in lines))


def _print_line(line: CheckLine) -> None:
    """Print what was found at once: the next check may wait for an upstream that does not answer."""
    mark = paint(_MARKS[line.verdict], _TONES[line.verdict])
    show(f"  {line.subject}: {line.text}", mark=mark)
    if line.next_step:
        show(f"        -> {line.next_step}")


def _check_all(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Iterator[CheckLine]:
    """Check the user's settings and the store, then the gateway and what it needs.

    Without its packages nothing of the gateway can be checked. If its settings cannot be read, its
    upstreams are not known, so none is tried.
    """
    yield from _check_package()
    yield from _check_user_settings()
    yield _check_store(arguments)
    yield from _check_sqlite()
    missing_package = find_missing_package()
    if missing_package:
        yield _describe_missing(missing_package, arguments)
        return
    settings = None
    try:
        settings = read_settings(arguments, environment, place="doctor", client=arguments.client)
        if arguments.client:
            settings = choose_run_window(settings, arguments)
    except LaminaError as error:
        yield wrong("gateway", str(error), next_step="mend the settings")
    else:
        yield from check_gateway(settings, environment)
    if arguments.client:
        yield from check_client(arguments.client, read_size(arguments), settings, environment)
    if settings is None:
        return
    if arguments.reach or arguments.upstream:
        for name, upstream in settings.upstreams.items():
            yield check_upstream(name, upstream.url)


def _check_package() -> Iterator[CheckLine]:
    """Say if another distribution has overwritten files of this one, or may do so."""
    foreign = find_foreign_distributions()
    if foreign:
        yield wrong("package", describe_clash(foreign), next_step=describe_remedy(foreign))


def _check_sqlite() -> Iterator[CheckLine]:
    """Say once and plainly if the SQLite in use has a fault that lamina works around."""
    from lamina.stores.sqlite.wal_reset import describe_fault  # noqa: PLC0415

    fault = describe_fault()
    if fault:
        step = "use a Python with SQLite 3.51.3 or newer, for faster writes by several processes"
        yield remark("sqlite", fault, next_step=step)


def _describe_missing(package: str, arguments: argparse.Namespace) -> CheckLine:
    """The gateway cannot run. That is wrong only if the arguments ask for something of the gateway."""
    text = f"it needs {package}, which is not installed"
    if any((arguments.client, arguments.settings, arguments.upstream, arguments.reach)):
        return wrong("gateway", text, next_step=INSTALL)
    return remark("gateway", text, next_step=INSTALL)


def _check_user_settings() -> Iterator[CheckLine]:
    """Whether the user's settings can be read, which of them are set, and whether their model is known."""
    try:
        settings = load_settings()
        load_user_policy(settings, os.environ)
    except LaminaError as error:
        yield wrong("settings", str(error), next_step="mend the file")
        return
    changed_names = [name for name in settings.__struct_fields__ if getattr(settings, name)]
    if changed_names:
        yield ok("settings", f"set: {', '.join(changed_names)}")
    else:
        yield ok("settings", "nothing is set; the defaults hold")
    if settings.model:
        yield from check_models([(settings.model, settings.dialect)])


def _check_store(arguments: argparse.Namespace) -> CheckLine:
    """Open the store and read from it. A store that is not there yet is not made."""
    try:
        address = arguments.store or load_settings().store_address()
        anyio.run(_read_from_store, arguments)
    except (LaminaError, OSError) as error:
        if _is_missing_file(arguments):
            return ok("store", "there is none yet; it is made by the first conversation")
        step = "check its path and its key, or name another with --store"
        return wrong("store", str(error), next_step=step)
    scheme, separator, _ = address.partition("://")
    if separator:
        address = scheme  # the rest may have a password
    return ok("store", f"{address} opens and can be read")


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
    except LaminaError:  # the settings or the key are wrong: that is the fault to report
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
