"""Parses arguments: help in one width, each error on one line, and the options that commands share."""

from __future__ import annotations

import argparse
import difflib
import math
import re
import sys
import textwrap
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

WIDTH = 80
"""Of help, wherever it is printed: the documentation shows it as it is."""

_USAGE_INDENT = 8


class Parser(argparse.ArgumentParser):
    """Help in a fixed layout, without colour; errors as one line."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=_layout, allow_abbrev=False, **settings)
        self.color = False
        self.actions: dict[str, Parser] = {}

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"lamina: {message}{self._suggest(message)}; see {self.prog} --help\n")

    def format_help(self) -> str:
        """The help, with its prose and its usage in `WIDTH` columns. Indented lines, as in examples, stay."""
        self.description = _wrap_prose(self.description or "")
        self.epilog = _wrap_prose(self.epilog or "")
        usage = self.format_usage().removeprefix("usage: ").replace("[-h] ", "")
        self.usage = _wrap_usage(usage).replace("%", "%%")
        return super().format_help()

    def _suggest(self, message: str) -> str:
        """The option that was probably meant, where argparse names one that it does not know."""
        unknown = re.match(r"unrecognized arguments: (--[a-z-]+)", message)
        if unknown is None:
            return ""
        return suggest(unknown[1], self._option_string_actions)

    def print_help(self, file: Any = None) -> None:
        (file or sys.stdout).write(self.format_help())  # argparse's own hides that it failed

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        sys.stderr.write(message or "")
        raise SystemExit(status)


def suggest(word: str, choices: Iterable[str]) -> str:
    """`, did you mean cost` if a known word is near, else nothing."""
    near = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.7)
    if not near:
        return ""
    return f", did you mean {near[0]}"


def add_file(parser: argparse.ArgumentParser, name: str = "file", metavar: str = "FILE") -> None:
    parser.add_argument(name, metavar=metavar, help="a request as JSON; - is standard input")


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--json", action="store_true", help=f"print one JSON object: {what}")


def add_dialect(parser: argparse.ArgumentParser, names: str) -> None:
    parser.add_argument("--dialect", metavar="NAME", help=f"{names}; by default, what the request looks like")


def add_tool_rules(parser: argparse.ArgumentParser) -> None:
    """What the user decided about the results of single tools."""
    parser.add_argument(
        "--tool",
        metavar="NAME=RULE",
        dest="tools",
        action="append",
        type=_read_tool_rule,
        help="results of this tool stay whole as long as they fit (whole), go first (short), or are never "
        "kept in digests and reminders (never); give it once for each tool",
    )


def _read_tool_rule(text: str) -> tuple[str, str]:
    """`grep=short` as a pair. The policy checks the rule."""
    name, equals, rule = text.rpartition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not like grep=short")
    return name, rule


def seed_number(text: str) -> int:
    """A whole number that may be below 0."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def whole_number(text: str) -> int:
    """A number of days or sessions, as an argument."""
    number = seed_number(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is below 0")
    return number


def window_size(text: str) -> int:
    """A context window in tokens, as an argument."""
    window = whole_number(text)
    if window == 0:
        raise argparse.ArgumentTypeError("a window has at least one token; leave it out for the usual one")
    return window


def float_or_nan(text: str) -> float:
    """A number, or nan for any other word: no range has it, so that one check refuses both."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def read_moment(text: str) -> float:
    """`7d` or `2026-11-01` as seconds since 1970."""
    unit = _UNITS.get(text[-1:])
    try:
        if unit is not None and text[:-1].isdigit():
            return (datetime.now(UTC) - int(text[:-1]) * unit).timestamp()
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):  # a time before the year 1 overflows
        raise argparse.ArgumentTypeError(f"{text!r} is neither a date nor like 7d") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()


_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def _wrap_prose(text: str) -> str:
    """The paragraphs of a text in `WIDTH` columns. One with an indented line has a layout of its own."""
    paragraphs: list[str] = []
    for paragraph in text.split("\n\n"):
        lines = paragraph.rstrip("\n").split("\n")
        if not any(line.startswith(" ") for line in lines):
            lines = textwrap.wrap(" ".join(lines), WIDTH, break_long_words=False, break_on_hyphens=False)
        paragraphs.append("\n".join(lines))
    return "\n\n".join(paragraphs)


def _wrap_usage(usage: str) -> str:
    """A usage line in `WIDTH` columns, broken between options."""
    pieces = re.findall(r"\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]\S*|\S+", " ".join(usage.split()))
    lines = [""]
    width = WIDTH - len("usage: ")
    for piece in pieces:
        if len(lines[-1]) + 1 + len(piece) > width and lines[-1]:
            lines.append(" " * _USAGE_INDENT + piece)
            width = WIDTH
        else:
            lines[-1] = f"{lines[-1]} {piece}" if lines[-1] else piece
    return "\n".join(lines)


def _layout(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, width=WIDTH, max_help_position=20)
