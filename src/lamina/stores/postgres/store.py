"""The PostgreSQL store: many processes on many machines, one database.

    async with open_postgres("postgresql://lamina@db/chats") as store:
        head = await store.append(Where("team", "support-42"), [b"..."], expect=0)

A group that it has acknowledged is on the server's disk: `synchronous_commit` is set and read back on every
connection. If a connection is lost during a commit, nobody knows whether the group was committed. With `once`
the store then tries again by itself, and the key decides; without it the call raises Broken and says so.
Either way the store goes on, with a new connection. A cancelled call closes its connection.

It needs the extra "postgres", and asyncio under anyio. A deleted conversation is gone from every answer at
once, and from the disk when the server has vacuumed. If its bytes must become unreadable at once, encrypt it
and delete the key.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from anyio import to_thread
from psycopg import sql

from lamina.errors import BadInput, Broken, StoreError, advise_on_version
from lamina.stores.checked import CheckedStore, NewGroup, RecordSelection, Replacement
from lamina.stores.checks import check_open, check_where, check_workspace
from lamina.stores.port import ListedConversation, Record, RecordPage, StoredHead, Where
from lamina.stores.postgres import reads, writes
from lamina.stores.postgres.connections import (
    ConnectionCall,
    ConnectionLimits,
    ConnectionLost,
    ConnectionPool,
    PostgresConnection,
    select_flag,
    select_value,
)

T = TypeVar("T")

VERSION = 3

SCHEMA = Path(__file__).with_name("schema.sql")
"""The statements that make the tables. `lamina`, with one row, says which version they have."""


@asynccontextmanager
async def open_postgres(
    url: str, *, schema: str = "lamina", connections: int = 8
) -> AsyncIterator[PostgresStore]:
    """Open the store in this database until the block ends. Its tables are made if there are none."""
    store = await PostgresStore.open(url, schema=schema, limits=ConnectionLimits(connections=connections))
    try:
        yield store
    finally:
        await store.close()


class PostgresStore(CheckedStore):
    """Conversations in one schema of a database. Made by `open`, and to be closed."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._process = os.getpid()
        self._closed = False

    @staticmethod
    async def open(
        url: str, *, schema: str = "lamina", limits: ConnectionLimits | None = None
    ) -> PostgresStore:
        """Raise Broken if the server cannot be reached now. Later calls wait for a server that is away."""
        _check_schema(schema)
        pool = ConnectionPool(url, schema, limits or ConnectionLimits())
        try:
            await pool.connect_once()
            async with pool.call() as call:
                await make_tables(call.connection, schema)
        except ConnectionLost as lost:
            raise Broken(
                f"no connection: {lost.reason}", hint="is the server running, the address right?"
            ) from None
        except BaseException:
            await pool.close()
            raise
        return PostgresStore(pool)

    async def _append_group(self, group: NewGroup) -> StoredHead:
        append = partial(writes.append_group, group=group)
        conversation = group.where.conversation
        if group.once is None:
            return await self._run(append, conversation, hint=_WITHOUT_KEY)
        return await self._run(append, conversation, repeatable=True, hint=_WITH_KEY)

    async def _read_page(self, where: Where, selection: RecordSelection) -> RecordPage:
        read = partial(reads.read_page, where=where, selection=selection)
        return await self._run(read, where.conversation)

    async def _list_page(self, workspace: str, *, after: str, limit: int) -> Sequence[ListedConversation]:
        list_page = partial(reads.list_conversations, workspace=workspace, after=after, limit=limit)
        return await self._run(list_page)

    async def states(self, workspace: str) -> Mapping[str, bytes]:
        check_workspace(workspace)
        return await self._run(partial(reads.read_states, workspace=workspace))

    async def bodies(self, workspace: str, names: Sequence[str]) -> Mapping[str, Sequence[bytes]]:
        check_workspace(workspace)
        return await self._run(partial(reads.read_bodies, workspace=workspace, names=list(names)))

    async def _delete(self, where: Where) -> bool:
        delete = partial(writes.delete_conversation, where=where)
        return await self._run(delete, where.conversation, hint="delete it again")

    async def _replace_records(self, replacement: Replacement) -> StoredHead:
        replace = partial(writes.replace_records, replacement=replacement)
        return await self._run(replace, replacement.where.conversation, hint="read it again to see")

    async def rescue(self, where: Where) -> Sequence[Record]:
        """The records that are what was written, whatever became of the others and of the head."""
        check_where(where)
        return await self._run(partial(reads.rescue_records, where=where), where.conversation)

    async def close(self) -> None:
        """Wait for the calls that are under way, and close all connections. Closing again does nothing."""
        if not self._closed:
            self._closed = True
            await self._pool.close()

    async def _run(
        self,
        operation: Callable[[ConnectionCall], Awaitable[T]],
        conversation: str = "",
        *,
        repeatable: bool = False,
        hint: str = "",
    ) -> T:
        """Run an operation. If its connection is lost, run it once more, unless that could do it twice.

        The second time it has a connection of its own: other calls may give back more that are lost. A commit
        that was interrupted may have been made. With a key the server tells, so the operation is repeatable.
        """
        check_open(closed=self._closed, process=self._process)
        maybe_committed = False
        for is_last in (False, True):
            try:
                async with self._pool.call(fresh=is_last) as call:
                    return await operation(call)
            except ConnectionLost as lost:
                maybe_committed = maybe_committed or lost.committing
                await self._pool.drop_idle()
                if is_last or (maybe_committed and not repeatable):
                    raise _broken_error(
                        lost, conversation, maybe_committed=maybe_committed, hint=hint
                    ) from None
        raise AssertionError  # the second time returns or raises


