"""Inspect: a compaction strategy that keeps what it leaves out, and a tool that brings it back.

    agent = react(tools=[*tools, recall()], compaction=LaminaCompaction(budget=16_000))

Inspect counts the tokens and decides when to compact; lamina decides what is sent. Inspect shows a strategy
only what was sent last and what is new, so the whole history and the ledger stand in the sample's store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    CompactionStrategy,
    ContentImage,
    ContentReasoning,
    ContentText,
    Model,
    ResponseSchema,
)
from inspect_ai.tool import Tool, ToolInfo, tool
from inspect_ai.util import StoreModel, store_as
from pydantic import Field

from lamina.adapters import chat_turns as chat
from lamina.adapters.bridge import RECALL, ContextFitter, MessageCodec, Turn
from lamina.core.values import Budget
from lamina.errors import BadInput
from lamina.fitting.policy import Policy
from lamina.fitting.request import fit_request

__all__ = ["LaminaCompaction", "recall"]

_OWN = "lamina"
"""The key in the metadata of a message that lamina wrote."""


class LaminaSampleState(StoreModel):
    """What the sample's store holds of one agent: its ledger, and the messages that were compacted."""

    ledger: dict[str, Any] | None = None
    history: list[ChatMessage] = Field(default_factory=list)


class LaminaCompaction(CompactionStrategy):
    """Fits the messages when Inspect counts more than the budget: `budget`, or that of the `policy`.

    If several agents of a sample compact, give each strategy and each `recall` the `name` of its agent. If
    the model is asked for a structured answer, give its `response_schema`: Inspect does not count it.
    """

    def __init__(
        self,
        *,
        policy: Policy | None = None,
        budget: Budget | int | None = None,
        memory: bool = False,
        name: str | None = None,
        response_schema: ResponseSchema | None = None,
    ) -> None:
        self.fitter = ContextFitter(CODEC, policy=policy, budget=budget)
        if self.fitter.budget is None:
            raise BadInput(
                "there is no budget", place="budget", hint="give a Budget, or the window in tokens"
            )
        self.budget = self.fitter.budget
        self.name = name
        self._output_format = _write_output_format(response_schema)
        room = self.budget.window - (self.budget.reserve or 0)
        room -= _count_output_format(self._output_format)  # Inspect counts messages and tools only
        super().__init__(type="edit", threshold=int(room * self.budget.trigger), memory=memory)

    @property
    def preserve_prefix(self) -> bool:
        """Let Inspect add no messages: it would bring back the whole history that an agent began with."""
        return False

    async def compact(
        self, model: Model, messages: list[ChatMessage], tools: list[ToolInfo]
    ) -> tuple[list[ChatMessage], ChatMessageUser | None]:
        """The messages to send, and no message to add.

        Inspect's own count decides. While that is over the threshold, lamina fits again, into a room that is
        smaller by as much as Inspect counts more. Raises BudgetExceeded if no lowering fits.
        """
        state = store_as(LaminaSampleState, instance=self.name)
        history = _add_new_messages(state.history, messages)
        definitions = [
            chat.write_tool(each.name, each.description, each.parameters.model_dump(exclude_none=True))
            for each in tools
        ]
        budget = self.budget
        while True:
            fitted = self.fitter.fit(
                history, tools=definitions, head=self._output_format, ledger=state.ledger, budget=budget
            )
            count = await _count_tokens(model, fitted.messages, tools)
            if count <= self.threshold:
                break
            room = fitted.fitted.envelope.tokens * int(self.threshold) // count
            budget = msgspec.structs.replace(self.budget, window=room, reserve=0)
        state.ledger = msgspec.to_builtins(fitted.ledger)
        state.history = history
        return list(fitted.messages), None


