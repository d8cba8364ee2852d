"""What a store is: four functions over opaque records, so that encryption can wrap any of them.

A conversation is a sequence of records, which only ever grows at its end, and one `state` beside them that
is replaced with each group: the ledger. A store knows neither segments nor ledgers, neither keys nor time; it
keeps bytes in order, all of a group or none of it.

A store is sealed or it is plain, never both. It is sealed from the moment on at which it holds the `HEADER`
that `lamina.stores.sealed` writes first. Then it takes and gives nothing to who does not come with the names
that `Sealed` makes (`Within`, and those that begin with `RESERVED`): KeyNeeded. And a store that holds plain
conversations takes no header: WrongKey. So a forgotten key is never an empty store, and no plain text ever
stands beside sealed records. A store needs no key for this, only these two names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

NAME_BYTES = 1024
"""The longest name, in UTF-8: a key that every database can index."""

RESERVED = "lamina.sealed"
"""Begins the names of workspaces that encryption keeps for itself."""

RESERVED_END = "lamina.sealee"
"""The first name behind all that begin with RESERVED."""


SEARCH = "lamina.search/"
"""Begins the workspaces of what is only there to find conversations: the search index of each workspace."""


class Within(str):
    """The name of a workspace within a sealed store: says that what is kept there was sealed before.

    Equal to the same text without that, which `str(name)` gives. A wrapper that hands calls on to a store
    has to hand it on as it is.
    """

    __slots__ = ()


class Where(msgspec.Struct, frozen=True, order=True):
    """Names one conversation. Nothing of one workspace can be seen from another."""

    workspace: str
    conversation: str


HEADER = Where(RESERVED, "header")
"""The conversation that makes a store a sealed one."""


def search_place(where: Where) -> Where | None:
    """Where the search index keeps what it knows of a conversation. It goes when the conversation goes."""
    workspace = f"{SEARCH}{where.workspace}"
    if isinstance(where.workspace, Within) or where.workspace.startswith((SEARCH, RESERVED)):
        return None
    if len(workspace.encode()) > NAME_BYTES:
        return None
    return Where(workspace, where.conversation)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One record: its place in the conversation, from 0, and its bytes."""

    seq: int
    body: bytes


class Once(msgspec.Struct, frozen=True, kw_only=True):
    """Makes an append safe to repeat: the same `key` with the same `digest` is kept once.

    A store that wraps another gives the digest of what it was given, not of what it passes on.
    """

    key: str
    digest: bytes


class StoredHead(msgspec.Struct, frozen=True, kw_only=True):
    """How far a conversation has come, and the state that was kept with its last group."""

    count: int = 0
    state: bytes = b""


class RecordPage(msgspec.Struct, frozen=True, kw_only=True):
    """Records in order, and the head of the moment they were read at: both from one snapshot."""

    records: tuple[Record, ...] = ()
    head: StoredHead = StoredHead()


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation in a list."""

    conversation: str
    count: int


class Store(Protocol):
    """The port. Everything is async; an implementation may be used by many tasks at once.

    `append` adds `records` as one group, with the new `state`, and answers with the new head, if the
    conversation has `expect` records (None: however many it has) and its state is still `was` (None: whatever
    it is; that of no conversation is empty). If not, it raises Conflict and writes nothing.
    A repeated `once` writes nothing either: it gives the count of the first time with the state of now, and
    Reused if its digest is another. It is looked at before `expect` and `was`.
    Without `state` the old one stays; a group may be empty.
    What it acknowledges survives the death of the process and a power cut, where the medium can.
    `read` gives the records from `after` on, the `last` so many, or those `at` these places; at most `limit`.
    Of `after`, `last` and `at` only one can be given: two are BadInput, as are negative numbers, and names
    that are empty or hold what a store could not give back. Places that are not there are left out.
    `list` names a workspace's conversations in order of code points, after one, at most `limit`.
    `delete` removes a conversation wholly, with its `search_place`; True if there was one.
    Each of them raises KeyNeeded where the store is sealed and the workspace is neither `Within` it nor
    `RESERVED`; an append to `HEADER` raises WrongKey where there are conversations that are not sealed.
    """

    async def append(
        self,
        where: Where,
        records: Sequence[bytes],
        *,
        expect: int | None = None,
        was: bytes | None = None,
        once: Once | None = None,
        state: bytes | None = None,
    ) -> StoredHead: ...

    async def read(
        self,
        where: Where,
        *,
        after: int = 0,
        last: int | None = None,
        at: Sequence[int] | None = None,
        limit: int | None = None,
    ) -> RecordPage: ...

    async def list(self, workspace: str, *, after: str = "", limit: int = 1000) -> Sequence[Listed]: ...

    async def delete(self, where: Where) -> bool: ...


@runtime_checkable
class Rekeyable(Protocol):
    """A store whose records can be sealed anew in place: `replace` changes bodies, never their number.

    `expect`, `was` and `state` are those of `append`; a conversation that is not there is a StoreError.
    """

    async def replace(
        self,
        where: Where,
        bodies: Mapping[int, bytes],
        *,
        expect: int,
        was: bytes | None = None,
        state: bytes | None = None,
    ) -> StoredHead: ...


@runtime_checkable
class Rescues(Protocol):
    """A store that gives what is whole of a conversation in which something is damaged."""

    async def rescue(self, where: Where) -> Sequence[Record]: ...


@runtime_checkable
class Closes(Protocol):
    """A store that holds something open."""

    async def close(self) -> None: ...
