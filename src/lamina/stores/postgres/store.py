"""The PostgreSQL store: many processes on many machines, one database.

    async with open_postgres("postgresql://lamina@db/chats") as store:
        head = await store.append(Where("team", "support-42"), [b"..."], expect=0)

What it acknowledges is on the server's disk: `synchronous_commit` is set and read back on every connection.
A connection that is lost while a group is committed leaves open whether it was: with `once` the store asks
again by itself and the key decides, without it the call raises Broken and says so. Either way the store
goes on, with a new connection. A call that was cancelled closes its connection.

It needs the extra "postgres", asyncio under anyio, and a session of its own: no pooler that shares one
between transactions. A deleted conversation is gone from every answer, and its bytes from the disk when the
server has vacuumed; who must know them unreadable encrypts, and deletes the key.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from lamina.errors import BadInput, Broken, StoreError
from lamina.stores.memory import check_asked, check_bodies, check_group, check_where, check_workspace
from lamina.stores.port import Listed, Once, Record, RecordPage, StoredHead, Where
from lamina.stores.postgres import schema as schemas
from lamina.stores.postgres import tables
from lamina.stores.postgres.links import ConnectionCall, ConnectionLimits, ConnectionLost, Links

T = TypeVar("T")


@asynccontextmanager
async def open_postgres(
    url: str, *, schema: str = "lamina", connections: int = 8
) -> AsyncIterator[PostgresStore]:
    """The store in this database, whose tables are made if they are not there, until the block ends."""
    store = await PostgresStore.open(url, schema=schema, limits=ConnectionLimits(connections=connections))
    try:
        yield store
    finally:
        await store.close()


class PostgresStore:
    """Conversations in one schema of a database. Made by `open`, and to be closed."""

    def __init__(self, links: Links, schema: str, version: int) -> None:
        self._links = links
        self._schema = schema
        self._version = version
        self._process = os.getpid()
        self._closed = False

    @staticmethod
    async def open(
        url: str, *, schema: str = "lamina", limits: ConnectionLimits | None = None
    ) -> PostgresStore:
        """Refuses a server that cannot be reached now; later it is waited for."""
        _check_schema(schema)
        links = Links(url, schema, limits or ConnectionLimits())
        try:
            await links.first()
            async with links.call() as call:
                version = await schemas.begin(call.link, schema)
        except ConnectionLost as lost:
            raise Broken(
                f"no connection: {lost.reason}", hint="is the server running, the address right?"
            ) from None
        except BaseException:
            await links.close()
            raise
        return PostgresStore(links, schema, version)

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
        group = tuple(records)
        work = partial(
            tables.append, where=where, records=group, expect=expect, was=was, once=once, state=state
        )
        hint = _SAME_KEY if once is not None else _NO_KEY
        await self._bring_up()
        return await self._done(work, where.conversation, repeatable=once is not None, hint=hint)

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
        work = partial(tables.read, where=where, after=after, last=last, at=at, limit=limit)
        return await self._done(partial(self._as_they_are, work), where.conversation)

    async def list(self, workspace: str, *, after: str = "", limit: int = 1000) -> Sequence[Listed]:
        check_workspace(workspace)
        check_asked(limit=limit)
        _check_after(after)
        work = partial(tables.listed, workspace=workspace, after=after, limit=limit)
        return await self._done(partial(self._as_they_are, work))

    async def delete(self, where: Where) -> bool:
        check_where(where)
        await self._bring_up()
        return await self._done(
            partial(tables.delete, where=where), where.conversation, hint="delete it again"
        )

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
        work = partial(tables.replace, where=where, bodies=new, expect=expect, was=was, state=state)
        await self._bring_up()
        return await self._done(work, where.conversation, hint="read it again to see")

    async def rescue(self, where: Where) -> Sequence[Record]:
        """The records that are what was written, whatever became of the others and of the head."""
        check_where(where)
        await self._bring_up()
        found = await self._done(partial(tables.whole_records, where=where), where.conversation)
        return [Record(seq=seq, body=body) for seq, body in found]

    async def close(self) -> None:
        """Waits for what is under way. Closing again does nothing."""
        if not self._closed:
            self._closed = True
            await self._links.close()

    async def _bring_up(self) -> None:
        """Gives tables of an older release what they miss, before the first write."""
        if self._version == schemas.NEWEST:
            return

        async def work(call: ConnectionCall) -> None:
            await schemas.bring_up(call.link, self._schema)

        await self._done(work, repeatable=True, patient=True)
        self._version = schemas.NEWEST

    async def _as_they_are(self, work: Callable[..., Awaitable[T]], call: ConnectionCall) -> T:
        """Reads tables of any release; another process may have brought them up meanwhile."""
        if self._version != schemas.NEWEST:
            self._version = await schemas.begin(call.link, self._schema)
        return await work(call, with_sums=self._version >= schemas.WITH_SUMS)

    async def _done(
        self,
        work: Callable[[ConnectionCall], Awaitable[T]],
        conversation: str = "",
        *,
        repeatable: bool = False,
        hint: str = "",
        patient: bool = False,
    ) -> T:
        """The work; once more where a connection was lost and that cannot do it twice."""
        self._check()
        perhaps = False
        for again in (True, False):
            try:
                async with self._links.call(patient=patient) as call:
                    return await work(call)
            except ConnectionLost as lost:
                perhaps = perhaps or lost.committing
                await self._links.drop_idle()
                if not again or (perhaps and not repeatable):
                    raise _broken(lost, conversation, perhaps=perhaps, hint=hint) from None
        raise AssertionError  # the second time returns or raises

    def _check(self) -> None:
        if self._closed:
            raise StoreError("the store is closed", hint="open it again")
        if os.getpid() != self._process:
            raise StoreError("the store was opened before this process was forked", hint="open it here")


_SAME_KEY = "append it again with the same key when the server answers: it is kept once"
_NO_KEY = "read the conversation to see; an append with a key (`once`) is safe to repeat"


def _broken(lost: ConnectionLost, conversation: str, *, perhaps: bool, hint: str) -> Broken:
    if perhaps:
        problem = f"the connection was lost during a commit, which was made or not ({lost.reason})"
        return Broken(problem, conversation=conversation, hint=hint)
    problem = f"no connection, and nothing was written ({lost.reason})"
    return Broken(problem, conversation=conversation, hint="try again when the server answers")


def _check_after(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{name!r}", place="after", hint="no name holds a lone surrogate") from None


def _check_schema(schema: str) -> None:
    if not schema or "\0" in schema or len(schema.encode(errors="replace")) > 63 or schema.startswith("pg_"):
        hint = "give a name of at most 63 bytes that does not begin with pg_"
        raise BadInput(f"{schema!r}", place="schema", hint=hint)
