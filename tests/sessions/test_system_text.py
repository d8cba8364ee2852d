"""The system text, or a persona, as a function that is asked at each turn."""

from __future__ import annotations

from typing import Any

import pytest

from lamina.core.values import Layer
from lamina.core.wording import text_of
from lamina.errors import BadInput
from lamina.sessions import Persona, Session
from lamina.stores.memory import MemoryStore
from tests.sessions.talking import awaited, opened


def system_texts(session: Session) -> list[str]:
    assert session.envelope is not None
    return [text_of(entry.segment.parts) for entry in session.envelope.sent if entry.role == "system"]


@awaited
async def test_a_function_is_asked_at_each_turn_and_the_prefix_stays() -> None:
    mood = "Be brief."

    async def provide() -> str:
        return mood

    async with opened(MemoryStore(), model="gpt-5", system=provide) as session:
        await session.ask("one")
        await session.record("1")
        await session.ask("two")
        assert system_texts(session) == ["Be brief."]
        await session.record("2")
        mood = "Be thorough."
        envelope = await session.ask("three")
        assert system_texts(session) == ["Be brief.", "Be thorough."]
        assert [text_of(e.parts) for e in envelope.sent if e.layer is Layer.SYSTEM] == ["Be brief."]
        assert session.report().continues


@awaited
async def test_a_plain_function_and_one_in_a_persona_will_do() -> None:
    names = iter(["Ada", "Ada", "Grace"])
    who = Persona(user=lambda: f"Call me {next(names)}.")
    async with opened(MemoryStore(), model="gpt-5", system=lambda: "Be brief.", persona=who) as session:
        await session.ask("one")
        await session.record("1")
        assert system_texts(session) == ["Be brief.", "Call me Ada."]
        await session.ask("two")
        assert system_texts(session) == ["Be brief.", "Call me Ada.", "Call me Grace."]


@awaited
async def test_one_that_fails_later_leaves_what_stood_and_a_note() -> None:
    answers: list[Any] = ["Be brief.", "Be brief."]

    def provide() -> Any:
        return answers.pop()

    async with opened(MemoryStore(), model="gpt-5", system=provide) as session:
        await session.ask("one")
        await session.record("1")
        await session.ask("two")
        assert system_texts(session) == ["Be brief."]
        assert any("system text" in one for one in session.notes)


@awaited
async def test_what_gives_no_text_is_refused_when_the_session_is_opened() -> None:
    provide: Any = lambda: 7  # noqa: E731
    with pytest.raises(BadInput, match="int is no text"):
        async with opened(MemoryStore(), model="gpt-5", system=provide):
            pass
