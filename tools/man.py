"""The man page, written from the parsers: one page with every command and its options.

python -m tools.man > lamina.1
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import lamina
from lamina.cli import COMMANDS, parser_for


def main() -> int:
    print(write_page())
    return 0


def write_page() -> str:
    """The page, as `man` reads it."""
    return "\n".join(_write_lines())


def _write_lines() -> Iterator[str]:
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
    sys.exit(main())
