"""smolagents: agents whose memory is fitted each time it is written for the model.

    agent = LaminaToolCallingAgent(tools=tools, model=model, budget=16_000)   # or LaminaCodeAgent
    agent.run("…")
    agent.run("…", reset=False)

The steps in `agent.memory` stay whole. smolagents has no hook at the model's input, so these classes override
`write_memory_to_messages`. The ledger is an attribute of the memory, which is reset and pickled with it.

smolagents asks the model in three ways: for the next step, for a new plan, and for an answer when the steps
are used up. Each puts other texts around the memory, and they count. The calls of a step are sent as text,
so that text counts, too.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from smolagents import ActionStep, AgentMemory, ChatMessage, CodeAgent, MemoryStep, Tool, ToolCallingAgent
from smolagents.agents import populate_template
from smolagents.models import CODEAGENT_RESPONSE_FORMAT, MessageRole, get_tool_json_schema

from lamina.adapters import chat_turns as chat
from lamina.adapters.bridge import RECALL, ContextFitter, MessageCodec, Turn, add_report
from lamina.core.values import Budget
from lamina.fitting.policy import Policy

__all__ = ["LaminaCodeAgent", "LaminaToolCallingAgent"]


class LaminaAgentMemory(AgentMemory):
    """The memory of an agent, with the ledger of its requests.

    `fitted_steps` is how many steps there were at the last fit: the next one has the answer to it.
    """

    def __init__(self, system_prompt: str) -> None:
        super().__init__(system_prompt)
        self.ledger: dict[str, Any] | None = None
        self.fitted_steps = 0

    def reset(self) -> None:
        super().reset()
        self.ledger = None
        self.fitted_steps = 0

    def read_ledger(self) -> dict[str, Any] | None:
        """The ledger, with what the model's API reported for the last request."""
        answers = self.steps[self.fitted_steps :]
        if self.ledger is None or not answers:
            return self.ledger
        return add_report(self.ledger, getattr(answers[0], "token_usage", None))


@dataclass(frozen=True)
class _Question:
    """What smolagents puts around the memory when it asks: texts, and fields beside the messages."""

    name: str
    texts: Sequence[str]
    head: dict[str, Any] = field(default_factory=dict)


class _FittedMemory(ABC):
    """What both agents have besides their class of smolagents.

    `policy` says how, and `budget` replaces that of the policy. Without either the model's window counts.
    The agent has the tool `recall`. If the policy turns recall off, it gets none, and no handles are shown.
    """

    # Attributes of smolagents' agents.
    prompt_templates: Any
    tools: dict[str, Tool]
    managed_agents: dict[str, Any]
    max_steps: int

    def __init__(
        self,
        tools: Sequence[Tool],
        model: Any,
        *args: Any,
        policy: Policy | None = None,
        budget: Budget | int | None = None,
        **kwargs: Any,
    ) -> None:
        model_id = str(getattr(model, "model_id", None) or "")
        self.fitter = ContextFitter(CODEC, model=model_id, policy=policy, budget=budget)
        all_tools = list(tools)
        if self.fitter.recall:
            all_tools.append(RecallTool(self))
        super().__init__(all_tools, model, *args, **kwargs)  # type: ignore[call-arg]
        self.memory = LaminaAgentMemory(self.memory.system_prompt.system_prompt)  # type: ignore[has-type]
        self._question: _Question | None = None

    def write_memory_to_messages(self, summary_mode: bool = False) -> list[ChatMessage]:  # noqa: FBT001, FBT002
        """Write the fitted steps, as smolagents would write the whole ones."""
        memory = self.memory
        question = self._question
        if question is None:
            question = _Question(
                name="step", texts=[memory.system_prompt.system_prompt], head=self._write_head()
            )
        fitted = self.fitter.fit(
            memory.steps,
            system="\n".join(question.texts),
            head=question.head,
            ledger=memory.read_ledger(),
            conversation=f"{id(memory)} {question.name}",
        )
        memory.ledger = fitted.ledger
        memory.fitted_steps = len(memory.steps)
        messages: list[ChatMessage] = memory.system_prompt.to_messages(summary_mode=summary_mode)
        for step in fitted.messages:
            messages += step.to_messages(summary_mode=summary_mode)
        return messages

    def provide_final_answer(self, task: str) -> ChatMessage:
        """Ask for an answer when the steps are used up, with the texts of that question counted."""
        templates = self.prompt_templates["final_answer"]
        texts = [templates["pre_messages"], populate_template(templates["post_messages"], {"task": task})]
        with self._asking(_Question(name="answer", texts=texts)):
            message: ChatMessage = super().provide_final_answer(task)  # type: ignore[misc]
        return message

    def _generate_planning_step(self, task: Any, is_first_step: bool, step: int) -> Iterator[Any]:  # noqa: FBT001
        """Ask for a plan. A later one is asked for with the memory between two texts, without tools."""
        templates = self.prompt_templates["planning"]
        variables = {
            "task": task,
            "tools": self.tools,
            "managed_agents": self.managed_agents,
            "remaining_steps": self.max_steps - step,
        }
        names = ("update_plan_pre_messages", "update_plan_post_messages")
        texts = [populate_template(templates[name], variables) for name in names]
        with self._asking(_Question(name="plan", texts=texts)):
            yield from super()._generate_planning_step(task, is_first_step, step)  # type: ignore[misc]

    @contextmanager
    def _asking(self, question: _Question) -> Iterator[None]:
        """Count the texts of this question in place of the system prompt and the tools."""
        self._question = question
        try:
            yield
        finally:
            self._question = None

    @abstractmethod
    def _write_head(self) -> dict[str, Any]:
        """What is sent beside the messages of a step."""


