"""Forked sub-agents: they begin with the bytes of their parent, and hand back a result with a handle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import anyio.lowlevel
import pytest

from lamina import diff
from lamina.agent import Action, Agent, delegate_forked, fork_tasks
from lamina.caches import rules_for, simulator
from lamina.clients import client_for
from lamina.diagnose.compared import weigh_request
from lamina.dialects import DIALECTS, PlainHead, Usage
from lamina.errors import BadInput
from lamina.sessions import Recorded, Session
from lamina.sessions.answers import FORKED_TASK
from lamina.stores import MemoryStore
from lamina.testing import ScriptedAnswer, ScriptedClient
from lamina.testing.model_server import COUNTER, MODEL, run_model_server
from tests.agent.test_loop import SPOKEN
from tests.agent.working import SCHEMA, USED, calls, opened, reading, results
from tests.sessions.talking import awaited

LONG = "The lamp post stands beside the path that leads down to the harbour. " * 300


def worker(answers: Any, *, dialect: str = "openai_chat") -> Agent:
    return Agent(client=ScriptedClient(answers, dialect=dialect), actions=(reading(LONG),))


def lead_with(child: Agent, answers: Any) -> Agent:
    client = ScriptedClient(answers, dialect=child.client.dialect)
    return Agent(client=client, actions=(reading(LONG), delegate_forked(child)))


def sent_by(agent: Agent) -> list[dict[str, Any]]:
    """The requests of an agent with a scripted client."""
    assert isinstance(agent.client, ScriptedClient)
    return agent.client.requests


def stream_of(request: Any, dialect: str) -> Any:
    return DIALECTS[dialect].cache.stream(request)


@pytest.mark.parametrize("dialect", SPOKEN)
@awaited
async def test_the_first_request_of_a_child_goes_on_from_the_last_one_of_its_parent(dialect: str) -> None:
    child = worker([ScriptedAnswer(text="Twelve lamps.", used=USED)], dialect=dialect)
    lead = lead_with(child, [calls("read"), calls("delegate", task="Count the lamps"), "There are twelve."])
    async with opened(lead, MemoryStore()) as session:
        outcome = await lead.run(session, "How many lamps?")
        (link,) = [one for one in session.log if one.kind == "subagent_result"]
    parent_request = sent_by(lead)[1]
    child_request = sent_by(child)[0]
    before, after = stream_of(parent_request, dialect), stream_of(child_request, dialect)
    assert [block.data for block in after.blocks[: len(before.blocks)]] == [
        block.data for block in before.blocks
    ]
    assert len(after.blocks) > len(before.blocks)
    assert diff(parent_request, child_request).cause == "none"
    assert DIALECTS[dialect].wire.check(child_request) == []
    assert "Count the lamps" in json.dumps(child_request)
    assert outcome.text == "There are twelve."
    assert outcome.spent.steps == 4
    assert link.attrs["success"] == "true"


@awaited
async def test_the_parent_reads_the_steps_of_a_child_by_its_handle() -> None:
    store = MemoryStore()
    child = worker([calls("read", path="harbour.txt"), "Twelve lamps."])

    def lead_answers(request: Mapping[str, Any]) -> Any:
        """Delegate, recall what the child did, and answer."""
        text = json.dumps(request)
        if "its steps: recall(" not in text:
            return calls("delegate", task="Count the lamps")
        if "harbour.txt" in text:
            return "There are twelve."
        name = text.split("its steps: recall(")[1].split('\\"')[1]
        return calls("recall", key=name.strip("\\"), find="harbour.txt")

    lead = lead_with(child, lead_answers)
    async with opened(lead, store) as session:
        outcome = await lead.run(session, "How many lamps?")
        names = [one.attrs["subagent_id"] for one in session.log if one.kind == "subagent_result"]
        recalled = results(session)[-1]
    assert outcome.text == "There are twelve."
    assert "harbour.txt" in json.dumps([part.text for part in recalled.content if hasattr(part, "text")])
    assert not recalled.error
    async with opened(child, store, names[0]) as session:
        assert session.parent is not None
        assert session.parent.conversation == "a"


@awaited
async def test_a_recall_reads_no_conversation_that_is_not_a_child() -> None:
    store = MemoryStore()
    stranger = Agent(client=ScriptedClient(["The password is rosebud."]))
    async with opened(stranger, store, "private") as session:
        await stranger.run(session, "Tell me")
    child = worker(["Done."])
    lead = lead_with(child, [calls("delegate", task="Work"), calls("recall", key="private"), "Nothing."])
    async with opened(lead, store) as session:
        await lead.run(session, "Go")
        refused = results(session)[-1]
    assert refused.error
    assert "rosebud" not in json.dumps(sent_by(lead))


class SlowClient(ScriptedClient):
    """Notes when a request comes and when its answer begins, which takes a while."""

    def __init__(self, script: Any) -> None:
        super().__init__(script)
        self.order: list[str] = []

    async def _yield_items(self, items: Any, fails: Exception | None) -> Any:
        self.order.append("sent")
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        self.order.append("begins")
        async for item in super()._yield_items(items, fails):
            yield item


@awaited
async def test_children_wait_until_the_answer_of_the_first_one_begins() -> None:
    client = SlowClient(lambda _: "Done.")
    child = Agent(client=client)
    lead = Agent(client=ScriptedClient(["Hello."]))
    async with opened(lead, MemoryStore()) as session:
        await lead.run(session, "Read it")
        done = await fork_tasks(session, child, ["one", "two", "three"])
        kinds = [one.kind for one in session.log[-6:]]
    assert client.order == ["sent", "begins", "sent", "sent", "begins", "begins"]
    assert [each.task for each in done] == ["one", "two", "three"]
    assert len({each.child for each in done}) == 3
    assert kinds == ["spawn_subagent", "subagent_result"] * 3


@awaited
async def test_if_the_first_child_fails_the_others_do_not_wait_for_ever() -> None:
    def fail_first(request: Mapping[str, Any]) -> str:
        if "Task one" in json.dumps(request):
            raise RuntimeError("no answer")
        return "Done."

    child = Agent(client=ScriptedClient(fail_first))
    lead = Agent(client=ScriptedClient(["Hello."]))
    async with opened(lead, MemoryStore()) as session:
        await lead.run(session, "Hi")
        before = len(session.log)
        with pytest.raises(RuntimeError, match="no answer"), anyio.fail_after(20):
            await fork_tasks(session, child, ["Task one", "Task two"])
        assert len(session.log) == before


@pytest.mark.parametrize("children", [1, 4])
@awaited
async def test_a_cache_has_the_parents_bytes_for_every_child(children: int) -> None:
    """By the simulated cache of Anthropic: each child reads at least what its parent's request had."""
    child = worker(lambda _: "Done.", dialect="anthropic")
    lead = Agent(
        client=ScriptedClient([calls("read"), "Read."], dialect="anthropic"), actions=(reading(LONG),)
    )
    async with opened(lead, MemoryStore()) as session:
        await lead.run(session, "Read it")
        await fork_tasks(session, child, [f"Task {number}" for number in range(children)])
    requests = [*sent_by(lead), *sent_by(child)]
    rules = rules_for(requests[0]["model"], dialect="anthropic")
    cache = simulator(rules)
    tallies = []
    for at, request in enumerate(requests):
        stream = weigh_request(request, dialect="anthropic", counter=None).counted_stream
        tallies.append(cache.send(stream, at=float(at)))
    parents_last = tallies[1]
    assert parents_last.total > 1_000
    assert len(tallies) == 2 + children
    for tally in tallies[2:]:
        assert tally.read >= 0.95 * parents_last.total


