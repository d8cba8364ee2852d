"""Finds the files that are meant by paths, folders and globs, in the same order on every machine.

Nothing is opened here. In a folder, only files whose names end as records do count. A file that is named
alone counts whatever it is called, since its content decides what it is.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from lamina.errors import BadInput
from lamina.replay.traces.remote import RemoteFile, find_remote_files, is_url

ENDINGS = (".jsonl", ".ndjson", ".json", ".md")
PACKED = ("", ".gz", ".zst")

_NAME_ENDINGS = tuple(ending + packed for ending in ENDINGS for packed in PACKED)
_WILDCARDS = frozenset("*?[")

TraceFile = Path | RemoteFile
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def find_files(paths: Paths) -> list[TraceFile]:
    """Every file, once; in the order of the paths, and sorted within each folder, glob and URL.

    A file that is named twice, or by two links, is the same file.
    """
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    files: dict[str, TraceFile] = {}
    for path in paths:
        if is_url(path):
            for remote_file in find_remote_files(str(path), _NAME_ENDINGS):
                files.setdefault(str(remote_file), remote_file)
            continue
        for file in _files_at(Path(path).expanduser()):
            files.setdefault(os.path.realpath(file), file)
    return list(files.values())


def select_changed(files: Sequence[TraceFile], since: float | None) -> list[TraceFile]:
    """The files that were changed at this moment or later; a file whose time nobody knows counts as changed.

    Nothing that was recorded later can be in a file that was last changed before.
    """
    if since is None:
        return list(files)
    changed = []
    for file in files:
        try:
            changed_at = file.stat().st_mtime_ns / 1e9
        except OSError:
            changed_at = 0.0
        if not changed_at or changed_at >= since:
            changed.append(file)
    return changed


def file_size(path: TraceFile) -> int:
    """Its bytes; 0 for what has no size, or is gone."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _files_at(path: Path) -> Iterator[Path]:
    """The files that a path, a folder or a pattern stands for.

    A folder is searched for files whose names end like those of records. A file that is named is always
    read.
    """
    for match in _matching_paths(path):
        if match.is_dir():
            yield from _files_inside(match)
        else:
            yield match


def _matching_paths(path: Path) -> list[Path]:
    """The path itself, or what matches it as a glob."""
    # a path that exists is itself, even if its name has a `*`
    if path.exists():
        return [path]
    if not _WILDCARDS & set(str(path)):
        hint = "check the path; a client has made no such folder yet if it never ran here"
        raise BadInput("there is no such file or folder", place=str(path), hint=hint)
    matches = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 - also absolute
    if not matches:
        raise BadInput("nothing matches", place=str(path), hint="check the pattern")
    return [Path(match) for match in matches]


def _files_inside(folder: Path) -> Iterator[Path]:
    """Files of a folder and of those in it. Links to folders are not followed, and no pipe is opened.

    Names are sorted, since each file system has an order of its own.
    """
    for where, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(where, name)
            if name.lower().endswith(_NAME_ENDINGS) and path.is_file():
                yield path
