"""The commands of Anthropic's memory tool, over files that are values: text in, text and changes out.

    view  create  str_replace  insert  delete  rename

The words of each answer are those of the provider's own SDK (anthropic 2.8, `memory_20250818`), since models
were trained on them. A mistake is an answer, too. Nothing is stored here (`memory_files` does that), and no
path of this machine is ever touched: a path is the name of a text.

Stricter than the SDK: `..` is refused wherever it stands, a view is bounded, and so are files. A directory is
there as long as a file is in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import msgspec

ROOT = "/memories"
"""The directory that all paths begin with."""

LONGEST_PATH = 500
"""Characters of a path."""

LARGEST_FILE = 200_000
"""Bytes of one file."""

MOST_FILES = 500
"""Files of one workspace."""

MOST_BYTES = 2_000_000
"""Bytes of all files of one workspace together: each change writes them anew."""

LONGEST_VIEW = 16_000
"""Characters that one view shows, so that reading a file never fills a window."""

LINE_NUMBER_WIDTH = 6
LEVELS = 2
"""How deep a view of a directory goes."""

CONTEXT_LINES = 2
"""Lines before and after a change that are shown with it."""

Files = Mapping[str, str]
"""Texts by their paths, such as `/memories/notes.md`."""


class MemoryAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a command answers, and what it changes: the new text of each path, None if it is deleted."""

    text: str
    error: bool = False
    changes: Mapping[str, str | None] = {}


class _Refused(Exception):
    """A command that cannot be carried out, in words for the model."""


def run_command(files: Files, arguments: Mapping[str, Any]) -> MemoryAnswer:
    """Carry out one command on these files. It raises nothing."""
    command = arguments.get("command")
    run = _COMMANDS.get(command) if isinstance(command, str) else None
    if run is None:
        words = ", ".join(_COMMANDS)
        return MemoryAnswer(text=f"Unknown command: {command!r:.80}. Use one of {words}.", error=True)
    try:
        answer = run(files, arguments)
        _refuse_too_much(files, answer.changes)
    except _Refused as problem:
        return MemoryAnswer(text=str(problem), error=True)
    return answer


def _view(files: Files, arguments: Mapping[str, Any]) -> MemoryAnswer:
    path = _read_path(arguments, "path")
    if path in files:
        return MemoryAnswer(text=_view_file(path, files[path], arguments.get("view_range")))
    if not _is_directory(files, path):
        raise _Refused(f"The path {path} does not exist. Please provide a valid path.")
    title = f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:"
    return MemoryAnswer(text="\n".join([title, *_list_directory(files, path)]))


def _create(files: Files, arguments: Mapping[str, Any]) -> MemoryAnswer:
    path = _read_path(arguments, "path")
    text = _read_text(arguments, "file_text")
    if path in files or path == ROOT or _is_directory(files, path):
        raise _Refused(f"File {path} already exists")
    _refuse_file_as_directory(files, path)
    if len(files) >= MOST_FILES:
        raise _Refused(f"There are {MOST_FILES} files already. Delete some first.")
    _refuse_large(text)
    return MemoryAnswer(text=f"File created successfully at: {path}", changes={path: text})


def _replace_text(files: Files, arguments: Mapping[str, Any]) -> MemoryAnswer:
    path = _read_path(arguments, "path")
    content = _read_file(files, path)
    old = _read_text(arguments, "old_str")
    new = ""
    if arguments.get("new_str") is not None:
        new = _read_text(arguments, "new_str")
    if not old:
        raise _Refused("No replacement was performed, old_str is empty.")
    count = content.count(old)
    if count == 0:
        raise _Refused(f"No replacement was performed, old_str `{old}` did not appear verbatim in {path}.")
    if count > 1:
        lines = ", ".join(str(line) for line in _find_lines(content, old))
        raise _Refused(
            f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: {lines}. "
            "Please ensure it is unique"
        )
    changed_line = content[: content.index(old)].count("\n")
    text = content.replace(old, new)
    _refuse_large(text)
    lines_after = text.split("\n")
    first = max(0, changed_line - CONTEXT_LINES)
    snippet = _number_lines(lines_after[first : changed_line + CONTEXT_LINES + 1], first + 1)
    title = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
    return MemoryAnswer(text="\n".join([title, *snippet]), changes={path: text})


