from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from lamina.agent import Action, Agent, ToolRunEvent, TurnCost, TurnEvent, TurnLimits, approve_always
from lamina.agent.loop import INTERRUPTED
from lamina.clients import Reply, RequestRefused, TextEvent, Unreachable, UsageEvent
from lamina.clients.openai import CHAT_FORMAT
from lamina.conversations.costs import price_usage
from lamina.core.values import Budget, Layer, Role
from lamina.dialects import DIALECTS, Tool, Usage
from lamina.errors import BadInput
from lamina.models import model
from lamina.sessions import Recorded, Session
from lamina.stores import MemoryStore
from lamina.testing import ScriptedAnswer, ScriptedClient
from tests.agent.working import SCHEMA, calls, opened, reading, result_text, results
from tests.sessions.talking import answer, awaited

SPOKEN = ("openai_chat", "openai_responses", "anthropic", "gemini", "ollama")


@pytest.mark.parametrize("dialect", SPOKEN)
@awaited
async def test_calls_are_carried_out_and_their_results_are_read_in_the_next_step(dialect: str) -> None:
    client = ScriptedClient([calls("read", "read", said="Reading."), "It says so."], dialect=dialect)
    agent = Agent(client=client, actions=(reading("the answer is 12"),))
    async with opened(agent) as session:
        outcome = await agent.run(session, "What is it?")
        assert (outcome.text, outcome.ending, outcome.spent.steps) == ("It says so.", "end", 2)
        assert [call.name for call in outcome.ran] == ["read", "read"]
        spoken = [entry for entry in (await session.build()).entries if entry.role is not Role.SYSTEM]
        layers = [entry.layer for entry in spoken]
    assert json.dumps(client.requests[1]).count("a.txt: the answer is 12") == 2
    assert layers == [Layer.PROMPT] + [Layer.STEPS] * 6
    assert [DIALECTS[dialect].wire.check(request) for request in client.requests] == [[], []]


@awaited
async def test_a_chat_is_the_loop_without_actions() -> None:
    client = ScriptedClient([ScriptedAnswer(text="Hello you.", thinking="Who is it?"), "Still here."])
    heard: list[TurnEvent] = []

    async def hear(event: TurnEvent) -> None:
        heard.append(event)

    agent = Agent(client=client)
    async with opened(agent, recall="off") as session:
        await agent.run(session, "Hello", hear=hear)
        await agent.run(session, "And now?")
        texts = [one.text for one in session.dialogue()]
    assert texts == ["Hello", "Hello you.", "And now?", "Still here."]
    assert "".join(event.text for event in heard if isinstance(event, TextEvent)) == "Hello you."
    assert "tools" not in client.requests[0]


@awaited
async def test_reads_run_side_by_side_and_a_write_alone_in_its_place() -> None:
    order: list[str] = []

    def slow(name: str, *, writes: bool = False) -> Action:
        async def run(_: dict[str, Any]) -> str:
            order.append(f"{name} begins")
            await anyio.sleep(0.01)
            order.append(f"{name} ends")
            return name

        return Action(tool=Tool(name=name, schema=SCHEMA), run=run, writes=writes)

    client = ScriptedClient([calls("a", "b", "write", "a"), "Done."])
    agent = Agent(
        client=client, actions=(slow("a"), slow("b"), slow("write", writes=True)), approve=approve_always
    )
    async with opened(agent) as session:
        await agent.run(session, "Go")
        assert [result_text(one) for one in results(session)] == ["a", "b", "write", "a"]
    assert order[:2] == ["a begins", "b begins"]
    assert order[4:] == ["write begins", "write ends", "a begins", "a ends"]


@pytest.mark.parametrize(
    ("approve", "why"),
    [
        (None, "nobody is there"),
        (False, "did not approve"),
        ("not on a Friday", "not on a Friday"),
        (True, ""),
    ],
)
@awaited
async def test_what_writes_is_done_only_if_it_is_approved(approve: Any, why: str) -> None:
    done: list[str] = []

    async def write(arguments: dict[str, Any]) -> str:
        done.append(arguments["path"])
        return "written"

    async def decide(_: Any, __: Any) -> Any:
        return approve

    action = Action(tool=Tool(name="write", schema=SCHEMA), run=write, writes=True)
    approver = None if approve is None else decide
    agent = Agent(client=ScriptedClient([calls("write"), "Done."]), actions=(action,), approve=approver)
    async with opened(agent) as session:
        await agent.run(session, "Write it")
        (result,) = results(session)
    assert done == (["a.txt"] if approve is True else [])
    assert result.error is (approve is not True)
    assert why in result_text(result)


