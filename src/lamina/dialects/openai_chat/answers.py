"""Reads a Chat Completions answer as segments, ready to be sent back, and writes lamina's own answers.

A streamed answer is put together first, field by field, and then read like a whole one. Fields that this
module does not know are put together too: text is joined, lists are lengthened, objects are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lamina.core.values import Segment
from lamina.dialects.json_values import drop_fields, list_or_empty, read_list, text_or_empty, to_dict
from lamina.dialects.openai_chat.calls import ChatCalls
from lamina.dialects.openai_chat.parse import read_message
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
    choice = read_first_choice(answer)
    return _make_absorbed(choice.get("message"), answer.get("usage"), choice.get("finish_reason"))


def absorb_stream(events: Sequence[Any]) -> Absorbed:
    """All chunks of a stream, in order.

    The chunk with the usage comes last and has no choice.
    """
    partial_message: dict[str, Any] = {}
    usage: Any = None
    stop: Any = ""
    for event in events:
        chunk = to_dict(event, "event")
        # Some servers report it in each chunk, each time for all that has come.
        usage = chunk.get("usage") or usage
        choice = read_first_choice(chunk)
        delta = choice.get("delta")
        if delta is not None:
            _merge_fields(partial_message, to_dict(delta, "response"), 0)
        stop = text_or_empty(choice.get("finish_reason")) or stop
    message = None
    if partial_message:
        message = {"role": "assistant", "content": None, **_join_pieces(partial_message)}
    return _make_absorbed(message, usage, stop)


def read_first_choice(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The choice with index 0; empty for the chunk that carries the usage, which has no choice.

    Of several choices the first is the answer: lamina asks for one, and a client that asks for more sees the
    rest.
    """
    for value in read_list(answer, "choices", "give the response as it came"):
        choice = to_dict(value, "choices")
        if not choice.get("index"):
            return choice
    return {}


def _make_absorbed(message: Any, usage: Any, stop: Any) -> Absorbed:
    """The answer. A stream without any message gives no segments."""
    segments: tuple[Segment, ...] = ()
    if message is not None:
        segments = read_message(message, 0, ChatCalls())
    return Absorbed(segments=segments, usage=read_usage(usage), stop=text_or_empty(stop))


_TEXT_TYPES = ("text", "thinking")
"""Types of parts that are streamed in pieces."""


class _TextPieces(list[str]):
    """Text that is still arriving; joined once, at the end."""


class _PartialList(list[Any]):
    """A list that is still arriving. `positions` has the position of each index that the stream named."""

    def __init__(self) -> None:
        super().__init__()
        self.positions: dict[Any, int] = {}

    def begin_item(self, index: int | None) -> int:
        """Add an empty object, and return its position."""
        self.append({})
        position = len(self) - 1
        if index is not None:
            self.positions[index] = position
        return position


def _merge_fields(target: dict[str, Any], delta: Mapping[str, Any], level: int) -> None:
    """Add to `target` what one chunk brings.

    `{"content": "He"}` and `{"content": "llo"}` become `{"content": ["He", "llo"]}`, to be joined at the end.
    """
    if level > _DEEPEST_LEVEL:
        raise BadInput("a stream event is nested too deeply", place="event", hint="give plain JSON")
    for name, value in delta.items():
        old_value = target.get(name)
        match value:
            case None:
                target.setdefault(name, None)
            case str() if name == "content" and isinstance(old_value, _PartialList):
                # Mistral streams what it thinks as parts, and then what it says as text.
                part = {"type": "text", "text": value}
                target[name] = _append_items(old_value, [part] if value else [], level, are_calls=False)
            case str():
                target[name] = _append_text(old_value, value, undivided=name in _UNDIVIDED_FIELDS)
            case list():
                target[name] = _append_items(old_value, value, level, are_calls=name == "tool_calls")
            case dict():
                if not isinstance(old_value, dict):
                    target[name] = {}
                _merge_fields(target[name], value, level + 1)
            case _:
                target[name] = value


def _append_text(old_value: Any, text: str, *, undivided: bool) -> _TextPieces:
    """The pieces of a text with one more; a repeated name or id is not added again.

    An id that comes again with each chunk is not added: `call_1` stays `call_1`.
    """
    pieces = _TextPieces()
    if isinstance(old_value, _TextPieces):
        pieces = old_value
    is_repeated = undivided and len(pieces) > 0
    if text and not is_repeated:
        pieces.append(text)
    return pieces


def _append_items(old_value: Any, values: Iterable[Any], level: int, *, are_calls: bool) -> _PartialList:
    """The items of a list so far, with those of one chunk.

    An object may continue one of them: the one with the same index, or a call. The index of a call orders
    the stream only, so it is not kept.
    """
    items = old_value
    if not isinstance(items, _PartialList):
        items = _PartialList()
        if isinstance(old_value, _TextPieces) and old_value and not are_calls:
            items.append({"type": _TextPieces(["text"]), "text": old_value})
    for value in values:
        if not isinstance(value, dict):
            items.append(value)
            continue
        fields = dict(value)
        index = fields.get("index")
        if not isinstance(index, int):
            index = None
        position = items.positions.get(index)
        if are_calls:
            fields.pop("index", None)
            position = _find_continued_call(items, fields, index)
        elif index is None and _continues_text(items, fields):
            position = len(items) - 1
        if position is None:
            position = items.begin_item(index)
        _merge_fields(items[position], fields, level + 1)
    return items


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
    # Some servers number all calls 0, and tell them apart by their ids only.
    is_other_call = new_id and old_id and old_id != [new_id]
    if is_other_call:
        return None
    return position


def _continues_text(items: _PartialList, part: Mapping[str, Any]) -> bool:
    """Whether a part without an index goes on with the text, or the thought, that is the last item."""
    part_type = part.get("type")
    if not items or part_type not in _TEXT_TYPES or not isinstance(items[-1], dict):
        return False
    return items[-1].get("type") == [part_type]


def _join_pieces(value: Any) -> Any:
    """A value of which all chunks have arrived, with its texts joined.

    `{"content": ["He", "llo"]}` becomes `{"content": "Hello"}`.
    """
    match value:
        case _TextPieces():
            return "".join(value)
        case dict():
            return {name: _join_pieces(inner) for name, inner in value.items()}
        case list():
            return list(map(_join_pieces, value))
    return value


def write_answer(answer: Mapping[str, Any], text: str) -> dict[str, Any]:
    """A whole answer whose first choice says this text and nothing else."""
    first, *others = list_or_empty(answer.get("choices")) or [{"index": 0}]
    message = {"role": "assistant", **(first.get("message") or {}), "content": text}
    return {**answer, "choices": [{**first, "message": message}, *others]}


def write_closing_events(closing: Sequence[Mapping[str, Any]], text: str, _: int) -> list[dict[str, Any]]:
    """The chunks that end a stream, after one more, which says this text."""
    fields = drop_fields(closing[0], ("usage",))
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return [{**fields, "choices": [choice]}, *map(dict, closing)]
