"""The files of the memory tool in a store: one set for each workspace, with every version that there was.

    lamina.memories/WORKSPACE  files   state: the files as they are now
                                       record: {"v":1,"path":"/memories/a.md","text":"…","at":1790000000}

A change is one group of records with the new state, so a store has all of it or none. What a model deletes or
overwrites stays as a version, and can be read again. What a user erases is gone, versions included. The
commands themselves are in `memory_commands`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import time
from typing import Any

import msgspec

from lamina.conversations.memory_commands import Files, MemoryAnswer, run_command
from lamina.conversations.store import recorded_workspace
from lamina.errors import Damaged, NotFound, StoreError
from lamina.stores.port import OwnName, Rekeyable, Store, Where
from lamina.stores.retries import retry_conflicts
from lamina.stores.sweeping import sweep_replaced

MEMORIES = "lamina.memories/"
"""Begins the names of the workspaces that hold the files of another workspace."""

VERSION = 1

TRIES = 20
"""How often a command is run again because another process has changed the files meanwhile."""


class FileVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it was from a moment on. `text` is None if it was deleted; `erased` ones have no path."""

    v: int = VERSION
    path: str = ""
    text: str | None = None
    at: int = 0
    erased: bool = False


class _StoredFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The state: all files as they are now."""

    v: int = VERSION
    files: dict[str, str] = {}


def memory_place(workspace: str) -> Where:
    return Where(OwnName(f"{MEMORIES}{recorded_workspace(workspace)}"), "files")


async def load_files(store: Store, workspace: str) -> Files:
    """The files of a workspace, by path."""
    page = await store.read(memory_place(workspace), last=0)
    return _decode_files(page.head.state)


async def run_in_store(
    store: Store, workspace: str, arguments: Mapping[str, Any], *, clock: Callable[[], float] = time
) -> MemoryAnswer:
    """Carry out one command of the memory tool on the files of a workspace, and store what it changes.

    `clock` gives the time of a change in seconds.
    """
    where = memory_place(workspace)

    async def run() -> MemoryAnswer:
        head = (await store.read(where, last=0)).head
        files = _decode_files(head.state)
        answer = run_command(files, arguments)
        if answer.changes:
            state = _encode_files(_apply(files, answer.changes))
            records = _encode_changes(answer.changes, int(clock()))
            # The count alone does not tell: an erasure changes the state and adds no record.
            await store.append(where, records, expect=head.count, was=head.state, state=state)
        return answer

    return await retry_conflicts(run, tries=TRIES)


async def list_versions(store: Store, workspace: str, path: str) -> list[FileVersion]:
    """Every version of a file, the oldest first. Raises NotFound if there never was one."""
    page = await store.read(memory_place(workspace))
    versions = [_decode_version(record.body) for record in page.records]
    own_versions = [version for version in versions if version.path == path]
    if not own_versions:
        raise NotFound(path)
    return own_versions


async def erase_files(store: Store, workspace: str, path: str = "") -> int:
    """Erase a file, or all files below a directory, with all versions; without a path, everything.

    Returns how many files there were, those that the model had deleted included.
    """
    where = memory_place(workspace)
    if not path:
        page = await store.read(where)
        paths = {_decode_version(record.body).path for record in page.records}
        await store.delete(where)
        return len(paths - {""})

    async def erase() -> int:
        page = await store.read(where)
        erased: set[str] = set()
        bodies: dict[int, bytes] = {}
        for record in page.records:
            version = _decode_version(record.body)
            if version.path == path or version.path.startswith(f"{path}/"):
                erased.add(version.path)
                bodies[record.seq] = msgspec.json.encode(FileVersion(at=version.at, erased=True))
        if not bodies:
            raise NotFound(path)
        if not isinstance(store, Rekeyable):
            hint = "erase everything, or copy the store to one that can"
            raise StoreError("this store cannot erase one file", conversation=path, hint=hint)
        files = _decode_files(page.head.state)
        kept_files = {name: text for name, text in files.items() if name not in erased}
        state = _encode_files(kept_files)
        await store.replace(where, bodies, expect=page.head.count, was=page.head.state, state=state)
        return len(erased)

    count = await retry_conflicts(erase, tries=TRIES)
    await sweep_replaced(store)
    return count


def _apply(files: Files, changes: Mapping[str, str | None]) -> dict[str, str]:
    after = dict(files)
    for path, text in changes.items():
        if text is None:
            after.pop(path, None)
        else:
            after[path] = text
    return after


def _encode_changes(changes: Mapping[str, str | None], at: int) -> list[bytes]:
    versions = [FileVersion(path=path, text=text, at=at) for path, text in changes.items()]
    return [msgspec.json.encode(version) for version in versions]


def _encode_files(files: Files) -> bytes:
    return msgspec.json.encode(_StoredFiles(files=dict(files)), order="deterministic")


def _decode_files(state: bytes) -> Files:
    if not state:
        return {}
    try:
        return msgspec.json.decode(state, type=_StoredFiles).files
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(f"the files of the memory tool cannot be read: {error}") from error


def _decode_version(body: bytes) -> FileVersion:
    try:
        return msgspec.json.decode(body, type=FileVersion)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(f"a version of a memory file cannot be read: {error}") from error
