"""`open_for`: the chat's own persona stands, an agent's settings are kept, what a chat had it keeps."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from lamina.agent import EXPLORER, Agent, open_for
from lamina.core import text_of
from lamina.sessions import Persona, Session
from lamina.settings import Settings
from lamina.stores import MemoryStore, Store
from lamina.testing import ScriptedClient
from tests.sessions.talking import awaited, group_options


def opening(store: Store, **arguments: Any) -> AbstractAsyncContextManager[Session]:
    agent = Agent(client=ScriptedClient(["one", "two", "three"]))
    return open_for(agent, store, "a", **group_options({"settings": Settings(), "clock": None} | arguments))


def personas(session: Session) -> list[str]:
    """What the request says about who the model is, in order."""
    envelope = session.envelope
    assert envelope is not None
    return [text_of(entry.segment.parts) for entry in envelope.sent if entry.segment.kind == "persona"]


@awaited
async def test_the_persona_of_a_chat_stands_when_it_is_opened_again() -> None:
    store = MemoryStore()
    async with opening(store, model="gpt-5", persona="You are a pirate.") as session:
        await session.ask("hi")
        await session.record("arr")
    async with opening(store) as session:
        await session.ask("again")
        assert personas(session) == ["You are a pirate."]
        assert session.report().continues


@awaited
async def test_a_persona_of_the_workspace_or_the_user_is_the_chats_own_too() -> None:
    store = MemoryStore()
    async with opening(store, model="gpt-5", persona=Persona(user="Call me Ada.")) as session:
        await session.ask("hi")
        await session.record("arr")
    async with opening(store) as session:
        await session.ask("again")
        assert personas(session) == ["Call me Ada."]


@awaited
async def test_a_chat_without_a_persona_has_that_of_the_settings_or_else_the_default(tmp_path: Path) -> None:
    own = tmp_path / "persona.txt"
    own.write_text("You are calm.")
    for settings, expected in ((Settings(), EXPLORER), (Settings(persona=str(own)), "You are calm.")):
        async with opening(MemoryStore(), model="gpt-5", settings=settings) as session:
            await session.ask("hi")
            assert personas(session) == [expected]


@awaited
async def test_a_persona_that_is_given_replaces_that_of_the_chat() -> None:
    store = MemoryStore()
    async with opening(store, model="gpt-5") as session:
        await session.ask("hi")
        await session.record("hello")
    async with opening(store, persona="You are a pirate.") as session:
        await session.ask("again")
        assert personas(session) == [EXPLORER, "You are a pirate."]


@awaited
async def test_the_persona_of_the_settings_does_not_replace_that_of_a_chat(tmp_path: Path) -> None:
    own = tmp_path / "persona.txt"
    own.write_text("You are calm.")
    store = MemoryStore()
    async with Session.open(
        store, "a", model="gpt-5", persona="You are a pirate.", settings=Settings()
    ) as one:
        await one.ask("hi")
        await one.record("arr")
    async with Session.open(store, "a", settings=Settings(persona=str(own))) as session:
        await session.ask("again")
        assert personas(session) == ["You are a pirate."]


@awaited
async def test_what_the_application_keeps_with_a_chat_can_be_given() -> None:
    store = MemoryStore()
    async with opening(store, model="gpt-5", agent={"mode": "plan"}) as session:
        await session.ask("hi")
    async with opening(store) as session:
        assert session.setup.agent == {"mode": "plan"}


@awaited
async def test_an_empty_chat_builds_with_its_persona() -> None:
    store = MemoryStore()
    async with opening(store, model="gpt-5", persona="You are a pirate.") as session:
        assert "persona:default" in [row.key for row in session.explain().rows]
        await session.build()
        assert personas(session) == ["You are a pirate."]
        request = await session.request()
        assert "pirate" in str(request["messages"])
        assert (session.log, session.turns) == ((), 0)
        await session.ask("hi")
        assert personas(session) == ["You are a pirate."]
        assert session.report().parting is None
