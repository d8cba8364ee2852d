"""Connections: how one is made, who has it, and what its failures mean.

Every connection is set to commit to disk, and the setting is read back, before it is used. A connection is
reused only after a call that ended in order. A call that was cancelled or failed closes its connection, so
that no later call can read its answer. This module knows no tables.

A connection is made when a call needs one, in that call. So a call that gets none says why, and notices at
once when the server is back. psycopg_pool 3.3 makes connections in the background, with pauses that double.
Measured with a server that was away for 3.5 seconds: this pool answers 0.3 seconds after it is back,
psycopg_pool 3.3 seconds. After 8 seconds away psycopg_pool gives up, and says only that the time is up.

A pooler such as PgBouncer in transaction mode gives each transaction another connection of the server. There
settings of a session are lost, and would reach other clients; prepared statements are not found. So behind a
pooler every call is one transaction that begins with its own settings, and nothing is prepared. A pooler is
known by the number of its process: the one that it announces is not that of the server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, LiteralString

import anyio
import msgspec
from psycopg import AsyncConnection, Error, ProgrammingError, pq, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import LockNotAvailable, QueryCanceled

from lamina.errors import BadInput, Broken, LaminaError, StoreError

MARGIN = 5.0
"""Seconds beyond the server's own limit after which a silent server counts as lost."""

CONNECTING = 15.0
"""Seconds after which one attempt to connect has failed."""

