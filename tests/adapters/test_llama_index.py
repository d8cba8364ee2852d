"""LlamaIndex's agent over a scripted model, with lamina's memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "llama_index.core", reason="llama-index-core is not installed: run `make adapters` to test it"
)

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, LLMMetadata, TextBlock, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.storage.chat_store import SimpleChatStore
from llama_index.core.workflow import JsonSerializer

from lamina.adapters.bridge import Turn
from lamina.adapters.chat_turns import write_output_format
from lamina.adapters.llama_index import CODEC, LaminaAgent, LaminaMemory
from lamina.core.values import Budget
from lamina.errors import BadInput
from tests.adapters import over_wire
from tests.adapters.long_answer import ANSWER_TEXT, LongAnswer
from tests.adapters.long_session import (
    BUDGET,
    CALLS,
    SYSTEM,
    TURNS,
    Script,
    check_counts,
    check_session,
    read_page,
)


class ScriptedModel(MockFunctionCallingLLM):
    """LlamaIndex's own mock, with the script behind it."""

    script: Any = None

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        """Stream one piece, with the usage of the script's last request in it."""
        message = self.response_generator(messages, **kwargs)

        async def stream() -> AsyncIterator[ChatResponse]:
            usage = {"prompt_tokens": self.script.sizes[-1], "completion_tokens": 9}
            yield ChatResponse(message=message, delta="", raw={"usage": usage})

        return stream()

    def as_structured_llm(self, output_cls: Any, **_: Any) -> Any:
        return StructuredModel(self.script, output_cls)

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_function_calling_model=True, is_chat_model=True, context_window=16_000)


@dataclass
class StructuredModel:
    """Answers the request for a structured answer, and records it."""

    script: Script
    output_cls: Any

    async def achat(self, messages: Sequence[ChatMessage]) -> ChatResponse:
        turns = [turn for message in messages for turn in CODEC.write(message)]
        self.script.record(turns, **write_output_format(self.output_cls))
        return ChatResponse(message=ChatMessage(role="assistant", content=ANSWER_TEXT))


def make_model(script: Script) -> ScriptedModel:
    def answer(messages: Sequence[ChatMessage], tools: Sequence[Any] = (), **_: Any) -> ChatMessage:
        turns = [turn for message in messages for turn in CODEC.write(message)]
        step = script.answer(turns, [each.metadata.to_openai_tool() for each in tools])
        if not step.name:
            return ChatMessage(role="assistant", content=step.text)
        block = ToolCallBlock(tool_call_id=step.call_id, tool_name=step.name, tool_kwargs=step.arguments)
        return ChatMessage(role="assistant", blocks=[block])

    return ScriptedModel(response_generator=answer, script=script)


def play(folder: Path, script: Script, turns: Sequence[int], fitted: bool, **options: Any) -> None:
    path = str(folder / "chats.json")
    store = SimpleChatStore.from_persist_path(path)
    asyncio.run(ask(store, script, turns, fitted, options))
    store.persist(path)


async def ask(
    store: SimpleChatStore, script: Script, turns: Sequence[int], fitted: bool, options: dict[str, Any]
) -> None:
    agent_class = LaminaAgent if fitted else FunctionAgent
    agent = agent_class(
        name="reader", llm=make_model(script), tools=[read_page], **{"system_prompt": SYSTEM, **options}
    )
    memory: Any = ChatMemoryBuffer.from_defaults(chat_store=store, token_limit=10_000_000)
    if fitted:
        memory = LaminaMemory.from_defaults(chat_store=store, budget=BUDGET)
    for turn in turns:
        await agent.run(script.begin(turn), memory=memory, max_iterations=CALLS + 5)


def test_a_long_session(tmp_path: Path, record_property: Any) -> None:
    check_session(play, __name__, tmp_path, record_property, memos=2)


def test_the_request_for_a_structured_answer_is_counted(tmp_path: Path) -> None:
    asked = partial(play, output_cls=LongAnswer, system_prompt=f"{SYSTEM} Be careful." * 60)
    requests = check_counts(asked, tmp_path, turns=TURNS, memos=3)
    structured = [request for request in requests if "response_format" in request]
    assert len(structured) == TURNS
    assert "<current_conversation>" in json.dumps(structured[-1])


