"""Reads a trace as its model calls: what stood before each answer, what the answer said, and when.

All policies speak OpenAI chat, so a trace in another format is converted first, once and as a whole.
Nothing is lowered or repaired here beyond what the conversion needs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from lamina.core.build import build
from lamina.core.layout import Layout
from lamina.core.values import ToolCall
from lamina.costs.logs.growing_requests import find_answer_starts, is_answer
from lamina.costs.logs.own_answers import is_own_answer
from lamina.costs.logs.values import RecordedUsage, Trace
from lamina.dialects import DIALECTS
from lamina.dialects.json_values import list_or_empty, mapping_or_empty, text_or_empty
from lamina.dialects.translate import choose_options, translate_head

CHAT = "openai_chat"

ITEM_FIELDS = {"openai_responses": "input", "gemini": "contents"}
"""The field in which a dialect has the items of a conversation, if it is not `messages`."""


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """One model call: the messages before `end` were sent, `answer` is what the model then wrote.

    `at` is the time in seconds where the records have one, `sent` and `output` are the tokens of the request
    and of the answer as reported.
    """

    end: int
    answer: str
    at: float | None = None
    sent: int = 0
    output: int = 0


class RecordedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A trace in OpenAI chat, with its calls in order."""

    trace: Trace
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    calls: tuple[ModelCall, ...]

    def request(self, call: ModelCall) -> dict[str, Any]:
        """The request of a call, with everything that was said before it.

        Model and tools are there only if the records have them.
        """
        request: dict[str, Any] = {}
        if self.trace.model:
            request["model"] = self.trace.model
        if self.tools:
            request["tools"] = self.tools
        request["messages"] = self.messages[: call.end]
        return request


def read_conversation(trace: Trace) -> RecordedConversation:
    """The model calls of a trace, without answers that another trace has or that came before the recording.

    If the conversion joined answers, nobody knows which usage is whose, and no call has any. A last request
    whose usage was reported is a call, even if its answer was not recorded.
    """
    if trace.dialect == CHAT:
        messages = trace.items
        tools = trace.head.get("tools") or []
    else:
        messages, tools = _convert_to_chat(trace)
    ends = list(find_answer_starts(messages))
    places = list(find_answer_starts(trace.items))
    # if the conversion joined or parted answers, nobody knows which usage belongs to which
    if len(places) != len(ends):
        calls = [_read_call(messages, end, None) for end in ends]
    else:
        calls = []
        for end, place in zip(ends, places, strict=True):
            if is_own_answer(trace, place):
                calls.append(_read_call(messages, end, trace.used.get(place)))
    last_usage = trace.used.get(len(trace.items))
    if last_usage is not None and not is_answer(trace.items[-1]):
        calls.append(_read_call(messages, len(messages), last_usage))
    return RecordedConversation(trace=trace, messages=messages, tools=list(tools), calls=tuple(calls))


def _read_call(messages: list[dict[str, Any]], end: int, usage: RecordedUsage | None) -> ModelCall:
    """The call whose answer begins at `end`: all assistant messages in a row are one answer.

    Without a usage nothing is known of its time and its tokens.
    """
    texts = []
    for message in messages[end:]:
        if message.get("role") != "assistant":
            break
        texts.append(answer_text(message))
    answer = "\n".join(texts)
    if usage is None:
        return ModelCall(end=end, answer=answer)
    return ModelCall(end=end, answer=answer, at=usage.at, sent=usage.total, output=usage.output)


def answer_text(message: dict[str, Any]) -> str:
    """What an answer says: its text, and the values in the arguments of its calls.

    A call with `{"path": "a.py", "lines": 5}` says `a.py` and `5`.
    """
    texts = [message_text(message)]
    for call in read_tool_calls(message):
        texts += _argument_values(call.arguments)
    return "\n".join(texts)


def read_tool_calls(message: dict[str, Any]) -> list[ToolCall]:
    """The calls of an answer. A record that nobody checked may have anything here: that is empty."""
    calls = []
    for tool_call in list_or_empty(message.get("tool_calls")):
        fields = mapping_or_empty(tool_call)
        function = mapping_or_empty(fields.get("function"))
        arguments = function.get("arguments") or ""
        if not isinstance(arguments, str):  # Ollama's API has them as an object, and so have some logs
            arguments = json.dumps(arguments)
        name = text_or_empty(function.get("name"))
        calls.append(ToolCall(id=str(fields.get("id")), name=name, arguments=arguments))
    return calls


def message_text(message: dict[str, Any]) -> str:
    """The text of a message, without its calls.

    `[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]` is `a` and `b` on two lines.
    """
    content = message.get("content")
    if isinstance(content, str):
        return content
    texts = [str(part.get("text") or "") for part in list_or_empty(content) if isinstance(part, dict)]
    return "\n".join(texts)


def _argument_values(arguments: str) -> list[str]:
    """The values in the arguments of a call; the text itself if it is not JSON."""
    try:
        return list(_leaves(json.loads(arguments)))
    except (ValueError, RecursionError):
        return [arguments]


def _leaves(value: Any) -> Iterator[str]:
    """Texts and numbers of a JSON value, without names, null, true and false.

    `{"a": ["x", 1, null]}` has `x` and `1`.
    """
    match value:
        case None | bool():
            return
        case dict():
            for inner in value.values():
                yield from _leaves(inner)
        case list():
            for inner in value:
                yield from _leaves(inner)
        case _:
            yield str(value)


def _convert_to_chat(trace: Trace) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Messages and tools of a trace, in OpenAI chat."""
    source = DIALECTS[trace.dialect]
    target = DIALECTS[CHAT]
    items_name = ITEM_FIELDS.get(trace.dialect, "messages")
    parsed = source.wire.parse({"model": trace.model, **trace.head, items_name: trace.items})
    head = translate_head(parsed.head, source, target, model=trace.model).head
    options = choose_options(target, head, layout=Layout(context="logged"))
    # built without a budget, so nothing is left out
    request = target.wire.render(build(parsed.log, head=head, options=options))
    return request["messages"], request.get("tools") or []
