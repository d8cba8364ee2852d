"""What a session spent its context on: the largest results, what was read again and again, unused tools.

Tokens are those of the messages as they were recorded. A result is sent again with every later call, until
the client compacts its history: `carried` counts the tokens of all these times together. Under lamina a
result may have been shortened soon, and the records of a session do not say when, so it counts once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from lamina.core.hashing import canonical_json
from lamina.core.text.subjects import Subject, read_subject
from lamina.core.values import ToolCall
from lamina.replay.model_calls import RecordedConversation
from lamina.replay.traces.growing_requests import find_answer_starts
from lamina.replay.values import LargeResult, RepeatedRead, SessionFindings, UnusedTool

LARGE = 2_000
"""Tokens from which on a result is told as a large one."""

MOST_RESULTS = 10
MOST_READS = 20
MOST_TOOLS = 40
"""How many of each are told of one session: the largest."""

LONGEST_NAME = 200
"""Characters of a path, or of the arguments of a call."""

_READING = ("read", "list", "search")
"""What a call does that can be repeated for nothing."""


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    """One result: the tool, what it is about, its tokens, the call that sent it first, and how many sent it.

    `call` counts from 1. `is_known`: an earlier result shows the same, and nothing was written there since.
    """

    tool: str
    resource: str
    is_read: bool
    is_known: bool
    tokens: int
    call: int
    times_sent: int

    @property
    def carried(self) -> int:
        return self.tokens * self.times_sent


def find_in_session(
    conversation: RecordedConversation,
    count_message: Callable[[dict[str, Any]], int],
    count_text: Callable[[str], int],
    *,
    under_lamina: bool,
) -> SessionFindings:
    """What one session spent its context on, in the tokens that the two functions count."""
    results = list(_read_results(conversation, count_message, under_lamina=under_lamina))
    large = [result for result in results if result.tokens >= LARGE]
    large.sort(key=lambda result: (-result.tokens, result.call))
    return SessionFindings(
        results=tuple(
            LargeResult(
                tool=result.tool,
                name=result.resource,
                tokens=result.tokens,
                carried=result.carried,
                call=result.call,
            )
            for result in large[:MOST_RESULTS]
        ),
        reads=tuple(_find_repeated(results)[:MOST_READS]),
        tools=tuple(_find_unused_tools(conversation, count_text)[:MOST_TOOLS]),
    )


def _find_repeated(results: Sequence[_Result]) -> list[RepeatedRead]:
    """What was read more than once. Only reads that showed nothing new are in `carried_again`."""
    by_resource: dict[str, list[_Result]] = {}
    for result in results:
        if result.is_read and result.resource:
            by_resource.setdefault(result.resource, []).append(result)
    repeated = []
    for resource, reads in by_resource.items():
        if len(reads) < 2:
            continue
        repeated.append(
            RepeatedRead(
                name=resource,
                times=len(reads),
                tokens=sum(read.tokens for read in reads),
                carried_again=sum(read.carried for read in reads if read.is_known),
                call=reads[0].call,
                last_call=reads[-1].call,
            )
        )
    repeated.sort(key=lambda read: (-read.tokens, read.name))
    return repeated


def _read_results(
    conversation: RecordedConversation, count_message: Callable[[dict[str, Any]], int], *, under_lamina: bool
) -> Iterator[_Result]:
    """Every result that a call sent, in order."""
    ends = [call.end for call in conversation.calls]
    epochs = _ends_of_epochs(conversation)
    calls_by_id: dict[str, ToolCall] = {}
    earlier_reads = _ShownRanges()
    for at, message in enumerate(conversation.messages):
        for call in message.get("tool_calls") or ():
            function = call.get("function") or {}
            name = str(function.get("name") or "")
            tool_call = ToolCall(id="", name=name, arguments=_text(function.get("arguments")))
            calls_by_id[str(call.get("id"))] = tool_call
        if message.get("role") != "tool":
            continue
        first_call = bisect_right(ends, at)
        if first_call == len(ends):
            return  # nothing was sent after it
        last_call = epochs[bisect_right(epochs, first_call)]
        times_sent = last_call - first_call
        if under_lamina:
            times_sent = 1
        tool_call = calls_by_id.get(str(message.get("tool_call_id")), _UNKNOWN)
        subject = read_subject(tool_call)
        is_read = subject is not None and subject.verb in _READING
        resource = ""
        if subject is not None and subject.verb in ("read", "write", "list"):
            resource = subject.resource
        yield _Result(
            tool=tool_call.name,
            resource=(resource or tool_call.arguments)[:LONGEST_NAME],
            is_read=is_read,
            is_known=subject is not None and earlier_reads.add(subject),
            tokens=count_message(message),
            call=first_call + 1,
            times_sent=times_sent,
        )


class _ShownRanges:
    """State: which lines of each file a session has been shown since something was written to it."""

    def __init__(self) -> None:
        self._subjects: dict[str, list[Subject]] = {}

    def add(self, subject: Subject) -> bool:
        """Take in what a call was about, and return whether an earlier result shows all of it."""
        if subject.verb == "write":
            for path in subject.resource.splitlines():
                self._subjects.pop(path, None)
            return False
        if subject.verb not in _READING:
            return False
        earlier = self._subjects.setdefault(subject.resource, [])
        is_known = any(_contains(other, subject) for other in earlier)
        earlier.append(subject)
        return is_known


def _contains(other: Subject, subject: Subject) -> bool:
    """Whether one read shows all lines of another. Lines that count from the end are never contained."""
    if (other.start, other.end) == (subject.start, subject.end):
        return True
    start = other.start or 1
    if start < 0 or (subject.start or 1) < start:
        return False
    if other.end is None:
        return True
    return subject.end is not None and subject.end <= other.end


_UNKNOWN = ToolCall(id="", name="", arguments="")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "{}"


def _ends_of_epochs(conversation: RecordedConversation) -> list[int]:
    """After how many calls the client replaced its history, each time; and how many calls there are at all.

    A compaction before the call with the index 3 is 3: the calls from there on do not send what was before.
    """
    trace = conversation.trace
    count = len(conversation.calls)
    places = [place for place in find_answer_starts(trace.items) if place not in trace.copied]
    places = [place for place in places if place >= trace.recorded_from]
    if abs(len(places) - count) > 1:  # the conversion joined or parted answers: nobody knows which is which
        return [count]
    compactions = {bisect_left(places, place) for place in trace.compacted}
    return [*sorted(each for each in compactions if each < count), count]


def _find_unused_tools(
    conversation: RecordedConversation, count_text: Callable[[str], int]
) -> list[UnusedTool]:
    """The tools that every call sent and none used, the largest first."""
    used = set()
    for message in conversation.messages:
        for call in message.get("tool_calls") or ():
            used.add(str((call.get("function") or {}).get("name") or ""))
    unused = []
    for tool in conversation.tools:
        name = str((tool.get("function") or {}).get("name") or "")
        if not name or name in used:
            continue
        tokens = count_text(canonical_json(tool).decode())
        unused.append(UnusedTool(name=name, tokens=tokens, carried=tokens * len(conversation.calls)))
    unused.sort(key=lambda tool: (-tool.tokens, tool.name))
    return unused
