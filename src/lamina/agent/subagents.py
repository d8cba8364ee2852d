"""Sub-agents: another conversation works on a task, and the parent sees only the result.

A model delegates with a tool, and an application between two turns. Either way there are two kinds of child:

- **apart** (`delegate`, `hand_over`): its conversation begins with the task and nothing else.
- **forked** (`delegate_forked`, `fork_tasks`): it begins with its parent's conversation, byte for byte as it
  was sent last. So the child knows what the parent knows, and a prefix cache has most of its first request.
  Children that are forked at the same place wait until the first one's answer begins: then its bytes are
  written, and the others read what they would have written themselves.

In the child's log a `parent_message` names its parent. In the parent's log, the answer is a `subagent_result`
that names the child, and that name is a handle: the parent's recall tool brings back what the child did.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import blake2b
from typing import Any

import anyio
import msgspec

from lamina.agent.actions import Action, Run
from lamina.agent.loop import Agent
from lamina.agent.outcome import TurnOutcome
from lamina.core.values import Role, Segment, Text, ToolResult
from lamina.dialects.port import Tool
from lamina.errors import Conflict
from lamina.segments import segment
from lamina.sessions import Session

Open = Callable[[str], AbstractAsyncContextManager[Session]]
"""Opens the conversation of a sub-agent by its name."""

PARALLEL = 8
"""How many forked children run at once, if the caller says nothing else."""


class ForkedTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task that a sub-agent has done. `child` is the name of its conversation.

    `has_handle`: the parent has the recall tool, which reads that conversation by its name.
    """

    task: str
    child: str
    outcome: TurnOutcome
    has_handle: bool = True

    @property
    def report(self) -> str:
        """What the parent reads: the answer, and the handle of the steps that led to it."""
        answer = self.outcome.text or f"No answer: {self.outcome.ending}."
        if not self.has_handle:
            return answer
        return f'{answer}\n[its steps: recall("{self.child}")]'

    @property
    def _attrs(self) -> dict[str, str]:
        success = "false"
        if self.outcome.ending == "end":
            success = "true"
        return {"subagent_id": self.child, "success": success}

    def make_result(self) -> Segment:
        """What a call of a delegating tool gives back."""
        part = ToolResult(id="", content=(Text(self.report),), error=self.outcome.ending != "end")
        meta = {"spent": msgspec.to_builtins(self.outcome.spent)}
        return segment("subagent_result", Role.TOOL, part, attrs=self._attrs, meta=meta)

    async def link_to(self, session: Session) -> None:
        """Add to the parent's log what it has of a child that the application started."""
        await session.add(
            segment("spawn_subagent", Role.ASSISTANT, self.task, attrs={"subagent_id": self.child}),
            segment("subagent_result", Role.USER, self.report, attrs=self._attrs),
        )


def delegate(
    agent: Agent,
    opens: Open,
    *,
    parent: str,
    name: str = "delegate",
    description: str = "Gives a task to a coworker, who works on it alone and reports what was found.",
) -> Action:
    """A tool with which the model of the conversation `parent` gives tasks to a sub-agent."""
    used_names: set[str] = set()

    async def run(arguments: dict[str, Any]) -> Segment:
        return (await _run_apart(agent, opens, parent, str(arguments["task"]), used_names)).make_result()

    return Action(
        tool=_make_tool(name, description, "All that the other one must know: it sees nothing else."),
        run=run,
        guideline="give away what can be done apart from the rest, with everything needed to do it",
    )


def delegate_forked(
    agent: Agent,
    *,
    name: str = "delegate",
    description: str = "Gives a task to a coworker who knows this conversation, and reports what was found.",
) -> Action:
    """A tool with which a model gives tasks to sub-agents that begin with its own conversation.

    The child sends the tools of its parent, since they are the beginning of the prefix. It can run those
    that `agent` has as actions, and any other call is refused.
    """

    def bind(session: Session) -> Run:
        writes = _FirstWrites()

        async def run(arguments: dict[str, Any]) -> Segment:
            return (await _run_forked(session, agent, str(arguments["task"]), writes)).make_result()

        return run

    return Action(
        tool=_make_tool(name, description, "What to do. The other one knows this conversation so far."),
        bind=bind,
        guideline="give away tasks that need what was said here, several at once if each stands alone",
    )


