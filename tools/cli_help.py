"""The help of every command: in the page about the command line, and as a man page.

    python -m tools.cli_help            names every block of the page that is not the current help
    python -m tools.cli_help --write    rewrites them
    python -m tools.cli_help --man      prints the man page

A block is the first fence after `<!-- help: COMMAND -->`, or after `<!-- help -->` for `lamina` itself.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import lamina
from lamina.cli import COMMANDS, parser_for
from lamina.cli.store import ACTIONS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "cli.md"

SHOWN = ("", *COMMANDS, *(f"store {action}" for action in ACTIONS))
"""`lamina` itself, each command, and each action of a store."""

_BLOCK = re.compile(r"<!-- help(?:: (?P<command>\w+(?: \w+)?))? -->\n```text\n(?P<help>.*?)```\n", re.DOTALL)


def main(arguments: list[str]) -> int:
    if "--man" in arguments:
        print(write_man_page())
        return 0
    page = PAGE.read_text(encoding="utf-8")
    wrong = outdated(page)
    if "--write" in arguments:
        PAGE.write_text(rewritten(page), encoding="utf-8")
        wrong = outdated(rewritten(page))
    for name in wrong:
        print(f"{PAGE.name}: the help of {name!r} is missing or not the current one", file=sys.stderr)
    return 1 if wrong else 0


def outdated(page: str) -> list[str]:
    """Commands whose help the page does not show as it is."""
    shown = {block["command"] or "": block["help"] for block in _BLOCK.finditer(page)}
    return [f"lamina {name}".strip() for name in SHOWN if shown.get(name) != parser_for(name).format_help()]


def rewritten(page: str) -> str:
    """The page with the current help in every block."""

    def current(block: re.Match[str]) -> str:
        start, end = (at - block.start() for at in block.span("help"))
        return block[0][:start] + parser_for(block["command"] or "").format_help() + block[0][end:]

    return _BLOCK.sub(current, page)


def write_man_page() -> str:
    """All commands and their options on one page, as `man` reads it."""
    return "\n".join(_write_man_lines())


def _write_man_lines() -> Iterator[str]:
    yield f'.TH LAMINA 1 "" "lamina {lamina.__version__}" "User Commands"'
    yield ".SH NAME"
    yield "lamina \\- decide what a language model sees"
    yield ".SH SYNOPSIS"
    yield "\\fBlamina\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]"
    yield ".SH DESCRIPTION"
    yield _escape(parser_for().description or "")
    yield ".SH COMMANDS"
    for name, summary in COMMANDS.items():
        yield from (".TP", f"\\fBlamina {name}\\fR", _escape(f"{summary[0].upper()}{summary[1:]}."))
    for name in COMMANDS:
        yield f'.SH "LAMINA {name.upper()}"'
        yield from _preformatted(parser_for(name).format_help())
    yield ".SH EXIT STATUS"
    yield "0 done, 1 something was found, 2 input that cannot be used, 3 no request that small is possible, "
    yield "4 a store refuses it, 70 a bug in lamina."


def _preformatted(text: str) -> Iterator[str]:
    """Text whose lines stay as they are."""
    yield ".nf"
    for line in text.split("\n"):
        yield _escape(line)
    yield ".fi"


def _escape(line: str) -> str:
    """A line in which nothing is a command of roff: `.` and `'` are, at the beginning."""
    line = line.replace("\\", "\\e").replace("-", "\\-")
    if line.startswith((".", "'")):
        return f"\\&{line}"
    return line


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
