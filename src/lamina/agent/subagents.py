"""Sub-agents: a task that another conversation works on, of which the parent sees the result only.

The child's log begins with a `parent_message` that names its parent; in the parent's log its answer is a
`subagent_result` that names the child. A model delegates with a tool (`delegate`), an application with
`hand_over`, which notes the `spawn_subagent` too.
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
"""Opens the conversation of a sub-agent, by its name."""

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
    """A tool with which the model of the conversation `parent` gives tasks away."""
    taken: set[str] = set()

    async def run(given: dict[str, Any]) -> Segment:
        task = str(given["task"])
        child, outcome = await _worked(agent, opens, parent, task, taken)
        content = (Text(outcome.text or f"No answer: {outcome.ending}."),)
        failed = outcome.ending != "end"
        return segment(
            "subagent_result",
            Role.TOOL,
            ToolResult(id="", content=content, error=failed),
            attrs=_attrs(child, outcome),
            meta={"spent": msgspec.to_builtins(outcome.spent)},
        )

    return Action(
        tool=Tool(name=name, description=description, schema=_TASK),
        run=run,
        guideline="give away what can be done apart from the rest, with everything needed to do it",
    )


async def hand_over(session: Session, agent: Agent, opens: Open, task: str) -> TurnOutcome:
    """Gives a task to a sub-agent between two turns, on the application's own account."""
    child, outcome = await _worked(agent, opens, session.conversation, task, set())
    text = outcome.text or f"No answer: {outcome.ending}."
    await session.add(
        segment("spawn_subagent", Role.ASSISTANT, task, attrs={"subagent_id": child}),
        segment("subagent_result", Role.USER, text, attrs=_attrs(child, outcome)),
    )
    return outcome


async def _worked(
    agent: Agent, opens: Open, parent: str, task: str, taken: set[str]
) -> tuple[str, TurnOutcome]:
    """Works on a task in a conversation that nobody has used: its name, and what came of it."""
    for child in _names(parent, task):
        if child in taken:
            continue
        taken.add(child)
        async with opens(child) as session:
            if session.log:  # the same task, earlier
                continue
            words = segment("parent_message", Role.USER, task, attrs={"parent_agent_id": parent})
            await session.add(words)
            return child, await agent.go_on(session)
    raise AssertionError("names do not end")


def _names(parent: str, task: str) -> Iterator[str]:
    first = f"{parent}.{blake2b(task.encode(), digest_size=5).hexdigest()}"
    return itertools.chain((first,), (f"{first}-{number}" for number in itertools.count(2)))


def _attrs(child: str, outcome: TurnOutcome) -> dict[str, str]:
    return {"subagent_id": child, "success": "true" if outcome.ending == "end" else "false"}
