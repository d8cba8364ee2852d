"""Turns what items hold into typed parts (blocks of messages and outputs, calls, outputs), and back.

Calls of functions and of tools that the client runs are typed, whatever their types; items that the server
answers itself are not calls here. A block that has no typed part becomes a `Raw` part. This module does not
know the order of items, nor which output answers which call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lamina.core.values import Document, Image, Part, Raw, Text, ToolCall
from lamina.core.wording import text_of
from lamina.dialects.json_values import (
    Json,
    describe_value,
    read_optional_text,
    split_data_url,
    text_or_empty,
    text_or_none,
    to_dict,
)
from lamina.dialects.marking import BreakpointShape
from lamina.dialects.openai_chat.calls import encode_arguments, is_safe_name, read_name
from lamina.dialects.openai_responses.items import (
    ARGUMENT_FIELDS,
    DEFINED_CALL_TYPES,
    DEFINED_OUTPUT_TYPES,
    PARTS_FIELDS,
    Item,
    find_call_id_field,
    read_type,
)
from lamina.errors import BadInput

NAME = "openai_responses"
"""The name of this dialect."""


MARKABLE_TYPES = frozenset(("input_text", "input_image", "input_file"))
"""Blocks that may carry a marker. Only the user's side sends them."""

BREAKPOINTS = BreakpointShape(
    "input",
    MARKABLE_TYPES,
    "input_text",
    # an item of a type without parts, such as a call, may have no breakpoint at all
    lambda item: PARTS_FIELDS.get(read_type(item), ""),
    # A breakpoint on a block that takes none is refused, and `output_text` is one of those (openai 3.49).
    assistants_carry=False,
    lifetimes=("30m", "12h"),
    retentions=("in_memory", "24h"),
)
"""Where a request may have cache breakpoints."""

ASSISTANT_TYPES = frozenset(("output_text", "refusal"))
"""Blocks that only the assistant sends; it sends no others."""

TEXT_FIELDS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
"""The field that holds the text of a block. The type "text" is what other APIs call it."""

ContentPart = Text | Image | Document | Raw

_IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/jpg", "")
_IMAGE_DETAILS = ("low", "high", "auto", "original")
_REFUSED_DOCUMENTS = ("audio/", "video/", "image/")
_APPROVAL_FIELDS = ("approve", "reason")
"""What an mcp_approval_response says."""


def parse_part(value: Any, place: str) -> ContentPart:
    """The part of a block.

    `{"type": "input_text", "text": "Hi"}` becomes `Text("Hi")`. A block of a type that this module does not
    know becomes `Raw`.
    """
    block = to_dict(value, place)
    block_type = block.get("type")
    if not isinstance(block_type, str):
        problem = f"the type is {describe_value(block_type)}"
        raise BadInput(problem, place=f"{place}.type", hint="say what the part is")
    if block_type in TEXT_FIELDS:
        field = TEXT_FIELDS[block_type]
        text = block.get(field)
        if not isinstance(text, str):
            raise BadInput(f"{field} is {describe_value(text)}", place=f"{place}.{field}", hint="give text")
        return Text(text)
    part: ContentPart | None = None
    if block_type in _MEDIA_READERS:
        part = _MEDIA_READERS[block_type](block)
    return part or Raw(dialect=NAME, data=block)


def _parse_image(block: Mapping[str, Any]) -> Image | None:
    """A picture: its data, or its address, which may be the id of a file. None if it has neither.

    `{"image_url": "data:image/png;base64,iVBO…"}` has its data, `{"file_id": "file-1"}` an address.
    """
    address = text_or_empty(block.get("image_url") or block.get("file_id"))
    if not address:
        return None
    detail = text_or_empty(block.get("detail"))
    media_type, data = split_data_url(address)
    if data:
        return Image(data=data, media_type=media_type, detail=detail)
    return Image(url=address, detail=detail)


