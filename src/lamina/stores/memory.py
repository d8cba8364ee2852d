"""The store in memory: what every other store must do, without a disk.

The rules of the port that need no storage stand here too, for all stores: which names can be kept, what a
group may hold, which places a read means. It knows nothing of files, and forgets everything with the process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anyio.lowlevel import checkpoint

from lamina.errors import BadInput, Conflict, KeyNeeded, Reused, StoreError, WrongKey
from lamina.stores.port import (
    HEADER,
    NAME_BYTES,
    RESERVED,
    Listed,
    Once,
    Record,
    RecordPage,
    StoredHead,
    Where,
    Within,
    search_place,
)


class MemoryStore:
    """Conversations in a dict. Every change happens between two checkpoints, so wholly or not at all."""

    def __init__(self) -> None:
        self._kept: dict[Where, _Conversation] = {}

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
        await checkpoint()
        self._check_key(where.workspace)
        if where == HEADER and HEADER not in self._kept:
            check_unmixed(plain=any(not is_sealed_name(other.workspace) for other in self._kept))
        kept = self._kept.get(where, _Conversation())
        if once is not None and once.key in kept.once:
            return kept.repeated(where, once)
        check_head(where, kept.head(), expect=expect, was=was)
        kept.bodies += records
        kept.state = kept.state if state is None else state
        head = kept.head()
        if once is not None:
            kept.once[once.key] = (once.digest, head.count)
        self._kept[where] = kept
        return head

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
        await checkpoint()
        self._check_key(where.workspace)
        kept = self._kept.get(where, _Conversation())
        meant = places(len(kept.bodies), after=after, last=last, at=at, limit=limit)
        return RecordPage(
            records=tuple(Record(seq=seq, body=kept.bodies[seq]) for seq in meant), head=kept.head()
        )

    async def list(self, workspace: str, *, after: str = "", limit: int = 1000) -> Sequence[Listed]:
        check_workspace(workspace)
        check_asked(limit=limit)
        await checkpoint()
        self._check_key(workspace)
        own = {where.conversation: kept for where, kept in self._kept.items() if where.workspace == workspace}
        names = sorted(name for name in own if name > after)[:limit]
        return [Listed(conversation=name, count=len(own[name].bodies)) for name in names]

    async def delete(self, where: Where) -> bool:
        check_where(where)
        await checkpoint()
        self._check_key(where.workspace)
        found = self._kept.pop(where, None)
        index = search_place(where)
        if found is not None and index is not None:
            self._kept.pop(index, None)
        return found is not None

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
        await checkpoint()
        self._check_key(where.workspace)
        kept = self._kept.get(where)
        check_there(where, None if kept is None else kept.head(), expect=expect, was=was)
        if kept is None:
            return StoredHead()
        for seq, body in bodies.items():
            kept.bodies[seq] = body
        kept.state = kept.state if state is None else state
        return kept.head()

    async def close(self) -> None:
        """Nothing is held open; what was kept stays until the store itself is gone."""

    def _check_key(self, workspace: str) -> None:
        check_key(workspace, sealed=HEADER in self._kept)


class _Conversation:
    """One conversation. An idempotency key keeps the digest, and the count that it was answered with."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.state = b""
        self.once: dict[str, tuple[bytes, int]] = {}

    def head(self) -> StoredHead:
        return StoredHead(count=len(self.bodies), state=self.state)

    def repeated(self, where: Where, once: Once) -> StoredHead:
        digest, count = self.once[once.key]
        check_digest(where, once, digest)
        return StoredHead(count=count, state=self.state)


def places(
    count: int,
    *,
    after: int = 0,
    last: int | None = None,
    at: Sequence[int] | None = None,
    limit: int | None = None,
) -> Sequence[int]:
    """The places that a read means, in order, in a conversation of so many records."""
    if at is not None:
        return sorted({seq for seq in at if seq < count})[:limit]
    start = min(after, count) if last is None else max(count - last, 0)
    return range(start, count)[:limit]


