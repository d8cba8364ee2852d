"""Connections: how one is made, who has it, and what its failures mean.

Every connection is told to commit to disk, and asked whether it will, before it is used. One goes back to
the others only after a call that ended in order: a call that was cancelled or failed takes its connection
with it, so that no later call can read its answer. This file knows nothing of tables.

Connections are made when they are needed and no task runs beside the calls, so that who asks for one that
cannot be had learns why, and learns at once that the server is back; psycopg's own pool, which makes them
in the background with growing pauses, tells only that the time is up.
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

Link = AsyncConnection[tuple[Any, ...]]

MARGIN = 5.0
"""Seconds beyond the server's own limit after which a server that says nothing counts as lost."""


CONNECTING = 15.0
"""Seconds after which one attempt to connect has failed."""


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many connections at most, and how many seconds at most.

    `statement`: for one statement. `lock`: for another writer of the same conversation. `reconnect`: for
    a server that is away, once it has been there.
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
    """One call on a connection. `committing` from the moment on at which its change may have been made."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.committing = False


class Links:
    """The connections of one store."""

    def __init__(self, url: str, schema: str, limits: ConnectionLimits) -> None:
        self._url = url
        self._settings = _settings(schema, limits)
        self._limits = limits
        self._idle: list[Link] = []
        self._slots = anyio.Semaphore(limits.connections)

    @asynccontextmanager
    async def call(self, *, patient: bool = False) -> AsyncIterator[ConnectionCall]:
        """A connection for one call. `patient`: it may take as long as it takes."""
        limit = None if patient else self._limits.statement + MARGIN
        async with self._slots:
            link = self._idle.pop() if self._idle else await self._again()
            call, orderly = ConnectionCall(link), False
            try:
                with _explained(call), anyio.fail_after(limit):
                    yield call
                orderly = True
            except LaminaError:  # a refusal of our own, after which nothing is under way
                orderly = True
                raise
            finally:
                await self._back(link, orderly=orderly)

    async def first(self) -> None:
        """Makes one connection, without patience: an address may be wrong."""
        self._idle.append(await self._connected())

    async def _connected(self) -> Link:
        """A new connection that commits to disk, or the reason why there is none."""
        checked_url(self._url)
        link: Link | None = None
        try:
            with anyio.fail_after(CONNECTING):
                link = await AsyncConnection.connect(self._url, autocommit=True)
                await _set(link, self._settings)
        except BaseException as error:
            if link is not None:
                await link.close()  # which waits for nothing
            if isinstance(error, Error | TimeoutError):
                raise ConnectionLost(_words(error)) from None
            raise
        return link

    async def _again(self) -> Link:
        """A new connection to a server that may be starting again."""
        until, pause = anyio.current_time() + self._limits.reconnect, 0.02
        while True:
            try:
                return await self._connected()
            except ConnectionLost:
                if anyio.current_time() + pause > until:
                    raise
            await anyio.sleep(pause)
            pause = min(2 * pause, 0.5)

    async def _back(self, link: Link, *, orderly: bool) -> None:
        """Keeps it for the next call, with nothing begun on it, or closes it."""
        with anyio.CancelScope(shield=True):
            if orderly and await _undone(link):
                self._idle.append(link)
            else:
                await link.close()

    async def drop_idle(self) -> None:
        """Forgets the connections that nobody uses: where one was lost, the others are too."""
        while self._idle:
            await self._idle.pop().close()

    async def close(self) -> None:
        """Waits for the calls that are under way."""
        with anyio.CancelScope(shield=True):
            for _ in range(self._limits.connections):
                await self._slots.acquire()
            await self.drop_idle()


def checked_url(url: str) -> None:
    """Refuses what is no address, without repeating it: there may be a password in it."""
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


_SET = "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS given (name, value)"
_ASK = "SELECT current_setting('synchronous_commit'), current_setting('server_encoding')"


async def _set(link: Link, settings: Mapping[str, str]) -> None:
    """Sets everything, and asks what came of it."""
    await link.execute(_SET, [list(settings), list(settings.values())])
    commits, encoding = await (await link.execute(_ASK)).fetchone() or ("", "")
    if commits != "on":
        problem = f"the server keeps synchronous_commit at {commits!r}"
        raise StoreError(problem, hint="let this user set it: without it, what was kept can be lost")
    if encoding != "UTF8":
        hint = "create the database with ENCODING 'UTF8'"
        raise StoreError(f"the database is encoded in {encoding}", hint=hint)


@contextmanager
def _explained(call: ConnectionCall) -> Iterator[None]:
    """What the driver raises, in words of lamina."""
    try:
        yield
    except TimeoutError:
        raise ConnectionLost("the server does not answer", committing=call.committing) from None
    except (LockNotAvailable, QueryCanceled) as error:
        hint = "nothing was written; try again"
        raise StoreError(f"it took too long: {_words(error)}", hint=hint) from error
    except Error as error:
        if call.link.closed or error.diag.severity_nonlocalized in {"FATAL", "PANIC"}:
            raise ConnectionLost(_words(error), committing=call.committing) from error
        if (error.sqlstate or "")[:2] in {"53", "58", "XX"}:  # no room, no memory, a failed disk, a fault
            raise Broken(f"nothing was written: {_words(error)}", hint="see to the server") from error
        raise StoreError(f"the server refused: {_words(error)}") from error


def _words(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


async def _undone(link: Link) -> bool:
    """Whether nothing is begun any more on this connection."""
    try:
        with anyio.fail_after(MARGIN):
            if link.pgconn.transaction_status == pq.TransactionStatus.INTRANS:
                await link.execute("ROLLBACK")
    except (Error, TimeoutError):
        return False
    return link.pgconn.transaction_status == pq.TransactionStatus.IDLE
