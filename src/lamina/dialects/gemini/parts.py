"""Turns parts of a content into typed parts, and typed parts into parts of a content.

A part that this module does not understand becomes a `Raw` part that holds it as it is. Nothing here knows
where a part stands in the request; the caller adds the place to an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeGuard, cast

from lamina.core.text.characters import is_blank
from lamina.core.values import Document, Image, Part, Raw, Text, Thinking, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects.gemini.media import (
    BASE64,
    Spelling,
    can_carry_media,
    read_file,
    read_file_data,
    read_inline_data,
    write_media,
)
from lamina.dialects.gemini.wire import (
    NAME,
    encode_base64,
    get_field,
    get_text,
    to_camel_case,
    to_dict,
    to_snake_case,
)
from lamina.dialects.json_values import Json, encode_json, list_or_empty, name_value
from lamina.errors import BadInput

Content = Text | Image | Document | Raw

DATA_FIELDS = (
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
)
"""Fields of which a part has exactly one."""

_NAMES_BY_SPELLING = {spell(name): name for name in DATA_FIELDS for spell in (to_snake_case, to_camel_case)}
_OTHER_FIELDS = frozenset(
    """thought thoughtSignature videoMetadata mediaResolution partMetadata mediaProcessing speechMetadata
    audioTranscription""".split()
)
_FIELDS_IN_ANY_SPELLING = (
    frozenset(_NAMES_BY_SPELLING) | _OTHER_FIELDS | set(map(to_snake_case, _OTHER_FIELDS))
)

ID_PREFIX = "unnamed_call_"
"""The ids of calls that have no id on the wire begin with this."""

_TEXT_FIELDS = ("output", "result", "error")
"""Fields of a response that may hold all of it as one text."""


def read_part(value: Any, *, by_model: bool) -> Part:
    """A part of a content as a typed part.

    A call has an empty id if the wire has none; so has a result, and its name may be empty too.

    `"Hi"` and `{"text": "Hi"}` become `Text("Hi")`, `{"functionCall": {…}}` a call, `{"executableCode": {…}}`
    a `Raw` part.
    """
    if isinstance(value, str):
        return Text(value)
    block = to_dict(value, "a part", hint="give text or an object; bytes as inline_data")
    part: Part | None = None
    match find_data_fields(block):
        case ["text"]:
            part = _read_text(block, by_model=by_model)
        case [data_field]:
            part = _READERS.get(data_field, _read_nothing)(block)
        case [] if has_unknown_data(block):
            part = read_file(block)  # an uploaded file, as the SDK returned it
        case []:
            part = Text("")
        case data_fields:
            problem = f"a part has {' and '.join(data_fields)}"
            raise BadInput(problem, hint="give each a part of its own")
    return part or Raw(dialect=NAME, data=block)


def _read_nothing(_: Json) -> None:
    """For parts that have no typed part, such as `executableCode`."""


def find_data_fields(block: Mapping[str, Any]) -> list[str]:
    """The fields with data that a part has, as REST bodies spell them. A valid part has exactly one.

    Of `{"inline_data": {…}, "thought": true}` it is `["inlineData"]`.
    """
    data_fields = []
    for spelling, value in block.items():
        name = _NAMES_BY_SPELLING.get(spelling)
        if name is not None and value is not None:
            data_fields.append(name)
    return data_fields


def has_unknown_data(part: Json) -> bool:
    """Whether a part has data in a field that is not in the tables of this module.

    The API grows: such a part is taken for valid, and sent as it came.
    """
    return any(value is not None and name not in _FIELDS_IN_ANY_SPELLING for name, value in part.items())


def read_signature(block: Mapping[str, Any]) -> str:
    """The signature of a part as base64, which the SDK gives as bytes; "" without one."""
    return encode_base64(get_field(block, "thoughtSignature"))


def write_block(part: Part, spell: Spelling) -> Json | None:
    """A typed part as a part of a content; None if it says nothing here.

    A part of this API is sent as it came, another provider's block as text. A signature that is not base64 is
    another provider's, and is left out.
    """
    match part:
        case Text(text) if not is_blank(text):
            return {"text": text}
        case Image() | Document():
            return write_media(part, spell)
        case Raw(dialect="gemini", data=block):
            return cast("Json", block)
        case Raw():
            return {"text": text_of((part,))}
        case Thinking(text=text, signature=signature):
            return _write_thought(text, signature, spell)
    return None


def _write_thought(text: str, signature: str, spell: Spelling) -> Json | None:
    """A thought with its signature; None if neither is left.

    `{"text": "Why", "thought": true, "thoughtSignature": "…"}`.
    """
    block: Json = {"text": text, "thought": True}
    if BASE64.fullmatch(signature):
        block[spell("thoughtSignature")] = signature
    elif not text:
        return None
    return block


def write_response(result: ToolResult, old_response: Mapping[str, Any]) -> Json:
    """What a result says, in the field in which it said so before: `{"result": "ok"}` stays `result`.

    A new response says `output`, or `error` if the tool failed.
    """
    text = text_of(part for part in result.content if not stands_beside_result(part))
    name, _ = _read_response(old_response)
    if name:
        return {name: text}
    if result.error:
        return {"error": text}
    return {"output": text}


def stands_beside_result(part: Part) -> TypeGuard[Image | Document]:
    """Whether a part of a result must stand beside it: a response holds text only."""
    match part:
        case Image() | Document(text=""):
            return can_carry_media(part)
    return False


def _read_text(block: Json, *, by_model: bool) -> Part:
    """Text, or a thought of the model. A signature without text is a thought too.

    `{"text": "Why", "thought": true}` is a thought.
    """
    text = block.get("text")
    if not isinstance(text, str):
        raise BadInput(f"text is {name_value(text)}", place="text", hint="give a string")
    signature = read_signature(block)
    is_thought = block.get("thought") is True
    if is_blank(text):
        is_thought = signature != ""
    if by_model and is_thought:
        return Thinking(text=text, signature=signature)
    return Text(text)


def _read_call(block: Json) -> ToolCall:
    """A call; its arguments become JSON text.

    `{"functionCall": {"name": "read", "args": {"path": "a.py"}}}` is a call of `read` with the arguments
    `{"path":"a.py"}`.
    """
    call = to_dict(get_field(block, "functionCall"), "functionCall", place="functionCall")
    arguments = get_field(call, "args")
    if arguments is not None and not isinstance(arguments, dict):
        problem = f"args is {name_value(arguments)}"
        raise BadInput(problem, place="functionCall.args", hint="give an object")
    name = call.get("name")
    if not isinstance(name, str):
        problem = f"the name is {name_value(name)}"
        raise BadInput(problem, place="functionCall.name", hint="give a string")
    arguments_json = encode_json(arguments or {}, "functionCall.args")
    return ToolCall(id=get_text(call, "id"), name=name, arguments=arguments_json)


def _read_result(block: Json) -> ToolResult:
    """A result: its response as text, then its media.

    `{"functionResponse": {"name": "read", "response": {"output": "ok"}}}` says `ok`.
    """
    result = to_dict(get_field(block, "functionResponse"), "functionResponse", place="functionResponse")
    content: list[Content] = []
    is_error = False
    if result.get("response") is not None:
        response = to_dict(result["response"], "response", place="functionResponse.response")
        name, text = _read_response(response)
        is_error = name == "error"
        content.append(Text(text))
    for media in list_or_empty(result.get("parts")):
        media_block = to_dict(media, "a part", place="functionResponse.parts")
        own_part = Raw(dialect=NAME, data=media_block)
        content.append(read_inline_data(media_block) or read_file_data(media_block) or own_part)
    return ToolResult(
        id=get_text(result, "id"),
        name=get_text(result, "name"),
        content=tuple(content),
        error=is_error,
    )


_READERS: dict[str, Callable[[Json], Part | None]] = {
    "inlineData": read_inline_data,
    "fileData": read_file_data,
    "functionCall": _read_call,
    "functionResponse": _read_result,
}


def _read_response(response: Mapping[str, Any]) -> tuple[str, str]:
    """The field in which a response says something, "" if that is not clear; and all of it as text.

    `{"output": "ok"}` is ("output", "ok"). Any other object is text as JSON.
    """
    if len(response) == 1:
        [(name, text)] = response.items()
        if name in _TEXT_FIELDS and isinstance(text, str):
            return name, text
    name = ""
    if response.get("error") and response.keys().isdisjoint(("output", "result")):
        name = "error"
    return name, encode_json(response, "functionResponse.response")
