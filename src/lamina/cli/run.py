"""`lamina run -- claude`: a client in this terminal, through a gateway that lives as long as it does."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec

from lamina.cli.doctor_checks import check_upstream
from lamina.cli.output import tell
from lamina.cli.serve import (
    add_gateway_options,
    apply_arguments,
    choose_run_window,
    describe_window,
    read_size,
    require_gateway,
    settings_path,
)
from lamina.cli.stored import hide_password
from lamina.errors import BadInput

if TYPE_CHECKING:
    from lamina.gateway.account import GatewayAccount
    from lamina.relay.config import GatewaySettings

_EXAMPLES = """\
The gateway listens on a free port of this machine, and the client gets the variables or arguments that point
it there: claude, codex, gemini, opencode, aider and qwen by name, any other command by OPENAI_BASE_URL,
ANTHROPIC_BASE_URL and GOOGLE_GEMINI_BASE_URL. If one of these is set already, its server is the upstream.
If the gateway dies it comes back on the same port. At the end standard error says how many requests there
were, what they cost, what they would have cost without lamina, which window held, and where the cache was
lost. Without --window and a settings file, a cut is made when more of the conversation in sight costs more
than it is worth (--window price); --window model uses all of the model's window. Requests and answers are
kept in your own data folder for 30 days, at most 2 GB (--keep says otherwise): lamina log.

examples:
  lamina run -- claude
  lamina run --prefer cost -- claude -p "What does this project do?"
  lamina run --upstream http://127.0.0.1:8080 --profile llama.cpp -- opencode
  lamina run --gateway http://127.0.0.1:4949 -- python agent.py

exit status: that of the client, 128 and the number of the signal that ended it, or 2 for input that cannot
be used
"""

_FORWARDED = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
"""Signals that reach only this process, and are meant for the client."""

_FROM_TERMINAL = ("SIGINT", "SIGQUIT")
"""Signals that a terminal sends to the client as well."""

INSPECTOR_PATH = "/lamina/inspect/"
CLIENTS_WITH_LOGS = ("claude", "codex")
"""Clients that keep their sessions where `lamina inspect` looks by itself."""

OVER_SIGNAL = 128


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "lamina run [--window N|price|model] [--prefer memory|balanced|cost|answers] [--tool NAME=RULE]\n"
        "                [--store STORE] [--key-file FILE] [--keep all|lowered|nothing] [--settings FILE]\n"
        "                [--upstream URL] [--profile NAME] [--gateway URL] -- CLIENT ..."
    )
    parser.epilog = _EXAMPLES
    add_gateway_options(parser)
    parser.add_argument("--gateway", metavar="URL", help="use this running gateway")
    parser.add_argument(
        "--keep",
        choices=("all", "lowered", "nothing"),
        help="what is stored of the contents of conversations: all (the default), what was shortened or left "
        "out (lowered), or nothing",
    )
    parser.add_argument("client", metavar="CLIENT", nargs=argparse.REMAINDER, help="the command to run")


def run(arguments: argparse.Namespace) -> int:
    """Run the client behind a gateway: one that runs already, or one that lives as long as the client.

    If no gateway can be started, the client runs without one, and the user is told why.
    """
    command = _read_command(arguments.client)
    if arguments.gateway:
        return _run_at(arguments.gateway.rstrip("/"), command, arguments)
    require_gateway("run")
    from lamina.gateway.supervisor import GatewayNotStarted  # noqa: PLC0415 - an extra

    try:
        return _run_supervised(command, arguments)
    except GatewayNotStarted as error:
        return _run_directly(command, str(error))


def _read_command(words: list[str]) -> tuple[str, ...]:
    """The client's command, without the -- before it."""
    if words[:1] == ["--"]:
        words = words[1:]
    if not words:
        raise BadInput("there is no client to run", place="run", hint="write lamina run -- claude")
    if shutil.which(words[0]) is None:
        hint = "install it, or write its path"
        raise BadInput(f"there is no program {words[0]!r}", place="run", hint=hint)
    return tuple(words)


