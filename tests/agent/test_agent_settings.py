"""One-shot tools, answers from search, sub-agents, notes: the loop in its other settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import pytest

from lamina.agent import (
    EXPLORER,
    PLANNING,
    Action,
    Agent,
    ModelPlan,
    PlannedCalls,
    TurnLimits,
    approve_always,
    delegate,
    guidelines,
    hand_over,
    scratchpad,
    search_action,
)
from lamina.agent.actions import add_question
from lamina.agent.ready_actions import LARGEST
from lamina.clients import UsageEvent
from lamina.context.search import chunks_of, open_index
from lamina.core import KINDS, Kind, Text, ToolCall
from lamina.core.values import Layer, Role, Segment
from lamina.dialects import DIALECTS, Tool
from lamina.segments import excerpt, file, note
from lamina.sessions import Session
from lamina.stores import MemoryStore
from lamina.summaries import Condense, Question
from lamina.testing import ScriptedAnswer, ScriptedClient
from tests.agent.test_loop import SPOKEN
from tests.agent.working import USED, calls, opened, reading, result_text, results
from tests.sessions.talking import awaited


@pytest.mark.parametrize("dialect", SPOKEN)
@awaited
async def test_one_shot_tools_run_before_the_question_and_the_model_answers_once(dialect: str) -> None:
    client = ScriptedClient(
        [calls("read", "search"), ScriptedAnswer(text="Twelve.", used=USED)], dialect=dialect
    )
    actions = (reading("there are 12 lamps"), reading("nothing", name="search", searches=True))
    agent = Agent(client=client, actions=actions, plan=ModelPlan(client, "gpt-5", actions))
    async with opened(agent, recall="off") as session:
        outcome = await agent.run(session, "How many lamps?")
        kinds = [segment.kind for segment in session.log]
    assert (outcome.text, outcome.spent.steps) == ("Twelve.", 2)
    assert [call.name for call in outcome.ran] == ["read", "search"]
    assert kinds == ["excerpt", "excerpt", "user", "assistant"]
    plan, answer = (json.dumps(request) for request in client.requests)
    assert "tools" in plan
    assert "function" not in answer
    assert answer.index("there are 12 lamps") < answer.index("nothing") < answer.index("How many lamps?")
    assert [DIALECTS[dialect].wire.check(request) for request in client.requests] == [[], []]


@pytest.mark.parametrize("dialect", SPOKEN)
@awaited
async def test_what_a_plan_looked_up_stands_before_what_the_user_attached(dialect: str) -> None:
    """In the log and in the request: the user's own files stand nearest to the question."""
    client = ScriptedClient([calls("read"), ScriptedAnswer(text="Twelve.", used=USED)], dialect=dialect)
    actions = (reading("looked up"),)
    agent = Agent(client=client, actions=actions, plan=ModelPlan(client, "gpt-5", actions))
    async with opened(agent, recall="off") as session:
        await agent.run(session, "How many?", attach=[file("own.txt", "attached")])
        assert [segment.kind for segment in session.log] == ["excerpt", "file", "user", "assistant"]
    answer = json.dumps(client.requests[1])
    assert answer.index("looked up") < answer.index("attached") < answer.index("How many?")


@pytest.mark.parametrize("told_to", [PLANNING, "Call what you need."])
@pytest.mark.parametrize("dialect", SPOKEN)
@awaited
async def test_the_planner_is_told_to_plan_and_only_the_planner(dialect: str, told_to: str) -> None:
    client = ScriptedClient([calls("read"), ScriptedAnswer(text="Twelve.", used=USED)], dialect=dialect)
    actions = (reading(),)
    plan = ModelPlan(client, "gpt-5", actions, instructions=told_to)
    async with opened(agent := Agent(client=client, actions=actions, plan=plan)) as session:
        await agent.run(session, "How many?")
    planned, answered = (DIALECTS[dialect].wire.parse(request).log for request in client.requests)
    assert [(one.role, result_text(one)) for one in planned] == [
        (Role.SYSTEM, told_to),
        (Role.USER, "How many?"),
    ]
    assert not any(told_to in result_text(one) for one in answered)


