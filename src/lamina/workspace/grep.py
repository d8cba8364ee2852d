"""Finds lines of files that match a regular expression of Python.

Files are read through the workspace. The process that searches gets only their text: it never sees a path, so
no path can lead it outside. It is ended when its time is over, since some patterns take forever.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from typing import NamedTuple

from lamina.errors import BadInput
from lamina.workspace.documents import text_in
from lamina.workspace.separate_process import ChildFailed, run_script
from lamina.workspace.workspace import FolderItem, Workspace

SECONDS = 10.0
"""Time on the clock for one search, reading the files included."""

SEARCHED = 64 * 2**20
"""Bytes that one search reads."""

# Prints the numbers of the lines that match, with commas between. It runs without lamina.
_SCAN = """
import re
pattern, ignores_case, most = arguments
find = re.compile(pattern, re.IGNORECASE if ignores_case else 0).search
numbers = []
for number, line in enumerate(sys.stdin.buffer, 1):
    if len(numbers) == most:
        break
    if find(line.decode("utf-8", "replace").rstrip("\\n")):
        numbers.append(number)
print(*numbers, sep=",", end="")
"""


class GrepMatch(NamedTuple):
    path: str
    line: int
    text: str


class Matches(NamedTuple):
    """Matches in order of path and line. `notes` say what was not searched, `more` that there are others."""

    matches: list[GrepMatch]
    notes: list[str]
    more: bool


class SearchedText(NamedTuple):
    """The text of a file that is searched."""

    path: str
    text: str


def grep(
    space: Workspace, pattern: str, path: str = ".", *, ignore_case: bool = False, most: int = 200
) -> Matches:
    """The first `most` lines that match, in a file or in all files below a folder.

    All files are searched in one run, as one text. The number of a line tells its file.
    """
    if not pattern or "\n" in pattern or "\0" in pattern:
        raise BadInput("no pattern", place="pattern", hint="give a regular expression for one line")
    deadline = time.monotonic() + SECONDS
    texts, notes = _read_texts(space, path, deadline)
    lines: list[str] = []
    starts = [0]  # of each text among all lines
    for searched in texts:
        lines += searched.text.replace("\r\n", "\n").removesuffix("\n").split("\n")
        starts.append(len(lines))
    numbers = _find_lines(lines, pattern, ignore_case=ignore_case, most=most + 1, deadline=deadline)
    matches = []
    for number in numbers[:most]:
        index = number - 1
        place = bisect_right(starts, index) - 1
        matches.append(GrepMatch(texts[place].path, index - starts[place] + 1, lines[index]))
    return Matches(matches, notes, len(numbers) > most)


def _read_texts(space: Workspace, path: str, deadline: float) -> tuple[list[SearchedText], list[str]]:
    """The text of each file that is searched, and notes on why others are not.

    Large files and those that are no text are noted, so that nobody takes them for searched.
    """
    if space.kind(path) == "file":
        text = text_in(path, space.read(path), seconds=_seconds_left(deadline))
        return [SearchedText(path, text)], []
    texts: list[SearchedText] = []
    notes: list[str] = []
    room = SEARCHED
    for item in space.walk(path):
        why = item.why or _why_not(item, room, deadline)
        if why:
            notes.append(f"{item.path}: {why}")
            continue
        room -= item.size
        try:
            text = text_in(item.path, space.read(item.path), seconds=_seconds_left(deadline))
        except BadInput as error:
            notes.append(f"{item.path}: {error.problem}")
            continue
        texts.append(SearchedText(item.path, text))
    return texts, notes


def _why_not(item: FolderItem, room: int, deadline: float) -> str:
    """Why a file is not searched any more, "" if it is."""
    if item.size > room:
        return "the search is full"
    if deadline <= time.monotonic():
        return "the time of the search is over"
    return ""


def _seconds_left(deadline: float) -> float:
    """Seconds until the deadline, but never 0: then what is under way fails by itself."""
    return max(deadline - time.monotonic(), 0.1)


def _find_lines(
    lines: list[str], pattern: str, *, ignore_case: bool, most: int, deadline: float
) -> list[int]:
    """The numbers of the lines that match, from 1."""
    data = "\n".join(lines).encode("utf-8", "replace")
    arguments = (pattern, ignore_case, most)
    try:
        numbers = run_script(_SCAN, data, seconds=_seconds_left(deadline), arguments=arguments)
    except ChildFailed as failed:
        if failed.late:
            problem = f"no end in {SECONDS:g} seconds"
            hint = "give a simpler pattern, or a smaller folder"
            raise BadInput(problem, place="pattern", hint=hint) from None
        raise BadInput(f"no pattern: {failed.why}", place="pattern", hint="check its syntax") from None
    return [int(number) for number in numbers.split(b",") if number]
