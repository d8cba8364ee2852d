"""LangChain and LangGraph agents: a middleware that fits each request of the model.

    agent = create_agent(model, tools, middleware=[LaminaMiddleware(budget=16_000)], checkpointer=saver)

The history in the agent's state stays whole. The ledger is a private field of that state, so a checkpointer
keeps it with the messages, and a fork or a rewind has the ledger of its moment.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, NotRequired

from langchain.agents.middleware.types import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    PrivateStateAttr,
)
from langchain.agents.structured_output import OutputToolBinding, ProviderStrategy, ToolStrategy
from langchain.tools import ToolRuntime
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_openai_messages,
)
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.types import Command

from lamina.adapters.bridge import RECALL, ContextFitter, FittedMessages, MessageCodec, Turn, add_report
from lamina.adapters.chat_turns import (
    read_calls,
    read_text,
    write_assistant,
    write_call,
    write_result,
)
from lamina.core.values import Budget
from lamina.dialects.anthropic.server import merge_betas
from lamina.dialects.json_values import decode_arguments
from lamina.fitting.policy import Policy

__all__ = ["LaminaMiddleware", "LaminaState"]

_SENT_PARTS = frozenset(("text", "image_url", "file", "input_audio"))
"""Parts that the Chat Completions dialect has. Others are sent only with messages that are not lowered."""


class LaminaState(AgentState[Any]):
    """The agent's state with the ledger of its conversation."""

    lamina_ledger: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]  # type: ignore[valid-type]


class LaminaMiddleware(AgentMiddleware[LaminaState, Any, Any]):
    """Fits each request into the window, and gives the agent the tool `recall`.

    `policy` says how, and `budget` replaces that of the policy; without either the window of the model
    counts. `model` is the name of the model; without it the name is read from the chat model.
    """

    state_schema = LaminaState

    def __init__(
        self,
        *,
        policy: Policy | None = None,
        budget: Budget | int | None = None,
        model: str = "",
    ) -> None:
        super().__init__()
        self.fitter = ContextFitter(CODEC, model=model, policy=policy, budget=budget)
        self.tools = []
        if self.fitter.recall:
            self.tools = [_make_recall_tool(self.fitter)]

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ExtendedModelResponse[Any]:
        fitted_request, ledger = self._fit(request)
        return _keep_ledger(handler(fitted_request), ledger)

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ExtendedModelResponse[Any]:
        fitted_request, ledger = self._fit(request)
        return _keep_ledger(await handler(fitted_request), ledger)

    def _fit(self, request: ModelRequest[Any]) -> tuple[ModelRequest[Any], dict[str, Any]]:
        """The request to send, and the new ledger."""
        model_name = self.fitter.model or _read_model_name(request.model)
        fitted = self.fitter.fit(
            request.messages,
            system=_read_system(request.system_message),
            head={"model": model_name, **_write_beside(request)},
            ledger=request.state.get("lamina_ledger"),
            conversation=_read_thread(request),
        )
        model = _ask_to_drop_thinking(request.model, fitted)
        return request.override(messages=list(fitted.messages), model=model), fitted.ledger


def _keep_ledger(response: ModelResponse[Any], ledger: dict[str, Any]) -> ExtendedModelResponse[Any]:
    """The response, and the command that writes the ledger with its report into the state."""
    for message in response.result:
        if isinstance(message, AIMessage):
            ledger = add_report(ledger, message)
    return ExtendedModelResponse(model_response=response, command=Command(update={"lamina_ledger": ledger}))


def _write_beside(request: ModelRequest[Any]) -> dict[str, Any]:
    """What LangChain sends beside the messages: the tools, and what a structured answer adds to them.

    LangChain adds that after this hook. For a bare schema it chooses one of two ways by the model; the one
    that takes more counts.
    """
    answer = request.response_format
    if answer is None:
        return _write_tools(request.tools)
    if isinstance(answer, ToolStrategy):
        return _add_output_tools(request.tools, answer)
    if isinstance(answer, ProviderStrategy):
        return _add_output_format(request.tools, answer)
    schema = getattr(answer, "schema", answer)
    ways = [
        _add_output_tools(request.tools, ToolStrategy(schema)),
        _add_output_format(request.tools, ProviderStrategy(schema)),
    ]
    return max(ways, key=lambda beside: len(json.dumps(beside)))


def _add_output_tools(tools: Sequence[Any], answer: ToolStrategy[Any]) -> dict[str, Any]:
    """The tools and those that the model answers with."""
    output_tools = [OutputToolBinding.from_schema_spec(spec).tool for spec in answer.schema_specs]
    return _write_tools([*tools, *output_tools])


def _add_output_format(tools: Sequence[Any], answer: ProviderStrategy[Any]) -> dict[str, Any]:
    """The tools and the format of the answer. LangChain then makes all schemas strict."""
    return {**_write_tools(tools, strict=True), **answer.to_model_kwargs()}


def _write_tools(tools: Sequence[Any], *, strict: bool | None = None) -> dict[str, Any]:
    return {"tools": [dict(convert_to_openai_tool(tool, strict=strict)) for tool in tools]}


def _read_system(message: SystemMessage | None) -> list[str]:
    """The system text. Its message may have parts, some of which carry cache markers."""
    if message is None:
        return []
    return [read_text(turn["content"]) for turn in CODEC.write(message)]


