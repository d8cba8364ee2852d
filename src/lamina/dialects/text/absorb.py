"""A completion as a segment: what the model wrote after the prompt, ready to stand in the next one.

Understood are the completions of OpenAI and compatible servers, those of Ollama and of llama.cpp, and plain
text. The space after the cue belongs to the layout, so one is taken off: the next prompt has the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lamina.core.text.characters import is_blank
from lamina.dialects.openai_chat.parts import to_dict
from lamina.dialects.port import Absorbed
from lamina.dialects.text.parse import spoken
from lamina.dialects.usage import Usage, usage_in


def absorb(response: Any) -> Absorbed:
    """A completion, as text, a dict, or an object of an SDK."""
    return absorb_stream((response,))


def absorb_stream(events: Sequence[Any]) -> Absorbed:
    """All events of a stream, in order."""
    texts: list[str] = []
    usage, stop = Usage(), ""
    for event in events:
        chunk = {"response": event} if isinstance(event, str) else to_dict(event, "response")
        choice = _choice(chunk.get("choices"))
        found = (choice.get("text"), chunk.get("response"), chunk.get("content"))
        texts += [text for text in found if isinstance(text, str)][:1]
        reported = usage_in(chunk)
        if reported != Usage():
            usage = reported
        stop = _stop(chunk, choice) or stop
    said = "".join(texts).removeprefix(" ")
    return Absorbed(segments=(spoken(said),) if not is_blank(said) else (), usage=usage, stop=stop)


def _choice(choices: Any) -> Mapping[str, Any]:
    """The choice with index 0."""
    for choice in choices if isinstance(choices, list | tuple) else ():
        found = to_dict(choice, "choices")
        if not found.get("index"):
            return found
    return {}


def _stop(chunk: Mapping[str, Any], choice: Mapping[str, Any]) -> str:
    found = (choice.get("finish_reason"), chunk.get("done_reason"), chunk.get("stop_type"))
    return next((reason for reason in found if isinstance(reason, str) and reason), "")
