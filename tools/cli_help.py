"""The help of every command, in the page about the command line.

    python -m tools.cli_help            names every block that is not the current help
    python -m tools.cli_help --write    rewrites them

A block is the first fence after `<!-- help: COMMAND -->`, or after `<!-- help -->` for `lamina` itself.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from lamina.cli import COMMANDS, parser_for

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "cli.md"

_BLOCK = re.compile(r"<!-- help(?:: (?P<command>\w+))? -->\n```text\n(?P<help>.*?)```\n", re.DOTALL)


def main(arguments: list[str]) -> int:
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
    return [
        f"lamina {name}".strip()
        for name in ("", *COMMANDS)
        if shown.get(name) != parser_for(name).format_help()
    ]


def rewritten(page: str) -> str:
    """The page with the current help in every block."""

    def current(block: re.Match[str]) -> str:
        start, end = (at - block.start() for at in block.span("help"))
        return block[0][:start] + parser_for(block["command"] or "").format_help() + block[0][end:]

    return _BLOCK.sub(current, page)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
