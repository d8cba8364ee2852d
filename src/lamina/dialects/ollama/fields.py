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
from lamina.dialects.pairing import id_at
from lamina.errors import BadInput

NAME = "ollama"
ROLES = ("system", "user", "assistant", "tool")

_BASE64 = re.compile(r"[A-Za-z0-9+/\r\n]+(?:={1,2}[\r\n]*)?")
_DATA_URL = re.compile(r"data:([\w.+/-]{0,100})(?:;[\w=.-]{1,100}){0,4};base64,", re.ASCII)
_FILES = (".png", ".jpg", ".jpeg", ".webp")
_ENCODER = msgspec.json.Encoder()


def plain(value: Any, place: str = "") -> dict[str, Any]:
    """A dict, whether it came as one or as an object of the SDK, whose inner objects stay what they are."""
    if isinstance(value, dict):
        return value
    named = getattr(value, "model_fields_set", None)
    if isinstance(named, set | frozenset):
        return {name: getattr(value, name) for name in type(value).model_fields if name in named}
    dump = getattr(value, "model_dump", None)
    found = dump(exclude_unset=True) if callable(dump) else value
    if not isinstance(found, Mapping):
        raise BadInput(f"expected an object, got {shown(value)}", place=place, hint="give a JSON object")
    return dict(found)


def shown(value: Any) -> str:
    """A value for an error message: short, whatever it is."""
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, str):
        return repr(value) if len(value) <= 40 else f"{value[:40]!r}…"
    return f"of type {type(value).__name__}"


def within(place: str, error: BadInput) -> BadInput:
    """The error, with its place seen from further out."""
    inner = f"{place}.{error.place}" if error.place else place
    return BadInput(error.problem, place=inner, hint=error.hint)


def listed(message: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = message.get(name)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise BadInput(f"{name} is {shown(value)}", place=name, hint="give a list")
    return value


def text_in(message: Mapping[str, Any], name: str) -> str:
    """A text, empty where there is none."""
    value = message.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadInput(f"{name} is {shown(value)}", place=name, hint="give a string")
    return value


class Pictured(msgspec.Struct, frozen=True, gc=False):
    """A picture, and whether it may be sent as it came."""

    part: Image
    whole: bool = True


def picture(value: Any, place: str) -> Pictured:
    """A picture as base64, bytes, a path, or the SDK's object around one of them."""
    given = value.value if hasattr(value, "value") else value
    if isinstance(given, bytes | bytearray):
        return Pictured(Image(data=b64encode(given).decode()))
    if isinstance(given, os.PathLike):
        return Pictured(Image(url=os.fsdecode(given)))
    if isinstance(given, str):
        media_type, data = embedded(given)
        if is_base64(data):
            return Pictured(Image(data=data, media_type=media_type), data == given)
        if is_file(given):
            return Pictured(Image(url=given))
    raise BadInput(f"a picture is {shown(given)}", place=place, hint='give base64, without "data:"')


def encoded(image: Image) -> str:
    """A picture as this API has it; empty for one that stands elsewhere."""
    data = image.data or embedded(image.url)[1]
    return data if is_base64(data) else ""


def embedded(url: str) -> tuple[str, str]:
    """Media type and content of a data URL; anything else is its own content."""
    found = _DATA_URL.match(url)
    return (found[1], url[found.end() :]) if found else ("", url)


def is_base64(text: str) -> bool:
    """Whether a server decodes it: the standard alphabet, padded; line ends do not count."""
    if not text or not _BASE64.fullmatch(text):
        return False
    ends = text.count("\n") + text.count("\r")
    return len(text) > ends and (len(text) - ends) % 4 == 0


def is_file(text: str) -> bool:
    """Whether the SDK takes it for the name of a picture."""
    return lower_ascii(text).endswith(_FILES) and "://" not in text and not text.startswith("data:")


class ParsedOllamaCall(msgspec.Struct, frozen=True, gc=False):
    """A call, and whether its block may be sent as it came."""

    part: ToolCall
    whole: bool


def asked(value: Any, at: int) -> ParsedOllamaCall:
    """The call at this place of a message."""
    block = plain(value)
    function = plain(block.get("function"), "function")
    name = function.get("name")
    if not isinstance(name, str):
        raise BadInput(f"the name is {shown(name)}", place="function.name", hint="give the function's name")
    given, id_ = function.get("arguments"), block.get("id")
    named = isinstance(id_, str) and bool(id_)
    part = ToolCall(id=str(id_) if named else id_at(at, name), name=name, arguments=_written(given))
    return ParsedOllamaCall(part, isinstance(given, Mapping) and bool(name))


def _written(arguments: Any) -> str:
    """Arguments as JSON text; other APIs give them as that."""
    if isinstance(arguments, str):
        return arguments
    place = "function.arguments"
    if arguments is not None and not isinstance(arguments, Mapping):
        raise BadInput(f"arguments is {shown(arguments)}", place=place, hint="give an object")
    try:
        return _ENCODER.encode({} if arguments is None else arguments).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        hint = "use str, int, float, bool, None, list and dict"
        raise BadInput(f"not a JSON value: {error}", place=place, hint=hint) from None


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """The arguments as an object; what a model wrote that is not one stays readable inside one."""
    try:
        arguments = msgspec.json.decode(call.arguments or "{}")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        arguments = call.arguments
    return arguments if isinstance(arguments, dict) else {"arguments": arguments}


def named(name: str) -> str:
    """A name for a call: this API takes any that is not empty."""
    return name or "unnamed"
