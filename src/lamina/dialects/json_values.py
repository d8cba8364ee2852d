"""Reads values of a request whose shape nobody has checked: JSON values, and objects of a provider's SDK.

A function `…_or_empty` or `…_or_none` gives an empty value, or None, for a value of another type. The others
raise BadInput. Its place is relative to the value, and a caller that knows where the value stands puts the
outer place in front of it (`add_outer_place`).

The functions that change an object give back the same object if nothing changed. A client that compares
objects then sees exactly what lamina changed, and nothing else is copied.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from operator import is_
from typing import Any, TypeVar

import msgspec

from lamina.core.text.characters import WHITE_SPACE
from lamina.errors import BadInput

Json = dict[str, Any]
AnyHolder = TypeVar("AnyHolder")
AnyValue = TypeVar("AnyValue")

LIST_TYPES = (list, tuple)
"""Types that are accepted where JSON has a list. A tuple: `list | tuple` would be rebuilt on each use."""

MAPPING_TYPES = (dict, Mapping)
"""A dict is a Mapping too; to look for it first is several times as fast."""

_QUOTED_CHARACTERS = 40
"""Characters of a text that an error quotes."""

# Example: "data:image/png;charset=utf-8;base64," and then the base64; group 1 is "image/png".
_DATA_URL = re.compile(r"data:([\w.+/-]{0,100})(?:;[\w=.-]{1,100}){0,4};base64,", re.ASCII)


_ENCODER = msgspec.json.Encoder()

MODEL_FIELDS = ("model", "modelId")
"""Every API names it `model`, except Bedrock's Converse."""


def dump_model(value: Any, **options: Any) -> Any:
    """What an object of an SDK says on the wire, without fields that nobody set; None for any other value.

    A class is not an object of itself: `Message` has a `model_dump` too, but nothing to dump. `options` are
    pydantic's, for an SDK whose objects have to be dumped in another way.
    """
    dump = getattr(value, "model_dump", None)
    if not callable(dump) or isinstance(value, type):
        return None
    if not options:
        # What an SDK read out of an answer for the caller (`parsed_arguments`) is in its objects too, and an
        # API refuses it. The field `from` of a fallback is `from_` in Python.
        unsent = getattr(value, "__api_exclude__", None)
        options = {"exclude_unset": True, "by_alias": True, "exclude": unsent}
    return dump(mode="json", **options)


def to_dict_or_none(value: Any, dump: Callable[[Any], Any] = dump_model) -> Json | None:
    """A dict, whether the value came as a dict, as another mapping, or as an object of an SDK.

    `dump` is for a dialect whose SDK has to be read in another way.

    `{"role": "user"}` comes back as the object that it is. A pydantic model is dumped, a string is None.
    """
    if isinstance(value, dict):
        return value
    mapping = value
    if not isinstance(value, Mapping):
        mapping = dump(value)
    if isinstance(mapping, Mapping):
        return dict(mapping)
    return None


def to_event(event: Any) -> Json:
    """An event of a stream as a dict. Raises BadInput for a value that is no object."""
    fields = to_dict_or_none(event)
    if fields is None:
        problem = f"an event is a value of type {type(event).__name__}"
        raise BadInput(problem, place="stream", hint="give the events as they came")
    return fields


def to_dict_or_empty(value: Any, dump: Callable[[Any], Any] = dump_model) -> Json:
    """Like `to_dict_or_none`, with an empty dict for a value that is not an object.

    A dict comes back at once: nearly every value is one, and this saves a call for every block of a long
    request.
    """
    if isinstance(value, dict):
        return value
    return to_dict_or_none(value, dump) or {}


def to_dict(value: Any, place: str = "", dump: Callable[[Any], Any] = dump_model) -> Json:
    """Like `to_dict_or_none`. Raises BadInput for a value that is not an object."""
    mapping = to_dict_or_none(value, dump)
    if mapping is None:
        problem = f"expected an object, got {describe_value(value)}"
        raise BadInput(problem, place=place, hint="give a JSON object")
    return mapping


def read_list(holder: Mapping[str, Any], field: str, hint: str = "give a list") -> Sequence[Any]:
    """The list in a field; empty if the field is absent or null. Raises BadInput for any other value.

    Of `{"tools": null}` the list in `tools` is empty, and of `{"tools": {}}` it is an error.
    """
    return to_list(holder.get(field), field, hint)