@tool
def recall(name: str | None = None) -> Tool:
    """The tool with which an agent reads what was left out."""

    async def execute(key: str, start: int = 0, find: str = "") -> str:
        """Replaced below.

        Args:
            key: The key, such as k1f2e3d4c5b6.
            start: The character to begin with; 0 if left out.
            find: A text to look for, whatever its case.

        """
        state = store_as(LaminaSampleState, instance=name)
        arguments = {"key": key, "start": start, "find": find}
        return ContextFitter(CODEC).answer(state.history, arguments, ledger=state.ledger)

    execute.__doc__ = str(execute.__doc__).replace("Replaced below.", RECALL.description)
    return execute


def _write_output_format(response_schema: ResponseSchema | None) -> dict[str, Any]:
    if response_schema is None:
        return {}
    schema = response_schema.model_dump(exclude_none=True)
    return chat.write_output_format({"type": "json_schema", "json_schema": schema})


def _count_output_format(output_format: dict[str, Any]) -> int:
    """The tokens that the schema of the answer takes in a request."""
    request = {"messages": [{"role": "user", "content": "?"}]}
    everything = Budget(window=1 << 40)
    with_format = fit_request({**request, **output_format}, dialect="openai_chat", budget=everything)
    without = fit_request(request, dialect="openai_chat", budget=everything)
    return with_format.envelope.tokens - without.envelope.tokens


async def _count_tokens(model: Model, messages: Sequence[ChatMessage], tools: Sequence[ToolInfo]) -> int:
    """Count as Inspect does when it decides whether a compaction was enough."""
    count = await model.count_tokens(list(messages)) + await model.count_tool_tokens(tools)
    return int(count)


def _add_new_messages(history: Sequence[ChatMessage], messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Add the messages that are neither in the history nor written by lamina.

    A lowered message has the id of its source. One that Inspect combined from others had been sent before.
    """
    known_ids = {message.id for message in history}
    new_messages: list[ChatMessage] = []
    for message in messages:
        if message.id in known_ids:
            continue
        metadata = message.metadata or {}
        if _OWN in metadata or "combined_from" in metadata:
            continue
        new_messages.append(message)
    return [*history, *new_messages]


def _write_message(message: ChatMessage) -> list[dict[str, Any]]:
    """Write a message as a turn.

    The result of a tool that failed is the message of its error. Contents other than text, pictures and
    reasoning are left out.
    """
    parts = chat.TurnParts()
    for content in message.content_list:
        if isinstance(content, ContentText):
            parts.add_text(content.text)
        elif isinstance(content, ContentImage):
            parts.add_image(content.image)
        elif isinstance(content, ContentReasoning):
            parts.add_thought(content.reasoning)
    if isinstance(message, ChatMessageAssistant):
        for call in message.tool_calls or ():
            parts.add_call(call.id, call.function, call.arguments)
        return [parts.write_assistant()]
    if isinstance(message, ChatMessageTool):
        text = parts.text
        if message.error is not None:
            text = message.error.message
        return [chat.write_result(message.tool_call_id or "", text)]
    return [{"role": message.role, "content": parts.content}]


def _read_message(turns: Sequence[Turn], source: ChatMessage | None) -> ChatMessage:
    """A new message with the id of its source. Reasoning and the like are those of the source."""
    wire = turns[0].wire
    text = chat.read_text(wire.get("content"))
    if source is None:
        return _make_message(wire["role"], text)
    written = ContentText | ContentImage
    content: list[Any] = [each for each in source.content_list if not isinstance(each, written)]
    if text:
        content.append(ContentText(text=text))
    if not isinstance(source, ChatMessageAssistant):
        return source.model_copy(update={"content": content})
    arguments = chat.map_argument_objects(wire)
    calls = []
    for call in source.tool_calls or ():
        new_arguments = arguments.get(call.id, call.arguments)
        calls.append(replace(call, arguments=new_arguments))
    return source.model_copy(update={"content": content, "tool_calls": calls or None})


def _make_message(role: str, text: str) -> ChatMessage:
    """A message of lamina's own, such as a digest. Its metadata says so."""
    kinds = {"system": ChatMessageSystem, "assistant": ChatMessageAssistant}
    return kinds.get(role, ChatMessageUser)(content=text, metadata={_OWN: True})


CODEC = MessageCodec(write=_write_message, read=_read_message)
