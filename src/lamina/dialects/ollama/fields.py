"""The fields of a message of Ollama's chat API: pictures and calls, as typed parts and back.

Nothing here knows a request, or which message a field belongs to. No file is read: a picture that is given
by its path stays a path, and Ollama's client reads it.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lamina.core.text.characters import lower_ascii
from lamina.core.values import Image, ToolCall
from lamina.dialects.pairing import make_call_id
from lamina.errors import BadInput

NAME = "ollama"
ROLES = ("system", "user", "assistant", "tool")

_SHOWN_CHARACTERS = 40
"""Characters of a text that an error message quotes."""

_BASE64 = re.compile(r"[A-Za-z0-9+/\r\n]+(?:={1,2}[\r\n]*)?")
# Example: "data:image/png;charset=utf-8;base64," and then the base64; group 1 is "image/png".
_DATA_URL = re.compile(r"data:([\w.+/-]{0,100})(?:;[\w=.-]{1,100}){0,4};base64,", re.ASCII)
_PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
_ENCODER = msgspec.json.Encoder()


class ParsedPicture(msgspec.Struct, frozen=True, gc=False):
    """A picture, and whether it may be sent as it came."""

    part: Image
    whole: bool = True


def read_picture(value: Any, place: str) -> ParsedPicture:
    """A picture as base64, bytes, a path, or the SDK's object around one of them."""
    picture = unwrap_picture(value)
    if isinstance(picture, bytes | bytearray):
        return ParsedPicture(Image(data=b64encode(picture).decode()))
    if isinstance(picture, os.PathLike):
        return ParsedPicture(Image(url=os.fsdecode(picture)))
    if isinstance(picture, str):
        media_type, data = _split_data_url(picture)
        if is_base64(data):
            return ParsedPicture(Image(data=data, media_type=media_type), data == picture)
        if is_picture_file(picture):
            return ParsedPicture(Image(url=picture))
    problem = f"a picture is {describe_value(picture)}"
    raise BadInput(problem, place=place, hint='give base64, without "data:"')


def unwrap_picture(value: Any) -> Any:
    """What an object of the SDK holds; any other value as it is."""
    if hasattr(value, "value"):
        return value.value
    return value


def encode_picture(image: Image) -> str:
    """A picture as this API has it; "" if lamina does not have its data."""
    data = image.data or _split_data_url(image.url)[1]
    return data if is_base64(data) else ""


def _split_data_url(url: str) -> tuple[str, str]:
    """Media type and content of a data URL; anything else is its own content."""
    beginning = _DATA_URL.match(url)
    if beginning is None:
        return "", url
    return beginning[1], url[beginning.end() :]


def is_base64(text: str) -> bool:
    """Whether a server decodes it: the standard alphabet, padded; line ends do not count."""
    if not text or not _BASE64.fullmatch(text):
        return False
    line_ends = text.count("\n") + text.count("\r")
    character_count = len(text) - line_ends
    return character_count > 0 and character_count % 4 == 0


def is_picture_file(text: str) -> bool:
    """Whether the SDK takes a text for the path of a picture, such as `shots/a.png`."""
    if "://" in text or text.startswith("data:"):
        return False
    return lower_ascii(text).endswith(_PICTURE_SUFFIXES)


class ParsedOllamaCall(msgspec.Struct, frozen=True, gc=False):
    """A call, and whether its block may be sent as it came."""

    part: ToolCall
    whole: bool


def read_call(value: Any, index: int) -> ParsedOllamaCall:
    """The call at this index of a message. A call without an id gets one from its index and its name."""
    block = to_dict(value)
    function = to_dict(block.get("function"), "function")
    name = function.get("name")
    if not isinstance(name, str):
        problem = f"the name is {describe_value(name)}"
        raise BadInput(problem, place="function.name", hint="give the function's name")
    wire_arguments = function.get("arguments")
    call_id = block.get("id")
    if not isinstance(call_id, str) or not call_id:
        call_id = make_call_id(index, name)
    call = ToolCall(id=call_id, name=name, arguments=_read_arguments(wire_arguments))
    whole = isinstance(wire_arguments, Mapping) and name != ""
    return ParsedOllamaCall(call, whole)


def _read_arguments(arguments: Any) -> str:
    """Arguments as JSON text. Other APIs have them as text already."""
    if isinstance(arguments, str):
        return arguments
    place = "function.arguments"
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, Mapping):
        raise BadInput(f"arguments is {describe_value(arguments)}", place=place, hint="give an object")
    try:
        return _ENCODER.encode(arguments).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        hint = "use str, int, float, bool, None, list and dict"
        raise BadInput(f"not a JSON value: {error}", place=place, hint=hint) from None


def write_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments as an object. If the model wrote something else, that is put inside an object."""
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


def to_dict(value: Any, place: str = "") -> dict[str, Any]:
    """A dict, whether it came as one or as an object of the SDK. Objects inside it stay what they are."""
    if isinstance(value, dict):
        return value
    set_fields = getattr(value, "model_fields_set", None)
    if isinstance(set_fields, set | frozenset):
        return {name: getattr(value, name) for name in type(value).model_fields if name in set_fields}
    dump = getattr(value, "model_dump", None)
    mapping = dump(exclude_unset=True) if callable(dump) else value
    if not isinstance(mapping, Mapping):
        problem = f"expected an object, got {describe_value(value)}"
        raise BadInput(problem, place=place, hint="give a JSON object")
    return dict(mapping)


def to_dict_or_empty(value: Any) -> dict[str, Any]:
    """The same, with an empty dict for a value that is no object."""
    try:
        return to_dict(value)
    except BadInput:
        return {}


def read_list(message: Mapping[str, Any], field: str) -> Sequence[Any]:
    """The list in a field; empty if the field is absent or null."""
    value = message.get(field)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise BadInput(f"{field} is {describe_value(value)}", place=field, hint="give a list")
    return value


def read_text(message: Mapping[str, Any], field: str) -> str:
    """The text in a field; "" if the field is absent or null."""
    value = message.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadInput(f"{field} is {describe_value(value)}", place=field, hint="give a string")
    return value


def text_or_empty(value: Any) -> str:
    """A string as it is; "" for any other value."""
    if isinstance(value, str):
        return value
    return ""


def describe_value(value: Any) -> str:
    """A value for an error message: short, whatever it is."""
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if not isinstance(value, str):
        return f"of type {type(value).__name__}"
    if len(value) <= _SHOWN_CHARACTERS:
        return repr(value)
    return f"{value[:_SHOWN_CHARACTERS]!r}…"


def add_outer_place(place: str, error: BadInput) -> BadInput:
    """The same error, with its place as seen from further out: `role` becomes `messages[3].role`."""
    whole_place = f"{place}.{error.place}" if error.place else place
    return BadInput(error.problem, place=whole_place, hint=error.hint)
