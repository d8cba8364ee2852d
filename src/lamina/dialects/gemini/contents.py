"""Splits the contents of a request into units: who speaks, which parts, and the object that it came as.

The SDK takes a string, one part, one content, or a list of all of these, in which parts in a row make one
content: the model's if they are calls, else the user's. Nothing is read here below the list of parts, and
nothing is refused: a unit may hold anything, and whoever reads it reports what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from lamina.dialects.gemini.wire import get_field, to_dict_or_empty, to_dict_or_none
from lamina.dialects.json_values import LIST_TYPES, drop_fields

_CONTENT_FIELDS = frozenset(("role", "parts"))


class LooseParts(list[Any]):
    """Parts that came without a content around them. `bare`: one part, without even a list around it.

    They are equal to nothing but loose parts that came the same way: a memo must tell `["hi"]` from `"hi"`.
    """

    __hash__ = None

    def __init__(self, items: Any = (), *, bare: bool = False) -> None:
        super().__init__(items)
        self.bare = bare

    def __eq__(self, other: object) -> bool:
        """Whether these are loose parts that came the same way.

        One part by itself and a list of one part are equal as lists, but a client must get back what it
        sent.
        """
        return isinstance(other, LooseParts) and self.bare is other.bare and super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        """The opposite, which a list would otherwise decide by its items alone."""
        return not self == other


class Unit(NamedTuple):
    """One content: the object that it came as, its role, its parts, its place.

    If its parts are loose, `first_index` is the index of the first of them in the list of contents.
    """

    message: Any
    role: Any
    parts: Any
    place: str
    loose: bool = False
    first_index: int = 0

    def place_of(self, part_index: int) -> str:
        """The place of a part in the request.

        It is `contents[2].parts[0]` in a content, and `contents[0]` for a part that stands in the list
        itself.
        """
        if not self.loose:
            return f"{self.place}.parts[{part_index}]"
        if self.message.bare:
            return self.place
        return f"contents[{self.first_index + part_index}]"


def split_units(contents: Any) -> list[Unit]:
    """The contents, in order.

    `"Hi"` is one content of the user. `["Look:", image, {"role": "model", "parts": […]}]` is two contents:
    the loose parts, and the one of the model.
    """
    if contents is None:
        return []
    if isinstance(contents, LIST_TYPES):
        return list(_split_list(contents))
    if holds_parts(contents):
        return [_make_unit(contents, "contents")]
    return [_make_loose_unit(LooseParts((contents,), bare=True), 0)]


def list_messages(contents: Any, whole_count: int = 0) -> tuple[Sequence[Any], Callable[[Any, int], Unit]]:
    """What the units of the contents come as, and how to make a unit of one of these, given its position.

    A list of whole contents is a list of messages already. So if such a list grows, only the units of new
    contents are made. The first `whole_count` are known to be whole.
    """
    if isinstance(contents, LIST_TYPES) and _are_whole(contents[whole_count:]):
        return contents, lambda content, position: _make_unit(content, f"contents[{position}]")
    units = split_units(contents)
    return [unit.message for unit in units], lambda _, position: units[position]


def _are_whole(contents: Sequence[Any]) -> bool:
    """Whether these are contents as dicts, without loose parts."""
    if not {dict}.issuperset(map(type, contents)):
        return False
    return not any(map(_CONTENT_FIELDS.isdisjoint, contents))


def holds_parts(item: Any) -> bool:
    """Whether a value is a content, and not a part of one.

    `{"role": "user"}` and `{}` are contents without parts; `{"text": "Hi"}` and `"Hi"` are parts.
    """
    if isinstance(item, str):
        return False
    if not isinstance(item, dict):
        return hasattr(item, "parts")
    return not item or not _CONTENT_FIELDS.isdisjoint(item)


def read_extra_fields(message: Any) -> dict[str, Any]:
    """The fields of a content besides its role and its parts. Loose parts have none."""
    if isinstance(message, LIST_TYPES):
        return {}
    return drop_fields(to_dict_or_empty(message), _CONTENT_FIELDS)


def _split_list(contents: Sequence[Any]) -> Iterator[Unit]:
    """The units of a list. Loose parts of one role in a row are one unit.

    A list inside the list is a content of the user.
    """
    loose_parts = LooseParts()
    first_index = 0
    role = ""
    for i, item in enumerate(contents):
        is_content = isinstance(item, LIST_TYPES) or holds_parts(item)
        if loose_parts and (is_content or _role_of_part(item) != role):
            yield _make_loose_unit(loose_parts, first_index)
            loose_parts = LooseParts()
        if isinstance(item, LIST_TYPES):
            yield Unit(item, "user", item, f"contents[{i}]")
            continue
        if is_content:
            yield _make_unit(item, f"contents[{i}]")
            continue
        if not loose_parts:
            first_index = i
            role = _role_of_part(item)
        loose_parts.append(item)
    if loose_parts:
        yield _make_loose_unit(loose_parts, first_index)


def _make_unit(item: Any, place: str) -> Unit:
    """A content as a unit. A content without a role is the user's.

    What is no object has no role, and whoever reads the unit reports that.
    """
    content = to_dict_or_none(item)
    if content is None:
        return Unit(item, None, item, place)
    role = content.get("role")
    if role is None:
        role = "user"
    return Unit(item, role, content.get("parts"), place)


def _make_loose_unit(loose_parts: LooseParts, first_index: int) -> Unit:
    place = f"contents[{first_index}]"
    if loose_parts.bare:
        place = "contents"
    role = _role_of_part(loose_parts[0])
    return Unit(loose_parts, role, loose_parts, place, loose=True, first_index=first_index)


def _role_of_part(item: Any) -> str:
    """Who speaks in a loose part: the model makes calls, everything else is the user's.

    `{"functionCall": {…}}` is the model's, `"Hi"` and `{"functionResponse": {…}}` are the user's.
    """
    if isinstance(item, str):
        return "user"
    part = to_dict_or_empty(item)
    if get_field(part, "functionCall") is not None:
        return "model"
    return "user"
