"""Which file, and which lines of it, the arguments of a call name.

Tools name the same argument differently: `path`, `filePath` and `target_file` are all a path here. Nothing is
looked up, so a path is known by its spelling alone.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from lamina.core.text.characters import is_blank, lower_ascii, word_set
from lamina.core.text.nesting import DEEPEST_ARGUMENTS, decode_json
from lamina.core.text.paths import shortest_path

# Names of arguments, without case, `_` and `-`.
PATH_ARGUMENTS = word_set(
    "path paths file filepath filename notebookpath uri fileuri targetfile targetpath absolutepath"
)
_FIRST_LINE_ARGUMENTS = ("offset", "startline", "linestart", "start", "fromline", "startlineoneindexed")
_LAST_LINE_ARGUMENTS = ("endline", "lineend", "end", "toline", "endlineoneindexedinclusive")
_RANGE_ARGUMENTS = ("viewrange", "linerange", "range", "lines")
LINE_ARGUMENTS = frozenset((*_FIRST_LINE_ARGUMENTS, *_LAST_LINE_ARGUMENTS, *_RANGE_ARGUMENTS, "limit"))
# Arguments that do not change what a call does.
_SIDE_ARGUMENTS = word_set("description explanation justification reason purpose thought timeout timeoutms")

_DASHES = re.compile("[_-]")
_INTEGER = re.compile(r"-?[0-9]{1,9}(?:\.0)?")  # `12`, `-3`, and `12.0` as some models write it


def read_arguments(arguments_text: str) -> dict[str, Any]:
    """The arguments that matter, by plain name: `file_path` and `filePath` are both `filepath`.

    Arguments that are not a JSON object give an empty dict.
    """
    decoded = decode_json(arguments_text, deepest=DEEPEST_ARGUMENTS)
    if not isinstance(decoded, dict):
        return {}
    arguments: dict[str, Any] = {}
    for name, value in decoded.items():
        plain_name = lower_ascii(_DASHES.sub("", name))
        if value is not None and plain_name not in _SIDE_ARGUMENTS:
            arguments[plain_name] = value
    return arguments


def pick_argument(arguments: Mapping[str, Any], *names: str) -> Any:
    """The first of these arguments that is there, or None.

    Tools name the same argument differently, so each caller lists the names that it knows.
    """
    for name in names:
        if name in arguments:
            return arguments[name]
    return None


def read_path(arguments: Mapping[str, Any], folder: str = "") -> str | None:
    """The only path among the arguments; None if there is none, or more than one.

    `{"paths": ["a.py"]}` has one path as well.
    """
    values = [value for name, value in arguments.items() if name in PATH_ARGUMENTS]
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    if len(values) != 1:
        return None
    path = values[0]
    if not isinstance(path, str):
        return None
    return normalise_path(path, folder)


def normalise_path(path: str, folder: str) -> str | None:
    r"""A path in its shortest spelling; None if the text cannot be a path. Nothing is looked up.

    `file:///src//a.py` is `/src/a.py`, and `src\a.py` is `src/a.py`. An address such as `https://x.org/a`
    stays.
    """
    path = path.removeprefix("file://")
    if is_blank(path) or "\n" in path:
        return None
    if "://" in path:
        return path
    return shortest_path(posixpath.join(folder, path.replace("\\", "/")))


class LineRange(NamedTuple):
    """The first and the last line of a read; None where it has no limit."""

    first: int | None
    last: int | None


def read_line_range(arguments: Mapping[str, Any]) -> LineRange | None:
    """The lines that a read asks for; None if its arguments make no sense.

    `view_range=[5, -1]` is everything from line 5 on, `offset=5, limit=10` are the lines 5 to 14.
    """
    try:
        first, last = map(_to_integer, _pick_range_ends(arguments))
        limit = _to_integer(arguments.get("limit"))
    except ValueError:
        return None
    if first in {0, 1}:
        first = None
    first_line = first or 1
    if limit is not None:
        last = first_line + limit - 1
    elif last == -1:
        last = None
    if last is None:
        return LineRange(first, None)
    if not 0 < first_line <= last:
        return None
    return LineRange(first, last)


def _pick_range_ends(arguments: Mapping[str, Any]) -> list[Any]:
    """The two ends of a range: from one argument such as `view_range`, else from one argument for each.

    The list is empty if that one argument is not a list.
    """
    both_ends = pick_argument(arguments, *_RANGE_ARGUMENTS)
    if not both_ends:
        first = pick_argument(arguments, *_FIRST_LINE_ARGUMENTS)
        last = pick_argument(arguments, *_LAST_LINE_ARGUMENTS)
        return [first, last]
    if isinstance(both_ends, list):
        return both_ends
    return []


def _to_integer(value: Any) -> int | None:
    """The number of a line, which some models write as text or as `12.0`; None stays None.

    Raises ValueError for anything else.
    """
    if value is None:
        return None
    if not _INTEGER.fullmatch(str(value)):
        raise ValueError(value)
    return int(float(value))
