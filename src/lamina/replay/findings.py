"""Finds what a session spent its context on: large results, files that were read again, unused tools.

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
from lamina.replay.account_sums import group_by
from lamina.replay.model_calls import RecordedConversation, name_of_tool, read_tool_calls
from lamina.replay.traces.growing_requests import find_answer_starts
from lamina.replay.traces.own_answers import is_own_answer
from lamina.replay.values import LargeResult, RepeatedRead, SessionFindings, UnusedTool

LARGE = 2_000
"""A result with so many tokens counts as large."""

MOST_RESULTS = 10
MOST_READS = 20
MOST_TOOLS = 40
"""How many of each are listed for one session: the largest."""

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
    read_results = [result for result in results if result.is_read and result.resource]
    repeated = []
    for resource, reads in group_by(read_results, lambda result: result.resource).items():
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
        for call in read_tool_calls(message):
            calls_by_id[call.id] = call
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
        subject = read_subject(tool_call) or _NO_SUBJECT
        resource = tool_call.arguments
        if subject.verb in ("read", "write", "list"):  # the others are about a pattern, or the call itself
            resource = subject.resource or resource
        yield _Result(
            tool=tool_call.name,
            resource=resource[:LONGEST_NAME],
            is_read=subject.verb in _READING,
            is_known=earlier_reads.add(subject),
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
    first_line = other.start or 1
    # a start that counts from the end does not say which lines these are
    if first_line < 0 or (subject.start or 1) < first_line:
        return False
    if other.end is None:
        return True
    return subject.end is not None and subject.end <= other.end


_UNKNOWN = ToolCall(id="", name="", arguments="")
_NO_SUBJECT = Subject(verb="", resource="")


def _ends_of_epochs(conversation: RecordedConversation) -> list[int]:
    """After how many calls the client replaced its history, each time; and how many calls there are at all.

    A compaction before the call with the index 3 is 3: the calls from there on do not send what was before.
    """
    trace = conversation.trace
    count = len(conversation.calls)
    places = [place for place in find_answer_starts(trace.items) if is_own_answer(trace, place)]
    if abs(len(places) - count) > 1:  # the conversion joined or parted answers: nobody knows which is which
        return [count]
    ends = {bisect_left(places, place) for place in trace.compacted}
    return sorted(end for end in {*ends, count} if end <= count)


def _find_unused_tools(
    conversation: RecordedConversation, count_text: Callable[[str], int]
) -> list[UnusedTool]:
    """The tools that every call sent and none used, the largest first."""
    used = {"", *conversation.find_called_names()}
    unused = []
    for tool in conversation.tools:
        name = name_of_tool(tool)
        if name in used:
            continue
        tokens = count_text(canonical_json(tool).decode())
        unused.append(UnusedTool(name=name, tokens=tokens, carried=tokens * len(conversation.calls)))
    unused.sort(key=lambda tool: (-tool.tokens, tool.name))
    return unused