def _parse_document(block: Mapping[str, Any]) -> Document | None:
    """A file: its data, its address, or the id under which it was uploaded. None if it has none of them.

    `{"file_data": "data:application/pdf;base64,JVBE…", "filename": "a.pdf"}`, or `{"file_id": "file-1"}`.
    """
    name = text_or_empty(block.get("filename"))
    file_data = text_or_empty(block.get("file_data"))
    file_url = text_or_empty(block.get("file_url"))
    file_id = text_or_empty(block.get("file_id"))
    if file_data:
        media_type, data = split_data_url(file_data)
        return Document(data=data or file_data, media_type=media_type, name=name)
    if file_url:
        return Document(url=file_url, name=name)
    if file_id:
        return Document(url=file_id, name=name or file_id)
    return None


_MEDIA_READERS: Mapping[str, Callable[[Mapping[str, Any]], Image | Document | None]] = {
    "input_image": _parse_image,
    "computer_screenshot": _parse_image,
    "input_file": _parse_document,
}


def render_part(part: Part) -> Json:
    """The block that the user's side sends for a part. Blocks of other dialects are sent as JSON text.

    `Text("Hi")` becomes `{"type": "input_text", "text": "Hi"}`.
    """
    match part:
        case Image():
            return _render_image(part)
        case Document(text="") if part.data or part.url:
            return _render_document(part)
        case Raw(data=dict() as block) if part.dialect == NAME and "type" in block:
            return block
    return {"type": "input_text", "text": text_of((part,))}


def _render_image(image: Image) -> Json:
    """A picture: its data as a data URL, its address, or a file's id. An unknown detail becomes "auto".

    `{"type": "input_image", "image_url": "https://…", "detail": "auto"}`, for example.
    """
    media_type = image.media_type or "image/png"
    address = image.url or f"data:{media_type};base64,{image.data}"
    field = "file_id"
    if _is_address(address):
        field = "image_url"
    detail = "auto"
    if image.detail in _IMAGE_DETAILS:
        detail = image.detail
    return {"type": "input_image", field: address, "detail": detail}


def _render_document(document: Document) -> Json:
    """A file: its data with a name, which the API wants, else its address, else its id.

    A PDF without a name is sent as `document.pdf`.
    """
    if document.data:
        media_type = document.media_type or "application/pdf"
        subtype = media_type.rpartition("/")[2]
        return {
            "type": "input_file",
            "filename": document.name or f"document.{subtype}",
            "file_data": f"data:{media_type};base64,{document.data}",
        }
    if not _is_address(document.url):
        return {"type": "input_file", "file_id": document.url}
    block: Json = {"type": "input_file", "file_url": document.url}
    if document.name:
        block["filename"] = document.name
    return block


def render_assistant_text(text: str) -> Json:
    """Text as a block that the assistant said."""
    return {"type": "output_text", "text": text, "annotations": []}


def may_be_sent_by(role: str, block: Mapping[str, Any]) -> bool:
    """Whether a block may stand in a message of this role. A block of an unknown type may.

    The assistant may send `output_text` and no `input_text`, everyone else the other way round. The type
    "text", which Chat Completions has, nobody may send.
    """
    refused_types = ASSISTANT_TYPES
    if role == "assistant":
        refused_types = MARKABLE_TYPES
    block_type = block.get("type")
    return block_type != "text" and block_type not in refused_types


def explain_unsendable(part: Part, *, accepts_file_ids: bool) -> str:
    """Why a picture or document cannot be sent, "" if it can.

    `accepts_file_ids`: its address may be the id of a file that this API has.

    A GIF at an address can be sent. A TIFF cannot, and neither can a file id of another API.
    """
    match part:
        case Image(media_type=media_type) if media_type not in _IMAGE_TYPES:
            return f"pictures of type {media_type}"
        case Document(text="", media_type=media_type) if media_type.startswith(_REFUSED_DOCUMENTS):
            return f"documents of type {media_type}"
        case Image():
            thing = "picture"
        case Document(text=""):
            thing = "file"
        case _:
            return ""
    has_file_id = part.url != "" and accepts_file_ids
    if part.data or has_file_id or _is_address(part.url):
        return ""
    return f"a {thing} that only another API has"


def _is_address(url: str) -> bool:
    """Whether an address is a URL, and not the id of a file, as in "file-abc123"."""
    return url.startswith(("https://", "http://", "data:"))


