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
import copy
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic_ai import RunContext
from pydantic_ai import messages as ai
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.toolsets import FunctionToolset

from lamina.adapters import chat_turns as chat
from lamina.adapters.bridge import RECALL, ContextFitter, MessageCodec, Turn, add_report
from lamina.core.values import Budget
from lamina.fitting.policy import Policy

__all__ = ["LaminaCapability"]

LEDGER = "lamina_ledger"
"""The key in the metadata of a response under which the ledger stands."""


class LaminaCapability(AbstractCapability[Any]):
    """Fits each request into the window, and gives the agent the tool `recall`.

    `policy` says how, and `budget` replaces that of the policy. Without either the model's window counts.
    """

    def __init__(self, *, policy: Policy | None = None, budget: Budget | int | None = None) -> None:
        self.fitter = ContextFitter(CODEC, policy=policy, budget=budget)
        self._ledger: dict[str, Any] | None = None

    async def for_run(self, ctx: RunContext[Any]) -> LaminaCapability:  # noqa: ARG002 - pydantic-ai's
        """A copy, since the ledger between a request and its response belongs to one run."""
        return copy.copy(self)

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
        beside = _find_longest(request_context)
        fitted = self.fitter.fit(
            request_context.messages,
            system=beside.system,
            tools=beside.tools,
            head={"model": request_context.model.model_name, **beside.output_format},
            ledger=_read_ledger(ctx.messages),
            conversation=ctx.conversation_id or "",
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
        if self._ledger is None:
            return response  # another capability answered before the request was fitted
        _drop_earlier_ledger(ctx.messages)
        ledger = add_report(self._ledger, response)
        return replace(response, metadata={**(response.metadata or {}), LEDGER: ledger})


class _SentBeside(NamedTuple):
    """What a model sends beside the messages that a hook sees, in the words of Chat Completions."""

    system: list[str]
    tools: list[dict[str, Any]]
    output_format: dict[str, Any]


def _find_longest(request_context: ModelRequestContext) -> _SentBeside:
    """What is sent beside the messages. If there are models to fall back on, the longest counts."""
    model = request_context.model
    candidates: Sequence[Model] = [model]
    if isinstance(model, FallbackModel):
        candidates = model.models
    ways = [_prepare(candidate, request_context) for candidate in candidates]
    return max(ways, key=lambda beside: len(json.dumps(beside)))


def _prepare(model: Model, request_context: ModelRequestContext) -> _SentBeside:
    """Complete the parameters as the model does after all hooks: the output's mode, schema and instructions.

    If the model refuses the parameters, it will say so itself.
    """
    parameters = request_context.model_request_parameters
    with suppress(UserError):
        _, parameters = model.prepare_request(request_context.model_settings, parameters)
    system = [part.content for part in parameters.instruction_parts or ()]
    system += _list_added_prompts(model, request_context.messages, parameters)
    return _SentBeside(system, _write_tools(parameters), _write_output_format(parameters))


def _list_added_prompts(
    model: Model, messages: Sequence[ai.ModelMessage], parameters: ModelRequestParameters
) -> list[str]:
    """The system texts that the framework puts before the first request.

    To a model without system messages in the middle it says what its `<system>` tags mean. That sentence is
    in every request from the first on, but not in the messages that a hook sees.
    """
    requests = [message for message in messages if isinstance(message, ai.ModelRequest)]
    first_request: list[ai.ModelMessage] = list(requests[:1])
    prompts_before = _list_prompts(first_request)
    prepared = model.prepare_messages(first_request, parameters)
    return [text for text in _list_prompts(prepared[:1]) if text not in prompts_before]


def _list_prompts(messages: Sequence[ai.ModelMessage]) -> list[str]:
    parts = [part for message in messages for part in message.parts]
    return [part.content for part in parts if isinstance(part, ai.SystemPromptPart)]


def _write_tools(parameters: ModelRequestParameters) -> list[dict[str, Any]]:
    """Write the tools that the model will see. A tool that was not revealed yet is not sent."""
    tools: list[dict[str, Any]] = []
    for definition in (*parameters.function_tools, *parameters.output_tools):
        if parameters.visibility_of(definition.name) == "withheld":
            continue
        schema = definition.parameters_json_schema
        tools.append(chat.write_tool(definition.name, definition.description, schema))
    return tools


def _write_output_format(parameters: ModelRequestParameters) -> dict[str, Any]:
    """Write the schema of the output where it goes beside the messages, not into a tool or a text."""
    output = parameters.output_object
    if output is None or parameters.output_mode != "native":
        return {}
    schema = {"name": output.name, "description": output.description, "schema": output.json_schema}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _read_ledger(messages: Sequence[ai.ModelMessage]) -> dict[str, Any] | None:
    """The newest ledger of a history; None if lamina has not fitted it yet."""
    for message in reversed(messages):
        if isinstance(message, ai.ModelResponse) and LEDGER in (message.metadata or {}):
            return dict(message.metadata[LEDGER])
    return None


def _drop_earlier_ledger(messages: Sequence[ai.ModelMessage]) -> None:
    """Drop the ledger of the step before, so that a history has one for each turn and not for each step.

    A turn begins where the user says something: nothing before it is touched.
    """
    for message in reversed(messages):
        if isinstance(message, ai.ModelResponse):
            (message.metadata or {}).pop(LEDGER, None)
            return
        if any(isinstance(part, ai.UserPromptPart) for part in message.parts):
            return


def _write_message(message: ai.ModelMessage) -> list[dict[str, Any]]:
    """Write a message as turns. A response is one turn, and so is each part of a request that is sent.

    A request with none of these parts is a turn, too: the framework may make something of it.
    """
    if isinstance(message, ai.ModelResponse):
        return [_write_response(message)]
    turns = [_write_part(part) for part in message.parts if isinstance(part, _SENT_PARTS)]
    return turns or [{"role": "user", "content": "\n".join(map(str, message.parts))}]


def _write_response(message: ai.ModelResponse) -> dict[str, Any]:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for part in message.parts:
        match part:
            case ai.TextPart():
                texts.append(part.content)
            case ai.ThinkingPart() if part.content:  # redacted thinking has a signature alone
                thoughts.append(part.content)
            case ai.ToolCallPart():
                calls.append(chat.write_call(part.tool_call_id, part.tool_name, part.args or {}))
    return chat.write_assistant("\n".join(texts), calls, thinking="\n".join(thoughts))


_SENT_PARTS = (
    ai.SystemPromptPart,
    ai.UserPromptPart,
    ai.ToolReturnPart,
    ai.RetryPromptPart,
    ai.RetryFeedbackPart,
)
"""Parts of a request that are turns. Other parts carry no content, and stay with their message."""


def _write_part(part: Any) -> dict[str, Any]:
    """Write a part of a request as a turn.

    A retry answers the call that failed. If no call failed, but the answer itself was refused, it is the
    user's.
    """
    match part:
        case ai.SystemPromptPart():
            return {"role": "system", "content": part.content}
        case ai.ToolReturnPart():
            return chat.write_result(part.tool_call_id, part.model_response_str())
        case ai.RetryPromptPart() if part.tool_name:
            return chat.write_result(part.tool_call_id, part.model_response())
        case ai.RetryPromptPart() | ai.RetryFeedbackPart():
            return {"role": "user", "content": part.model_response()}
    content = part.content
    if not isinstance(content, str):
        content = list(map(_write_content, content))
    return {"role": "user", "content": content}


def _write_content(content: Any) -> dict[str, Any]:
    """Write what a user sent beside text. Other files than pictures are only named.

    A picture that came as bytes becomes a data URL, since the dialect has no other place for bytes.
    """
    if isinstance(content, ai.ImageUrl):
        return chat.write_image(content.url)
    if isinstance(content, ai.BinaryContent) and content.is_image:
        data = base64.b64encode(content.data).decode()
        return chat.write_image(f"data:{content.media_type};base64,{data}")
    text = str(content)
    if isinstance(content, ai.TextContent):
        text = content.content
    return chat.write_text(text)


def _read_message(turns: Sequence[Turn], source: ai.ModelMessage | None) -> ai.ModelMessage:
    """A new message; what was not lowered in it are the parts of its source.

    Without a source the message is lamina's own, such as a digest: one part of text. In a request, parts that
    are no turns come first.
    """
    wire = turns[0].wire
    if isinstance(source, ai.ModelResponse):
        return replace(source, parts=_read_response_parts(wire, source))
    if source is None and wire["role"] == "assistant":
        return ai.ModelResponse(parts=[ai.TextPart(chat.read_text(wire["content"]))])
    if source is None:
        return ai.ModelRequest(parts=[_read_part(turns[0], [])])
    sent_parts: list[Any] = []
    parts: list[Any] = []
    for part in source.parts:
        if isinstance(part, _SENT_PARTS):
            sent_parts.append(part)
        else:
            parts.append(part)
    parts += [_read_part(turn, sent_parts) for turn in turns]
    return replace(source, parts=parts)


def _read_response_parts(turn: dict[str, Any], source: ai.ModelResponse) -> list[Any]:
    """The parts of a lowered response: its text and its arguments are new, the rest is as it was."""
    arguments = chat.map_arguments(turn)
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
    """The part for a turn: the part that it came from, or a new one with its text.

    A new result has the name of the tool from the result that it replaces.
    """
    if turn.place is not None:
        return sent_parts[turn.place]
    wire = turn.wire
    text = chat.read_text(wire["content"])
    match wire["role"]:
        case "tool":
            call_id = wire["tool_call_id"]
            return ai.ToolReturnPart(_find_tool_name(call_id, sent_parts), text, call_id)
        case "system":
            return ai.SystemPromptPart(text)
    return ai.UserPromptPart(text)


def _find_tool_name(call_id: str, sent_parts: Sequence[Any]) -> str | None:
    """The tool whose call a result answers; "" for a result that lamina wrote."""
    for part in reversed(sent_parts):
        if isinstance(part, ai.ToolReturnPart | ai.RetryPromptPart) and part.tool_call_id == call_id:
            tool_name: str | None = part.tool_name
            return tool_name
    return ""


CODEC = MessageCodec(write=_write_message, read=_read_message)
