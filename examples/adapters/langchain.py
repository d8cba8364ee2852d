"""LangChain's agent in a small window: 40 tool calls in two turns of a thread.

    pip install 'lamina-context[langchain]'
    python examples/adapters/langchain.py

The model is scripted, so no key is needed. Put yours in its place: `create_agent("openai:gpt-5", …)`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.path[0] == str(Path(__file__).resolve().parent):
    del sys.path[0]  # this folder has files with the names of frameworks

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from lamina.adapters.langchain import LaminaMiddleware


def read_part(number: int) -> str:
    """Read a part of the manual."""
    return f"Part {number}. Press the key, wait for the lamp, release the key.\n" * 40


class ScriptedModel(BaseChatModel):
    """Reads 20 parts in each turn, and then answers."""

    steps: int = 0

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> ScriptedModel:
        return self

    def _generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
        self.steps += 1
        if self.steps % 21 == 0:
            message = AIMessage(f"Read. The last request had {len(messages)} messages.")
        else:
            call = {"id": f"call_{self.steps}", "name": "read_part", "args": {"number": self.steps}}
            message = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=message)])


def main() -> None:
    middleware = LaminaMiddleware(budget=16_000)
    agent = create_agent(ScriptedModel(), [read_part], middleware=[middleware], checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "manual"}, "recursion_limit": 100}
    for question in ("Read the first parts.", "Read the others."):
        state = agent.invoke({"messages": [HumanMessage(question)]}, config)
        print(state["messages"][-1].text)
        cuts = len(agent.get_state(config).values["lamina_ledger"]["cuts"])
        print(f"{len(state['messages'])} messages are kept; {cuts} cuts")


if __name__ == "__main__":
    main()
