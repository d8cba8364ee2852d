"""LlamaIndex: a memory that keeps everything, and an agent that fits each of its requests.

    agent = LaminaAgent(llm=llm, tools=tools)
    memory = LaminaMemory.from_defaults(llm=llm, chat_store=store)
    response = await agent.run("…", memory=memory)

LlamaIndex's `FunctionAgent` holds the calls of a running turn outside its memory, so a memory alone cannot
fit them: `LaminaAgent` fits the memory and these calls together. With a chat engine the memory is enough. The
ledgers stand in the chat store beside the messages, so any chat store keeps them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Self

import msgspec
from llama_index.core.agent.utils import messages_to_xml_format
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.agent.workflow.prompts import DEFAULT_EARLY_STOPPING_PROMPT
from llama_index.core.base.llms import types as llama
from llama_index.core.bridge.pydantic import PrivateAttr, field_validator
from llama_index.core.memory.types import BaseChatStoreMemory
from llama_index.core.storage.chat_store.loading import load_chat_store
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context

from lamina.adapters import chat_turns as chat
from lamina.adapters.bridge import RECALL, ContextFitter, MessageCodec, Turn, add_report
from lamina.core.values import Budget
from lamina.errors import BadInput
from lamina.fitting.policy import Policy, choose_policy, load_policy

__all__ = ["LaminaAgent", "LaminaMemory"]

LEDGER = "lamina_ledger"
"""The field of a message under which a ledger stands. These messages have a key of their own in the store."""

_FITTERS = 8
"""How many fitters a memory holds at most, one for each size of the room."""


class LaminaMemory(BaseChatStoreMemory):
    """Keeps all messages in a chat store. `get` returns them fitted, `get_all` returns them whole."""

    policy: dict[str, Any]
    _fitters: dict[tuple[bool, int, bool], ContextFitter] = PrivateAttr(default_factory=dict)
    _beside: dict[str, Any] = PrivateAttr(default_factory=dict)

    @field_validator("chat_store", mode="before")
    @classmethod
    def _load_chat_store(cls, value: Any) -> Any:
        """Load a store that was saved with the context of a workflow."""
        if isinstance(value, dict):
            return load_chat_store(value)
        return value

    @classmethod
    def from_defaults(
        cls,
        chat_history: Sequence[llama.ChatMessage] | None = None,
        llm: Any = None,
        *,
        policy: Policy | None = None,
        budget: Budget | int | None = None,
        **store: Any,
    ) -> Self:
        """A memory for one conversation: `chat_store` and `chat_store_key` say where it is.

        `policy` says how messages are fitted, and `budget` replaces that of the policy. Without either the
        window that `llm` states counts. The policy is stored with the memory, so it must be plain data.
        """
        chosen_policy = choose_policy(policy, budget=budget, place="budget")
        if chosen_policy.own_budget is None and llm is not None:
            window = Budget(window=llm.metadata.context_window)
            chosen_policy = msgspec.structs.replace(chosen_policy, budget=chosen_policy.fill_budget(window))
        if chosen_policy.own_budget is None:
            hint = "give a Budget, or the window in tokens, or the llm"
            raise BadInput("a memory needs a budget", place="budget", hint=hint)
        memory = cls(policy=chosen_policy.dump(), **store)
        if chat_history is not None:
            memory.set(list(chat_history))
        return memory

    def get(self, input: str | None = None, initial_token_count: int = 0, **_: Any) -> list[Any]:  # noqa: A002, ARG002
        """The messages, fitted into the room that `initial_token_count` leaves, without handles.

        A `LaminaAgent` says what it sends beside them.
        """
        return self.fit(
            self.get_all(), name="memory", recall=False, taken=initial_token_count, **self._beside
        )

    def leave_room(self, *, system: Sequence[str], output: Any = None) -> None:
        """Count in `get` what an agent adds to the memory: system texts, and the model of its last answer.

        LlamaIndex asks for a structured answer in a request of its own. Each message of the memory then
        stands between tags, and the system text is sent twice.
        """
        self._beside = {"system": list(system)}
        if output is not None:
            self._beside = {
                "system": [*system, *system, *(block.text for block in messages_to_xml_format([])[0].blocks)],
                "head": chat.write_output_format(output),
            }

    async def aget(self, input: str | None = None, **kwargs: Any) -> list[Any]:  # noqa: A002
        return await asyncio.to_thread(self.get, input, **kwargs)

    def reset(self) -> None:
        super().reset()
        self.chat_store.delete_messages(self._ledger_key())

    async def areset(self) -> None:
        await asyncio.to_thread(self.reset)

    def fit(
        self, messages: Sequence[Any], *, name: str, recall: bool, taken: int = 0, **request: Any
    ) -> list[Any]:
        """Fit messages with the ledger of this name, and keep its next one in the chat store."""
        ledger = self.read_ledgers().get(name)
        fitter = self._find_fitter(recall, taken, tagged=name == "memory" and "head" in request)
        fitted = fitter.fit(messages, ledger=ledger, conversation=name, **request)
        self._write_ledger(name, msgspec.to_builtins(fitted.ledger))
        return list(fitted.messages)

    def take_report(self, name: str, answer: Any) -> None:
        """Add what the model's API reported, in its own words, to the ledger of this name."""
        self._write_ledger(name, add_report(self.read_ledgers()[name], answer))

    def read_ledgers(self) -> dict[str, Any]:
        """The ledger of `get` and of each agent, by name."""
        for note in self.chat_store.get_messages(self._ledger_key()):
            return dict(note.additional_kwargs[LEDGER])
        return {}

    def _write_ledger(self, name: str, ledger: dict[str, Any]) -> None:
        ledgers = {**self.read_ledgers(), name: ledger}
        note = llama.ChatMessage(role="system", content="", additional_kwargs={LEDGER: ledgers})
        self.chat_store.set_messages(self._ledger_key(), [note])

    def _find_fitter(self, recall: bool, taken: int, *, tagged: bool) -> ContextFitter:  # noqa: FBT001
        """The fitter that was used before, if there is one: it has read most of the messages."""
        key = (recall, taken, tagged)
        if key not in self._fitters:
            if len(self._fitters) > _FITTERS:
                self._fitters.clear()
            policy = _take_room(load_policy(self.policy), taken)
            if not recall:
                policy = msgspec.structs.replace(policy, recall="off")
            codec = CODEC
            if tagged:
                codec = TAGGED_CODEC
            self._fitters[key] = ContextFitter(codec, policy=policy)
        return self._fitters[key]

    def _ledger_key(self) -> str:
        return f"{self.chat_store_key}:{LEDGER}"


