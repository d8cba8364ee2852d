"""What a model may do: a tool and the function behind it.

Calls that only read run in parallel. A call that writes runs alone, in its place, and only if it was
approved. Whatever goes wrong becomes a result that the model can read. This module knows no model and no
session.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import anyio
import msgspec
from anyio.lowlevel import checkpoint_if_cancelled

from lamina.core.text.characters import WHITE_SPACE, is_blank
from lamina.core.values import Role, Segment, Text, Thinking, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects.port import Tool
from lamina.errors import BadInput
from lamina.formats.codec import encode
from lamina.segments import result

QUESTION = "[The user's question]: "
"""What is written before the question where it is repeated."""

LONGEST = 2_000
"""How many characters of an error the model sees."""

Run = Callable[[dict[str, Any]], Awaitable[Any]]
"""Takes the arguments of a call. Returns text, parts, a ToolResult, a segment, or anything that is JSON."""


async def run_nothing(_: dict[str, Any]) -> Any:
    """What an action runs that was not bound to a session."""
    hint = "run it with an Agent, or call bound_to(session) first"
    raise BadInput("it was not bound to a session", place="action", hint=hint)


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """A tool, and the function that runs when it is called.

    `writes`: it changes something, so it is approved first and runs alone. `searches`: the user's question is
    repeated after its result. `guideline` is a line for the system text. An action that works with the
    conversation it is called in has `bind` instead of `run`, which returns the function for a session.
    """

    tool: Tool
    run: Run = run_nothing
    writes: bool = False
    searches: bool = False
    guideline: str = ""
    bind: Callable[[Any], Run] | None = None

    def bound_to(self, session: Any) -> Action:
        """The action with its function for this session."""
        if self.bind is None:
            return self
        return msgspec.structs.replace(self, run=self.bind(session), bind=None)


Approve = Callable[[ToolCall, Action], Awaitable[bool | str]]
"""Whether a call that writes may run. A text is the reason why it may not."""


async def approve_always(_: ToolCall, __: Action) -> bool:
    """Approve every call without asking. Give it to an agent whose tools may all run unattended."""
    return True


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How calls are run: who approves them, how many run at once, and how long one may take.

    `question` is what the user asked, to be repeated after a search.
    """

    approve: Approve | None = None
    parallel: int = 8
    seconds: float | None = 120.0
    question: str = ""


async def run_calls(
    calls: Sequence[ToolCall],
    actions: Mapping[str, Action],
    options: RunOptions,
    results: dict[int, Segment],
) -> list[Segment]:
    """Run the calls and return one result for each, in order.

    Each result is put into `results`, by the index of its call, as soon as it is there. So the caller has the
    finished ones even if it is cancelled.
    """
    limiter = anyio.CapacityLimiter(max(options.parallel, 1))

    async def run_one(index: int, call: ToolCall) -> None:
        async with limiter:
            results[index] = await _run_call(call, actions.get(call.name), options)

    def group_of(indexed_call: tuple[int, ToolCall]) -> int:
        """Put neighbours that only read into one group, and each call that writes into its own."""
        index, call = indexed_call
        action = actions.get(call.name)
        if action is not None and action.writes:
            return index
        return -1

    for _, calls_of_group in groupby(enumerate(calls), key=group_of):
        async with anyio.create_task_group() as tasks:
            for index, call in calls_of_group:
                tasks.start_soon(run_one, index, call)
    return [results[index] for index in range(len(calls))]


def refuse_call(call: ToolCall, reason: str) -> Segment:
    """The result of a call that was not run."""
    return result(f"Not run: {reason}", id=call.id, name=call.name, error=True)


def index_actions(actions: Iterable[Action]) -> dict[str, Action]:
    """The actions by the names of their tools."""
    by_name: dict[str, Action] = {}
    for action in actions:
        if action.tool.name in by_name or action.tool.name == "recall":
            hint = "give each action a name of its own; `recall` is the session's"
            raise BadInput(f"the name {action.tool.name!r} is taken", place="actions", hint=hint)
        by_name[action.tool.name] = action
    return by_name


async def _run_call(call: ToolCall, action: Action | None, options: RunOptions) -> Segment:
    """Check a call, ask for approval if it writes, and run it."""
    if action is None:
        return refuse_call(call, f"there is no tool named {call.name!r}")
    try:
        arguments = _read_arguments(call, action.tool)
    except BadInput as error:
        return refuse_call(call, str(error))
    if action.writes:
        objection = await _find_objection(call, action, options.approve)
        if objection:
            return refuse_call(call, objection)
    segment = await _run_action(call, action, arguments, options.seconds)
    if action.searches:
        return _repeat_question(segment, options.question)
    return segment