def read_call_id(item: Item) -> str:
    """The id that pairs a call with its output; "" if there is none."""
    return read_optional_text(item, find_call_id_field(item)) or ""


def parse_call(item: Item) -> ToolCall:
    """A call, with its arguments as JSON text. A call of a built-in tool has the name of that tool.

    `{"type": "shell_call", "call_id": "c1", "action": {"commands": ["ls"]}}` is a call of `shell` with the
    arguments `{"action": {"commands": ["ls"]}}`.
    """
    match read_type(item):
        case "function_call":
            name = read_name(item)
            arguments = item.get("arguments")
        case "custom_tool_call":
            name = read_name(item)
            arguments = {"input": text_or_empty(item.get("input"))}
        case call_type:
            name = call_type.removesuffix("_call")
            arguments = item.get("arguments") or _select(item, ARGUMENT_FIELDS.get(call_type, ()))
    return ToolCall(id=read_call_id(item), name=name, arguments=encode_arguments(arguments))


def is_sendable_call(item: Item) -> bool:
    """Whether a call may be sent as it came: with arguments of text, and a name that the API takes.

    A call of a built-in tool has no name and no arguments of text, so nothing of it can be wrong here.
    """
    call_type = read_type(item)
    if call_type not in DEFINED_CALL_TYPES:
        return True
    field = "arguments"
    if call_type == "custom_tool_call":
        field = "input"
    return isinstance(item.get(field), str) and is_safe_name(text_or_empty(item.get("name")))


def parse_output(item: Item) -> tuple[ContentPart, ...]:
    """What an output says. A patch may be answered by its status alone.

    `{"type": "function_call_output", "output": "ok"}` says `Text("ok")`. An output that is null says nothing.
    """
    output_type = read_type(item)
    output = item.get("output")
    if output is None and output_type == "apply_patch_call_output":
        output = text_or_none(item.get("status"))
    match output_type, output:
        case "mcp_approval_response", _:
            return (Text(encode_arguments(_select(item, _APPROVAL_FIELDS))),)
        case _, None:
            return ()
        case "computer_call_output", _:
            return (parse_part(output, "output"),)
        case _, str():
            return (Text(output),)
        case "shell_call_output", (list() | tuple()):
            return tuple(map(_parse_shell_chunk, output))
        case _, (list() | tuple()):
            return tuple(parse_part(block, f"output[{position}]") for position, block in enumerate(output))
    problem = f"output is {describe_value(output)}"
    raise BadInput(problem, place="output", hint="give text or a list of parts")


def _parse_shell_chunk(chunk: Any) -> Text:
    """What a command printed.

    `{"stdout": "a", "stderr": "b"}` is `a` and `b` on two lines.
    """
    match chunk:
        case {"stdout": str(stdout), "stderr": str(stderr)}:
            texts = filter(None, (stdout, stderr))
            return Text("\n".join(texts))
        case dict() | str():
            return Text(encode_arguments(chunk))
    return Text("{}")


def is_sendable_output(item: Item) -> bool:
    """Whether an output may be sent as it came.

    Outputs of built-in tools are of other shapes, and are not judged.
    """
    if read_type(item) not in DEFINED_OUTPUT_TYPES:
        return True
    return isinstance(item.get("output"), str | list | tuple)


TEXT_OUTPUT_TYPES = ("shell_call_output", "apply_patch_call_output", "local_shell_call_output")
"""Outputs for which `replace_output_text` can be used."""


def replace_output_text(item: Json, text: str) -> Json | None:
    """An output of a built-in tool that says this text instead; None for outputs of other types.

    The output of a shell says that its command exited with 0, since it must name an outcome.
    """
    match read_type(item):
        case "shell_call_output":
            outcome = {"type": "exit", "exit_code": 0}
            return {**item, "output": [{"stdout": text, "stderr": "", "outcome": outcome}]}
        case "apply_patch_call_output":
            return {**item, "status": item.get("status", "failed"), "output": text}
        case "local_shell_call_output":
            return {**item, "output": text}
    return None


def _select(item: Item, fields: tuple[str, ...]) -> Json:
    """These fields of an item, if it has them, in this order."""
    return {field: item[field] for field in fields if field in item}