def to_list(value: Any, place: str, hint: str = "give a list") -> Sequence[Any]:
    """A list; empty for null. Raises BadInput with this place for any other value."""
    if value is None:
        return ()
    if not isinstance(value, LIST_TYPES):
        raise BadInput(f"{place} is {describe_value(value)}", place=place, hint=hint)
    return value


def read_optional_text(holder: Mapping[str, Any], field: str) -> str | None:
    """The text in a field; None if the field is absent or null. Raises BadInput for any other value.

    Of `{"name": 7}` the text in `name` is an error, and of `{}` it is None.
    """
    value = holder.get(field)
    if value is not None and not isinstance(value, str):
        raise BadInput(f"{field} is {describe_value(value)}", place=field, hint="give a string")
    return value


def describe_value(value: Any, *, type_words: str = "of type") -> str:
    """A value for an error that says "content is …": short, since the value may be huge.

    A text is quoted, another value is described by its type: "of type int".

    `7` is "of type int", `"tool"` is "'tool'", and `[]` is "an empty list".
    """
    type_name = type(value).__name__
    match value:
        case None | bool() | float():
            return repr(value)
        case str() if len(value) > _QUOTED_CHARACTERS:
            return f"{value[:_QUOTED_CHARACTERS]!r}…"
        case str():
            return repr(value)
        case list() | tuple() | dict() if not value:
            return f"an empty {type_name}"
    return f"{type_words} {type_name}"


def name_value(value: Any) -> str:
    """Like `describe_value`, as the subject of a sentence: "a value of type int"."""
    return describe_value(value, type_words="a value of type")


def add_outer_place(outer_place: str, error: BadInput) -> BadInput:
    """The same error, with its place as seen from further out.

    `role` becomes `messages[3].role`, and `[0].text` becomes `content[0].text`.
    """
    inner_place = error.place
    if inner_place and inner_place[0] not in ".[":
        inner_place = f".{inner_place}"
    return BadInput(error.problem, place=f"{outer_place}{inner_place}", hint=error.hint)


def read_each(
    values: Iterable[Any], place: str, read: Callable[[Any, int], AnyValue], *, start: int = 0
) -> list[AnyValue]:
    """Each value of the list at a place as `read` reads it, which also gets its position.

    An error names the value: `role` becomes `messages[3].role`. The first value has the position `start`.
    """
    read_values: list[AnyValue] = []
    for position, value in enumerate(values, start):
        try:
            read_values.append(read(value, position))
        except BadInput as error:
            raise add_outer_place(f"{place}[{position}]", error) from None
    return read_values


def encode_json(value: Any, place: str) -> str:
    """A value as JSON text. Raises BadInput with this place for what JSON has no word for.

    A function has none, and neither has a list that holds itself.
    """
    try:
        return _ENCODER.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        hint = "use str, int, float, bool, None, list and dict"
        raise BadInput(f"not a JSON value: {error}", place=place, hint=hint) from None


def decode_arguments(arguments: str) -> Json:
    """The arguments of a call as an object. If the model wrote something else, that is put inside an object.

    `{"path": "a.py"}` is an object already. `[1]` becomes `{"arguments": [1]}`, and `a.py`, which is not
    JSON, becomes `{"arguments": "a.py"}`.
    """
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        value = arguments.strip(WHITE_SPACE) or {}
    if isinstance(value, dict):
        return value
    return {"arguments": value}


def split_data_url(url: str) -> tuple[str, str]:
    """Media type and base64 of a data URL; two empty strings for any other address.

    `data:image/png;base64,iVBORw0…` is `("image/png", "iVBORw0…")`.
    """
    beginning = _DATA_URL.match(url)
    if beginning is None:
        return "", ""
    return beginning[1], url[beginning.end() :]


def text_or_empty(value: Any) -> str:
    """The value if it is a string, else ""."""
    if isinstance(value, str):
        return value
    return ""


def text_or_none(value: Any) -> str | None:
    """The value if it is a string, else None."""
    if isinstance(value, str):
        return value
    return None


