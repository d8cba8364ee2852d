"""Haystack: hooks that fit each request of an agent and leave its history whole.

    agent = Agent(chat_generator=generator, tools=[*tools, recall_tool], hooks=make_hooks(budget=16_000))
    history = agent.run(messages=[*history, message])["messages"]

While the model is called, the agent's messages are the fitted ones. `FitHook` puts them there. `WholeHook`
brings the whole history back as soon as the model has answered. The ledger stands in the metadata of the last
reply of each turn, so it goes wherever the messages are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import msgspec
from haystack.components.agents.state import State, replace_values
from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage, TextContent, ToolCall
from haystack.tools import Tool

from lamina.adapters import chat_turns as chat
from lamina.adapters.bridge import RECALL, ContextFitter, MessageCodec, Turn, add_report
from lamina.core.values import Budget
from lamina.fitting.policy import Policy, load_policy

__all__ = ["make_hooks", "recall_tool"]

LEDGER = "lamina_ledger"
"""The key in the metadata of a reply under which the ledger stands."""

_WAITING = "lamina_waiting"
"""The key of the hooks' context under which the history stands while the model is called."""


def make_hooks(
    *,
    generator: Any = None,
    model: str = "",
    policy: Policy | None = None,
    budget: Budget | int | None = None,
) -> dict[str, list[Any]]:
    """The hooks of an agent. `policy` says how to fit; `budget` replaces that of the policy.

    `generator` is the agent's chat generator: Haystack does not show it to hooks. Its model and its
    `response_format` count. Without a budget the window of the model counts. If the policy turns recall off,
    no handles are shown; otherwise `recall_tool` belongs to the agent's tools.
    """
    settings = getattr(generator, "generation_kwargs", None) or {}
    output_format = chat.write_output_format(settings.get("response_format"))
    fit = FitHook(
        model=model or str(getattr(generator, "model", None) or ""),
        policy=policy,
        budget=budget,
        output_format=output_format,
    )
    whole = WholeHook()
    return {"before_llm": [fit], "before_tool": [whole], "on_exit": [whole], "after_run": [whole]}


class FitHook:
    """Puts the fitted messages into the agent's state, just before the model is called."""

    allowed_hook_points = ("before_llm",)

    def __init__(
        self,
        *,
        model: str = "",
        policy: Policy | None = None,
        budget: Budget | int | None = None,
        output_format: dict[str, Any] | None = None,
    ) -> None:
        self.output_format = output_format or {}
        self.fitter = ContextFitter(CODEC, model=model, policy=policy, budget=budget)

    def run(self, state: State) -> None:
        """Fit the messages of the state, and put the whole history where `WholeHook` finds it."""
        history = list(state.data["messages"])
        tools = [chat.write_tool(each.name, each.description, each.parameters) for each in _list_tools(state)]
        fitted = self.fitter.fit(history, tools=tools, head=self.output_format, ledger=_read_ledger(history))
        ledger = msgspec.to_builtins(fitted.ledger)
        waiting = {"history": history, "sent": len(fitted.messages), "ledger": ledger}
        _set(state, "messages", list(fitted.messages))
        _set(state, "hook_context", {**(state.data.get("hook_context") or {}), _WAITING: waiting})

    def to_dict(self) -> dict[str, Any]:
        options = {"model": self.fitter.model, "policy": self.fitter.policy.dump()}
        return dict(default_to_dict(self, **options, output_format=self.output_format))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        parameters = data["init_parameters"]
        policy = load_policy(parameters["policy"])
        hook: Self = default_from_dict(cls, {**data, "init_parameters": {**parameters, "policy": policy}})
        return hook


