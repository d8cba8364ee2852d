"""How commands read their arguments: one width for help, one line for what is wrong, shared options."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

WIDTH = 92
"""Of help, wherever it is printed: the documentation shows it as it is."""


class Parser(argparse.ArgumentParser):
    """Help in a fixed layout, without colour; errors as one line."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=_layout, allow_abbrev=False, **settings)
        self.color = False

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"lamina: {message}; see {self.prog} --help\n")

    def print_help(self, file: Any = None) -> None:
        (file or sys.stdout).write(self.format_help())  # argparse's own hides that it failed

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        sys.stderr.write(message or "")
        raise SystemExit(status)


def add_file(parser: argparse.ArgumentParser, name: str = "file", metavar: str = "FILE") -> None:
    parser.add_argument(name, metavar=metavar, help="a request as JSON; - is standard input")


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--json", action="store_true", help=f"print one JSON object: {what}")


def add_dialect(parser: argparse.ArgumentParser, known: str) -> None:
    parser.add_argument("--dialect", metavar="NAME", help=f"{known}; by default, what the request looks like")


def add_budget(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--window",
        metavar="N",
        type=whole_number,
        help="the context window in tokens; by default, the model's",
    )
    parser.add_argument(
        "--reserve",
        metavar="N",
        type=whole_number,
        help="tokens of it for the answer; by default, the request's own limit",
    )


def whole_number(text: str) -> int:
    """A number of tokens, as an argument."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def read_moment(text: str) -> float:
    """`7d` or `2026-11-01` as seconds since 1970."""
    unit = _UNITS.get(text[-1:])
    if unit is not None and text[:-1].isdigit():
        return (datetime.now(UTC) - int(text[:-1]) * unit).timestamp()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a date nor like 7d") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()


_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def _layout(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, width=WIDTH, max_help_position=20)
