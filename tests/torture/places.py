"""Where a store is, from its address: what `make torture` and the tests hand to the trials.

    sqlite:FOLDER   files:FOLDER   postgres:   postgresql://...   memory:

Everything happens in new folders below FOLDER, and in schemas of its own in a database, one for each folder
that a trial makes: what is already there is not touched, and they are removed in the end. `postgres:` alone
starts a server, which is then killed, too.
"""

from __future__ import annotations

import hashlib
import importlib.util
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from pathlib import Path
from secrets import token_hex

import msgspec

from lamina.errors import BadInput
from lamina.stores import MemoryStore, Store, WalResetRisk, open_files, open_sqlite
from tests.servers.postgres import Server, postgres
from tests.torture.telling import OpenStore

FILE = "chats.db"
SCHEMA = "lamina_torture"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A store to be tortured, and what can be done to it.

    `local`: it keeps everything in the folder that it is opened with. `lasting`: it outlives its process.
    `shimmed` opens it so that it writes through `os` or apsw, where a failure can be put in between.
    """

    name: str
    open: OpenStore
    within: str | None = None
    local: bool = True
    lasting: bool = True
    shimmed: OpenStore | None = None
    server: Server | None = None


@contextmanager
def place_at(url: str) -> Iterator[Place]:
    """The place with this address, until the context ends."""
    kind, colon, rest = url.partition(":")
    if not colon or kind not in _PLACES:
        hint = "give sqlite:FOLDER, files:FOLDER, postgres:, postgresql://... or memory:"
        raise BadInput(f"{url!r}", place="store", hint=hint)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", WalResetRisk
        )  # said once by who asks for the store, not by each child
        with _PLACES[kind](url, rest) as place:
            yield place


@contextmanager
def _sqlite(_: str, folder: str) -> Iterator[Place]:
    has_apsw = importlib.util.find_spec("apsw") is not None
    shimmed: OpenStore | None = _open_shimmed_sqlite if has_apsw else None
    yield Place(name="sqlite", open=_open_sqlite, within=_made(folder), shimmed=shimmed)


@asynccontextmanager
async def _open_sqlite(folder: str) -> AsyncIterator[Store]:
    async with open_sqlite(Path(folder) / FILE) as store:
        yield store


@asynccontextmanager
async def _open_shimmed_sqlite(folder: str) -> AsyncIterator[Store]:
    from tests.torture.apsw_connection import using_apsw  # noqa: PLC0415 - not everybody has apsw

    with using_apsw():
        async with open_sqlite(Path(folder) / FILE) as store:
            yield store


@contextmanager
def _files(_: str, folder: str) -> Iterator[Place]:
    yield Place(name="files", open=_open_files, within=_made(folder), shimmed=_open_files)


@asynccontextmanager
async def _open_files(folder: str) -> AsyncIterator[Store]:
    async with open_files(folder) as store:
        yield store


@contextmanager
def _memory(_: str, __: str) -> Iterator[Place]:
    kept: dict[str, MemoryStore] = {}

    @asynccontextmanager
    async def opened(folder: str) -> AsyncIterator[Store]:
        yield kept.setdefault(folder, MemoryStore())

    yield Place(name="memory", open=opened, local=False, lasting=False)


@contextmanager
def _postgres(url: str, rest: str) -> Iterator[Place]:
    prefix = f"{SCHEMA}_{token_hex(4)}_"
    if rest:
        try:
            yield Place(name="postgres", open=_postgres_at(url, prefix), local=False)
        finally:
            _drop_schemas(url, prefix)
        return
    with postgres() as server:
        yield Place(name="postgres", open=_postgres_at(server.url, prefix), local=False, server=server)


def _postgres_at(url: str, prefix: str) -> OpenStore:
    """A schema for each folder: a store is sealed or plain, and trials need both."""

    def opened(folder: str) -> AbstractAsyncContextManager[Store]:
        from lamina.stores.postgres import open_postgres  # noqa: PLC0415 - psycopg is an extra

        return open_postgres(url, schema=prefix + hashlib.sha256(folder.encode()).hexdigest()[:16])

    return opened


def _drop_schemas(url: str, prefix: str) -> None:
    import psycopg  # noqa: PLC0415 - an extra
    from psycopg import sql  # noqa: PLC0415

    with psycopg.connect(url, autocommit=True) as link:
        found = link.execute("SELECT nspname FROM pg_namespace WHERE starts_with(nspname, %s)", [prefix])
        for (name,) in found.fetchall():
            link.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))


def _made(folder: str) -> str | None:
    if not folder:
        return None
    Path(folder).mkdir(parents=True, exist_ok=True)
    return str(Path(folder).resolve())


_PLACES: dict[str, Callable[[str, str], AbstractContextManager[Place]]] = {
    "sqlite": _sqlite,
    "files": _files,
    "memory": _memory,
    "postgres": _postgres,
    "postgresql": _postgres,
}
