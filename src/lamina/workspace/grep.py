"""Lines of files that match a pattern, found by ripgrep where it is installed, else by Python.

Files are read through the workspace, and only their text is given to the program that searches: it never sees
a path, so it cannot be led astray. It runs apart from this process and is ended when its time is over, since
a pattern can be written that takes forever.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from lamina.core.text.characters import WHITE_SPACE, split_lines
from lamina.errors import BadInput
from lamina.workspace.documents import text_in
from lamina.workspace.workspace import FolderItem, Workspace

SECONDS = 10.0
"""Time on the clock for one search, reading the files included."""

SEARCHED = 64 * 2**20
"""Bytes that one search looks through."""

# Says the number of each line that matches, as ripgrep does. Nothing of lamina is needed to run it.
_SCAN = """
import re, sys
find = re.compile(sys.argv[1], re.IGNORECASE if sys.argv[2] == "1" else 0).search
left = int(sys.argv[3])
for number, line in enumerate(sys.stdin.buffer, 1):
    if find(line.decode("utf-8", "replace").rstrip("\\n")):
        print(number)
        left -= 1
        if not left:
            break
"""


class GrepMatch(NamedTuple):
    path: str
    line: int
    text: str


class Matches(NamedTuple):
    """Matches in order of path and line; `notes` say what was not searched, `more` that there are others."""

    found: list[GrepMatch]
    notes: list[str]
    more: bool


def grep(
    space: Workspace, pattern: str, path: str = ".", *, ignore_case: bool = False, most: int = 200
) -> Matches:
    """The first `most` lines that match, in a file or in all files below a folder."""
    if not pattern or "\n" in pattern or "\0" in pattern:
        raise BadInput("no pattern", place="pattern", hint="give a regular expression for one line")
    deadline = time.monotonic() + SECONDS
    texts, notes = _texts(space, path, deadline)
    starts, lines = [0], list[str]()
    for _, text in texts:
        lines += text.replace("\r\n", "\n").removesuffix("\n").split("\n")
        starts.append(len(lines))
    hits = _hits(lines, pattern, ignore_case=ignore_case, most=most + 1, deadline=deadline)
    found = [_match(hit - 1, starts, texts, lines) for hit in hits[:most]]
    return Matches(found, notes, len(hits) > most)


def _texts(space: Workspace, path: str, deadline: float) -> tuple[list[tuple[str, str]], list[str]]:
    """The text of each file that is searched, under its path, and why others are not."""
    if space.kind(path) == "file":
        return [(path, text_in(path, space.read(path), seconds=_left(deadline)))], []
    texts: list[tuple[str, str]] = []
    notes: list[str] = []
    room = SEARCHED
    for item in space.walk(path):
        why = item.why or _why_not(item, room, deadline)
        if why:
            notes.append(f"{item.path}: {why}")
            continue
        room -= item.size
        try:
            texts.append((item.path, text_in(item.path, space.read(item.path), seconds=_left(deadline))))
        except BadInput as refused:
            notes.append(f"{item.path}: {refused.problem}")
    return texts, notes


def _why_not(item: FolderItem, room: int, deadline: float) -> str:
    if item.size > room:
        return "the search is full"
    return "" if deadline > time.monotonic() else "the time of the search is over"


def _left(deadline: float) -> float:
    """Seconds until the deadline: never nothing, so that what is under way fails by itself."""
    return max(deadline - time.monotonic(), 0.1)


def _match(line: int, starts: list[int], texts: Sequence[tuple[str, str]], lines: list[str]) -> GrepMatch:
    place = bisect_right(starts, line) - 1
    return GrepMatch(texts[place][0], line - starts[place] + 1, lines[line])


def _hits(lines: list[str], pattern: str, *, ignore_case: bool, most: int, deadline: float) -> list[int]:
    """The numbers of the lines that match, from 1."""
    data = "\n".join(lines).encode("utf-8", "replace")
    try:
        run = subprocess.run(  # noqa: S603 - the pattern is one argument of a fixed program
            _command(pattern, ignore_case=ignore_case, most=most),
            input=data,
            capture_output=True,
            timeout=_left(deadline),
            check=False,
            cwd="/",
            env={},
        )
    except subprocess.TimeoutExpired:
        problem = f"no end in {SECONDS:g} seconds"
        raise BadInput(problem, place="pattern", hint="give a simpler pattern, or a smaller folder") from None
    except OSError as error:
        raise BadInput(f"no search is possible: {error.strerror}", place="grep") from None
    if run.returncode not in {0, 1} or (run.returncode == 1 and run.stderr):
        told = split_lines(run.stderr.decode("utf-8", "replace").strip(WHITE_SPACE))
        raise BadInput(f"no pattern: {' '.join(told[-2:])[:300]}", place="pattern", hint="check its syntax")
    return [int(number) for number in re.findall(rb"^(\d+)", run.stdout, re.MULTILINE)][:most]


def _command(pattern: str, *, ignore_case: bool, most: int) -> list[str]:
    ripgrep = shutil.which("rg")
    if ripgrep is None:
        return [sys.executable, "-I", "-S", "-c", _SCAN, pattern, str(int(ignore_case)), str(most)]
    options = [
        "--no-config",
        "--line-number",
        "--text",
        "--no-heading",
        "--color=never",
        f"--max-count={most}",
    ]
    return [ripgrep, *options, *(["--ignore-case"] if ignore_case else []), f"--regexp={pattern}", "-"]
