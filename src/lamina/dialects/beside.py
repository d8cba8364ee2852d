"""What a message says to the model besides the typed parts of its log: names, notes, signatures, new fields.

Rendering sends such fields as they came, so they have to be counted. Each table names the fields of one sort
of block that the typed part counts; `UNREAD` names those that no model reads, with the reason. Whatever is in
neither is counted as it is: a field that nobody here has heard of may be one that the model reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from lamina.core.text.characters import is_blank, split_words
from lamina.core.tokens import NAMED
from lamina.core.values import Image, Part, Raw, Segment, Text, Thinking, ToolResult

Beside = tuple[Part, ...]

_FEW_WORDS = "one of a few words: the API refuses any other"
_ABOUT_ANSWER = "what the API says about an answer, not in it"
_CACHE = "it marks a cache"

UNREAD: Mapping[str, str] = {
    "type": _FEW_WORDS,
    "role": _FEW_WORDS,
    "status": _FEW_WORDS,
    "phase": _FEW_WORDS,
    "detail": _FEW_WORDS,
    "is_error": "a switch",
    "thought": "a switch",
    "index": "a number",
    "cache_control": _CACHE,
    "prompt_cache_breakpoint": _CACHE,
    "citations": "Anthropic counts neither what is cited nor its title and address (docs, citations)",
    "logprobs": _ABOUT_ANSWER,
    "id": "a name by which the server knows an item or an answer",
    "model": _ABOUT_ANSWER,
    "stop_reason": _ABOUT_ANSWER,
    "stop_sequence": _ABOUT_ANSWER,
    "stop_details": _ABOUT_ANSWER,
    "usage": _ABOUT_ANSWER,
    "created_at": _ABOUT_ANSWER,
    "videoMetadata": "numbers: which part of a film is shown",
    "video_metadata": "numbers: which part of a film is shown",
    "mediaResolution": _FEW_WORDS,
    "media_resolution": _FEW_WORDS,
    "partMetadata": "the caller's own notes",
    "part_metadata": "the caller's own notes",
}
"""Fields of messages and blocks that no model reads, each with the reason."""


def with_beside(dialect: str, segments: list[Segment], message: Mapping[str, Any]) -> tuple[Segment, ...]:
    """The segments of a message of Chat Completions or Ollama, with what it has for the model besides them.

    What the message itself has is counted with the last of them, which is the last to be left out.
    """
    for i, segment in enumerate(segments):
        block = segment.meta["wire"].get("block")
        if block is not None and (beside := _chat_block(dialect, segment.parts[0], block)):
            segments[i] = msgspec.structs.replace(segment, beside=beside)
    last = segments[-1]
    beside = () if _CHAT.issuperset(message) else _chat_message(dialect, message)
    if isinstance(last.parts[0], ToolResult):
        beside += _chat_result(dialect, last.parts[0], message)
    elif not isinstance(last.parts[0], Raw):
        beside += blank_texts(message.get("content"))
    if beside:
        segments[-1] = msgspec.structs.replace(last, beside=last.beside + beside)
    return tuple(segments)


def blank_texts(content: Any) -> Beside:
    """Blank text among the blocks of a message that says something: no segment has it, and it is sent."""
    if not isinstance(content, list | tuple):
        return ()
    texts = (_plain(block).get("text") for block in content)
    return tuple(Text(text) for text in texts if isinstance(text, str) and is_blank(text))


def _chat_message(dialect: str, message: Mapping[str, Any]) -> Beside:
    """Whose message it is, and fields that nobody here has heard of.

    An assistant's other fields are segments of their own.
    """
    role = message.get("role")
    if role == "assistant" and dialect == "openai_chat":
        message = {"name": message.get("name")}
    elif role in ("tool", "function"):
        message = {field: value for field, value in message.items() if not _short_name(field, value)}
    return _rest(dialect, message, _CHAT)


def _chat_block(dialect: str, part: Part, block: Any) -> Beside:
    """Of a block of content, or of a call."""
    if isinstance(part, Raw) or (isinstance(part, Image) and type(block) is not dict):
        return ()  # writing out a picture of Ollama's SDK would read its file
    holder = block if type(block) is dict else _plain(block)
    rest = () if _CHAT_BLOCK.issuperset(holder) else _rest(dialect, holder, _CHAT_BLOCK)
    inner = holder.get("function") or holder.get("custom")
    if inner is None or _CALLED.issuperset(inner if type(inner) is dict else _plain(inner)):
        return rest
    return rest + _rest(dialect, _plain(inner), _CALLED)


def _chat_result(dialect: str, result: ToolResult, message: Mapping[str, Any]) -> Beside:
    """Of the blocks inside a tool message."""
    content = message.get("content")
    if not isinstance(content, list | tuple):
        return ()
    pairs = zip(result.content, content, strict=False)
    return _joined(_chat_block(dialect, inner, block) for inner, block in pairs)


def anthropic_fields(dialect: str, fields: Mapping[str, Any] | None) -> Beside:
    """Of the fields that a message of the Messages API has besides role and content."""
    return _rest(dialect, fields, _NONE) if fields else ()


def anthropic_block(dialect: str, part: Part, block: Any) -> Beside:
    """Of a block of the Messages API."""
    if not isinstance(block, Mapping) or isinstance(part, Raw):
        return ()
    rest = _rest(dialect, block, _ANTHROPIC_BLOCK)
    content = block.get("content")
    if isinstance(part, ToolResult) and isinstance(content, list | tuple):
        pairs = zip(part.content, content, strict=False)
        rest += _joined(anthropic_block(dialect, inner, each) for inner, each in pairs)
    return rest


def responses_item(dialect: str, part: Part, item: Mapping[str, Any], *, asked: Iterable[str]) -> Beside:
    """Of an item of the Responses API; `asked` are the fields that hold the arguments of its call."""
    if isinstance(part, Raw) and item.get("type", "message") != "message":
        return ()
    rest = _rest(dialect, item, _ITEM.union(asked) if asked else _ITEM)
    if isinstance(part, Thinking):
        thoughts = [each for name in ("summary", "content") for each in item.get(name) or ()]
        return rest + _joined(responses_block(dialect, part, each) for each in thoughts)
    output = item.get("output")
    if isinstance(part, ToolResult) and isinstance(output, list | tuple):
        pairs = zip(part.content, output, strict=False)
        rest += _joined(responses_block(dialect, inner, each) for inner, each in pairs)
    return rest


def responses_block(dialect: str, part: Part, block: Any) -> Beside:
    """Of a block of content of the Responses API."""
    if not isinstance(block, Mapping) or isinstance(part, Raw):
        return ()
    return _rest(dialect, block, _ITEM_BLOCK)


def gemini_content(dialect: str, fields: Mapping[str, Any]) -> Beside:
    """Of the fields that a content has besides its role and its parts."""
    return _rest(dialect, fields, _GEMINI_CONTENT) if fields else ()


def gemini_part(dialect: str, part: Part, block: Any, signature: str) -> Beside:
    """Of a part of a content. Its signature counts, unless the typed part holds it."""
    if not isinstance(block, Mapping) or isinstance(part, Raw):
        return ()
    rest = _rest(dialect, block, _GEMINI)
    for name in ("functionCall", "function_call", "functionResponse", "function_response"):
        if isinstance(inner := block.get(name), Mapping):
            rest += _rest(dialect, inner, _GEMINI_CALL)
            shown = inner.get("parts")
            media = shown if isinstance(shown, list | tuple) else ()
            rest += _joined(_rest(dialect, each, _GEMINI) for each in media if isinstance(each, Mapping))
    if signature and not isinstance(part, Thinking):
        rest += (Thinking(signature=signature),)
    return rest


def _known(words: str) -> frozenset[str]:
    """Fields that the typed part counts, and those that no model reads."""
    return frozenset(split_words(words)).union(UNREAD)


_NONE = _known("")
_CHAT = _known("content thinking images tool_calls function_call tool_call_id")
_CHAT_BLOCK = _known("text refusal image_url input_audio file function custom name arguments")
_CALLED = _known("name arguments input")
_ANTHROPIC_BLOCK = _known("text source title context name input tool_use_id content thinking signature data")
_ITEM = _known(
    "content call_id name arguments input output summary encrypted_content approve reason approval_request_id"
)
_ITEM_BLOCK = _known("text refusal image_url file_id file_data file_url filename stdout stderr outcome")
_GEMINI = _known(
    """text inlineData inline_data fileData file_data functionCall function_call functionResponse
    function_response thoughtSignature thought_signature"""
)
_GEMINI_CALL = _known("name args response parts")
_GEMINI_CONTENT = _known("parts")


def _plain(block: Any) -> Mapping[str, Any]:
    """A block as a mapping, also where it is an object of an SDK; nothing of anything else."""
    if type(block) is dict:
        return block
    dump = getattr(block, "model_dump", None)
    found = dump(mode="json", exclude_unset=True) if callable(dump) else block
    return found if isinstance(found, Mapping) else {}


def _rest(dialect: str, holder: Mapping[str, Any], known: frozenset[str]) -> Beside:
    """The fields that are counted nowhere else and may be read; numbers and switches say nothing."""
    if known.issuperset(holder):
        return ()
    rest = {
        name: value
        for name, value in holder.items()
        if value and name not in known and not isinstance(value, bool | int | float)
    }
    return (Raw(dialect=dialect, data=rest),) if rest else ()


def _short_name(field: str, value: Any) -> bool:
    """Whether a field is the name of a tool in its result, and short enough for the framing to cover it."""
    return field in ("name", "tool_name") and isinstance(value, str) and len(value) <= NAMED


def _joined(each: Iterable[Beside]) -> Beside:
    return tuple(part for parts in each for part in parts)
