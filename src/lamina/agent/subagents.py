"""Sub-agents: another conversation works on a task, and the parent sees only the result.

The child's log begins with a `parent_message` that names its parent. In the parent's log, its answer is a
`subagent_result` that names the child. A model delegates with a tool (`delegate`). An application delegates
with `hand_over`, which adds a `spawn_subagent` to the log, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from hashlib import blake2b
from typing import Any

import msgspec

from lamina.agent.actions import Action
from lamina.agent.loop import Agent
from lamina.agent.outcome import TurnOutcome
from lamina.core.values import Role, Segment, Text, ToolResult
from lamina.dialects.port import Tool
from lamina.segments import segment
from lamina.sessions import Session

Open = Callable[[str], AbstractAsyncContextManager[Session]]
"""Opens the conversation of a sub-agent by its name."""

_TASK = {
    "type": "object",
    "properties": {
        "task": {"type": "string", "description": "All that the other one must know: it sees nothing else."}
    },
    "required": ["task"],
}


def delegate(
    agent: Agent,
    opens: Open,
    *,
    parent: str,
    name: str = "delegate",
    description: str = "Gives a task to a coworker, who works on it alone and reports what was found.",
) -> Action:
    """Return a tool with which the model of the conversation `parent` gives tasks to a sub-agent."""
    used_names: set[str] = set()

    async def run(arguments: dict[str, Any]) -> Segment:
        child, outcome = await _run_task(agent, opens, parent, str(arguments["task"]), used_names)
        content = (Text(_answer_text(outcome)),)
        return segment(
            "subagent_result",
            Role.TOOL,
            ToolResult(id="", content=content, error=outcome.ending != "end"),
            attrs=_result_attrs(child, outcome),
            meta={"spent": msgspec.to_builtins(outcome.spent)},
        )

    return Action(
        tool=Tool(name=name, description=description, schema=_TASK),
        run=run,
        guideline="give away what can be done apart from the rest, with everything needed to do it",
    )


async def hand_over(session: Session, agent: Agent, opens: Open, task: str) -> TurnOutcome:
    """Give a task to a sub-agent between two turns, without a call by the model."""
    child, outcome = await _run_task(agent, opens, session.conversation, task, set())
    await session.add(
        segment("spawn_subagent", Role.ASSISTANT, task, attrs={"subagent_id": child}),
        segment("subagent_result", Role.USER, _answer_text(outcome), attrs=_result_attrs(child, outcome)),
    )
    return outcome


async def _run_task(
    agent: Agent, opens: Open, parent: str, task: str, used_names: set[str]
) -> tuple[str, TurnOutcome]:
    """Run a task in a new conversation. Returns the name of that conversation and the outcome."""
    for child in _list_names(parent, task):
        if child in used_names:
            continue
        used_names.add(child)
        async with opens(child) as session:
            if session.log:  # the same task was given earlier
                continue
            message = segment("parent_message", Role.USER, task, attrs={"parent_agent_id": parent})
            await session.add(message)
            return child, await agent.go_on(session)
    raise AssertionError("names do not end")


def _list_names(parent: str, task: str) -> Iterator[str]:
    """Yield the names for the conversation of a task: one of its text, then the same with a number."""
    first_name = f"{parent}.{blake2b(task.encode(), digest_size=5).hexdigest()}"
    yield first_name
    for number in itertools.count(2):
        yield f"{first_name}-{number}"


def _answer_text(outcome: TurnOutcome) -> str:
    return outcome.text or f"No answer: {outcome.ending}."


def _result_attrs(child: str, outcome: TurnOutcome) -> dict[str, str]:
    return {"subagent_id": child, "success": "true" if outcome.ending == "end" else "false"}