PostgresConnection = AsyncConnection[tuple[Any, ...]]
Row = tuple[Any, ...]
Statement = LiteralString | sql.SQL | sql.Composed
Arguments = Mapping[str, Any] | Sequence[Any]


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The number of connections, and how many seconds to wait.

    `statement`: for one statement. `lock`: for another writer of the same conversation. `reconnect`: for
    a server that has gone away.
    """

    connections: int = 8
    statement: float = 30.0
    lock: float = 10.0
    reconnect: float = 15.0


class ConnectionLost(Exception):
    """The connection is gone, and with it the answer. `committing`: the change may have been made."""

    def __init__(self, reason: str, *, committing: bool = False) -> None:
        self.reason = reason
        self.committing = committing
        super().__init__(reason)


class ConnectionCall:
    """One call on a connection. `committing` is true as soon as its change may have been made."""

    def __init__(self, connection: PostgresConnection) -> None:
        self.connection = connection
        self.committing = False


class ConnectionPool:
    """The connections of one store."""

    def __init__(self, url: str, schema: str, limits: ConnectionLimits) -> None:
        self._url = url
        self._settings = _settings(schema, limits)
        self._limits = limits
        self._begin = _begin_with(self._settings)
        self._has_pooler = False
        self._idle: list[PostgresConnection] = []
        # Every call waits for its connection, so nobody waits longer if a free slot is taken at once.
        self._slots = anyio.Semaphore(limits.connections, fast_acquire=True)

    @asynccontextmanager
    async def call(self, *, fresh: bool = False) -> AsyncIterator[ConnectionCall]:
        """A connection for one call; a `fresh` one was not used before.

        It goes back to the pool only after an orderly end. After anything else it is closed.
        """
        limit = self._limits.statement + MARGIN
        async with self._slots:
            connection = await self._take(fresh=fresh)
            call = ConnectionCall(connection)
            orderly = False
            try:
                with _translate_errors(call), anyio.fail_after(limit):
                    if self._has_pooler:
                        await connection.execute(self._begin)
                    yield call
                    if self._has_pooler:
                        await _commit_if_begun(connection)
                orderly = True
            except LaminaError:  # an error of our own, after which nothing is under way
                orderly = True
                raise
            finally:
                await self._give_back(connection, orderly=orderly)

    async def connect_once(self) -> None:
        """Make the first connection, without waiting for a server: the address may be wrong."""
        self._idle.append(await self._connect())

    async def drop_idle(self) -> None:
        """Close the connections that are not in use: if one was lost, the others are lost too."""
        while self._idle:
            await self._idle.pop().close()

    async def close(self) -> None:
        """Wait for the calls that are under way, and close all connections."""
        with anyio.CancelScope(shield=True):
            for _ in range(self._limits.connections):
                await self._slots.acquire()
            await self.drop_idle()

    async def _take(self, *, fresh: bool) -> PostgresConnection:
        if self._idle and not fresh:
            return self._idle.pop()
        return await self._connect_patiently()

    async def _connect(self) -> PostgresConnection:
        """A new connection that commits to disk; ConnectionLost says why there is none."""
        _check_url(self._url)
        connection: PostgresConnection | None = None
        try:
            with anyio.fail_after(CONNECTING):
                connection = await AsyncConnection.connect(self._url, autocommit=True)
                await self._prepare(connection)
        except BaseException as error:
            if connection is not None:
                await connection.close()  # which waits for nothing
            if isinstance(error, Error | TimeoutError):
                raise ConnectionLost(_words_of(error)) from None
            raise
        return connection

    async def _prepare(self, connection: PostgresConnection) -> None:
        """Set what a call needs, for the whole connection or, behind a pooler, for each transaction."""
        self._has_pooler = await _is_behind_pooler(connection)
        if not self._has_pooler:
            await connection.execute(_SET_CONFIG, [list(self._settings), list(self._settings.values())])
            await _check_settings(connection)
            return
        connection.prepare_threshold = None
        await connection.execute(self._begin)
        await _check_settings(connection)
        await connection.execute("ROLLBACK")

    async def _connect_patiently(self) -> PostgresConnection:
        """A new connection to a server that may be restarting."""
        until = anyio.current_time() + self._limits.reconnect
        pause = 0.02
        while True:
            try:
                return await self._connect()
            except ConnectionLost:
                if anyio.current_time() + pause > until:
                    raise
            await anyio.sleep(pause)
            pause = min(2 * pause, 0.5)

    async def _give_back(self, connection: PostgresConnection, *, orderly: bool) -> None:
        """Keep a connection for the next call, with no transaction begun on it, or close it."""
        if orderly and connection.pgconn.transaction_status == pq.TransactionStatus.IDLE:
            self._idle.append(connection)  # most calls end so, and need no scope that waits
            return
        with anyio.CancelScope(shield=True):
            if orderly and await _roll_back(connection):
                self._idle.append(connection)
            else:
                await connection.close()


def _check_url(url: str) -> None:
    """Raise BadInput for something that is not an address, without repeating it: it may hold a password."""
    try:
        conninfo_to_dict(url)
    except ProgrammingError:
        hint = "give it as postgresql://user@host/database"
        raise BadInput("not an address of a PostgreSQL server", place="url", hint=hint) from None


def _settings(schema: str, limits: ConnectionLimits) -> Mapping[str, str]:
    """What a connection asks of the server: to commit to disk, and to give up rather than to wait."""
    quoted = schema.replace('"', '""')
    return {
        "synchronous_commit": "on",
        "search_path": f'"{quoted}"',
        "application_name": f"lamina {schema}",
        "statement_timeout": f"{int(limits.statement * 1000)}ms",
        "lock_timeout": f"{int(limits.lock * 1000)}ms",
        "idle_in_transaction_session_timeout": f"{int(limits.statement * 1000)}ms",
        "default_transaction_isolation": "read committed",
    }


_SET_CONFIG = (
    "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS given (name, value)"
)
_READ_SETTINGS = "SELECT current_setting('synchronous_commit'), current_setting('server_encoding')"


def _begin_with(settings: Mapping[str, str]) -> sql.Composed:
    """The beginning of a transaction that has these settings, in one message to the server."""
    steps: list[sql.Composable] = [sql.SQL("BEGIN ISOLATION LEVEL READ COMMITTED")]
    for name, value in settings.items():
        arguments = sql.SQL(", ").join([sql.Literal(name), sql.Literal(value)])
        steps.append(sql.SQL("SELECT set_config({}, true)").format(arguments))
    return sql.SQL("; ").join(steps)


async def _is_behind_pooler(connection: PostgresConnection) -> bool:
    """Whether another process answers than the one we connected to, so that settings may be lost."""
    process = await select_value(connection, "SELECT pg_backend_pid()")
    return bool(process != connection.info.backend_pid)


async def _commit_if_begun(connection: PostgresConnection) -> None:
    """End the transaction of a call that only read, or made tables; a write has committed already."""
    if connection.pgconn.transaction_status == pq.TransactionStatus.INTRANS:
        await connection.execute("COMMIT")


async def _check_settings(connection: PostgresConnection) -> None:
    """Read back what matters most."""
    commits, encoding = await select_row(connection, _READ_SETTINGS) or ("", "")
    if commits != "on":
        problem = f"the server keeps synchronous_commit at {commits!r}"
        raise StoreError(problem, hint="let this user set it: without it, acknowledged records can be lost")
    if encoding != "UTF8":
        hint = "create the database with ENCODING 'UTF8'"
        raise StoreError(f"the database is encoded in {encoding}", hint=hint)


@contextmanager
def _translate_errors(call: ConnectionCall) -> Iterator[None]:
    """Turn the errors of the driver into those of lamina.

    Only a lost connection leaves it open whether something was written. After any other error nothing was.
    """
    try:
        yield
    except TimeoutError:
        raise ConnectionLost("the server does not answer", committing=call.committing) from None
    except (LockNotAvailable, QueryCanceled) as error:
        hint = "nothing was written; try again"
        raise StoreError(f"it took too long: {_words_of(error)}", hint=hint) from error
    except Error as error:
        if call.connection.closed or error.diag.severity_nonlocalized in {"FATAL", "PANIC"}:
            raise ConnectionLost(_words_of(error), committing=call.committing) from error
        if (error.sqlstate or "")[:2] in {"53", "58", "XX"}:  # no room, no memory, a failed disk, a fault
            raise Broken(f"nothing was written: {_words_of(error)}", hint="check the server") from error
        raise StoreError(f"the server refused: {_words_of(error)}") from error


def _words_of(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


async def _roll_back(connection: PostgresConnection) -> bool:
    """Roll back what was begun on a connection; False if that fails."""
    try:
        with anyio.fail_after(MARGIN):
            if connection.pgconn.transaction_status == pq.TransactionStatus.INTRANS:
                await connection.execute("ROLLBACK")
    except (Error, TimeoutError):
        return False
    return connection.pgconn.transaction_status == pq.TransactionStatus.IDLE


async def select_row(
    connection: PostgresConnection, query: Statement, arguments: Arguments = ()
) -> Row | None:
    """The only row of a query; None if there is none."""
    cursor = await connection.cursor(binary=True).execute(query, arguments)
    return await cursor.fetchone()


async def select_value(connection: PostgresConnection, query: Statement, arguments: Arguments = ()) -> Any:
    """The first value of the only row; None if there is no row."""
    row = await select_row(connection, query, arguments)
    if row is None:
        return None
    return row[0]


async def select_flag(connection: PostgresConnection, query: Statement, arguments: Arguments = ()) -> bool:
    """Whether it is so; False if there is no row."""
    return bool(await select_value(connection, query, arguments))
