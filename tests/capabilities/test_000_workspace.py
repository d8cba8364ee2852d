"""Capabilities 1 to 8, of system 000: a workspace with personas, histories and attachments by priority."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lamina import Budget, Form, Layer, Policy
from lamina.agent import EXPLORER, Agent, ToolRunEvent, approve_always, open_for, workspace_actions
from lamina.clients.events import TextEvent
from lamina.clients.scripted import ScriptedAnswer, ScriptedClient
from lamina.context.relevance import Relevance
from lamina.context.tools import workspace_tools
from lamina.core.kinds import HIGH, LOW, MEDIUM
from lamina.core.layout import Cap, Layout
from lamina.core.tokens import BYTES4
from lamina.core.wording import text_of
from lamina.segments import file, user
from lamina.sessions import LastN, Persona, Session, SetupOptions, Stored
from lamina.stores.memory import MemoryStore
from lamina.summaries import Question, compact, suggest_priorities
from lamina.workspace.workspace import Workspace
from tests.capabilities.walking import (
    NO_SETTINGS,
    awaited,
    calling,
    exchange,
    in_layer,
    lowered,
    messages,
    talking,
    wire,
)

LIMITS = "# Limits\n\nAt most 20 requests a minute.\n"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A workspace with two files, beside one that belongs to somebody else."""
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "limits.md").write_text(LIMITS, encoding="utf-8")
    (folder / "client.py").write_text("def retry(request): ...\n", encoding="utf-8")
    (tmp_path / "bank").mkdir()
    (tmp_path / "bank" / "vault.md").write_text("the combination is 1-2-3", encoding="utf-8")
    return folder


def test_01_persona_history_and_attachments_leave_in_one_request() -> None:
    with talking(persona="You are a coworker.") as session:
        exchange(session, "Hello", "Good morning.")
        session.ask("How many?", attach=[file("limits.md", LIMITS)])
        assert messages(session.request()) == [
            ("system", "<persona>\nYou are a coworker.\n</persona>"),
            ("user", "Hello"),
            ("assistant", "Good morning."),
            ("user", f'<file_context path="limits.md">\n{LIMITS}\n</file_context>'),
            ("user", "How many?"),
        ]
        account = session.explain()
        assert [row.layer for row in account.rows] == [
            Layer.SYSTEM, Layer.HISTORY, Layer.HISTORY, Layer.TURN, Layer.PROMPT,
        ]  # fmt: skip
        assert sum(account.layers.values()) + account.request + account.margin == account.tokens


def sized(path: str, tokens: int, **fields: Any) -> Any:
    """A file that takes so many tokens of four bytes, its tag included."""
    around = len(f'<file_context path="{path}">\n\n</file_context>')
    return file(path, "x" * (4 * tokens - around), **fields)


def test_02_attachments_are_pruned_to_a_limit_by_priority_and_essential_ones_stay() -> None:
    given = [
        sized("minor.md", 100, priority=LOW),
        sized("rules.md", 100, priority=LOW, pinned=True),
        sized("usual.md", 100, priority=MEDIUM),
        sized("major.md", 100, priority=HIGH),
    ]
    layout = Layout(attachments=Cap(tokens=200, form=Form.OMITTED))
    with talking(layout=layout, counter=BYTES4) as session:
        session.ask("What do they say?", attach=given)
        assert in_layer(session.envelope, Layer.TURN) == ["rules.md", "major.md"]
        assert lowered(session.envelope) == dict.fromkeys(
            ("minor.md", "usual.md"), "over the cap on attachments"
        )
        sent = wire(session.request())
        assert sent.index("rules.md") < sent.index("major.md")
        assert "minor.md" not in sent
        assert session.recall("minor.md").text == text_of(given[0].parts)


