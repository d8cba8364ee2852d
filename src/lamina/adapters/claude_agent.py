"""Claude Agent SDK: transcripts in any lamina store.

    store = LaminaSessionStore("chats.db")
    options = ClaudeAgentOptions(session_store=store, resume=session_id)

The SDK gives nobody access to what its model reads. To fit that, set `env={"ANTHROPIC_BASE_URL": …}` to the
address of `lamina serve`. This module keeps the transcripts: with one store for both, they are sealed, copied
and deleted together. An entry that the SDK sends again, since it did not hear of its success, is stored once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from claude_agent_sdk import fold_session_summary

from lamina.adapters._store_thread import decode_stored, list_names, open_store_thread
from lamina.stores.paging import retry_conflicts
from lamina.stores.port import Store, Where
from lamina.stores.store_thread import StoreAddress, StoreThread

__all__ = ["LaminaSessionStore"]

_ATTEMPTS = 20
"""How often an append begins anew because another process was first."""


class _Index(msgspec.Struct, kw_only=True):
    """The state of a transcript: when it was written last, in milliseconds, and the SDK's summary of it."""

    mtime: int = 0
    summary: dict[str, Any] | None = None


class LaminaSessionStore:
    """A `SessionStore` over the store at `address`; see `lamina.stores.store_thread`.

    A `StoreThread` may be given in place of an address. `clock` returns the time in seconds.
    """

    def __init__(
        self,
        address: StoreAddress | StoreThread,
        *,
        key: Any = None,
        workspace: str = "claude-agent",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = open_store_thread(address, key=key)
        self._workspace = workspace
        self._clock = clock

    async def append(self, key: Mapping[str, Any], entries: Sequence[Any]) -> None:
        """Add entries. Those whose `uuid` is in the transcript already are left out."""
        await self.store.arun(self._append, key, entries)

    async def load(self, key: Mapping[str, Any]) -> list[Any] | None:
        """All entries; None for a key that was never written."""
        return await self.store.arun(self._load, key)

    async def list_sessions(self, project_key: str) -> list[Any]:
        """The sessions of a project, each with the time of its last entry in milliseconds."""
        indexes = await self.store.arun(self._list_sessions, project_key)
        return [{"session_id": name, "mtime": index.mtime} for name, index in indexes.items()]

    async def list_session_summaries(self, project_key: str) -> list[Any]:
        """The SDK's summaries of the sessions of a project. A session without one is left out."""
        indexes = await self.store.arun(self._list_sessions, project_key)
        return [index.summary for index in indexes.values() if index.summary]

    async def delete(self, key: Mapping[str, Any]) -> None:
        """Delete a transcript. That of a session takes those of its sub-agents with it."""
        await self.store.arun(self._delete, key)

    async def list_subkeys(self, key: Mapping[str, Any]) -> list[str]:
        """The names of the transcripts of a session's sub-agents."""
        return await self.store.arun(self._list_subkeys, key)

    async def _append(self, store: Store, key: Mapping[str, Any], entries: Sequence[Any]) -> None:
        """Add entries and the new index in one step.

        If another process was first, the step begins anew with what that process wrote.
        """
        where = self._place(key)

        async def write() -> None:
            page = await store.read(where)
            stored_entries = [decode_stored(record.body) for record in page.records]
            new_entries = _drop_repeated(entries, stored_entries)
            index = self._fold(page.head.state, key, new_entries)
            bodies = [msgspec.json.encode(entry) for entry in new_entries]
            state = msgspec.json.encode(index)
            await store.append(where, bodies, expect=page.head.count, was=page.head.state, state=state)

        await retry_conflicts(write, tries=_ATTEMPTS)

    def _fold(self, state: bytes, key: Mapping[str, Any], entries: Sequence[Any]) -> _Index:
        """The next index. Its time is later than the last one, even if the clock is not."""
        before = _Index()
        if state:
            before = decode_stored(state, _Index)
        mtime = max(int(self._clock() * 1000), before.mtime + 1)
        if key.get("subpath") is not None:
            return _Index(mtime=mtime)
        summary = fold_session_summary(before.summary, key, list(entries))
        return _Index(mtime=mtime, summary={**summary, "mtime": mtime})

    async def _load(self, store: Store, key: Mapping[str, Any]) -> list[Any] | None:
        """All entries of a transcript. One that was never written has no state, and is None."""
        page = await store.read(self._place(key))
        if not page.head.state:
            return None
        return [decode_stored(record.body) for record in page.records]

    async def _list_sessions(self, store: Store, project_key: str) -> dict[str, _Index]:
        """The index of each session of a project. A name with a slash is that of a sub-agent."""
        workspace = self._workspace_of(project_key)
        indexes: dict[str, _Index] = {}
        for name in await list_names(store, workspace):
            if "/" in name:
                continue
            page = await store.read(Where(workspace, name), last=0)
            indexes[name] = decode_stored(page.head.state, _Index)
        return indexes

    async def _list_subkeys(self, store: Store, key: Mapping[str, Any]) -> list[str]:
        """The names below a session, without the name of the session."""
        prefix = f"{key['session_id']}/"
        names = await list_names(store, self._workspace_of(key["project_key"]), prefix=prefix)
        return [name.removeprefix(prefix) for name in names]

    async def _delete(self, store: Store, key: Mapping[str, Any]) -> None:
        """Delete a transcript.

        The key of a session has no `subpath`. The transcripts of its sub-agents go before its own.
        """
        where = self._place(key)
        if key.get("subpath") is None:
            for name in await list_names(store, where.workspace, prefix=f"{where.conversation}/"):
                await store.delete(Where(where.workspace, name))
        await store.delete(where)

    def _workspace_of(self, project_key: str) -> str:
        return f"{self._workspace}/{project_key}"

    def _place(self, key: Mapping[str, Any]) -> Where:
        """The conversation of a transcript. Those of sub-agents stand below their session."""
        name = key["session_id"]
        if key.get("subpath") is not None:
            name = f"{name}/{key['subpath']}"
        return Where(self._workspace_of(key["project_key"]), name)


def _drop_repeated(entries: Sequence[Any], stored_entries: Sequence[Any]) -> list[Any]:
    """The entries that are not in the transcript yet. An entry without a `uuid` is always new."""
    seen = {entry.get("uuid") for entry in stored_entries}
    new_entries: list[Any] = []
    for entry in entries:
        uuid = entry.get("uuid")
        if uuid is None or uuid not in seen:
            new_entries.append(entry)
        seen.add(uuid)
    return new_entries