def _run_supervised(command: tuple[str, ...], arguments: argparse.Namespace) -> int:
    """Run the client through a gateway of its own."""
    from lamina.gateway.account import GatewayAccount  # noqa: PLC0415 - an extra
    from lamina.gateway.supervisor import GatewaySupervisor  # noqa: PLC0415 - an extra

    if sys.platform == "win32":
        hint = "start lamina serve, and pass its address with --gateway"
        raise BadInput("a gateway of its own needs a system with file descriptors", place="run", hint=hint)
    settings = _read_settings(command[0], arguments)
    account = GatewayAccount(lambda: _read_earlier_lines(settings))
    tell(f"lamina: {describe_window(settings)}")
    with GatewaySupervisor(settings, account.read_event) as gateway:
        inspector = find_inspector(settings, gateway.url, command[0])
        if inspector:
            tell(f"lamina: what the model sees: {inspector}")
        code = _run_pointed(command, gateway.url, read_size(arguments))
    if gateway.restarts:
        tell(f"lamina: the gateway died and was started again ({gateway.restarts})")
    _print_account(account, command[0])
    inspector = find_inspector(settings, "", command[0])
    if account.calls and inspector:
        tell(f"lamina: what it saved, as a picture, and what the model saw: {inspector}")
    return code


def find_inspector(settings: GatewaySettings, url: str, client: str) -> str:
    """Where to see what the model sees: a page of the gateway, or a command for when the client has ended.

    Without a `url` it has ended. "" if nothing keeps it: the gateway has no page, stores only what it
    shortens, and the client has no logs.
    """
    if settings.inspect and url:
        return f"{url}{INSPECTOR_PATH}"
    if settings.policy.keep == "all":
        if not settings.store:
            return "lamina inspect --open"
        return f"lamina inspect --store {hide_password(settings.store)} --open"
    if Path(client).stem in CLIENTS_WITH_LOGS:
        return "lamina inspect --open"
    return ""


def _read_settings(client: str, arguments: argparse.Namespace) -> GatewaySettings:
    """The settings for the gateway of one client: on this machine, one process, any port."""
    from lamina.relay.config import check_settings, load_gateway_settings  # noqa: PLC0415 - an extra

    path = settings_path(arguments)
    settings = load_gateway_settings(path, os.environ)
    if path is None and not arguments.upstream:
        settings = _keep_direct_urls(settings, client, os.environ)
    settings = apply_arguments(settings, arguments, place="run", client=client)
    if path is None:
        settings = _keep_own(settings, arguments)
    settings = choose_run_window(settings, arguments)
    settings = msgspec.structs.replace(settings, host="127.0.0.1", port=0, workers=1)
    check_settings(settings, os.environ, path)
    return settings


def _keep_own(settings: GatewaySettings, arguments: argparse.Namespace) -> GatewaySettings:
    """Keep everything, so that it can be inspected afterwards: it is the user's own machine and folder.

    With a settings file, or with --keep, it is as they say.
    """
    from lamina.conversations.retention import RUN_BYTES, RUN_DAYS  # noqa: PLC0415 - with the gateway only

    limited = msgspec.structs.replace(settings, keep_days=RUN_DAYS, keep_bytes=RUN_BYTES)
    if arguments.keep is not None:
        return limited
    return msgspec.structs.replace(limited, policy=msgspec.structs.replace(settings.policy, keep="all"))


def _keep_direct_urls(
    settings: GatewaySettings, client: str, environment: Mapping[str, str]
) -> GatewaySettings:
    """Send requests where the user's environment sends them: a key is for the server that it names."""
    from lamina.gateway.clients import find_client, read_direct_urls  # noqa: PLC0415 - an extra

    upstreams = dict(settings.upstreams)
    for api, url in read_direct_urls(environment, find_client(client).apis).items():
        upstreams[api] = msgspec.structs.replace(upstreams[api], url=url)
    return msgspec.structs.replace(settings, upstreams=upstreams)


def _run_pointed(command: tuple[str, ...], url: str, window: int) -> int:
    """Run the client with its address set to the gateway. A limit that is set for it is told."""
    from lamina.gateway.clients import find_client, point_client  # noqa: PLC0415 - an extra

    launch = point_client(command, url, os.environ, window=window)
    limit = find_client(command[0]).window_variable
    if window and limit and limit not in os.environ:
        value = launch.environment[limit]
        tell(f"lamina: {limit}={value}, so that the answer leaves enough of {window:,} tokens")
    return run_client(launch.command, launch.environment)


