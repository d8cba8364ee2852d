"""A trace as its model calls: what stood before each answer, what the answer said, and when.

Policies and peers all speak OpenAI chat, so a trace in another format is converted first, once and whole.
Nothing is lowered or repaired here beyond what the conversion needs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from lamina.core.arrange import Layout
from lamina.core.build import build
from lamina.dialects import DIALECTS
from lamina.dialects.translate import options_for, translated
from lamina.replay.values import RecordedUsage, Trace

CHAT = "openai_chat"


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """One model call: the messages before `end` were sent, `answer` is what the model then wrote.

    `at` is the time in seconds where the records have one, `output` the answer's tokens as reported.
    """

    end: int
    answer: str
    at: float | None = None
    output: int = 0


class RecordedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A trace in OpenAI chat, with its calls in order."""

    trace: Trace
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    calls: tuple[ModelCall, ...]

    def request(self, call: ModelCall) -> dict[str, Any]:
        """The request of a call, with everything that was said before it."""
        named: dict[str, Any] = {"model": self.trace.model} if self.trace.model else {}
        named |= {"tools": self.tools} if self.tools else {}
        return {**named, "messages": self.messages[: call.end]}


def conversation(trace: Trace) -> RecordedConversation:
    """The model calls of a trace; none where it holds no answer."""
    messages, tools = (
        (trace.items, trace.head.get("tools") or []) if trace.dialect == CHAT else _converted(trace)
    )
    reported = [trace.used.get(first) for first in _answers(trace.items)]
    ends = list(_answers(messages))
    used = reported if len(reported) == len(ends) else [None] * len(ends)
    calls = tuple(_asked(messages, end, found) for end, found in zip(ends, used, strict=True))
    return RecordedConversation(trace=trace, messages=messages, tools=list(tools), calls=calls)


def _asked(messages: list[dict[str, Any]], end: int, used: RecordedUsage | None) -> ModelCall:
    answer = []
    for message in messages[end:]:
        if message.get("role") != "assistant":
            break
        answer.append(said(message))
    return ModelCall(
        end=end, answer="\n".join(answer), at=used.at if used else None, output=used.output if used else 0
    )


def said(message: dict[str, Any]) -> str:
    """What an answer says: its text, and the values in the arguments of its calls."""
    words = [text(message)]
    for call in message.get("tool_calls") or ():
        words += _values(call.get("function", {}).get("arguments") or "")
    return "\n".join(words)


def text(message: dict[str, Any]) -> str:
    """The words of a message, without its calls."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text") or "") for part in content or () if isinstance(part, dict))


def _values(arguments: str) -> list[str]:
    try:
        return list(_leaves(json.loads(arguments)))
    except (ValueError, RecursionError):
        return [arguments]


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _answers(items: list[dict[str, Any]]) -> Iterator[int]:
    """Where each answer of the model begins, but for one that nothing stands before."""
    before = True
    for at, item in enumerate(items):
        spoken = _by_the_model(item)
        if spoken and not before:
            yield at
        before = spoken


def _by_the_model(item: dict[str, Any]) -> bool:
    sort = str(item.get("type", ""))
    return item.get("role") == "assistant" or sort == "reasoning" or sort.endswith("_call")


def _converted(trace: Trace) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    source, target = DIALECTS[trace.dialect], DIALECTS[CHAT]
    named = "input" if trace.dialect == "openai_responses" else "messages"
    parsed = source.parse({"model": trace.model, **trace.head, named: trace.items})
    head = translated(parsed.head, source, target, model=trace.model).head
    options = options_for(target, head, layout=Layout(context="logged"))
    made = target.render(build(parsed.log, head=head, options=options))
    return made["messages"], made.get("tools") or []
