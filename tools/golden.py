"""Keeps the requests of the golden sessions in tests/golden, one file for each session and dialect.

python -m tools.golden            says which files differ from what lamina renders now
python -m tools.golden --write    writes them anew; read the difference before you commit it
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

from lamina.dialects import DIALECTS, Dialect
from tests.fixtures.golden import Golden, requests, sessions

FOLDER = Path(__file__).parent.parent / "tests" / "golden"


def rendered() -> Iterator[tuple[Path, str]]:
    """Each file and what belongs in it."""
    for path, render in renderings().items():
        yield path, render()


def renderings() -> dict[Path, Callable[[], str]]:
    """For each file what renders it, once however often it is called: a test needs only its own."""
    return {
        FOLDER / f"{golden.name}.{dialect.name}.jsonl": cache(partial(_render, golden, dialect))
        for golden in sessions()
        for dialect in DIALECTS.values()
    }


def _render(golden: Golden, dialect: Dialect) -> str:
    """One request to a line, in the order of its fields."""
    lines = [json.dumps(request, ensure_ascii=False) for request in requests(golden, dialect)]
    return "\n".join(lines) + "\n"


def main() -> int:
    differing = [
        (path, text) for path, text in rendered() if not path.exists() or path.read_text("utf-8") != text
    ]
    for path, text in differing:
        print(path.name)
        if "--write" in sys.argv[1:]:
            path.write_text(text, "utf-8")
    return int(bool(differing) and "--write" not in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
