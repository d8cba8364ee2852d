"""LangChain's own agent over a scripted model, with lamina's middleware and checkpointer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain.agents", reason="langchain is not installed: run `make adapters` to test it")

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool

from lamina.adapters.langchain import CODEC, LaminaMiddleware
from lamina.adapters.langgraph import LaminaSaver
from tests.adapters.long_session import BUDGET, SYSTEM, Script, check_session, read_page


class ScriptedModel(BaseChatModel):
    """Answers as the script says, and records what it gets."""

    script: Any
    bound_tools: Any = ()

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        return self.model_copy(update={"bound_tools": [convert_to_openai_tool(each) for each in tools]})

    def _generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
        turns = [turn for message in messages for turn in CODEC.write(message)]
        answer = self.script.answer(turns, self.bound_tools)
        message = AIMessage(answer.text)
        if answer.name:
            call = {"id": answer.call_id, "name": answer.name, "args": answer.arguments, "type": "tool_call"}
            message = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=message)])


def play(folder: Path, script: Script, turns: Sequence[int], fitted: bool) -> None:
    middleware = [LaminaMiddleware(budget=BUDGET)] if fitted else []
    with LaminaSaver(str(folder / "chats.db")) as saver:
        agent = create_agent(
            ScriptedModel(script=script),
            [tool(read_page)],
            system_prompt=SYSTEM,
            middleware=middleware,
            checkpointer=saver,
        )
        config: Any = {"configurable": {"thread_id": "manual"}, "recursion_limit": 200}
        for turn in turns:
            agent.invoke({"messages": [HumanMessage(script.begin(turn))]}, config)


def test_a_long_session(tmp_path: Path, record_property: Any) -> None:
    check_session(play, __name__, tmp_path, record_property)
