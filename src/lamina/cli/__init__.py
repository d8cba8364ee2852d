"""The command `lamina`: runs one of its commands, and turns errors into one line.

Each command is a file of this package with `describe(parser)` and `run(arguments)`. It is imported when it
is run, so that `lamina --help` is quick. Nothing here knows what a command does.

    0  done                               2    input that cannot be used
    1  a check found something, or two      3    no request that small is possible
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
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

from lamina.cli.output import emit, show, tell, write_result
from lamina.cli.parser import Parser, suggest
from lamina.errors import BadInput, BudgetExceeded, InvalidRequest, NotFound, StoreError

__all__ = ["COMMANDS", "main"]

GROUPS = {
    "start": ("demo", "cost", "chat", "doctor"),
    "gateway": ("run", "serve"),
    "requests": ("fit", "diff"),
    "conversations": ("log", "inspect", "recall", "mcp", "store"),
}
"""The commands as `lamina --help` groups them; in each group what a newcomer tries first."""

FORMER = {
    "replay": "it is lamina cost now; policies are simulated by bench/policies.py in a checkout",
    "conversations": "lamina log lists and shows them; lamina store copies, exports and deletes them",
    "tail": "lamina log -f follows a gateway",
    "key": "lamina store key makes a key",
    "check": "lamina fit FILE --check lists the rules that a request breaks",
    "explain": "lamina fit FILE --explain prints each part and why it is sent as it is",
    "config": "lamina doctor --all prints the settings in effect",
    "rekey": "copy the store into a new one under another key: "
    "lamina store copy NEW --store OLD --key-file OLD_KEY --new-key-file NEW_KEY",
    "tools": "`load_tools` in the settings names the tools that every request has",
}
"""Commands that earlier releases had, each with what to do instead."""

COMMANDS = {
    "demo": "watch a made-up session go through lamina; a good first command",
    "cost": "say what sessions cost, and what lamina run saved or would have saved",
    "inspect": "see in a browser what the model saw in each request, what it did not see, and why",
    "run": "run a client through its own gateway, and report what it cost",
    "serve": "run a gateway that makes the requests of any client fit, and keeps their cached prefix",
    "log": "list conversations, show one, or follow the requests of a gateway (-f)",
    "store": "copy, export, erase, delete, prune and verify conversations; make a key; say where all is",
    "doctor": "check the settings, the store, the client and the upstreams, with the next step",
    "chat": "talk with a model in the terminal, and see what it sees",
    "fit": "make a request fit the window of its model; --explain and --check only look at it",
    "diff": "say where and why two requests diverge",
    "recall": "bring back the full text behind a handle",
    "mcp": "serve recall, explain and search to any client of the Model Context Protocol",
}
"""Every command, and what it does in a line."""

BAD_INPUT, NO_ROOM, STORE, BUG, CLOSED, STOPPED = 2, 3, 4, 70, 141, 130

_EXAMPLES = """\
examples:
  lamina demo
  lamina cost ~/.claude/projects
  lamina inspect --open
  lamina run -- claude
  lamina fit request.json --ledger ledger.json > fitted.json
  lamina fit request.json --explain --window 32000
  lamina diff before.json after.json
  lamina log

`lamina help COMMAND` has the options of a command. Where a command reads a FILE, "-" is standard input.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit code."""
    if argv is None:
        argv = sys.argv[1:]
    words = list(argv)
    if not _open_streams():
        return BAD_INPUT
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _print_warning  # type: ignore[assignment]
            # `lamina store verify` prints this one
            warnings.filterwarnings("ignore", message="SQLite .* can damage a file")
            code = _run(words)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has seen enough
        _silence()
        return CLOSED
    except KeyboardInterrupt:
        return STOPPED
    except Exception as error:  # noqa: BLE001 - a command never ends in a traceback
        return _report_failure(error, as_json="--json" in words)
    return code


def parser_for(command: str = "") -> Parser:
    """The parser of one command, of one of its actions (`store delete`), or of `lamina` itself.

    Only that command's file is imported.
    """
    if command:
        name, _, action = command.partition(" ")
        parser = Parser(prog=f"lamina {name}", description=_sentence(COMMANDS[name]))
        describe_command(parser, name)
        if action:
            return parser.actions[action]
        return parser
    parser = Parser(
        prog="lamina",
        usage="lamina COMMAND ...",
        description="Decide what a language model sees: requests that fit and keep the cached prefix.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.add_argument(
        "--completion", metavar="SHELL", help="print the completion for bash, zsh or fish and exit"
    )
    for title, names in GROUPS.items():
        commands = parser.add_argument_group(title)
        for name in names:
            commands.add_argument(name, nargs="?", help=COMMANDS[name], default=argparse.SUPPRESS)
    return parser


def describe_command(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments of one command to a parser. Only the file of that command is imported."""
    import_module(f"lamina.cli.{command}").describe(parser)


