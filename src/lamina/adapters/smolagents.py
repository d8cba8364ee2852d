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

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from smolagents import AgentMemory, ChatMessage, CodeAgent, Tool, ToolCallingAgent
from smolagents.agents import populate_template
from smolagents.models import CODEAGENT_RESPONSE_FORMAT, get_tool_json_schema

from lamina.adapters._smolagents_steps import CODEC
from lamina.adapters.bridge import RECALL, ContextFitter, add_report
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