@awaited
async def test_an_approval_that_fails_is_none() -> None:
    async def broken(_: Any, __: Any) -> bool:
        raise OSError("no terminal")

    agent = Agent(
        client=ScriptedClient([calls("read"), "Ok."]), actions=(reading(writes=True),), approve=broken
    )
    async with opened(agent) as session:
        await agent.run(session, "Go")
        assert "approval failed: OSError('no terminal')" in result_text(results(session)[0])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ('{"path": ', "not JSON"),
        ("[1]", "not an object"),
        ("{}", "'path' is missing"),
        ('{"path": "x"}', "ZeroDivisionError"),
    ],
)
@awaited
async def test_whatever_goes_wrong_with_a_call_is_told_to_the_model(arguments: str, why: str) -> None:
    async def fail(_: dict[str, Any]) -> str:
        return str(1 / 0)

    line = calls("read", "other")
    line = ScriptedAnswer(
        calls=(type(line.calls[0])(id="x", name="read", arguments=arguments), line.calls[1])
    )
    agent = Agent(
        client=ScriptedClient([line, "I see."]),
        actions=(Action(tool=Tool(name="read", schema=SCHEMA), run=fail),),
    )
    async with opened(agent) as session:
        outcome = await agent.run(session, "Go")
        first, second = results(session)
    assert outcome.text == "I see."
    assert (first.error, second.error) == (True, True)
    assert why in result_text(first)
    assert "no tool named 'other'" in result_text(second)


@awaited
async def test_a_tool_that_takes_too_long_is_given_up() -> None:
    async def forever(_: dict[str, Any]) -> str:
        await anyio.sleep_forever()
        return ""

    agent = Agent(
        client=ScriptedClient([calls("read"), "Too bad."]),
        limits=TurnLimits(seconds=0.01),
        actions=(Action(tool=Tool(name="read", schema=SCHEMA), run=forever),),
    )
    async with opened(agent) as session:
        await agent.run(session, "Go")
        assert "did not end within 0.01 seconds" in result_text(results(session)[0])


@pytest.mark.parametrize(
    ("limits", "ending", "steps"),
    [
        (TurnLimits(steps=3), "steps", 3),
        (TurnLimits(tokens=2_000), "tokens", None),
        (TurnLimits(money=0.000_5), "money", None),
    ],
)
@awaited
async def test_a_limit_ends_the_turn_and_leaves_a_log_that_goes_on(
    limits: TurnLimits, ending: str, steps: int | None
) -> None:
    client = ScriptedClient(lambda _: calls("read"))
    agent = Agent(client=client, actions=(reading(),), limits=limits)
    async with opened(agent) as session:
        outcome = await agent.run(session, "Go")
        assert outcome.ending == ending
        assert steps is None or outcome.spent.steps == steps
        assert 1 < outcome.spent.steps < 20
        assert session.calls == ()
        if ending != "tokens":  # which is known before a request is sent: then no call is left
            assert result_text(results(session)[-1]).startswith("Not run: the limit of")
        again = Agent(client=ScriptedClient(["Well."]))
        assert (await again.run(session, "And?")).text == "Well."


def test_a_limit_on_money_for_a_model_without_a_price_is_refused() -> None:
    @awaited
    async def go() -> None:
        agent = Agent(client=ScriptedClient(["x"]), limits=TurnLimits(money=1.0))
        async with opened(agent, model="nobody-knows-it") as session:
            await agent.run(session, "Go")

    with pytest.raises(BadInput, match="no price of"):
        go()


@awaited
async def test_a_client_of_another_dialect_is_refused_before_anything_is_kept() -> None:
    async with opened(Agent(client=ScriptedClient([]))) as session:
        with pytest.raises(BadInput, match="the client speaks"):
            await Agent(client=ScriptedClient([], dialect="gemini")).run(session, "Go")
        assert session.log == ()


