"""pydantic-ai: a capability that fits each request of the model.

    agent = Agent("openai:gpt-5", capabilities=[LaminaCapability(budget=16_000)])
    result = await agent.run(prompt, message_history=history)
    history = result.all_messages()

The history stays whole. The ledger stands in the metadata of the model's responses, so it is saved and loaded
with the messages (`ModelMessagesTypeAdapter`). The last response of each turn has one, so a history that was
cut off or forked after a turn has its own ledger.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai import messages as ai
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.toolsets import FunctionToolset

from lamina.adapters import chat_turns as chat
from lamina.adapters.bridge import RECALL, ContextFitter, MessageCodec, Turn
from lamina.core.tokens import Counter
from lamina.core.values import Budget

LEDGER = "lamina_ledger"
"""The key in the metadata of a response under which the ledger stands."""


class LaminaCapability(AbstractCapability[Any]):
    """Fits each request into the window, and gives the agent the tool `recall`.

    `budget` is a `Budget` or a window in tokens; without it the window of the model counts.
    """

    def __init__(
        self, *, budget: Budget | int | None = None, recall: bool = True, counter: Counter | None = None
    ) -> None:
        self.fitter = ContextFitter(CODEC, budget=budget, recall=recall, counter=counter)
        self._ledger: dict[str, Any] | None = None

    async def for_run(self, ctx: RunContext[Any]) -> LaminaCapability:  # noqa: ARG002 - pydantic-ai's
        """Return a copy, since the ledger between a request and its response belongs to one run."""
        own = object.__new__(type(self))
        own.__dict__.update(self.__dict__)
        return own

    def get_toolset(self) -> FunctionToolset[Any] | None:
        if not self.fitter.recall:
            return None
        fitter = self.fitter

        async def recall(ctx: RunContext[Any], key: str, start: int = 0, find: str = "") -> str:
            arguments = {"key": key, "start": start, "find": find}
            return fitter.answer(ctx.messages, arguments, ledger=_read_ledger(ctx.messages))

        recall.__annotations__["ctx"] = RunContext[Any]
        toolset: FunctionToolset[Any] = FunctionToolset()
        toolset.add_function(recall, name=RECALL.name, description=RECALL.description)
        return toolset

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        parameters = request_context.model_request_parameters
        tools: list[dict[str, Any]] = []
        for definition in (*parameters.function_tools, *parameters.output_tools):
            schema = definition.parameters_json_schema
            tools.append(chat.write_tool(definition.name, definition.description, schema))
        fitted = self.fitter.fit(
            request_context.messages,
            system="\n\n".join(part.content for part in parameters.instruction_parts or ()),
            tools=tools,
            head={"model": request_context.model.model_name},
            ledger=_read_ledger(ctx.messages),
            usage=_read_usage(ctx.messages),
        )
        self._ledger = fitted.ledger
        return replace(request_context, messages=list(fitted.messages))

    async def after_model_request(
        self,
        ctx: RunContext[Any],
        *,
        request_context: ModelRequestContext,  # noqa: ARG002 - pydantic-ai's
        response: ai.ModelResponse,
    ) -> ai.ModelResponse:
        _drop_earlier_ledger(ctx.messages)
        return replace(response, metadata={**(response.metadata or {}), LEDGER: self._ledger})


def _read_ledger(messages: Sequence[ai.ModelMessage]) -> dict[str, Any] | None:
    """Return the newest ledger of a history; None if lamina has not fitted it yet."""
    for message in reversed(messages):
        ledger = (message.metadata or {}).get(LEDGER)
        if ledger is not None and isinstance(message, ai.ModelResponse):
            return dict(ledger)
    return None


def _drop_earlier_ledger(messages: Sequence[ai.ModelMessage]) -> None:
    """Drop the ledger of the step before, so that a history has one for each turn and not for each step."""
    for message in reversed(messages):
        if isinstance(message, ai.ModelResponse):
            (message.metadata or {}).pop(LEDGER, None)
            return
        if any(isinstance(part, ai.UserPromptPart) for part in message.parts):
            return


def _read_usage(messages: Sequence[ai.ModelMessage]) -> int | None:
    """Return the tokens that the last request took, if its response says them."""
    for message in reversed(messages):
        if isinstance(message, ai.ModelResponse):
            return message.usage.input_tokens or None
    return None


def _write_message(message: ai.ModelMessage) -> list[dict[str, Any]]:
    """Write a message as turns. A response is one turn, and so is each part of a request that is sent."""
    if not isinstance(message, ai.ModelResponse):
        return [_write_part(part) for part in message.parts if isinstance(part, _SENT_PARTS)]
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, ai.TextPart):
            texts.append(part.content)
        elif isinstance(part, ai.ThinkingPart):
            thoughts.append(part.content)
        elif isinstance(part, ai.ToolCallPart):
            calls.append(chat.write_call(part.tool_call_id, part.tool_name, part.args or {}))
    thinking = "\n".join(filter(None, thoughts))
    return [chat.write_assistant("\n".join(texts), calls, thinking=thinking)]


_SENT_PARTS = (ai.SystemPromptPart, ai.UserPromptPart, ai.ToolReturnPart, ai.RetryPromptPart)
"""Parts of a request that are turns. Other parts carry no content, and stay with their message."""


def _write_part(part: Any) -> dict[str, Any]:
    """Write a part of a request as a turn. A retry answers the call that failed, if there was one."""
    if isinstance(part, ai.SystemPromptPart):
        return {"role": "system", "content": part.content}
    if isinstance(part, ai.ToolReturnPart):
        return chat.write_result(part.tool_call_id, part.model_response_str())
    if isinstance(part, ai.RetryPromptPart):
        if part.tool_name:
            return chat.write_result(part.tool_call_id, part.model_response())
        return {"role": "user", "content": part.model_response()}
    if isinstance(part.content, str):
        return {"role": "user", "content": part.content}
    return {"role": "user", "content": [_write_content(each) for each in part.content]}


def _write_content(content: Any) -> dict[str, Any]:
    """Write what a user sent beside text. Other files than pictures are only named."""
    if isinstance(content, ai.ImageUrl):
        return chat.write_image(content.url)
    if isinstance(content, ai.BinaryContent) and content.is_image:
        data = base64.b64encode(content.data).decode()
        return chat.write_image(f"data:{content.media_type};base64,{data}")
    text = str(content)
    if isinstance(content, ai.TextContent):
        text = content.content
    return {"type": "text", "text": text}


def _read_message(turns: Sequence[Turn], source: ai.ModelMessage | None) -> ai.ModelMessage:
    """Return a new message; what was not lowered in it are the parts of its source."""
    if isinstance(source, ai.ModelResponse):
        return replace(source, parts=_read_response_parts(turns[0].wire, source))
    if source is None and turns[0].wire["role"] == "assistant":
        return ai.ModelResponse(parts=[ai.TextPart(chat.read_text(turns[0].wire["content"]))])
    if source is None:
        return ai.ModelRequest(parts=[_read_part(turns[0], [])])
    sent_parts: list[Any] = []
    other_parts: list[Any] = []
    for part in source.parts:
        if isinstance(part, _SENT_PARTS):
            sent_parts.append(part)
        else:
            other_parts.append(part)
    return replace(source, parts=[*other_parts, *(_read_part(turn, sent_parts) for turn in turns)])


def _read_response_parts(turn: dict[str, Any], source: ai.ModelResponse) -> list[Any]:
    """Return the parts of a lowered response: its text and its arguments are new, the rest is as it was."""
    arguments = {call_id: text for call_id, _, text in chat.read_calls(turn)}
    new_text = chat.read_text(turn.get("content"))
    parts: list[Any] = []
    for part in source.parts:
        if isinstance(part, ai.ToolCallPart):
            parts.append(replace(part, args=arguments.get(part.tool_call_id, part.args)))
        elif not isinstance(part, ai.TextPart):
            parts.append(part)
        elif new_text:
            parts.append(replace(part, content=new_text))
            new_text = ""
    return parts


def _read_part(turn: Turn, sent_parts: Sequence[Any]) -> Any:
    """Return the part for a turn: the part that it came from, or a new one with its text."""
    wire = turn.wire
    if turn.place is not None:
        return sent_parts[turn.place]
    text = chat.read_text(wire["content"])
    if wire["role"] == "tool":
        for part in sent_parts:
            if getattr(part, "tool_call_id", "") == wire["tool_call_id"]:
                return ai.ToolReturnPart(part.tool_name, text, part.tool_call_id)
        return ai.ToolReturnPart("", text, wire["tool_call_id"])
    if wire["role"] == "system":
        return ai.SystemPromptPart(text)
    return ai.UserPromptPart(text)


CODEC = MessageCodec(write=_write_message, read=_read_message)
