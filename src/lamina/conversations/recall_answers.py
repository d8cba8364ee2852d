"""Whole answers without the calls of lamina's own tools. Nothing of an answer is changed in place.

`own_names` are the names of these tools (`Fitted.own_names`). An answer is JSON.
What needs no change stays the same object.

After `recall_loop.ROUNDS` recalls in a row the model is told to answer. If it recalls again and has said
nothing at all, its answer would be empty. Clients take an empty answer for a broken one, and most APIs refuse
it as a part of the history. So the answer gets one sentence that says so, in the words of its dialect.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from lamina.dialects.json_values import list_or_empty, read_field
from lamina.dialects.openai_responses.items import OUTPUT_TYPE_OF_CALL
from lamina.dialects.port import Dialect

CALL_LISTS: dict[str, tuple[str, ...]] = {
    "anthropic": ("content",),
    "openai_chat": ("choices", "message", "tool_calls"),
    "openai_responses": ("output",),
    "gemini": ("candidates", "content", "parts"),
    "ollama": ("message", "tool_calls"),
    "bedrock_converse": ("output", "message", "content"),
}
"""Where the calls are in an answer."""

_FUNCTION_FIELDS = ("function", "custom", "function_call", "functionCall", "toolUse")
"""Fields of a call, or of a part of an answer, that hold the name of the tool."""

_STOPS = {
    "stop_reason": ("tool_use", "end_turn"),
    "finish_reason": ("tool_calls", "stop"),
    "stopReason": ("tool_use", "end_turn"),
}
"""What an answer with calls says at its end, and what one without calls says. Other APIs have one word."""


def strip_recalls(answer: Any, dialect: Dialect, own_names: Collection[str]) -> Any:
    """A whole answer without calls of lamina's tools; the same object if it has none.

    If no other call is left, the answer does not say that the model waits for results.
    """
    path = CALL_LISTS.get(dialect.name)
    if path is None:
        return answer
    stripped_answer = drop_recalls(answer, path, own_names)
    if stripped_answer is answer:
        return answer
    if dialect.name in ("anthropic", "bedrock_converse"):
        has_calls = shows_client_call(stripped_answer, dialect, own_names)
        return end_turn(stripped_answer, has_calls=has_calls)
    choices: list[Any] = []
    for choice in list_or_empty(read_field(stripped_answer, "choices")):
        has_calls = bool(read_field(read_field(choice, "message"), "tool_calls"))
        choices.append(end_turn(choice, has_calls=has_calls))
    if not choices:
        return stripped_answer
    return _change_items(stripped_answer, "choices", choices)


def drop_recalls(holder: Any, path: tuple[str, ...], own_names: Collection[str]) -> Any:
    """A value without calls of lamina's tools in the list at the end of this path.

    It is the same value if it has none.
    """
    name = path[0]
    rest = path[1:]
    value = read_field(holder, name)
    if not value:
        return holder
    if not isinstance(value, list | tuple):
        return change_field(holder, name, drop_recalls(value, rest, own_names))
    if rest:
        return _change_items(holder, name, [drop_recalls(item, rest, own_names) for item in value])
    return _change_items(holder, name, [item for item in value if not is_recall(item, own_names)])


def end_turn(holder: Any, *, has_calls: bool) -> Any:
    """What says why an answer stopped. Without calls, the model does not wait for results."""
    if has_calls:
        return holder
    for name, (with_calls, without_calls) in _STOPS.items():
        if read_field(holder, name) == with_calls:
            return change_field(holder, name, without_calls)
    return holder


def shows_client_call(answer: Any, dialect: Dialect, own_names: Collection[str]) -> bool:
    """Whether a whole answer, or one chunk of Gemini or Ollama, calls a tool of the client.

    A call counts even if it was cut off and cannot be read: the client sees it.
    """
    path = CALL_LISTS.get(dialect.name)
    if path is None:
        return False
    return any(is_client_call(item, own_names) for item in _list_items(answer, path))


def _list_items(holder: Any, path: tuple[str, ...]) -> list[Any]:
    """What stands at the end of a path, in all items of the lists on its way."""
    if not path:
        return [holder]
    value = read_field(holder, path[0])
    if not isinstance(value, list | tuple):
        return _list_items(value, path[1:])
    items: list[Any] = []
    for inner in value:
        items += _list_items(inner, path[1:])
    return items


def is_client_call(item: Any, own_names: Collection[str]) -> bool:
    """Whether a block, item, call or part of an answer calls a tool of the client.

    Blocks of Anthropic's API and items of the Responses API have a type. Tools that the server itself runs,
    such as web search, have other types.
    """
    if is_recall(item, own_names):
        return False
    if any(read_field(item, field) for field in _FUNCTION_FIELDS):
        return True
    item_type = read_field(item, "type")
    return item_type == "tool_use" or item_type in OUTPUT_TYPE_OF_CALL


def is_recall(item: Any, own_names: Collection[str]) -> bool:
    """Whether a block, item, call or part of an answer calls a tool that lamina answers."""
    for name in _FUNCTION_FIELDS:
        item = read_field(item, name) or item
    name = read_field(item, "name")
    return isinstance(name, str) and name in own_names


def _change_items(holder: Any, name: str, items: list[Any]) -> Any:
    """A value with other items in one of its lists; itself if they are the same objects.

    An API that may leave out the list of calls does not take an empty one.
    """
    old_items = read_field(holder, name)
    if list(map(id, items)) == list(map(id, old_items)):
        return holder
    if name == "tool_calls" and not items:
        return change_field(holder, name, None)
    return change_field(holder, name, items)


def change_field(holder: Any, name: str, value: Any) -> Any:
    """An object with another value in one field; itself if it is the same."""
    old_value = read_field(holder, name)
    if old_value is value or (isinstance(value, int | str) and old_value == value):
        return holder
    return {**holder, name: value}


NOTICE = "[lamina: the model recalled earlier parts of this conversation again and again, and did not answer]"


def fill_answer(answer: Any, dialect: Dialect) -> Any:
    """A whole answer, or the last chunk of one, that says the notice and nothing else."""
    write = dialect.answers.write
    if write is None or not isinstance(answer, dict):
        return answer
    return write(answer, NOTICE)


def fill_stream(closing: Sequence[Any], dialect: Dialect, *, index: int) -> list[Any]:
    """The events that end a stream, with the notice before them or in them.

    `index` says how many blocks or items of the answer the client has seen.
    """
    write_closing_events = dialect.answers.write_closing_events
    if write_closing_events is None or not closing:
        return list(closing)
    return write_closing_events(list(closing), NOTICE, index)
