"""pydantic-ai: a capability that fits each request of the model.

    agent = Agent("openai:gpt-5", capabilities=[LaminaCapability(budget=16_000)])
    result = await agent.run(prompt, message_history=history)
    history = result.all_messages()

The history stays whole. The ledger stands in the metadata of the model's responses, so it is saved and loaded
with the messages (`ModelMessagesTypeAdapter`). The last response of each turn has one, so a history that was
cut off or forked after a turn has its own ledger.
"""

from __future__ import annotations

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
from lamina.adapters._pydantic_messages import CODEC
from lamina.adapters.bridge import RECALL, ContextFitter, add_report
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
