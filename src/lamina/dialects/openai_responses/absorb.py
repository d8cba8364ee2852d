"""Reads an answer of the Responses API as segments: the items as the model gave them, ready to be sent back.

Of a stream, an item is read as it was when it was done, since only then its encrypted content is whole. If
the stream broke off, the text of an unfinished message is read too. A call or reasoning that was not finished
is not, since nobody may act on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from lamina.dialects.json_values import Json, read_list, text_or_empty, to_dict, to_dict_or_empty
from lamina.dialects.openai_responses.item_scan import ItemScan
from lamina.dialects.openai_responses.items import find_streamed_id
from lamina.dialects.openai_responses.parts import render_assistant_text
from lamina.dialects.port import Absorbed
from lamina.dialects.usage import read_usage

_TEXT_EVENTS = ("response.output_text.delta", "response.refusal.delta")
_LAST_EVENTS = ("response.completed", "response.incomplete", "response.failed")


def absorb(response: Any) -> Absorbed:
    """Read a whole response: a dict, or an object of the SDK."""
    answer = to_dict(response, "response")
    sdk_items = getattr(response, "output", None)
    if isinstance(sdk_items, list):
        return _absorb_items(sdk_items, answer)
    return _absorb_items(read_list(answer, "output"), answer)


def absorb_stream(events: Sequence[Any]) -> Absorbed:
    """Read all events of a stream, in order.

    If no item was done, the last event may still have them all.
    """
    items = _StreamedItems()
    answer: Json = {}
    for value in events:
        event = to_dict(value, "event")
        if event.get("type") in _LAST_EVENTS:
            answer = to_dict_or_empty(event.get("response"))
        else:
            items.take(event)
    output: Sequence[Any] = items.finish()
    if not output and isinstance(answer.get("output"), list):
        output = answer["output"]
    return _absorb_items(output, answer)


def _absorb_items(items: Sequence[Any], answer: Json) -> Absorbed:
    """The answer. It ended for the reason why it is incomplete, else with its status."""
    segments = tuple(chain.from_iterable(ItemScan().read(items)))
    reason = to_dict_or_empty(answer.get("incomplete_details")).get("reason")
    if not isinstance(reason, str):
        reason = text_or_empty(answer.get("status"))
    return Absorbed(segments=segments, usage=read_usage(answer.get("usage")), stop=reason)


class _StreamedItems:
    """Items by their position in the answer: done, or begun with the text that has arrived so far."""

    def __init__(self) -> None:
        self.done: dict[int, Json] = {}
        self.begun: dict[int, Json] = {}
        self.texts: dict[int, dict[int, list[str]]] = {}
        self._positions: dict[str, int] = {}

    def take(self, event: Json) -> None:
        """Take in one event.

        `{"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "He"}` adds to
        the first text of the first item.
        """
        event_type = event.get("type")
        position = self._find_position(event)
        delta = event.get("delta")
        if event_type == "response.output_item.done":
            self.done[position] = to_dict_or_empty(event.get("item"))
        elif event_type == "response.output_item.added":
            self.begun[position] = to_dict_or_empty(event.get("item"))
        elif event_type in _TEXT_EVENTS and isinstance(delta, str):
            part_index = _read_index(event.get("content_index"))
            texts_of_item = self.texts.setdefault(position, {})
            texts_of_item.setdefault(part_index, []).append(delta)

    def _find_position(self, event: Json) -> int:
        """The position of the item that an event is about.

        Items without a number are told apart by their ids, in the order in which they begin. An event that
        has neither belongs to the first item.
        """
        index = event.get("output_index")
        item_id = find_streamed_id(event)
        if index is not None or not item_id:
            return _read_index(index)
        return self._positions.setdefault(item_id, len(self._positions))

    def finish(self) -> list[Json]:
        """The items that are done, and messages that were not finished.

        The id of such a message names nothing that was stored, so it is left out.
        """
        items = dict(self.done)
        for position in self.texts.keys() - self.done.keys():
            texts = self.texts[position]
            content = [render_assistant_text("".join(texts[index])) for index in sorted(texts)]
            message: Json = {"type": "message", "role": "assistant", "content": content}
            phase = self.begun.get(position, {}).get("phase")
            if phase:
                message["phase"] = phase
            items[position] = message
        return list(filter(None, map(items.get, sorted(items))))


def _read_index(value: Any) -> int:
    """A position in an answer; 0 for a value that is none."""
    if isinstance(value, int) and value > 0:
        return value
    return 0
