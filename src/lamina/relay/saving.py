"""Puts conversations into the store: at once where a request depends on it, else a moment later.

The ledger of a request that was changed is saved before the first byte goes upstream. Everything else waits a
moment, so that several changes are one save. If the gateway is killed meanwhile it is lost, and no request
depends on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lamina.conversations.shelf import TRIES, forget_lost_text
from lamina.conversations.store import ConversationState
from lamina.errors import Conflict
from lamina.relay.conversation_index import ConversationIndex
from lamina.relay.live_conversation import LiveConversation
from lamina.relay.observers import CallMetrics
from lamina.relay.store_access import LAST_TRY, GatewayStore, StoreGone
from lamina.stores.paging import retry_conflicts

SAVE_PAUSE, SHARED_PAUSE = 2.0, 0.2
"""Seconds before a conversation that no request depends on is saved: alone, and beside other processes.

Alone, only lists of conversations are late. A save takes as much CPU as a request, so one is for several.
Beside others it is also late what the last request was counted as. It is saved before the next request of a
client comes, as a model takes longer to answer, and every process waits as long, so the first saves first.
"""

RECORD_PAUSE = 0.02
"""Seconds before a request or an answer is added to the record. A gateway that is killed loses no more."""

SAVED_TOGETHER = 16
"""Conversations that are saved at a time.

