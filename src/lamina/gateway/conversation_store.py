"""Every call of a store that the gateway makes. It holds nothing itself, so workers can share a store.

A conversation is kept as one state, the `ConversationSnapshot`, and records: what was lowered, or
everything, as `keep` says. A family lists the conversations that begin with the same words, so that a
request which carries no id can be found by its messages. A state is replaced only if it is still the one
that was read: of two workers with requests of one conversation, the second gets Conflict, reads again and
fits again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from time import monotonic, time
from typing import TypeVar

import msgspec

from lamina.conversations.recall_loop import RecallExchange
from lamina.conversations.request_digests import RequestDigests
from lamina.core.values import Digest, Ledger
from lamina.dialects.usage import Usage
from lamina.errors import BadInput, Conflict, Damaged, Reused, StoreError
from lamina.gateway.config import GatewaySettings
from lamina.settings import load_settings
from lamina.stores.address import open_chosen_store, open_store, resolve_key
from lamina.stores.port import OwnName, Store, Where

WORKSPACE = "gateway/"
FAMILIES = "gateway-families/"
ANSWERS = "gateway-answers/"
"""Begin the names of the workspaces that hold conversations, the lists of their names, and the conversation
of each answer that the upstream keeps."""

MEMBERS = 64
"""How many conversations of one family are looked at, the newest first."""

LINK = 16
"""Bytes of one link of a chain."""

READY_SECONDS = 2.0
"""How long the store may take to say that it is there. Who asks gives up after three, in the image."""

LAST_TRY = 0.5
"""Seconds for a call of the store by a request that has waited for others until its own time was over."""

_Value = TypeVar("_Value")

_deadline: ContextVar[float | None] = ContextVar("lamina_store_deadline", default=None)
"""When the request of this task has waited for the store for long enough, by the monotonic clock."""


def conversation_workspace(workspace: str) -> OwnName:
    """The workspace of a store that holds the gateway's conversations of a workspace."""
    return OwnName(f"{WORKSPACE}{workspace}")


def conversation_place(workspace: str, name: str) -> Where:
    """Where the gateway stores a conversation."""
    return Where(conversation_workspace(workspace), name)


def _family_place(workspace: str, family: str) -> Where:
    """Where the names of the conversations are stored that begin alike."""
    return Where(OwnName(f"{FAMILIES}{workspace}"), family)


def _answer_place(workspace: str, answer_id: str) -> Where:
    """Where the name of the conversation is stored that an answer belongs to."""
    return Where(OwnName(f"{ANSWERS}{workspace}"), answer_id)


class StoreGone(Exception):
    """The store cannot be reached, or does not answer in time."""


class ConversationSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is stored of a conversation between two requests.

    `group` is the client's own id, `parent` the conversation or group that this one came from. `system` and
    `chain` are digests of the last request. `usage` is what the upstream reported for it, None if the ledger
    has learnt from it already. `windows` has the window of each model that refused a request as too long.
    `exchanges` are the recalls that the gateway answered: the client's own history does not have them.
    """

    version: int = 1
    dialect: str = ""
    group: str = ""
    parent: str = ""
    upstream: str = ""
    model: str = ""
    system: tuple[Digest, ...] = ()
    chain: bytes = b""
    first_answer: int = 0
    ledger: Ledger = Ledger()
    usage: Usage | None = None
    windows: dict[str, int] = {}
    exchanges: tuple[RecallExchange, ...] = ()
    requests: int = 0
    tokens: int = 0
    updated: int = 0

    @property
    def was_cut(self) -> bool:
        """Whether the ledger has anything that changes a request."""
        return changes_requests(self.ledger)

    @property
    def has_ledger(self) -> bool:
        """Whether a request of this conversation was fitted and sent in another form than it came in."""
        return self.was_cut or self.ledger.mark is not None

    def digests(self) -> RequestDigests:
        """The digests of the last request, without its segments."""
        links = [self.chain[start : start + LINK] for start in range(0, len(self.chain), LINK)]
        return RequestDigests(
            system=self.system,
            digests=(Digest(""),) * len(links),
            chain=tuple(links),
            first_answer=self.first_answer,
        )


def changes_requests(ledger: Ledger) -> bool:
    """Whether a request with this ledger leaves in another form than it came in."""
    return any((ledger.lines, ledger.folds, ledger.repairs, ledger.cuts))


class GatewayConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation as it was read: `source` are the bytes of its state."""

    name: str
    state: ConversationSnapshot
    source: bytes