def test_02_the_last_of_two_attachments_with_one_key_in_a_turn_is_sent() -> None:
    with talking() as session:
        session.ask("Which?", attach=[file("a.md", "the old words"), file("a.md", "the new words")])
        attached, question = messages(session.request())
        assert attached == ("user", '<file_context path="a.md">\nthe new words\n</file_context>')
        assert question == ("user", "Which?")
        replaced = session.explain().rows[0]
        assert replaced.why.startswith("replaced in the same turn by a.md")
        assert session.recall(replaced.recall).text == "the old words"


def test_03_history_is_a_sliding_window_and_what_left_it_can_be_recalled() -> None:
    filler = "with some more words that make the message longer than its digest. " * 4
    with talking(history=LastN(4, slack=0)) as session:
        for number in range(5):
            exchange(session, f"Question {number}, {filler}", f"Answer {number}, {filler}")
        session.ask("And now?")
        kept = [text for _, text in messages(session.request()) if text.startswith(("Question", "Answer"))]
        assert [text.partition(",")[0] for text in kept] == [
            "Question 3", "Answer 3", "Question 4", "Answer 4",
        ]  # fmt: skip
        keys = [fold.key for fold in session.ledger.folds]
        recalled = "\n".join(session.recall(key).text for key in keys)
        assert all(f"Question {number}, {filler}".strip() in recalled for number in range(3))
        assert all(f"Answer {number}, {filler}".strip() in recalled for number in range(3))


def test_03_history_is_pruned_by_tokens_and_the_prompt_stays() -> None:
    budget = Budget(window=2_000, reserve=0)
    with talking(budget=budget, persona="You are a coworker.") as session:
        sizes = []
        for number in range(12):
            exchange(session, f"Question {number}?", f"Answer {number}. " * 60)
            sizes.append(session.envelope.tokens if session.envelope else 0)
        assert session.ledger.cuts
        assert max(sizes) <= budget.window
        session.ask("The last question?")
        first, *_, last = messages(session.request())
        assert first == ("system", "<persona>\nYou are a coworker.\n</persona>")
        assert last == ("user", "The last question?")


@awaited
async def test_03_old_history_is_summarised_by_a_model_when_it_is_asked_for() -> None:
    asked: list[Question] = []

    async def write(question: Question) -> str:
        asked.append(question)
        return "The user asked about floors 0 to 5; lamps are lit at dusk on each of them."

    async with Session.open(
        MemoryStore(), "chat", model="gpt-5", policy=Policy(counter=BYTES4), settings=NO_SETTINGS
    ) as session:
        for number in range(6):
            await session.ask(f"When are the lamps on floor {number} lit?")
            await session.record(f"The lamps on floor {number} are lit at dusk. " * 30)
        await compact(session, write)
        await session.ask("And on the roof?")
        sent = wire(await session.request())
        assert len(asked) == 1
        assert "lamps are lit at dusk on each of them" in sent
        assert "The lamps on floor 0 are lit at dusk. The lamps" not in sent
        summary = next(one for one in session.log if one.kind == "progress_summary")
        assert summary.covers
        assert "on floor 0" in session.recall(summary.covers[0]).text


def test_04_a_persona_has_a_default_a_workspace_and_a_user(tmp_path: Path) -> None:
    store = MemoryStore()
    team = tmp_path / "team.md"
    team.write_text("This workspace sells lamps.", encoding="utf-8")
    with talking(store, "about-ana", workspace="shop") as kept:
        kept.add(user("Ana prefers short answers."))
    who = Persona(default="You are a coworker.", workspace=team, user=Stored("about-ana"))
    with talking(store, persona=who, workspace="shop") as session:
        session.ask("Hello")
        *system, question = messages(session.request())
        assert [role for role, _ in system] == ["system"] * 3
        words = ("You are a coworker.", "This workspace sells lamps.", "Ana prefers short answers.")
        assert all(part in text for part, (_, text) in zip(words, system, strict=True))
        assert question == ("user", "Hello")