@awaited
async def test_the_question_stands_again_after_the_result_of_a_search_only() -> None:
    client = ScriptedClient([calls("search", "read"), "Found."])
    agent = Agent(client=client, actions=(reading("hits", name="search", searches=True), reading()))
    async with opened(agent) as session:
        await agent.run(session, "Where is the lamp?")
        search, read = map(result_text, results(session))
    assert search.endswith("hits\n\n[The user's question]: Where is the lamp?")
    assert "lamp" not in read


@awaited
async def test_hooks_see_each_request_and_each_answer() -> None:
    seen: list[str] = []

    async def before(_: Session, request: dict[str, Any]) -> dict[str, Any]:
        seen.append("before")
        return request | {"user": "u-1"}

    async def after(_: Session, recorded: Recorded) -> None:
        seen.append(f"after {len(recorded.calls)}")

    client = ScriptedClient([calls("read"), "Done."])
    agent = Agent(client=client, actions=(reading(),), before=(before,), after=(after,))
    async with opened(agent) as session:
        await agent.run(session, "Go")
    assert seen == ["before", "after 1", "before", "after 0"]
    assert [request["user"] for request in client.requests] == ["u-1", "u-1"]


@pytest.mark.parametrize("returned", [7, "text", [], {}, {"messages": 7}, b"{}", ({},), False])
@pytest.mark.parametrize("is_async", [False, True])
@awaited
async def test_a_hook_that_returns_no_request_is_refused(returned: Any, *, is_async: bool) -> None:
    async def later(_: Session, __: dict[str, Any]) -> Any:
        return returned

    def at_once(_: Session, __: dict[str, Any]) -> Any:
        return returned

    client = ScriptedClient(["Done."])
    agent = Agent(client=client, before=(later if is_async else at_once,))
    async with opened(agent) as session:
        with pytest.raises(BadInput):
            await agent.run(session, "Go")
    assert not client.requests


@awaited
async def test_an_answer_that_is_cancelled_is_kept_as_far_as_it_came_and_its_stream_is_closed() -> None:
    client = ScriptedClient(["One two three four five six.", "And on."])
    agent = Agent(client=client)
    async with opened(agent) as session:
        with anyio.CancelScope() as scope:

            async def hear(event: TurnEvent) -> None:
                if isinstance(event, TextEvent) and "three" in event.text:
                    scope.cancel()
                    await anyio.lowlevel.checkpoint()

            await agent.run(session, "Count", hear=hear)
        assert client.closed == 1
        assert [one.text for one in session.dialogue()] == ["Count", f"One two three\n{INTERRUPTED}"]
        assert (await agent.run(session, "Go on")).text == "And on."


@awaited
async def test_results_that_were_there_when_a_turn_was_cancelled_are_kept() -> None:
    started = anyio.Event()

    async def hang(_: dict[str, Any]) -> str:
        started.set()
        await anyio.sleep_forever()
        return ""

    client = ScriptedClient([calls("read", "hang"), "Later."])
    agent = Agent(
        client=client, actions=(reading("done"), Action(tool=Tool(name="hang", schema=SCHEMA), run=hang))
    )
    async with opened(agent) as session:
        async with anyio.create_task_group() as group:
            group.start_soon(agent.run, session, "Go")
            await started.wait()
            await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        first, second = results(session)
        assert (first.error, second.error) == (False, True)
        assert result_text(first) == "a.txt: done"
        assert "cancelled" in result_text(second)
        assert (await agent.go_on(session)).text == "Later."


@awaited
async def test_a_turn_goes_on_after_the_program_was_killed_between_call_and_result() -> None:
    store = MemoryStore()
    agent = Agent(client=ScriptedClient(["It was lost."]), actions=(reading(),))
    async with opened(agent, store) as session:
        await session.ask("Go")
        await session.record(answer("openai_chat", "Reading.", call="c1"))
    async with opened(agent, store) as session:
        assert (await agent.go_on(session)).text == "It was lost."
        assert "the program ended" in result_text(results(session)[0])


TOO_LONG = "This model's maximum context length is 4000 tokens, however you requested 9000 tokens"


