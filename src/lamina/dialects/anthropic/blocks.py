"""Content blocks of the Messages API as parts, and parts as blocks.

What is not understood becomes a `Raw` part that holds the block as it is. Nothing here knows where in a
request a block stands, besides the place that its errors name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from lamina.core.text.characters import WHITE_SPACE, is_blank
from lamina.core.values import Document, Image, Part, Raw, Text, Thinking, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects.anthropic.model import NAME
from lamina.errors import BadInput

Block = Mapping[str, Any]
Inner = Text | Image | Document | Raw

LISTS = (list, tuple)
"""What may stand where JSON has a list. Spelled as a tuple: a union would be made anew at each look."""

_ENCODER = msgspec.json.Encoder()
_SAFE = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")


def plain(value: Any) -> Block | None:
    """A block as a mapping, whether it is one or an object of an SDK; None if it is neither."""
    if isinstance(value, dict):
        return value
    if isinstance(value, Mapping):
        return dict(value)
    dump = getattr(value, "model_dump", None)
    if not callable(dump):
        return None
    dumped = dump(mode="json", exclude_unset=True)
    return dumped if isinstance(dumped, dict) else None


def refuse(problem: str, place: str, hint: str) -> NoReturn:
    """Raises BadInput. Places inside a block are relative; who knows where it stands adds that."""
    raise BadInput(problem, place=place, hint=hint)


def text_field(block: Block, name: str) -> str:
    value = block.get(name)
    if isinstance(value, str):
        return value
    refuse(f"{name!r} is {shown(value)}", f".{name}", "give a string")


def call_of(block: Block) -> ToolCall:
    asked, id_ = block.get("input"), block.get("id", "")
    if asked is not None and not isinstance(asked, dict):
        refuse(f"'input' is {shown(asked)}", ".input", "give an object")
    try:
        arguments = _ENCODER.encode(asked or {}).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        refuse(f"not a JSON value: {error}", ".input", "use str, int, float, bool, None, list and dict")
    id_ = id_ if isinstance(id_, str) else ""
    return ToolCall(id=id_, name=text_field(block, "name"), arguments=arguments)


def thinking_of(block: Block) -> Thinking:
    """Reasoning, in the clear or redacted; what is signed or encrypted is never read."""
    texts = (block.get("thinking"), block.get("signature"), block.get("data"))
    thought, signature, data = (text if isinstance(text, str) else "" for text in texts)
    return Thinking(text=thought, signature=signature or data)


def result_of(block: Block, id_: str, name: str) -> tuple[ToolResult, Block | None]:
    """A tool result; and, where its block has texts that are blank, the block without them."""
    content, error = block.get("content"), block.get("is_error") is True
    if isinstance(content, str):
        return ToolResult(id=id_, content=(Text(content),) if content else (), name=name, error=error), None
    if content is not None and not isinstance(content, LISTS):
        refuse(f"'content' is {shown(content)}", ".content", "give a string or a list of blocks")
    parts = _inners(content or ())
    result = ToolResult(id=id_, content=tuple(p for p in parts if not _blank(p)), name=name, error=error)
    if len(result.content) == len(parts):
        return result, None
    kept = [piece for piece, part in zip(content or (), parts, strict=True) if not _blank(part)]
    return result, {**block, "content": kept}


def _inners(pieces: Sequence[Any]) -> list[Inner]:
    parts: list[Inner] = []
    for i, piece in enumerate(pieces):
        try:
            parts.append(inner_of(piece))
        except BadInput as error:
            refuse(error.problem, f".content[{i}]{error.place}", error.hint)
    return parts


def _blank(part: Part) -> bool:
    return isinstance(part, Text) and is_blank(part.text)


def inner_of(piece: Any) -> Inner:
    """A block that may stand in a message or in a tool result."""
    block = piece if isinstance(piece, dict) else plain(piece)
    if block is None:
        refuse(f"a block is {shown(piece)}", "", 'give an object with a "type"')
    sort = block.get("type")
    if sort == "text":
        return Text(text_field(block, "text"))
    if not isinstance(sort, str):
        refuse(f"'type' is {shown(sort)}", ".type", "say what the block is")
    if sort == "image":
        return _image(block)
    return _document(block) if sort == "document" else Raw(dialect=NAME, data=block)


def _image(block: Block) -> Image | Raw:
    match block.get("source"):
        case {"type": "base64", "data": str() as data, "media_type": str() as media}:
            return Image(data=data, media_type=media)
        case {"type": "url", "url": str() as url}:
            return Image(url=url)
    return Raw(dialect=NAME, data=block)


def _document(block: Block) -> Document | Raw:
    title, context = block.get("title"), block.get("context")
    name = title if isinstance(title, str) else ""
    about = context if isinstance(context, str) else ""
    match block.get("source"):
        case {"type": "base64", "data": str() as data, "media_type": str() as media}:
            return Document(data=data, media_type=media, name=name, context=about)
        case {"type": "text", "data": str() as text}:
            return Document(text=text, media_type="text/plain", name=name, context=about)
        case {"type": "url", "url": str() as url}:
            return Document(url=url, name=name, context=about)
    return Raw(dialect=NAME, data=block)


def block_of(part: Part, *, signed: bool = True) -> dict[str, Any] | None:
    """A block for a part that did not come as one; None for what this dialect cannot say.

    Thinking of another provider (not `signed` here) cannot be sent, nor can its own blocks.
    """
    match part:
        case Text(text):
            return None if is_blank(text) else {"type": "text", "text": text}
        case ToolCall():
            name, arguments = safe_name(part.name), arguments_of(part)
            return {"type": "tool_use", "id": part.id, "name": name, "input": arguments}
        case ToolResult():
            block: dict[str, Any] = {"type": "tool_result", "tool_use_id": part.id}
            block |= {"content": result_content(part)} if part.content else {}
            return block | ({"is_error": True} if part.error else {})
        case Thinking():
            sealed = {"type": "thinking", "thinking": part.text, "signature": part.signature}
            return sealed if signed and part.signature else None
        case Raw():
            return part.data if part.dialect == NAME else None
    return _media(part)


def is_safe_name(name: str) -> bool:
    return _SAFE.fullmatch(name) is not None


def safe_name(name: str) -> str:
    """A name of a tool that this API takes."""
    return _UNSAFE.sub("_", name)[:128] or "tool"


def _media(part: Image | Document) -> dict[str, Any]:
    if isinstance(part, Image):
        return {"type": "image", "source": _source(part, "image/png")}
    named = {"title": part.name} if part.name else {}
    about = {"context": part.context} if part.context else {}
    return {"type": "document", "source": _source(part, "application/pdf"), **named, **about}


def result_content(result: ToolResult) -> str | list[dict[str, Any]]:
    """What a result says: a string where it is one text, else blocks; other providers' own as JSON."""
    if len(result.content) == 1 and isinstance(result.content[0], Text):
        return result.content[0].text
    blocks = (block_of(part) or block_of(Text(text_of((part,)))) for part in result.content)
    return [block for block in blocks if block is not None]


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """The arguments as an object; what a model wrote that is not one stays readable inside one."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = call.arguments.strip(WHITE_SPACE) or {}
    return arguments if isinstance(arguments, dict) else {"arguments": arguments}


def _source(part: Image | Document, media: str) -> dict[str, Any]:
    if isinstance(part, Document) and part.text:
        return {"type": "text", "media_type": "text/plain", "data": part.text}
    if part.data:
        return {"type": "base64", "media_type": part.media_type or media, "data": part.data}
    head, comma, data = part.url.partition(";base64,")
    if comma and head.startswith("data:"):
        return {"type": "base64", "media_type": head[5:] or media, "data": data}
    return {"type": "url", "url": part.url}


def shown(value: Any) -> str:
    """A value in an error: short, and never walked."""
    return repr(value[:40]) if isinstance(value, str) else f"a value of type {type(value).__name__}"