def _insert(files: Files, arguments: Mapping[str, Any]) -> MemoryAnswer:
    path = _read_path(arguments, "path")
    lines = _read_file(files, path).split("\n")
    if not lines[-1]:
        lines.pop()
    at = arguments.get("insert_line")
    if type(at) is not int or not 0 <= at <= len(lines):  # `type`, because True is an int, too
        raise _Refused(
            f"Invalid `insert_line` parameter: {at!r:.40}. It should be within the range [0, {len(lines)}]."
        )
    lines.insert(at, _read_text(arguments, "insert_text").rstrip("\n"))
    text = "\n".join(lines)
    if not text.endswith("\n"):
        text += "\n"
    _refuse_large(text)
    return MemoryAnswer(text=f"The file {path} has been edited.", changes={path: text})


def _delete(files: Files, arguments: Mapping[str, Any]) -> MemoryAnswer:
    path = _read_path(arguments, "path")
    if path == ROOT:
        raise _Refused(f"Cannot delete the {ROOT} directory itself")
    paths = _list_paths(files, path)
    if not paths:
        raise _Refused(f"The path {path} does not exist")
    return MemoryAnswer(text=f"Successfully deleted {path}", changes=dict.fromkeys(paths))


def _rename(files: Files, arguments: Mapping[str, Any]) -> MemoryAnswer:
    old_path = _read_path(arguments, "old_path")
    new_path = _read_path(arguments, "new_path")
    if old_path == ROOT:
        raise _Refused(f"Cannot rename the {ROOT} directory itself")
    if new_path in files or _is_directory(files, new_path):
        raise _Refused(f"The destination {new_path} already exists")
    paths = _list_paths(files, old_path)
    if not paths:
        raise _Refused(f"The path {old_path} does not exist")
    if new_path.startswith(f"{old_path}/"):
        raise _Refused(f"The path {old_path} cannot be moved into itself")
    _refuse_file_as_directory(files, new_path)
    changes: dict[str, str | None] = dict.fromkeys(paths)
    for path in paths:
        changes[_check_length(new_path + path.removeprefix(old_path))] = files[path]
    return MemoryAnswer(text=f"Successfully renamed {old_path} to {new_path}", changes=changes)


_COMMANDS: Mapping[str, Callable[[Files, Mapping[str, Any]], MemoryAnswer]] = {
    "view": _view,
    "create": _create,
    "str_replace": _replace_text,
    "insert": _insert,
    "delete": _delete,
    "rename": _rename,
}


_ESCAPE = re.compile(r"(?:^|[/\\])\.\.(?:[/\\]|$)|[\x00-\x1f\x7f]")
"""What no path may have: a step up, as in `/memories/../secret` or `a\\..`, or a control character."""


def _read_path(arguments: Mapping[str, Any], name: str) -> str:
    """The path of an argument in one spelling: `/memories/./a//b/` is `/memories/a/b`.

    A path is looked at once more with its percent signs decoded, since some models write `%2e%2e`.
    """
    path = arguments.get(name)
    if not isinstance(path, str):
        raise _Refused(f"The argument `{name}` is missing.")
    _check_length(path)
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise _Refused(f"Path must start with {ROOT}, got: {path}")
    for spelling in (path, unquote(path), unquote(unquote(path))):
        if _ESCAPE.search(spelling):
            raise _Refused(f"Path {path!r} would escape {ROOT} directory")
    if "\\" in path:
        raise _Refused(f"Path must not have a backslash, got: {path}")
    steps = [step for step in path.split("/") if step not in ("", ".")]
    return "/" + "/".join(steps)


def _check_length(path: str) -> str:
    if len(path) > LONGEST_PATH:
        raise _Refused(f"A path has at most {LONGEST_PATH} characters.")
    return path