def test_the_state_of_a_workflow_is_sent_whatever_the_store() -> None:
    """A store that gives copies keeps no text that LlamaIndex writes into a message for one request."""
    script = Script()
    script.end()
    asyncio.run(ask(CopyingStore(), script, [0], True, {"initial_state": {"shelf": "the third"}}))
    assert "the third" in json.dumps(script.requests[0])


class CopyingStore(SimpleChatStore):
    """Gives copies of its messages, as a database does."""

    def get_messages(self, key: str) -> list[ChatMessage]:
        return [message.model_copy(deep=True) for message in super().get_messages(key)]


def test_a_memory_alone_is_fitted_for_a_chat_engine() -> None:
    history: list[ChatMessage] = []
    for number in range(20):
        history.append(ChatMessage(role="user", content=f"What is on page {number}?"))
        history.append(ChatMessage(role="assistant", content=f"Page {number}. {'Wait. ' * 400}"))
    memory = LaminaMemory.from_defaults(chat_history=history, budget=Budget(window=9_000, reserve=0))
    messages = memory.get()
    assert len(messages) < len(memory.get_all()) == 40
    assert memory.get() == messages
    smaller = memory.get(initial_token_count=7_500)
    assert len(str(smaller)) < len(str(messages)) / 2
    memory.reset()
    assert memory.get_all() == []
    assert memory.read_ledgers() == {}


def test_the_context_of_a_workflow_keeps_the_memory() -> None:
    history = [ChatMessage(role="user", content="Hello."), ChatMessage(role="assistant", content="Hello!")]
    memory = LaminaMemory.from_defaults(chat_history=history, budget=BUDGET)
    memory.get()
    serializer = JsonSerializer()
    restored = serializer.deserialize(serializer.serialize(memory))
    assert isinstance(restored, LaminaMemory)
    assert restored.get_all() == history
    assert restored.read_ledgers() == memory.read_ledgers() != {}


def test_another_memory_is_refused() -> None:
    agent = LaminaAgent(llm=make_model(Script()), tools=[])
    with pytest.raises(BadInput, match="ChatMemoryBuffer is not a LaminaMemory"):
        asyncio.run(run_agent(agent))


async def run_agent(agent: LaminaAgent) -> None:
    await agent.run("Hello.")


def test_blocks_that_are_not_text_stay_in_a_lowered_message() -> None:
    call = ToolCallBlock(tool_call_id="one", tool_name="run", tool_kwargs={"command": "long"})
    message = ChatMessage(role="assistant", blocks=[TextBlock(text="I run it."), call])
    turn = CODEC.write(message)[0]
    assert turn["tool_calls"][0]["function"]["arguments"] == '{"command":"long"}'
    turn["tool_calls"][0]["function"]["arguments"] = "{}"
    lowered = CODEC.read([Turn(wire=turn)], message)
    assert lowered.blocks == [TextBlock(text="I run it."), call.model_copy(update={"tool_kwargs": "{}"})]


@pytest.mark.parametrize("streaming", [True, False])
def test_over_the_wire(streaming: bool, record_property: Any) -> None:
    models = pytest.importorskip("llama_index.llms.openai")

    def run(server: over_wire.StrictServer) -> None:
        llm = models.OpenAI(
            model=over_wire.OPENAI, api_base=f"{server.url}/v1", api_key="none", max_retries=0
        )
        asyncio.run(ask_over_wire(llm, server.script, streaming=streaming))

    over_wire.play_over_wire(f"chat, {'stream' if streaming else 'run'}", run, record_property)


async def ask_over_wire(llm: Any, script: Script, *, streaming: bool) -> None:
    agent = LaminaAgent(name="reader", llm=llm, tools=[read_page], system_prompt=SYSTEM, streaming=streaming)
    memory = LaminaMemory.from_defaults(budget=over_wire.BUDGET)
    for turn in range(over_wire.TURNS):
        await agent.run(script.begin(turn), memory=memory, max_iterations=60)