class WholeHook:
    """Brings the whole history back, with what came since, and the ledger in the last reply."""

    allowed_hook_points = ("before_tool", "on_exit", "after_run")

    def run(self, state: State) -> None:
        """Bring the history back, if it was put aside: another hook point may have done so already."""
        context = dict(state.data.get("hook_context") or {})
        waiting = context.pop(_WAITING, None)
        if waiting is None:
            return
        replies = list(state.data["messages"])[waiting["sent"] :]
        history = waiting["history"]
        if replies:
            history = _drop_earlier_ledger(history)
            meta = replies[-1].meta
            ledger = add_report(waiting["ledger"], meta)
            replies[-1] = replace(replies[-1], _meta={**meta, LEDGER: ledger})
        _set(state, "messages", [*history, *replies])
        _set(state, "hook_context", context)

    def to_dict(self) -> dict[str, Any]:
        return dict(default_to_dict(self))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        hook: Self = default_from_dict(cls, data)
        return hook


def recall(messages: list[ChatMessage], key: str, start: int = 0, find: str = "") -> str:
    """Answer a call of the tool from the agent's whole history."""
    arguments = {"key": key, "start": start, "find": find}
    return ContextFitter(CODEC).answer(messages, arguments, ledger=_read_ledger(messages))


recall_tool = Tool(
    name=RECALL.name,
    description=RECALL.description,
    parameters=dict(RECALL.schema),
    function=recall,
    inputs_from_state={"messages": "messages"},
)
"""The tool with which the agent reads what was left out."""


def _set(state: State, key: str, value: Any) -> None:
    state.set(key, value, handler_override=replace_values)


def _list_tools(state: State) -> Sequence[Tool]:
    return state.data.get("tools") or ()


def _read_ledger(messages: Sequence[ChatMessage]) -> dict[str, Any] | None:
    """The ledger of the last reply that has one, None before the first."""
    for message in reversed(messages):
        if LEDGER in message.meta:
            return dict(message.meta[LEDGER])
    return None


def _drop_earlier_ledger(history: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The history without the ledger of the step before: one for each turn is enough."""
    messages = list(history)
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if message.is_from("user"):
            break
        if LEDGER in message.meta:
            meta = dict(message.meta)
            del meta[LEDGER]
            messages[position] = replace(message, _meta=meta)
            break
    return messages


def _write_message(message: ChatMessage) -> list[dict[str, Any]]:
    """Write a message as a turn, as Haystack itself writes it for the API.

    Messages of the model are written here, with their reasoning.
    """
    if not message.is_from("assistant"):
        return [message.to_openai_dict_format(require_tool_call_ids=False)]
    parts = chat.TurnParts()
    for text in message.texts:
        parts.add_text(text)
    for call in message.tool_calls:
        parts.add_call(call.id, call.tool_name, call.arguments)
    for reasoning in message.reasonings:
        parts.add_thought(reasoning.reasoning_text)
    return [parts.write_assistant()]


def _read_message(turns: Sequence[Turn], source: ChatMessage | None) -> ChatMessage:
    """A new message. What no turn holds, such as reasoning, is that of its source.

    A message with a result has no other part. In a message of the model the new text comes first.
    """
    wire = turns[0].wire
    if source is None:
        return ChatMessage.from_openai_dict_format(wire)
    if not source.is_from("assistant") and not source.tool_call_results:
        return replace(source, _content=_list_parts(ChatMessage.from_openai_dict_format(wire)))
    text = chat.read_text(wire.get("content"))
    if source.tool_call_results:
        return replace(source, _content=[replace(source.tool_call_results[0], result=text)])
    arguments = chat.map_argument_objects(wire)
    content: list[Any] = []
    for part in _list_parts(source):
        if isinstance(part, ToolCall):
            content.append(replace(part, arguments=arguments.get(part.id or "", part.arguments)))
        elif not isinstance(part, TextContent):
            content.append(part)
    if text:
        content.insert(0, TextContent(text))
    return replace(source, _content=content)


def _list_parts(message: ChatMessage) -> Sequence[Any]:
    """The parts of a message in their order: Haystack's properties have them by their kind."""
    return message._content  # type: ignore[no-any-return]  # noqa: SLF001


CODEC = MessageCodec(write=_write_message, read=_read_message)
