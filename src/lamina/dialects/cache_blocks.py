"""Makes the blocks that a prefix cache compares of what a dialect reads in a request.

A dialect says what a message or a tool has to say, as pieces. The walk over them, their bytes and their
places are here, and so is the table of the parameters that a cache may depend on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from lamina.caches.stream import Sort, StreamBlock, encode_block
from lamina.dialects.json_values import (
    Json,
    add_outer_place,
    drop_field,
    drop_fields,
    drop_nulls,
    mapping_or_empty,
    text_or_empty,
    to_dict,
    to_list,
)
from lamina.dialects.port import Request
from lamina.errors import BadInput


class CachePiece(msgspec.Struct, frozen=True, gc=False):
    """One thing that a request says, as JSON without markers. It becomes one `StreamBlock`.

    `place` is relative to the message or the definition: `.content[1]`.
    """

    sort: Sort
    data: Any
    place: str = ""
    name: str = ""
    marker: str = ""
    markable: bool = False


def make_block(piece: CachePiece, role: str, outer_place: str, *, opens: bool) -> StreamBlock:
    """The block of one piece. `opens`: it begins a message."""
    place = outer_place + piece.place
    return StreamBlock(
        sort=piece.sort,
        role=role,
        data=encode_data(piece.data, place),
        place=place,
        opens=opens,
        name=piece.name,
        marker=piece.marker,
        markable=piece.markable,
    )


def make_message_blocks(
    messages: Any, field: str, read: Callable[[Any], tuple[str, Iterable[CachePiece]]]
) -> list[StreamBlock]:
    """The blocks of all messages, the list in this field. `read` gives the role and the pieces of one.

    The first piece of a message opens it. An error in a message names the message before the field.
    """
    blocks: list[StreamBlock] = []
    for index, message in enumerate(to_list(messages, field)):
        outer_place = f"{field}[{index}]"
        try:
            role, pieces = read(message)
        except BadInput as error:
            raise add_outer_place(outer_place, error) from None
        for position, piece in enumerate(pieces):
            blocks.append(make_block(piece, role, outer_place, opens=position == 0))
    return blocks


def make_tool_blocks(
    tools: Any, field: str, read: Callable[[Json], tuple[Json, str] | None], *, role: str = "tool"
) -> list[StreamBlock]:
    """One block for each definition in the list in this field.

    `read` gives what a cache sees of a definition, and its name. None if it is not in the prompt.
    """
    blocks: list[StreamBlock] = []
    for position, tool in enumerate(to_list(tools, field)):
        place = f"{field}[{position}]"
        seen = read(to_dict(tool, place))
        if seen is not None:
            data, name = seen
            blocks.append(make_block(CachePiece("tool", data, name=name), role, place, opens=True))
    return blocks


class CacheSettings:
    """The parameters of an API that a cache may depend on.

    `rows` has the path in a request and the documented default of each, by its name in the cache rules.
    `elsewhere` are fields of the API that are read in another way, or that are not in the prompt. All others
    are compared as "other": the model may read a field that lamina does not know.
    """

    def __init__(self, rows: Mapping[str, tuple[str, Any]], elsewhere: str) -> None:
        self._rows = [(name, path.split("."), default) for name, (path, default) in rows.items()]
        self._known_fields = {*elsewhere.split(), *(path[0] for _, path, _ in self._rows)}

    def read(self, request: Request, **others: Any) -> dict[str, bytes]:
        """The settings as a cache compares them, `others` too. Defaults and nulls are left out.

        A cache must not see a difference between a field with its default and an absent field.
        """
        settings = others
        for name, path, default in self._rows:
            value: Any = request
            for field in path:
                value = mapping_or_empty(value).get(field)
            if value != default:
                settings[name] = value
        settings["other"] = drop_nulls(drop_fields(request, self._known_fields)) or None
        return {name: encode_data(value, name) for name, value in drop_nulls(settings).items()}


def encode_data(value: Any, place: str) -> bytes:
    """The bytes that a cache compares. Raises BadInput with this place if the value is not JSON."""
    try:
        return encode_block(value)
    except BadInput as error:
        raise BadInput(error.problem, place=place, hint=error.hint) from None


def read_marker(holder: Mapping[str, Any], field: str, default_lifetime: str) -> str:
    """The lifetime that a marker in this field asks for, "" if there is no marker.

    A marker that asks for none has the default lifetime.
    """
    marker = holder.get(field)
    if marker is None:
        return ""
    return text_or_empty(mapping_or_empty(marker).get("ttl")) or default_lifetime


def drop_marker_and_nulls(block: Json, marker: str) -> Json:
    """The block without its marker, and without nulls: they mean the same as an absent field.

    Most blocks have neither, and are not copied.
    """
    if marker in block or None in block.values():
        return drop_nulls(drop_field(block, marker))
    return block
