"""An answer of the Responses API as segments: the items as the model gave them, ready to be sent back.

Of a stream, an item counts as it was when it was done, since only then its encrypted content is whole. If
the stream broke off, what the model had said of a message is kept; a call or reasoning that was not finished
is not, since nobody may act on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lamina.dialects.openai_responses.parse import Scan
from lamina.dialects.openai_responses.parts import Json, listed, plain, spoken
from lamina.dialects.port import Absorbed
from lamina.dialects.usage import read_usage

_TEXT = ("response.output_text.delta", "response.refusal.delta")
_ENDS = ("response.completed", "response.incomplete", "response.failed")


def absorb(response: Any) -> Absorbed:
    """A response, as a dict or as the SDK's object."""
    answer = plain(response, "response")
    items = getattr(response, "output", None)  # the SDK's own objects, where it has them
    output = items if isinstance(items, list) else listed(answer, "output")
    return Absorbed(
        segments=tuple(segment for segments in Scan().read(output) for segment in segments),
        usage=read_usage(answer.get("usage")),
        stop=_stop(answer),
    )


def absorb_stream(events: Sequence[Any]) -> Absorbed:
    """All events of a stream, in order."""
    items = _Items()
    answer: Json = {}
    for event in events:
        wire = plain(event, "event")
        if wire.get("type") in _ENDS:
            answer = _object(wire.get("response"))
        else:
            items.take(wire)
    whole = answer.get("output")
    output = items.finished() or (whole if isinstance(whole, list) else [])
    return Absorbed(
        segments=tuple(segment for segments in Scan().read(output) for segment in segments),
        usage=read_usage(answer.get("usage")),
        stop=_stop(answer),
    )


class _Items:
    """Items by their place in the answer: done, or begun with the text that has arrived."""

    def __init__(self) -> None:
        self.done: dict[int, Json] = {}
        self.begun: dict[int, Json] = {}
        self.said: dict[int, dict[int, list[str]]] = {}

    def take(self, event: Json) -> None:
        sort, at, inner = event.get("type"), _count(event.get("output_index")), event.get("content_index")
        if sort == "response.output_item.done":
            self.done[at] = _object(event.get("item"))
        elif sort == "response.output_item.added":
            self.begun[at] = _object(event.get("item"))
        elif sort in _TEXT and isinstance(delta := event.get("delta"), str):
            self.said.setdefault(at, {}).setdefault(_count(inner), []).append(delta)

    def finished(self) -> list[Json]:
        found = self.done | {at: self._broken(at) for at in self.said if at not in self.done}
        return [found[at] for at in sorted(found) if found[at]]

    def _broken(self, at: int) -> Json:
        """A message that was not finished. Its id names nothing that was stored, so it has none."""
        texts = self.said[at]
        phase = self.begun.get(at, {}).get("phase")
        content = [spoken("".join(texts[i])) for i in sorted(texts)]
        message: Json = {"type": "message", "role": "assistant", "content": content}
        return message | ({"phase": phase} if phase else {})


def _stop(answer: Json) -> str:
    """Why it ended: the reason where it is incomplete, else its status."""
    reason, status = _object(answer.get("incomplete_details")).get("reason"), answer.get("status")
    return reason if isinstance(reason, str) else status if isinstance(status, str) else ""


def _object(value: Any) -> Json:
    given = value is not None and (isinstance(value, Mapping) or hasattr(value, "model_dump"))
    return plain(value, "response") if given else {}


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
