"""A connection to an SQLite file, set up so that what is committed is on the disk.

Two libraries can be behind it: `sqlite3` of Python, or `apsw`, which brings a newer SQLite along. Both speak
through `Link`, and fail with `SqliteFailure`. It knows neither tables nor conversations.
"""

from __future__ import annotations

import importlib
import importlib.util
import sqlite3
import time
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Protocol

from lamina.errors import BadInput, Damaged, StoreError

Driver = Literal["sqlite3", "apsw"]
Values = Sequence[str | int | bytes | None]

BUSY_MS = 30_000
"""How long one connection waits for another's write before it gives up."""

CHECKPOINT_PAGES = 1000
"""SQLite's own default: the log is copied into the file each time it has grown by about 4 MB."""

BUSY, LOCKED, CORRUPT, FULL, TOOBIG, CONSTRAINT, NOTADB = 5, 6, 11, 13, 18, 19, 26
"""Result codes of SQLite, as its documentation names them."""

_FAULTY = ((3, 7, 0), (3, 51, 2))
_warned: set[str] = set()


class WalResetRisk(UserWarning):
    """SQLite is of a version that can damage a file which several connections write and checkpoint."""


class SqliteFailure(Exception):
    """What SQLite refused: the primary result code, and its words."""

    def __init__(self, code: int, words: str) -> None:
        self.code = code
        self.words = words
        super().__init__(words)


class Link(Protocol):
    """One connection. Used by one thread at a time. `version` is that of the tables, as last seen."""

    version: int

    def run(self, sql: str, values: Values = ()) -> list[Any]: ...

    def many(self, sql: str, rows: Iterable[Values]) -> None: ...

    def inside(self) -> bool: ...

    def copy(self, path: str) -> None: ...

    def close(self) -> None: ...


def connect(path: str, *, driver: Driver, writes: bool, frozen: bool = False) -> Link:
    """A connection with every setting made and read back; StoreError where one does not hold.

    `frozen`: the file is on a medium that cannot be written, and has no log beside it. SQLite is then told
    that nobody changes it, since it could make neither a lock nor a log there.
    """
    link = _opened(path, driver, frozen=frozen)
    try:
        _set_up(link, writes=writes, frozen=frozen)
    except BaseException as error:
        with suppress(SqliteFailure):
            link.close()
        if isinstance(error, SqliteFailure):
            raise _refusal(path, error) from error
        raise
    return link


def _opened(path: str, driver: Driver, *, frozen: bool) -> Link:
    if driver not in _LINKS:
        raise BadInput(f"{driver!r}", place="driver", hint=f"it is one of {', '.join(_LINKS)}")
    try:
        return _LINKS[driver](path, frozen=frozen)
    except SqliteFailure as error:
        raise StoreError(f"{path!r}: {error.words}", hint="check the folder and its permissions") from error


def _refusal(path: str, error: SqliteFailure) -> StoreError:
    problem = f"{path!r}: {error.words}"
    if error.code in (BUSY, LOCKED):
        return StoreError(problem, hint="another process holds the file; try again")
    if error.code == CORRUPT:
        return Damaged(problem)
    return StoreError(problem, hint="give the path of a file that lamina wrote, or of a new one")


def _set_up(link: Link, *, writes: bool, frozen: bool) -> None:
    _set(link, "busy_timeout", BUSY_MS)
    if writes:
        _turn_to_wal(link)
    if not frozen and link.run("PRAGMA journal_mode") != [("wal",)]:
        raise StoreError("SQLite keeps no write-ahead log here", hint="use a file on a local disk")
    for name, value in SETTINGS.items():
        _set(link, name, value)
    _set(link, "wal_autocheckpoint", CHECKPOINT_PAGES if writes else 0)
    _set(link, "query_only", int(not writes))


SETTINGS = {
    "synchronous": 2,  # FULL: a commit is on the disk before it is acknowledged
    "fullfsync": 1,  # the same on macOS, where a plain fsync may stay in the drive
    "checkpoint_fullfsync": 1,
    "mmap_size": 0,  # so that a failing disk is an error code, not a signal
    "cell_size_check": 1,  # so that a damaged page is noticed when it is read
    "secure_delete": 1,  # what is deleted is overwritten
    "foreign_keys": 1,
    "trusted_schema": 0,  # a file made by somebody else runs nothing
    "temp_store": 2,  # nothing is written beside the file
}


def _set(link: Link, name: str, value: int) -> None:
    link.run(f"PRAGMA {name}={value}")
    found = link.run(f"PRAGMA {name}")
    if found != [(value,)] and not (value == 0 and found == []):
        problem = f"SQLite holds {name} at {found!r}, not {value}"
        raise StoreError(problem, hint="this build of SQLite cannot keep what lamina promises")


def _turn_to_wal(link: Link) -> None:
    """Many processes may make one file at once, and SQLite does not wait by itself here."""
    until = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            link.run("PRAGMA journal_mode=WAL")
        except SqliteFailure as error:
            if error.code not in (BUSY, LOCKED) or time.monotonic() > until:
                raise
            time.sleep(0.005)
        else:
            return