def _read_text(arguments: Mapping[str, Any], name: str) -> str:
    """A text that can be stored. JSON may hold half of a pair of surrogates, which no file can."""
    text = arguments.get(name)
    if not isinstance(text, str):
        raise _Refused(f"The argument `{name}` is missing.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _Refused(f"The argument `{name}` is not valid text.") from None
    return text


def _read_file(files: Files, path: str) -> str:
    if path in files:
        return files[path]
    if _is_directory(files, path):
        raise _Refused(f"The path {path} is not a file.")
    raise _Refused(f"The path {path} does not exist. Please provide a valid path.")


def _refuse_large(text: str) -> None:
    size = len(text.encode())
    if size > LARGEST_FILE:
        raise _Refused(f"The file would have {size:,} bytes. At most {LARGEST_FILE:,} are kept.")


def _refuse_too_much(files: Files, changes: Mapping[str, str | None]) -> None:
    """Refuse changes that would add to more than a workspace may hold. Less is always possible."""
    added = 0
    for path, text in changes.items():
        added += len((text or "").encode()) - len(files.get(path, "").encode())
    if added > 0 and added + _sum_sizes(files, ROOT) > MOST_BYTES:
        raise _Refused(f"All files together would have more than {MOST_BYTES:,} bytes. Delete some first.")


def _refuse_file_as_directory(files: Files, path: str) -> None:
    """Refuse a path below a file: `/memories/a/b` if `/memories/a` is a file."""
    parent = path.rpartition("/")[0]
    while parent:
        if parent in files:
            raise _Refused(f"The path {parent} is a file, not a directory.")
        parent = parent.rpartition("/")[0]


def _is_directory(files: Files, path: str) -> bool:
    return path == ROOT or any(other.startswith(f"{path}/") for other in files)


def _list_paths(files: Files, path: str) -> list[str]:
    """The file of this path, or all files below it, in order."""
    return sorted(other for other in files if f"{other}/".startswith(f"{path}/"))


def _view_file(path: str, text: str, view_range: Any) -> str:
    """The lines of a file with their numbers, from `view_range` if there is one."""
    lines = text.split("\n")
    first = 1
    match view_range:
        case [int(start), -1]:
            first = max(1, start)
            lines = lines[first - 1 :]
        case [int(start), int(end)]:
            first = max(1, start)
            lines = lines[first - 1 : end]
        case [_, _]:
            raise _Refused("`view_range` has two line numbers, such as [1, 20]; -1 is the last line.")
    numbered = _number_lines(lines, first)
    # The provider's own tool ends the title's line also if no line of the file is asked for.
    return f"Here's the content of {path} with line numbers:\n" + "\n".join(_bound_lines(numbered, first))


def _bound_lines(numbered: Sequence[str], first: int) -> Iterator[str]:
    """Yield the lines that one view may show, and where to go on if there are more."""
    size = 0
    for index, line in enumerate(numbered):
        size += len(line) + 1
        if size > LONGEST_VIEW and index:
            yield f"[{len(numbered) - index:,} more lines: view_range [{first + index}, -1]]"
            return
        yield line[:LONGEST_VIEW]


def _number_lines(lines: Sequence[str], first: int) -> list[str]:
    return [f"{str(first + index).rjust(LINE_NUMBER_WIDTH)}\t{line}" for index, line in enumerate(lines)]


def _find_lines(content: str, text: str) -> list[int]:
    """The numbers of the lines in which a text begins."""
    lines: list[int] = []
    at = content.find(text)
    while at >= 0:
        lines.append(content.count("\n", 0, at) + 1)
        at = content.find(text, at + 1)
    return lines


def _list_directory(files: Files, path: str) -> Iterator[str]:
    """Yield a line for a directory and for what is in it: the size, and the path."""
    yield f"{_format_size(_sum_sizes(files, path))}\t{path}"
    yield from _list_level(files, path, 1)


def _list_level(files: Files, path: str, level: int) -> Iterator[str]:
    """Yield the lines of one level and of those below it, by name. Hidden items are left out."""
    below = [other.removeprefix(f"{path}/") for other in files if other.startswith(f"{path}/")]
    names = {other.partition("/")[0] for other in below}
    for name in sorted(names):
        if name.startswith("."):
            continue
        item = f"{path}/{name}"
        size = _format_size(_sum_sizes(files, item))
        if item in files:
            yield f"{size}\t{item}"
            continue
        yield f"{size}\t{item}/"
        if level < LEVELS:
            yield from _list_level(files, item, level + 1)


def _sum_sizes(files: Files, path: str) -> int:
    return sum(len(files[other].encode()) for other in _list_paths(files, path))


def _format_size(size: int) -> str:
    """`1536` is "1.5K", and `2048` is "2K"."""
    if size < 1 << 10:
        return f"{size}B"
    amount, unit = size / (1 << 10), "K"
    if size >= 1 << 20:
        amount, unit = size / (1 << 20), "M"
    if amount == int(amount):
        return f"{int(amount)}{unit}"
    return f"{amount:.1f}{unit}"
