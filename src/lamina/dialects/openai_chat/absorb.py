"""A Chat Completions answer as segments: the message as the model gave it, ready to be sent back.

A streamed answer is put together first, field by field, and then read like a whole one. Fields that this
module does not know are put together too: text is joined, lists are lengthened, objects are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lamina.core.values import Segment
from lamina.dialects.openai_chat.calls import ChatCalls
from lamina.dialects.openai_chat.parse import read_message
from lamina.dialects.openai_chat.parts import describe_value, to_dict, word_or_empty
from lamina.dialects.port import Absorbed
from lamina.dialects.usage import read_usage
from lamina.errors import BadInput

_DEEPEST_LEVEL = 64
"""Levels of a stream's objects that are merged."""

_UNDIVIDED_FIELDS = frozenset(("id", "type", "name", "role", "index", "format"))
"""Fields that arrive in one piece. A server that repeats them in each chunk means the same value."""


def absorb(response: Any) -> Absorbed:
    """A chat.completion, as a dict or as the SDK's object."""
    answer = to_dict(response, "response")
    choice = _first_choice(answer.get("choices"))
    message = choice.get("message")
    segments: tuple[Segment, ...] = ()
    if message is not None:
        segments = read_message(message, 0, ChatCalls())
    return Absorbed(
        segments=segments,
        usage=read_usage(answer.get("usage")),
        stop=word_or_empty(choice.get("finish_reason")),
    )


def absorb_stream(events: Sequence[Any]) -> Absorbed:
    """All chunks of a stream, in order."""
    partial_message: dict[str, Any] = {}
    usage: Any = None
    stop = ""
    for event in events:
        chunk = to_dict(event, "event")
        usage = chunk.get("usage") or usage
        choice = _first_choice(chunk.get("choices"))
        delta = choice.get("delta")
        if delta is not None:
            _merge_fields(partial_message, to_dict(delta, "response"), 0)
        stop = word_or_empty(choice.get("finish_reason")) or stop
    fields = _join_pieces(partial_message)
    segments: tuple[Segment, ...] = ()
    if fields:
        message = {"role": "assistant", "content": None, **fields}
        segments = read_message(message, 0, ChatCalls())
    return Absorbed(segments=segments, usage=read_usage(usage), stop=stop)


class _TextPieces(list[str]):
    """Text that is still arriving; joined once, at the end."""


class _PartialList(list[Any]):
    """A list that is still arriving. `positions` has the position of each index that the stream named."""

    def __init__(self) -> None:
        super().__init__()
        self.positions: dict[Any, int] = {}


def _merge_fields(target: dict[str, Any], delta: Mapping[str, Any], level: int) -> None:
    """Adds to `target` what one chunk brings."""
    if level > _DEEPEST_LEVEL:
        raise BadInput("a stream event is nested too deeply", place="event", hint="give plain JSON")
    for name, value in delta.items():
        old_value = target.get(name)
        if value is None:
            target.setdefault(name, None)
        elif isinstance(value, str):
            target[name] = _append_text(old_value, value, undivided=name in _UNDIVIDED_FIELDS)
        elif isinstance(value, list):
            target[name] = _append_items(old_value, value, level, are_calls=name == "tool_calls")
        elif isinstance(value, dict):
            if not isinstance(old_value, dict):
                target[name] = {}
            _merge_fields(target[name], value, level + 1)
        else:
            target[name] = value


def _append_text(old_value: Any, text: str, *, undivided: bool) -> _TextPieces:
    """The pieces of a text with one more; a repeated name or id is not added again."""
    pieces = old_value if isinstance(old_value, _TextPieces) else _TextPieces()
    is_repeated = undivided and len(pieces) > 0
    if text and not is_repeated:
        pieces.append(text)
    return pieces


def _append_items(old_value: Any, values: Iterable[Any], level: int, *, are_calls: bool) -> _PartialList:
    """The items of a list so far, with those of one chunk. An object may continue one of them."""
    items = old_value if isinstance(old_value, _PartialList) else _PartialList()
    for value in values:
        if not isinstance(value, dict):
            items.append(value)
        elif are_calls:
            _merge_call(items, value, level)
        else:
            _merge_item(items, value, level)
    return items


def _merge_call(items: _PartialList, call: Mapping[str, Any], level: int) -> None:
    """Continues a call, or begins one. The index orders the stream only, so it is not kept."""
    index = _read_index(call)
    position = _find_continued_call(items, call, index)
    if position is None:
        position = _begin_item(items, index)
    fields = {name: value for name, value in call.items() if name != "index"}
    _merge_fields(items[position], fields, level + 1)


def _merge_item(items: _PartialList, item: Mapping[str, Any], level: int) -> None:
    """Continues the item that has the same index, or begins one."""
    index = _read_index(item)
    position = items.positions.get(index)
    if position is None:
        position = _begin_item(items, index)
    _merge_fields(items[position], item, level + 1)


def _read_index(item: Mapping[str, Any]) -> int | None:
    index = item.get("index")
    return index if isinstance(index, int) else None


def _begin_item(items: _PartialList, index: int | None) -> int:
    """Adds an empty item, and returns its position."""
    position = len(items)
    items.append({})
    if index is not None:
        items.positions[index] = position
    return position


def _find_continued_call(items: _PartialList, call: Mapping[str, Any], index: int | None) -> int | None:
    """The position of the call that a chunk continues: that of its index, or the last call without one.

    None if the chunk begins a new call: the call at that position has another id.
    """
    position = items.positions.get(index, -1)
    if index is None:
        position = len(items) - 1
    if position < 0 or not isinstance(items[position], dict):
        return None
    old_id = items[position].get("id")
    new_id = call.get("id")
    if not new_id or not old_id or old_id == [new_id]:
        return position
    return None


def _join_pieces(value: Any) -> Any:
    """A value of which all chunks have arrived, with its texts joined."""
    if isinstance(value, _TextPieces):
        return "".join(value)
    if isinstance(value, dict):
        return {name: _join_pieces(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_join_pieces(inner) for inner in value]
    return value


def _first_choice(choices: Any) -> Mapping[str, Any]:
    """The choice with index 0; empty for the chunk that carries the usage, which has no choice."""
    if choices is None:
        return {}
    if not isinstance(choices, list | tuple):
        problem = f"choices is {describe_value(choices)}"
        raise BadInput(problem, place="choices", hint="give the response as it came")
    for value in choices:
        choice = to_dict(value, "choices")
        if not choice.get("index"):
            return choice
    return {}
