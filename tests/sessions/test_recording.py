"""What a session sent and what it cost is in the record, beside its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lamina import Budget, Policy, Session
from lamina.conversations.store import find_conversation, read_record
from lamina.stores.address import open_store


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


@pytest.mark.anyio
async def test_an_answer_without_a_request_is_no_request(tmp_path: Path) -> None:
    async with open_store(str(tmp_path / "chats.db")) as store:
        async with Session.open(store, "talk", model="claude-sonnet-5-5") as session:
            await session.record(answer(1))
            workspace = session.workspace
        assert await find_conversation(store, workspace, "talk") is None