def mapping_or_empty(value: Any) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one."""
    if isinstance(value, MAPPING_TYPES):
        return value
    return {}


def list_or_empty(value: Any) -> Sequence[Any]:
    """The value if it is a list or tuple, else an empty tuple."""
    if isinstance(value, LIST_TYPES):
        return value
    return ()


def list_objects(value: Any) -> list[Json]:
    """The objects in a JSON list; [] if the value is no list."""
    return [item for item in list_or_empty(value) if isinstance(item, dict)]


def read_field(holder: Any, name: str) -> Any:
    """A field of a mapping, or an attribute of an object of an SDK; None if there is none.

    A usage may be a dict, or an object of any SDK.
    """
    if isinstance(holder, MAPPING_TYPES):
        return holder.get(name)
    return getattr(holder, name, None)


def drop_nulls(holder: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are not null.

    `{"a": null, "b": 0}` becomes `{"b": 0}`.
    """
    return {name: value for name, value in holder.items() if value is not None}


def drop_fields(holder: Mapping[str, Any], names: Container[str]) -> dict[str, Any]:
    """A new object without these fields.

    `{"a": 1, "b": 2}` without `b` and `c` becomes `{"a": 1}`.
    """
    return {name: value for name, value in holder.items() if name not in names}


def drop_default(value: Any, default: Any) -> Any:
    """None if the value is the documented default, which means the same as an absent field.

    A cache must not see a difference between the two.
    """
    if value == default:
        return None
    return value


def read_texts(value: Any) -> tuple[str, ...]:
    """The strings of a parameter that may be one string or a list; an empty tuple for other values.

    `"END"` is `("END",)`, and `["END", 7]` is `("END",)` too.
    """
    if isinstance(value, str):
        return (value,)
    return tuple(item for item in list_or_empty(value) if isinstance(item, str))


def number_or_none(value: Any) -> Any:
    """The value if it is a number, else None. A bool is not a number here.

    `1.5` is a number. `True` and `"1"` are not.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return None


def to_count(value: Any) -> int:
    """The value if it is a positive whole number, else 0. Null, a negative number and true count nothing."""
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return max(value, 0)


def find_model(fields: Mapping[str, Any]) -> str:
    """The model that a request names, "" if it names none."""
    for name in MODEL_FIELDS:
        if fields.get(name):
            return str(fields[name])
    return ""


def set_model(fields: Mapping[str, Any], model: str) -> dict[str, Any]:
    """The fields with another model, under the name that they have for it already."""
    for name in MODEL_FIELDS:
        if name in fields:
            return {**fields, name: model}
    return {**fields, "model": model}


def drop_field(holder: Any, name: str) -> Any:
    """An object without one field; the same object if it does not have it. Other values stay as they are.

    `{"a": 1, "b": 2}` without `b` is a new dict, without `c` it is the same object.
    """
    if not isinstance(holder, MAPPING_TYPES) or name not in holder:
        return holder
    rest = dict(holder)
    del rest[name]
    return rest


def change_items(holder: Mapping[str, Any], name: str, change: Callable[[Any], Any]) -> Mapping[str, Any]:
    """An object with each item of one of its lists changed; the same object if no item changes."""
    items = holder.get(name)
    if not isinstance(items, list | tuple):
        return holder
    return set_field(holder, name, keep_list(items, list(map(change, items))))


def set_field(holder: Mapping[str, Any], name: str, value: Any) -> Mapping[str, Any]:
    """An object with a new value in one field; the same object if the value is the one that it has."""
    if value is holder.get(name):
        return holder
    return {**holder, name: value}


def put_or_drop_field(holder: Mapping[str, Any], name: str, value: Any) -> Mapping[str, Any]:
    """An object with this value in one field, or without the field if the value is None.

    The same object comes back if it is so already; a field that holds null counts as absent.
    """
    if holder.get(name) == value:
        return holder
    changed = {**holder, name: value}
    if value is None:
        del changed[name]
    return changed


def keep_list(items: Sequence[Any], new_items: list[Any]) -> Sequence[Any]:
    """The old list if each of its items is still the same object, else the new one.

    So a list in which nothing changed stays the list that the caller sent.
    """
    if all(map(is_, items, new_items)):
        return items
    return new_items


def change_object(source: Any, change: Callable[[dict[str, Any]], Any]) -> Any:
    """An object with its fields changed; the same object if `change` gives back the fields that it got.

    An object of an SDK is read as a dict, and stays one of the SDK for as long as nothing of it changes. A
    value that is not an object stays as it is.
    """
    fields = to_dict_or_none(source)
    if fields is None:
        return source
    changed = change(fields)
    if changed is fields:
        return source
    return changed


def to_same_dict(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping as a dict; the same object if it is one."""
    if isinstance(mapping, dict):
        return mapping
    return dict(mapping)
