"""Reads a completion as a segment: what the model wrote after the prompt, ready for the next one.

This module reads the completions of OpenAI and compatible servers, those of Ollama and of llama.cpp, and
plain text. The space after the cue belongs to the layout, so one space is removed: then the next prompt has
the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamina.core.text.characters import is_blank
from lamina.core.values import Segment
from lamina.dialects.json_values import list_or_empty, to_dict
from lamina.dialects.openai_chat.answers import read_first_choice
from lamina.dialects.port import Absorbed
from lamina.dialects.text.parse import make_reply
from lamina.dialects.usage import Usage, find_usage


def absorb(response: Any) -> Absorbed:
    """A completion, as text, a dict, or an object of an SDK."""
    return absorb_stream((response,))


def absorb_stream(events: Sequence[Any]) -> Absorbed:
    """All events of a stream, in order.

    An event is a text, or an object of one of several servers. The text that they make together is the
    reply, without the space after the cue.
    """
    texts: list[str] = []
    usage = Usage()
    stop = ""
    for event in events:
        chunk = {"response": event}
        if not isinstance(event, str):
            chunk = to_dict(event, "response")
        choice = read_first_choice({"choices": list_or_empty(chunk.get("choices"))})
        texts.append(_find_text(choice.get("text"), chunk.get("response"), chunk.get("content")))
        chunk_usage = find_usage(chunk)
        if chunk_usage != Usage():
            usage = chunk_usage
        reason = _find_text(choice.get("finish_reason"), chunk.get("done_reason"), chunk.get("stop_type"))
        stop = reason or stop
    reply = "".join(texts).removeprefix(" ")
    segments: tuple[Segment, ...] = ()
    if not is_blank(reply):
        segments = (make_reply(reply),)
    return Absorbed(segments=segments, usage=usage, stop=stop)


def _find_text(*values: Any) -> str:
    """The first of some values that is a text; "" if none is. Each server has one of several fields."""
    for text in filter(None, values):
        if isinstance(text, str):
            return text
    return ""