_WITH_KEY = "append it again with the same key when the server answers: it is stored only once"
_WITHOUT_KEY = "read the conversation to see; an append with a key (`once`) is safe to repeat"


def _broken_error(lost: ConnectionLost, conversation: str, *, maybe_committed: bool, hint: str) -> Broken:
    """The error for a lost connection. During a commit nobody knows whether it was made."""
    if maybe_committed:
        problem = f"the connection was lost during a commit, which was made or not ({lost.reason})"
        return Broken(problem, conversation=conversation, hint=hint)
    problem = f"no connection, and nothing was written ({lost.reason})"
    return Broken(problem, conversation=conversation, hint="try again when the server answers")


def _check_schema(schema: str) -> None:
    """Raise BadInput for a name that PostgreSQL would cut off or keeps for itself."""
    size = len(schema.encode(errors="replace"))
    if not 1 <= size <= 63 or "\0" in schema or schema.startswith("pg_"):
        hint = "give a name of at most 63 bytes that does not begin with pg_"
        raise BadInput(f"{schema!r}", place="schema", hint=hint)


async def make_tables(connection: PostgresConnection, schema: str) -> None:
    """Make the tables if there are none. Raises StoreError for tables of another version."""
    if await _has_tables(connection):
        return
    async with connection.transaction():
        await connection.execute(_LOCK_MAKING)
        # This looks into pg_namespace first. Else the server would not notice here that another process has
        # made the schema while this one waited for the lock.
        await _make_schema(connection, schema)
        if await _has_tables(connection):
            return
        await connection.execute(await to_thread.run_sync(SCHEMA.read_bytes))


_LOCK_MAKING = (
    "SELECT pg_advisory_xact_lock(hashtextextended('lamina ' || current_setting('search_path'), 0))"
)


async def _has_tables(connection: PostgresConnection) -> bool:
    """Whether there are tables; raises StoreError if another release made them."""
    if not await select_flag(connection, "SELECT to_regclass('lamina') IS NOT NULL"):
        return False
    version = await select_value(connection, "SELECT version FROM lamina")
    if version != VERSION:
        raise StoreError(f"the tables have version {version}", hint=advise_on_version(version, VERSION))
    return True


async def _make_schema(connection: PostgresConnection, schema: str) -> None:
    cursor = await connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", [schema])
    if cursor.rowcount == 0:  # a user who may not make schemas can use one that an administrator made
        await connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
