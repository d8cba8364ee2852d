"""What a conversation keeps of its runtime options, and what it says of functions, which it cannot keep."""

from __future__ import annotations

from typing import Any

import pytest

from lamina.core import Wording, text_of
from lamina.core.values import Budget, Form
from lamina.core.wording import TAGGED
from lamina.dialects import PlainHead, Tool
from lamina.errors import BadInput
from lamina.segments import note
from lamina.sessions import Session
from lamina.stores import MemoryStore
from tests.sessions.talking import awaited, opened


def sent(session: Session) -> str:
    assert session.envelope is not None
    return "\n".join(text_of(entry.parts) for entry in session.envelope.sent)


@awaited
async def test_a_tagged_conversation_goes_on_tagged() -> None:
    store = MemoryStore()
    async with opened(store, model="gpt-5", wording=TAGGED) as session:
        await session.ask("one")
        await session.record("1")
    async with opened(store) as session:
        await session.ask("two")
        assert sent(session).count("<user_message ") == 2
        assert session.report().continues


@awaited
async def test_a_template_that_is_a_text_is_kept() -> None:
    store = MemoryStore()
    async with opened(store, model="gpt-5", template="Q: {prompt}") as session:
        await session.ask("one")
        await session.record("1")
    async with opened(store) as session:
        await session.ask("two")
        assert sent(session) == "Q: one\n1\nQ: two"


def shout(text: str) -> str:
    return text.upper()


WORDS = Wording(words={"note": lambda *_: "a note"})


@pytest.mark.parametrize(
    ("name", "given"),
    [("redact", {"redact": shout}), ("template", {"template": shout}), ("words", {"wording": WORDS})],
)
@awaited
async def test_a_function_that_is_missing_is_named_before_the_next_turn(
    name: str, given: dict[str, Any]
) -> None:
    store = MemoryStore()
    async with opened(store, model="gpt-5", **given) as session:
        await session.ask("one", attach=[note("a.md", "text " * 50)])
        await session.record("1")
    async with opened(store) as session:
        assert session.turns == 1
        with pytest.raises(BadInput, match=f"functions that it had: {name}") as error:
            await session.ask("two")
        assert f"forgo=('{name}',)" in error.value.hint
        assert session.turns == 1
    async with opened(store, **given) as session:
        await session.ask("two")
    async with opened(store, forgo=(name,)) as session:
        await session.record("2")
    async with opened(store) as session:
        await session.ask("three")


@awaited
async def test_an_unknown_function_cannot_be_forgone() -> None:
    with pytest.raises(BadInput, match="no function of a session"):
        async with opened(MemoryStore(), model="gpt-5", forgo=("sources",)):
            pass


async def long_talk(**arguments: Any) -> Session:
    budget = Budget(window=2_000, reserve=0)
    async with opened(MemoryStore(), model="gpt-5", budget=budget, **arguments) as session:
        for number in range(12):
            attach = [note("a.md", "word " * 300)] if number == 0 else []
            await session.ask(f"question {number} " + "words " * 60, attach=attach)
            await session.record(f"answer {number} " + "more words " * 60)
        return session


RECALL = Tool(name="recall", description="Brings back what was left out.", schema={"type": "object"})


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({}, False),
        ({"recall": "tool"}, True),
        ({"head": PlainHead(tools=(RECALL,))}, True),
        ({"recall": "handles"}, True),
    ],
)
@awaited
async def test_handles_are_shown_where_something_answers_them(
    arguments: dict[str, Any],
    shown: bool,  # noqa: FBT001 - a column of the table
) -> None:
    session = await long_talk(**arguments)
    assert session.envelope is not None
    assert any(entry.form is not Form.FULL for entry in session.envelope.entries)
    assert ("recall" in sent(session)) is shown


def test_without_a_handle_lowered_text_can_still_say_what_it_was() -> None:
    named = Wording(handles=False, named=True)
    bare = Wording(handles=False)
    segment = note("a.md", "word " * 300)
    content: Any = "0" * 64
    assert text_of(named(segment, Form.STUB, content)) == "[trimmed: note a.md · 1,500 bytes]"
    assert text_of(bare(segment, Form.STUB, content)) == "[trimmed]"
