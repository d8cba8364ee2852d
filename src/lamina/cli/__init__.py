"""The command `lamina`: finds the command that was asked for, runs it, and turns errors into one line.

Each command is a file of this package with `describe(parser)` and `run(arguments)`. It is imported when it
is asked for, so that `lamina --help` is quick. Nothing here knows what a command does.

    0  done                               2    input that cannot be used
    1  check found something, or two      3    no request that small is possible
       requests part                      4    a store refuses it, or does not hold
                                          70   a bug in lamina
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from lamina.cli.output import emit, tell
from lamina.cli.parser import Parser
from lamina.errors import BadInput, BudgetExceeded, InvalidRequest, NotFound, StoreError

COMMANDS = {
    "fit": "make a request fit the window of its model",
    "check": "list the rules of the API that a request breaks",
    "explain": "show every segment of a request: layer, form, tokens and why",
    "diff": "say where and why two requests part",
    "chat": "talk with a model in the terminal, and see what it sees",
    "sessions": "list, show, export, import, copy, delete, verify or rescue conversations that are kept",
    "recall": "bring back the full text behind a handle",
    "rekey": "seal a store anew under another key",
    "replay": "say what recorded sessions cost, and would have cost under each policy",
    "demo": "send a made-up session through lamina and watch",
}
BAD_INPUT, NO_ROOM, STORE, BUG, CLOSED, STOPPED = 2, 3, 4, 70, 141, 130

_EXAMPLES = """\
examples:
  lamina fit request.json --ledger ledger.json > fitted.json
  lamina check request.json
  lamina explain request.json --window 32000
  lamina diff before.json after.json
  lamina sessions list
  lamina replay logs/ --html report.html
  lamina demo

Commands that read a FILE read standard input where it is "-".
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    given = [*(sys.argv[1:] if argv is None else argv)]
    if not _open_streams():
        return BAD_INPUT
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warned  # type: ignore[assignment]
            warnings.filterwarnings(
                "ignore", message="SQLite .* can damage a file"
            )  # `sessions verify` says it
            code = _run(given)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has seen enough
        _silence()
        return CLOSED
    except KeyboardInterrupt:
        return STOPPED
    except Exception as error:  # noqa: BLE001 - a command never ends in a traceback
        return _failed(error, machine="--json" in given)
    return code


def parser_for(command: str = "") -> Parser:
    """The parser of one command, or of `lamina` itself; only that command's file is imported."""
    if command:
        parser = Parser(prog=f"lamina {command}", description=_sentence(COMMANDS[command]))
        import_module(f"lamina.cli.{command}").describe(parser)
        return parser
    parser = Parser(
        prog="lamina",
        usage="lamina COMMAND ...",
        description="Decide what a language model sees: requests that fit and keep the cached prefix.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_argument_group("commands, each with its own --help")
    for name, what in COMMANDS.items():
        commands.add_argument(name, nargs="?", help=what, default=argparse.SUPPRESS)
    return parser


def _run(given: list[str]) -> int:
    try:
        if given and given[0] in COMMANDS:
            arguments = parser_for(given[0]).parse_args(given[1:])
            code: int = import_module(f"lamina.cli.{given[0]}").run(arguments)
            return code
        return _lamina(given)
    except SystemExit as done:  # how argparse ends, after help and after what it refuses
        return done.code if isinstance(done.code, int) else BAD_INPUT


def _lamina(given: list[str]) -> int:
    """No command: help, the version, or what is wrong."""
    parser = parser_for()
    if not given:
        parser.print_help(sys.stderr)
        return BAD_INPUT
    if not given[0].startswith("-"):
        parser.error(f"unknown command {given[0]!r}; use one of {', '.join(COMMANDS)}")
    if parser.parse_args(given).version:
        print(f"lamina {_version()}")
    return 0


def _version() -> str:
    metadata = import_module("importlib.metadata")  # slow to import, and only needed here
    try:
        return str(metadata.version("lamina"))
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _failed(error: Exception, *, machine: bool) -> int:
    code, kind, message = (
        BUG,
        "bug",
        f"{type(error).__name__}: {error}; this is a bug in lamina, please report it",
    )
    facts: dict[str, Any] = {}
    if isinstance(error, BudgetExceeded):
        code, kind, message = NO_ROOM, "budget_exceeded", str(error)
        facts = {"floor": error.floor, "room": error.room}
    elif isinstance(error, BadInput):
        code, kind, message = BAD_INPUT, "bad_input", str(error)
        facts = {"place": error.place, "problem": error.problem, "hint": error.hint}
    elif isinstance(error, InvalidRequest):
        code, kind, message = BAD_INPUT, "invalid_request", str(error)
        facts = {"violations": [{"rule": v.rule, "place": v.place} for v in error.violations]}
    elif isinstance(error, StoreError | NotFound):
        code, kind, message = STORE, type(error).__name__.lower(), str(error)
    elif isinstance(error, OSError):  # files that commands read and write are bad input by now
        _silence()
        code, kind, message = BAD_INPUT, "output", f"output: {error.strerror or error}"
    tell("lamina: " + " ".join(message.split()))
    if machine:
        with contextlib.suppress(OSError):
            emit({"error": {"kind": kind, "message": message, **facts}})
            sys.stdout.flush()
    return code


def _warned(message: Warning | str, *_: Any) -> None:
    """A warning as one line, without the place in the source that gave it."""
    tell("lamina: warning: " + " ".join(str(message).split()))


def _open_streams() -> bool:
    """Whether there is an output; remarks may go nowhere. No terminal is asked for what it cannot show."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - open until the end
    if sys.stdout is None:
        tell("lamina: output: it is closed")
        return False
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    return True


def _silence() -> None:
    """What is left in the buffer would fail once more when Python ends, so it goes nowhere."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
