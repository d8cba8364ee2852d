"""What a message says to the model besides the typed parts of its log: names, notes, signatures, new fields.

Rendering sends such fields as they came, so they have to be counted. Each table names the fields of one sort
of block that the typed part counts; `UNREAD` names those that no model reads, with the reason. Whatever is in
neither is counted as it is: a field that nobody here has heard of may be one that the model reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lamina.core.tokens import NAMED
from lamina.core.values import Part, Raw, Thinking, ToolResult

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


def chat_message(dialect: str, message: Mapping[str, Any]) -> Beside:
    """Of a message of Chat Completions or Ollama: whose it is, and fields that nobody here has heard of.

    An assistant's other fields are segments of their own.
    """
    if _CHAT.issuperset(message):
        return ()
    role = message.get("role")
    if role == "assistant" and dialect == "openai_chat":
        message = {"name": message.get("name")}
    elif role in ("tool", "function"):
        message = {field: value for field, value in message.items() if not _short_name(field, value)}
    return _rest(dialect, message, _CHAT)


def chat_block(dialect: str, part: Part, block: Any) -> Beside:
    """Of a block of content, or of a call, of Chat Completions or Ollama."""
    if not isinstance(block, Mapping) or isinstance(part, Raw):
        return ()
    inner = block.get("function") or block.get("custom")
    called = _rest(dialect, inner, _CALLED) if isinstance(inner, Mapping) else ()
    return _rest(dialect, block, _CHAT_BLOCK) + called


def chat_result(dialect: str, part: Part, message: Mapping[str, Any]) -> Beside:
    """Of the blocks inside a tool message."""
    content = message.get("content")
    if not isinstance(part, ToolResult) or not isinstance(content, list | tuple):
        return ()
    pairs = zip(part.content, content, strict=False)
    return _joined(chat_block(dialect, inner, block) for inner, block in pairs)


def anthropic_fields(dialect: str, fields: Mapping[str, Any] | None) -> Beside:
    """Of the fields that a message of the Messages API has besides role and content."""
    return _rest(dialect, fields, frozenset()) if fields else ()


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
    rest = _rest(dialect, item, _ITEM.union(asked))
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
    return _rest(dialect, fields, frozenset(("role", "parts"))) if fields else ()


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


_CHAT = frozenset("role content thinking images tool_calls function_call tool_call_id type".split())
_CHAT_BLOCK = frozenset(
    "type text refusal image_url input_audio file id index function custom name arguments".split()
)
_CALLED = frozenset(("name", "arguments", "input", "index"))
_ANTHROPIC_BLOCK = frozenset(
    """type text source title context citations id name input tool_use_id content is_error thinking signature
    data cache_control""".split()
)
_ITEM = frozenset(
    """type role content call_id name arguments input output summary encrypted_content approve reason
    approval_request_id""".split()
)
_ITEM_BLOCK = frozenset(
    "type text refusal image_url file_id file_data file_url filename stdout stderr outcome".split()
)
_GEMINI = frozenset(
    """text inlineData inline_data fileData file_data functionCall function_call functionResponse
    function_response thoughtSignature thought_signature""".split()
)
_GEMINI_CALL = frozenset("id name args response parts".split())


def _rest(dialect: str, holder: Mapping[str, Any], counted: frozenset[str]) -> Beside:
    """The fields that are counted nowhere else and may be read."""
    rest = {
        name: value
        for name, value in holder.items()
        if value and name not in counted and name not in UNREAD and not isinstance(value, bool | int | float)
    }
    return (Raw(dialect=dialect, data=rest),) if rest else ()


def _short_name(field: str, value: Any) -> bool:
    """Whether a field is the name of a tool in its result, and short enough for the framing to cover it."""
    return field in ("name", "tool_name") and isinstance(value, str) and len(value) <= NAMED


def _joined(each: Iterable[Beside]) -> Beside:
    return tuple(part for parts in each for part in parts)
