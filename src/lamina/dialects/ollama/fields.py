"""Turns the pictures and calls of an Ollama message into typed parts, and back.

Nothing here knows a request, or which message a field belongs to. No file is read: a picture that is given
by its path stays a path, and Ollama's client reads it.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import msgspec

from lamina.core.text.characters import lower_ascii
from lamina.core.values import Image, ToolCall
from lamina.dialects.json_values import (
    Json,
    describe_value,
    dump_model,
    encode_json,
    read_optional_text,
    split_data_url,
    text_or_empty,
    to_dict,
    to_dict_or_empty,
)
from lamina.dialects.pairing import make_call_id
from lamina.dialects.pieces import MessagePiece
from lamina.errors import BadInput

NAME = "ollama"
ROLES = ("system", "user", "assistant", "tool")

TEXT_FIELDS = ("content", "thinking", "tool_name")
"""Fields of a message that are text, whatever its role."""

_BASE64 = re.compile(r"[A-Za-z0-9+/\r\n]+(?:={1,2}[\r\n]*)?")
_PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")


def to_fields(value: Any, place: str = "") -> Json:
    """A dict, whether it came as one or as an object of the SDK. Objects inside it stay what they are.

    Objects of the SDK read their files when they are dumped, so only their own fields are read.
    """
    return to_dict(value, place, _dump_shallow)


def fields_or_empty(value: Any) -> Json:
    """The same, with an empty dict for a value that is no object."""
    return to_dict_or_empty(value, _dump_shallow)


def _dump_shallow(value: Any) -> Any:
    """The fields that somebody set on an object of the SDK.

    A message with a role and a text has these two, whatever other fields its class has.
    """
    set_fields = getattr(value, "model_fields_set", None)
    if not isinstance(set_fields, set | frozenset):
        return dump_model(value)
    return {name: getattr(value, name) for name in type(value).model_fields if name in set_fields}


def read_text(message: Mapping[str, Any], field: str) -> str:
    """The text in a field; "" if the field is absent or null."""
    return read_optional_text(message, field) or ""


def read_picture(value: Any, place: str) -> tuple[Image, bool]:
    """A picture as base64, bytes, a path, or the SDK's object, and whether it may be sent as it came.

    `"iVBORw0…"` has its data, and `"shots/a.png"` an address. A data URL is read too, but cannot be sent as
    it came.
    """
    picture = unwrap_picture(value)
    match picture:
        case bytes() | bytearray():
            return Image(data=b64encode(picture).decode()), True
        case os.PathLike():
            return Image(url=os.fsdecode(picture)), True
        case str() if is_base64(picture):
            return Image(data=picture), True
        case str() if is_picture_file(picture):
            return Image(url=picture), True
        case str():
            media_type, data = split_data_url(picture)
            if is_base64(data):
                return Image(data=data, media_type=media_type), False
    problem = f"a picture is {describe_value(picture)}"
    raise BadInput(problem, place=place, hint='give base64, without "data:"')


def unwrap_picture(value: Any) -> Any:
    """What an object of the SDK holds; any other value as it is."""
    return getattr(value, "value", value)


def encode_picture(image: Image) -> str:
    """A picture as this API has it; "" if lamina does not have its data.

    `data:image/png;base64,iVBORw0…` becomes `iVBORw0…`. An address on the web becomes "".
    """
    data = image.data or split_data_url(image.url)[1] or image.url
    if is_base64(data):
        return data
    return ""


def is_base64(text: str) -> bool:
    """Whether a server decodes it: the standard alphabet, padded; line ends do not count.

    `aGk=` is, `aGk` and `a b=` are not.
    """
    if not _BASE64.fullmatch(text):
        return False
    line_ends = text.count("\n") + text.count("\r")
    return len(text) > line_ends and (len(text) - line_ends) % 4 == 0


def is_picture_file(text: str) -> bool:
    """Whether the SDK takes a text for the path of a picture, such as `shots/a.png`.

    An address on the web is not, whatever it ends with.
    """
    if "://" in text or text.startswith("data:"):
        return False
    return lower_ascii(text).endswith(_PICTURE_SUFFIXES)


def read_call(value: Any, index: int) -> MessagePiece:
    """The call at this index of a message. A call without an id gets one from its index and its name.

    `{"function": {"name": "read", "arguments": {"path": "a.py"}}}` is a call of `read`. At index 0 its id is
    `call_0_read`.
    """
    block = to_fields(value)
    function = to_fields(block.get("function"), "function")
    name = function.get("name")
    if not isinstance(name, str):
        problem = f"the name is {describe_value(name)}"
        raise BadInput(problem, place="function.name", hint="give the function's name")
    wire_arguments = function.get("arguments")
    call_id = text_or_empty(block.get("id")) or make_call_id(index, name)
    call = ToolCall(id=call_id, name=name, arguments=_encode_arguments(wire_arguments))
    is_sendable = isinstance(wire_arguments, Mapping) and name != ""
    return MessagePiece("tool_call", call, value, is_sendable=is_sendable)


def _encode_arguments(arguments: Any) -> str:
    """Arguments as JSON text. Other APIs have them as text already.

    `{"path": "a.py"}` becomes `{"path":"a.py"}`, and null becomes `{}`.
    """
    place = "function.arguments"
    match arguments:
        case str():
            return arguments
        case None:
            return "{}"
        case Mapping():
            return encode_json(arguments, place)
    raise BadInput(f"arguments is {describe_value(arguments)}", place=place, hint="give an object")


def write_arguments(call: ToolCall) -> Json:
    """The arguments as an object. If the model wrote something else, that is put inside an object.

    The text `[1]` becomes `{"arguments": [1]}`.
    """
    try:
        arguments = msgspec.json.decode(call.arguments or "{}")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        arguments = call.arguments
    if isinstance(arguments, dict):
        return arguments
    return {"arguments": arguments}


def name_or_unnamed(name: str) -> str:
    """A name for a call: this API takes any that is not empty."""
    return name or "unnamed"
