"""How large lamina is, in the figures that a newcomer pays for.

    python -m tools.size          print them, and how much each is above its record
    python -m tools.size --write  record today's in tools/size.json

Lines of code are those that are neither blank, nor a comment, nor a docstring. Public names are those of
docs/api.md. Settings are the fields of the tables that a user may write, flags the options of all commands.
What rises is shown and not refused: the commit that raises a figure says why.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from lamina.cli import COMMANDS, parser_for
from lamina.core.values import Budget
from lamina.fitting import Policy
from lamina.gateway import GatewaySettings
from lamina.relay.config import AccessToken, UpstreamSettings
from lamina.settings import Settings
from tools.api import list_modules, public_names
from tools.house import count_code_lines

ROOT = Path(__file__).resolve().parent.parent
TABLES = (Policy, Budget, Settings, GatewaySettings, UpstreamSettings, AccessToken)


def main() -> int:
    gc.disable()  # trees are gone when they are counted; looking for garbage took a quarter of the time
    show_beside_record("size", dict(count_all()))
    return 0


def show_beside_record(tool: str, figures: Mapping[str, int], *, spare: int = 0) -> None:
    """Print the figures of a tool, and what is more than `spare` above the record. `--write` records them."""
    parser = argparse.ArgumentParser(prog=f"python -m tools.{tool}")
    parser.add_argument("--write", action="store_true", help="record today's figures")
    record = ROOT / "tools" / f"{tool}.json"
    if parser.parse_args().write:
        record.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    recorded = json.loads(record.read_text(encoding="utf-8"))
    for name, figure in figures.items():
        rise = figure - recorded.get(name, 0)
        mark = f"  rose by {rise:,}: the commit says why" if rise > spare else ""
        print(f"{name:<36}{figure:>10,}{mark}")


def count_all() -> Iterator[tuple[str, int]]:
    """Every figure by its name."""
    lengths = [count_code_lines(path) for path in sorted((ROOT / "src").rglob("*.py"))]
    yield "lines of code", sum(lengths)
    yield "files", len(lengths)
    yield "files under 40 lines of code", sum(length < 40 for length in lengths)
    yield "public names", sum(len(public_names(module.name)) for module in list_modules())
    for table in TABLES:
        yield f"settings, {table.__name__}", len(table.__struct_fields__)
    yield "flags of all commands", sum(map(_count_flags, COMMANDS))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    yield "extras", len(project["optional-dependencies"])
    pages = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
    yield "pages", len(pages)
    yield "words in pages", sum(len(page.read_text("utf-8").split()) for page in pages)
    tests = [count_code_lines(path) for path in (ROOT / "tests").rglob("*.py")]
    yield "lines of test code", sum(tests)
    yield "test files", len(tests)


def _count_flags(command: str) -> int:
    """The options of a command and of its own commands; `--help` is none."""
    return _count_options(parser_for(command))


def _count_options(parser: argparse.ArgumentParser) -> int:
    count = 0
    for action in parser._actions:  # noqa: SLF001 - argparse has no other list of its options
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            count += sum(map(_count_options, action.choices.values()))
        elif action.option_strings and "--help" not in action.option_strings:
            count += 1
    return count


if __name__ == "__main__":
    sys.exit(main())
