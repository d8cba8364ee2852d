"""The store in a folder: async over worker threads, for many processes at a time.

    async with open_files("chats") as store:
        head = await store.append(Where("team", "support-42"), [b"..."], expect=0)

A whole call runs in one thread under the lock of its conversation, so a cancelled call has happened or not.
After an error of the disk during a write the store refuses every further call: only opening the folder again
can find out what is on the disk. The store does not read records, except for the role in their file names.

In the name of a folder only lower-case letters, digits, `-`, `_` and a dot inside stay as they are. So two
names are two folders also on a file system that does not distinguish `A` from `a`. A name that gets too long
for a folder becomes its hash; the name itself is then in the `.head` file of the folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import string
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

import msgspec
from anyio import CapacityLimiter, to_thread

from lamina.errors import BadInput, Broken, Damaged, StoreError, advise_on_version
from lamina.stores.checked import CheckedStore, NewGroup, RecordSelection, Replacement
from lamina.stores.checks import check_key, check_no_plain, check_where
from lamina.stores.files.conversation import HEAD, ConversationFolder, HeadFile, find_intact_records
from lamina.stores.files.disk import check_locks, hold_lock, make_folder, write_file
from lamina.stores.port import (
    HEADER,
    RESERVED,
    ListedConversation,
    Record,
    RecordPage,
    StoredHead,
    Where,
    places_beside,
)
from lamina.stores.syncing import sync_folder

Now = Callable[[], datetime]
T = TypeVar("T")

THREADS = 8
"""Calls that run at once; more wait. There is only one disk."""

LOCKS = 64
"""Files in `.locks`. Conversations share them, so that nothing of a deleted one stays."""

MARK = ".lamina"
VERSION = 4

DELETED_PREFIX = ".deleted."
"""Begins the name of a conversation's folder that is being deleted."""

LONGEST = 200
"""Bytes in the name of a folder. Most file systems allow 255; deleting a folder adds some to its name."""

_PLAIN_BYTES = frozenset((string.ascii_lowercase + string.digits + "-_.").encode())


@asynccontextmanager
async def open_files(root: str | os.PathLike[str], *, now: Now | None = None) -> AsyncIterator[FilesStore]:
    """Open the store in this folder until the block ends. The folder is made if it does not exist."""
    store = await FilesStore.open(root, now=now)
    try:
        yield store
    finally:
        await store.close()