class LaminaToolCallingAgent(_FittedMemory, ToolCallingAgent):
    """A `ToolCallingAgent` whose requests fit the window."""

    def _write_head(self) -> dict[str, Any]:
        return {"tools": [get_tool_json_schema(each) for each in self.tools_and_managed_agents]}


class LaminaCodeAgent(_FittedMemory, CodeAgent):
    """A `CodeAgent` whose requests fit the window. Its code calls `recall`."""

    def _write_head(self) -> dict[str, Any]:
        """The format of its answers. The tools stand in its system prompt."""
        if self._use_structured_outputs_internally:
            return {"response_format": CODEAGENT_RESPONSE_FORMAT}
        return {}


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
    """Write an action as its calls, one result for all of them, and pictures. Other steps are messages."""
    if not isinstance(step, ActionStep) or not step.tool_calls:
        return [_write_text(message) for message in step.to_messages()]
    calls = [_write_call(call) for call in step.tool_calls]
    turns = [chat.write_assistant(_read_output(step), calls)]
    turns[0][chat.FRAME] = _write_frame(step.tool_calls)
    turns += [chat.write_result(call.id, "") for call in step.tool_calls]
    turns[1]["content"] = "\n".join(_list_responses(step))
    if step.observations_images:
        turns.append({"role": "user", "content": [_PICTURE] * len(step.observations_images)})
    return turns


_PICTURE = chat.write_image("data:image/png;base64,iVBORw0KGgo=")
"""Stands for any picture. All of them count the same, and encoding one takes long."""


def _write_call(call: Any) -> dict[str, Any]:
    """Write a call. Code is sent as a quoted text, with its line ends written out, so it counts as that."""
    arguments = call.arguments
    if isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return chat.write_call(call.id, call.name, arguments)


def _write_frame(calls: Sequence[Any]) -> str:
    """What smolagents writes around the arguments of calls: they are sent as the text of a list."""
    without_arguments = [replace(call, arguments={}).dict() for call in calls]
    return f"Calling tools:\n{without_arguments}"


def _write_text(message: ChatMessage) -> dict[str, Any]:
    """Write a message of a step that is not an action. What the model said or called is the assistant's."""
    role = "user"
    if message.role in (MessageRole.ASSISTANT, MessageRole.TOOL_CALL):
        role = "assistant"
    text = chat.read_text(message.content)
    pictures = [_PICTURE for part in message.content or () if part["type"] == "image"]
    if pictures:
        return {"role": role, "content": [chat.write_text(text), *pictures]}
    return {"role": role, "content": text}


def _read_output(step: ActionStep) -> str:
    """What the model said besides its calls. A model may return parts instead of text."""
    return chat.read_text(step.model_output)


def _list_responses(step: ActionStep) -> list[str]:
    """What the tools of a step answered, as smolagents writes it for the model."""
    responses = [message for message in step.to_messages() if message.role == MessageRole.TOOL_RESPONSE]
    return [chat.read_text(message.content) for message in responses]


def _read_step(turns: Sequence[Turn], source: MemoryStep | None) -> MemoryStep:
    """A new step: what was lowered in it is new, the rest is as it was.

    The first call's result stands for all results of the step, as `_write_step` has written it. A step
    that is no action, or lamina's own text, becomes a note.
    """
    wire = turns[0].wire
    if not isinstance(source, ActionStep) or not source.tool_calls:
        return NoteStep(role=wire["role"], text=chat.read_text(wire["content"]))
    step = source
    if turns[-1].wire["role"] != "user":
        step = replace(step, observations_images=None)
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
    """The step with the text of a lowered turn, and with those of its arguments that were lowered."""
    sent_arguments = chat.map_arguments(wire)
    calls: list[Any] = []
    for call in step.tool_calls or ():
        written = _write_call(call)["function"]["arguments"]
        sent = sent_arguments.get(call.id, written)
        if sent != written:
            calls.append(replace(call, arguments=sent))
        else:
            calls.append(call)
    return replace(step, model_output=chat.read_text(wire.get("content")), tool_calls=calls)


CODEC = MessageCodec(write=_write_step, read=_read_step)
