"""Tells from its shape which wire format a request is of, by one row of signs for each format.

A sign is a word for something that a request has: a field of it (`max_completion_tokens`), of one of its
messages (`message:images`) or tools (`tool:input_schema`), or the type of a block (`block:tool_use`). A
request is of the first format whose conversation it holds, of which it has one of the signs that it needs,
and none of those that it refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from lamina.core.text.characters import split_words
from lamina.dialects.json_values import (
    LIST_TYPES,
    MAPPING_TYPES,
    list_or_empty,
    mapping_or_empty,
    text_or_empty,
)
from lamina.dialects.port import Request

RequestSigns = frozenset[Any]

_OWN_BLOCKS_OF_CONVERSE = frozenset(
    "text image document toolUse toolResult reasoningContent cachePoint guardContent".split()
)
_OWN_BLOCKS_OF_ANTHROPIC = "tool_use tool_result thinking redacted_thinking document image"
_BLOCKS_OF_OPENAI = "image_url input_text input_audio output_text file refusal"


class _FormatSigns(NamedTuple):
    """How requests of one format are told: the sign that they hold a conversation, and two sets of others."""

    holds: str
    needs: frozenset[str] = frozenset()
    refuses: frozenset[str] = frozenset()


def _prefix(prefix: str, words: str) -> frozenset[str]:
    return frozenset(f"{prefix}:{word}" for word in split_words(words))


_FORMATS: Mapping[str, _FormatSigns] = {
    "bedrock_converse": _FormatSigns(
        "messages[]",
        needs=frozenset(
            """modelId inferenceConfig additionalModelRequestFields guardrailConfig
            additionalModelResponseFieldPaths""".split()
        )
        | {"first block:converse"},
    ),
    "anthropic": _FormatSigns(
        "messages[]",
        needs=frozenset("system thinking stop_sequences anthropic_version context_management".split())
        | {"tool:input_schema", "model:claude"}
        | _prefix("block", _OWN_BLOCKS_OF_ANTHROPIC),
        # Routers send fields of Chat Completions to Claude models too.
        refuses=frozenset(
            """max_completion_tokens n stop response_format seed logprobs top_logprobs logit_bias
            presence_penalty frequency_penalty reasoning_effort stream_options parallel_tool_calls functions
            function_call modalities modelId inferenceConfig toolConfig""".split()
        )
        | {"first:system", "role:?", "message:?", "message:tool_calls", "tool:function", "block:?"}
        | _prefix("block", _BLOCKS_OF_OPENAI),
    ),
    "openai_responses": _FormatSigns("input items", refuses=frozenset(("messages", "contents"))),
    "gemini": _FormatSigns(
        "contents given", refuses=frozenset(("messages", "input", "prompt", "instructions"))
    ),
    "ollama": _FormatSigns(
        "messages[]",
        needs=frozenset("options keep_alive think format truncate shift".split())
        | {"message:images", "message:tool_name", "thinking text", "arguments{}"},
        refuses=frozenset("system stop_sequences anthropic_version contents input prompt content[]".split()),
    ),
    "openai_chat": _FormatSigns(
        "messages[]",
        refuses=frozenset(
            """system stop_sequences anthropic_version contents input keep_alive options think format truncate
            shift modelId inferenceConfig toolConfig arguments{}""".split()
        )
        | {"tool:input_schema", "message:images", "message:tool_name", "message:thinking", "block:?"}
        | _prefix("block", f"{_OWN_BLOCKS_OF_ANTHROPIC} server_tool_use"),
    ),
    "text": _FormatSigns("prompt text", refuses=frozenset(("messages", "contents", "input"))),
}
"""All wire formats, in the order in which they are tried. A plain request counts as Chat Completions."""

_ROLES = frozenset(("user", "assistant", "system"))
_MESSAGE_FIELDS = frozenset(("images", "tool_name", "thinking", "tool_calls"))
_TOOL_FIELDS = ("function", "input_schema")
_FIRST_BLOCKS = frozenset(("first block:converse", "first block:other"))
_BLOCK_SIGNS = {
    block_type: f"block:{block_type}"
    for block_type in split_words(f"{_OWN_BLOCKS_OF_ANTHROPIC} {_BLOCKS_OF_OPENAI} server_tool_use")
}


def make_recogniser(name: str) -> Callable[[Request], bool]:
    """The function that says whether a request looks like one of this format."""
    format_signs = _FORMATS[name]
    return lambda request: _match(format_signs, read_signs(request))


def find_format(signs: RequestSigns) -> str:
    """The name of the first format that has these signs; "" if none has."""
    for name, format_signs in _FORMATS.items():
        if _match(format_signs, signs):
            return name
    return ""


def _match(format_signs: _FormatSigns, signs: RequestSigns) -> bool:
    if format_signs.holds not in signs or not format_signs.refuses.isdisjoint(signs):
        return False
    return not format_signs.needs or not format_signs.needs.isdisjoint(signs)


def read_signs(request: Request) -> RequestSigns:
    """All signs of a request."""
    messages = list_or_empty(mapping_or_empty(request).get("messages"))
    return join_signs(read_head_signs(request), *dict.fromkeys(map(read_message_signs, messages)))


def join_signs(head_signs: RequestSigns, *message_signs: RequestSigns) -> RequestSigns:
    """The signs of a head and of its messages. Of their first blocks, that of the first message counts."""
    joined = head_signs.union(*message_signs) - _FIRST_BLOCKS
    for signs in message_signs:
        first_block = signs & _FIRST_BLOCKS
        if first_block:
            return joined | first_block
    return joined


def read_head_signs(request: Request) -> RequestSigns:
    """The signs of a request without those of its messages. The role of the first message is one of them."""
    fields = mapping_or_empty(request)
    signs: set[Any] = set(fields)
    messages = fields.get("messages")
    if isinstance(messages, LIST_TYPES):
        signs.add("messages[]")
        for first in messages[:1]:
            signs.add(f"first:{mapping_or_empty(first).get('role')}")
    for tool in list_or_empty(fields.get("tools")):
        signs.update(f"tool:{name}" for name in _TOOL_FIELDS if name in mapping_or_empty(tool))
    if _names_claude(text_or_empty(fields.get("model"))):
        signs.add("model:claude")
    if _holds_input_items(fields):
        signs.add("input items")
    if fields.get("contents") is not None:
        signs.add("contents given")
    if isinstance(fields.get("prompt"), str):
        signs.add("prompt text")
    return frozenset(signs)


def _names_claude(model: str) -> bool:
    """Whether a model is one of Anthropic's, named as its API or a cloud names it, and not as a router does.

    `claude-opus-4-5` and `us.anthropic.claude-…` are, `anthropic/claude-opus-4-5` is not: a router takes
    requests of Chat Completions for it.
    """
    # Names of Bedrock and Vertex have slashes too.
    is_routed = "/" in model and not model.startswith(("arn:", "projects/", "publishers/"))
    return "claude" in model and not is_routed


def _holds_input_items(fields: Mapping[str, Any]) -> bool:
    """Whether it has an input of text or items, or continues a response, a conversation or a template.

    Embeddings have an input too, which is a list of texts or of token ids.
    """
    match fields.get("input"):
        case None:
            has_template = isinstance(fields.get("prompt"), Mapping)
            return has_template or bool(fields.get("previous_response_id") or fields.get("conversation"))
        case str():
            return True
        case list() | tuple() as items:
            item_types = set(map(type, items))
            return not any(issubclass(item_type, str | int | list) for item_type in item_types)
    return False


def read_message_signs(message: Any) -> RequestSigns:
    """The signs of one message. Blocks beside calls are none: some servers of Chat Completions add theirs."""
    if not isinstance(message, MAPPING_TYPES):
        return frozenset(("message:?",))
    signs: set[str] = set()
    content = message.get("content")
    if isinstance(content, LIST_TYPES):
        if "tool_calls" not in message:
            signs.update(map(_read_block_sign, content))
        signs.add("content[]")
        signs.update(map(_read_first_block, content[:1]))
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        signs.add("role:?")
    if not _MESSAGE_FIELDS.isdisjoint(message):  # most messages have none of them
        signs |= _read_field_signs(message)
    return frozenset(signs)


def _read_field_signs(message: Mapping[str, Any]) -> set[str]:
    """The fields of a message that tell formats apart, and what is in them."""
    signs = {f"message:{name}" for name in _MESSAGE_FIELDS.intersection(message)}
    if isinstance(message.get("thinking"), str):
        signs.add("thinking text")
    for call in list_or_empty(message.get("tool_calls")):
        function = mapping_or_empty(mapping_or_empty(call).get("function"))
        if isinstance(function.get("arguments"), MAPPING_TYPES):
            signs.add("arguments{}")
    return signs


def _read_block_sign(block: Any) -> str:
    """The type of a block; "block:?" for one without a type, and "" if the type says nothing."""
    if not isinstance(block, MAPPING_TYPES):
        return ""
    if "type" not in block:
        return "block:?"
    if isinstance(block.get("thinking"), LIST_TYPES):
        return ""  # Mistral's thoughts, in Chat Completions, are lists of parts; Anthropic's are texts
    return _BLOCK_SIGNS.get(text_or_empty(block["type"]), "")


def _read_first_block(block: Any) -> str:
    """Whether the first block of a message is one of Converse's, which never say their type."""
    fields = mapping_or_empty(block)
    if "type" not in fields and not _OWN_BLOCKS_OF_CONVERSE.isdisjoint(fields):
        return "first block:converse"
    return "first block:other"