@awaited
async def test_a_request_that_is_too_long_is_cut_deeper_and_sent_once_more() -> None:
    answers: list[Any] = [
        *["word " * 600] * 8,
        RequestRefused(TOO_LONG, status=400),
        "Short enough.",
        "Next.",
    ]
    client = ScriptedClient(answers)
    agent = Agent(client=client)
    async with opened(agent) as session:
        for number in range(8):
            await agent.run(session, f"Question {number}")
        assert session.ledger.cuts == ()
        outcome = await agent.run(session, "And?")
        assert outcome.text == "Short enough."
        first, second = (len(json.dumps(request)) for request in client.requests[-2:])
        assert second < first * 0.6
        assert len(session.ledger.cuts) == 1
        await agent.run(session, "More?")  # the window that was learnt stays
        assert len(json.dumps(client.requests[-1])) < first * 0.6


@awaited
async def test_a_request_that_is_too_long_twice_is_an_error_and_nothing_of_it_is_kept() -> None:
    refused = [RequestRefused(TOO_LONG, status=400)] * 3
    client = ScriptedClient(["word " * 600, *refused])
    agent = Agent(client=client)
    async with opened(agent) as session:
        await agent.run(session, "One")
        with pytest.raises(RequestRefused):
            await agent.run(session, "Two")
        assert len(client.requests) == 3
        assert session.pending


@pytest.mark.parametrize("error", [RequestRefused("unknown model", status=404), Unreachable("gone")])
@awaited
async def test_other_failures_are_the_callers(error: Exception) -> None:
    client = ScriptedClient([error, "x"])
    agent = Agent(client=client)
    async with opened(agent) as session:
        with pytest.raises(type(error)):
            await agent.run(session, "One")
        assert len(client.requests) == 1


@awaited
async def test_an_answer_that_breaks_off_is_kept_as_far_as_it_came() -> None:
    client = ScriptedClient([ScriptedAnswer(text="Half of it", fails=Unreachable("gone"))])
    agent = Agent(client=client)
    async with opened(agent) as session:
        with pytest.raises(Unreachable):
            await agent.run(session, "One")
        assert [one.text for one in session.dialogue()][-1] == f"Half of it\n{INTERRUPTED}"


@awaited
async def test_a_listener_hears_results_and_usage() -> None:
    heard: list[TurnEvent] = []

    async def hear(event: TurnEvent) -> None:
        heard.append(event)

    agent = Agent(client=ScriptedClient([calls("read"), "Done."]), actions=(reading(),))
    async with opened(agent, budget=Budget(window=9_000, reserve=500)) as session:
        outcome = await agent.run(session, "Go", hear=hear)
    (ran,) = [event for event in heard if isinstance(event, ToolRunEvent)]
    assert ran.call.name == "read"
    assert [event.input for event in heard if isinstance(event, UsageEvent)] == [100]
    assert (outcome.spent.input, outcome.spent.cached, outcome.spent.output) == (100, 60, 10)
    assert outcome.spent.money is not None
    assert outcome.spent.money > 0


@awaited
async def test_a_listener_that_raises_loses_no_answer() -> None:
    """The answer was paid for: it is read to its end and recorded before the error is raised."""
    heard: list[TurnEvent] = []

    async def hear(event: TurnEvent) -> None:
        heard.append(event)
        raise KeyError("a mistake in the listener")

    agent = Agent(client=ScriptedClient([calls("read", said="I look."), "All of it."]), actions=(reading(),))
    async with opened(agent) as session:
        with pytest.raises(KeyError, match="a mistake in the listener"):
            await agent.run(session, "One", hear=hear)
        assert len(heard) == 1
        assert [one.text for one in session.dialogue()] == ["One", "I look."]
        assert [call.name for call in session.calls] == ["read"]
        outcome = await agent.go_on(session)
        assert outcome.text == "All of it."


@awaited
async def test_a_stream_without_a_word_ends_the_turn_as_empty() -> None:
    """Some servers send nothing but comments, and close the stream."""
    client = ScriptedClient([])
    agent = Agent(client=client)

    def send_nothing(request: Mapping[str, Any]) -> Reply:  # noqa: ARG001
        async def open_stream() -> AsyncIterator[Any]:
            return _no_items()

        return Reply(open_stream, CHAT_FORMAT)

    client.send = send_nothing  # type: ignore[method-assign]
    async with opened(agent) as session:
        outcome = await agent.run(session, "One")
        assert outcome.ending == "empty"
        assert session.pending