@awaited
async def test_a_plan_has_the_tools_and_the_answer_has_none() -> None:
    client = ScriptedClient([ScriptedAnswer(text="", used=USED), ScriptedAnswer(text="Twelve.", used=USED)])
    actions = (reading(), reading(name="search"))
    agent = Agent(client=client, actions=actions, plan=ModelPlan(client, "gpt-5", actions))
    async with opened(agent, recall="off") as session:
        assert (await agent.run(session, "How many?")).ran == ()
    planned, answered = client.requests
    assert [tool["function"]["name"] for tool in planned["tools"]] == ["read", "search"]
    assert "tools" not in answered


@awaited
async def test_two_turns_at_once_may_share_a_plan_and_each_pays_for_its_own() -> None:
    """The first plan is slow: the second one is made, and its turn ends, before the first has its usage."""
    hold, seen = anyio.Event(), dict[str, int]()

    async def first_waits(prompt: str) -> PlannedCalls:
        if prompt == "slow":
            await hold.wait()
        return await plan(prompt)

    client = ScriptedClient(
        [
            ScriptedAnswer(text="", used=UsageEvent(input=7)),
            ScriptedAnswer(text="Quick.", used=UsageEvent(input=100)),
            ScriptedAnswer(text="", used=UsageEvent(input=5_000)),
            ScriptedAnswer(text="Slow.", used=UsageEvent(input=100)),
        ]
    )
    plan = ModelPlan(client, "gpt-5", ())
    agent = Agent(client=client, plan=first_waits)

    async def turn(prompt: str) -> None:
        async with opened(agent, name=prompt) as session:
            seen[prompt] = (await agent.run(session, prompt)).spent.input
        hold.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turn, "slow")
        tasks.start_soon(turn, "quick")
    assert seen == {"quick": 107, "slow": 5_100}
    assert not hasattr(plan, "usage")


@awaited
async def test_a_session_plans_its_cache_markers_unless_it_is_told_to_keep_them() -> None:
    """The request of an agent is marked at its end, where the next step of the turn goes on."""
    long = "A line that makes the request worth a marker. " * 400
    ways: tuple[tuple[dict[str, Any], bool], ...] = (({}, True), ({"breakpoints": "keep"}, False))
    for arguments, marked in ways:
        client = ScriptedClient([calls("read"), ScriptedAnswer(text="Done.", used=USED)], dialect="anthropic")
        agent = Agent(client=client, actions=(reading(long),))
        async with opened(agent, system=long, **arguments) as session:
            await agent.run(session, "Read it.")
        for request in client.requests:
            assert ("cache_control" in json.dumps(request["messages"][-1])) is marked
            assert ("cache_control" in json.dumps(request["system"])) is marked


@awaited
async def test_attachments_that_are_too_much_are_condensed_before_the_model_is_asked() -> None:
    questions: list[Question] = []

    async def write(question: Question) -> str:
        questions.append(question)
        return "long.md says that lamps are lit at dusk."

    client = ScriptedClient(["At dusk."])
    agent = Agent(client=client)
    long = note("long.md", "The note says that lamps are lit at dusk. " * 800)
    async with opened(agent, recall="off") as session:
        condense = Condense(write=write, limit=500)
        outcome = await agent.run(session, "When?", attach=[long], condense=condense)
    assert (outcome.text, len(questions)) == ("At dusk.", 1)
    assert len(json.dumps(client.requests[0])) < 2_000
    assert "long.md says that lamps are lit at dusk." in json.dumps(client.requests[0])


@awaited
async def test_a_plan_may_be_the_applications_own() -> None:
    async def commands(prompt: str) -> list[ToolCall]:
        return [ToolCall(id="1", name="read", arguments='{"path": "x"}')] if "@read" in prompt else []

    client = ScriptedClient(["One.", "Two."])
    agent = Agent(client=client, actions=(reading(),), plan=commands)
    async with opened(agent) as session:
        assert (await agent.run(session, "@read this")).ran[0].name == "read"
        assert (await agent.run(session, "and that")).ran == ()


