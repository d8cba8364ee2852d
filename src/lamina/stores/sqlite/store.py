"""The SQLite store: async over worker threads.

    async with open_sqlite("chats.db") as store:
        head = await store.append(Where("team", "support-42"), [b"..."], expect=0)

Writes go through the one writer that this process has for the file, and writes that wait share one commit.
Reads run at the same time, each on a connection of its own and from one snapshot. A cancelled call is waited
for, so that it has happened or not, and no connection stays in a transaction. Other processes may use the
file at the same time.

Connections that only read never copy the log into the file, and are closed before the writer is. On a medium
that cannot be written to, SQLite can make neither locks nor the index of its log. A file without a log is
then opened as one that nobody changes, anew for each read. A file with a log, as after a crash, is first
copied with its log to a private folder, and read there.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from anyio import CancelScope, CapacityLimiter, to_thread

from lamina.errors import BadInput, Damaged, StoreError
from lamina.stores.checked import CheckedStore, NewGroup, RecordSelection, Replacement
from lamina.stores.checks import check_open, check_where, check_workspace
from lamina.stores.port import ListedConversation, Record, RecordPage, StoredHead, Where
from lamina.stores.sqlite import tables
from lamina.stores.sqlite.connections import (
    BUSY,
    CORRUPT,
    LOCKED,
    NOTADB,
    SqliteConnection,
    SqliteFailure,
    close_quietly,
    connect,
)
from lamina.stores.sqlite.writer import Writer, check_not_empty, writer_of

T = TypeVar("T")

READERS = 4
"""Reads that run at once; more wait. Each has a connection, and there is only one disk."""

WRITERS = 16
"""Writes that may share one wait for the disk; more wait for the next."""


@asynccontextmanager
async def open_sqlite(path: str | os.PathLike[str]) -> AsyncIterator[SqliteStore]:
    """Open the store in this file until the block ends. The file is made if it does not exist."""
    store = await SqliteStore.open(path)
    try:
        yield store
    finally:
        await store.close()


class SqliteStore(CheckedStore):
    """Conversations in one file. Made by `open`, and to be closed.

    On a medium that cannot be written to there is no writer.
    """

    def __init__(self, writer: Writer | None, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers
        self._process = os.getpid()
        self._closed = False
        self._writing = CapacityLimiter(WRITERS)
        self._reading = CapacityLimiter(READERS)

    @staticmethod
    async def open(path: str | os.PathLike[str]) -> SqliteStore:
        """Open the store in this file, which is made if it does not exist."""
        absolute_path = _absolute_path(path)
        # A cancelled call would lose what was opened, and nobody could close it.
        with CancelScope(shield=True):
            writer, readers = await to_thread.run_sync(_open_file, absolute_path)
        return SqliteStore(writer, readers)

    async def _append_group(self, group: NewGroup) -> StoredHead:
        return await self._write(tables.append_group, group=group)

    async def _read_page(self, where: Where, selection: RecordSelection) -> RecordPage:
        try:
            return await self._read(tables.read_page, where=where, selection=selection)
        except Damaged as damage:
            if damage.conversation:
                raise
            raise Damaged(
                damage.problem, conversation=where.conversation, hint=damage.hint, whole=damage.whole
            ) from damage.__cause__

    async def _list_page(self, workspace: str, *, after: str, limit: int) -> Sequence[ListedConversation]:
        return await self._read(tables.list_conversations, workspace=workspace, after=after, limit=limit)

    async def _delete(self, where: Where) -> bool:
        return await self._erase(tables.delete_conversation, where=where)

    async def delete_many(self, places: Sequence[Where]) -> int:
        all_places = tuple(places)  # the caller may change a list while the deletion waits for its turn
        for where in all_places:
            check_where(where)
        count = 0

        def delete(connection: SqliteConnection) -> bool:
            nonlocal count
            for where in all_places:
                if tables.delete_conversation(connection, where):
                    count += 1
            return count > 0

        await self._erase(delete)
        return count

    async def sizes(self, workspace: str) -> Mapping[str, int]:
        check_workspace(workspace)
        return await self._read(tables.measure_conversations, workspace=workspace)

    async def states(self, workspace: str) -> Mapping[str, bytes]:
        check_workspace(workspace)
        return await self._read(tables.read_states, workspace=workspace)

    async def bodies(self, workspace: str, names: Sequence[str]) -> Mapping[str, Sequence[bytes]]:
        check_workspace(workspace)
        return await self._read(tables.read_bodies, workspace=workspace, names=tuple(names))

    async def _replace_records(self, replacement: Replacement) -> StoredHead:
        return await self._write(tables.replace_records, replacement=replacement)

    async def rescue(self, where: Where) -> Sequence[Record]:
        """The records that are what was written, whatever became of the others and of the head."""
        check_where(where)
        return await self._read(tables.rescue_records, where=where)

    async def scrub(self) -> None:
        """Rewrite the file, so that nothing is left of replaced records. `delete` does it by itself."""
        await to_thread.run_sync(self._usable_writer().scrub, limiter=self._writing)

    async def close(self) -> None:
        """Wait for the calls that are under way, and close the file. Closing again does nothing."""
        if self._closed:
            return
        self._closed = True
        with CancelScope(shield=True):
            await to_thread.run_sync(self._readers.close)
            for _ in range(WRITERS):
                await self._writing.acquire_on_behalf_of(object())
            if self._writer is not None:
                await to_thread.run_sync(self._writer.release)

    def _usable_writer(self) -> Writer:
        self._check_open()
        if self._writer is None:
            hint = "allow this user to write to the file and its folder, or copy both"
            raise StoreError("the store can only be read: it cannot be written to", hint=hint)
        return self._writer

    async def _write(self, change: Callable[..., T], **arguments: Any) -> T:
        """Change the tables in a worker thread, once the writer has its turn."""
        write = self._usable_writer().write
        return await to_thread.run_sync(write, partial(change, **arguments), limiter=self._writing)

    async def _erase(self, delete: Callable[..., bool], **arguments: Any) -> bool:
        """Delete from the tables in a worker thread, and from the bytes of the file."""
        erase = self._usable_writer().erase
        return await to_thread.run_sync(erase, partial(delete, **arguments), limiter=self._writing)

    async def _read(self, query: Callable[..., T], **arguments: Any) -> T:
        """Read the tables in a worker thread."""
        self._check_open()
        return await to_thread.run_sync(
            self._readers.read, partial(query, **arguments), limiter=self._reading
        )

    def _check_open(self) -> None:
        check_open(closed=self._closed, process=self._process)


def _open_file(path: str) -> tuple[Writer | None, Readers]:
    if not Path(path).exists() or can_write(path):
        writer = writer_of(path)
        return writer, Readers(path)
    check_not_empty(path)
    readers = Readers(path, frozen=True)
    readers.read(tables.check_readable)
    return None, readers


def _absolute_path(path: str | os.PathLike[str]) -> str:
    """The absolute path: in a relative one SQLite would read `:memory:` and `file:` as something else."""
    text = os.fspath(path)
    if not text or "\0" in text or text == ":memory:":
        raise BadInput(f"{text!r}", place="path", hint="give the path of a file, or use MemoryStore")
    return os.path.abspath(text)  # noqa: PTH100 - paths are text here, as SQLite takes them


def can_write(path: str) -> bool:
    """Whether this process may change the file, and make a log next to it."""
    return os.access(path, os.W_OK) and os.access(Path(path).parent, os.W_OK)


class Readers:
    """Connections to one file, opened when needed and reused for the next read.

    `frozen`: the file is on a medium that cannot be written to.
    """

    def __init__(self, path: str, *, frozen: bool = False) -> None:
        self._path = path
        self._frozen = frozen
        self._private_copy: TemporaryDirectory[str] | None = None
        self._idle: list[SqliteConnection] = []
        self._busy_count = 0
        self._closed = False
        self._change = threading.Condition()

    def read(self, query: Callable[[SqliteConnection], T]) -> T:
        """The result of a query, all of it from one snapshot."""
        with self._borrow() as connection:
            connection.run("BEGIN")
            result = query(connection)
            connection.run("COMMIT")
            return result

    def close(self) -> None:
        """Wait until no read is under way, and close all connections."""
        with self._change:
            self._closed = True
            self._change.wait_for(lambda: not self._busy_count)
            while self._idle:
                close_quietly(self._idle.pop())
            if self._private_copy is not None:
                self._private_copy.cleanup()
                self._private_copy = None

    @contextmanager
    def _borrow(self) -> Iterator[SqliteConnection]:
        """A connection for one read. After any error it is closed and not used again."""
        connection = self._take()
        try:
            yield connection
        except SqliteFailure as error:
            self._discard(connection)
            raise _read_error(error) from error
        except BaseException:
            self._discard(connection)
            raise
        self._give_back(connection)

    def _take(self) -> SqliteConnection:
        with self._change:
            if self._closed:
                raise StoreError("the store is closed", hint="open it again")
            self._busy_count += 1
            if self._idle:
                return self._idle.pop()
        try:
            return self._connect()
        except BaseException:
            self._end_read()
            raise

    def _connect(self) -> SqliteConnection:
        if not self._frozen:
            return connect(self._path, writes=False)
        if _has_log(self._path):
            return connect(self._copy_with_log(), writes=False)
        return connect(self._path, writes=False, frozen=True)

    def _copy_with_log(self) -> str:
        """Copy the file and its log to a private folder, once, and return the path of the copy."""
        with self._change:
            if self._private_copy is None:
                self._private_copy = TemporaryDirectory(prefix="lamina-", ignore_cleanup_errors=True)
                folder = Path(self._private_copy.name)
                shutil.copyfile(self._path, folder / "chats.db")
                shutil.copyfile(f"{self._path}-wal", folder / "chats.db-wal")
            return str(Path(self._private_copy.name) / "chats.db")

    def _give_back(self, connection: SqliteConnection) -> None:
        """End a read. Its connection is reused, unless the file is frozen: then each read opens it anew."""
        if self._frozen:
            self._discard(connection)
            return
        with self._change:
            self._idle.append(connection)
            self._end_read()

    def _discard(self, connection: SqliteConnection) -> None:
        """End a read whose connection is not used again."""
        close_quietly(connection)
        self._end_read()

    def _end_read(self) -> None:
        with self._change:
            self._busy_count -= 1
            self._change.notify_all()


def _has_log(path: str) -> bool:
    """Whether there is a log that is not empty; without one the file has everything."""
    log = Path(f"{path}-wal")
    return log.exists() and log.stat().st_size > 0


def _read_error(error: SqliteFailure) -> StoreError:
    if error.code in (BUSY, LOCKED):
        return StoreError("another process holds the file", hint="try again")
    if error.code in (CORRUPT, NOTADB):
        return Damaged(f"the file is damaged: {error.words}")
    return StoreError(f"reading failed: {error.words}", hint="check the disk, then try again")
