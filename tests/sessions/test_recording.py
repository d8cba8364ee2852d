"""What a session sent and what it cost is in the record, beside its log."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from lamina import Budget, Policy, Session
from lamina.conversations.store import (
    ConversationState,
    conversation_place,
    find_conversation,
    read_record,
)
from lamina.errors import BadInput
from lamina.sessions.session import EMPTY_ANSWER
from lamina.stores import MemoryStore, StoredHead, Where, open_store
from lamina.stores.checked import NewGroup
from lamina.stores.port import RECORDED
from lamina.testing import ScriptedClient
from tests.sessions.talking import awaited, opened


def answer(number: int) -> dict[str, Any]:
    usage = {"input_tokens": 100 + number, "output_tokens": 5, "cache_read_input_tokens": 40}
    content = [{"type": "text", "text": f"Answer {number}. " + "word " * 300}]
    return {"role": "assistant", "content": content, "usage": usage, "stop_reason": "end_turn"}


@pytest.mark.anyio
async def test_each_answered_request_is_in_the_record(tmp_path: Path) -> None:
    async with open_store(str(tmp_path / "chats.db")) as store:
        for first in (0, 8):  # the second time after a restart
            budget = Budget(window=4_000, reserve=500)
            async with Session.open(
                store, "talk", model="claude-sonnet-5-5", policy=Policy(budget=budget)
            ) as session:
                for number in range(first, first + 8):
                    await session.ask(f"Question {number}? " + "and " * 200)
                    await session.request()
                    await session.record(answer(number))
                cuts = len(session.ledger.cuts)
                workspace = session.workspace
        kept = await find_conversation(store, workspace, "talk")
        assert kept is not None
        assert kept.state.requests == 16
        assert kept.state.door == "session"
        assert kept.state.title.startswith("Question 0?")
        record = await read_record(store, workspace, "talk")
    usages = [call.answer.usage for call in record.calls if call.answer is not None]
    assert [usage.input for usage in usages if usage is not None] == [140 + number for number in range(16)]
    assert cuts
    assert sum(call.request.cut is not None for call in record.calls) == cuts
    assert record.calls[-1].request.window == 4_000


@given(st.lists(st.booleans(), min_size=20, max_size=20))
@awaited
async def test_a_cut_belongs_to_the_next_request_that_is_answered(refused: list[bool]) -> None:
    """One that was refused writes no cache, so the next one writes what the cut has changed."""
    store = MemoryStore()
    budget = Budget(window=3_000, reserve=300)
    async with Session.open(
        store, "talk", model="claude-sonnet-5-5", policy=Policy(budget=budget)
    ) as session:
        for number, is_refused in enumerate([False, *refused, False]):
            await session.ask(f"Question {number}? " + "and " * 20)
            await session.request()
            if not is_refused:
                await session.record(answer(number))
        record = await read_record(store, session.workspace, "talk")
    epochs = [0, *(call.request.epoch for call in record.calls)]
    for before, call in zip(epochs, record.calls, strict=False):
        assert (call.request.cut is not None) is (call.request.epoch > before)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=9))
@awaited
async def test_requests_of_several_processes_are_in_the_record_once_each(order: list[int]) -> None:
    store = MemoryStore()
    async with AsyncExitStack() as stack:
        sessions = [
            await stack.enter_async_context(opened(store, "talk", model="claude-sonnet-5-5"))
            for _ in range(3)
        ]
        for number, who in enumerate(order):
            await sessions[who].ask(f"Question {number}?")
            await sessions[who].record(answer(number))
        assert [session.notes for session in sessions] == [()] * 3
    kept = await find_conversation(store, "", "talk")
    assert kept is not None
    assert kept.state.requests == len(order)
    record = await read_record(store, "", "talk")
    usages = [call.answer.usage for call in record.calls if call.answer is not None]
    assert [usage.input for usage in usages if usage is not None] == [140 + n for n in range(len(order))]


class LosesAnswers(MemoryStore):
    """A store whose caller is cancelled when a record was written, before it hears of that."""

    def __init__(self) -> None:
        super().__init__()
        self.cancels: anyio.CancelScope | None = None

    async def _append_group(self, group: NewGroup) -> StoredHead:
        head = await super()._append_group(group)
        if self.cancels is not None and group.where.workspace.startswith(RECORDED):
            self.cancels.cancel()
            self.cancels = None
            await checkpoint()
        return head


@pytest.mark.parametrize("others", [0, 1])
@awaited
async def test_a_request_whose_record_was_cancelled_on_its_way_costs_once(others: int) -> None:
    store = LosesAnswers()
    async with opened(store, "talk", model="claude-sonnet-5-5") as session:
        await session.ask("Question 0?")
        with anyio.CancelScope() as store.cancels:
            await session.record(answer(0))
        for number in range(1, 1 + others):
            async with opened(store, "talk") as other:
                await other.ask(f"Question {number}?")
                await other.record(answer(number))
        await session.ask("And more?")
        await session.record(answer(1 + others))
    record = await read_record(store, "", "talk")
    usages = [call.answer.usage for call in record.calls if call.answer is not None]
    assert [usage.input for usage in usages if usage is not None] == [140 + n for n in range(2 + others)]


class DeletedMeanwhile(MemoryStore):
    """A store in which somebody deletes a conversation right after its next group was appended."""

    def __init__(self) -> None:
        super().__init__()
        self.deletes = False

    async def _append_group(self, group: NewGroup) -> StoredHead:
        head = await super()._append_group(group)
        if self.deletes:
            self.deletes = False
            await self.delete(group.where)
        return head


@pytest.mark.parametrize("turns", [1, 2])
@awaited
async def test_no_record_is_left_of_a_conversation_that_was_deleted_meanwhile(turns: int) -> None:
    store = DeletedMeanwhile()
    async with opened(store, "talk", model="claude-sonnet-5-5") as session:
        for turn in range(1, turns + 1):
            await session.ask("My number is 4711.")
            store.deletes = turn == turns
            await session.record(answer(turn))
    place = conversation_place("", "talk")
    assert (await store.read(Where("", "talk"))).head.is_empty
    assert (await store.read(place)).head.is_empty


@pytest.mark.anyio
async def test_an_answer_without_a_request_is_no_request(tmp_path: Path) -> None:
    async with open_store(str(tmp_path / "chats.db")) as store:
        async with Session.open(store, "talk", model="claude-sonnet-5-5") as session:
            await session.record(answer(1))
            workspace = session.workspace
        assert await find_conversation(store, workspace, "talk") is None


# answers of any shape


async def answered(answer: Any, *, read: bool = False) -> tuple[list[str], list[str]]:
    """What the next request says by whom after this answer, and what the session notes."""
    async with opened(MemoryStore(), model="gpt-5") as session:
        await session.ask("When is the boiler lit?")
        if isinstance(answer, ScriptedClient):
            async with answer.send(await session.request()) as reply:
                if read:
                    async for _ in reply:
                        pass
                await session.record(reply)
        else:
            await session.record(answer)
        assert session.pending is not bool(session.dialogue()[1:])
        await session.ask("And put out?")
        roles = [message["role"] for message in (await session.request())["messages"]]
        return roles, list(session.notes)


@pytest.mark.parametrize("read", [True, False])
@awaited
async def test_a_reply_of_a_client_is_recorded_whether_or_not_it_was_read(read: bool) -> None:  # noqa: FBT001
    roles, notes = await answered(ScriptedClient(["At six."]), read=read)
    assert (roles, notes) == (["user", "assistant", "user"], [])


@pytest.mark.parametrize("nothing", [{}, [], iter(()), ({"choices": []})])
@awaited
async def test_what_is_no_answer_is_refused(nothing: Any) -> None:
    with pytest.raises(BadInput, match="there is no answer in a value of type"):
        await answered(nothing)


EMPTY = {"choices": [{"message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}]}


@pytest.mark.parametrize("empty", ["", "  ", EMPTY])
@awaited
async def test_an_empty_answer_is_noted(empty: Any) -> None:
    roles, notes = await answered(empty)
    assert roles == ["user", "user"]
    assert notes == [EMPTY_ANSWER]


@awaited
async def test_metadata_of_a_message_is_kept_and_never_sent() -> None:
    store = MemoryStore()
    async with opened(store, model="gpt-5") as session:
        await session.ask("Turn it off.", metadata={"source": "voice", "confidence": 0.5})
        await session.record("It is off.", metadata={"spoken": True})
        await session.ask("Thanks.")
        request = await session.request()
    async with opened(store) as session:
        metadata = [one.metadata for one in session.dialogue()]
        assert metadata == [{"source": "voice", "confidence": 0.5}, {"spoken": True}, {}]
        with pytest.raises(BadInput, match="metadata: it cannot be written"):
            await session.ask("Again?", metadata={"when": object()})
        with pytest.raises(BadInput, match="is no mapping"):
            await session.ask("Again?", metadata=["voice"])  # type: ignore[arg-type]
    assert "voice" not in str(request)


@pytest.mark.parametrize("door", ["wrap", "gateway"])
@awaited
async def test_a_conversation_that_another_door_began_is_not_begun_anew(door: str) -> None:
    store = MemoryStore()
    place = conversation_place("", "talk")
    await store.append(place, [], expect=0, state=ConversationState(door=door, keep="all").encode())
    with pytest.raises(
        BadInput, match=rf"'talk' was begun by another door \({door}\); go on through that door"
    ):
        async with opened(store, "talk", model="gpt-5"):
            pass


@awaited
async def test_a_lost_cache_is_explained_only_to_those_who_count_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparing both requests as a whole costs more than the rest of a long session's turn."""
    compared: list[Any] = []
    monkeypatch.setattr("lamina.sessions.recording.diff", lambda *envelopes: compared.append(envelopes))
    async with opened(MemoryStore(), model="gpt-5") as session:
        for number in range(3):
            await session.ask(f"Question {number}. " + "It is about the garden. " * 400)
            await session.request()
            answer = {"choices": [{"message": {"role": "assistant", "content": "Yes."}}]}
            tokens = session.envelope.tokens if session.envelope else 0
            await session.record(answer | {"usage": {"prompt_tokens": tokens, "completion_tokens": 1}})
    assert not compared