@awaited
async def test_a_real_server_has_the_parents_bytes_cached() -> None:
    used: list[Usage] = []

    def note_usage(_: Session, recorded: Recorded) -> None:
        used.append(recorded.usage)

    with run_model_server(window=8192) as server:
        async with client_for("openai_chat", base_url=f"{server.url}/v1", api_key="none") as client:
            agent = Agent(client=client, after=(note_usage,))
            async with opened(agent, model=MODEL, counter=COUNTER, head=PlainHead(output=8)) as session:
                await agent.run(session, "Read this: " + LONG[:2_000])
                await fork_tasks(session, agent, ["Count the lamps", "Count the posts"])
    parent, *children = used
    assert parent.input > 2_000
    for child in children:
        assert child.cached >= parent.input - 20, "all but the end of the prompt, where the answer begins"


@awaited
async def test_a_fork_with_a_task_leaves_calls_without_results_behind() -> None:
    lead = Agent(client=ScriptedClient([]), actions=(reading(LONG),))
    async with opened(lead, MemoryStore()) as session:
        await session.ask("Read it")
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
        }
        await session.record({"choices": [{"message": message}]})
        fork = await session.fork(task="Count")
        kinds = [one.kind for one in fork.log]
        assert kinds[-2:] == ["user", "parent_message"]
        assert fork.pending
        assert FORKED_TASK in fork.log[-1].parts[0].text  # type: ignore[union-attr]
        assert session.calls[0].id == "c1"


@awaited
async def test_an_action_that_needs_a_session_says_so() -> None:
    action = delegate_forked(Agent(client=ScriptedClient([])))
    with pytest.raises(BadInput, match="not bound to a session"):
        await action.run({"task": "x"})
    plain = reading()
    assert plain.bound_to(None) is plain
    assert isinstance(action, Action)
    assert SCHEMA["type"] == "object"
