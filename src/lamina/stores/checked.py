"""The one door of lamina's own stores: what a caller gives is checked and frozen here, once.

A caller sees `append`, `read`, `replace`, `list` and `delete` as the port has them. Behind them the arguments
of a call are one value, which does not change any more while the call waits for a thread, a lock or a server.
A store adds only how it keeps records. It does not check arguments again.

Your own store need not derive from `CheckedStore`: every class with the methods of the port is a store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NoReturn

import msgspec

from lamina.errors import StoreError
from lamina.stores.checks import (
    check_bodies,
    check_bytes,
    check_head,
    check_listed_name,
    check_number,
    check_once,
    check_optional_number,
    check_places,
    check_replaced_places,
    check_selected_once,
    check_where,
    check_workspace,
)
from lamina.stores.port import ListedConversation, Once, RecordPage, StoredHead, Where

MOST_LISTED = 2**62
"""More conversations than there can be. Every database can count so far."""


class NewGroup(msgspec.Struct, frozen=True, kw_only=True):
    """What one `append` adds: the records, the new state, and what has to be true before."""

    where: Where
    records: tuple[bytes, ...] = ()
    expect: int | None = None
    was: bytes | None = None
    once: Once | None = None
    state: bytes | None = None

    def head_after(self, previous: StoredHead) -> StoredHead:
        """The head once this group is added. Raises Conflict if another writer was first."""
        check_head(self.where, previous, expect=self.expect, was=self.was)
        return _move_head(previous, len(self.records), self.state)


class Replacement(msgspec.Struct, frozen=True, kw_only=True):
    """What one `replace` changes: bodies by their places, the new state, and what has to be true before."""

    where: Where
    bodies: Mapping[int, bytes]
    expect: int
    was: bytes | None = None
    state: bytes | None = None

    def head_after(self, previous: StoredHead) -> StoredHead:
        """The head once the bodies are replaced. Raises Conflict if another writer was first."""
        check_head(self.where, previous, expect=self.expect, was=self.was)
        return _move_head(previous, 0, self.state)

    def raise_missing(self) -> NoReturn:
        """Raise for a conversation that is not there: Conflict if the caller has read one, or StoreError."""
        check_head(self.where, StoredHead(), expect=self.expect, was=self.was)
        raise StoreError("there is no conversation of this name", conversation=self.where.conversation)


def _move_head(previous: StoredHead, added: int, state: bytes | None) -> StoredHead:
    """The head after a write. Without a new state the old one stays."""
    if state is None:
        state = previous.state
    return StoredHead(count=previous.count + added, state=state)


class RecordSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Which records one `read` selects: those from `after` on, the `last` so many, or those `at` places."""

    after: int = 0
    last: int | None = None
    at: tuple[int, ...] | None = None
    limit: int | None = None

    def places(self, count: int) -> Sequence[int]:
        """The places that this selects in a conversation of `count` records, in order.

        `after` is the number of records to pass over. Places in `at` that do not exist are passed over too.
        """
        if self.at is not None:
            return sorted({seq for seq in self.at if seq < count})[: self.limit]
        start = min(self.after, count)
        if self.last is not None:
            start = max(count - self.last, 0)
        return range(start, count)[: self.limit]


class CheckedStore(ABC):
    """The methods of the port that a caller sees, for stores that implement what comes after them."""

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
        """Add `records` as one group and set the new `state`, if `expect` and `was` still hold."""
        check_where(where)
        group = NewGroup(where=where, records=tuple(records), expect=expect, was=was, once=once, state=state)
        check_bodies(group.records)
        check_optional_number("expect", expect)
        check_bytes("was", was)
        check_bytes("state", state)
        check_once(once)
        return await self._append_group(group)

    async def read(
        self,
        where: Where,
        *,
        after: int = 0,
        last: int | None = None,
        at: Sequence[int] | None = None,
        limit: int | None = None,
    ) -> RecordPage:
        """The records from `after` on, the `last` so many, or those `at` these places."""
        check_where(where)
        check_number("after", after)
        check_optional_number("last", last)
        check_optional_number("limit", limit)
        places = None
        if at is not None:
            places = tuple(at)
            check_places("at", places)
        check_selected_once(after=after, last=last, at=places)
        return await self._read_page(where, RecordSelection(after=after, last=last, at=places, limit=limit))

    async def replace(
        self,
        where: Where,
        bodies: Mapping[int, bytes],
        *,
        expect: int,
        was: bytes | None = None,
        state: bytes | None = None,
    ) -> StoredHead:
        """Change bodies in place, and the state if there is a new one. Their number stays."""
        check_where(where)
        replacement = Replacement(where=where, bodies=dict(bodies), expect=expect, was=was, state=state)
        check_bodies(list(replacement.bodies.values()))
        check_number("expect", expect)
        check_bytes("was", was)
        check_bytes("state", state)
        check_replaced_places(replacement.bodies.keys(), expect)
        return await self._replace_records(replacement)

    async def list(
        self, workspace: str, *, after: str = "", limit: int = 1000
    ) -> Sequence[ListedConversation]:
        """The conversations of a workspace after this name, in order of code points."""
        check_workspace(workspace)
        check_listed_name(after)
        check_number("limit", limit)
        return await self._list_page(workspace, after=after, limit=min(limit, MOST_LISTED))

    async def delete(self, where: Where) -> bool:
        """Delete a conversation wholly, with what is beside it. False if there was none."""
        check_where(where)
        return await self._delete(where)

    @abstractmethod
    async def _append_group(self, group: NewGroup) -> StoredHead: ...

    @abstractmethod
    async def _read_page(self, where: Where, selection: RecordSelection) -> RecordPage: ...

    @abstractmethod
    async def _replace_records(self, replacement: Replacement) -> StoredHead: ...

    @abstractmethod
    async def _list_page(self, workspace: str, *, after: str, limit: int) -> Sequence[ListedConversation]: ...

    @abstractmethod
    async def _delete(self, where: Where) -> bool: ...
