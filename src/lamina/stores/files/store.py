"""The store in a folder: async over worker threads, many processes at a time.

    async with open_files("chats") as store:
        head = await store.append(Where("team", "support-42"), [b"..."], expect=0)

A whole call runs in one thread under the lock of its conversation, so a cancelled call has happened or not.
After an error of the disk while writing nothing more is taken: what is on the disk is then for whoever opens
the folder again to find out. It does not know what a record says, except for the role in its file's name.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec
from anyio import CapacityLimiter, to_thread

from lamina.errors import BadInput, Broken, Damaged, StoreError
from lamina.stores.files.disk import check_locks, locked, make, put, settle
from lamina.stores.files.names import folder_name, name_of
from lamina.stores.files.shelf import HEAD, ConversationFolder, HeadFile
from lamina.stores.files.write import append, replace
from lamina.stores.memory import (
    check_asked,
    check_bodies,
    check_group,
    check_key,
    check_unmixed,
    check_where,
    check_workspace,
    places,
)
from lamina.stores.port import (
    HEADER,
    RESERVED,
    Listed,
    Once,
    Record,
    RecordPage,
    StoredHead,
    Where,
    search_place,
)

Now = Callable[[], datetime]
T = TypeVar("T")

THREADS = 8
"""Calls that run at once; more wait. The disk is one."""

LOCKS = 64
"""Files in `.locks`. Conversations share them, so that nothing of a deleted one stays."""

MARK = ".lamina"
LAYOUT = 1
"""The version of the folder; a conversation has one of its own."""

GONE = ".deleted."
"""Begins the name of a conversation's folder that is being deleted."""


@asynccontextmanager
async def open_files(root: str | os.PathLike[str], *, now: Now | None = None) -> AsyncIterator[FilesStore]:
    """The store in this folder, which is made if it is not there, until the block ends."""
    store = await FilesStore.open(root, now=now)
    try:
        yield store
    finally:
        await store.close()