def _run(words: list[str]) -> int:
    """Run the command that the first word names, and return its exit code.

    `lamina fit request.json` imports `lamina.cli.fit` and nothing of the other commands.
    """
    try:
        if words and words[0] == "help":
            words = [*words[1:2], "--help"]
        if words and words[0] in COMMANDS:
            arguments = parser_for(words[0]).parse_args(words[1:])
            code: int = import_module(f"lamina.cli.{words[0]}").run(arguments)
            return code
        return _run_without_command(words)
    except SystemExit as end:  # how argparse ends, after help and after what it refuses
        if isinstance(end.code, int):
            return end.code
        return BAD_INPUT


def _run_without_command(words: list[str]) -> int:
    """Print the help, the version, or what is wrong."""
    parser = parser_for()
    if not words:
        parser.print_help(sys.stderr)
        return BAD_INPUT
    if words[0] in FORMER:
        parser.error(f"there is no command {words[0]} any more: {FORMER[words[0]]}")
    if not words[0].startswith("-"):
        near = suggest(words[0], COMMANDS) or f"; use one of {', '.join(COMMANDS)}"
        parser.error(f"unknown command {words[0]!r}{near}")
    arguments = parser.parse_args(words)
    if arguments.version:
        show(f"lamina {_version()}")
    if arguments.completion:
        _print_completion(arguments.completion)
    return 0


def _print_completion(shell: str) -> None:
    from lamina.cli.completion import SHELLS, write_completion  # noqa: PLC0415 - few ask for it

    if shell not in SHELLS:
        raise BadInput(f"no completion for {shell!r}", place="--completion", hint=f"use {', '.join(SHELLS)}")
    write_result(f"{write_completion(shell, {name: parser_for(name) for name in COMMANDS})}\n")


def _version() -> str:
    metadata = import_module("importlib.metadata")  # slow to import, and only needed here
    try:
        return str(metadata.version("lamina-context"))
    except metadata.PackageNotFoundError:
        return "(not installed)"


class _Failure(NamedTuple):
    """An error as this program reports it: the exit code, and what --json prints."""

    code: int
    kind: str
    message: str
    facts: Mapping[str, Any] = MappingProxyType({})


def _report_failure(error: Exception, *, as_json: bool) -> int:
    """Tell what went wrong, as a line and with --json as an object too, and return the exit code.

    If the output itself failed, nothing more is written to it.
    """
    failure = _describe_failure(error)
    if failure.kind == "output":
        _silence()
    tell("lamina: " + " ".join(failure.message.split()))
    if as_json:
        with contextlib.suppress(OSError):
            emit({"error": {"kind": failure.kind, "message": failure.message, **failure.facts}})
            sys.stdout.flush()
    return failure.code


def _describe_failure(error: Exception) -> _Failure:
    """How an error is reported: its exit code, a word for programs, a sentence, and its facts as JSON.

    Anything that is not an error of lamina's, nor one of the output, is a bug.
    """
    match error:
        case BudgetExceeded():
            facts: dict[str, Any] = {"floor": error.floor, "room": error.room}
            return _Failure(NO_ROOM, "budget_exceeded", str(error), facts)
        case BadInput():
            facts = {"place": error.place, "problem": error.problem, "hint": error.hint}
            return _Failure(BAD_INPUT, "bad_input", str(error), facts)
        case InvalidRequest():
            violations = [{"rule": broken.rule, "place": broken.place} for broken in error.violations]
            return _Failure(BAD_INPUT, "invalid_request", str(error), {"violations": violations})
        case StoreError() | NotFound():
            return _Failure(STORE, type(error).__name__.lower(), str(error))
        case OSError():  # commands turn errors of the files that they read and write into BadInput
            return _Failure(BAD_INPUT, "output", f"output: {error.strerror or error}")
        case _:
            return _describe_bug(error)


def _describe_bug(error: Exception) -> _Failure:
    """An error that lamina did not foresee. A missing name may be that of a file that was overwritten."""
    if isinstance(error, ImportError | AttributeError):
        foreign_package = import_module("lamina.cli.foreign")  # slow to import, and only needed here
        clash = foreign_package.find_foreign_distributions()
        if clash:
            hint = foreign_package.describe_remedy(clash)
            return _Failure(BAD_INPUT, "clash", f"{foreign_package.describe_clash(clash)}; {hint}")
    message = f"{type(error).__name__}: {error}; this is a bug in lamina, please report it"
    return _Failure(BUG, "bug", message)


def _print_warning(message: Warning | str, *_: Any) -> None:
    """A warning as one line, without the place in the source that gave it."""
    tell("lamina: warning: " + " ".join(str(message).split()))


def _open_streams() -> bool:
    """Whether there is an output; remarks may go nowhere. Characters that it lacks are escaped.

    A program without a console, such as a service, may have neither stream.
    """
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
    """Send standard output nowhere: what is left in the buffer would fail once more when Python ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
