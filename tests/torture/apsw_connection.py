"""A connection of the SQLite store through `apsw`: below it failures can be put in, which sqlite3 hides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import apsw

from lamina.stores.sqlite import connections


class ApswConnection(connections.SqliteConnection):
    _errors = (apsw.Error, OverflowError, UnicodeDecodeError)

    def _open(self, path: str, *, frozen: bool) -> Any:
        if not frozen:
            return apsw.Connection(path)
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        return apsw.Connection(f"{Path(path).as_uri()}?mode=ro&immutable=1", flags=flags)


def _failure_of(error: Exception) -> connections.SqliteFailure:
    if isinstance(error, apsw.Error):
        return connections.SqliteFailure(getattr(error, "result", 1) & 0xFF, str(error))
    return _real_failure_of(error)


_real_failure_of = connections._failure_of  # noqa: SLF001 - apsw names its codes in another way


@contextmanager
def using_apsw() -> Iterator[None]:
    """Every connection that is opened meanwhile is one of apsw."""
    with (
        mock.patch.object(connections, "SqliteConnection", ApswConnection),
        mock.patch.object(connections, "_failure_of", _failure_of),
    ):
        yield
