"""Every way into a sealed store without its key, or with another one, in every kind of store."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from lamina import blocking
from lamina.context.memory import Memory
from lamina.errors import KeyNeeded, WrongKey
from lamina.sessions import Session
from lamina.settings import Settings
from lamina.stores import (
    MemoryStore,
    Store,
    Where,
    copy_conversations,
    open_files,
    open_postgres,
    open_sqlite,
    open_store,
)
from lamina.stores.address import check_plain, open_default_store
from lamina.stores.port import Within
from lamina.stores.sealed import Sealed, generate
from tests.servers.postgres import shared
from tests.sessions.talking import awaited

KEY = generate()
CHAT = Where("team", "chat")
SECRET = "xylophone-" + uuid.uuid4().hex
PLAIN = "harpsichord-" + uuid.uuid4().hex

Opening = Callable[[], AbstractAsyncContextManager[Store]]


def within(kind: str, folder: Path) -> Opening:
    """Open the store that is sealed, without a key."""
    if kind == "sqlite":
        return partial(open_sqlite, folder / "chats.db")
    if kind == "files":
        return partial(open_files, folder / "chats")
    if kind == "postgres":
        schema = f"doors_{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"
        return partial(open_postgres, shared().url, schema=schema)
    store = MemoryStore()

    @asynccontextmanager
    async def opened() -> AsyncIterator[Store]:
        yield store

    return opened


@pytest.fixture(params=["sqlite", "files", "postgres", "memory"])
def opening(request: pytest.FixtureRequest, tmp_path: Path) -> Opening:
    """A store in which a conversation is sealed."""
    opening = within(request.param, tmp_path)

    async def seal() -> None:
        async with (
            opening() as store,
            Session.open(Sealed(store, KEY, create=True), "chat", **SESSION_OPTIONS) as session,
        ):
            await session.ask(f"What is a {SECRET}?")
            await session.record("An instrument.")

    anyio.run(seal)
    return opening


SESSION_OPTIONS: dict[str, Any] = {"workspace": "team", "model": "gpt-5", "settings": Settings()}


async def _talk(store: Store) -> None:
    async with Session.open(store, "chat", **SESSION_OPTIONS) as session:
        await session.ask(PLAIN)


async def _talk_anew(store: Store) -> None:
    async with Session.open(store, "another chat", **SESSION_OPTIONS) as session:
        await session.ask(PLAIN)


async def _remember(store: Store) -> None:
    await Memory(store, Where("team", "memory")).remember("fact", PLAIN)


async def _copy_to(store: Store) -> None:
    source = MemoryStore()
    await source.append(CHAT, [PLAIN.encode()])
    await copy_conversations(source, store, "team")


WAYS: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "a session": _talk,
    "a new session": _talk_anew,
    "a fact": _remember,
    "a copy from it": lambda store: copy_conversations(store, MemoryStore(), "team"),
    "a copy to it": _copy_to,
    "a read": lambda store: store.read(CHAT),
    "a list": lambda store: store.list("team"),
    "an append": lambda store: store.append(CHAT, [PLAIN.encode()]),
    "a state": lambda store: store.append(CHAT, [], state=PLAIN.encode()),
    "a deletion": lambda store: store.delete(CHAT),
    "a look": check_plain,
}


def test_without_a_key_nothing_is_read_and_nothing_written(opening: Opening, tmp_path: Path) -> None:
    async def trial() -> None:
        async with opening() as store:
            for name, way in WAYS.items():
                with pytest.raises(KeyNeeded):
                    pytest.fail(f"{name}: {await way(store)!r}")
        async with opening() as store, Session.open(Sealed(store, KEY), "chat", **SESSION_OPTIONS) as session:
            texts = [message.text for message in session.dialogue()]
            assert texts == [f"What is a {SECRET}?", "An instrument."]

    anyio.run(trial)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert PLAIN.encode() not in path.read_bytes(), path
    with psycopg.connect(shared().url) as link:
        schema = within("postgres", tmp_path).keywords["schema"]  # type: ignore[attr-defined]
        if link.execute("SELECT FROM pg_namespace WHERE nspname = %s", [schema]).rowcount:
            link.execute(f'SET search_path TO "{schema}"')
            rows = link.execute("SELECT body FROM record UNION ALL SELECT state FROM conversation")
            assert not [body for (body,) in rows if PLAIN.encode() in body]


@awaited
async def test_another_key_is_wrong() -> None:
    store = MemoryStore()
    await Sealed(store, KEY, create=True).append(CHAT, [SECRET.encode()])
    for create in (False, True):
        for name, way in WAYS.items():
            if name == "a look":  # it needs no key
                continue
            with pytest.raises(WrongKey) as raised:
                pytest.fail(f"{name}: {await way(Sealed(store, generate(), create=create))!r}")
            assert not isinstance(raised.value, KeyNeeded)


ADDRESSES = ["{}/chats.db", "sqlite:{}/chats.db", "files:{}/chats"]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_leads_to_no_sealed_store_without_its_key(address: str, tmp_path: Path) -> None:
    address = address.format(tmp_path)

    async def opened(**arguments: Any) -> None:
        async with open_store(address, **arguments):
            pass

    async def session() -> None:
        async with Session.open(address, "chat", **SESSION_OPTIONS):
            pass

    async def by_default() -> None:
        async with open_default_store(Settings(store=address)):
            pass

    anyio.run(partial(opened, key=KEY))
    for way in (opened, session, by_default):
        with pytest.raises(KeyNeeded):
            anyio.run(way)
    with pytest.raises(KeyNeeded), blocking.Session.open(address, "chat", **SESSION_OPTIONS):
        pass
    for create in (True, False):
        with pytest.raises(WrongKey, match="does not open this store"):
            anyio.run(partial(opened, key=generate(), create=create))
    anyio.run(partial(opened, key=KEY, create=False))


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_with_a_key_leads_to_no_plain_store(address: str, tmp_path: Path) -> None:
    address = address.format(tmp_path)

    async def fill() -> None:
        async with open_store(address) as store:
            await store.append(CHAT, [b"plain"])

    async def opened(*, create: bool) -> None:
        async with open_store(address, key=KEY, create=create):
            pass

    anyio.run(fill)
    for create in (True, False):
        with pytest.raises(WrongKey):
            anyio.run(partial(opened, create=create))
    anyio.run(fill)


@awaited
async def test_a_wrapper_that_hands_names_on_lets_encryption_through() -> None:
    class Wrapper(MemoryStore):
        async def append(self, where: Where, records: Any, **arguments: Any) -> Any:
            assert isinstance(where.workspace, Within) or where.workspace.startswith("lamina.sealed")
            return await super().append(where, records, **arguments)

    store = Sealed(Wrapper(), KEY, create=True)
    await store.append(CHAT, [b"x"])
    assert (await store.read(CHAT)).head.count == 1
