"""Every call of a store that the gateway makes. It holds nothing itself, so workers can share a store.

A conversation is kept as one state, the `ConversationState`, and records: what was lowered, or
everything, as `keep` says. A state is replaced only if it is still the one that was read: of two workers with
requests of one conversation, the second gets Conflict, reads again and fits again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from lamina.conversations.addresses import Group, find_alike
from lamina.conversations.recall_loop import RecallExchange
from lamina.conversations.request_digests import RequestDigests
from lamina.conversations.retention import prune
from lamina.conversations.shelf import (
    forget_left,
    load_continued,
    save_answer,
    save_conversation,
)
from lamina.conversations.store import (
    WORKSPACE,
    ConversationState,
    KeptConversation,
    conversation_place,
    find_conversation,
)
from lamina.errors import BadInput, Conflict, KeyNeeded, Reused, StoreError
from lamina.relay import limits
from lamina.relay.config import GatewaySettings
from lamina.settings import load_settings
from lamina.stores.address import KEY_VARIABLE, open_chosen_store, open_store, resolve_key
from lamina.stores.port import OwnName, Store, StoredHead, Where

READY_SECONDS = 2.0
"""How long the store may take to say that it is there. Who asks gives up after three, in the image."""

LAST_TRY = 0.5
"""Seconds for a call of the store by a request whose time is over, or while the store is known to hang."""

READY = Where(OwnName("lamina.ready"), "ready")
"""Where `is_ready` writes."""

_Value = TypeVar("_Value")


class _Patience:
    """How many seconds a request still waits for the store.

    Only calls of the store take from it. A request that waits for its turn, or is being fitted, would have
    nothing left under load, and a store that answers would count as gone.
    """

    def __init__(self) -> None:
        self.seconds = limits.STORE_SECONDS


_patience: ContextVar[_Patience | None] = ContextVar("lamina_store_patience", default=None)
"""That of the request of this task."""


class StoreGone(Exception):
    """The store cannot be reached, or does not answer in time. `late` is the call that goes on then."""

    late: asyncio.Future[Any] | None = None


class GatewayStore:
    """Opens the store, and opens it again after it failed."""

    def __init__(
        self,
        settings: GatewaySettings,
        open_given: Callable[[], AbstractAsyncContextManager[Store]] | None = None,
    ) -> None:
        self._settings = settings
        self._open_given = open_given
        self._stack: AsyncExitStack | None = None
        self._store: Store | None = None
        self._opening = asyncio.Lock()
        self._hangs = False
        """Whether a call took too long, and none has succeeded since."""

    @contextmanager
    def wait_once(self) -> Iterator[None]:
        """Inside, all calls of this task together wait for a store that does not answer as long as one may.

        Otherwise a request that reads, reads again and saves would wait that long each time.
        """
        token = _patience.set(_Patience())
        try:
            yield
        finally:
            _patience.reset(token)

    def deadline(self) -> float:
        """When the request of this task gives the store up, by the monotonic clock."""
        patience = _patience.get() or _Patience()
        return monotonic() + patience.seconds

    @property
    def keeps_nothing(self) -> bool:
        return self._settings.policy.keep == "nothing"

    @property
    def is_open(self) -> bool:
        return self._store is not None

    async def open(self) -> None:
        """Open the store. Raises what is wrong with its address or its key."""
        async with self._opening:
            if self._store is not None:
                return
            stack = AsyncExitStack()
            self._store = await stack.enter_async_context(await self._open_configured())
            self._stack = stack

    async def close(self) -> None:
        stack = self._stack
        self._stack = None
        self._store = None
        if stack is not None:
            await stack.aclose()

    async def find_alike(self, group: Group, digests: RequestDigests) -> list[KeptConversation]:
        """The conversations that a request may continue or fork, the newest last."""
        return await self.call(lambda store: find_alike(store, group, digests))

    async def load(self, workspace: str, name: str) -> KeptConversation | None:
        """A conversation, or None if it was deleted or never saved."""
        stored = await self.call(lambda store: find_conversation(store, workspace, name))
        if stored is None or not stored.source:
            return None
        return stored

    async def load_head(self, workspace: str, name: str) -> StoredHead:
        """The state of a conversation as it is stored, and how many records it has, also without a state."""
        where = conversation_place(workspace, name)
        page = await self.call(lambda store: store.read(where, last=0))
        return page.head

    async def save(
        self,
        workspace: str,
        name: str,
        state: ConversationState,
        *,
        was: bytes,
        expect: int,
        listed: dict[str, str] | None,
        records: Sequence[bytes] = (),
    ) -> bytes:
        """Replace the state, which must still be `was`, and return the bytes of the new one."""
        return await self.call(
            lambda store: save_conversation(
                store, workspace, name, state, listed=listed, records=records, expect=expect, was=was
            )
        )

    async def append(
        self, workspace: str, name: str, records: Sequence[bytes], *, expect: int, was: bytes | None = None
    ) -> None:
        """Add records to a conversation that has `expect` of them. Its state stays as it is.

        With `was`, its state must be that: another process may have deleted it and begun it anew, with as
        many records.
        """
        where = conversation_place(workspace, name)
        await self.call(lambda store: store.append(where, records, expect=expect, was=was))

    async def forget_left(self, workspace: str, name: str, living: RequestDigests) -> None:
        """Remove from a conversation that its client has left what the living one has lost."""
        await self.call(lambda store: forget_left(store, workspace, name, living))

    async def load_records(self, workspace: str, name: str, *, after: int) -> list[bytes]:
        """The records of a conversation from a number on."""
        where = conversation_place(workspace, name)
        page = await self.call(lambda store: store.read(where, after=after))
        return [record.body for record in page.records]

    async def save_answer(self, workspace: str, name: str, answer_id: str) -> None:
        """Remember to which conversation an answer belongs."""
        await self.call(lambda store: save_answer(store, workspace, answer_id, name))

    async def load_continued(self, workspace: str, answer_id: str) -> RecallExchange | None:
        """What was recalled before the answer that a client saw under this id, if anything was."""
        return await self.call(lambda store: load_continued(store, workspace, answer_id))

    async def prune(self) -> int:
        """Delete conversations beyond the limits of the settings. Returns how many were deleted."""
        settings = self._settings
        if self.keeps_nothing or (settings.keep_days is None and settings.keep_bytes is None):
            return 0
        workspaces = {WORKSPACE, *(token.workspace for token in settings.tokens)}
        deleted = 0
        for workspace in sorted(workspaces):
            pruned = await self._operate(
                lambda store, workspace=workspace: prune(  # type: ignore[misc]
                    store, workspace, days=settings.keep_days, size=settings.keep_bytes
                )
            )
            deleted += len(pruned.names)
        return deleted

    async def is_ready(self) -> bool:
        """Whether the store takes what is written. One that is full can still be read."""
        try:
            await self.call(lambda store: store.append(READY, [], state=b"ready"), seconds=READY_SECONDS)
        except StoreGone:
            return False
        return True

    async def call(
        self, operation: Callable[[Store], Awaitable[_Value]], *, seconds: float | None = None
    ) -> _Value:
        """Do something with the store. Raises StoreGone if it fails or takes too long.

        `seconds` is how long it may take at most; by default, what the request has left. While the
        store is known to hang, nobody waits for long: a request asks it several times, and so do those that
        hold a lock which the request needs.

        A call that takes too long goes on: a store waits for its writes, and a write that was cancelled half
        way would be worse than one that nobody waits for.
        """
        patience = _patience.get() or _Patience()
        left = max(patience.seconds, LAST_TRY)
        if self._hangs:
            left = LAST_TRY
        if seconds is not None:
            left = min(left, seconds)
        task = asyncio.ensure_future(self._operate(operation))
        task.add_done_callback(_ignore_outcome)  # nobody hears of it if this takes too long, or is cancelled
        began = monotonic()
        done, _ = await asyncio.wait({task}, timeout=left)
        patience.seconds -= monotonic() - began
        if not done:
            self._hangs = True
            gone = StoreGone("the store does not answer")
            gone.late = task
            raise gone
        return task.result()

    async def _operate(self, operation: Callable[[Store], Awaitable[_Value]]) -> _Value:
        try:
            if self._store is None:
                await self.open()
            assert self._store is not None  # noqa: S101 - for the type checker
            value = await operation(self._store)
        except (Conflict, Reused):
            self._hangs = False
            raise
        except BadInput as error:  # an address or a key that is wrong; the store itself did not fail
            raise StoreGone(str(error)) from error
        except KeyNeeded as error:
            hint = f"give its key: key_file in the settings, --key-file FILE, or {KEY_VARIABLE}"
            raise StoreGone(f"the store is sealed; {hint}") from error
        except (StoreError, OSError) as error:
            with suppress(StoreError, OSError):
                await self.close()  # the next call opens it again
            raise StoreGone(str(error)) from error
        self._hangs = False
        return value

    async def _open_configured(self) -> AbstractAsyncContextManager[Store]:
        """The store of the settings; without an address it is the user's own."""
        settings = self._settings
        if self._open_given is not None:
            return self._open_given()
        if self.keeps_nothing:
            return open_store("memory:")
        user_settings = load_settings()
        key = await resolve_key(_key_path(settings.key_file), user_settings, os.environ)
        return open_chosen_store(settings.store, user_settings, key=key)


def _key_path(path: str) -> Path | None:
    if not path:
        return None
    return Path(path).expanduser()


def _ignore_outcome(task: asyncio.Task[_Value]) -> None:
    if not task.cancelled():
        task.exception()
