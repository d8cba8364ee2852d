"""An envelope as a request of Ollama's chat API.

A message of which nothing changed is the very object that was parsed. A message that changed in part is a
shallow copy in which unchanged pictures and calls are the same objects. Results have no ids, so the results
of one step are sent in the order of their calls if any other order would be misread. Nothing is left out
for lack of room, and no window is set: `check` says what the server may cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamina.core.envelope import Envelope
from lamina.core.text.characters import is_blank
from lamina.core.values import (
    Document,
    Entry,
    Image,
    Part,
    Raw,
    Role,
    Segment,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from lamina.core.wording import text_of
from lamina.dialects.ollama.fields import NAME, encode_picture, name_or_unnamed, to_dict, write_arguments
from lamina.dialects.ollama.parse import TEXT_FIELDS
from lamina.dialects.origins import find_unchanged_message, group_sent_entries, read_note
from lamina.dialects.pairing import PairedResult, find_reading_order
from lamina.dialects.words import write_as_text
from lamina.errors import BadInput

Json = dict[str, Any]

_WRITTEN_FIELDS = frozenset(("role", "content", "images", "thinking", "tool_calls"))
"""Fields of a message that this module writes; all others are copied."""


def render(envelope: Envelope) -> Json:
    """The request: parameters as they came, messages, tools."""
    writer = _OllamaWriter()
    for group in group_sent_entries(envelope):
        message = find_unchanged_message(group, NAME)
        if message is None:
            writer.write_group(group)
        else:
            writer.keep_message(message, group)
    writer.flush_results()
    if not writer.messages:
        hint = "add a message that says something"
        raise BadInput("nothing is left to send", place="messages", hint=hint)
    request = {**envelope.head.parameters, "messages": writer.messages}
    if envelope.head.tools:
        request["tools"] = list(envelope.head.tools)
    return request


def carries(segment: Segment) -> str:
    """Why a segment that another dialect parsed cannot be sent here; "" if it can."""
    if segment.origin == NAME:
        return ""
    for part in segment.parts:
        reason = _refuse_part(part, segment)
        if reason:
            return reason
    return ""


def _refuse_part(part: Part, segment: Segment) -> str:
    """Why a part cannot be sent here; "" if it can."""
    match part:
        case Thinking(signature=signature) if signature:
            return f"reasoning of {segment.origin or 'another model'} cannot be sent to {NAME}"
        case Raw(dialect=dialect) if dialect != NAME and segment.role is Role.ASSISTANT:
            content = "reasoning" if segment.kind == "thinking" else "a block"
            return f"{content} of {dialect} cannot be sent to {NAME}"
        case Image() if not encode_picture(part):
            problem = "that is not base64" if part.data else "at an address"
            return f"a picture {problem} cannot be sent to {NAME}"
        case Document(text=text) if not text:
            return f"a document without its text cannot be sent to {NAME}"
        case ToolResult(content=content_parts):
            return _refuse_result_media(content_parts, segment)
    return ""


def _refuse_result_media(parts: Sequence[Part], segment: Segment) -> str:
    """The same for media in a result. Media at an address can be sent: the words of a result name it."""
    for part in parts:
        if not isinstance(part, Image | Document) or not part.data:
            continue
        reason = _refuse_part(part, segment)
        if reason:
            return reason
    return ""


class _OllamaWriter:
    """Collects the messages of a request. `results` wait until the last result of their step is there."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.calls: list[ToolCall] = []
        self.results: list[tuple[Any, PairedResult]] = []

    def keep_message(self, message: Any, group: Sequence[Entry]) -> None:
        """Adds a message as it came."""
        part = group[0].parts[0]
        if isinstance(part, ToolResult):
            self._add_result(message, part)
        else:
            self._add_message(message, group)

    def write_group(self, group: Sequence[Entry]) -> None:
        """Adds a message that changed: its results first, each a message of its own, then the rest."""
        other_entries = []
        for entry in group:
            part = entry.parts[0]
            if isinstance(part, ToolResult):
                self._add_result(_write_result(entry, part), part)
            else:
                other_entries.append(entry)
        if not other_entries:
            return
        if other_entries[0].role is Role.ASSISTANT:
            self._add_message(_write_assistant(other_entries), other_entries)
        else:
            self._add_message(_write_user_or_system(other_entries), other_entries)

    def flush_results(self) -> None:
        """Adds the results of a step that is complete, in an order in which they are read rightly."""
        order = find_reading_order(self.calls, [result for _, result in self.results])
        for index in order:
            message, _ = self.results[index]
            self.messages.append(message)
        self.results = []
        self.calls = []

    def _add_result(self, message: Any, part: ToolResult) -> None:
        """Keeps a result until its step is complete, with what a reader sees of it: a name and an id."""
        fields = to_dict(message)
        name = fields.get("tool_name") or ""
        call_id = fields.get("tool_call_id") or ""
        self.results.append((message, PairedResult(asked=part.id, name=name, id=call_id)))

    def _add_message(self, message: Any, group: Sequence[Entry]) -> None:
        """Adds a message that is not a result; None is a message that says nothing."""
        self.flush_results()
        if message is not None:
            self.messages.append(message)
        for entry in group:
            part = entry.parts[0]
            if isinstance(part, ToolCall):
                self.calls.append(ToolCall(id=part.id, name=name_or_unnamed(part.name), arguments=""))


def _write_user_or_system(group: Sequence[Entry]) -> Json | None:
    """The message of a user or a system; None if it says nothing and did not come so."""
    text, images = _write_content(group)
    if not text and not images and not _has_own_raw_part(group):
        return None
    role = "system" if group[0].role is Role.SYSTEM else "user"
    message = {"role": role, **_copy_other_fields(group[0]), "content": text}
    if images:
        message["images"] = images
    return message