def _take_room(policy: Policy, taken: int) -> Policy:
    """The policy with a window that leaves so many tokens to what is sent beside the messages."""
    budget = policy.own_budget
    if budget is None:
        return policy
    smaller = msgspec.structs.replace(budget, window=budget.window - taken)
    return msgspec.structs.replace(policy, budget=smaller)


class LaminaAgent(FunctionAgent):
    """A `FunctionAgent` whose requests fit the budget of its memory. It has the tool `recall`."""

    recall: bool = True

    def model_post_init(self, context: Any, /) -> None:
        """Add the tool `recall` to the tools of the agent."""
        super().model_post_init(context)
        if self.recall:
            self.tools = [*(self.tools or ()), self._make_recall_tool()]  # type: ignore[has-type]

    async def take_step(self, ctx: Any, llm_input: list[Any], tools: Sequence[Any], memory: Any) -> Any:
        """Fit the memory and the calls of this turn, and let LlamaIndex take the step with that."""
        if not isinstance(memory, LaminaMemory):
            hint = "give one: agent.run(message, memory=LaminaMemory.from_defaults(llm=llm))"
            raise BadInput(f"{type(memory).__name__} is not a LaminaMemory", place="memory", hint=hint)
        calls = await ctx.store.get(self.scratchpad_key, default=[])
        system = [message for message in llm_input[:1] if message.role == llama.MessageRole.SYSTEM]
        history = await memory.aget_all()
        if not calls and _is_users(history[-1:]) and _is_users(llm_input[-1:]):
            history = [*history[:-1], llm_input[-1]]  # LlamaIndex may have written its state into it
        texts = [str(self.system_prompt or ""), DEFAULT_EARLY_STOPPING_PROMPT]
        memory.leave_room(system=texts, output=self.output_cls)
        messages = await asyncio.to_thread(
            memory.fit,
            [*system, *history, *calls],
            name=self.name,
            recall=self.recall,
            tools=[each.metadata.to_openai_tool(skip_length_check=True) for each in tools],
            head={"model": self.llm.metadata.model_name},
        )
        await ctx.store.set(self.scratchpad_key, [])  # they are among the fitted messages
        new_calls = []
        try:
            output = await super().take_step(ctx, messages, tools, memory)
            new_calls = await ctx.store.get(self.scratchpad_key)
            await asyncio.to_thread(memory.take_report, self.name, output.raw)
        finally:
            await ctx.store.set(self.scratchpad_key, [*calls, *new_calls])
        return output

    def _make_recall_tool(self) -> FunctionTool:
        """The tool. It answers from the whole memory, and from the calls of this turn."""

        async def recall(ctx: Context, key: str, start: int = 0, find: str = "") -> str:
            memory = await ctx.store.get("memory")
            calls = await ctx.store.get(self.scratchpad_key, default=[])
            history = [*await memory.aget_all(), *calls]
            ledger = memory.read_ledgers().get(self.name)
            arguments = {"key": key, "start": start, "find": find}
            return ContextFitter(CODEC).answer(history, arguments, ledger=ledger)

        recall.__annotations__.update(ctx=Context, key=str, start=int, find=str)
        return FunctionTool.from_defaults(async_fn=recall, name=RECALL.name, description=RECALL.description)


