"""The conversations of a wrapped client in a store, so that they go on after a restart.

They are stored as every door does (`lamina.conversations.store`). Unless everything is kept, messages are not
stored, since the client sends them with each request; but those that were lowered are, and so are digests of
old ones and recalled texts. So when a client has changed its history, the branch that it left keeps nothing
that the new one has lost.

A store is async and a client may not be, so the store lives in a thread of its own. It is started when the
store is first used, and ends when nobody has the client any more, or with the program.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from functools import partial
from os import PathLike, fspath
from threading import Lock
from typing import Any, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary, finalize

import anyio
import msgspec

from lamina.conversations.addresses import Group, enlist_named, find_alike, list_named
from lamina.conversations.recall_loop import RecallExchange
from lamina.conversations.record_writer import RecordWriter
from lamina.conversations.request_digests import NO_DIGESTS, RequestDigests
from lamina.conversations.shelf import (
    TRIES,
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
    find_title,
)
from lamina.dialects.usage import NOTHING_REPORTED, Usage
from lamina.errors import BadInput, Conflict, LaminaError
from lamina.fitting.policy import Keep
from lamina.fitting.request import RequestMemo
from lamina.settings import Settings
from lamina.stores.address import open_store, resolve_key
from lamina.stores.paging import retry_conflicts
from lamina.stores.port import Store
from lamina.stores.store_thread import StoreThread

T = TypeVar("T")


class ConversationStore:
    """A store for conversations, to be used from any thread. Every method waits until it is done."""

    def __init__(
        self, store: Store | str | PathLike[str], *, key: Any = None, keep: Keep = "lowered"
    ) -> None:
        if key is not None and not isinstance(store, str | PathLike):
            hint = "seal it yourself: Sealed(store, key); or give an address"
            raise BadInput("a store that is open takes no key", place="key", hint=hint)
        self.keep = keep
        self._given_store = store
        self._key = key
        self._lock = threading.Lock()
        self._thread: StoreThread | None = None
        self._saving: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    def load(self, client: str, dialect: str, digests: RequestDigests) -> list[Conversation]:
        """The conversations of a client that a request may continue or fork, the newest last."""
        group = Group(WORKSPACE, client, dialect)
        return self._take(self._call(partial(find_alike, group=group, digests=digests)))

    def load_named(self, client: str, dialect: str) -> list[Conversation]:
        """The conversations to which a client gave a name, as far as they have this dialect."""
        stored = self._call(partial(list_named, group=_named_group(client)))
        conversations = self._take(each for each in stored if each.state.dialect == dialect)
        return sorted(conversations, key=lambda conversation: conversation.state.requests)

    def save(
        self,
        conversation: Conversation,
        *,
        find_latest: Callable[[], Conversation | None] | None = None,
    ) -> None:
        """Store a conversation. If that fails, it is logged: the answer has come, and is not lost.

        Calls of one conversation are stored one after the other; `find_latest` says what is to be stored when
        it is this one's turn.
        """
        save = partial(self._save, conversation=conversation, find_latest=find_latest)
        try:
            self._call(save)
        except (LaminaError, OSError) as error:
            logging.getLogger("lamina").warning("the conversation could not be stored: %s", error)

    def forget_lost_text(self, name: str, living: RequestDigests) -> None:
        """Remove from a branch that the client has left what the living one has lost. A failure is logged."""
        try:
            self._call(partial(forget_left, workspace=WORKSPACE, name=name, living=living))
        except (LaminaError, OSError) as error:
            logging.getLogger("lamina").warning("deleted text could not be removed: %s", error)

    def load_continued(self, answer_id: str) -> RecallExchange | None:
        """What was recalled before the answer that a client saw under this id, if anything was."""
        return self._call(partial(load_continued, workspace=WORKSPACE, answer_id=answer_id))

    def save_answer(self, answer_id: str, name: str) -> None:
        """Store to which conversation an answer belongs. A failure is logged."""
        try:
            self._call(partial(save_answer, workspace=WORKSPACE, answer_id=answer_id, name=name))
        except (LaminaError, OSError) as error:
            logging.getLogger("lamina").warning("the id of an answer could not be stored: %s", error)

    def close(self) -> None:
        """Close the store. It is opened again if it is used after that."""
        with self._lock:
            if self._thread is not None:
                self._thread.close()
            self._thread = None

    def _take(self, stored: Iterable[KeptConversation]) -> list[Conversation]:
        conversations: list[Conversation] = []
        for each in stored:
            conversation = Conversation(uid=each.name, state=each.state, digests=each.state.digests())
            conversation.record.skip_to(each.records)
            conversation.record.listed |= each.state.listed
            conversations.append(conversation)
        return conversations

    def _call(self, action: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """Run an action on the store in its thread, which is started at the first call.

        If the store could not be opened, each call tries again. The thread does not know this object: when
        nobody has it any more, the thread ends.
        """
        with self._lock:
            if self._thread is None:
                self._thread = StoreThread(partial(_open_given, self._given_store, self._key))
                finalize(self, self._thread.stop)
            thread = self._thread
        return thread.run(action)

    async def _save(
        self,
        store: Store,
        *,
        conversation: Conversation,
        find_latest: Callable[[], Conversation | None] | None,
    ) -> None:
        lock = self._saving.setdefault(conversation.uid, anyio.Lock())
        async with lock:
            latest = None
            if find_latest is not None:
                latest = find_latest()
            if latest is not None and latest.uid == conversation.uid:
                conversation = latest
            await _write(store, conversation, self.keep)


@asynccontextmanager
async def _open_given(store: Store | str | PathLike[str], key: Any) -> AsyncIterator[Store]:
    """Open the store at an address. One that is open already stays open."""
    if not isinstance(store, str | PathLike):
        yield store
        return
    resolved_key = await resolve_key(key, Settings(), os.environ)
    async with open_store(fspath(store), key=resolved_key) as opened:
        yield opened


def _named_group(client: str) -> Group:
    """Conversations of one name may be of any dialect."""
    return Group(WORKSPACE, client, "")


async def _write(store: Store, conversation: Conversation, keep: Keep) -> None:
    """Write a conversation over its last state, and add what happened to its record."""
    record = conversation.record
    title = find_title(conversation.digests.segments) if keep == "all" else ""
    state = conversation.state.after(conversation.digests)
    state = msgspec.structs.replace(state, keep=keep, title=title)

    async def write() -> None:
        if conversation.name:
            await enlist_named(store, _named_group(state.group), conversation.uid, record.listed)
        try:
            source = await save_conversation(
                store,
                WORKSPACE,
                conversation.uid,
                state,
                listed=record.listed,
                records=record.encode(),
                expect=record.count,
                was=record.source,
            )
        except Conflict:
            # Somebody has continued the conversation, or deleted it and begun it anew: no piece is relied on.
            page = await store.read(conversation_place(WORKSPACE, conversation.uid), last=0)
            record.skip_to(page.head.count)
            record.forget_pieces()
            raise
        record.saved()
        record.source = source

    await retry_conflicts(write, tries=TRIES)


class LastRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A request that was answered: what was sent, what the API counted for it, and when it was sent.

    The next request is compared with it, to say why a cache missed. `sent_at` is of a clock that only runs
    forward. `is_uncached`: a listener was told already that the API caches nothing of this conversation.
    """

    fitted: Any
    usage: Usage
    sent_at: float
    is_uncached: bool = False