def _read_thread(request: ModelRequest[Any]) -> str:
    """The name of the thread that the graph runs in. A graph without a checkpointer has none."""
    execution = getattr(request.runtime, "execution_info", None)
    return str(getattr(execution, "thread_id", None) or "")


def _make_recall_tool(fitter: ContextFitter) -> BaseTool:
    def recall(key: str, runtime: ToolRuntime, start: int = 0, find: str = "") -> str:
        arguments = {"key": key, "start": start, "find": find}
        return fitter.answer(runtime.state["messages"], arguments, ledger=runtime.state.get("lamina_ledger"))

    recall.__annotations__["runtime"] = ToolRuntime
    return StructuredTool.from_function(recall, name=RECALL.name, description=RECALL.description)


def _read_model_name(model: Any) -> str:
    """The name of a chat model. Integrations of LangChain have it under one of two names."""
    return str(getattr(model, "model_name", None) or getattr(model, "model", None) or "")


def _ask_to_drop_thinking(model: Any, fitted: FittedMessages) -> Any:
    """The chat model, asking its API to drop thinking that a cut has unbound.

    `ChatAnthropic` has the configuration of thinking and the betas as fields. Other models stay as they are.
    """
    fields = getattr(type(model), "model_fields", {})
    if "thinking" not in fields or "betas" not in fields:
        return model
    switch = fitted.ask_server(_read_model_name(model), thinking=model.thinking)
    if not switch.headers:
        return model
    betas = merge_betas(*(model.betas or ()), *switch.headers.values()).split(",")
    return model.model_copy(update={"thinking": switch.request["thinking"], "betas": betas})


def _write_message(message: BaseMessage) -> list[dict[str, Any]]:
    """Write a message as a turn.

    Content that is a list of parts is written in the words of the dialect. What the model thought is a
    field of its turn.
    """
    content = message.content
    thinking = ""
    if not isinstance(content, str):
        content, thinking = _write_parts(message)
    if isinstance(message, ToolMessage):
        return [write_result(message.tool_call_id, read_text(content))]
    if isinstance(message, AIMessage):
        return [write_assistant(content, _write_calls(message), thinking=thinking)]
    if isinstance(message, SystemMessage):
        return [{"role": "system", "content": content}]
    return [{"role": "user", "content": content}]


def _write_calls(message: AIMessage) -> list[dict[str, Any]]:
    """Write the calls of a message. Calls whose arguments are no JSON stand apart, and are sent last.

    LangChain answers these as well, if they have an id.
    """
    calls = [write_call(call["id"] or "", call["name"], call["args"]) for call in message.tool_calls]
    invalid_calls = [call for call in message.invalid_tool_calls if call["id"] is not None]
    calls += [write_call(call["id"], call["name"] or "", call["args"] or "") for call in invalid_calls]
    return calls


def _write_parts(message: BaseMessage) -> tuple[Any, str]:
    """Content in the dialect's words, and the thinking in it.

    Integrations have thinking as a part, under one of two names.
    """
    parts = convert_to_openai_messages(message).get("content") or ""
    if isinstance(parts, str):  # LangChain joins parts that are all text
        return parts, ""
    sent: list[Any] = []
    thoughts: list[str] = []
    for part in parts:
        thought = part.get("thinking") or part.get("reasoning")
        if thought:
            thoughts.append(str(thought))
        if part.get("type") in _SENT_PARTS:
            sent.append(part)
    return sent, "\n".join(thoughts)


def _read_message(turns: Sequence[Turn], source: BaseMessage | None) -> BaseMessage:
    """A new message. A lowered one keeps the id, the name and the metadata of its source.

    A message of the model loses `additional_kwargs`: some integrations have its calls there a second
    time.
    """
    turn = turns[0].wire
    content = turn.get("content") or ""
    if isinstance(source, AIMessage):
        calls = _read_calls(turn, source)
        return source.model_copy(update={"content": content, "additional_kwargs": {}, **calls})
    if source is not None:
        return source.model_copy(update={"content": content})
    if turn["role"] == "tool":
        return ToolMessage(content, tool_call_id=turn["tool_call_id"])
    return _MESSAGE_TYPES.get(turn["role"], HumanMessage)(content)


def _read_calls(turn: dict[str, Any], source: AIMessage) -> dict[str, list[Any]]:
    """Both fields that hold calls. A call stays in the field that it has in the source."""
    invalid_calls = {call["id"]: call for call in source.invalid_tool_calls}
    fields: dict[str, list[Any]] = {"tool_calls": [], "invalid_tool_calls": []}
    for call_id, name, arguments in read_calls(turn):
        if call_id in invalid_calls:
            fields["invalid_tool_calls"].append({**invalid_calls[call_id], "args": arguments})
        else:
            call = {"id": call_id, "name": name, "args": decode_arguments(arguments), "type": "tool_call"}
            fields["tool_calls"].append(call)
    return fields


_MESSAGE_TYPES: dict[str, type[BaseMessage]] = {"assistant": AIMessage, "system": SystemMessage}
"""What LangChain calls the messages that lamina writes itself, such as digests. Others are the user's."""


CODEC = MessageCodec(write=_write_message, read=_read_message)