def check_asked(
    *, after: int = 0, last: int | None = None, at: Sequence[int] | None = None, limit: int | None = None
) -> None:
    """Refuses a read that means nothing."""
    if (after != 0) + (last is not None) + (at is not None) > 1:
        raise BadInput("after, last and at exclude each other", place="read", hint="give one of them")
    for name, number in (("after", after), ("last", last), ("limit", limit)):
        if number is not None and number < 0:
            raise BadInput(f"{number!r}", place=name, hint="give 0 or more")
    if at is not None and any(seq < 0 for seq in at):
        raise BadInput(f"{min(at)!r}", place="at", hint="places count from 0")


def check_where(where: Where) -> None:
    """Refuses a name that some store could not keep as it is."""
    check_workspace(where.workspace)
    if not where.conversation:
        raise BadInput("it is empty", place="conversation", hint="give it a name")
    _check_name(where.conversation, "conversation")


def check_workspace(workspace: str) -> None:
    _check_name(workspace, "workspace")


def _check_name(name: str, place: str) -> None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise BadInput(f"{name!r}", place=place, hint="a name cannot hold a lone surrogate") from None
    if "\0" in name:
        raise BadInput(f"{name!r}", place=place, hint="a name cannot hold a NUL character")
    if size > NAME_BYTES:
        raise BadInput(f"{size:,} bytes", place=place, hint=f"a name has at most {NAME_BYTES:,} bytes")


def is_sealed_name(workspace: str) -> bool:
    """Whether only encryption makes such a name."""
    return isinstance(workspace, Within) or workspace.startswith(RESERVED)


def check_key(workspace: str, *, sealed: bool) -> None:
    """Refuses a plain name in a sealed store."""
    if sealed and not is_sealed_name(workspace):
        raise KeyNeeded


def check_unmixed(*, plain: bool) -> None:
    """Refuses the header of a seal where there are plain conversations."""
    if plain:
        hint = (
            "leave the key away to go on as before; to encrypt what is there, copy it into a new store: "
            "lamina sessions copy"
        )
        raise WrongKey("this store holds conversations that are not sealed", hint=hint)


def check_group(
    where: Where,
    records: Sequence[bytes],
    *,
    expect: int | None,
    was: bytes | None,
    once: Once | None,
    state: bytes | None,
) -> None:
    """Refuses a group that could not be kept whole."""
    check_where(where)
    _check_bytes(records, was=was, state=state)
    if expect is not None and expect < 0:
        raise BadInput(f"{expect!r}", place="expect", hint="give the number of records that you read")
    if once is not None:
        _check_name(once.key, "once.key")
        _check_bytes((once.digest,))


def check_bodies(
    where: Where, bodies: Mapping[int, bytes], *, expect: int, was: bytes | None, state: bytes | None
) -> None:
    """Refuses a replacement that could not be made whole."""
    check_where(where)
    _check_bytes(list(bodies.values()), was=was, state=state)
    for seq in bodies:
        if not 0 <= seq < expect:
            raise BadInput(f"no place {seq!r}", place="bodies", hint=f"there are {expect:,} records, from 0")


def _check_bytes(records: Sequence[bytes], **named: bytes | None) -> None:
    for at, body in enumerate(records):
        if not isinstance(body, bytes):
            raise BadInput(f"a {type(body).__name__}", place=f"record {at}", hint="a record is bytes")
    for name, given in named.items():
        if not isinstance(given, bytes | None):
            raise BadInput(f"a {type(given).__name__}", place=name, hint="give bytes")


def check_head(where: Where, found: StoredHead, *, expect: int | None, was: bytes | None) -> None:
    """Raises Conflict if another writer was first."""
    if expect is not None and expect != found.count:
        raise Conflict(conversation=where.conversation, expected=expect, found=found.count)
    if was is not None and was != found.state:
        problem, count = "its state has changed, the number of its records has not", found.count
        raise Conflict(conversation=where.conversation, expected=count, found=count, problem=problem)


def check_there(where: Where, found: StoredHead | None, *, expect: int, was: bytes | None) -> None:
    """As `check_head`, where the conversation has to exist."""
    check_head(where, found or StoredHead(), expect=expect, was=was)
    if found is None:
        raise StoreError("there is none of this name", conversation=where.conversation)


def check_digest(where: Where, once: Once, digest: bytes) -> None:
    """Raises Reused if a key comes again with another body."""
    if digest != once.digest:
        problem = f"the idempotency key {once.key!r} was used for something else"
        raise Reused(problem, conversation=where.conversation, hint="give each group a key of its own")