class FilesStore:
    """Conversations as folders of files. Made by `open`. `now` is the time in the names of new files."""

    def __init__(self, root: Path, now: Now) -> None:
        self._root = root
        self._now = now
        self._closed = False
        self._broken = ""
        self._can_write = True
        self._threads = CapacityLimiter(THREADS)

    @staticmethod
    async def open(root: str | os.PathLike[str], *, now: Now | None = None) -> FilesStore:
        store = FilesStore(Path(root), now or _utc_now)
        await store._run(store._prepare)
        return store

    async def append(
        self,
        where: Where,
        records: Sequence[bytes],
        *,
        expect: int | None = None,
        was: bytes | None = None,
        once: Once | None = None,
        state: bytes | None = None,
    ) -> StoredHead:
        check_group(where, records, expect=expect, was=was, once=once, state=state)
        write = partial(
            append, bodies=tuple(records), expect=expect, was=was, once=once, state=state, at=self._now()
        )

        def work() -> StoredHead:
            with self._locked(where, alone=True):
                shelf = self._shelf(where)
                if shelf.kept is None:
                    with self._beginning(where):
                        return write(shelf)
                self._check_key(where.workspace)
                return write(shelf)

        return await self._run(work, writes=True)

    async def read(
        self,
        where: Where,
        *,
        after: int = 0,
        last: int | None = None,
        at: Sequence[int] | None = None,
        limit: int | None = None,
    ) -> RecordPage:
        check_where(where)
        check_asked(after=after, last=last, at=at, limit=limit)

        def work() -> RecordPage:
            self._check_key(where.workspace)
            with self._locked(where, alone=False), self._explained(where):
                shelf = self._shelf(where)
                meant = places(shelf.head.count, after=after, last=last, at=at, limit=limit)
                return RecordPage(records=shelf.records(meant), head=shelf.head)

        return await self._run(work)

    async def list(self, workspace: str, *, after: str = "", limit: int = 1000) -> Sequence[Listed]:
        check_workspace(workspace)
        check_asked(limit=limit)
        return await self._run(partial(self._list, workspace, after, limit))

    async def delete(self, where: Where) -> bool:
        check_where(where)

        def work() -> bool:
            self._check_key(where.workspace)
            index = search_place(where)
            if index is not None and (self._folder(where) / HEAD).exists():
                with self._locked(index, alone=True):  # one after the other: they may share a lock
                    self._delete(self._folder(index))
            with self._locked(where, alone=True):
                return self._delete(self._folder(where))

        return await self._run(work, writes=True)

    async def replace(
        self,
        where: Where,
        bodies: Mapping[int, bytes],
        *,
        expect: int,
        was: bytes | None = None,
        state: bytes | None = None,
    ) -> StoredHead:
        check_bodies(where, bodies, expect=expect, was=was, state=state)
        new = dict(bodies)

        def work() -> StoredHead:
            self._check_key(where.workspace)
            with self._locked(where, alone=True):
                return replace(self._shelf(where), new, expect=expect, was=was, state=state)

        return await self._run(work, writes=True)

    async def rescue(self, where: Where) -> Sequence[Record]:
        """The records that are what was written, whatever became of the others and of the head."""
        check_where(where)

        def work() -> Sequence[Record]:
            self._check_key(where.workspace)
            with self._locked(where, alone=False):
                return ConversationFolder(self._folder(where), where, headless=True).whole_records()

        return await self._run(work)

    async def close(self) -> None:
        """Nothing is held open between two calls; a closed store takes no more of them."""
        self._closed = True

    async def _run(self, work: Callable[[], T], *, writes: bool = False) -> T:
        return await to_thread.run_sync(partial(self._guarded, work, writes), limiter=self._threads)

    def _guarded(self, work: Callable[[], T], writes: bool) -> T:  # noqa: FBT001
        if self._closed:
            raise StoreError("the store is closed", hint="open it again")
        if self._broken:
            raise Broken(f"the disk failed before: {self._broken}", hint="open the store again")
        if writes and not self._can_write:
            hint = "allow this user to write to the folder, or copy it"
            raise StoreError("the store can only be read: its folder cannot be written to", hint=hint)
        try:
            return work()
        except StoreError:
            raise
        except OSError as error:
            reason = f"{error.strerror or error} ({type(error).__name__})"
            if writes:
                self._broken = reason
            raise Broken(f"the disk failed: {reason}", hint="see to it, then open the store again") from error

    def _prepare(self) -> None:
        """Makes the folder a store, or sees that it is one, and finishes what was being deleted."""
        check_locks()
        mark = self._root / MARK
        if mark.exists():
            _check_mark(mark.read_bytes())
        else:
            self._begin()
        self._can_write = os.access(self._root, os.W_OK)
        if not self._can_write:
            return
        for gone in self._root.glob(f"[!.]*/{GONE}*"):
            with self._lock(gone.with_name(gone.name.removeprefix(GONE)), alone=True):
                _remove(gone)

    def _begin(self) -> None:
        """Makes the folder a store. Many processes may be at it; what is in a store comes after its mark."""
        new = [self._root, *(folder for folder in self._root.parents if not folder.exists())]
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        others = any(not path.name.startswith(".") for path in self._root.iterdir())
        if others and not (self._root / MARK).exists():
            hint = "give an empty folder; lamina.formats.elara reads the files of that system"
            raise BadInput("this folder holds other files", place=repr(str(self._root)), hint=hint)
        for folder in new:
            with suppress(PermissionError):  # the folder above may be another's
                settle(folder.parent)
        make(self._root / ".locks")
        with self._lock(self._root, alone=True):
            put(self._root, MARK, msgspec.json.encode({"v": LAYOUT}))
            settle(self._root)

    def _list(self, workspace: str, after: str, limit: int) -> Sequence[Listed]:
        self._check_key(workspace)
        folders = sorted(self._names(workspace))
        kept = (self._counted(Where(workspace, name)) for name in folders if name > after)
        return list(islice((listed for listed in kept if listed is not None), limit))

    def _names(self, workspace: str) -> Iterator[str]:
        folder = self._root / folder_name(workspace)
        try:
            there = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
        except FileNotFoundError:
            return
        for each in there:
            name = name_of(each)
            if name is None:
                name = _named_inside(folder / each)
            if name is not None:
                yield name

    def _counted(self, where: Where) -> Listed | None:
        with self._locked(where, alone=False):
            kept = self._shelf(where).kept
        return Listed(conversation=where.conversation, count=kept.count) if kept else None

    def _delete(self, folder: Path) -> bool:
        """Takes the folder out of sight at once, then removes what is in it."""
        gone = folder.with_name(GONE + folder.name)
        begun = _remove(gone)
        there = (folder / HEAD).exists()
        if folder.exists():
            folder.replace(gone)
            settle(folder.parent)
            _remove(gone)
        return there or begun

    def _shelf(self, where: Where) -> ConversationFolder:
        return ConversationFolder(self._folder(where), where)

    def _folder(self, where: Where) -> Path:
        return self._root / folder_name(where.workspace) / folder_name(where.conversation)

    @contextmanager
    def _beginning(self, where: Where) -> Iterator[None]:
        """Around the first group of a conversation: no plain one begins while the store is being sealed."""
        with locked(self._root / ".locks" / "seal", alone=where == HEADER):
            self._check_key(where.workspace)
            if where == HEADER:
                check_unmixed(plain=self._has_plain())
            yield

    def _check_key(self, workspace: str) -> None:
        check_key(workspace, sealed=(self._folder(HEADER) / HEAD).exists())

    def _has_plain(self) -> bool:
        """Whether a conversation was kept under a name that encryption does not make."""
        for workspace in self._root.iterdir():
            if workspace.name.startswith((".", folder_name(RESERVED))):
                continue
            if any(workspace.glob(f"[!.]*/{HEAD}")):
                return True
        return False

    @contextmanager
    def _explained(self, where: Where) -> Iterator[None]:
        """Damage is told with the records that are whole."""
        try:
            yield
        except Damaged as damage:
            found = ConversationFolder(self._folder(where), where, headless=True).whole_records()
            whole = [record.seq for record in found]
            raise Damaged(
                damage.problem, conversation=damage.conversation, hint=damage.hint, whole=whole
            ) from damage

    def _locked(self, where: Where, *, alone: bool) -> AbstractContextManager[None]:
        return self._lock(self._folder(where), alone=alone)

    def _lock(self, folder: Path, *, alone: bool) -> AbstractContextManager[None]:
        number = zlib.crc32(f"{folder.parent.name}/{folder.name}".encode()) % LOCKS
        return locked(self._root / ".locks" / f"{number:02x}", alone=alone)


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _remove(folder: Path) -> bool:
    """Removes a folder for good; False if there is none."""
    if not folder.exists():
        return False
    shutil.rmtree(folder)
    settle(folder.parent)
    return True


def _check_mark(data: bytes) -> None:
    try:
        version = msgspec.json.decode(data, type=dict[str, int]).get("v")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        version = None
    if version != LAYOUT:
        hint = f"this release reads version {LAYOUT}"
        raise StoreError(f"{MARK!r} says version {version!r}", hint=hint)


def _named_inside(folder: Path) -> str | None:
    """The name of a conversation that is too long for a folder; None while it is being made."""
    try:
        name = msgspec.json.decode((folder / HEAD).read_bytes(), type=HeadFile).conversation
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        name = ""
    if folder_name(name) != folder.name:
        hint = "restore this folder from a backup, hidden files included"
        raise Damaged(f"{HEAD!r} is not what was written", conversation=folder.name, hint=hint)
    return name