class Conversation(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What is remembered of one conversation between two calls.

    In a store it is known by its `uid`, and `state` is what is stored of it. `name` is what its caller calls
    it, "" if it is recognised by its content. `digests` are those of the last
    request, which had these `turns`, and `fitted` is what was sent. `last_request` is what the next one is
    compared with; a fork has that of the conversation that it was forked from.

    A request with recalls in it that the client did not see has a memo of its own (`spliced_memo`). Who uses
    a memo holds `memo_lock`. `left` are the uids of conversations that the client left for this one: they
    lose what this one has lost. `record` is what happened in it, for the store.
    """

    uid: str = ""
    name: str = ""
    state: ConversationState = ConversationState()
    digests: RequestDigests = NO_DIGESTS
    turns: tuple[Any, ...] = ()
    fitted: Any = None
    last_request: LastRequest | None = None
    memo: Any = msgspec.field(default_factory=RequestMemo)
    spliced_memo: Any = msgspec.field(default_factory=RequestMemo)
    memo_lock: Any = msgspec.field(default_factory=Lock)
    left: tuple[str, ...] = ()
    record: RecordWriter = msgspec.field(default_factory=RecordWriter)

    @property
    def usage(self) -> Usage:
        """What the API counted for the last request."""
        return self.state.usage or NOTHING_REPORTED

    def with_state(self, **changes: Any) -> Conversation:
        """The conversation with other values in its state."""
        return msgspec.structs.replace(self, state=msgspec.structs.replace(self.state, **changes))


def make_uid(door: str) -> str:
    """The name of a conversation that begins at this door."""
    return f"{door}-{uuid4().hex[:20]}"
