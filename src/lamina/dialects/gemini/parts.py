"""Turns parts of a content into typed parts, and typed parts into parts of a content.

A part that this module does not understand becomes a `Raw` part that holds it as it is. Nothing here knows
where a part stands in the request; the caller adds the place to an error. Media are base64, or at an address
that the API can fetch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard, cast

from lamina.core.text.characters import is_blank, lower_ascii
from lamina.core.values import Document, Image, Part, Raw, Text, Thinking, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects.gemini.wire import (
    NAME,
    encode_base64,
    get_field,
    get_object,
    get_text,
    to_camel_case,
    to_dict,
    to_snake_case,
)
from lamina.dialects.json_values import Json, encode_json, list_or_empty, name_value, split_data_url
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

# google-genai 3.1 documents `output` and `error`; the example in its README has `result`.
_TEXT_FIELDS = ("output", "result", "error")
"""Fields of a response that may hold all of it as one text."""

Spelling = Callable[[str], str]
"""Turns the name of a field, as a REST body has it, into the name to write."""

BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")

_FETCHED_SCHEMES = ("https://", "http://", "gs://")
_MEDIA_TYPES_BY_SUFFIX = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "gif": "image/gif",
    "heic": "image/heic",
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "html": "text/html",
    "csv": "text/csv",
    "mp4": "video/mp4",
    "mp3": "audio/mp3",
    "wav": "audio/wav",
}


def read_inline_data(block: Json) -> Image | Document | None:
    """The media that a part holds as base64; None if it holds none.

    The SDK has bytes there, which are encoded.
    """
    blob = get_object(block, "inlineData")
    data = encode_base64(blob.get("data"))
    if not data:
        return None
    return _make_media(blob, data=data)


def read_file_data(block: Json) -> Image | Document | None:
    """The media that a part names by an address; None if it names none."""
    return read_file(get_object(block, "fileData"))


def read_file(file: Json) -> Image | Document | None:
    """A file by its address. An uploaded file, as the SDK returned it, has the address in `uri`.

    `{"fileUri": "https://…", "mimeType": "image/png"}` is a file of a REST body.
    """
    url = get_text(file, "fileUri") or get_text(file, "uri")
    if not url:
        return None
    return _make_media(file, url=url)


def _make_media(holder: Json, *, data: str = "", url: str = "") -> Image | Document:
    """A picture, or a document with its name; a file without a name has the last step of its address.

    `{"mimeType": "application/pdf", "fileUri": "gs://b/a.pdf"}` is a document named `a.pdf`.
    """
    media_type = get_text(holder, "mimeType")
    if media_type.startswith("image/"):
        return Image(data=data, url=url, media_type=media_type)
    name = get_text(holder, "displayName") or url.rsplit("/", 1)[-1]
    return Document(data=data, url=url, media_type=media_type, name=name)


def can_carry_media(part: Part) -> bool:
    """Whether this API takes a part as it is: as data, as text, or at an address that it fetches.

    It fetches https, http and gs addresses. A picture at another address is named as text.
    """
    if not isinstance(part, Image | Document):
        return True
    if isinstance(part, Document) and part.text:
        return True
    data = part.data or split_data_url(part.url)[1]
    if data:
        return BASE64.fullmatch(data) is not None
    return part.url.startswith(_FETCHED_SCHEMES)


def write_media(part: Image | Document, spell: Spelling) -> Json:
    """Media as a part of a content. What the API cannot take is named as text."""
    if isinstance(part, Document) and part.text:
        return {"text": part.text}
    if not can_carry_media(part):
        type_name = lower_ascii(type(part).__name__)
        name = getattr(part, "name", "") or part.url[:200]
        return {"text": f"[{type_name} {name}]"}
    url_media_type, url_data = split_data_url(part.url)
    media_type = part.media_type or url_media_type or _guess_media_type(part)
    data = part.data or url_data
    if data:
        return {spell("inlineData"): {spell("mimeType"): media_type, "data": data}}
    return {spell("fileData"): {spell("fileUri"): part.url, spell("mimeType"): media_type}}


def _guess_media_type(part: Image | Document) -> str:
    """The type that the end of an address stands for: `image/png` for `https://example.com/a.png?x=1`."""
    default_type = "image/png"
    if isinstance(part, Document):
        default_type = "application/pdf"
    path = part.url.partition("?")[0]
    suffix = lower_ascii(path.rpartition(".")[2])
    return _MEDIA_TYPES_BY_SUFFIX.get(suffix, default_type)


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


def has_unknown_data(part: Mapping[str, Any]) -> bool:
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
