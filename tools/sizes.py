"""The size gate: no file over 400 lines, the core under 4,000 in all.

Counts every line, blank ones and comments too: what has to be read is what is counted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHECKED = ("src", "tests", "bench", "tools", "examples")
CORE = "src/lamina/core/"
MAX_FILE = 400
MAX_CORE = 4000
SHOWN = 5


def main() -> int:
    sizes = measure(ROOT)
    for name, lines in largest(sizes):
        print(f"{lines:6,} {name}")
    print(f"{core_size(sizes):6,} {CORE} in all")
    found = list(problems(sizes))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


def measure(root: Path) -> dict[str, int]:
    """Lines of each Python file below `root`, by its path from there."""
    paths = sorted(path for folder in CHECKED for path in (root / folder).rglob("*.py"))
    return {path.relative_to(root).as_posix(): len(path.read_bytes().splitlines()) for path in paths}


def problems(sizes: dict[str, int]) -> Iterator[str]:
    for name, lines in sizes.items():
        if lines > MAX_FILE:
            yield f"{name} has {lines:,} lines, over {MAX_FILE}: split it by subject"
    core = core_size(sizes)
    if core > MAX_CORE:
        yield f"{CORE} has {core:,} lines, over {MAX_CORE:,}: move out what is not about what a model sees"


def core_size(sizes: dict[str, int]) -> int:
    return sum(lines for name, lines in sizes.items() if name.startswith(CORE))


def largest(sizes: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]


if __name__ == "__main__":
    sys.exit(main())
