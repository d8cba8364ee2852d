"""The agent of Microsoft's Agent Framework over a scripted client, with lamina's middleware."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "agent_framework", reason="agent-framework-core is not installed: run `make adapters` to test it"
)

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatContext,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    InMemoryHistoryProvider,
    Message,
    UsageDetails,
)

from lamina.adapters.agent_framework import CODEC, LaminaChatMiddleware
from lamina.adapters.bridge import Turn
from lamina.adapters.chat_turns import write_output_format
from tests.adapters import over_wire
from tests.adapters.long_answer import ANSWER_TEXT, MARK, LongAnswer
from tests.adapters.long_session import (
    BUDGET,
    CALLS,
    SYSTEM,
    TURNS,
    Script,
    assert_reported,
    check_counts,
    check_session,
    count_requests,
    read_page,
    watch_fits,
)


class ScriptedClient(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """Answers as the script says, and records what it gets. Its layers are those of the clients on offer."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script

    async def _inner_get_response(
        self, *, messages: Sequence[Message], options: dict[str, Any], stream: bool = False, **_: Any
    ) -> Any:
        if stream:
            return self._build_response_stream(self._stream(messages, options))
        return self._answer(messages, options)

    async def _stream(self, messages: Sequence[Message], options: dict[str, Any]) -> AsyncIterator[Any]:
        response = self._answer(messages, options)
        contents = [*response.messages[0].contents, Content.from_usage(response.usage_details)]
        yield ChatResponseUpdate(contents=contents, role="assistant", message_id="one")

    def _answer(self, messages: Sequence[Message], options: dict[str, Any]) -> ChatResponse:
        turns = [{"role": "system", "content": options["instructions"]}]
        turns += [turn for message in messages for turn in CODEC.write(message)]
        tools = [each.to_json_schema_spec() for each in options["tools"]]
        answer = self.script.answer(turns, tools, **write_output_format(options.get("response_format")))
        content = Content.from_text(answer.text)
        if answer.name:
            content = Content.from_function_call(answer.call_id, answer.name, arguments=answer.arguments)
        usage = UsageDetails(input_token_count=answer.tokens, output_token_count=9)
        return ChatResponse(messages=[Message("assistant", [content])], usage_details=usage)


def play(
    folder: Path, script: Script, turns: Sequence[int], fitted: bool, options: dict[str, Any] | None = None
) -> None:
    path = folder / "session.json"
    session = AgentSession(session_id="manual")
    if path.exists():
        session = AgentSession.from_dict(json.loads(path.read_text(encoding="utf-8")))
    asyncio.run(ask(session, script, turns, fitted, options))
    path.write_text(json.dumps(session.to_dict()), encoding="utf-8")


async def ask(
    session: AgentSession, script: Script, turns: Sequence[int], fitted: bool, options: dict[str, Any] | None
) -> None:
    agent = make_agent(script)
    if not fitted:
        agent = Agent(client=ScriptedClient(script), instructions=SYSTEM, tools=[read_page])
    for turn in turns:
        await agent.run(script.begin(turn), session=session, options=options)


def make_agent(script: Script, *, source_id: str = "manual") -> Agent[Any]:
    lamina = LaminaChatMiddleware(budget=BUDGET, source_id=f"{source_id}_ledger")
    return Agent(
        client=ScriptedClient(script),
        instructions=SYSTEM,
        tools=[read_page, lamina.recall_tool],
        middleware=[lamina],
        context_providers=[InMemoryHistoryProvider(source_id)],
    )


def test_a_long_session(tmp_path: Path, record_property: Any) -> None:
    check_session(play, __name__, tmp_path, record_property)


@pytest.mark.parametrize("output", [LongAnswer, write_output_format(LongAnswer)["response_format"]])
def test_a_structured_answer_is_counted(tmp_path: Path, output: Any) -> None:
    asked = partial(play, options={"response_format": output})
    requests = check_counts(asked, tmp_path, last_words=ANSWER_TEXT)
    assert MARK in json.dumps(requests[0])


