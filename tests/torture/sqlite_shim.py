"""The part of the shim that stands below SQLite: a VFS for connections of apsw.

A log or journal that is synced for the first time takes its name's folder with it: SQLite's own layer for
unix does that out of sight.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

from tests.torture.medium import Call, Create, Remove, Sync, Truncate, Write

Announce = Callable[[Call], None]

_placed: list[Any] = []
"""A VFS lives as long as somebody holds it."""


def place_in_sqlite(announce: Announce) -> None:
    """Nothing happens where apsw is not installed."""
    try:
        import apsw  # noqa: PLC0415 - few need it
    except ImportError:
        return
    below = apsw.vfs_names()[0]
    file = _file_class(apsw, below, announce)

    class Layer(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("torture", below, makedefault=True)

        def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802 - SQLite's name
            return file(name, flags)

        def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: FBT001, N802
            if os.path.lexists(filename):
                _told(apsw, announce, Remove(filename))
            super().xDelete(filename, syncdir)

    _placed.append(Layer())


def _file_class(apsw: Any, below: str, announce: Announce) -> Any:
    class File(apsw.VFSFile):  # type: ignore[misc]
        def __init__(self, name: Any, flags: list[int]) -> None:
            self.path = str(name.filename() if hasattr(name, "filename") else name or "")
            self.fresh = not os.path.lexists(self.path)
            if self.fresh:
                _told(apsw, announce, Create(self.path))
            super().__init__(below, name, flags)

        def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
            try:
                announce(Write(self.path, offset, bytes(data)))
            except OSError as error:
                if size := getattr(error, "size", 0):
                    super().xWrite(bytes(data)[:size], offset)
                raise _as_sqlite(apsw, error, apsw.SQLITE_IOERR_WRITE) from None
            super().xWrite(data, offset)

        def xSync(self, flags: int) -> None:  # noqa: N802
            _told(apsw, announce, Sync(self.path))
            if self.fresh and not self.path.endswith(".db"):
                self.fresh = False
                _told(apsw, announce, Sync(os.path.dirname(self.path)))  # noqa: PTH120
            super().xSync(flags)

        def xTruncate(self, newsize: int) -> None:  # noqa: N802
            _told(apsw, announce, Truncate(self.path, newsize))
            super().xTruncate(newsize)

    return File


def _told(apsw: Any, announce: Announce, call: Call) -> None:
    codes: dict[type, int] = {
        Create: apsw.SQLITE_CANTOPEN,
        Sync: apsw.SQLITE_IOERR_FSYNC,
        Truncate: apsw.SQLITE_IOERR_TRUNCATE,
        Remove: apsw.SQLITE_IOERR_DELETE,
    }
    try:
        announce(call)
    except OSError as error:
        raise _as_sqlite(apsw, error, codes[type(call)]) from None


def _as_sqlite(apsw: Any, error: OSError, code: int) -> Exception:
    """What SQLite's own layer would have said."""
    made: Exception = apsw.exception_for(apsw.SQLITE_FULL if error.errno == errno.ENOSPC else code)
    return made