def _has_own_raw_part(group: Sequence[Entry]) -> bool:
    """Whether a message came without any text, which the API takes."""
    for entry in group:
        for part in entry.parts:
            if isinstance(part, Raw) and part.dialect == NAME:
                return True
    return False


def _write_assistant(group: Sequence[Entry]) -> Json | None:
    """The message of an assistant; None if it says nothing."""
    thoughts = []
    content_entries = []
    calls = []
    for entry in group:
        part = entry.parts[0]
        if isinstance(part, ToolCall):
            calls.append(_write_call(entry, part))
        if entry.segment.kind == "thinking":
            thoughts.append(text_of(entry.parts))
        else:
            content_entries.append(entry)
    thoughts = [thought for thought in thoughts if not is_blank(thought)]
    text, images = _write_content(content_entries)
    if not (text or thoughts or images or calls):
        return None
    message = {"role": "assistant", **_copy_other_fields(group[0]), "content": text}
    if thoughts:
        message["thinking"] = "\n".join(thoughts)
    if images:
        message["images"] = images
    if calls:
        message["tool_calls"] = calls
    return message


def _write_result(entry: Entry, result: ToolResult) -> Json:
    """A result as a message: with the text and the pictures that it came with, if they did not change."""
    name = name_or_unnamed(entry.asked.name if entry.asked else result.name)
    other_fields = _copy_other_fields(entry)
    other_fields.pop("tool_name", None)
    old_message = _get_origin(entry)
    if old_message and _has_same_content(entry, result):
        return {"role": "tool", **other_fields, **_copy_content(old_message, result), "tool_name": name}
    text = write_as_text(part for part in result.content if not _is_sendable_picture(part))
    message = {"role": "tool", **other_fields, "content": text, "tool_name": name}
    pictures = [part for part in result.content if isinstance(part, Image) and _is_sendable_picture(part)]
    if pictures:
        message["images"] = [encode_picture(picture) for picture in pictures]
    return message


def _has_same_content(entry: Entry, result: ToolResult) -> bool:
    old_result = entry.segment.parts[0]
    return isinstance(old_result, ToolResult) and old_result.content == result.content


def _is_sendable_picture(part: Part) -> bool:
    return isinstance(part, Image) and encode_picture(part) != ""


def _copy_content(old_message: Json, result: ToolResult) -> Json:
    """Text and pictures of a result that did not change, in the shape that the API takes."""
    content = {"content": old_message.get("content") or ""}
    old_images = old_message.get("images") or ()
    pictures = [part for part in result.content if isinstance(part, Image)]
    images = [_choose_image(image, picture) for image, picture in zip(old_images, pictures, strict=True)]
    if images:
        content["images"] = images
    return content


def _choose_image(block: Any, picture: Image) -> Any:
    """The picture as it came, unless it is text that the API may not take."""
    if isinstance(block, str) and picture.data:
        return encode_picture(picture)
    return block


def _write_content(group: Sequence[Entry]) -> tuple[str, list[Any]]:
    """All text of a message in one string, and its pictures."""
    texts: list[str] = []
    images: list[Any] = []
    for entry in group:
        for part in entry.parts:
            match part:
                case Image():
                    images.append(_write_image(entry, part))
                case Text() | Document() | Raw():
                    texts.append(_write_text(part))
    texts = [text for text in texts if not is_blank(text)]
    images = [image for image in images if image]
    return "\n".join(texts), images


def _write_text(part: Part) -> str:
    """The text of a part. A `Raw` part of this dialect is a message without text."""
    if not isinstance(part, Raw):
        return text_of((part,))
    if part.dialect == NAME or not part.data:
        return ""
    return text_of((part,))


def _write_image(entry: Entry, picture: Image) -> Any:
    """The picture as it came, or as base64."""
    block = None
    if read_note(entry, NAME):
        block = _get_block(entry)
    if block is None:
        return encode_picture(picture)
    return _choose_image(block, picture)


def _write_call(entry: Entry, call: ToolCall) -> Any:
    """A call as its block, which stays the same object if the API takes it and nothing in it changed."""
    block = _get_block(entry)
    old_call: Json = {}
    if block is not None:
        old_call = to_dict(block)
    old_function = to_dict(old_call.get("function") or {})
    has_object_arguments = not isinstance(old_function.get("arguments"), str | None)
    if call.name and has_object_arguments and _is_same_call(entry, call):
        return block
    name = name_or_unnamed(call.name)
    function = {**old_function, "name": name, "arguments": write_arguments(call)}
    return {**old_call, "function": function}


def _is_same_call(entry: Entry, call: ToolCall) -> bool:
    old_call = entry.segment.parts[0]
    if not isinstance(old_call, ToolCall):
        return False
    return old_call.name == call.name and old_call.arguments == call.arguments


def _copy_other_fields(entry: Entry) -> Json:
    """The fields of an entry's message that this module does not write, without texts that are no text."""
    fields = {}
    for name, value in _get_origin(entry).items():
        is_wrong_type = name in TEXT_FIELDS and not isinstance(value, str)
        if name not in _WRITTEN_FIELDS and not is_wrong_type:
            fields[name] = value
    return fields


def _get_origin(entry: Entry) -> Json:
    """The message that an entry was parsed from; empty if its role has changed since."""
    note = entry.segment.meta.get("wire", {})
    if note.get("dialect") != NAME or entry.role is not entry.segment.role:
        return {}
    return to_dict(note["of"])


def _get_block(entry: Entry) -> Any:
    """The block that an entry was parsed from; None if it was not parsed by this dialect."""
    note = entry.segment.meta.get("wire", {})
    if note.get("dialect") != NAME:
        return None
    return note.get("block")