def usual_driver() -> Driver:
    """That with the newer SQLite: apsw where it is installed, unless only its own has the fault."""
    if importlib.util.find_spec("apsw") is None:
        return "sqlite3"
    if is_faulty("apsw") and not is_faulty("sqlite3"):
        return "sqlite3"
    return "apsw"


def is_faulty(driver: Driver) -> bool:
    """Whether the SQLite behind a driver has the WAL-reset fault."""
    first, last = _FAULTY
    return first <= tuple(map(int, _version(driver).split(".")[:3])) <= last


def risk(driver: Driver) -> str:
    """The fault of this SQLite in a sentence, with what to do; empty if it has none."""
    if not is_faulty(driver):
        return ""
    first, last = (".".join(map(str, version)) for version in _FAULTY)
    remedy = "update apsw" if driver == "apsw" else "install apsw, which lamina then uses by itself"
    return (
        f"SQLite {_version(driver)} can damage a file that several connections write and checkpoint at once "
        f"(the WAL-reset fault, {first} to {last}); lamina writes through one connection in each process, "
        f"which makes it unlikely; {remedy}"
    )


def warn_if_faulty(driver: Driver) -> None:
    """Once a process: says that this SQLite has the fault, and what to do."""
    version = _version(driver)
    if version in _warned or not is_faulty(driver):
        return
    _warned.add(version)
    warnings.warn(risk(driver), WalResetRisk, stacklevel=2)


def _version(driver: Driver) -> str:
    return sqlite3.sqlite_version if driver == "sqlite3" else str(_apsw().sqlitelibversion())


def _frozen_address(path: str) -> str:
    """The file as SQLite opens one that nobody can change."""
    return f"{Path(path).as_uri()}?mode=ro&immutable=1"


class _Sqlite3:
    """A connection of Python's own sqlite3."""

    def __init__(self, path: str, *, frozen: bool = False) -> None:
        self.version = 0
        address = _frozen_address(path) if frozen else path
        try:
            self._own = sqlite3.connect(
                address, timeout=0, isolation_level=None, check_same_thread=False, uri=frozen
            )
        except sqlite3.Error as error:
            raise _failure(error) from error

    def run(self, sql: str, values: Values = ()) -> list[Any]:
        try:
            return self._own.execute(sql, values).fetchall()
        except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
            raise _failure(error) from error

    def many(self, sql: str, rows: Iterable[Values]) -> None:
        try:
            self._own.executemany(sql, rows)
        except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
            raise _failure(error) from error

    def inside(self) -> bool:
        return self._own.in_transaction

    def copy(self, path: str) -> None:
        target = _Sqlite3(path)
        try:
            self._own.backup(target._own)
        except sqlite3.Error as error:
            raise _failure(error) from error
        finally:
            target.close()

    def close(self) -> None:
        try:
            self._own.close()
        except sqlite3.Error as error:
            raise _failure(error) from error


def _failure(error: Exception) -> SqliteFailure:
    if isinstance(error, UnicodeDecodeError):  # names in a damaged file, even inside its own messages
        return SqliteFailure(CORRUPT, "the file is damaged")
    code = TOOBIG if isinstance(error, OverflowError) else getattr(error, "sqlite_errorcode", 1) & 0xFF
    return SqliteFailure(code, str(error))


class _Apsw:
    """A connection of apsw."""

    def __init__(self, path: str, *, frozen: bool = False) -> None:
        self.version = 0
        self._library = _apsw()
        try:
            self._own = self._connected(path, frozen=frozen)
        except self._library.Error as error:
            raise self._failure(error) from error

    def _connected(self, path: str, *, frozen: bool) -> Any:
        if not frozen:
            return self._library.Connection(path)
        flags = self._library.SQLITE_OPEN_READONLY | self._library.SQLITE_OPEN_URI
        return self._library.Connection(_frozen_address(path), flags=flags)

    def run(self, sql: str, values: Values = ()) -> list[Any]:
        try:
            return list(self._own.execute(sql, values))
        except (self._library.Error, OverflowError, UnicodeDecodeError) as error:
            raise self._failure(error) from error

    def many(self, sql: str, rows: Iterable[Values]) -> None:
        try:
            self._own.executemany(sql, rows)
        except (self._library.Error, OverflowError, UnicodeDecodeError) as error:
            raise self._failure(error) from error

    def inside(self) -> bool:
        return bool(self._own.in_transaction)

    def copy(self, path: str) -> None:
        target = _Apsw(path)
        try:
            with target._own.backup("main", self._own, "main") as backup:
                backup.step(-1)
        except self._library.Error as error:
            raise self._failure(error) from error
        finally:
            target.close()

    def close(self) -> None:
        try:
            self._own.close()
        except self._library.Error as error:
            raise self._failure(error) from error

    @staticmethod
    def _failure(error: Any) -> SqliteFailure:
        if isinstance(error, OverflowError | UnicodeDecodeError):
            return _failure(error)
        return SqliteFailure(getattr(error, "result", 1), str(error))


def _apsw() -> Any:
    try:
        return importlib.import_module("apsw")
    except ImportError:
        raise BadInput("apsw is not installed", place="driver", hint="install apsw") from None


_LINKS: dict[str, type[_Sqlite3 | _Apsw]] = {"sqlite3": _Sqlite3, "apsw": _Apsw}
