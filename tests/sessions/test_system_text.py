"""The system text, or a persona, as a function that is asked at each turn."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.context.memory import MEMORY, Memory
from lamina.core import text_of
from lamina.core.values import Layer, Role
from lamina.errors import BadInput
from lamina.fitting import Policy
from lamina.segments import call, memory, project
from lamina.sessions import LastN, Persona, Session
from lamina.stores import MemoryStore, Where
from lamina.summaries import compact
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
async def test_a_changed_section_that_was_taken_back_comes_again() -> None:
    mood = "Be brief."
    async with opened(MemoryStore(), model="gpt-5", system=lambda: mood) as session:
        await session.ask("one")
        await session.record("1")
        mood = "Be thorough."
        for question in ("two", "two, once more"):
            await session.ask(question)
            assert system_texts(session)[-1] == "Be thorough."
            await session.record("2")
            await session.ask("three")
            await session.rewind(1)


@awaited
async def test_a_plain_function_and_one_in_a_persona_will_do() -> None:
    names = iter(["Ada", "Grace"])
    who = Persona(user=lambda: f"Call me {next(names)}.")
    async with opened(MemoryStore(), model="gpt-5", system=lambda: "Be brief.", persona=who) as session:
        await session.ask("one")
        await session.record("1")
        assert system_texts(session) == ["Be brief.", "Call me Ada."]
        await session.ask("two")
        assert system_texts(session) == ["Be brief.", "Call me Ada.", "Call me Grace."]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
@awaited
async def test_a_function_is_called_once_a_turn(*, is_async: bool, restarts: bool) -> None:
    """Also when its request is built again, in recalls and steps within the turn, and after a restart."""
    store = MemoryStore()
    called: list[str] = []

    async def later() -> str:
        return at_once()

    def at_once() -> str:
        called.append("system")
        return f"Turn {len(called)}."

    def name_user() -> str:
        called_for_user.append("user")
        return "Call me Ada."

    called_for_user: list[str] = []
    arguments: dict[str, Any] = {
        "system": later if is_async else at_once,
        "persona": Persona(user=name_user),
        "policy": Policy(recall="tool"),
    }
    for turn in range(1, 4):
        async with opened(store, model="gpt-5", **arguments) as session:
            await session.ask(f"question {turn}")
            await session.request()
            for step in range(2):
                await session.add(call("recall", {"key": "k0"}, id=f"c{turn}{step}", joins=False))
                if restarts:
                    async with opened(store, model="gpt-5", **arguments) as again:
                        await again.results()
                        await again.request()
                    break
                await session.results()
                await session.request()
            if not restarts:
                await session.record("answer")
                assert f"Turn {turn}." in system_texts(session)
        assert (len(called), len(called_for_user)) == (turn, turn)


@awaited
async def test_one_that_fails_later_leaves_what_stood_and_a_note() -> None:
    answers: list[Any] = ["Be brief."]

    def provide() -> Any:
        return answers.pop()

    async with opened(MemoryStore(), model="gpt-5", system=provide) as session:
        await session.ask("one")
        await session.record("1")
        await session.ask("two")
        assert system_texts(session) == ["Be brief."]
        assert any("system text" in one for one in session.notes)


@awaited
async def test_what_gives_no_text_is_refused_at_the_first_turn() -> None:
    provide: Any = lambda: 7  # noqa: E731
    async with opened(MemoryStore(), model="gpt-5", system=provide) as session:
        with pytest.raises(BadInput, match="int is no text"):
            await session.ask("one")
        assert not session.log


def sent_words(request: dict[str, Any]) -> tuple[str, str]:
    """The system text of a request, and all its messages without system text."""
    messages = request["messages"]
    system = [str(part) for part in request.get("system", [])]
    system += [str(message["content"]) for message in messages if message["role"] == "system"]
    others = [str(message["content"]) for message in messages if message["role"] != "system"]
    return " ".join(system), " ".join(others)


@pytest.mark.parametrize(
    ("model", "takes_late_system"),
    [
        ("claude-sonnet-4-5", False),
        ("claude-opus-5-5", True),
        ("gpt-5", True),
        ("qwen3-8b", False),
    ],
)
@awaited
async def test_a_changed_persona_holds_at_once_with_the_authority_of_system_text(
    model: str,
    takes_late_system: bool,  # noqa: FBT001 - a column of the table
) -> None:
    store = MemoryStore()
    async with opened(store, model=model, persona="You answer in German.") as session:
        await session.ask("one")
        await session.record("eins")
    async with opened(store, persona="You answer in French.") as session:
        await session.ask("two")
        system, others = sent_words(await session.request())
        assert "French" in system
        assert "French" not in others
        report = session.report()
        assert report.continues is takes_late_system
        assert ("German" in system) is takes_late_system
        if not takes_late_system:
            assert report.cut is not None
            assert report.cut.reason == "system text changed"


@pytest.mark.parametrize("source", ["argument", "function", "file"])
@awaited
async def test_an_emptied_section_is_taken_back_at_once_and_leaves_at_the_next_cut(
    source: str, tmp_path: Path
) -> None:
    """Who removed a persona was once answered by it for good."""
    store = MemoryStore()
    file = anyio.Path(tmp_path / "persona.md")

    async def persona(text: str) -> Any:
        await file.write_text(text)
        return {"argument": text, "function": lambda: text, "file": Path(file)}[source]

    async with opened(store, model="gpt-5", persona=await persona("Speak like a pirate.")) as session:
        await session.ask("one")
        await session.record("arr")
    async with opened(store, persona=await persona("")) as session:
        for number in range(2):
            envelope = await session.ask(f"two {number}")
            note = 'From here on the text above that begins with "Speak like a pirate." no longer holds.'
            [entry] = [each for each in envelope.sent if note in text_of(each.parts)]
            assert (entry.role, entry.layer is Layer.SYSTEM) == (Role.SYSTEM, False)
            assert session.report().continues
            await session.record("yes")
        await session.ask("three", history=LastN(1, slack=0, digest=None))
        assert system_texts(session) == []
        await session.record("yes")
    async with opened(store) as session:  # without a persona the conversation keeps its own: none
        await session.ask("four")
        assert system_texts(session) == []


@awaited
async def test_a_contract_that_is_not_given_stays_and_an_empty_one_is_taken_back() -> None:
    store = MemoryStore()
    async with opened(store, model="claude-sonnet-4-5", system="Be brief.") as session:
        await session.ask("one")
        await session.record("1")
    async with opened(store) as session:
        await session.ask("two")
        assert system_texts(session) == ["Be brief."]
        await session.record("2")
    async with opened(store, system="") as session:
        await session.ask("three")
        assert system_texts(session) == []
        assert session.report().cut is not None


class Change(NamedTuple):
    """What happens before a question: a source says something else, and the session may be opened anew.

    A source that said something is emptied, unless it `replaces` its text.
    """

    place: str
    replaces: bool
    reopens: bool
    cuts: bool


PLACES = ("contract", "persona", "fact one", "fact two")
SELDOM = st.sampled_from([False, False, True])
CHANGES = st.lists(
    st.builds(Change, st.sampled_from(PLACES[1:3]) | st.sampled_from(PLACES), SELDOM, SELDOM, SELDOM),
    min_size=6,
    max_size=9,
)


@given(CHANGES, st.sampled_from(["gpt-5", "claude-sonnet-4-5", "claude-opus-5-5", "qwen3-8b"]))
def test_what_is_gone_from_its_source_is_gone_from_the_request(changes: list[Change], model: str) -> None:
    anyio.run(play_changes, changes, model)


async def play_changes(changes: list[Change], model: str) -> None:
    """What a source says stands in the system text. What it said before does not, after a cut.

    Until then a note says that it no longer holds. A fact that was forgotten is gone at once.
    """
    store = MemoryStore()
    facts = Memory(store, Where("", MEMORY))
    said = dict.fromkeys(PLACES, "")
    forgotten: set[str] = set()
    arguments: dict[str, Any] = {
        "model": model,
        "system": lambda: said["contract"],
        "persona": Persona(user=lambda: said["persona"]),
        "sources": [facts.source()],
    }
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(opened(store, **arguments))
        for number, change in enumerate(changes):
            old = said[change.place]
            new = "" if old and not change.replaces else f"TEXT{number}."
            said[change.place] = new
            if change.place.startswith("fact"):
                if new:
                    await facts.remember(change.place, new)
                elif old:
                    await facts.forget(change.place)
                    forgotten.add(old)
            if change.reopens:
                session = await stack.enter_async_context(opened(store, **arguments))
            history = LastN(1, slack=0, digest=None) if change.cuts else None
            envelope = await session.ask(f"question {number}", history=history)
            system, others = sent_words(await session.request())
            for place, text in said.items():
                assert text in (system + others if place.startswith("fact") else system)
            gone = set(re.findall(r"TEXT\d\.", system + others)) - set(said.values())
            assert not gone & forgotten
            if gone:
                assert envelope.cut is None
                assert re.search(r"no longer holds\.|From here on this holds", system + others)
            await session.record("yes")


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "gpt-5"])
@awaited
async def test_three_versions_of_a_dynamic_system_text_never_stand_in_one_request(model: str) -> None:
    versions = iter(f"Version {number} holds." for number in range(9))
    async with opened(MemoryStore(), model=model, system=lambda: next(versions)) as session:
        for turn in range(8):
            await session.ask(f"question {turn}")
            system, _ = sent_words(await session.request())
            assert len(set(re.findall(r"Version \d", system))) <= 2
            assert f"Version {turn} holds." in system
            await session.record(f"answer {turn}")


@pytest.mark.parametrize("cause", ["summary", "window"])
@awaited
async def test_every_cut_promotes_a_changed_section(cause: str) -> None:
    store = MemoryStore()
    async with opened(store, model="gpt-5", persona="You answer in German.") as session:
        for number in range(6):
            await session.ask(f"question {number} " + "some words here " * 30)
            await session.record(f"answer {number} " + "more words there " * 30)
    async with opened(store, persona="You answer in French.") as session:
        await session.ask("now")
        assert system_texts(session) == ["You answer in German.", "You answer in French."]
        await session.record("oui")
        if cause == "summary":
            assert await compact(session) is not None
        else:
            session.set_history(LastN(2, slack=0))
        await session.ask("then")
        assert "".join(system_texts(session)) == "You answer in French."


@awaited
async def test_a_changed_memory_waits_for_the_next_cut() -> None:
    """Memory says what is so, not what to do: the prefix is worth more than its place."""
    store = MemoryStore()
    cat, dog = [memory("The user has a cat.")], [memory("The user has a dog.")]
    async with opened(store, model="claude-sonnet-4-5", context=cat) as session:
        await session.ask("one")
        await session.record("1")
    async with opened(store, context=dog) as session:
        await session.ask("two")
        assert system_texts(session) == ["The user has a cat.", "The user has a dog."]
        assert session.report().continues


@awaited
async def test_two_sections_of_one_kind_stand_side_by_side() -> None:
    both = (project("Prices are in euros."), project("Never name a rival."))
    store = MemoryStore()
    async with opened(store, model="gpt-5", context=both) as session:
        for number in range(3):
            await session.ask(f"question {number}")
            assert system_texts(session) == ["Prices are in euros.", "Never name a rival."]
            assert session.report().continues
            await session.record("1")
    changed = (both[0], project("Name every rival."))
    async with opened(store, model="claude-sonnet-4-5", context=changed) as session:
        await session.ask("and now?")
        assert system_texts(session) == ["Prices are in euros.", "Name every rival."]


@awaited
async def test_a_changed_section_keeps_its_place() -> None:
    store = MemoryStore()
    for number in range(3):
        who = Persona(default="DEFAULT", workspace=f"WORKSPACE {number}", user="USER")
        async with opened(store, model="claude-sonnet-4-5", persona=who) as session:
            await session.ask(f"question {number}")
            assert system_texts(session) == ["DEFAULT", f"WORKSPACE {number}", "USER"]
            await session.record("1")


@awaited
async def test_a_section_that_came_later_says_which_text_it_replaces_until_a_cut() -> None:
    """Old and new stand in one request, and the model must know which of them holds."""
    store = MemoryStore()
    async with opened(store, model="gpt-5", persona=Persona(default="Be kind.", user="Be brief.")) as session:
        await session.ask("one")
        await session.record("1")
    async with opened(store, persona=Persona(default="Be kind.", user="Be thorough.")) as session:
        envelope = await session.ask("two")
        line = 'From here on this holds, in place of the text above that begins with "Be brief.":'
        assert text_of(envelope.entry("persona:user").parts) == f"<persona>\n{line}\nBe thorough.\n</persona>"
        assert session.report().continues
        await session.record("2")
        envelope = await session.ask("three", history=LastN(1, slack=0, digest=None))
        assert text_of(envelope.entry("persona:user").parts) == "<persona>\nBe thorough.\n</persona>"
        assert system_texts(session) == ["Be kind.", "Be thorough."]
        await session.record("3")
        after = await session.ask("four")
        assert text_of(after.entry("persona:user").parts) == "<persona>\nBe thorough.\n</persona>"


@pytest.mark.parametrize(
    "arguments",
    [
        {"system": lambda: 1 / 0},
        {"persona": Persona(user=Path("/nowhere").read_text)},
        {"redact": lambda _: 1 / 0, "system": "x"},
        {"redact": lambda _: None, "system": "x"},
    ],
)
@awaited
async def test_functions_that_fail_at_the_first_turn_are_named(arguments: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"(system|redact): the function (raised|returned)"):
        async with opened(MemoryStore(), model="gpt-5", **arguments) as session:
            await session.ask("one")


@pytest.mark.parametrize("template", [lambda _: 1 / 0, lambda _: None, lambda: "x"])
@awaited
async def test_a_template_that_fails_is_named_and_nothing_is_stored(template: Any) -> None:
    async with opened(MemoryStore(), model="gpt-5") as session:
        with pytest.raises(BadInput, match=r"template: the function (raised|returned)"):
            await session.ask("one", template=template)
        assert session.log == ()
