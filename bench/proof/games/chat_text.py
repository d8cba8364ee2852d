"""A request of the chat API as the text that the model reads, and a call as the text that it writes.

The words are those of Qwen2.5's own template: ChatML, tools as JSON in the system text, calls and results in
tags. A call is written after `CALL_BEGINS`, so the model cannot answer in prose.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

Message = dict[str, Any]

CALL_BEGINS = '<|im_start|>assistant\n<tool_call>\n{"name": "'
CALL_ENDS = "</tool_call>"
TURN_ENDS = "<|im_end|>\n"
LONGEST_ACTION = 80
"""Characters of an action that are passed on to the game."""


class WrittenCall(NamedTuple):
    """A call that the model wrote."""

    name: str
    arguments: dict[str, Any]


class TextSpan(NamedTuple):
    """A piece of the text. `call`: the number of the message whose call it is, or -1."""

    text: str
    call: int


def render_chat(messages: list[Message], tools: list[dict[str, Any]]) -> list[TextSpan]:
    """The text of a request in pieces, so that those are known which the model has to write itself."""
    spans: list[TextSpan] = []
    for at, message in enumerate(messages):
        role = message["role"]
        content = message.get("content") or ""
        if role == "system" and at == 0:
            listed = "\n".join(json.dumps(tool["function"]) for tool in tools)
            spans.append(_plain(f"<|im_start|>system\n{content}\n\n<tools>\n{listed}\n</tools>{TURN_ENDS}"))
        elif role == "tool":
            spans.append(_plain(f"<|im_start|>user\n<tool_response>\n{content}\n</tool_response>{TURN_ENDS}"))
        elif message.get("tool_calls"):
            spans += _render_call(message["tool_calls"][0]["function"], at)
        else:
            spans.append(_plain(f"<|im_start|>{role}\n{content}{TURN_ENDS}"))
    return spans


def prompt_text(messages: list[Message], tools: list[dict[str, Any]]) -> str:
    """The whole text that the model reads before it writes its call."""
    return "".join(span.text for span in render_chat(messages, tools)) + CALL_BEGINS


def write_call(name: str, arguments: dict[str, Any]) -> str:
    """What a model writes after `CALL_BEGINS` to call a tool."""
    return f'{name}", "arguments": {json.dumps(arguments)}}}\n{CALL_ENDS}'


def read_call(text: str) -> WrittenCall:
    """The call that a model wrote. What is no call becomes an action that no game understands."""
    written = text.partition(CALL_ENDS)[0]
    try:
        call = json.loads('{"name": "' + written)
        name, arguments = call["name"], call["arguments"]
    except (ValueError, KeyError, TypeError):
        return WrittenCall("act", {"action": " ".join(written.split())[:LONGEST_ACTION]})
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return WrittenCall("act", {"action": " ".join(written.split())[:LONGEST_ACTION]})
    return WrittenCall(name, arguments)


def _plain(text: str) -> TextSpan:
    return TextSpan(text, -1)


def _render_call(function: dict[str, Any], at: int) -> list[TextSpan]:
    written = write_call(function["name"], json.loads(function["arguments"]))
    return [_plain(CALL_BEGINS), TextSpan(written, at), _plain(TURN_ENDS)]
