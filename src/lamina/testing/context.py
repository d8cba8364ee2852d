"""What everything that fits a conversation into a window should do, as a suite that anyone can run.

    @pytest.mark.parametrize("case", context_manager("mine", start_mine), ids=str)
    def test_my_context_manager(case):
        case()

`start_mine(sizes, state)` begins one conversation and returns a `ManagedContext`. Its `fit` gets each request
of a growing conversation with the whole history, as Chat Completions has it, and returns the messages to
send. A framework's trimmer that keeps its own edits passes over the history that it has seen. The suite asks
nothing about how messages are chosen, only for the seven promises in `PROMISES`, from `valid` on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import msgspec

from lamina.core.values import Budget
from lamina.dialects.openai_chat import DIALECT
from lamina.fitting.request import RequestMemo, fit_request
from lamina.testing.cases import Conformance, expect, make_cases

__all__ = ["ContextSizes", "ManagedContext", "context_manager", "count_tokens"]

MODEL = "gpt-5"
SHARE_OF_ROOM = 5
"""A break of the prefix is worth its price if it frees a fifth of the room. So there may be no more."""

Message = dict[str, Any]


class ContextSizes(msgspec.Struct, frozen=True, kw_only=True):
    """The budget in tokens: begin to cut over `trigger`, cut down to `target`, and never be over `room`."""

    window: int = 5_000
    room: int = 4_500
    trigger: int = 3_600
    target: int = 2_250


@runtime_checkable
class ManagedContext(Protocol):
    """What the suite needs of a context manager, for one conversation.

    `reach` returns all text that the model could have again with the tools that it has, given what it was
    sent; "" if there is no way back. `dump` returns what a new process needs; None if it needs the history
    only.
    """

    def fit(self, request: Message) -> Sequence[Message]: ...

    def reach(self, messages: Sequence[Message]) -> str: ...

    def dump(self) -> Any: ...


StartContext = Callable[[ContextSizes, Any], ManagedContext]
"""Begins a conversation; the second argument is what `dump` returned, or None."""


def context_manager(
    name: str, start: StartContext, *, sizes: ContextSizes | None = None
) -> list[Conformance]:
    """The suite for one context manager: a case for each promise. `start` begins a conversation."""
    trial = ContextTrial(start, sizes or ContextSizes())

    def try_promise(promise: Callable[[ContextTrial], None]) -> None:
        promise(trial)

    return make_cases(name, PROMISES, try_promise)


class ContextTrial:
    """A context manager on trial, with what it sent in each session."""

    def __init__(self, start: StartContext, sizes: ContextSizes) -> None:
        self.start = start
        self.sizes = sizes

        self.contexts: dict[str, ManagedContext] = {}

    @cached_property
    def sent(self) -> dict[str, list[list[Message]]]:
        """The messages of each request of each session. `contexts` has the context of each session then."""
        sent: dict[str, list[list[Message]]] = {}
        for name, requests in SESSIONS.items():
            self.contexts[name] = self.start(self.sizes, None)
            sent[name] = self.play(requests, self.contexts[name])
        return sent

    def play(self, requests: Sequence[Message], context: ManagedContext) -> list[list[Message]]:
        """Send the requests of a session one after the other; the messages of each."""
        return [list(context.fit(request)) for request in requests]


def valid(trial: ContextTrial) -> None:
    """A provider takes every request."""
    for place, request in _list_requests(trial):
        for violation in DIALECT.wire.check(request):
            raise AssertionError(f"{place}: {violation.message}")


def within_the_room(trial: ContextTrial) -> None:
    """No request is larger than the room, by the counter of OpenAI's models."""
    memo = RequestMemo()
    room = trial.sizes.room
    for place, request in _list_requests(trial):
        tokens = count_tokens(request, memo)
        expect(tokens <= room, f"{place}: {tokens:,} tokens, and the room is {room:,}")


def pairs(trial: ContextTrial) -> None:
    """Every call has its result, and every result its call."""
    for place, request in _list_requests(trial):
        calls: list[str] = []
        results: list[str] = []
        for message in request["messages"]:
            calls += [call["id"] for call in message.get("tool_calls") or ()]
            if message["role"] == "tool":
                results.append(message["tool_call_id"])
        expect(sorted(calls) == sorted(results), f"{place}: {len(calls)} calls, {len(results)} results")


def prefix_kept(trial: ContextTrial) -> None:
    """A request begins with the one before it, so that caches hold.

    One that does not must pay for itself: there is at most one for each fifth of the room that came in.
    """
    for name, sent in trial.sent.items():
        breaks = sum(after[: len(before)] != before for before, after in pairwise(sent))
        came_in = count_tokens(SESSIONS[name][-1])
        most = came_in * SHARE_OF_ROOM // trial.sizes.room
        expect(breaks <= most, f"{name}: {breaks} of {len(sent)} requests do not begin with the one before")


