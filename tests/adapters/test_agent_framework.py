"""The agent of Microsoft's Agent Framework over a scripted client, with lamina's middleware."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
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
    Content,
    FunctionInvocationLayer,
    Message,
)

from lamina.adapters.agent_framework import CODEC, LaminaChatMiddleware
from lamina.adapters.bridge import Turn
from lamina.adapters.chat_turns import write_output_format
from tests.adapters.long_answer import ANSWER_TEXT, MARK, LongAnswer
from tests.adapters.long_session import BUDGET, SYSTEM, Script, check_counts, check_session, read_page


class ScriptedClient(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """Answers as the script says, and records what it gets. Its layers are those of the clients on offer."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script

    async def _inner_get_response(
        self, *, messages: Sequence[Message], options: dict[str, Any], **_: Any
    ) -> ChatResponse:
        turns = [{"role": "system", "content": options["instructions"]}]
        turns += [turn for message in messages for turn in CODEC.write(message)]
        tools = [each.to_json_schema_spec() for each in options["tools"]]
        answer = self.script.answer(turns, tools, **write_output_format(options.get("response_format")))
        content = Content.from_text(answer.text)
        if answer.name:
            content = Content.from_function_call(answer.call_id, answer.name, arguments=answer.arguments)
        return ChatResponse(messages=[Message("assistant", [content])])


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
    tools: list[Any] = [read_page]
    middleware: list[Any] = []
    if fitted:
        lamina = LaminaChatMiddleware(budget=BUDGET)
        tools.append(lamina.recall_tool)
        middleware.append(lamina)
    agent = Agent(client=ScriptedClient(script), instructions=SYSTEM, tools=tools, middleware=middleware)
    for turn in turns:
        await agent.run(script.begin(turn), session=session, options=options)


def test_a_long_session(tmp_path: Path, record_property: Any) -> None:
    check_session(play, __name__, tmp_path, record_property)


@pytest.mark.parametrize("output", [LongAnswer, write_output_format(LongAnswer)["response_format"]])
def test_a_structured_answer_is_counted(tmp_path: Path, output: Any) -> None:
    asked = partial(play, options={"response_format": output})
    requests = check_counts(asked, tmp_path, last_words=ANSWER_TEXT)
    assert MARK in json.dumps(requests[0])


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
