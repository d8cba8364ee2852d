"""Finds extra fields in messages of Chat Completions and of Ollama, which have the same shape.

`find_extra_fields` finds what a message has besides the parts of its segments: words that count, and
everything else that is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lamina.core.tokens import COVERED_CHARACTERS
from lamina.core.values import Image, Part, Raw, Text, ToolCall, ToolResult
from lamina.dialects.extra_fields import ExtraFields, KnownFields, know_fields
from lamina.dialects.json_values import Json, list_or_empty, to_dict_or_empty
from lamina.dialects.pieces import MessagePiece

_MESSAGE_FIELDS = know_fields("content thinking images tool_calls function_call tool_call_id")
_BLOCK_WORDS = "text refusal image_url input_audio file function custom name arguments"
_TEXT_FIELDS = know_fields("text refusal", counted=_BLOCK_WORDS)
_CALL_FIELDS = know_fields("function custom name arguments", counted=_BLOCK_WORDS)
_FUNCTION_FIELDS = know_fields("name arguments input")
_PLAIN_FIELDS = frozenset(("role", "content", "tool_call_id"))

CHAT = "openai_chat"
_RESULT_ROLES = ("tool", "function")

BlockWriter = Callable[[Part], list[Json]]
"""Writes a typed part as the blocks of its dialect."""


def _write_nothing(_: Part) -> list[Json]:
    """For Ollama, which has no blocks: a picture is its data."""
    return []


def find_extra_fields(
    dialect: str,
    pieces: Sequence[MessagePiece],
    message: Mapping[str, Any],
    *,
    write_blocks: BlockWriter = _write_nothing,
) -> list[ExtraFields]:
    """The extra fields of a message for each of its pieces; an empty list if it has none.

    The fields of the message itself are counted with its last piece, which is the last to be left out.
    `write_blocks` says how the dialect would write a picture or a file, to see what else its block has.
    """
    if dialect == CHAT and _is_plain(message):
        return []
    extras = [_ChatExtraFields(dialect, write_blocks=write_blocks) for _ in pieces]
    for extra, piece in zip(extras, pieces, strict=True):
        if piece.block is not None:
            extra.add_block("", piece.part, piece.block)
    extras[-1].add_message(message, pieces[-1].part)
    return list(extras)


def _is_plain(message: Mapping[str, Any]) -> bool:
    """Whether a message has one text and nothing else: most messages do."""
    if not _PLAIN_FIELDS.issuperset(message) or message.get("role") == "developer":
        return False
    return isinstance(message.get("content"), str)


class _ChatExtraFields(ExtraFields):
    """Finds what the messages of a dialect have besides their typed parts."""

    write_blocks: BlockWriter = _write_nothing

    def add_message(self, message: Mapping[str, Any], last_part: Part) -> None:
        """Add what a message has that no segment of it holds: the name of who speaks, and unknown fields.

        Then what is inside the content without a segment. The system's two roles are one in the log, so that
        of the developer is noted here. Ollama pairs by the name of a tool, and a result without one is sent
        without one.
        """
        self._add_message_fields(message)
        content = message.get("content")
        if message.get("role") == "developer":
            self.rests["role"] = "developer"
        if not isinstance(last_part, ToolResult):
            if not isinstance(last_part, Raw):
                self.add_blank_texts(content)
            self.note_blank_texts(content)
            return
        for position, (part, block) in enumerate(
            zip(last_part.content, list_or_empty(content), strict=False)
        ):
            self.add_block(f"content[{position}]", part, block)
        if self.dialect != CHAT and message.get("tool_name") != last_part.name:
            self.rests["tool_name"] = message.get("tool_name") or "none"

    def _add_message_fields(self, message: Mapping[str, Any]) -> None:
        """Add the fields of the message itself.

        All fields of an assistant message of Chat Completions are segments of their own, except its name, and
        those that are empty, zero or false. A short name of a tool in its result is not counted, since the
        estimate of the framing covers it. So its change is noted.
        """
        known_fields = _MESSAGE_FIELDS
        fields = message
        if message.get("role") == "assistant" and self.dialect == CHAT:
            fields = {name: value for name, value in message.items() if name == "name" or not value}
        if message.get("role") in _RESULT_ROLES:
            for field in ("name", "tool_name"):
                name = message.get(field)
                if isinstance(name, str) and len(name) <= COVERED_CHARACTERS:
                    known_fields = KnownFields(known_fields.typed, known_fields.counted | {field})
        self.add("message", fields, known_fields)

    def add_block(self, place: str, part: Part, block: Any) -> None:
        """Add what a block of content, or a call, has that its typed part does not hold.

        Of `{"id": "c1", "function": {"name": "read", "arguments": "{}", "note": "x"}}` it is the note. A
        `Raw` part holds all of its block. Dumping a picture of Ollama's SDK would read its file.
        """
        if isinstance(part, Raw) or (isinstance(part, Image) and type(block) is not dict):
            return
        fields = to_dict_or_empty(block)
        match part:
            case ToolCall():
                self._add_call(fields)
            case Text():
                self.add(place, fields, _TEXT_FIELDS)
                if fields.get("type") == "refusal":
                    self.rests.setdefault(place, {})["type"] = "refusal"
            case _:
                expected = next(iter(self.write_blocks(part)), {})
                self.add_difference(place, fields, expected, _TEXT_FIELDS)

    def _add_call(self, call: Json) -> None:
        """Add what a call has besides the id, the name and the arguments.

        Chat Completions has a type beside them, which says in which field they are.
        """
        self.add("", call, _CALL_FIELDS)
        for field in ("function", "custom"):
            function = call.get(field)
            if not isinstance(function, Mapping):
                continue
            self.add(field, function, _FUNCTION_FIELDS)
            if self.dialect == CHAT and call.get("type") != field:
                self.rests["type"] = call.get("type") or "none"
