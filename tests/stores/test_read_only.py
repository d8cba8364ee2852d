"""A medium that cannot be written can be read: files, folders, and the log of a crash.

The tests may run as root, whom no mode stops, so everything is looked at by a process without rights.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from lamina.errors import Broken, Damaged, KeyNeeded, StoreError
from lamina.stores import (
    ListedConversation,
    MemoryStore,
    RecordPage,
    SqliteStore,
    Store,
    StoredHead,
    Where,
    open_files,
    open_sqlite,
)
from lamina.stores.sealed import Sealed, generate
from lamina.testing._store_trial import expect_error
from tests.torture.children import failure, forked

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="it needs modes of files, and fork")

NOBODY = 65534
HERE = Where("w", "here")
KEY = generate()

Opening = Callable[[], AbstractAsyncContextManager[Store]]
Look = Callable[[Store], Awaitable[None]]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that somebody without rights can reach."""
    path = Path(tempfile.mkdtemp(prefix="read-only-"))
    path.chmod(0o755)
    yield path
    for each in (path, *path.rglob("*")):
        each.chmod(0o700)
    shutil.rmtree(path)


def freeze(folder: Path, *, files: int = 0o444, folders: int = 0o555) -> dict[str, bytes]:
    """Take the right to write away; and what is there."""
    paths = sorted(folder.rglob("*"), reverse=True)
    for path in paths:
        path.chmod(folders if path.is_dir() else files)
    folder.chmod(folders)
    return content_of(folder)


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def seen_by_nobody(opening: Opening, look: Look) -> None:
    """Open a store, and look at it, in a process that may not write to it."""

    async def looked() -> None:
        async with opening() as store:
            await look(store)

    def work(_: Callable[[str], None]) -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        anyio.run(looked)

    assert failure(forked(work).said()) == ""


def write(opening: Opening) -> None:
    async def work() -> None:
        async with opening() as store:
            await store.append(HERE, [b"a", b"b"], state=b"the state")

    anyio.run(work)


async def reads(store: Store) -> None:
    page = await store.read(HERE)
    assert [record.body for record in page.records] == [b"a", b"b"]
    assert page.head == StoredHead(count=2, state=b"the state")
    assert list(await store.list("w")) == [ListedConversation(conversation="here", count=2)]
    assert await store.read(Where("w", "none")) == RecordPage()


async def reads_and_refuses(store: Store) -> None:
    await reads(store)
    for call in (store.append(HERE, [b"c"]), store.append(Where("w", "new"), [b"c"]), store.delete(HERE)):
        error = await expect_error(call, StoreError)
        assert not isinstance(error, Broken)
        assert "can only be read" in str(error)
    await reads(store)


@pytest.mark.parametrize(("files", "folders"), [(0o444, 0o555), (0o444, 0o777), (0o666, 0o555)])
def test_a_sqlite_file_is_read(folder: Path, files: int, folders: int) -> None:
    opening = partial(open_sqlite, folder / "chats.db")
    write(opening)
    before = freeze(folder, files=files, folders=folders)
    seen_by_nobody(opening, reads_and_refuses)
    assert content_of(folder) == before


@pytest.mark.parametrize("ends", [("", "-wal"), ("", "-wal", "-shm")], ids=["log", "log and index"])
def test_the_log_of_a_crash_is_read_with_its_file(folder: Path, ends: tuple[str, ...]) -> None:
    live, copy = folder / "live", folder / "copy"
    live.mkdir()
    copy.mkdir()

    async def copy_while_open() -> None:
        async with open_sqlite(live / "chats.db") as store:
            await store.append(HERE, [b"a", b"b"], state=b"the state")
            for end in ends:  # by another process: closing a file here would give up SQLite's locks
                await anyio.run_process(["cp", str(live / f"chats.db{end}"), str(copy)])

    anyio.run(copy_while_open)
    assert (copy / "chats.db-wal").stat().st_size > 0
    before = freeze(copy)
    seen_by_nobody(partial(open_sqlite, copy / "chats.db"), reads_and_refuses)
    assert content_of(copy) == before


def test_the_copy_of_a_log_is_private_and_goes_again(folder: Path) -> None:
    async def look(store: Store) -> None:
        await reads(store)
        [copy] = [each async for each in anyio.Path(tempfile.gettempdir()).glob("lamina-*")]
        assert (await copy.stat()).st_mode & 0o077 == 0

    write(partial(open_sqlite, folder / "chats.db"))
    log = folder / "chats.db-wal"
    log.write_bytes(bytes(32))  # whatever a log holds, the file alone would be taken for all there is
    freeze(folder)
    own = folder.parent / f"{folder.name}-temporary"
    own.mkdir()
    own.chmod(0o777)
    before, tempfile.tempdir = tempfile.tempdir, str(own)
    try:
        seen_by_nobody(partial(open_sqlite, folder / "chats.db"), look)
        assert list(own.iterdir()) == []
    finally:
        tempfile.tempdir = before
        own.rmdir()


@pytest.mark.parametrize("content", [b"", b"no database" * 1000])
def test_what_is_no_store_is_told(folder: Path, content: bytes) -> None:
    (folder / "chats.db").write_bytes(content)
    freeze(folder)

    @asynccontextmanager
    async def opening() -> AsyncIterator[Store]:
        await expect_error(SqliteStore.open(folder / "chats.db"), StoreError)
        yield MemoryStore()

    async def look(store: Store) -> None:
        assert await store.read(HERE) == RecordPage()

    seen_by_nobody(opening, look)


def test_a_folder_of_files_is_read(folder: Path) -> None:
    opening = partial(open_files, folder / "store")
    write(opening)
    before = freeze(folder)
    seen_by_nobody(opening, reads_and_refuses)
    assert content_of(folder) == before


def test_a_folder_that_was_copied_without_its_locks_is_read(folder: Path) -> None:
    opening = partial(open_files, folder / "store")
    write(opening)
    shutil.rmtree(folder / "store" / ".locks")
    before = freeze(folder)
    seen_by_nobody(opening, reads_and_refuses)
    assert content_of(folder) == before


def test_damage_is_noticed_there_too(folder: Path) -> None:
    write(partial(open_sqlite, folder / "chats.db"))
    path = folder / "chats.db"
    path.write_bytes(path.read_bytes().replace(b"the state", b"the stale"))
    freeze(folder)

    async def look(store: Store) -> None:
        assert (await expect_error(store.read(HERE), Damaged)).conversation == "here"

    seen_by_nobody(partial(open_sqlite, path), look)


@pytest.mark.parametrize("kind", [open_sqlite, open_files])
def test_a_sealed_store_is_read_with_its_key_and_closed_without(
    folder: Path, kind: Callable[[Path], AbstractAsyncContextManager[Store]]
) -> None:
    within = partial(kind, folder / "chats")

    @asynccontextmanager
    async def sealed(*, create: bool = False) -> AsyncIterator[Store]:
        async with within() as store:
            yield Sealed(store, KEY, create=create)

    write(partial(sealed, create=True))
    before = freeze(folder)

    async def look_without_key(store: Store) -> None:
        await expect_error(store.read(HERE), KeyNeeded)
        await expect_error(store.list("w"), KeyNeeded)

    seen_by_nobody(within, look_without_key)
    seen_by_nobody(sealed, reads)
    assert content_of(folder) == before
