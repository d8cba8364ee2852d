"""Reads files behind a URL, such as `s3://bucket/logs/*.jsonl.zst`, through fsspec.

`fsspec` names the package of each protocol: s3fs for `s3://`, gcsfs for `gs://`, adlfs for `abfs://`. A
remote file has the few methods of a `Path` that reading needs. Nothing is copied to the disk.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from lamina.errors import BadInput


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
        hint = (
            "install it: pip install 'lamina-context[replay]', and the package of the protocol, such as s3fs"
        )
        raise BadInput("the package fsspec is missing", place=url, hint=hint) from None
    try:
        file_system, path = core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise BadInput(str(error), place=url, hint="install the package of its protocol") from None
    return file_system, path