def test_a_stream_reports_too() -> None:
    with watch_fits() as watch:
        script = Script(watch)
        asyncio.run(ask_in_stream(script))
    assert len(script.requests) > CALLS
    assert_reported(script)


async def ask_in_stream(script: Script) -> None:
    agent = make_agent(script)
    async for _ in agent.run(script.begin(0), session=AgentSession(), stream=True):
        pass


def test_agents_that_share_a_session_have_a_ledger_each() -> None:
    alone = Script()
    asyncio.run(ask_in_turn([alone]))
    together = [Script(), Script()]
    asyncio.run(ask_in_turn(together))
    assert count_requests(alone.requests).cuts >= 1
    assert [script.requests for script in together] == [alone.requests, alone.requests]


async def ask_in_turn(scripts: Sequence[Script]) -> None:
    """Ask an agent for each script, one after the other, all with one session."""
    session = AgentSession()
    agents = [make_agent(script, source_id=f"agent_{number}") for number, script in enumerate(scripts)]
    for turn in range(TURNS):
        for script, agent in zip(scripts, agents, strict=True):
            await agent.run(script.begin(turn), session=session)


def test_a_call_whose_history_is_on_the_server_passes() -> None:
    """It may have the result of a call alone: the server knows what it answers."""
    result = Message("tool", [Content.from_function_result("one", result="Page 7.")])
    options = {"conversation_id": "resp_1"}
    context = ChatContext(client=ScriptedClient(Script()), messages=[result], options=options)
    passed: list[Any] = []

    async def call_next() -> None:
        passed.extend(context.messages)

    asyncio.run(LaminaChatMiddleware(budget=BUDGET).process(context, call_next))
    assert passed == [result]


def test_what_is_not_lowered_in_a_message_stays_its_own() -> None:
    reasoning = Content.from_text_reasoning(text="Let me see.", protected_data="signed")
    call = Content.from_function_call("one", "run", arguments={"command": "long"})
    message = Message("assistant", [reasoning, "I run it.", call], message_id="7")
    turn = CODEC.write(message)[0]
    turn["tool_calls"][0]["function"]["arguments"] = "{}"
    lowered = CODEC.read([Turn(wire=turn)], message)
    assert lowered.contents[0] is reasoning
    assert lowered.contents[1].text == "I run it."
    assert lowered.contents[2].arguments == "{}"
    assert call.arguments == {"command": "long"}
    assert lowered.message_id == "7"


def test_one_lowered_result_leaves_the_other_as_it_is() -> None:
    results = [Content.from_function_result(name, result=name * 9) for name in ("one", "two")]
    message = Message("tool", results)
    first, second = CODEC.write(message)
    lowered = CODEC.read([Turn(wire={**first, "content": "short"}), Turn(wire=second, place=1)], message)
    assert [content.result for content in lowered.contents] == ["short", "two" * 9]
    assert lowered.contents[1] is results[1]


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("stream", [False, True])
def test_over_the_wire(api: str, stream: bool, record_property: Any) -> None:
    clients = pytest.importorskip("agent_framework.openai")
    kinds = {"chat": clients.OpenAIChatCompletionClient, "responses": clients.OpenAIChatClient}

    def run(server: over_wire.StrictServer) -> None:
        client = kinds[api](model=over_wire.OPENAI, api_key="none", base_url=f"{server.url}/v1")
        asyncio.run(ask_over_wire(client, server.script, stream=stream))

    over_wire.play_over_wire(f"{api}, {'stream' if stream else 'run'}", run, record_property)


async def ask_over_wire(client: Any, script: Script, *, stream: bool) -> None:
    lamina = LaminaChatMiddleware(budget=over_wire.BUDGET)
    agent = Agent(
        client=client, instructions=SYSTEM, tools=[read_page, lamina.recall_tool], middleware=[lamina]
    )
    session = AgentSession()
    for turn in range(over_wire.TURNS):
        options = {"store": False}
        question = script.begin(turn)
        if not stream:
            await agent.run(question, session=session, options=options)
            continue
        async for _ in agent.run(question, session=session, options=options, stream=True):
            pass