def _is_users(messages: Sequence[llama.ChatMessage]) -> bool:
    """Whether there are messages, and all of them are the user's."""
    return bool(messages) and all(message.role == llama.MessageRole.USER for message in messages)


def _write_message(message: llama.ChatMessage) -> list[dict[str, Any]]:
    """Write a message as a turn. Blocks that the dialect does not have are left out.

    Content is a list only if it has a picture. LlamaIndex has three roles for the model, and two for results.
    """
    parts = chat.TurnParts()
    for block in message.blocks:
        match block:
            case llama.TextBlock():
                parts.add_text(block.text)
            case llama.ImageBlock():
                parts.add_image(str(block.url or block.inline_url()))
            case llama.ToolCallBlock():
                parts.add_call(block.tool_call_id, block.tool_name, block.tool_kwargs)
            case llama.ThinkingBlock():
                parts.add_thought(block.content)
    content: Any = parts.content
    if all(part["type"] == "text" for part in parts.content):
        content = parts.text
    match message.role.value:
        case "assistant" | "model" | "chatbot":
            return [parts.write_assistant(content)]
        case "tool" | "function":
            return [chat.write_result(str(message.additional_kwargs.get("tool_call_id", "")), content)]
        case role:
            return [{"role": role, "content": content}]


def _read_message(turns: Sequence[Turn], source: llama.ChatMessage | None) -> llama.ChatMessage:
    """A new message: text and arguments are new, other blocks are those of its source.

    A text block comes first. Pictures are not sent in a lowered message.
    """
    wire = turns[0].wire
    blocks: list[Any] = []
    text = chat.read_text(wire.get("content"))
    if text:
        blocks.append(llama.TextBlock(text=text))
    if source is None:
        return llama.ChatMessage(role=wire["role"], blocks=blocks)
    arguments = chat.map_arguments(wire)
    for block in source.blocks:
        if isinstance(block, llama.ToolCallBlock):
            new_arguments = arguments.get(block.tool_call_id or "", block.tool_kwargs)
            blocks.append(block.model_copy(update={"tool_kwargs": new_arguments}))
        elif not isinstance(block, llama.TextBlock | llama.ImageBlock):
            blocks.append(block)
    return llama.ChatMessage(role=source.role, blocks=blocks, additional_kwargs=source.additional_kwargs)


def _write_tagged_message(message: llama.ChatMessage) -> list[dict[str, Any]]:
    """Write a message with the tags around it, which LlamaIndex adds when it asks for a structured answer."""
    turns = _write_message(message)
    for turn in turns:
        turn[chat.FRAME] = f"\t<{message.role.value}>\n\t\t<message></message>\n\t</{message.role.value}>\n"
    return turns


CODEC = MessageCodec(write=_write_message, read=_read_message)

TAGGED_CODEC = MessageCodec(write=_write_tagged_message, read=_read_message)
"""Counts each message as it is sent in the request for a structured answer."""
