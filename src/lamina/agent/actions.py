"""What a model may do: a tool and the function behind it, carried out with care.

Calls that only read run side by side; one that writes runs alone, in its place, and only if it was approved.
Whatever goes wrong becomes a result that the model can read. It knows no model and no session.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import anyio
import msgspec

from lamina.agent.prompt_order import with_question
from lamina.core.values import Role, Segment, Text, Thinking, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects.port import Tool
from lamina.errors import BadInput
from lamina.segments import result

LONGEST = 2_000
"""Characters of an error that the model is told."""

Run = Callable[[dict[str, Any]], Awaitable[Any]]
"""Takes the arguments of a call; gives text, parts, a ToolResult, a segment, or anything that is JSON."""


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """A tool, and what is done when it is called.

    `writes`: it changes something, so it is approved first and runs alone. `searches`: the user's question is
    repeated after its result. `guideline` is a line for the system text.
    """

    tool: Tool
    run: Run
    writes: bool = False
    searches: bool = False
    guideline: str = ""


Approve = Callable[[ToolCall, Action], Awaitable[bool | str]]
"""Whether a call that writes may run; a text says why not."""


async def always(_: ToolCall, __: Action) -> bool:
    """Approves everything."""
    return True


class Care(msgspec.Struct, frozen=True, kw_only=True):
    """How calls are carried out: who approves, how many at once, how long one may take, what was asked."""

    approve: Approve | None = None
    parallel: int = 8
    seconds: float | None = 120.0
    question: str = ""


async def carried_out(
    calls: Sequence[ToolCall], actions: Mapping[str, Action], care: Care, done: dict[int, Segment]
) -> list[Segment]:
    """One result for each call, in order. `done` has those that are there already, whatever happens later."""
    limiter = anyio.CapacityLimiter(max(care.parallel, 1))

    async def one(at: int, call: ToolCall) -> None:
        async with limiter:
            done[at] = await _result(call, actions.get(call.name), care)

    def alone(pair: tuple[int, ToolCall]) -> int:
        action = actions.get(pair[1].name)
        return pair[0] if action is not None and action.writes else -1

    for _, run in groupby(enumerate(calls), key=alone):
        async with anyio.create_task_group() as group:
            for at, call in run:
                group.start_soon(one, at, call)
    return [done[at] for at in range(len(calls))]


def not_run(call: ToolCall, why: str) -> Segment:
    """The result of a call that was not carried out."""
    return result(f"Not run: {why}", id=call.id, name=call.name, error=True)


async def _result(call: ToolCall, action: Action | None, care: Care) -> Segment:
    if action is None:
        return not_run(call, f"there is no tool named {call.name!r}")
    try:
        arguments = _arguments(call, action.tool)
    except BadInput as error:
        return not_run(call, str(error))
    if action.writes and (no := await _no(call, action, care.approve)):
        return not_run(call, no)
    made = await _ran(call, action, arguments, care.seconds)
    return _asked_again(made, care.question) if action.searches else made


async def _ran(call: ToolCall, action: Action, arguments: dict[str, Any], seconds: float | None) -> Segment:
    said = f"it did not end within {seconds} seconds"
    try:
        with anyio.move_on_after(seconds):
            return made_of(await action.run(arguments), call)
    except Exception as error:  # noqa: BLE001 - a tool may fail in any way, and the model is told
        said = f"{error}" if isinstance(error, BadInput) else f"{type(error).__name__}: {error}"
    return result(f"Error: {said[:LONGEST]}", id=call.id, name=call.name, error=True)


async def _no(call: ToolCall, action: Action, approve: Approve | None) -> str:
    """Why a call may not run; nothing if it may."""
    if approve is None:
        return "this needs approval, and nobody is there to give it"
    try:
        answer = await approve(call, action)
    except Exception as error:  # noqa: BLE001 - whatever went wrong, nobody said yes
        return f"asking for approval failed: {error!r:.200}"
    if isinstance(answer, str):
        return answer
    return "" if answer else "the user did not approve it"


def _arguments(call: ToolCall, tool: Tool) -> dict[str, Any]:
    try:
        given = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        raise BadInput("the arguments are not JSON", hint="send the call again") from None
    if not isinstance(given, dict):
        raise BadInput("the arguments are not an object", hint="name each argument")
    missing = [name for name in tool.schema.get("required", ()) if name not in given]
    if missing:
        raise BadInput(f"the argument {missing[0]!r} is missing", hint="send the call again with it")
    return given


def made_of(given: Any, call: ToolCall) -> Segment:
    """What a function gave, as the result of this call; the kind, attributes and error of a segment stay."""
    if isinstance(given, ToolResult):
        return result(given.content, id=call.id, name=call.name, error=given.error)
    if isinstance(given, Segment):
        return _of_segment(given, call)
    if isinstance(given, list | tuple) and given and all(isinstance(one, Segment) for one in given):
        return result("\n\n".join(map(_shown, given)), id=call.id, name=call.name)
    if isinstance(given, str) or _parts(given):
        return result(given, id=call.id, name=call.name)
    return result(json.dumps(given, ensure_ascii=False, default=str), id=call.id, name=call.name)


def _of_segment(given: Segment, call: ToolCall) -> Segment:
    part = next((part for part in given.parts if isinstance(part, ToolResult)), None)
    if part is None:
        inner = tuple(p for p in given.parts if not isinstance(p, ToolCall | ToolResult | Thinking))
        made = result(inner, id=call.id, name=call.name, attrs=given.attrs)
        return msgspec.structs.replace(made, priority=given.priority, pinned=given.pinned, meta=given.meta)
    answer = msgspec.structs.replace(part, id=call.id, name=call.name)
    return msgspec.structs.replace(given, role=Role.TOOL, parts=(answer,))


def _shown(found: Segment) -> str:
    """One of several segments: where it comes from, and what it says."""
    shown = [found.attrs[name] for name in ("source", "path", "url", "place") if found.attrs.get(name)]
    return f"[{' '.join(shown) or found.key or found.kind}]\n{text_of(found.parts)}"


def _parts(given: Any) -> bool:
    if isinstance(given, list | tuple):
        return bool(given) and all(isinstance(one, msgspec.Struct) for one in given)
    return isinstance(given, msgspec.Struct)


def _asked_again(made: Segment, question: str) -> Segment:
    part = made.parts[0]
    if not isinstance(part, ToolResult) or part.error or not question:
        return made
    texts = [one for one in part.content if isinstance(one, Text)]
    if not texts:
        return made
    last = texts[-1]
    content = tuple(Text(with_question(one.text, question)) if one is last else one for one in part.content)
    return msgspec.structs.replace(made, parts=(msgspec.structs.replace(part, content=content),))


def by_name(actions: Iterable[Action]) -> dict[str, Action]:
    """Actions by the names of their tools."""
    found: dict[str, Action] = {}
    for action in actions:
        if action.tool.name in found or action.tool.name == "recall":
            hint = "give each action a name of its own; `recall` is the session's"
            raise BadInput(f"the name {action.tool.name!r} is taken", place="actions", hint=hint)
        found[action.tool.name] = action
    return found
