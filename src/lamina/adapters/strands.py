"""Strands Agents: a conversation manager that fits each request and leaves the history whole.

    manager = LaminaConversationManager(budget=16_000)
    agent = Agent(tools=[*tools, manager.recall_tool], conversation_manager=manager, session_manager=…)

`agent.messages` always holds all messages. The manager adds a middleware to its agent, which fits what each
call of the model gets: the messages, the system text and the tools as Strands has put them together. The
ledger is the manager's state, which a session manager keeps with the session. Use one manager for each agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakSet

from strands import Agent, ToolContext, tool
from strands.agent.conversation_manager import ConversationManager
from strands.hooks import AfterModelCallEvent, BeforeInvocationEvent, HookRegistry
from strands.middleware import InvokeModelContext, InvokeModelStage

from lamina.adapters.bridge import RECALL, ContextFitter, MessageCodec, Turn, add_report
from lamina.adapters.chat_turns import (
    read_calls,
    read_text,
    write_assistant,
    write_call,
    write_result,
    write_tool,
)
from lamina.core.values import Budget
from lamina.dialects.json_values import decode_arguments
from lamina.fitting.policy import Policy

__all__ = ["LaminaConversationManager"]


class LaminaConversationManager(ConversationManager):
    """Fits each request into the window. `policy` says how; `budget` replaces that of the policy.

    Without a budget the window of the model counts. `recall_tool` belongs to the agent's tools. If the policy
    turns recall off, no handles are shown, and the agent needs no tool.
    """

    def __init__(self, *, policy: Policy | None = None, budget: Budget | int | None = None) -> None:
        super().__init__()
        self.fitter = ContextFitter(CODEC, policy=policy, budget=budget)
        self.ledger: dict[str, Any] | None = None
        self._agents: WeakSet[Agent] = WeakSet()
        self.recall_tool = self._make_recall_tool()

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        super().register_hooks(registry, **kwargs)
        registry.add_callback(BeforeInvocationEvent, self._join)
        registry.add_callback(AfterModelCallEvent, self._take_report)

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "ledger": self.ledger}

    def restore_from_session(self, state: dict[str, Any]) -> list[Any] | None:
        self.ledger = state.get("ledger")
        messages: list[Any] | None = super().restore_from_session(state)
        return messages

    def apply_management(self, agent: Agent, **kwargs: Any) -> None:
        """Do nothing: the history stays whole."""

    def reduce_context(self, agent: Agent, e: Exception | None = None, **kwargs: Any) -> None:  # noqa: ARG002
        """Raise the model's error: its window is smaller than the budget says."""
        if e is not None:
            raise e

    def _join(self, event: BeforeInvocationEvent) -> None:
        """Add the middleware when the agent is called first, so that it comes after those of its user."""
        if event.agent not in self._agents:
            self._agents.add(event.agent)
            event.agent.add_middleware(InvokeModelStage.Input, self._fit)

    def _take_report(self, event: AfterModelCallEvent) -> None:
        """Add what the model's API reported to the ledger. A call that failed has no response."""
        if event.stop_response is not None and self.ledger is not None:
            self.ledger = add_report(self.ledger, event.stop_response.message.get("metadata"))

    def _fit(self, context: InvokeModelContext) -> InvokeModelContext:
        """The context of a call of the model with the messages that fit."""
        specs = context.tool_specs or ()
        tools = [write_tool(spec["name"], spec["description"], spec["inputSchema"]["json"]) for spec in specs]
        fitted = self.fitter.fit(
            context.messages,
            system=_read_system(context.system_prompt),
            tools=tools,
            head={"model": _read_model_name(context.model)},
            ledger=self.ledger,
            conversation=context.agent.agent_id,
        )
        self.ledger = fitted.ledger
        return context.replace(messages=list(fitted.messages))

    def _make_recall_tool(self) -> Any:
        @tool(
            name=RECALL.name,
            description=RECALL.description,
            inputSchema={"json": RECALL.schema},
            context=True,
        )
        def recall(key: str, tool_context: ToolContext, start: int = 0, find: str = "") -> str:
            arguments = {"key": key, "start": start, "find": find}
            return self.fitter.answer(tool_context.agent.messages, arguments, ledger=self.ledger)

        return recall


def _read_system(system_prompt: Any) -> list[str]:
    """The system text: a prompt is one text, or a list of blocks of which some are cache points."""
    if isinstance(system_prompt, str):
        return [system_prompt]
    return [block["text"] for block in system_prompt or () if "text" in block]


def _read_model_name(model: Any) -> str:
    """The name of a model, "" if its configuration does not have one.

    Each provider of Strands has a configuration of its own. Most have the name under `model_id`.
    """
    config = model.get_config()
    if isinstance(config, Mapping):
        return str(config.get("model_id") or "")
    return ""


def _write_message(message: Any) -> list[dict[str, Any]]:
    """Write a message: each result is a turn, and so is everything else together.

    A message of the user may have results and text. The results come first, since they answer the calls
    of the message before it.
    """
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for block in message["content"]:
        if "text" in block:
            texts.append(block["text"])
        if "toolUse" in block:
            use = block["toolUse"]
            calls.append(write_call(use["toolUseId"], use["name"], use["input"]))
        if "toolResult" in block:
            result = block["toolResult"]
            results.append(write_result(result["toolUseId"], _read_result(result)))
    text = "\n".join(texts)
    if message["role"] == "assistant":
        return [write_assistant(text, calls)]
    if results and not texts:
        return results
    return [*results, {"role": "user", "content": text}]


def _read_result(result: Mapping[str, Any]) -> str:
    """The text of a result. JSON is written out, and pictures are left out."""
    parts = [block.get("text") or str(block.get("json", "")) for block in result["content"]]
    return "\n".join(parts)


def _read_message(turns: Sequence[Turn], source: Any) -> Any:
    """A new message. Its metadata, and blocks that no turn has, are those of its source.

    Blocks that no turn has, such as pictures and documents, come first.
    """
    blocks: list[Any] = []
    for turn in turns:
        blocks += _read_blocks(turn.wire, source)
    if source is None:
        role = turns[0].wire["role"]
        if role != "assistant":
            role = "user"  # Strands has no other roles
        return {"role": role, "content": blocks}
    rewritten = {"text", "toolUse", "toolResult"}
    others = [block for block in source["content"] if rewritten.isdisjoint(block)]
    return {**source, "content": [*others, *blocks]}


def _read_blocks(wire: Mapping[str, Any], source: Any) -> list[dict[str, Any]]:
    """The blocks of a turn: a result, or a text and calls."""
    text = read_text(wire.get("content"))
    if wire["role"] == "tool":
        status = _read_status(source, wire["tool_call_id"])
        result = {"toolUseId": wire["tool_call_id"], "status": status, "content": [{"text": text}]}
        return [{"toolResult": result}]
    blocks: list[dict[str, Any]] = []
    if text:
        blocks.append({"text": text})
    for call_id, name, arguments in read_calls(wire):
        use = {"toolUseId": call_id, "name": name, "input": decode_arguments(arguments)}
        blocks.append({"toolUse": use})
    return blocks


def _read_status(source: Any, call_id: str) -> str:
    """Whether a result said success or error.

    A result that lamina wrote has no block in the source. It counts as a success.
    """
    for block in (source or {}).get("content", ()):
        result = block.get("toolResult") or {}
        if result.get("toolUseId") == call_id:
            return str(result.get("status", "success"))
    return "success"


CODEC = MessageCodec(write=_write_message, read=_read_message)
