"""The conversations of a wrapped client in a store, so that they go on after a restart.

A conversation without a name is stored under the hash of its first request and first answer, with all others
that begin alike; the chain of its digests tells them apart. Messages are not stored, since the client sends
them with each request; but digests of old ones and recalled texts are, and both quote messages. So when a
client has changed its history, the branch that it left keeps nothing that the new one has lost.

A store is async and a client may not be, so the store lives in a thread of its own, which is started when it
is first used and ends with the program.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from os import PathLike, fspath
from typing import Any, TypeVar

import anyio
import msgspec
from anyio.from_thread import BlockingPortal

from lamina.conversations.conversation import (
    Conversation,
    ConversationRecord,
    forget_lost_text,
    from_record,
    to_record,
)
from lamina.errors import BadInput, LaminaError
from lamina.settings import Settings
from lamina.stores.address import open_store, resolve_key
from lamina.stores.port import OwnName, Store, Where
from lamina.stores.retries import retry_conflicts

WORKSPACE = OwnName("lamina.wrap")
"""The workspace of wrapped clients, so that they do not appear among the sessions in the same store."""

ALIKE = 16
"""How many conversations that begin alike are stored. The one that was not used for longest goes first."""

TRIES = 5
"""How often a group is written again if another process was faster."""

T = TypeVar("T")


class ConversationStore:
    """A store for conversations, to be used from any thread. Every method waits until it is done."""

    def __init__(self, store: Store | str | PathLike[str], *, key: Any = None) -> None:
        if key is not None and not isinstance(store, str | PathLike):
            hint = "seal it yourself: Sealed(store, key); or give an address"
            raise BadInput("a store that is open takes no key", place="key", hint=hint)
        self._given_store = store
        self._key = key
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._problem: BaseException | None = None
        self._portal: BlockingPortal | None = None
        self._store: Store | None = None

    def load(self, names: list[str], dialect: str) -> list[Conversation]:
        """Return the conversations of a dialect under the first of these names that is used.

        One name may hold several: conversations that begin alike have the same name.
        """
        for name in names:
            state = self._call(partial(_read_state, where=Where(WORKSPACE, name)))
            if state:
                records = decode_records(state)
                return [from_record(record) for record in records if record.dialect == dialect]
        return []

    def save(self, name: str, conversation: Conversation) -> None:
        """Store a conversation. If that fails, it is logged: the answer has come, and is not lost.

        Other branches under this name lose what this one has lost: see `forget_lost_text`.
        """
        try:
            self._call(partial(_write_record, where=Where(WORKSPACE, name), conversation=conversation))
        except (LaminaError, OSError) as error:
            logging.getLogger("lamina").warning("the conversation could not be stored: %s", error)

    def forget_lost_text(self, name: str, living: Conversation) -> None:
        """Remove from the branches under another name what the living one has lost. A failure is logged."""
        try:
            self._call(partial(_forget_lost_text, where=Where(WORKSPACE, name), living=living))
        except (LaminaError, OSError) as error:
            logging.getLogger("lamina").warning("deleted text could not be removed: %s", error)

    def close(self) -> None:
        """Close the store. It is opened again if it is used after that."""
        with self._lock:
            self._stop()
            if self._thread is not None:
                self._thread.join()
            self._thread = None

    def _call(self, action: Callable[[Store], Awaitable[T]]) -> T:
        """Run an action on the store in its thread, which is started at the first call.

        If the store could not be opened, each call raises the reason again.
        """
        with self._lock:
            if self._thread is None:
                self._start()
        if self._problem is not None:
            raise self._problem
        assert self._portal is not None  # noqa: S101 - set before the thread is ready
        assert self._store is not None  # noqa: S101
        return self._portal.call(action, self._store)

    def _start(self) -> None:
        self._ready.clear()
        self._problem = None
        self._thread = threading.Thread(target=self._run, name="lamina store", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._problem is not None:
            self._thread = None
            return
        # The store's own threads would keep the program alive, so somebody waits for its end.
        threading.Thread(target=self._stop_at_end, name="lamina store end", daemon=True).start()

    def _run(self) -> None:
        try:
            anyio.run(self._serve)
        except BaseException as problem:  # noqa: BLE001 - whoever uses the store next raises it
            self._problem = problem
            self._ready.set()

    async def _serve(self) -> None:
        async with AsyncExitStack() as stack:
            store = self._given_store
            if isinstance(store, str | PathLike):
                key = await resolve_key(self._key, Settings(), os.environ)
                self._store = await stack.enter_async_context(open_store(fspath(store), key=key))
            else:
                self._store = store
            async with BlockingPortal() as portal:
                self._portal = portal
                self._ready.set()
                await portal.sleep_until_stopped()

    def _stop_at_end(self) -> None:
        threading.main_thread().join()
        self._stop()

    def _stop(self) -> None:
        portal = self._portal
        self._portal = None
        if portal is not None:
            portal.call(portal.stop)


async def _read_state(store: Store, *, where: Where) -> bytes:
    page = await store.read(where, limit=1)
    return page.head.state


async def _write_record(store: Store, *, where: Where, conversation: Conversation) -> None:
    """Write a conversation over its last record, before those that begin alike."""
    record = to_record(conversation)

    async def write() -> None:
        state = await _read_state(store, where=where)
        others = [other for other in decode_records(state) if other.uid != record.uid]
        kept_others = [forget_lost_text(other, conversation) for other in others[: ALIKE - 1]]
        await store.append(where, [], was=state, state=msgspec.json.encode([record, *kept_others]))

    await retry_conflicts(write, tries=TRIES)


async def _forget_lost_text(store: Store, *, where: Where, living: Conversation) -> None:
    async def write() -> None:
        state = await _read_state(store, where=where)
        records = decode_records(state)
        reduced = [forget_lost_text(record, living) for record in records]
        if reduced != records:
            await store.append(where, [], was=state, state=msgspec.json.encode(reduced))

    await retry_conflicts(write, tries=TRIES)


def decode_records(state: bytes) -> list[ConversationRecord]:
    """The conversations that are stored under one name. Raises BadInput if they cannot be read."""
    if not state:
        return []
    try:
        return msgspec.json.decode(state, type=list[ConversationRecord])
    except (msgspec.MsgspecError, RecursionError) as error:
        hint = "it was written by another release, or changed; delete it to begin anew"
        raise BadInput(f"a stored conversation cannot be read: {error}", place="store", hint=hint) from None
