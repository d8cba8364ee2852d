"""What a provider's own block holds: content that is not text, and calls that its server made and answered.

Base64 is not read letter by letter, so it must not be counted as text: pictures and files cost what they
show, and sealed content costs what it hides. This file takes them out and knows no prices.

A block such as `mcp_tool_use`, `server_tool_use` or `mcp_call` is kept as it came. A digest says of it what
was asked and what came back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from lamina.core.hashing import canonical_json
from lamina.core.values import Part, Raw

_DEEPEST = 64
"""Levels of a block that are looked into; what lies deeper counts as text."""

_SEALED_FIELDS = frozenset(
    """signature thoughtSignature thought_signature encrypted_content encrypted_index encrypted_stdout
    encrypted_stderr""".split()
)
"""Fields with what only the provider can read."""

_SEALED_TYPES = frozenset(("redacted_thinking", "reasoning.encrypted"))
"""Types of blocks whose `data` only the provider can read."""

# `data:image/png;base64,` before the data itself
_DATA_URL = re.compile(r"data:([A-Za-z0-9.+/-]{0,100})(?:;[A-Za-z0-9_=.-]{1,100}){0,4};base64,")


_RESULT_ENDINGS = ("_result", "_output")

_DEEPEST_TEXT = 16
"""Levels of a block that are read."""

_UNREAD_FIELDS = frozenset(
    """type id tool_use_id call_id item_id status role caller cache_control is_error file_id container_id
    page_age citations""".split()
)
"""Fields whose values are for programs."""

_CALL_ENDING = "tool_use"
_RESULT_ENDING = "tool_result"


def is_called_by_program(block: Any) -> bool:
    """Whether a call was made by code that the model wrote, and not by the model itself.

    `{"caller": {"type": "code_execution_20260120", …}}` says so in Anthropic's API, and `{"type": "program",
    …}` in OpenAI's. The type of a model's own call is "direct".
    """
    match block:
        case {"caller": {"type": caller_type}}:
            return caller_type not in (None, "direct")
    return False


def is_read_by_program(block: Any) -> bool:
    """Whether a block is the result of a call that code made: the code reads it, the model does not."""
    if not is_called_by_program(block):
        return False
    return str(block.get("type")).endswith(_RESULT_ENDINGS)


class OpaqueBlock:
    """A block taken apart: `text` is the JSON that is left when `sealed`, pictures and files are taken out.

    `media` are files by their base64 and type; `pictures` and `documents` count those whose size is unknown.
    """

    def __init__(self, data: Any) -> None:
        self.sealed: list[str] = []
        self.media: list[tuple[str, str]] = []
        self.pictures = 0
        self.documents = 0
        self.text = self._strip_value(data, 0)

    def _strip_value(self, value: Any, depth: int) -> Any:
        """The value without what is not text. What is taken out goes into the fields of the block.

        A block that is nested too deeply is left as it is, and counts as text.
        """
        match value:
            case str():
                return self._strip_text(value)
            case _ if depth > _DEEPEST:
                return value
            case Mapping():
                return self._strip_object(value, depth)
            case list() | tuple():
                return [self._strip_value(item, depth + 1) for item in value]
            case _:
                return value

    def _strip_text(self, text: str) -> str:
        """The text, or the beginning of a data URL whose file was taken out: `data:image/png;base64,`."""
        if not text.startswith("data:"):
            return text
        url_start = _DATA_URL.match(text)
        if url_start is None:
            return text
        self._add_file(text[url_start.end() :], url_start[1])
        return url_start[0]

    def _strip_object(self, block: Mapping[str, Any], depth: int) -> dict[str, Any]:
        """The fields of an object that are text, or that hold some."""
        rest: dict[str, Any] = {}
        for name, value in block.items():
            if isinstance(value, str) and self._take_field(name, value, block):
                continue
            rest[name] = self._strip_value(value, depth + 1)
        self._count_source(block)
        return rest

    def _take_field(self, name: str, value: str, block: Mapping[str, Any]) -> bool:
        """Take a field out if it is not text; return whether it did.

        Signatures and encrypted content are sealed. `data` is a file if the block names a media type, and
        sealed if the block is of a sealed type. A generated image stands in `result`.
        """
        block_type = block.get("type")
        if name in _SEALED_FIELDS:
            self.sealed.append(value)
            return True
        if name == "result" and block_type == "image_generation_call":
            self.pictures += 1
            return True
        if name != "data":
            return False
        if block_type in _SEALED_TYPES:
            self.sealed.append(value)
            return True
        media_type = _media_type_of(block)
        if media_type is None or block_type == "text":
            return False
        self._add_file(value, media_type)
        return True

    def _count_source(self, block: Mapping[str, Any]) -> None:
        """Count a picture or document that is somewhere else, so that its size is unknown.

        `{"type": "image", "source": {"type": "url", …}}` is one.
        """
        match block:
            case {"type": "image", "source": {"type": "file" | "url"}}:
                self.pictures += 1
            case {"type": "document", "source": {"type": "file" | "url"}}:
                self.documents += 1

    def _add_file(self, data: str, media_type: str) -> None:
        """Add a file. Pictures are only counted: what they cost is not in their base64."""
        if media_type.startswith("image/"):
            self.pictures += 1
        else:
            self.media.append((data, media_type))


def _media_type_of(block: Mapping[str, Any]) -> str | None:
    """The type of the file that a block holds, in any provider's spelling.

    `{"mimeType": "application/pdf", "data": …}` and `{"media_type": …, "data": …}` are both understood.
    """
    for name in ("media_type", "mimeType", "mime_type"):
        media_type = block.get(name)
        if media_type:
            return media_type if isinstance(media_type, str) else None
    return None


class ApiCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the server made. `result` is what it says, None if there is none beside it."""

    name: str
    arguments: str
    result: str | None = None
    failed: bool = False


def read_api_calls(parts: Iterable[Part]) -> Iterator[ApiCall]:
    """Yield the calls among the blocks of a segment, each with its result."""
    blocks = list(_list_blocks(parts))
    results: dict[str, Mapping[str, Any]] = {}
    for block in blocks:
        if _type_of(block).endswith(_RESULT_ENDING):
            call_id = str(block.get("tool_use_id"))
            results[call_id] = block
    for block in blocks:
        block_type = _type_of(block)
        if block_type.endswith(_CALL_ENDING):
            call_id = str(block.get("id"))
            yield _read_call(block, results.get(call_id))
        elif block_type == "mcp_call":
            yield _read_item(block)


def readable_text(parts: Iterable[Part]) -> str:
    """What a provider's own blocks say: the values in them, without names of fields, types and ids."""
    texts = [_text_in(part.data) for part in parts if isinstance(part, Raw)]
    return "\n".join(texts)


def _list_blocks(parts: Iterable[Part]) -> Iterator[Mapping[str, Any]]:
    """Yield the blocks of the provider's own that are objects."""
    for part in parts:
        match part:
            case Raw(data=Mapping() as block):
                yield block


def _read_call(block: Mapping[str, Any], result: Mapping[str, Any] | None) -> ApiCall:
    """Read a call of Anthropic's API.

    `mcp_tool_use` names the server of its tool, and `server_tool_use` is a tool of the API itself.
    """
    name = _join_name(block.get("server_name"), block.get("name"))
    arguments = canonical_json(block.get("input")).decode()
    if result is None:
        return ApiCall(name=name, arguments=arguments)
    return ApiCall(
        name=name, arguments=arguments, result=_text_in(result.get("content")), failed=_has_failed(result)
    )


def _read_item(item: Mapping[str, Any]) -> ApiCall:
    """Read a call of OpenAI's Responses API, which has its result in it."""
    name = _join_name(item.get("server_label"), item.get("name"))
    arguments = str(item.get("arguments"))
    error = item.get("error")
    if error is not None:
        return ApiCall(name=name, arguments=arguments, result=_text_in(error), failed=True)
    return ApiCall(name=name, arguments=arguments, result=_text_in(item.get("output")))


def _has_failed(result: Mapping[str, Any]) -> bool:
    """Whether a result says that the call failed: with a switch, or by the type of its content."""
    match result:
        case {"is_error": True}:
            return True
        case {"content": {"type": str(content_type)}}:
            return content_type.endswith("_error")
    return False


def _join_name(*words: Any) -> str:
    """`tracker search_issues`, or the name alone if no server is named."""
    return " ".join(word for word in words if isinstance(word, str))


def _type_of(block: Mapping[str, Any]) -> str:
    return str(block.get("type"))


def _text_in(value: Any) -> str:
    """The texts in a JSON value, one a line. Pictures, files and sealed content are left out."""
    texts = list(_list_texts(OpaqueBlock(value).text, 0))
    return "\n".join(texts)


def _list_texts(value: Any, depth: int) -> Iterator[str]:
    """Yield the texts in a JSON value, down to a depth."""
    if depth > _DEEPEST_TEXT:
        return
    match value:
        case str():
            yield value
        case Mapping():
            for name, inner in value.items():
                if name not in _UNREAD_FIELDS:
                    yield from _list_texts(inner, depth + 1)
        case list() | tuple():
            for inner in value:
                yield from _list_texts(inner, depth + 1)
        case _:
            return