@awaited
async def test_an_answer_from_search_names_the_segments_that_it_cites() -> None:
    async def search(_: str, __: int | None) -> list[Segment]:
        return [
            excerpt("The lamp has 12 volts.", source="docs/lamp.md", place="12-30", key="lamp"),
            excerpt("Lamps are lit at dusk.", source="docs/dusk.md", key="dusk"),
        ]

    answer_text = "It has 12 volts [[docs/lamp.md:12-30]], really [[docs/lamp.md]]; see [[docs/moon.md]]."
    agent = Agent(client=ScriptedClient([answer_text]), cites=True)
    async with opened(agent, sources=[search]) as session:
        outcome = await agent.run(session, "How many volts?")
        request = await session.request()
    assert [(one.key, one.source, one.place) for one in outcome.citations] == [
        ("lamp", "docs/lamp.md", "12-30")
    ]
    assert outcome.unfounded == ("docs/moon.md",)
    assert "[[source]]" in request["messages"][0]["content"]


@awaited
async def test_an_answer_cites_attachments_of_kinds_that_the_application_made() -> None:
    ticket = Kind(tag="ticket", role=Role.USER, layer=Layer.TURN, attachment=True, attributes=("name",))
    kinds = {**KINDS, "ticket": ticket}
    segment_given = Segment(
        role=Role.USER, kind="ticket", parts=(Text("The lamp is broken."),), key="T-7", attrs={"name": "T-7"}
    )
    agent = Agent(client=ScriptedClient(["It is broken [[T-7]]."]), cites=True)
    async with opened(agent, kinds=kinds) as session:
        outcome = await agent.run(session, "What is wrong?", attach=[segment_given])
    assert [one.key for one in outcome.citations] == ["T-7"]
    assert outcome.unfounded == ()


def children(
    agent: Agent, store: MemoryStore, names: list[str]
) -> Callable[[str], AbstractAsyncContextManager[Session]]:
    def opens(name: str) -> AbstractAsyncContextManager[Session]:
        names.append(name)
        return opened(agent, store, name)

    return opens


@pytest.mark.parametrize("dialect", SPOKEN)
@awaited
async def test_a_sub_agent_has_a_conversation_of_its_own_linked_on_both_sides(dialect: str) -> None:
    store, names = MemoryStore(), list[str]()
    child = Agent(
        client=ScriptedClient([calls("read"), ScriptedAnswer(text="Twelve.", used=USED)], dialect=dialect),
        actions=(reading(),),
    )
    tool = delegate(child, children(child, store, names), parent="a")
    client = ScriptedClient([calls("delegate", task="Count the lamps"), "There are twelve."], dialect=dialect)
    agent = Agent(client=client, actions=(tool,))
    async with opened(agent, store) as session:
        outcome = await agent.run(session, "How many lamps?")
        (link,) = [one for one in session.log if one.kind == "subagent_result"]
        assert link.attrs == {"subagent_id": names[0], "success": "true"}
        assert session.turns == 1
    assert outcome.spent.steps == 4
    assert "Twelve." in json.dumps(client.requests[1])
    assert "a.txt: content" not in json.dumps(client.requests[1])
    assert DIALECTS[dialect].wire.check(client.requests[1]) == []
    async with opened(child, store, names[0]) as session:
        first = next(one for one in session.log if one.kind == "parent_message")
        assert (result_text(first), first.attrs) == ("Count the lamps", {"parent_agent_id": "a"})
        assert results(session)


@awaited
async def test_the_same_task_given_twice_has_two_conversations() -> None:
    store, names = MemoryStore(), list[str]()
    child = Agent(client=ScriptedClient(lambda _: "Done."))
    tool = delegate(child, children(child, store, names), parent="a")
    agent = Agent(
        client=ScriptedClient([calls("delegate", "delegate", task="Count"), "Yes."]), actions=(tool,)
    )
    async with opened(agent, store) as session:
        await agent.run(session, "Go")
    assert len(set(names)) == 2


@awaited
async def test_an_application_hands_over_between_two_turns() -> None:
    store, names = MemoryStore(), list[str]()
    child = Agent(client=ScriptedClient(["Twelve."]))
    client = ScriptedClient(["Hello.", "As I heard: twelve."])
    agent = Agent(client=client)
    async with opened(agent, store) as session:
        await agent.run(session, "Hello")
        outcome = await hand_over(session, child, children(child, store, names), "Count the lamps")
        await agent.run(session, "And?")
        kinds = [one.kind for one in session.log if one.attrs.get("subagent_id") == names[0]]
    assert outcome.text == "Twelve."
    assert kinds == ["spawn_subagent", "subagent_result"]
    assert "Twelve." in json.dumps(client.requests[1])


