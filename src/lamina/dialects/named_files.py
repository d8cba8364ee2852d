"""Finds the file that a tool call names in its arguments, for handles that say what a result was."""

from __future__ import annotations

import msgspec

from lamina.core.text.characters import is_printable
from lamina.core.values import ToolCall


class _PathArguments(msgspec.Struct):
    """The arguments by which tools name a file, in the order in which they are tried.

    The decoder skips all other arguments unread.
    """

    path: str | None = None
    file_path: str | None = None
    filepath: str | None = None
    filename: str | None = None
    file: str | None = None
    notebook_path: str | None = None
    target_file: str | None = None


def describe_result(call: ToolCall | None) -> dict[str, str]:
    """The attributes of a result that its call decides: the file that the call names, if it names one.

    The result of `read_file` with `{"path": "a.py"}` is about `a.py`.
    """
    if call is None:
        return {}
    path = find_path(call.arguments)
    if not path:
        return {}
    return {"path": path}


_DECODER = msgspec.json.Decoder(_PathArguments)

_PATH_LIMIT = 200
"""Characters of a path that is worth showing in a handle."""


def find_path(arguments: str) -> str:
    """The file that a call names in its arguments; "" if it names none, or none that can be shown.

    `{"path": "a.py", "lines": 5}` names `a.py`.
    """
    try:
        decoded = _DECODER.decode(arguments)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
    paths = filter(None, msgspec.structs.astuple(decoded))
    path: str = next(paths, "")
    if len(path) > _PATH_LIMIT or not is_printable(path):
        return ""
    return path