@awaited
async def test_04_the_persona_of_a_chat_stands_when_an_agent_opens_it_again() -> None:
    store = MemoryStore()
    client = ScriptedClient(["Arr.", "Arr again."])
    helper = Agent(client=client)
    async with open_for(
        helper, store, "chat", model="gpt-5", persona="You are a pirate.", settings=NO_SETTINGS
    ) as session:
        await helper.run(session, "Hello")
    async with open_for(helper, store, "chat", settings=NO_SETTINGS) as session:
        await helper.run(session, "Again")
    first, second = map(messages, client.requests)
    assert any(role == "system" and "You are a pirate." in text for role, text in first)
    assert second[: len(first)] == first
    assert not any(EXPLORER in text for _, text in second)


@awaited
async def test_04_an_agent_chat_keeps_settings_of_the_application() -> None:
    store = MemoryStore()
    helper = Agent(client=ScriptedClient(["Hello."]))
    own = SetupOptions(agent={"voice": "calm"})
    async with open_for(helper, store, "chat", model="gpt-5", settings=NO_SETTINGS, setup=own) as session:
        await helper.run(session, "Hello")
    async with open_for(helper, store, "chat", settings=NO_SETTINGS) as session:
        assert session.setup.agent == {"voice": "calm"}


@awaited
async def test_04_an_empty_chat_has_its_persona() -> None:
    async with Session.open(
        MemoryStore(), "chat", model="gpt-5", persona="You are a coworker.", settings=NO_SETTINGS
    ) as session:
        envelope = await session.build()
        assert [entry.segment.kind for entry in envelope.sent] == ["persona"]


def test_05_what_the_prompt_is_about_is_lowered_last() -> None:
    lamps = file("lamps.md", "Twelve lamps light the porch at dusk.\n" * 120)
    paint = file("paint.md", "Crimson and teal are the colours of the shop.\n" * 120)
    irrelevant_for = {"Which colours has the shop?": "lamps.md", "Where are the lamps?": "paint.md"}
    for question, irrelevant in irrelevant_for.items():
        budget = Budget(window=8_000, reserve=0)
        with talking(budget=budget, order=Relevance(freshness="fresh")) as session:
            exchange(session, "Two files for you.", "Thank you.", attach=[lamps, paint])
            session.ask(question)
            reasons = lowered(session.envelope)
            assert list(reasons) == [irrelevant]
            assert "shares nothing" in reasons[irrelevant]


@awaited
async def test_05_a_model_suggests_priorities_once_and_they_are_kept() -> None:
    questions: list[Question] = []

    async def rank(question: Question) -> str:
        questions.append(question)
        return '{"1": 10, "2": 3}'

    order = Relevance(suggest=partial(suggest_priorities, write=rank))
    store = MemoryStore()
    policy = Policy(order=order)
    given: dict[str, Any] = {"model": "gpt-5", "policy": policy, "settings": NO_SETTINGS}
    async with Session.open(store, "chat", **given) as session:
        attached = [file("rivers.md", "Rivers."), file("cities.md", "Cities.")]
        await session.ask("Which cities?", attach=attached)
    async with Session.open(store, "chat", **given) as session:
        await session.request()
        priorities = {one.key: one.priority for one in session.log if one.kind == "file"}
    assert priorities == {"rivers.md": 10, "cities.md": 3}
    assert len(questions) == 1


def test_06_files_and_chats_of_another_workspace_are_left_out_and_reported(shop: Path) -> None:
    (shop / "shortcut.md").symlink_to(shop.parent / "bank" / "vault.md")
    theirs = file("theirs.md", "the combination is 1-2-3", meta={"workspace": "bank"})
    store = MemoryStore()
    with talking(store, workspace="bank") as session:
        exchange(session, "What is the combination?", "It is 1-2-3.")
    with talking(store, workspace="shop", root=shop) as session:
        assert session.log == ()
        session.ask("Hello", attach=["limits.md", theirs, "../bank/vault.md", "shortcut.md"])
        assert in_layer(session.envelope, Layer.TURN) == ["limits.md"]
        assert "1-2-3" not in wire(session.request())
        assert len(session.notes) == 3
        assert not any("1-2-3" in note for note in session.notes)
        assert session.report().metrics.left_out == 3


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in folder.iterdir()}


