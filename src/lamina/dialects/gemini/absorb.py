"""An answer of the model as segments: its content as the model gave it, ready to be sent back.

A streamed answer is put together first: text that goes on is joined, and a part with a signature stays a
part of its own, since the API wants it back where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamina.dialects.gemini.parse import read_content
from lamina.dialects.gemini.wire import LISTS, Json, field, objects, plain, shown
from lamina.dialects.port import Absorbed
from lamina.dialects.usage import read_usage
from lamina.errors import BadInput


def absorb(response: Any) -> Absorbed:
    """A GenerateContentResponse, as a dict or as the SDK's object."""
    answer = _object(response, "response")
    candidate = _first(answer)
    content = plain(candidate.get("content")) or {}
    return Absorbed(
        segments=_segments(content),
        usage=read_usage(field(answer, "usageMetadata")),
        stop=_word(field(candidate, "finishReason")),
    )


def absorb_stream(events: Sequence[Any]) -> Absorbed:
    """All chunks of a stream, in order."""
    parts: list[Any] = []
    pieces: list[str] = []
    usage: Any = None
    stop = ""
    for event in events:
        answer = _object(event, "event")
        usage = field(answer, "usageMetadata") or usage
        candidate = _first(answer)
        stop = _word(field(candidate, "finishReason")) or stop
        for part in objects((plain(candidate.get("content")) or {}).get("parts")):
            _add(parts, pieces, part)
    _finish(parts, pieces)
    content = {"role": "model", "parts": parts} if parts else {}
    return Absorbed(segments=_segments(content), usage=read_usage(usage), stop=stop)


def _add(parts: list[Any], pieces: list[str], part: Json) -> None:
    """Adds a part of one chunk; `pieces` is the text of the last part, while it may go on."""
    text = part.get("text")
    if not isinstance(text, str) or field(part, "thoughtSignature"):
        _finish(parts, pieces)
        parts.append(part)
    elif pieces and {**part, "text": ""} == parts[-1]:
        pieces.append(text)
    elif text:
        _finish(parts, pieces)
        parts.append({**part, "text": ""})
        pieces.append(text)


def _finish(parts: list[Any], pieces: list[str]) -> None:
    if pieces:
        parts[-1] = {**parts[-1], "text": "".join(pieces)}
        pieces.clear()


def _segments(content: Json) -> tuple[Any, ...]:
    if not isinstance(content.get("parts"), LISTS) or not content["parts"]:
        return ()
    return read_content(content if content.get("role") == "model" else {**content, "role": "model"})


def _first(answer: Json) -> Json:
    """The first candidate; the chunk that carries the usage may have none."""
    candidates = answer.get("candidates")
    if candidates is None:
        return {}
    if not isinstance(candidates, LISTS):
        hint = "give the response as it came"
        raise BadInput(f"candidates is {shown(candidates)}", place="candidates", hint=hint)
    return next((one for one in objects(candidates) if not one.get("index")), {})


def _word(value: Any) -> str:
    word = getattr(value, "value", value)
    return word if isinstance(word, str) else ""


def _object(value: Any, place: str) -> Json:
    found = plain(value)
    if found is None:
        raise BadInput(f"the {place} is {shown(value)}", place=place, hint="give it as the SDK gave it")
    return found
