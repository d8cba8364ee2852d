"""The budget-aware trimming RFC (source system 004) as a configuration of lamina, and its logs in few words.

That system never trims a user's message: neither does `keep_users`, so a budget that they alone exceed is an
error and not a silent overflow. Its trim index is a position; lamina's ledger is keyed by content, so
what a test compares is which messages stand as `[trimmed]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

from examples.importers.checkpoint import oldest_first
from lamina import Budget, Entry, Envelope, Form, Ledger, Options, RequestHead, Segment, build, segments
from lamina.core import RFC, Part, Repairs, Text, ToolResult, Wording, text_of
from lamina.core.build import EMPTY_LEDGER

TRIMMED = "[trimmed]"

REPAIRS = Repairs(
    merge=True, duplicates="last", dangling="omit", late="omit", strip_tags=("checkpoint_id",)
)  # fmt: skip
MIRROR = Options(repairs=REPAIRS, wording=Wording(handles=False), order=oldest_first, keep_users=True)

Step = tuple[int, int, int, int]
"""Sizes of a step: characters of the question, calls, characters of each result and of the reply."""

STEPS = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 2), st.integers(0, 400), st.integers(1, 300)),
    min_size=1,
    max_size=8,
)

Tools = Sequence[dict[str, Any]]

_ARGUMENT: dict[str, Any] = {"type": "string", "description": "x" * 200}
BIG_TOOLS: list[dict[str, Any]] = [
    {
        "name": f"tool_{i}",
        "description": "x" * 200,
        "input_schema": {"type": "object", "properties": {"arg1": _ARGUMENT, "arg2": _ARGUMENT}},
    }
    for i in range(50)
]


def untrimmed(log: Iterable[Segment], *, tools: Tools = (), options: Options = MIRROR) -> Envelope:
    """The request that the budget is compared with: repaired and merged, nothing lowered."""
    return build(tuple(log), head=RequestHead(tools=tuple(tools)), counter=RFC, options=options)


def trim(
    log: Iterable[Segment], window: int, *, keep: int = 2, threshold: float = 0.8,
    target: float | None = None, ledger: Ledger = EMPTY_LEDGER, tools: Tools = (), options: Options = MIRROR,
) -> Envelope:  # fmt: skip
    """Its first reducer: above the threshold of the window, trim to just under it."""
    low = threshold if target is None else target
    budget = Budget(
        window=window, reserve=0, trigger=threshold, target=low, keep_last=keep
    )  # fmt: skip
    head = RequestHead(tools=tuple(tools))
    return build(tuple(log), head=head, budget=budget, ledger=ledger, counter=RFC, options=options)


def trim_with_headroom(
    log: Iterable[Segment], limit: int, *, output: int = 32, keep: int = 2, ledger: Ledger = EMPTY_LEDGER,
    tools: Tools = (),
) -> Envelope:  # fmt: skip
    """Its second reducer: the answer's share comes off first, and a trim goes to 3/4 of the threshold."""
    return trim(log, limit - output, keep=keep, target=0.8 * 0.75, ledger=ledger, tools=tools)


def messages(envelope: Envelope) -> list[list[Entry]]:
    """What is sent, message by message."""
    found: list[list[Entry]] = []
    for entry in envelope.sent:
        if entry.opens:
            found.append([])
        found[-1].append(entry)
    return found


def bodies(envelope: Envelope) -> list[list[Part]]:
    """The parts of each message, as sent."""
    return [[part for entry in message for part in entry.parts] for message in messages(envelope)]


def texts(envelope: Envelope) -> list[str]:
    return [text_of(parts) for parts in bodies(envelope)]


def trimmed(envelope: Envelope) -> list[int]:
    """Positions of the messages in which something is lowered."""
    return [i for i, message in enumerate(messages(envelope)) if any(e.form < Form.FULL for e in message)]


def before(log: Iterable[Segment], index: int) -> list[int]:
    """The trim index in lamina's terms: positions before it of the messages that trimming makes smaller."""
    first = messages(untrimmed(log))[:index]
    return [i for i, message in enumerate(first) if any(map(_shrinks, (e.segment for e in message)))]


def smallest(log: Sequence[Segment], *, tools: Tools = ()) -> int:
    """Tokens with everything trimmed that trimming makes smaller, the last segment excepted."""
    trimmed_log = [_trimmed(segment) if _shrinks(segment) else segment for segment in log[:-1]]
    return untrimmed([*trimmed_log, log[-1]], tools=tools).tokens


def call(*ids: str, text: str = "Thinking...", arguments: str = "{}") -> list[Segment]:
    """An assistant's words with calls of a tool."""
    return [segments.assistant(text), *(segments.call("test_tool", arguments, id=id_) for id_ in ids)]


def turns(count: int, ask: str, answer: str, *, start: int = 0) -> list[Segment]:
    """Questions and answers from templates in which `{i}` is the turn and `x*100` a hundred letters."""
    return [
        segment
        for i in range(start, start + count)
        for segment in (segments.user(_filled(ask, i)), segments.assistant(_filled(answer, i)))
    ]


def agent_turns(count: int, ask: str, answer: str, reply: str) -> list[Segment]:
    """Turns of question, call, result and reply, from templates as in `turns`."""
    log: list[Segment] = []
    for t in range(count):
        log += [segments.user(_filled(ask, t)), *call(f"tc_{t}")]
        log += [segments.result(_filled(answer, t), id=f"tc_{t}"), segments.assistant(_filled(reply, t))]
    return log


def conversation(steps: Iterable[Step]) -> list[Segment]:
    log: list[Segment] = []
    for t, (ask, calls, answer, reply) in enumerate(steps):
        ids = [f"tc_{t}_{n}" for n in range(calls)]
        log += [segments.user(f"{t} " + "q" * ask), *(call(*ids) if ids else [])]
        log += [segments.result("r" * answer, id=id_) for id_ in ids]
        log.append(segments.assistant(f"{t} " + "a" * reply))
    return log


def _filled(template: str, i: int) -> str:
    numbered = template.replace("{i}", str(i))
    return re.sub(r"(\w)\*(\d+)", lambda match: match[1] * int(match[2]), numbered)


def _shrinks(segment: Segment) -> bool:
    lower = text_of(_trimmed(segment).parts)
    padding = RFC.framing.padding if isinstance(segment.parts[0], ToolResult) else ""
    return RFC.count(lower + padding) < RFC.count(text_of(segment.parts) + padding)


def _trimmed(segment: Segment) -> Segment:
    """What that system makes of a segment: replies and results are replaced, calls and users are not."""
    match segment.role, segment.parts:
        case "assistant", (Text(),):
            return msgspec.structs.replace(segment, parts=(Text(TRIMMED),))
        case "tool", (ToolResult() as result,):
            inner = msgspec.structs.replace(result, content=(Text(TRIMMED),))
            return msgspec.structs.replace(segment, parts=(inner,))
    return segment


PRODUCTION = agent_turns(30, "User turn {i}: q*100", "result {i}: r*2000", "Follow-up {i}: a*500")
"""Tool-heavy turns, of which even the last twenty assistants exceed the threshold of a 10,000 window."""