async def _run_action(
    call: ToolCall, action: Action, arguments: dict[str, Any], seconds: float | None
) -> Segment:
    """Run the function of an action. If it fails or takes too long, the result says so."""
    problem = f"it did not end within {seconds} seconds"
    try:
        with anyio.move_on_after(seconds):
            segment = _make_result(await action.run(arguments), call)
            # What no record can hold has to fail here, alone: later it would take with it the results of the
            # calls beside it, which cannot be run again.
            encode(segment)
            return segment
    except BadInput as error:
        problem = str(error)
    except Exception as error:  # noqa: BLE001 - a tool may fail in any way, and the model is told
        problem = f"{type(error).__name__}: {error}"
    except anyio.get_cancelled_exc_class():
        # The turn is cancelled, or only something that the tool has waited for. That would end the calls
        # beside it without a word: a task group takes the end of one task for its own.
        await checkpoint_if_cancelled()
        problem = "what it waited for was cancelled"
    return result(f"Error: {problem[:LONGEST]}", id=call.id, name=call.name, error=True)


async def _find_objection(call: ToolCall, action: Action, approve: Approve | None) -> str:
    """The reason why a call may not run, or "" if it may."""
    if approve is None:
        return "this needs approval, and nobody is there to give it"
    try:
        answer = await approve(call, action)
    except Exception as error:  # noqa: BLE001 - whatever went wrong, nobody said yes
        return f"asking for approval failed: {error!r:.200}"
    if isinstance(answer, str):
        return answer
    if not answer:
        return "the user did not approve it"
    return ""


def _read_arguments(call: ToolCall, tool: Tool) -> dict[str, Any]:
    """Read the arguments of a call. Raises BadInput, in words for the model, if one is missing."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        raise BadInput("the arguments are not JSON", hint="send the call again") from None
    if not isinstance(arguments, dict):
        raise BadInput("the arguments are not an object", hint="name each argument")
    for name in tool.schema.get("required", ()):
        if name not in arguments:
            raise BadInput(f"the argument {name!r} is missing", hint="send the call again with it")
    return arguments


def _make_result(value: Any, call: ToolCall) -> Segment:
    """What a function returned as the result of this call."""
    match value:
        case ToolResult():
            return result(value.content, id=call.id, name=call.name, error=value.error)
        case Segment():
            return _result_of_segment(value, call)
        case str() | msgspec.Struct():
            content: Any = value
        case [*items] if _are_all(items, Segment):
            content = "\n\n".join(map(_describe_segment, items))
        case [*items] if _are_all(items, msgspec.Struct):  # parts, such as a text and a picture
            content = value
        case _:
            content = json.dumps(value, ensure_ascii=False, default=str)
    return result(content, id=call.id, name=call.name)


def _result_of_segment(segment: Segment, call: ToolCall) -> Segment:
    """A segment as the result of a call, with its own kind, attributes and error."""
    for part in segment.parts:
        if isinstance(part, ToolResult):
            own_result = msgspec.structs.replace(part, id=call.id, name=call.name)
            return msgspec.structs.replace(segment, role=Role.TOOL, parts=(own_result,))
    # A provider refuses a result that holds a call, or thinking.
    content = tuple(part for part in segment.parts if not isinstance(part, ToolCall | ToolResult | Thinking))
    call_result = result(content, id=call.id, name=call.name, attrs=segment.attrs)
    return msgspec.structs.replace(
        call_result, priority=segment.priority, pinned=segment.pinned, meta=segment.meta
    )


def _describe_segment(segment: Segment) -> str:
    """The text of one of several segments, after a line that says where it comes from."""
    origins = [segment.attrs.get(name, "") for name in ("source", "path", "url", "place")]
    origin = " ".join(filter(None, origins))
    return f"[{origin or segment.key or segment.kind}]\n{text_of(segment.parts)}"


def _are_all(items: Sequence[Any], kind: type) -> bool:
    """Whether there are items, and each is of this kind."""
    return len(items) > 0 and all(isinstance(item, kind) for item in items)


def _repeat_question(segment: Segment, question: str) -> Segment:
    """The result of a search with the user's question after its last text.

    A model answers best if the question comes after the context.
    """
    part = segment.parts[0]
    if not isinstance(part, ToolResult) or part.error or not question:
        return segment
    content = list(part.content)
    for index in reversed(range(len(content))):
        item = content[index]
        if isinstance(item, Text):
            content[index] = Text(add_question(item.text, question))
            new_part = msgspec.structs.replace(part, content=tuple(content))
            return msgspec.structs.replace(segment, parts=(new_part,))
    return segment


def add_question(context: str, question: str) -> str:
    """The context, then the question. A question that already ends the context is not repeated."""
    if is_blank(context):
        return question
    trimmed = context.rstrip(WHITE_SPACE)
    if is_blank(question) or trimmed.endswith(question.strip(WHITE_SPACE)):
        return context
    return f"{trimmed}\n\n{QUESTION}{question}"