@awaited
async def test_07_a_model_lists_reads_writes_moves_edits_finds_and_removes_files(shop: Path) -> None:
    script: list[ScriptedAnswer | str] = [
        calling("ls", path="."),
        calling("read", path="limits.md"),
        calling("grep", pattern="def \\w+"),
        calling("edit", path="limits.md", old="20 requests", new="30 requests"),
        calling("write", path="notes.md", content="Remember the lamps."),
        calling("touch", path="empty.md"),
        calling("mv", path="notes.md", to="kept.md"),
        calling("rm", path="client.py"),
        "Done.",
    ]
    tools = workspace_tools(Workspace(shop))
    schemas = {tool.name: set(tool.definition["schema"]["properties"]) for tool in tools}
    assert set(schemas) == {"ls", "read", "grep", "edit", "write", "touch", "mv", "rm"}
    client = ScriptedClient(script)
    helper = Agent(client=client, actions=workspace_actions(tools), approve=approve_always)
    async with open_for(helper, MemoryStore(), "chat", model="gpt-5", settings=NO_SETTINGS) as session:
        outcome = await helper.run(session, "Tidy up.")
    assert [call.name for call in outcome.ran] == [
        "ls", "read", "grep", "edit", "write", "touch", "mv", "rm",
    ]  # fmt: skip
    assert contents(shop) == {
        "empty.md": "",
        "kept.md": "Remember the lamps.",
        "limits.md": LIMITS.replace("20", "30"),
    }
    results = [text for role, text in messages(client.requests[-1]) if role == "tool"]
    assert results[1] == LIMITS.strip()
    assert "client.py:1: def retry" in results[2]


@awaited
async def test_08_ids_become_a_request_that_is_streamed_and_tools_answer_in_it(shop: Path) -> None:
    store = MemoryStore()
    client = ScriptedClient([calling("read", path="limits.md"), "At most 20 a minute.", "Yes."])
    helper = Agent(client=client, actions=workspace_actions(workspace_tools(Workspace(shop))))
    streamed: list[str] = []
    ran: list[str] = []

    async def hear(event: Any) -> None:
        if isinstance(event, TextEvent):
            streamed.append(event.text)
        elif isinstance(event, ToolRunEvent):
            ran.append(event.call.name)

    async with open_for(
        helper, store, "chat-17", model="gpt-5", workspace="shop", root=shop, settings=NO_SETTINGS
    ) as session:
        outcome = await helper.run(session, "How many?", attach=["client.py"], hear=hear)
    assert (outcome.text, ran) == ("At most 20 a minute.", ["read"])
    assert len(streamed) > 1
    assert "".join(streamed) == outcome.text
    async with open_for(helper, store, "chat-17", workspace="shop", settings=NO_SETTINGS) as session:
        await helper.run(session, "Are you sure?")
    asked, answered, later = map(messages, client.requests)
    assert any(role == "system" and EXPLORER in text for role, text in asked)
    assert answered[: len(asked)] == asked
    assert later[: len(answered)] == answered
    assert later[-1] == ("user", "Are you sure?")
    assert {tool["function"]["name"] for tool in client.requests[0]["tools"]} >= {"ls", "read", "grep"}


# what the document says beside the capabilities


def test_f_a_chat_goes_on_with_the_persona_and_the_settings_that_it_was_opened_with() -> None:
    store = MemoryStore()
    with talking(store, persona="You are a pirate.", agent={"voice": "calm"}) as session:
        first = exchange(session, "Hello", "Arr.")
    with talking(store, model=None) as session:
        session.ask("Again")
        second = session.request()
        assert (session.setup.model, session.setup.agent) == ("gpt-5", {"voice": "calm"})
    assert messages(second)[: len(messages(first))] == messages(first)
    assert messages(second)[0] == ("system", "<persona>\nYou are a pirate.\n</persona>")
