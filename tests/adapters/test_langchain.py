"""LangChain's own agent over a scripted model, with lamina's middleware and checkpointer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain.agents", reason="langchain is not installed: run `make adapters` to test it")

from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from lamina.adapters.bridge import ContextFitter, Turn
from lamina.adapters.langchain import CODEC, LaminaMiddleware
from lamina.dialects.anthropic.server import BINDING_BETA
from tests.adapters import over_wire
from tests.adapters.long_answer import ANSWER_TEXT, MARK, LongAnswer
from tests.adapters.long_session import (
    BUDGET,
    CALLS,
    SYSTEM,
    Script,
    check_counts,
    check_session,
    read_page,
    watch_fits,
)


class ScriptedModel(BaseChatModel):
    """Answers as the script says, and records what it gets."""

    script: Any
    bound: Any = None

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], *, strict: bool | None = None, **settings: Any) -> Any:
        bound = {name: settings[name] for name in ("response_format",) if name in settings}
        bound["tools"] = [convert_to_openai_tool(each, strict=strict) for each in tools]
        return self.model_copy(update={"bound": bound})

    def _generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
        turns = [turn for message in messages for turn in CODEC.write(message)]
        answer = self.script.answer(turns, **(self.bound or {}))
        usage: Any = {"input_tokens": answer.tokens, "output_tokens": 9, "total_tokens": answer.tokens + 9}
        message = AIMessage(answer.text, usage_metadata=usage)
        if answer.name:
            call = {"id": answer.call_id, "name": answer.name, "args": answer.arguments, "type": "tool_call"}
            message = AIMessage("", tool_calls=[call], usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])


def play(
    folder: Path, script: Script, turns: Sequence[int], fitted: bool, response_format: Any = None
) -> None:
    middleware = [LaminaMiddleware(budget=BUDGET)] if fitted else []
    with SqliteSaver.from_conn_string(str(folder / "chats.db")) as saver:
        agent = create_agent(
            ScriptedModel(script=script),
            [tool(read_page)],
            system_prompt=SYSTEM,
            middleware=middleware,
            checkpointer=saver,
            response_format=response_format,
        )
        config: Any = {"configurable": {"thread_id": "manual"}, "recursion_limit": 200}
        for turn in turns:
            agent.invoke({"messages": [HumanMessage(script.begin(turn))]}, config)


def test_a_long_session(tmp_path: Path, record_property: Any) -> None:
    check_session(play, __name__, tmp_path, record_property)


@pytest.mark.parametrize("strategy", [ToolStrategy, ProviderStrategy, None])
def test_a_structured_answer_is_counted(tmp_path: Path, strategy: Any) -> None:
    response_format: Any = LongAnswer
    if strategy is not None:
        response_format = strategy(LongAnswer)
    requests = check_counts(partial(play, response_format=response_format), tmp_path, last_words=ANSWER_TEXT)
    assert MARK in json.dumps(requests[0])


def test_a_call_whose_arguments_are_no_json_keeps_its_result() -> None:
    """LangChain holds such a call apart, answers it, and sends both."""
    call: Any = {"id": "c1", "name": "read_page", "args": '{"page":', "error": "Invalid JSON"}
    asked = AIMessage("", invalid_tool_calls=[call])
    messages = [HumanMessage("Read page 1."), asked, ToolMessage("Not JSON.", tool_call_id="c1")]
    assert list(ContextFitter(CODEC, budget=BUDGET).fit(messages).messages) == messages
    turn = CODEC.write(asked)[0]
    turn["tool_calls"][0]["function"]["arguments"] = '{"page": 1}'
    lowered = CODEC.read([Turn(wire=turn)], asked)
    assert lowered.tool_calls == []
    assert [(each["id"], each["args"]) for each in lowered.invalid_tool_calls] == [("c1", '{"page": 1}')]


def test_without_a_thread_the_conversation_is_recognised() -> None:
    with watch_fits() as watch:
        script = Script(watch)
        agent = create_agent(
            ScriptedModel(script=script), [tool(read_page)], middleware=[LaminaMiddleware(budget=BUDGET)]
        )
        agent.invoke({"messages": [HumanMessage(script.begin(0))]}, {"recursion_limit": 200})
    assert len(watch.counts) > CALLS
    assert watch.memos == 1


class ThinkingModel(ScriptedModel):
    """Has the fields of `ChatAnthropic` that say how it thinks."""

    model: str = "claude-opus-5-5"
    thinking: dict[str, Any] | None = None
    betas: Any = ("mine-2026",)
    seen: Any = None

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        self.seen.append((self.thinking, self.betas))
        return super().bind_tools(tools)


def test_a_model_that_binds_its_thinking_asks_for_the_switch_from_the_first_cut_on() -> None:
    seen: list[Any] = []
    script = Script()
    agent = create_agent(
        ThinkingModel(script=script, seen=seen),
        [tool(read_page)],
        system_prompt=SYSTEM,
        middleware=[LaminaMiddleware(budget=BUDGET)],
        checkpointer=InMemorySaver(),
    )
    config: Any = {"configurable": {"thread_id": "manual"}, "recursion_limit": 200}
    for turn in range(3):
        agent.invoke({"messages": [HumanMessage(script.begin(turn))]}, config)
    asked = [thinking is not None for thinking, _ in seen]
    assert asked == sorted(asked)
    assert seen[0] == (None, ("mine-2026",))
    switch = {"prefix_mismatch_behavior": "drop_block"}
    assert seen[-1] == ({"type": "adaptive", "block_binding": switch}, ["mine-2026", BINDING_BETA])


def open_model(api: str, url: str) -> Any:
    """A chat model of LangChain's own integrations, whose API is at this address."""
    if api == "messages":
        clients = pytest.importorskip("langchain_anthropic")
        return clients.ChatAnthropic(
            model=over_wire.ANTHROPIC, base_url=url, api_key="none", max_tokens=900, max_retries=0
        )
    clients = pytest.importorskip("langchain_openai")
    return clients.ChatOpenAI(
        model=over_wire.OPENAI,
        base_url=f"{url}/v1",
        api_key="none",
        use_responses_api=api == "responses",
        stream_usage=True,
        max_retries=0,
    )


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
@pytest.mark.parametrize("mode", ["invoke", "ainvoke", "stream", "astream"])
def test_over_the_wire(api: str, mode: str, record_property: Any) -> None:
    def run(server: over_wire.StrictServer) -> None:
        agent = create_agent(
            open_model(api, server.url),
            [tool(read_page)],
            system_prompt=SYSTEM,
            middleware=[LaminaMiddleware(budget=over_wire.BUDGET)],
            checkpointer=InMemorySaver(),
        )
        config: Any = {"configurable": {"thread_id": "manual"}, "recursion_limit": 200}
        for turn in range(over_wire.TURNS):
            question: Any = {"messages": [HumanMessage(server.script.begin(turn))]}
            match mode:
                case "invoke":
                    agent.invoke(question, config)
                case "stream":
                    list(agent.stream(question, config, stream_mode="messages"))
                case "ainvoke":
                    asyncio.run(agent.ainvoke(question, config))
                case "astream":
                    asyncio.run(read_stream(agent.astream(question, config, stream_mode="messages")))

    over_wire.play_over_wire(f"{api}, {mode}", run, record_property)


async def read_stream(stream: Any) -> None:
    async for _ in stream:
        pass
