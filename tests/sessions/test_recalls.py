from __future__ import annotations

import json
from typing import Any

import pytest

from lamina.core import text_of
from lamina.core.values import Budget, Form
from lamina.dialects import DIALECTS
from lamina.errors import BadInput, NotFound
from lamina.fitting.recalls import AROUND, MATCHES, PIECE, RECALL
from lamina.segments import file
from lamina.sessions import Session
from lamina.stores import MemoryStore
from lamina.testing.conformance import MODELS
from tests.sessions.talking import HEAD, answer, awaited, opened, setup_of

LONG = "".join(f"line {number} of the report\n" for number in range(2_000))


def recall_answer(**arguments: Any) -> dict[str, Any]:
    """An answer that calls the recall tool."""
    function = {"name": "recall", "arguments": json.dumps(arguments)}
    call = {"id": "r1", "type": "function", "function": function}
    return {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": None, "tool_calls": [call]}}]
    }


async def lowered(session: Session) -> str:
    """Talks until the report is lowered; gives its handle."""
    await session.ask("read", attach=[file("report.txt", LONG)])
    for number in range(4):
        await session.record(f"answer {number} " + "word " * 400)
        envelope = await session.ask(f"question {number}")
    entry = envelope.entry("report.txt")
    assert entry.form is not Form.FULL
    return next(row.recall for row in session.explain().rows if row.key == "report.txt")


BUDGET = Budget(window=20_000, reserve=0, trigger=0.1)


@awaited
async def test_what_was_lowered_is_recalled_in_full_in_slices_and_by_search_after_a_restart() -> None:
    store = MemoryStore()
    async with opened(store, model="gpt-5", budget=BUDGET) as session:
        handle = await lowered(session)
    async with opened(store) as session:
        assert session.recall(handle).text == session.recall("report.txt").text == LONG
        piece = session.recall(handle, part=(5, 20))
        assert (piece.text, piece.start, piece.end, piece.total) == (LONG[5:25], 5, 25, len(LONG))
        recalled = session.recall(handle, find="LINE 1999 ")
        (match,) = recalled.matches
        assert LONG[match.at :].startswith("line 1999 ")
        assert len(match.text) <= 2 * AROUND + 10
        assert session.recall(handle, find="line").more == 2_000 - MATCHES
        assert session.recall(handle, find="nowhere").matches == ()
        with pytest.raises(NotFound):
            session.recall("k000000000000")
        with pytest.raises(BadInput, match="part"):
            session.recall(handle, part=(-1, 5))


@awaited
async def test_the_models_own_recalls_are_answered_in_pieces() -> None:
    async with opened(MemoryStore(), model="gpt-5", budget=BUDGET, recall="tool") as session:
        handle = await lowered(session)
        texts = []
        for arguments in (
            {"key": handle},
            {"key": handle, "start": len(LONG) - 50},
            {"key": handle, "find": "line 77 "},
            {"key": "k0"},
            {"start": 3},
            {"key": handle, "start": "x"},
        ):
            recorded = await session.record(recall_answer(**arguments))
            assert recorded.calls == ()
            await session.results()
            texts.append(text_of(session.log[-1].parts))
            await session.record("I see")
            await session.ask("and?")
        assert (
            texts[0]
            == f"[characters 0 to {PIECE:,} of {len(LONG):,}; go on with start={PIECE}]\n" + LONG[:PIECE]
        )
        assert texts[1].endswith(LONG[-50:])
        assert "go on" not in texts[1]
        assert "line 77 of the report" in texts[2]
        assert [("nothing has the key" in texts[3]), ("no key" in texts[4]), ("number" in texts[5])] == [
            True
        ] * 3


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name != "text"])
@awaited
async def test_the_tool_is_in_the_list_from_the_first_request_on_or_never(dialect: str) -> None:
    store, speaks = MemoryStore(), DIALECTS[dialect]
    async with opened(store, **setup_of(dialect, recall="tool")) as session:
        await session.ask("hello")
        request = await session.request()
        head = speaks.head.read(speaks.wire.parse(request).head)
        assert [tool.name for tool in head.tools] == ["read_file", "recall"]
        await session.record(answer(dialect, "hi"))
    async with opened(store, recall="off") as session:
        assert session.setup.recall
        assert "recall tool" in session.notes[0]
    async with opened(store, "b", **setup_of(dialect)) as session:
        await session.ask("hello")
    async with opened(store, "b", recall="tool") as session:
        assert not session.setup.recall


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name != "text"])
@awaited
async def test_the_tool_joins_those_in_the_dialects_own_words(dialect: str) -> None:
    speaks = DIALECTS[dialect]
    own = speaks.head.write(HEAD).head
    async with opened(
        MemoryStore(), model=MODELS[dialect], dialect=dialect, head=own, recall="tool"
    ) as session:
        await session.ask("hello")
        request = await session.request()
        names = [tool.name for tool in speaks.head.read(speaks.wire.parse(request).head).tools]
        assert names == ["read_file", RECALL.name]
        assert speaks.wire.check(request) == []


@awaited
async def test_a_dialect_without_tools_says_so() -> None:
    async with opened(MemoryStore(), **setup_of("text", recall="tool")) as session:
        assert session.notes == ("text cannot say: tools",)