def _run_at(url: str, command: tuple[str, ...], arguments: argparse.Namespace) -> int:
    """Run the client through a gateway that runs already, and keeps the account of all its clients."""
    hint = "start one with lamina serve, or leave --gateway out"
    try:
        line = check_upstream("gateway", url)
    except ValueError:
        raise BadInput(f"{url!r} is not an address", place="--gateway", hint=hint) from None
    if line.verdict == "wrong":
        raise BadInput(line.text, place="--gateway", hint=hint)
    code = _run_pointed(command, url, read_size(arguments))
    tell("lamina: what it cost stands with the gateway: lamina log -f, where it runs")
    return code


def _run_directly(command: tuple[str, ...], reason: str) -> int:
    """Run the client without a gateway, and say so before and after."""
    notice = f"lamina: the gateway did not start, so {command[0]} runs without it: {reason}"
    tell(notice)
    code = run_client(command, os.environ)
    tell(notice)
    return code


def run_client(command: tuple[str, ...], environment: Mapping[str, str]) -> int:
    """Run the client in this terminal until it ends, with the signals that are meant for it."""
    with _forward_signals() as forwarder:
        try:
            process = subprocess.Popen(command, env=dict(environment))  # noqa: S603 - the user's own command
        except OSError as error:
            hint = "check that it is a program"
            raise BadInput(f"cannot be started: {error.strerror}", place=command[0], hint=hint) from None
        forwarder.attach(process)
        code = process.wait()
    if code < 0:
        return OVER_SIGNAL - code
    return code


class _SignalForwarder:
    """Passes signals on to the client. Those that come before it runs wait for it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._waiting: list[int] = []

    def attach(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        while self._waiting:
            process.send_signal(self._waiting.pop(0))

    def forward(self, number: int, _: FrameType | None) -> None:
        """Handle a signal. Python calls this between two steps of the main thread, so nothing is locked."""
        if self._process is None:
            self._waiting.append(number)
        else:
            self._process.send_signal(number)


@contextlib.contextmanager
def _forward_signals() -> Iterator[_SignalForwarder]:
    """Pass signals on to the client.

    A terminal sends Ctrl-C to the client itself. This process must only live until the client has ended.
    """
    forwarder = _SignalForwarder()
    handlers: dict[str, Callable[[int, FrameType | None], None]] = {}
    handlers |= dict.fromkeys(_FORWARDED + _FROM_TERMINAL, forwarder.forward)
    if _is_in_foreground():
        handlers |= dict.fromkeys(_FROM_TERMINAL, _leave_to_terminal)
    previous = {}
    for name, handler in handlers.items():
        number = getattr(signal, name, None)
        if number is None:  # this system has no such signal
            continue
        if signal.getsignal(number) is signal.SIG_IGN:  # as `nohup` does with SIGHUP: the client inherits it
            continue
        previous[number] = signal.signal(number, handler)
    try:
        yield forwarder
    finally:
        for number, previous_handler in previous.items():
            signal.signal(number, previous_handler)


def _leave_to_terminal(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the terminal sent the signal to the client, too."""


def _is_in_foreground() -> bool:
    """Whether a terminal sends its signals to this process, and so to the client too."""
    try:
        return os.tcgetpgrp(sys.__stdin__.fileno()) == os.getpgrp()  # type: ignore[union-attr]
    except (AttributeError, OSError, ValueError):
        return False


def _read_earlier_lines(settings: GatewaySettings) -> Iterator[Mapping[str, Any]]:
    """The lines that earlier gateways wrote beside the same store."""
    from lamina.relay.journal import find_journal, read_journal  # noqa: PLC0415 - an extra

    path = find_journal(settings, os.environ)
    if path is not None:
        yield from read_journal(path)


def _print_account(account: GatewayAccount, client: str) -> None:
    from lamina.gateway.clients import explain_bypass  # noqa: PLC0415 - an extra

    if account.is_empty:
        tell(f"lamina: {explain_bypass(client)}")
        return
    for line in account.write_lines():
        tell(f"lamina: {line}")
