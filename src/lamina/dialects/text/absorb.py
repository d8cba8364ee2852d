"""A completion as a segment: what the model wrote after the prompt, ready to stand in the next one.

This module reads the completions of OpenAI and compatible servers, those of Ollama and of llama.cpp, and
plain text. The space after the cue belongs to the layout, so one space is removed: then the next prompt has
the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lamina.core.text.characters import is_blank
from lamina.core.values import Segment
from lamina.dialects.openai_chat.parts import to_dict
from lamina.dialects.port import Absorbed
from lamina.dialects.text.parse import make_reply
from lamina.dialects.usage import Usage, find_usage


def absorb(response: Any) -> Absorbed:
    """A completion, as text, a dict, or an object of an SDK."""
    return absorb_stream((response,))


def absorb_stream(events: Sequence[Any]) -> Absorbed:
    """All events of a stream, in order."""
    texts: list[str] = []
    usage = Usage()
    stop = ""
    for event in events:
        chunk = {"response": event} if isinstance(event, str) else to_dict(event, "response")
        choice = _first_choice(chunk.get("choices"))
        texts += _read_text(chunk, choice)
        chunk_usage = find_usage(chunk)
        if chunk_usage != Usage():
            usage = chunk_usage
        stop = _read_stop(chunk, choice) or stop
    reply = "".join(texts).removeprefix(" ")
    segments: tuple[Segment, ...] = ()
    if not is_blank(reply):
        segments = (make_reply(reply),)
    return Absorbed(segments=segments, usage=usage, stop=stop)


def _first_choice(choices: Any) -> Mapping[str, Any]:
    """The choice with index 0; empty without one."""
    if not isinstance(choices, list | tuple):
        return {}
    for value in choices:
        choice = to_dict(value, "choices")
        if not choice.get("index"):
            return choice
    return {}


def _read_text(chunk: Mapping[str, Any], choice: Mapping[str, Any]) -> list[str]:
    """The text of a chunk, in the field of the first server that has one; empty without any."""
    values = (choice.get("text"), chunk.get("response"), chunk.get("content"))
    return _keep_strings(values)[:1]


def _read_stop(chunk: Mapping[str, Any], choice: Mapping[str, Any]) -> str:
    """Why the model stopped; "" if the chunk does not say."""
    values = (choice.get("finish_reason"), chunk.get("done_reason"), chunk.get("stop_type"))
    for reason in _keep_strings(values):
        if reason:
            return reason
    return ""


def _keep_strings(values: Iterable[Any]) -> list[str]:
    return [value for value in values if isinstance(value, str)]