class GatewayStore:
    """Opens the store, and opens it again after it failed."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._patience = settings.deadlines.store
        self._stack: AsyncExitStack | None = None
        self._store: Store | None = None
        self._opening = asyncio.Lock()

    @contextmanager
    def wait_once(self) -> Iterator[None]:
        """Inside, all calls of this task together wait for a store that does not answer as long as one may.

        Otherwise a request that reads, reads again and saves would wait that long each time.
        """
        token = _deadline.set(monotonic() + self._patience)
        try:
            yield
        finally:
            _deadline.reset(token)

    def deadline(self) -> float:
        """When the request of this task gives the store up, by the monotonic clock."""
        deadline = _deadline.get()
        if deadline is None:
            return monotonic() + self._patience
        return deadline

    @property
    def keeps_nothing(self) -> bool:
        return self._settings.policy.keep == "nothing"

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

    async def load_family(self, workspace: str, family: str) -> list[str]:
        """The names of the conversations that begin alike, the newest first."""
        where = _family_place(workspace, family)
        page = await self._call(lambda store: store.read(where, last=MEMBERS))
        names = [record.body.decode() for record in page.records]
        return list(dict.fromkeys(reversed(names)))

    async def load(self, workspace: str, name: str) -> GatewayConversation | None:
        """A conversation, or None if it was deleted or never saved."""
        where = conversation_place(workspace, name)
        page = await self._call(lambda store: store.read(where, last=0))
        if not page.head.state:
            return None
        state = decode_state(page.head.state)
        return GatewayConversation(name=name, state=state, source=page.head.state)

    async def save(
        self,
        workspace: str,
        name: str,
        state: ConversationSnapshot,
        *,
        was: bytes,
        family: str,
        records: Sequence[bytes] = (),
    ) -> bytes:
        """Replace the state, which must still be `was`, and return the bytes of the new one.

        A new conversation is listed in its family first: a name without a state is harmless, and a state
        that nobody finds is not.
        """
        source = msgspec.json.encode(msgspec.structs.replace(state, updated=int(time())))
        where = conversation_place(workspace, name)
        if not was:
            listed = _family_place(workspace, family)
            await self._call(lambda store: store.append(listed, [name.encode()]))
        await self._call(lambda store: store.append(where, records, was=was, state=source))
        return source

    async def save_answer(self, workspace: str, answer_id: str, name: str) -> None:
        """Remember to which conversation an answer belongs."""
        where = _answer_place(workspace, answer_id)
        await self._call(lambda store: store.append(where, [name.encode()]))

    async def load_answer(self, workspace: str, answer_id: str) -> str:
        """The name of the conversation that an answer belongs to; "" if nothing was remembered."""
        where = _answer_place(workspace, answer_id)
        page = await self._call(lambda store: store.read(where, last=1))
        for record in page.records:
            return record.body.decode()
        return ""

    async def is_ready(self) -> bool:
        """Whether the store answers."""
        try:
            await self._call(
                lambda store: store.read(conversation_place("default", "ready"), last=0),
                seconds=READY_SECONDS,
            )
        except StoreGone:
            return False
        return True

    async def _call(
        self, operation: Callable[[Store], Awaitable[_Value]], *, seconds: float | None = None
    ) -> _Value:
        """Do something with the store. Raises StoreGone if it fails or takes too long.

        `seconds` is how long it may take at most; by default, until the deadline of the request.

        A call that takes too long goes on: a store waits for its writes, and a write that was cancelled half
        way would be worse than one that nobody waits for.
        """
        left = max(self.deadline() - monotonic(), LAST_TRY)
        if seconds is not None:
            left = min(left, seconds)
        task = asyncio.ensure_future(self._operate(operation))
        done, _ = await asyncio.wait({task}, timeout=left)
        if not done:
            task.add_done_callback(_ignore_outcome)
            raise StoreGone("the store does not answer")
        return task.result()

    async def _operate(self, operation: Callable[[Store], Awaitable[_Value]]) -> _Value:
        try:
            if self._store is None:
                await self.open()
            assert self._store is not None  # noqa: S101 - for the type checker
            return await operation(self._store)
        except (Conflict, Reused):
            raise
        except (StoreError, BadInput, OSError) as error:
            if not isinstance(error, BadInput):
                await self._retire()
            raise StoreGone(str(error)) from error

    async def _retire(self) -> None:
        """Close a store that failed: the next call opens it again."""
        try:
            await self.close()
        except (StoreError, OSError):
            return

    async def _open_configured(self) -> AbstractAsyncContextManager[Store]:
        """The store of the settings; without an address it is the user's own."""
        settings = self._settings
        if self.keeps_nothing:
            return open_store("memory:")
        user_settings = load_settings()
        key = await resolve_key(_key_path(settings.key_file), user_settings, os.environ)
        return open_chosen_store(settings.store, user_settings, key=key)


def _key_path(path: str) -> Path | None:
    if not path:
        return None
    return Path(path).expanduser()


def decode_state(source: bytes) -> ConversationSnapshot:
    """The state that a store holds. A store that holds something else is damaged."""
    try:
        return msgspec.json.decode(source, type=ConversationSnapshot)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Damaged(f"the state of a conversation cannot be read: {error}") from error


def _ignore_outcome(task: asyncio.Task[_Value]) -> None:
    if not task.cancelled():
        task.exception()
