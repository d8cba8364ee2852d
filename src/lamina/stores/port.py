"""What a store is: four functions over opaque records, so that encryption can wrap any of them.

A conversation is a sequence of records, which only ever grows at its end, and one `state`, the ledger, which
each group of records replaces. A store knows no segments and no ledgers, no keys and no time. It stores bytes
in order, all of a group or none of it.

A store is sealed or it is plain, never both. It is sealed as soon as it holds the `HEADER`, which
`lamina.stores.sealed` writes first. From then on every call whose workspace is not a name that `Sealed` uses
(`Within`, or a name that begins with `RESERVED`) raises KeyNeeded. And a store that holds plain conversations
accepts no header: WrongKey. So a forgotten key never looks like an empty store, and plain text never gets
between sealed records. A store needs no key for this, only these two kinds of names.

Names of workspaces that begin with one of `OWN_PREFIXES` are lamina's own: seals, the
conversations that its doors record. A caller may not choose one, since tenants often choose the names of
their workspaces. A plain string of this kind raises BadInput in every store; lamina's own code marks its
names with `OwnName`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

NAME_BYTES = 1024
"""The longest name, in UTF-8: a key that every database can index."""

SEALED_NAME_BYTES = 1400
"""The longest name of a conversation in a sealed store: one of NAME_BYTES, encrypted and in base64."""

RESERVED = "lamina.sealed"
"""Begins the names of workspaces that only encryption uses."""

RESERVED_END = "lamina.sealee"
"""The first name after all names that begin with RESERVED."""

RECORDED = "lamina.conversations/"
"""Begins the names of the workspaces that hold what the doors record of another workspace."""

DEFAULT_WORKSPACE = "default"
"""The workspace of a gateway without access tokens, and of whoever names none, in the record."""


OWN_PREFIXES = ("lamina.",)
"""Begin the names of workspaces that no caller may choose."""


class OwnName(str):
    """The name of a workspace that lamina itself uses: its type says that no caller chose it.

    It is equal to the same plain string. A wrapper that passes calls on to a store has to pass on the name as
    it is. Never make one of a name that somebody else may choose as a whole: put it behind a prefix.
    """

    __slots__ = ()


class Within(str):
    """The name of a workspace within a sealed store: its type says that the records are sealed already.

    It is equal to the same plain string, which `str(name)` gives. A wrapper that passes calls on to a store
    has to pass on the name as it is.
    """

    __slots__ = ()


class Where(msgspec.Struct, frozen=True, order=True):
    """Names one conversation. Nothing of one workspace can be seen from another."""

    workspace: str
    conversation: str


HEADER = Where(OwnName(RESERVED), "header")
"""The conversation that makes a store a sealed one."""


def places_beside(where: Where) -> tuple[Where, ...]:
    """What is stored beside a conversation, and is deleted with it: the record of its requests.

    Nothing for a name that is lamina's own. A workspace without a name is recorded under that of the gateway.
    """
    if isinstance(where.workspace, Within) or where.workspace.startswith(OWN_PREFIXES):
        return ()
    workspace = f"{RECORDED}{where.workspace or DEFAULT_WORKSPACE}"
    if len(workspace.encode()) > NAME_BYTES:  # no store can keep it
        return ()
    return (Where(OwnName(workspace), where.conversation),)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One record: its place in the conversation, from 0, and its bytes."""

    seq: int
    body: bytes


class Once(msgspec.Struct, frozen=True, kw_only=True):
    """Makes an append safe to repeat: a group with the same `key` and `digest` is stored once.

    A store that wraps another one passes on the digest that it received, also if it changes the records.
    """

    key: str
    digest: bytes


class StoredHead(msgspec.Struct, frozen=True, kw_only=True):
    """The number of records of a conversation, and the state that its last group has set."""

    count: int = 0
    state: bytes = b""

    @property
    def is_empty(self) -> bool:
        """Whether there is no such conversation. One without records may still have a state."""
        return not self.count and not self.state


class RecordPage(msgspec.Struct, frozen=True, kw_only=True):
    """Records in order, and the head of the same moment: both come from one snapshot."""

    records: tuple[Record, ...] = ()
    head: StoredHead = StoredHead()


class ListedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation in a list."""

    conversation: str
    count: int


class Store(Protocol):
    """The port. Everything is async, and many tasks may use one store at once.

    `append` adds `records` as one group, sets the new `state`, and returns the new head. It does so only if
    the conversation has `expect` records (None: any number) and its state is still `was` (None: any state).
    Otherwise it raises Conflict and writes nothing. A new conversation has an empty state before.
    A repeated `once` writes nothing either: `append` returns the count of the first time with the state of
    now, or raises Reused if the digest differs. `once` is checked before `expect` and `was`.
    Without `state` the old state stays. A group may be empty.
    What `append` has acknowledged survives the death of the process, and a power cut if the medium does.

    `read` returns the records from `after` on, the `last` so many, or those `at` these places; at most
    `limit`. Only one of `after`, `last` and `at` may be given: two raise BadInput. So do negative numbers,
    and names that are empty or that some store could not store. Places that do not exist are left out.

    Each of them raises BadInput for the name of a workspace that is lamina's own and not an `OwnName`.

    `list` returns the conversations of a workspace, in order of code points, after one, at most `limit`.

    `delete` removes a conversation wholly, with its `places_beside`, and returns True if there was one.

    Each of them raises KeyNeeded if the store is sealed and the workspace is neither a `Within` nor begins
    with `RESERVED`. An append to `HEADER` raises WrongKey if there are conversations that are not sealed.
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

    async def list(
        self, workspace: str, *, after: str = "", limit: int = 1000
    ) -> Sequence[ListedConversation]: ...

    async def delete(self, where: Where) -> bool: ...


@runtime_checkable
class Rekeyable(Protocol):
    """A store whose records can be sealed anew in place: `replace` changes bodies, never their number.

    `expect`, `was` and `state` are those of `append`. A conversation that does not exist raises StoreError.
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
class ManyDeletable(Protocol):
    """A store that deletes several conversations as one: all of them or none.

    In SQLite that rewrites the file once. `delete_many` is `delete` of each place, and returns how many there
    were.
    """

    async def delete_many(self, places: Sequence[Where]) -> int: ...


@runtime_checkable
class Measurable(Protocol):
    """A store that knows the size of its conversations without reading them.

    `sizes` returns the bytes of the records and the state of each conversation of a workspace.
    """

    async def sizes(self, workspace: str) -> Mapping[str, int]: ...


@runtime_checkable
class StatesReadable(Protocol):
    """A store that reads the states of all conversations of a workspace at once.

    They are for a list: nothing says that a state belongs to its records. `read` checks that.
    """

    async def states(self, workspace: str) -> Mapping[str, bytes]: ...


@runtime_checkable
class BodiesReadable(Protocol):
    """A store that reads the records of several conversations at once.

    They are for a search: nothing is checked. `read` checks what is shown.
    """

    async def bodies(self, workspace: str, names: Sequence[str]) -> Mapping[str, Sequence[bytes]]: ...


@runtime_checkable
class Rescuable(Protocol):
    """A store that can return the intact records of a damaged conversation."""

    async def rescue(self, where: Where) -> Sequence[Record]: ...