def nothing_lost(trial: ContextTrial) -> None:
    """The model can reach all that was left out, with the tools that it has (`reach`)."""
    for name, requests in SESSIONS.items():
        last_sent = trial.sent[name][-1]
        visible = "\n".join(map(_read_text, last_sent))
        reachable = visible + trial.contexts[name].reach(last_sent)
        messages = requests[-1]["messages"]
        lost: list[str] = []
        for message in messages:
            last_line = _read_text(message).strip("\n").rpartition("\n")[2]  # what is lost first
            if last_line not in reachable:
                lost.append(last_line)
        expect(
            not lost, f"{name}: {len(lost)} of {len(messages)} messages cannot be reached, such as {lost[:1]}"
        )


def stable_after_a_restart(trial: ContextTrial) -> None:
    """A new process with the dumped state sends the same."""
    for name, requests in SESSIONS.items():
        half = len(requests) // 2
        first = trial.start(trial.sizes, None)
        for request in requests[:half]:
            first.fit(request)
        second = trial.start(trial.sizes, first.dump())
        for position, request in enumerate(requests[half:], half):
            is_same = list(second.fit(request)) == trial.sent[name][position]
            expect(is_same, f"{name}: request {position} differs after a restart")


def deterministic(trial: ContextTrial) -> None:
    """A second run sends the same."""
    for name, requests in SESSIONS.items():
        sent_again = trial.play(requests, trial.start(trial.sizes, None))
        expect(sent_again == trial.sent[name], f"{name}: a second run sends something else")


PROMISES = (valid, within_the_room, pairs, prefix_kept, nothing_lost, stable_after_a_restart, deterministic)


def count_tokens(request: Mapping[str, Any], memo: RequestMemo | None = None) -> int:
    """Count a request as lamina does for OpenAI's models."""
    budget = Budget(window=10_000_000)
    return fit_request(request, dialect=DIALECT, budget=budget, memo=memo).envelope.tokens


def _list_requests(trial: ContextTrial) -> list[tuple[str, Message]]:
    """Everything that was sent, as requests, each with its place."""
    requests: list[tuple[str, Message]] = []
    for name, sent in trial.sent.items():
        for position, messages in enumerate(sent):
            request = {**SESSIONS[name][position], "messages": list(messages)}
            requests.append((f"{name}, request {position}", request))
    return requests


def _read_text(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content or ())


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_page",
            "description": "Reads a page of the manual.",
            "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}},
        },
    }
]


def _write_page(number: int, lines: int = 15) -> str:
    """A text that no other page has, of about 20 tokens a line."""
    return "\n".join(
        f"Page {number}, line {line}: press key {number * 31 + line}, wait." for line in range(lines)
    )


def _write_step(numbers: Sequence[int], *, lines: int = 15) -> list[Message]:
    """One step of an agent: calls, and their results."""
    calls: list[Message] = []
    results: list[Message] = []
    for number in numbers:
        function = {"name": "read_page", "arguments": f'{{"number": {number}}}'}
        calls.append({"id": f"call_{number}", "type": "function", "function": function})
        text = _write_page(number, lines)
        results.append({"role": "tool", "tool_call_id": f"call_{number}", "content": text})
    return [{"role": "assistant", "content": f"Step {numbers[0]}.", "tool_calls": calls}, *results]


def _play_turns(turns: Sequence[Sequence[list[Message]]]) -> list[Message]:
    """The request of each call of the model: after each question and after each step."""
    history: list[Message] = [{"role": "system", "content": "You read a manual."}]
    requests: list[Message] = []
    for number, steps in enumerate(turns):
        history = [*history, {"role": "user", "content": f"Question {number}: go on."}]
        for step in steps:
            requests.append({"model": MODEL, "tools": TOOLS, "messages": history})
            history = [*history, *step]
        requests.append({"model": MODEL, "tools": TOOLS, "messages": history})
        history = [*history, {"role": "assistant", "content": f"Answer {number}: done."}]
    return requests


def _make_sessions() -> dict[str, list[Message]]:
    talk = [[[{"role": "assistant", "content": _write_page(number)}]] for number in range(24)]
    many_turns = [[_write_step([turn * 6 + step]) for step in range(6)] for turn in range(4)]
    return {
        "a talk": [request for request in _play_turns(talk) if request["messages"][-1]["role"] == "user"],
        "four turns with tools": _play_turns(many_turns),
        "one long turn": _play_turns([[_write_step([number]) for number in range(24)]]),
        "three calls at once": _play_turns([[_write_step(range(n, n + 3)) for n in range(0, 24, 3)]]),
        "one huge result": _play_turns([[_write_step([0]), _write_step([1], lines=500), _write_step([2])]]),
    }


SESSIONS = _make_sessions()
"""Growing conversations: the requests of each, with the whole history."""