async def _no_items() -> AsyncIterator[Any]:
    nothing: tuple[Any, ...] = ()
    for item in nothing:
        yield item


@awaited
async def test_a_refusal_after_some_words_is_not_sent_again() -> None:
    half = ScriptedAnswer(text="Half of it", fails=RequestRefused(TOO_LONG, status=400))
    client = ScriptedClient([*["word " * 600] * 8, half, "x"])
    agent = Agent(client=client)
    async with opened(agent) as session:
        for number in range(8):
            await agent.run(session, f"Question {number}")
        with pytest.raises(RequestRefused):
            await agent.run(session, "One")
        assert len(client.requests) == 9


def test_money_is_counted_at_the_price_of_what_was_cached() -> None:
    prices = model("gpt-5").prices
    assert prices.input is not None
    assert prices.read is not None
    assert price_usage(Usage(input=1_000_000, cached=1_000_000), "gpt-5") == pytest.approx(prices.read)
    assert price_usage(Usage(input=1_000_000), "gpt-5") == pytest.approx(prices.input)
    assert (TurnCost(money=0.5) + TurnCost(money=None)).money is None


@awaited
async def test_hooks_may_be_plain_functions_or_async_ones() -> None:
    client = ScriptedClient(["It is."])
    seen: list[Any] = []

    def add_field(_: Session, request: dict[str, Any]) -> dict[str, Any]:
        return {**request, "user": "u-1"}

    async def look(_: Session, request: dict[str, Any]) -> None:
        await anyio.lowlevel.checkpoint()
        seen.append(request["user"])

    def note_answer(_: Session, recorded: Recorded) -> None:
        seen.append(len(recorded.segments))

    agent = Agent(client=client, before=(add_field, look), after=(note_answer,))
    async with opened(agent, recall="off") as session:
        await agent.run(session, "Is it?")
    assert client.requests[0]["user"] == "u-1"
    assert seen == ["u-1", 1]


@awaited
async def test_going_on_with_a_turn_that_is_over_sends_nothing() -> None:
    client = ScriptedClient(["It is."])
    agent = Agent(client=client)
    async with opened(agent, recall="off") as session:
        await agent.run(session, "Is it?")
        outcome = await agent.go_on(session)
        texts = [one.text for one in session.dialogue()]
    assert (outcome.text, outcome.ending, outcome.spent.steps) == ("It is.", "end", 0)
    assert texts == ["Is it?", "It is."]
    assert len(client.requests) == 1


@awaited
async def test_a_tool_that_waits_for_something_cancelled_ends_alone() -> None:
    async def give_up(_: Mapping[str, Any]) -> str:
        waits_for = asyncio.ensure_future(anyio.sleep(8))
        waits_for.cancel()
        await waits_for
        return "never"

    async def read(_: Mapping[str, Any]) -> str:
        await anyio.sleep(0.02)
        return "the file"

    actions = tuple(
        Action(tool=Tool(name=name, description=name, schema=SCHEMA), run=run)
        for name, run in (("give_up", give_up), ("read", read))
    )
    agent = Agent(client=ScriptedClient([calls("give_up", "read"), "Done."]), actions=actions)
    async with opened(agent) as session:
        outcome = await agent.run(session, "Do both")
        assert outcome.text == "Done."
        assert [result_text(one) for one in results(session)] == [
            "Error: what it waited for was cancelled",
            "the file",
        ]


@awaited
async def test_a_result_that_no_record_can_hold_fails_alone() -> None:
    """A program's output that is not UTF-8, as Python reads it with `surrogateescape`."""
    half = Action(
        tool=Tool(name="run", description="run", schema=SCHEMA),
        run=gives(b"caf\xe9".decode(errors="surrogateescape")),
    )
    agent = Agent(client=ScriptedClient([calls("run", "read"), "Done."]), actions=(half, reading("content")))
    async with opened(agent) as session:
        outcome = await agent.run(session, "Do both")
        first, second = results(session)
        assert (outcome.ending, first.error, second.error) == ("end", True, False)
        assert "surrogate" in result_text(first)
        assert result_text(second) == "a.txt: content"


def gives(value: Any) -> Callable[[Any], Awaitable[Any]]:
    async def run(_: Any) -> Any:
        return value

    return run