One by one, a busy gateway would save fewer than it begins, and keep all that wait in memory. A store writes
those that come together in one go.
"""


class ConversationSaver:
    """Saves the conversations of one gateway process."""

    def __init__(self, store: GatewayStore, index: ConversationIndex, metrics: CallMetrics) -> None:
        self._store = store
        self._index = index
        self._metrics = metrics
        self._unsaved: dict[tuple[str, str], LiveConversation] = {}
        self._changed: set[tuple[str, str]] = set()
        """Those that were asked for since their last save began."""

        self._wake = asyncio.Event()
        self._unrecorded: dict[tuple[str, str], LiveConversation] = {}
        self._wake_recording = asyncio.Event()
        self._flushing_records = asyncio.Lock()
        self._pause = SAVE_PAUSE
        if index.shared:
            self._pause = SHARED_PAUSE

    async def save(
        self, conversation: LiveConversation, state: ConversationState, records: Sequence[bytes] = ()
    ) -> None:
        """Save a conversation with a new state, the records that wait, and these.

        Raises StoreGone, or Conflict if another process has changed the conversation. The records that wait
        wait on then.
        """
        await _complete(self._save(conversation, state, records))

    async def change(
        self,
        conversation: LiveConversation,
        function: Callable[[ConversationState], ConversationState],
        records: Sequence[bytes],
    ) -> None:
        """Save what a function makes of the state, with these records.

        If another process was first, it is called again with what that one has saved. Raises StoreGone, or
        Conflict if others were first each time. The caller holds the lock of the conversation.
        """

        async def save() -> None:
            state = function(conversation.state)
            await self.save(conversation, state, records)
            conversation.state = state

        await self._write_over(conversation, save)

    async def _write_over(self, conversation: LiveConversation, write: Callable[[], Awaitable[None]]) -> None:
        """Write, and read the conversation again before each further attempt if another process was first."""

        async def attempt() -> None:
            try:
                await write()
            except Conflict:
                await self._index.reload(conversation)
                raise

        await retry_conflicts(attempt, tries=TRIES)

    async def _save(
        self, conversation: LiveConversation, state: ConversationState, records: Sequence[bytes]
    ) -> None:
        await _await_late_write(conversation)
        record = conversation.record
        listed: dict[str, str] | None = record.listed
        if conversation.is_guess:
            listed = None
        with _noting_late_write(conversation):
            conversation.source = await self._store.save(
                conversation.workspace,
                conversation.name,
                state,
                was=conversation.source,
                expect=record.count,
                listed=listed,
                records=record.encode(records),
            )
        record.saved()

    async def save_now(self, conversation: LiveConversation) -> bool:
        """Save a conversation as it is. Returns False if the store is gone.

        If another process has changed it meanwhile, that process knows better: this one reads it again.
        Of a conversation that its client has left, only what the living one still has is saved. It stays as
        it is in memory: if the client goes on with it after all, nothing is lost.
        """
        living = conversation.living
        try:
            if living is None:
                await self.save(conversation, conversation.state)
            else:
                await self.save(conversation, forget_lost_text(conversation.state, living))
                await self._store.forget_left(*conversation.key, living)
        except Conflict:
            return await self._save_over(conversation)
        except StoreGone:
            self._metrics.add("lamina_store_failures_total")
            return False
        return True

    def save_later(self, conversation: LiveConversation) -> None:
        """Save a conversation soon. If that fails nothing is lost but its line in a list."""
        self._unsaved[conversation.key] = conversation
        self._changed.add(conversation.key)
        self._wake.set()

    def record_soon(self, conversation: LiveConversation) -> None:
        """Add what happened to the record in the store, in a moment."""
        self._unrecorded[conversation.key] = conversation
        self._wake_recording.set()

    async def record_pending(self) -> None:
        """Write the records of requests and answers, for as long as the gateway runs."""
        while True:
            await self._wake_recording.wait()
            await asyncio.sleep(RECORD_PAUSE)
            self._wake_recording.clear()
            if not await self.flush_records():
                await asyncio.sleep(1)
                self._wake_recording.set()

    async def flush_records(self) -> bool:
        """Write every record that waits now. Returns False if the store is gone.

        One at a time: who asks for it while another is writing waits for that one, too. So when it returns,
        everything that happened before is in the store.
        """
        async with self._flushing_records:
            return await self._flush_records()

    async def _flush_records(self) -> bool:
        waiting = list(self._unrecorded.values())
        self._unrecorded.clear()
        for start in range(0, len(waiting), SAVED_TOGETHER):
            together = waiting[start : start + SAVED_TOGETHER]
            if not all(await asyncio.gather(*map(self._write_record, together))):
                for conversation in waiting[start:]:
                    self._unrecorded.setdefault(conversation.key, conversation)
                return False
        return True

    async def _write_record(self, conversation: LiveConversation) -> bool:
        """Write what waits of one record. Returns False if it has to wait on, since the store is gone."""

        async def append() -> None:
            await _await_late_write(conversation)
            if len(conversation.record):
                await _complete(self._append(conversation))

        async with self._index.lock(conversation.opening):
            try:
                await self._write_over(conversation, append)
            except (StoreGone, Conflict):
                return False
        return True

    async def _append(self, conversation: LiveConversation) -> None:
        # Records name others by their number in the store, so they are encoded anew for each attempt.
        record = conversation.record
        with _noting_late_write(conversation):
            await self._store.append(
                *conversation.key, record.encode(), expect=record.count, was=conversation.source
            )
        record.saved()

    async def save_pending(self) -> None:
        """Save what may be saved late, for as long as the gateway runs."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(self._pause)  # so that one save is enough for several requests
            self._wake.clear()
            if not await self.flush():
                await asyncio.sleep(1)
                self._wake.set()

    async def flush(self) -> bool:
        """Save everything that waits now. Returns False if the store is gone.

        What comes to wait meanwhile is saved the next time: under load a conversation would otherwise be
        saved again for each of its requests.
        """
        unsaved = list(self._unsaved.values())
        for start in range(0, len(unsaved), SAVED_TOGETHER):
            saves = map(self._save_unsaved, unsaved[start : start + SAVED_TOGETHER])
            if not all(await asyncio.gather(*saves)):
                return False
        return True

    def forget_pending(self) -> None:
        """Save nothing of what waits: nobody reads it again."""
        self._unsaved.clear()
        self._changed.clear()
        self._unrecorded.clear()

    async def _save_unsaved(self, conversation: LiveConversation) -> bool:
        """Save a conversation that waits. Returns False if the store is gone."""
        async with self._index.lock(conversation.opening):
            self._changed.discard(conversation.key)
            if not await self.save_now(conversation):
                return False
            # Not before: the gateway may be stopped while it saves. If an answer came meanwhile it waits on.
            if conversation.key not in self._changed:
                self._unsaved.pop(conversation.key, None)
            return True

    async def _save_over(self, conversation: LiveConversation) -> bool:
        """Save a conversation that another process has changed, if this one has seen a later request.

        Otherwise that process knows better, and this one takes over what it saved. From a conversation that
        its client has left, what the living one has lost is removed all the same.
        """
        state = conversation.state
        try:
            await self._index.reload(conversation)
            if not conversation.source:  # it was deleted
                self._index.forget(conversation)
            elif conversation.living is not None:
                await self._store.forget_left(*conversation.key, conversation.living)
            elif conversation.state is state:
                await self.save(conversation, state)
        except StoreGone:
            return False
        except Conflict:
            self._index.forget(conversation)
        return True


@contextmanager
def _noting_late_write(conversation: LiveConversation) -> Iterator[None]:
    try:
        yield
    except StoreGone as gone:
        conversation.late_write = gone.late
        raise


async def _await_late_write(conversation: LiveConversation) -> None:
    """Wait for a write that took too long: if it was made after all, its records wait no longer.

    They would be written twice. The state is read again by whoever saves the next one.
    """
    late = conversation.late_write
    if late is None:
        return
    done, _ = await asyncio.wait({late}, timeout=LAST_TRY)
    if not done:
        raise StoreGone("the store does not answer")
    conversation.late_write = None
    if not late.cancelled() and late.exception() is None:
        conversation.record.saved()


async def _complete(saving: Coroutine[Any, Any, None]) -> None:
    """Let a save come to its end, also if the task that waits for it is cancelled: its client went away.

    The store commits all the same. A writer that did not hear of it would write the same records once more.
    """
    task = asyncio.ensure_future(saving)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