class FilesStore(CheckedStore):
    """Conversations as folders of files. Made by `open`. `now` gives the time in the names of new files."""

    def __init__(self, root: Path, now: Now) -> None:
        self._root = root
        self._now = now
        self._closed = False
        self._broken = ""
        self._can_write = True
        self._threads = CapacityLimiter(THREADS)

    @staticmethod
    async def open(root: str | os.PathLike[str], *, now: Now | None = None) -> FilesStore:
        """Open the store in a folder, which may be new. `now` gives the time for file names."""
        store = FilesStore(Path(root), now or _utc_now)
        await store._run(store._prepare)
        return store

    async def _append_group(self, group: NewGroup) -> StoredHead:
        where = group.where
        at = self._now()

        def append() -> StoredHead:
            with self._lock_conversation(where, alone=True):
                conversation = self._conversation(where)
                if conversation.head_file is None:
                    with self._beginning(where):
                        return conversation.append_group(group, at)
                self._check_key(where.workspace)
                return conversation.append_group(group, at)

        return await self._run(append, writes=True)

    async def _read_page(self, where: Where, selection: RecordSelection) -> RecordPage:

        def read() -> RecordPage:
            self._check_key(where.workspace)
            with self._lock_conversation(where, alone=False), self._listing_intact_records(where):
                conversation = self._conversation(where)
                head = conversation.head
                records = conversation.read_records(selection.places(head.count))
                return RecordPage(records=records, head=head)

        return await self._run(read)

    async def _list_page(self, workspace: str, *, after: str, limit: int) -> Sequence[ListedConversation]:
        return await self._run(partial(self._list_folders, workspace, after, limit))

    async def _delete(self, where: Where) -> bool:
        return await self._run(partial(self._delete_folders, where), writes=True)

    async def _replace_records(self, replacement: Replacement) -> StoredHead:
        where = replacement.where

        def replace() -> StoredHead:
            self._check_key(where.workspace)
            with self._lock_conversation(where, alone=True):
                return self._conversation(where).replace_records(replacement)

        return await self._run(replace, writes=True)

    async def rescue(self, where: Where) -> Sequence[Record]:
        """The records that are what was written, whatever became of the others and of the head."""
        check_where(where)

        def rescue() -> Sequence[Record]:
            self._check_key(where.workspace)
            with self._lock_conversation(where, alone=False):
                return self._intact_records(where)

        return await self._run(rescue)

    async def close(self) -> None:
        """Refuse further calls. Nothing has to be closed: no file is open between two calls."""
        self._closed = True

    async def _run(self, call: Callable[[], T], *, writes: bool = False) -> T:
        """Run a call in a worker thread."""
        return await to_thread.run_sync(partial(self._run_here, call, writes), limiter=self._threads)

    def _run_here(self, call: Callable[[], T], writes: bool) -> T:  # noqa: FBT001
        """Make one call on the disk, in a thread, and say what became of the store if it failed.

        After a failed write nobody knows what is on the disk, so the store refuses all further calls.
        """
        if self._closed:
            raise StoreError("the store is closed", hint="open it again")
        if self._broken:
            raise Broken(f"the disk failed before: {self._broken}", hint="open the store again")
        if writes and not self._can_write:
            hint = "allow this user to write to the folder, or copy it"
            raise StoreError("the store can only be read: its folder cannot be written to", hint=hint)
        try:
            return call()
        except StoreError:  # `Broken` is an OSError too
            raise
        except OSError as error:
            reason = f"{error.strerror or error} ({type(error).__name__})"
            if writes:
                self._broken = reason
            raise Broken(
                f"the disk failed: {reason}", hint="repair the disk, then open the store again"
            ) from error

    def _prepare(self) -> None:
        """Make the folder a store, or check that it is one, and finish deletions that were interrupted."""
        check_locks()
        mark = self._root / MARK
        if mark.exists():
            _check_mark(mark.read_bytes())
        else:
            self._make_store()
        self._can_write = os.access(self._root, os.W_OK)
        if not self._can_write:
            return
        for deleted in self._root.glob(f"[!.]*/{DELETED_PREFIX}*"):
            folder = deleted.with_name(deleted.name.removeprefix(DELETED_PREFIX))
            with self._lock_folder(folder, alone=True):
                _remove_folder(deleted)

    def _make_store(self) -> None:
        """Make the folder a store. Other processes may do the same; conversations come after the mark.

        A folder with files of somebody else is refused: a store would mix with them.
        """
        new_folders = [self._root]
        new_folders += [folder for folder in self._root.parents if not folder.exists()]
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            problem = f"{str(self._root)!r}: {error.strerror}"
            raise StoreError(problem, hint="check the path and its permissions") from error
        has_other_files = any(not path.name.startswith(".") for path in self._root.iterdir())
        if has_other_files and not (self._root / MARK).exists():
            hint = "give an empty folder"
            raise BadInput("this folder holds other files", place=repr(str(self._root)), hint=hint)
        # A folder lasts only once its name does, which is in the folder above it.
        for folder in new_folders:
            with suppress(PermissionError):  # the folder above may belong to another user
                sync_folder(folder.parent)
        make_folder(self._root / ".locks")
        with self._lock_folder(self._root, alone=True):
            write_file(self._root, MARK, msgspec.json.encode({"v": VERSION}))
            sync_folder(self._root)

    def _list_folders(self, workspace: str, after: str, limit: int) -> Sequence[ListedConversation]:
        """One page of a list. Names are sorted here, since folders come in any order."""
        self._check_key(workspace)
        conversations: list[ListedConversation] = []
        for name in sorted(self._conversation_names(workspace)):
            if len(conversations) == limit:
                break
            if name <= after:
                continue
            count = self._count_records(Where(workspace, name))
            if count is not None:
                conversations.append(ListedConversation(conversation=name, count=count))
        return conversations

    def _conversation_names(self, workspace: str) -> Iterator[str]:
        """Yield the names of all conversations. A name too long for a folder is read from its file."""
        workspace_folder = self._root / folder_name(workspace)
        try:
            folders = list(workspace_folder.iterdir())
        except FileNotFoundError:
            return
        for folder in folders:
            if folder.name.startswith("."):
                continue
            name = name_of(folder.name)
            if name is None:
                name = _read_long_name(folder)
            if name is not None:
                yield name

    def _count_records(self, where: Where) -> int | None:
        """The number of records of a conversation; None if it was deleted, or is only being made."""
        with self._lock_conversation(where, alone=False):
            head_file = self._conversation(where).head_file
        if head_file is None:
            return None
        return head_file.head.count

    def _delete_folders(self, where: Where) -> bool:
        """Delete a conversation and what is beside it. False if there was none."""
        self._check_key(where.workspace)
        # What is beside it first: if this process is killed in between, the conversation is still listed, and
        # can be deleted again. In the other order nobody would find what is left.
        for place in places_beside(where):
            if (self._folder(where) / HEAD).exists():
                with self._lock_conversation(place, alone=True):  # not nested: they may share a lock
                    self._delete_folder(self._folder(place))
        with self._lock_conversation(where, alone=True):
            return self._delete_folder(self._folder(where))

    def _delete_folder(self, folder: Path) -> bool:
        """Take a folder out of sight at once, then remove what is in it. False if there was nothing."""
        deleted = folder.with_name(DELETED_PREFIX + folder.name)
        was_begun = _remove_folder(deleted)
        existed = (folder / HEAD).exists()
        if folder.exists():
            folder.replace(deleted)
            sync_folder(folder.parent)
            _remove_folder(deleted)
        return existed or was_begun

    def _conversation(self, where: Where) -> ConversationFolder:
        return ConversationFolder(self._folder(where), where)

    def _folder(self, where: Where) -> Path:
        return self._root / folder_name(where.workspace) / folder_name(where.conversation)

    @contextmanager
    def _beginning(self, where: Where) -> Iterator[None]:
        """Around the first group of a conversation: no plain one begins while the store is being sealed."""
        with hold_lock(self._root / ".locks" / "seal", alone=where == HEADER):
            self._check_key(where.workspace)
            if where == HEADER:
                check_no_plain(plain=self._has_plain())
            yield

    def _check_key(self, workspace: str) -> None:
        check_key(workspace, sealed=(self._folder(HEADER) / HEAD).exists())

    def _has_plain(self) -> bool:
        """Whether there is a conversation in a workspace that encryption does not use."""
        for workspace in self._root.iterdir():
            if workspace.name.startswith((".", folder_name(RESERVED))):
                continue
            if any(workspace.glob(f"[!.]*/{HEAD}")):
                return True
        return False

    @contextmanager
    def _listing_intact_records(self, where: Where) -> Iterator[None]:
        """Add to a `Damaged` error which records are intact."""
        try:
            yield
        except Damaged as damage:
            intact = [record.seq for record in self._intact_records(where)]
            raise Damaged(
                damage.problem, conversation=damage.conversation, hint=damage.hint, whole=intact
            ) from damage

    def _intact_records(self, where: Where) -> Sequence[Record]:
        return find_intact_records(self._folder(where), where)

    def _lock_conversation(self, where: Where, *, alone: bool) -> AbstractContextManager[None]:
        return self._lock_folder(self._folder(where), alone=alone)

    def _lock_folder(self, folder: Path, *, alone: bool) -> AbstractContextManager[None]:
        """Hold the lock of a folder. A few locks serve all folders, so two of them may share one."""
        number = zlib.crc32(f"{folder.parent.name}/{folder.name}".encode()) % LOCKS
        return hold_lock(self._root / ".locks" / f"{number:02x}", alone=alone)


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _remove_folder(folder: Path) -> bool:
    """Remove a folder and all in it; False if there is none."""
    if not folder.exists():
        return False
    shutil.rmtree(folder)
    sync_folder(folder.parent)
    return True


