"""Connections: how one is made, who has it, and what its failures mean.

Every connection is set to commit to disk, and the setting is read back, before it is used. A connection is
reused only after a call that ended in order. A call that was cancelled or failed closes its connection, so
that no later call can read its answer. This module knows no tables.

A connection is made when a call needs one, in that call. So a call that gets none says why, and notices at
once when the server is back. psycopg_pool 3.3 makes connections in the background, with pauses that double.
Measured with a server that was away for 3.5 seconds: this pool answers 0.3 seconds after it is back,
psycopg_pool 3.3 seconds. After 8 seconds away psycopg_pool gives up, and says only that the time is up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
import msgspec
from psycopg import AsyncConnection, Error, ProgrammingError, pq
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import LockNotAvailable, QueryCanceled

from lamina.errors import BadInput, Broken, LaminaError, StoreError

PostgresConnection = AsyncConnection[tuple[Any, ...]]

MARGIN = 5.0
"""Seconds beyond the server's own limit after which a silent server counts as lost."""

CONNECTING = 15.0
"""Seconds after which one attempt to connect has failed."""


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
        self._idle: list[PostgresConnection] = []
        self._slots = anyio.Semaphore(limits.connections)

    @asynccontextmanager
    async def call(self, *, patient: bool = False) -> AsyncIterator[ConnectionCall]:
        """A connection for one call. `patient`: the call has no time limit."""
        limit = None if patient else self._limits.statement + MARGIN
        async with self._slots:
            connection = await self._take()
            call = ConnectionCall(connection)
            orderly = False
            try:
                with _translate_errors(call), anyio.fail_after(limit):
                    yield call
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

    async def _take(self) -> PostgresConnection:
        if self._idle:
            return self._idle.pop()
        return await self._connect_patiently()

    async def _connect(self) -> PostgresConnection:
        """A new connection that commits to disk; ConnectionLost says why there is none."""
        check_url(self._url)
        connection: PostgresConnection | None = None
        try:
            with anyio.fail_after(CONNECTING):
                connection = await AsyncConnection.connect(self._url, autocommit=True)
                await _apply_settings(connection, self._settings)
        except BaseException as error:
            if connection is not None:
                await connection.close()  # which waits for nothing
            if isinstance(error, Error | TimeoutError):
                raise ConnectionLost(_words_of(error)) from None
            raise
        return connection

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
        with anyio.CancelScope(shield=True):
            if orderly and await _roll_back(connection):
                self._idle.append(connection)
            else:
                await connection.close()


def check_url(url: str) -> None:
    """Raise BadInput for something that is not an address, without repeating it: it may hold a password."""
    try:
        conninfo_to_dict(url)
    except ProgrammingError:
        hint = "give it as postgresql://user@host/database"
        raise BadInput("not an address of a PostgreSQL server", place="url", hint=hint) from None


def _settings(schema: str, limits: ConnectionLimits) -> Mapping[str, str]:
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


async def _apply_settings(connection: PostgresConnection, settings: Mapping[str, str]) -> None:
    """Set everything, and read back what matters most."""
    await connection.execute(_SET_CONFIG, [list(settings), list(settings.values())])
    cursor = await connection.execute(_READ_SETTINGS)
    commits, encoding = await cursor.fetchone() or ("", "")
    if commits != "on":
        problem = f"the server keeps synchronous_commit at {commits!r}"
        raise StoreError(problem, hint="let this user set it: without it, acknowledged records can be lost")
    if encoding != "UTF8":
        hint = "create the database with ENCODING 'UTF8'"
        raise StoreError(f"the database is encoded in {encoding}", hint=hint)


@contextmanager
def _translate_errors(call: ConnectionCall) -> Iterator[None]:
    """Turn the errors of the driver into those of lamina."""
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
