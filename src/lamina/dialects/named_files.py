"""The file that a call of a tool names in its arguments, for handles that say what a result was."""

from __future__ import annotations

import msgspec

from lamina.core.text.characters import is_printable


class _Paths(msgspec.Struct):
    """The arguments by which tools name a file; everything else is skipped unread."""

    path: str | None = None
    file_path: str | None = None
    filepath: str | None = None
    filename: str | None = None
    file: str | None = None
    notebook_path: str | None = None
    target_file: str | None = None


_DECODER = msgspec.json.Decoder(_Paths)
_PATH_LIMIT = 200


def path_of(arguments: str) -> str:
    """The file that a call names in its arguments, if it is short enough to be shown."""
    try:
        found = _DECODER.decode(arguments)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
    path = (
        found.path
        or found.file_path
        or found.filepath
        or found.filename
        or found.file
        or found.notebook_path
        or found.target_file
        or ""
    )
    return path if len(path) <= _PATH_LIMIT and is_printable(path) else ""
