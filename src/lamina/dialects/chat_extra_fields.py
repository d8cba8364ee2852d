"""Finds extra fields in messages of Chat Completions and of Ollama, which have the same shape.

`add_extra_fields` puts on the segments of a message what it has besides their parts: words that count, and
the digest of everything else that is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from lamina.core.tokens import COVERED_CHARACTERS
from lamina.core.values import Image, Part, Raw, Segment, Text, ToolCall, ToolResult
from lamina.dialects.extra_fields import (
    ExtraParts,
    Rests,
    collect_blank_texts,
    collect_extra_fields,
    digest_rests,
    find_blank_blocks,
    find_rest,
    find_uncounted_difference,
    is_counted,
    join_parts,
    list_counted_fields,
    list_typed_fields,
    name_places,
)
from lamina.dialects.json_values import Json, list_or_empty, to_dict_or_empty
from lamina.dialects.origins import read_origin_in

_MESSAGE_FIELDS = list_counted_fields("content thinking images tool_calls function_call tool_call_id")
_BLOCK_FIELDS = list_counted_fields("text refusal image_url input_audio file function custom name arguments")
_CALL_FIELDS = list_counted_fields("name arguments input")

_TYPED_MESSAGE_FIELDS = list_typed_fields("content thinking images tool_calls function_call tool_call_id")
_TYPED_TEXT_FIELDS = list_typed_fields("text refusal")
_TYPED_CALL_FIELDS = list_typed_fields("function custom name arguments")
_TYPED_FUNCTION_FIELDS = list_typed_fields("name arguments input")
_NO_FIELDS: frozenset[str] = frozenset()
_PLAIN_FIELDS = frozenset(("role", "content", "tool_call_id"))

CHAT = "openai_chat"
_RESULT_ROLES = ("tool", "function")

BlockWriter = Callable[[Part], list[Json]]
"""Writes a typed part as the blocks of its dialect."""


def _write_nothing(_: Part) -> list[Json]:
    """For Ollama, which has no blocks: a picture is its data."""
    return []


def add_extra_fields(
    dialect: str,
    segments: list[Segment],
    message: Mapping[str, Any],
    *,
    write_blocks: BlockWriter = _write_nothing,
) -> tuple[Segment, ...]:
    """The segments of a message, with its extra fields.

    The fields of the message itself are counted with its last segment, which is the last to be left out.
    `write_blocks` says how the dialect would write a picture or a file, to see what else its block has.
    """
    if dialect == CHAT and _is_plain(message):
        return tuple(segments)
    reader = _ExtraFields(dialect, write_blocks)
    last = len(segments) - 1
    for position, segment in enumerate(segments):
        part = segment.parts[0]
        block = read_origin_in(segment, dialect).block
        extra: ExtraParts = ()
        rests: dict[str, Any] = {}
        if block is not None:
            extra = reader.collect_from_block(part, block)
            rests |= reader.find_block_rests(part, block)
        if position == last:
            extra += reader.collect_from_message(message, part)
            rests |= reader.find_message_rests(message, part)
        uncounted = digest_rests(rests)
        if extra or uncounted:
            segments[position] = msgspec.structs.replace(segment, beside=extra, uncounted=uncounted)
    return tuple(segments)


def _is_plain(message: Mapping[str, Any]) -> bool:
    """Whether a message has one text and nothing else: most messages do."""
    if not _PLAIN_FIELDS.issuperset(message) or message.get("role") == "developer":
        return False
    return isinstance(message.get("content"), str)


class _ExtraFields(NamedTuple):
    """Finds what the messages of a dialect have besides their typed parts.

    `collect_…` gives what the model reads, and what is counted for that. `find_…_rests` gives what is sent
    without being counted.
    """

    dialect: str
    write_blocks: BlockWriter

    def collect_from_message(self, message: Mapping[str, Any], last_part: Part) -> ExtraParts:
        """The name of who speaks, and unknown fields; then what is inside the content without a segment.

        An assistant's other fields are segments of their own in Chat Completions. A short name of a tool in
        its result is not counted: the estimate of the framing covers it.
        """
        extra: ExtraParts = ()
        if not _MESSAGE_FIELDS.issuperset(message):
            extra = collect_extra_fields(self.dialect, self._list_own_fields(message), _MESSAGE_FIELDS)
        content = message.get("content")
        match last_part:
            case Raw():
                return extra
            case ToolResult():
                pairs = zip(last_part.content, list_or_empty(content), strict=False)
                return extra + join_parts(self.collect_from_block(part, block) for part, block in pairs)
        return extra + collect_blank_texts(content)

    def _list_own_fields(self, message: Mapping[str, Any]) -> Json:
        """The fields of a message that no segment of it has, and that no estimate covers."""
        role = message.get("role")
        if role == "assistant" and self.dialect == CHAT:
            return {"name": message.get("name")}
        fields = dict(message)
        if role in _RESULT_ROLES:
            for field in ("name", "tool_name"):
                name = message.get(field)
                if isinstance(name, str) and len(name) <= COVERED_CHARACTERS:
                    del fields[field]
        return fields

    def collect_from_block(self, part: Part, block: Any) -> ExtraParts:
        """Of a block of content, or of a call.

        Of `{"id": "c1", "function": {"name": "read", "arguments": "{}", "note": "x"}}` it is
        `{"note": "x"}`.
        """
        if isinstance(part, Raw):
            return ()
        if isinstance(part, Image) and type(block) is not dict:
            return ()  # dumping a picture of Ollama's SDK would read its file
        mapping = to_dict_or_empty(block)
        extra = collect_extra_fields(self.dialect, mapping, _BLOCK_FIELDS)
        call = mapping.get("function") or mapping.get("custom")
        return extra + collect_extra_fields(self.dialect, to_dict_or_empty(call), _CALL_FIELDS)

    def find_message_rests(self, message: Mapping[str, Any], last_part: Part) -> Rests:
        """What a message has that no segment of it holds or counts, and blank blocks of its content.

        The system's two roles are one in the log, so that of the developer is noted here.
        """
        rests: dict[str, Any] = {}
        role = message.get("role")
        if not _TYPED_MESSAGE_FIELDS.issuperset(message):
            rests["message"] = self._find_field_rest(message)
        if role == "developer":
            rests["role"] = role
        content = message.get("content")
        if isinstance(last_part, ToolResult):
            return {**rests, **self._find_result_rests(message, last_part)}
        return {**rests, **find_blank_blocks(content)}

    def _find_field_rest(self, message: Mapping[str, Any]) -> Json:
        """The fields of a message that are neither typed nor counted.

        All fields of an assistant message of Chat Completions are segments of their own, except those that
        are empty, zero or false. A null means the same as no field.
        """
        if message.get("role") == "assistant" and self.dialect == CHAT:
            fields = find_rest(message, _TYPED_MESSAGE_FIELDS, _NO_FIELDS)
            return {name: value for name, value in fields.items() if not value}
        # A short name of a tool is not counted, since the estimate covers it. So its change is noted.
        own_fields = self._list_own_fields(message)
        counted = {name for name, value in own_fields.items() if is_counted(name, value, _MESSAGE_FIELDS)}
        return find_rest(message, _TYPED_MESSAGE_FIELDS.union(counted), _MESSAGE_FIELDS.union(message))

    def _find_result_rests(self, message: Mapping[str, Any], result: ToolResult) -> Rests:
        """What the blocks of a result have, and a name of its tool that is not that of its call.

        Ollama pairs by the name, and a result without one is sent without one.
        """
        blocks = list_or_empty(message.get("content"))
        pairs = zip(result.content, blocks, strict=False)
        rests = name_places("content", (self.find_block_rests(part, block) for part, block in pairs))
        if self.dialect != CHAT and message.get("tool_name") != result.name:
            rests["tool_name"] = message.get("tool_name") or "none"
        return rests

    def find_block_rests(self, part: Part, block: Any) -> Rests:
        """What a block or a call has that its typed part does not hold. A `Raw` part holds all of it.

        Of `{"type": "text", "text": "Hi", "weight": 2}` it is `{"weight": 2}`.
        """
        if type(block) is not dict:
            return {}
        match part:
            case Raw():
                return {}
            case ToolCall():
                return self._find_call_rests(block)
            case Text():
                rest = find_rest(block, _TYPED_TEXT_FIELDS, _BLOCK_FIELDS)
                if block.get("type") == "refusal":
                    rest["type"] = "refusal"
                return {"": rest}
        expected = next(iter(self.write_blocks(part)), {})
        return {"": find_uncounted_difference(block, expected, _BLOCK_FIELDS)}

    def _find_call_rests(self, call: Mapping[str, Any]) -> Rests:
        """What a call has besides the id, the name and the arguments.

        Chat Completions has a type beside them, which says in which field they are.
        """
        rests: dict[str, Any] = {"": find_rest(call, _TYPED_CALL_FIELDS, _BLOCK_FIELDS)}
        for field in ("function", "custom"):
            function = call.get(field)
            if not isinstance(function, Mapping):
                continue
            rests[field] = find_rest(function, _TYPED_FUNCTION_FIELDS, _CALL_FIELDS)
            if self.dialect == CHAT and call.get("type") != field:
                rests["type"] = call.get("type") or "none"
        return rests
