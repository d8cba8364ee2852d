"""Finds the files that are meant by paths, folders and globs, in the same order on every machine.

In a folder, only files whose names end as records do count. A file that is named alone counts whatever it is
called, since its content decides what it is.

Files behind a URL, such as `s3://bucket/logs/*.jsonl.zst`, are read through fsspec, which names the package
of each protocol: s3fs for `s3://`, gcsfs for `gs://`, adlfs for `abfs://`. A remote file has the few methods
of a `Path` that reading needs. Nothing is copied to the disk.
"""

from __future__ import annotations

import contextlib
import glob
import importlib
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from lamina.errors import BadInput

ENDINGS = (".jsonl", ".ndjson", ".json")
PACKED = ("", ".gz", ".zst")

_NAME_ENDINGS = tuple(ending + packed for ending in ENDINGS for packed in PACKED)
_WILDCARDS = frozenset("*?[")

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class RemoteStat(NamedTuple):
    """What is known of a file behind a URL. The time is 0 if its protocol does not say when it changed."""

    st_size: int
    st_mtime_ns: int = 0


class RemoteFile:
    """A file of a file system of fsspec."""

    def __init__(self, file_system: Any, path: str) -> None:
        self._file_system = file_system
        self._path = path

    def __str__(self) -> str:
        return str(self._file_system.unstrip_protocol(self._path))

    def __fspath__(self) -> str:
        return str(self)

    @property
    def suffixes(self) -> list[str]:
        return PurePosixPath(self._path).suffixes

    def stat(self) -> RemoteStat:
        return RemoteStat(int(self._file_system.size(self._path) or 0), self._find_time())

    def _find_time(self) -> int:
        """When the file changed, in nanoseconds; 0 if nobody knows."""
        try:
            return int(self._file_system.modified(self._path).timestamp() * 1e9)
        except (NotImplementedError, AttributeError, KeyError, TypeError, OSError):
            return 0

    @contextlib.contextmanager
    def open(self, mode: str, *, buffering: int) -> Iterator[io.RawIOBase]:
        """The bytes of the file. `buffering` is the file system's own: blocks of some megabytes."""
        del buffering
        try:
            with self._file_system.open(self._path, mode) as file:
                yield file
        except OSError:
            raise
        except Exception as error:  # each protocol's client raises errors of its own
            raise OSError(0, f"{type(error).__name__}: {error}") from error


TraceFile = Path | RemoteFile


def is_url(path: str | os.PathLike[str]) -> bool:
    return isinstance(path, str) and "://" in path


def find_remote_files(url: str, endings: tuple[str, ...]) -> list[RemoteFile]:
    """The file at a URL, the files that match it, or those in its folder that have one of the endings.

    A folder is read as on the disk: only files whose names end as records do.
    """
    file_system, path = _open_file_system(url)
    try:
        if file_system.isfile(path):
            return [RemoteFile(file_system, path)]
        paths = _list_paths(file_system, path, endings)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(
            f"{type(error).__name__}: {error}", place=url, hint="check address and rights"
        ) from error
    if not paths:
        raise BadInput("there is no file", place=url, hint="check the address or the pattern")
    return [RemoteFile(file_system, each) for each in paths]


def _list_paths(file_system: Any, path: str, endings: tuple[str, ...]) -> list[str]:
    """The files in a folder, or those that match a pattern; none for anything else."""
    if file_system.isdir(path):
        return sorted(each for each in file_system.find(path) if each.lower().endswith(endings))
    if not frozenset("*?[") & set(path):
        return []
    return sorted(filter(file_system.isfile, file_system.glob(path)))


def _open_file_system(url: str) -> tuple[Any, str]:
    try:
        core = importlib.import_module("fsspec.core")
    except ImportError:
        hint = "install it: pip install 'lamina-context[cost]', and the package of the protocol, such as s3fs"
        raise BadInput("the package fsspec is missing", place=url, hint=hint) from None
    try:
        file_system, path = core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise BadInput(str(error), place=url, hint="install the package of its protocol") from None
    return file_system, path


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
