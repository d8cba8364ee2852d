"""smolagents: agents whose memory is fitted each time it is written for the model.

    agent = LaminaToolCallingAgent(tools=tools, model=model, budget=16_000)   # or LaminaCodeAgent
    agent.run("…")
    agent.run("…", reset=False)

The steps in `agent.memory` stay whole. smolagents has no hook at the model's input, so these classes override
`write_memory_to_messages`. The ledger is an attribute of the memory, which is reset and pickled with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from smolagents import ActionStep, AgentMemory, ChatMessage, CodeAgent, MemoryStep, Tool, ToolCallingAgent
from smolagents.models import MessageRole, get_tool_json_schema

from lamina.adapters import chat_turns as chat
from lamina.adapters.bridge import RECALL, ContextFitter, MessageCodec, Turn
from lamina.core.tokens import Counter
from lamina.core.values import Budget


class LaminaAgentMemory(AgentMemory):
    """The memory of an agent, with the ledger of its requests."""

    def __init__(self, system_prompt: str) -> None:
        super().__init__(system_prompt)
        self.ledger: dict[str, Any] | None = None

    def reset(self) -> None:
        super().reset()
        self.ledger = None


class _FittedMemory:
    """What both agents have besides their class of smolagents.

    `budget` is a `Budget` or a window in tokens; without it the window of the model counts. The agent has the
    tool `recall`; with `recall` off it gets none, and no handles are shown.
    """

    def __init__(
        self,
        tools: Sequence[Tool],
        model: Any,
        *args: Any,
        budget: Budget | int | None = None,
        recall: bool = True,
        counter: Counter | None = None,
        **kwargs: Any,
    ) -> None:
        model_id = str(getattr(model, "model_id", None) or "")
        self.fitter = ContextFitter(CODEC, model=model_id, budget=budget, recall=recall, counter=counter)
        all_tools = list(tools)
        if recall:
            all_tools.append(RecallTool(self))
        super().__init__(all_tools, model, *args, **kwargs)  # type: ignore[call-arg]
        self.memory = LaminaAgentMemory(self.memory.system_prompt.system_prompt)  # type: ignore[has-type]

    def write_memory_to_messages(self, summary_mode: bool = False) -> list[ChatMessage]:  # noqa: FBT001, FBT002
        """Write the fitted steps, as smolagents would write the whole ones."""
        memory = self.memory
        fitted = self.fitter.fit(
            memory.steps,
            system=memory.system_prompt.system_prompt,
            tools=self._write_tools(),
            ledger=memory.ledger,
            conversation=str(id(memory)),
        )
        memory.ledger = fitted.ledger
        messages: list[ChatMessage] = memory.system_prompt.to_messages(summary_mode=summary_mode)
        for step in fitted.messages:
            messages += step.to_messages(summary_mode=summary_mode)
        return messages

    def _write_tools(self) -> list[dict[str, Any]]:
        """Return the tools of a request. A code agent has them in its system prompt."""
        return []


class LaminaToolCallingAgent(_FittedMemory, ToolCallingAgent):
    """A `ToolCallingAgent` whose requests fit the window."""

    def _write_tools(self) -> list[dict[str, Any]]:
        return [get_tool_json_schema(each) for each in self.tools_and_managed_agents]


class LaminaCodeAgent(_FittedMemory, CodeAgent):
    """A `CodeAgent` whose requests fit the window. Its code calls `recall`."""


class RecallTool(Tool):
    """Answers from the whole memory of its agent."""

    name = RECALL.name
    description = RECALL.description
    inputs = {  # noqa: RUF012 - smolagents requires an attribute of the class
        name: {**definition, "nullable": name != "key"}
        for name, definition in RECALL.schema["properties"].items()
    }
    output_type = "string"
    skip_forward_signature_validation = True

    def __init__(self, agent: Any) -> None:
        super().__init__()
        self.agent = agent

    def forward(self, key: str, start: int | None = None, find: str | None = None) -> str:
        """Answer a call. A code agent may leave out `start` and `find`, or give None for them."""
        arguments = {"key": key, "start": start or 0, "find": find or ""}
        memory = self.agent.memory
        answer: str = self.agent.fitter.answer(memory.steps, arguments, ledger=memory.ledger)
        return answer


@dataclass
class NoteStep(MemoryStep):
    """A text of lamina's own, in place of steps that were left out."""

    role: str
    text: str

    def to_messages(self, summary_mode: bool = False) -> list[ChatMessage]:  # noqa: ARG002, FBT001, FBT002
        return [ChatMessage(role=MessageRole(self.role), content=[chat.write_text(self.text)])]


def _write_step(step: MemoryStep) -> list[dict[str, Any]]:
    """Write an action as its calls and one result for all of them, and any other step as its messages."""
    if not isinstance(step, ActionStep) or not step.tool_calls:
        return [_write_text(message) for message in step.to_messages()]
    calls = [chat.write_call(call.id, call.name, call.arguments) for call in step.tool_calls]
    turns = [chat.write_assistant(_read_output(step), calls)]
    turns += [chat.write_result(call.id, "") for call in step.tool_calls]
    turns[1]["content"] = "\n".join(_list_responses(step))
    return turns


def _write_text(message: ChatMessage) -> dict[str, Any]:
    """Write a message of a step that is not an action. What the model said or called is the assistant's."""
    role = "user"
    if message.role in (MessageRole.ASSISTANT, MessageRole.TOOL_CALL):
        role = "assistant"
    return {"role": role, "content": chat.read_text(message.content)}


def _read_output(step: ActionStep) -> str:
    """Return what the model said besides its calls. A model may return parts instead of text."""
    return chat.read_text(step.model_output)


def _list_responses(step: ActionStep) -> list[str]:
    """Return what the tools of a step answered, as smolagents writes it for the model."""
    responses = [message for message in step.to_messages() if message.role == MessageRole.TOOL_RESPONSE]
    return [chat.read_text(message.content) for message in responses]


def _read_step(turns: Sequence[Turn], source: MemoryStep | None) -> MemoryStep:
    """Return a new step: what was lowered in it is new, the rest is as it was.

    The first call's result stands for all results of the step, as `_write_step` has written it. A step
    that is no action, or lamina's own text, becomes a note.
    """
    wire = turns[0].wire
    if not isinstance(source, ActionStep) or not source.tool_calls:
        return NoteStep(role=wire["role"], text=chat.read_text(wire["content"]))
    step = source
    for turn in turns:
        if turn.place is not None:
            continue
        if turn.wire["role"] == "assistant":
            step = _change_calls(step, turn.wire)
        elif turn.wire["tool_call_id"] == source.tool_calls[0].id:
            text = chat.read_text(turn.wire["content"]).removeprefix("Observation:\n")
            step = replace(step, observations=text, error=None)
    return step


def _change_calls(step: ActionStep, wire: dict[str, Any]) -> ActionStep:
    """Return the step with the text and the arguments of a lowered turn."""
    arguments = chat.map_arguments(wire)
    calls = [
        replace(call, arguments=arguments.get(call.id, call.arguments)) for call in step.tool_calls or ()
    ]
    return replace(step, model_output=chat.read_text(wire.get("content")), tool_calls=calls)


CODEC = MessageCodec(write=_write_step, read=_read_step)