def _check_mark(data: bytes) -> None:
    """Raise if the folder was laid out by a release that this one does not know."""
    try:
        version = msgspec.json.decode(data, type=dict[str, int]).get("v")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        version = None
    if version != VERSION:
        raise StoreError(f"{MARK!r} says version {version!r}", hint=advise_on_version(version, VERSION))


def _read_long_name(folder: Path) -> str | None:
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


def folder_name(name: str) -> str:
    """The folder of a workspace or conversation. It never begins with a dot and is never empty.

    Every byte that some file system treats in a special way is written as `%2f`. A name that is too long is
    hashed.
    """
    if not name:
        return "%"
    data = name.encode()
    folder = "".join(chr(byte) if byte in _PLAIN_BYTES else f"%{byte:02x}" for byte in data)
    # Names that begin with a dot are those of the store itself: `.head`, `.locks`, `.deleted.` and a name.
    if folder.startswith("."):
        folder = f"%2e{folder[1:]}"
    if len(folder) > LONGEST:
        return f"~{hashlib.sha256(data).hexdigest()}"
    return folder


def name_of(folder: str) -> str | None:
    """The name that `folder_name` turned into this folder; None if the folder's name is a hash."""
    if folder.startswith("~"):
        return None
    if folder == "%":
        return ""
    return unquote(folder, errors="strict")