@awaited
async def test_a_task_that_is_given_again_later_is_done_again() -> None:
    store, names = MemoryStore(), list[str]()
    child = Agent(client=ScriptedClient(["Twelve.", "Thirteen."]))
    for answer_text in ("Twelve.", "Thirteen."):
        tool = delegate(child, children(child, store, names), parent="a")  # as after a restart
        child_result: Any = await tool.run({"task": "Count"})
        assert result_text(child_result.parts[0]) == answer_text
    assert len(set(names)) == 2


@awaited
async def test_notes_outlive_the_conversation(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    for text in ("lamps: 12", "dusk: 18:40"):
        agent = Agent(
            client=ScriptedClient([calls("note_down", text=text), calls("read_notes", text="x"), "ok"]),
            actions=scratchpad(path),
        )
        async with opened(agent) as session:
            await agent.run(session, "Go")
            last = result_text(results(session)[-1])
    assert last == "lamps: 12\ndusk: 18:40\n"
    agent = Agent(
        client=ScriptedClient([calls("note_down", text="x" * LARGEST), "ok"]), actions=scratchpad(path)
    )
    async with opened(agent) as session:
        await agent.run(session, "Go")
        assert "bytes already" in result_text(results(session)[0])
    assert path.read_text("utf-8") == last


@awaited
async def test_persona_and_guidelines_stand_in_the_system_text_and_stay_there() -> None:
    client = ScriptedClient([calls("read"), "Done.", "Again."])
    agent = Agent(
        client=client, actions=(reading(guideline="read before you answer"),), approve=approve_always
    )
    async with opened(agent, persona=EXPLORER, system="Be kind.") as session:
        await agent.run(session, "Go")
        await agent.run(session, "Again")
    systems = [[m for m in request["messages"] if m["role"] == "system"] for request in client.requests]
    assert systems[0] == systems[1] == systems[2]
    text = json.dumps(systems[0])
    assert (
        text.index("Be kind.") < text.index("- read: read before you answer") < text.index("Explore before")
    )


def test_guidelines_without_tools_say_nothing() -> None:
    assert guidelines((), recall=False) == ""
    assert "recall" in guidelines((reading(),))


def test_the_question_is_not_said_twice() -> None:
    assert add_question("context block", "What?") == "context block\n\n[The user's question]: What?"
    assert add_question("  ", "What?") == "What?"
    assert add_question("context\n\nWhat?", "What?") == "context\n\nWhat?"
    assert add_question("context", "") == "context"


def test_limits_that_are_none_are_refused() -> None:
    for wrong in ({"steps": 0}, {"tokens": -1}, {"money": 0.0}, {"parallel": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            TurnLimits(**wrong)


@awaited
async def test_what_a_search_finds_is_shown_with_its_place() -> None:
    async def run(_: dict[str, Any]) -> list[Segment]:
        return [excerpt("12 volts", source="lamp.md", place="3"), excerpt("dusk", source="dusk.md")]

    find = Action(tool=Tool(name="search"), run=run, searches=True)
    agent = Agent(client=ScriptedClient([calls("search"), "Found."]), actions=(find,))
    async with opened(agent) as session:
        await agent.run(session, "Volts?")
        (result_found,) = results(session)
    assert (
        result_text(result_found)
        == "[lamp.md 3]\n12 volts\n\n[dusk.md]\ndusk\n\n[The user's question]: Volts?"
    )


@awaited
async def test_an_index_is_searched_by_an_action() -> None:
    async with open_index() as index:
        await index.add("lamp.md", chunks_of("lamp.md", "# Lamp\n\nThe lamp has twelve volts.\n"))
        agent = Agent(
            client=ScriptedClient([calls("search", query="volts lamp"), "Ok."]),
            actions=(search_action(index),),
        )
        async with opened(agent) as session:
            await agent.run(session, "Volts?")
            (result_found,) = results(session)
    assert not result_found.error
    assert "twelve volts" in result_text(result_found)