async def hand_over(session: Session, agent: Agent, opens: Open, task: str) -> TurnOutcome:
    """Give a task to a sub-agent between two turns, without a call by the model."""
    done = await _run_apart(agent, opens, session.conversation, task, set())
    await done.link_to(session)
    return done.outcome


async def fork_tasks(
    session: Session, agent: Agent, tasks: Sequence[str], *, parallel: int = PARALLEL
) -> tuple[ForkedTask, ...]:
    """Give tasks to forked sub-agents between two turns. Their results are added to the log in this order.

    If one fails, the others are cancelled and nothing is added.
    """
    writes = _FirstWrites()
    limiter = anyio.CapacityLimiter(max(parallel, 1))
    done: dict[int, ForkedTask] = {}

    async def run_one(index: int, task: str) -> None:
        async with limiter:
            done[index] = await _run_forked(session, agent, task, writes)

    try:
        async with anyio.create_task_group() as children:
            for index, task in enumerate(tasks):
                children.start_soon(run_one, index, task)
    except BaseExceptionGroup as failures:  # the first one cancelled the others
        raise failures.exceptions[0] from None
    forked_tasks = tuple(done[index] for index in range(len(tasks)))
    for forked in forked_tasks:
        await forked.link_to(session)
    return forked_tasks


class _FirstWrites:
    """Lets the first child at each place go ahead, until its answer begins.

    A provider's cache has a prefix only when the answer to the request that wrote it has begun. Children that
    are sent before that would each write it.
    """

    def __init__(self) -> None:
        self._begun: dict[int, anyio.Event] = {}

    async def wait(self, place: int) -> anyio.Event:
        """Wait for the first child at a place, unless it is this one. Returns the event of its beginning."""
        if place in self._begun:
            await self._begun[place].wait()
        return self._begun.setdefault(place, anyio.Event())


async def _run_forked(session: Session, agent: Agent, task: str, writes: _FirstWrites) -> ForkedTask:
    """Run a task in a fork of a session, under a name that is not taken."""
    for name in _list_names(session.conversation, task):
        try:
            child = await session.fork(name=name, task=task)
        except Conflict:  # the same task was given earlier
            continue
        begun = await writes.wait(child.parent.at if child.parent else 0)

        async def note_beginning(_: object, begun: anyio.Event = begun) -> None:
            begun.set()

        try:
            outcome = await agent.go_on(child, hear=note_beginning)
        finally:  # also if it failed before its answer began: the others would wait for ever
            begun.set()
        return ForkedTask(task=task, child=name, outcome=outcome, has_handle=session.setup.recall)
    raise AssertionError("names do not end")


async def _run_apart(agent: Agent, opens: Open, parent: str, task: str, used_names: set[str]) -> ForkedTask:
    """Run a task in a new conversation."""
    for name in _list_names(parent, task):
        if name in used_names:  # a call beside this one has the same task, and may have stored nothing yet
            continue
        used_names.add(name)
        async with opens(name) as session:
            if session.log:  # the same task was given earlier
                continue
            await session.add(segment("parent_message", Role.USER, task, attrs={"parent_agent_id": parent}))
            outcome = await agent.go_on(session)
            return ForkedTask(task=task, child=name, outcome=outcome, has_handle=False)
    raise AssertionError("names do not end")


def _list_names(parent: str, task: str) -> Iterator[str]:
    """Yield the names for the conversation of a task: one of its text, then the same with a number."""
    first_name = f"{parent}.{blake2b(task.encode(), digest_size=5).hexdigest()}"
    yield first_name
    for number in itertools.count(2):
        yield f"{first_name}-{number}"


def _make_tool(name: str, description: str, about_task: str) -> Tool:
    schema = {
        "type": "object",
        "properties": {"task": {"type": "string", "description": about_task}},
        "required": ["task"],
    }
    return Tool(name=name, description=description, schema=schema)
