"""What comes back from a model and from tools, as segments for the log.

An answer may be an object of an SDK, a dict, the events of a stream (as they come, or all of them), or plain
text. Nothing is stored here. Calls of the recall tool are answered here: the application
never sees them, and has to answer all others.

A sub-agent that begins with its parent's conversation sends the bytes that its parent sent last, so a prefix
cache has them already. The parent gets the result only. What the sub-agent did to find it stays in its own
conversation, whose name is a handle: the parent's recall tool reads it.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from lamina.clients.events import Reply
from lamina.core.text.characters import is_blank
from lamina.core.values import Ledger, Part, Role, Segment, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects.json_values import decode_arguments
from lamina.dialects.port import Absorbed, Dialect
from lamina.dialects.usage import NOTHING_REPORTED, Usage
from lamina.errors import BadInput, LaminaError
from lamina.fitting.recalls import answer_recall
from lamina.segments import assistant, note, result, segment
from lamina.sessions.records import read_records
from lamina.sessions.stored_conversation import StoredConversation
from lamina.sessions.turns import take_call
from lamina.stores.port import Where

Answer = Any
"""An SDK's object, a dict, the events of a stream, or text."""

Results = Mapping[str, "str | Part | Sequence[Part]"] | Segment | ToolResult
"""Results by the id of their call, or one result as a segment or a part."""

FORKED_TASK = (
    "From here on you are a sub-agent, and the conversation above is your background. Nobody answers "
    "questions. Do this task and nothing else, then report all that you found:\n\n"
)
"""What stands before the task of a sub-agent that has its parent's conversation."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that was stored. `calls` wait for a result; the session answers those of its own tools."""

    segments: tuple[Segment, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    stop: str = ""


async def absorb_answer(answer: Answer, dialect: Dialect) -> Absorbed:
    """Turn an answer of any shape into segments.

    It may be a stream of events, with or without `await`, a whole answer of an SDK, a `Reply` of lamina's own
    clients, or plain text. What has neither content nor usage nor an end raises BadInput.
    """
    absorbed = await _read_answer(answer, dialect)
    has_ended = bool(absorbed.stop) or absorbed.usage != NOTHING_REPORTED
    if not absorbed.segments and not has_ended and not isinstance(answer, str):
        hint = "give the answer itself, or all events of its stream: a stream that was read is empty"
        raise BadInput(
            f"there is no answer in a value of type {type(answer).__name__}", place="record", hint=hint
        )
    return absorbed


async def _read_answer(answer: Answer, dialect: Dialect) -> Absorbed:
    if isinstance(answer, Reply):
        async for _ in answer:  # the rest of it, if it was not read to its end
            pass
        return dialect.answers.absorb_stream(answer.raw)
    # A whole answer of an SDK may be iterable without being a stream. Its `model_dump` tells it apart.
    if isinstance(answer, AsyncIterable) and not hasattr(answer, "model_dump"):
        return dialect.answers.absorb_stream([event async for event in answer])
    if isinstance(answer, list | tuple | Iterator):
        return dialect.answers.absorb_stream(list(answer))
    # The text dialect removes the space with which a completion continues the cue of a flat prompt.
    if not isinstance(answer, str) or dialect.name == "text":
        return dialect.answers.absorb(answer)
    if is_blank(answer):
        return Absorbed(segments=())
    return Absorbed(segments=(assistant(answer),))


def make_results(results: Iterable[Results], calls: Sequence[ToolCall]) -> list[Segment]:
    """One segment for each result, named after the tool of its call: of several with one id, the first.

    `{"call_1": "done"}` is the result of one call.
    """
    names = {call.id: call.name for call in reversed(calls)}
    segments: list[Segment] = []
    for item in results:
        match item:
            case Segment():
                segments.append(item)
            case ToolResult():
                name = item.name or names.get(item.id, "")
                segments.append(result(item.content, id=item.id, name=name, error=item.error))
            case Mapping():
                for id_, content in item.items():
                    segments.append(result(content, id=id_, name=names.get(id_, "")))
            case _:
                hint = "give {call id: text}, a ToolResult or a segment"
                raise BadInput(f"{type(item).__name__} is no result", place="results", hint=hint)
    return segments


def list_unanswered(calls: Iterable[ToolCall], results: Iterable[Segment]) -> list[ToolCall]:
    unanswered = list(calls)
    for one in results:
        take_call(unanswered, _result_of(one))
    return unanswered


def order_results(results: Iterable[Segment], calls: Iterable[ToolCall]) -> list[Segment]:
    """The results in the order of their calls. Results of calls that nobody made come last, as they came."""
    all_calls = list(calls)
    waiting = list(all_calls)
    order = {id(call): index for index, call in enumerate(all_calls)}
    placed: list[tuple[int, Segment]] = []
    for one in results:
        call = take_call(waiting, _result_of(one))
        placed.append((order.get(id(call), len(order)), one))
    return [one for _, one in sorted(placed, key=itemgetter(0))]


def _result_of(segment: Segment) -> ToolResult:
    """The result in a segment; one of no call if it has none."""
    for part in segment.parts:
        if isinstance(part, ToolResult):
            return part
    return ToolResult(id="", content=())


async def answer_own_calls(calls: Iterable[ToolCall], stored: StoredConversation) -> list[Segment]:
    """The results of calls of the recall tool."""
    results: list[Segment] = []
    for call in calls:
        answer = await _answer_child_recall(call, stored)
        results.append(answer or answer_recall(stored.live.log, call, ledger=stored.state.ledger))
    return results


def task_for_fork(task: str, parent: str) -> Segment:
    """The message with which the conversation of a sub-agent goes on after that of its parent."""
    return segment("parent_message", Role.USER, FORKED_TASK + task, attrs={"parent_agent_id": parent})


async def _answer_child_recall(call: ToolCall, stored: StoredConversation) -> Segment | None:
    """What a sub-agent did, for a recall that names its conversation; None for any other call.

    Only a sub-agent whose result is in the log can be read, and only in the same workspace.
    """
    name = ""
    match decode_arguments(call.arguments):
        case {"key": str(key)}:
            name = key
    children = {one.attrs.get("subagent_id") for one in stored.live.log if one.kind == "subagent_result"}
    if not name or name not in children:
        return None
    steps = await _read_steps(stored, name)
    if not steps:
        return None
    return answer_recall((note(name, steps, key=name),), call, ledger=Ledger())


async def _read_steps(stored: StoredConversation, name: str) -> str:
    """What a sub-agent did after its task, as text; "" if its conversation is gone.

    If it cannot be read, the recall is answered like one of an unknown key.
    """
    try:
        page = await stored.store.read(Where(stored.where.workspace, name))
        log = read_records([record.body for record in page.records]).log
    except LaminaError:
        return ""
    # A child of a child has the tasks of both in its log: the last one is its own.
    start = 0
    for index, one in enumerate(log):
        if one.kind == "parent_message":
            start = index
    return "\n\n".join(f"[{one.role.value}]\n{text_of(one.parts)}" for one in log[start:])
