"""Renders an envelope as a request of Ollama's chat API.

A message of which nothing changed is the very object that was parsed. A message that changed in part is a
shallow copy in which unchanged pictures and calls are the same objects. Results have no ids, so the results
of one step are sent in the order of their calls if any other order would be misread. Nothing is left out
for lack of room, and no window is set: `check` says what the server may cut off.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from lamina.core.entries import find_sent
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
from lamina.dialects.json_values import Json, drop_fields
from lamina.dialects.ollama.fields import (
    NAME,
    TEXT_FIELDS,
    encode_picture,
    fields_or_empty,
    name_or_unnamed,
    to_fields,
    write_arguments,
)
from lamina.dialects.origins import (
    find_origin,
    find_unchanged_message,
    group_entries,
    is_changed,
    read_sent_origin,
)
from lamina.dialects.pairing import PairedResult, StepResults, find_result_name
from lamina.dialects.pieces import explain_refused_part
from lamina.dialects.render_memo import RenderMemo, write_messages
from lamina.dialects.words import write_as_text
from lamina.errors import BadInput

_WRITTEN_FIELDS = frozenset(("role", "content", "images", "thinking", "tool_calls"))
"""Fields of a message that this module writes; all others are copied."""


def render(envelope: Envelope, memo: RenderMemo | None = None) -> Json:
    """The request: parameters as they came, messages, tools.

    A step is complete when the next message comes, or the request ends. Then its results are added.
    """
    writer = _OllamaWriter()
    write_messages(envelope, writer, memo)
    if not writer.messages:
        hint = "add a message that says something"
        raise BadInput("nothing is left to send", place="messages", hint=hint)
    request = {**envelope.head.parameters, "messages": writer.messages}
    if envelope.head.tools:
        request["tools"] = list(envelope.head.tools)
    return request


def carries(segment: Segment) -> str:
    """Why a segment that another dialect parsed cannot be sent here; "" if it can."""
    return explain_refused_part(segment, NAME, _refuse_part)


def _refuse_part(part: Part, segment: Segment) -> str:
    """Why a part cannot be sent here; "" if it can.

    Signed reasoning, and blocks of other APIs, mean nothing to another model. A picture needs its data here.
    """
    match part:
        case Thinking(signature=signature) if signature:
            thing = f"reasoning of {segment.origin or 'another model'}"
        case Raw(dialect=dialect) if segment.role is not Role.ASSISTANT or dialect == NAME:
            return ""
        case Raw(dialect=dialect) if segment.kind == "thinking":
            thing = f"reasoning of {dialect}"
        case Raw(dialect=dialect):
            thing = f"a block of {dialect}"
        case Image() if encode_picture(part):
            return ""
        case Image(data=""):
            thing = "a picture at an address"
        case Image():
            thing = "a picture that is not base64"
        case Document(text=""):
            thing = "a document without its text"
        case _:
            return ""
    return f"{thing} cannot be sent to {NAME}"


class _OllamaWriter:
    """Collects the messages of a request. Results wait until the last result of their `step` is there."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.step: StepResults[Any] = StepResults()

    def save(self) -> Any:
        return True

    def restore(self, _saved: Any) -> None:
        """Begin a new step."""

    def write(self, entries: Sequence[Entry]) -> None:
        for group in group_entries(find_sent(entries)):
            self.write_group(group)
        self.messages += self.step.flush()

    def write_group(self, group: Sequence[Entry]) -> None:
        """Add a message as it came, or one that changed: its results first, then the rest.

        What is not a result ends the step before it.
        """
        unchanged = find_unchanged_message(group, NAME)
        others: list[Entry] = []
        for entry in group:
            part = entry.parts[0]
            if isinstance(part, ToolResult):
                self._add_result(unchanged or _write_result(entry, part), entry, part)
            else:
                others.append(entry)
        if not others:
            return
        self.messages += self.step.flush()
        self.messages += filter(None, [unchanged or _write_message(others)])
        for entry in others:
            part = entry.parts[0]
            if isinstance(part, ToolCall):
                self.step.add_call(part.id, name_or_unnamed(part.name))

    def _add_result(self, message: Any, entry: Entry, part: ToolResult) -> None:
        """Keep a result until its step is complete, with what a reader sees of it: a name and an id.

        Both may be missing. Then the results of a step are told apart by their order only.
        """
        fields = to_fields(message)
        name = fields.get("tool_name") or ""
        call_id = fields.get("tool_call_id") or ""
        asked_name = name_or_unnamed(find_result_name(entry, part))
        result = PairedResult(asked=part.id, asked_name=asked_name, name=name, id=call_id)
        self.step.add_result(message, result)


def _write_message(group: Sequence[Entry]) -> Json | None:
    """The message of whoever says a group; None if it says nothing."""
    if group[0].role is Role.ASSISTANT:
        return _write_assistant(group)
    return _write_user_or_system(group)


def _write_user_or_system(group: Sequence[Entry]) -> Json | None:
    """The message of a user or a system; None if it says nothing.

    A message that came without any text is sent again, since the API takes it.

    `{"role": "user", "content": ""}` came so, and leaves so. A question that was lowered to nothing is left
    out.
    """
    content = _write_content(group)
    if content == {"content": ""} and not any(map(_came_empty, group)):
        return None
    role = "user"
    if group[0].role is Role.SYSTEM:
        role = "system"
    return {"role": role, **_copy_other_fields(group[0]), **content}


def _came_empty(entry: Entry) -> bool:
    """Whether an entry is a message that came without any text, which parsing keeps as a `Raw` part."""
    match entry.parts[0]:
        case Raw(dialect=dialect):
            return dialect == NAME
    return False


def _write_assistant(group: Sequence[Entry]) -> Json | None:
    """The message of an assistant; None if it says nothing.

    All reasoning goes into `thinking`, each thought on a line of its own, and all text into `content`.
    """
    thoughts: list[str] = []
    content_entries: list[Entry] = []
    calls: list[Any] = []
    for entry in group:
        part = entry.parts[0]
        if isinstance(part, ToolCall):
            calls.append(_write_call(entry, part))
        if entry.segment.kind != "thinking":
            content_entries.append(entry)
        elif not is_blank(text_of(entry.parts)):
            thoughts.append(text_of(entry.parts))
    content = _write_content(content_entries)
    said_elsewhere: Json = {}
    if thoughts:
        said_elsewhere["thinking"] = "\n".join(thoughts)
    if "images" in content:
        said_elsewhere["images"] = content.pop("images")
    if calls:
        said_elsewhere["tool_calls"] = calls
    if not content["content"] and not said_elsewhere:
        return None
    return {"role": "assistant", **_copy_other_fields(group[0]), **content, **said_elsewhere}


def _write_content(group: Sequence[Entry]) -> Json:
    """All text of a message in one string, and its pictures: as they came, or as base64.

    `[Text("Look:"), Image(…)]` becomes `{"content": "Look:", "images": ["iVBORw0…"]}`.
    """
    texts: list[str] = []
    images: list[Any] = []
    for entry in group:
        if _came_empty(entry):
            continue
        for part in entry.parts:
            match part:
                case Image():
                    images.append(_choose_image(read_sent_origin(entry, NAME).block, part))
                case Raw(data=data) if not data:
                    continue
                case Text() | Document() | Raw():
                    texts.append(text_of((part,)))
    filled_texts = (text for text in texts if not is_blank(text))
    return {"content": "\n".join(filled_texts)} | _make_images_field(images)


def _make_images_field(images: Iterable[Any]) -> Json:
    """The field that holds pictures; none if there are none. An empty text is a picture without its data."""
    sendable_images = list(filter(None, images))
    if not sendable_images:
        return {}
    return {"images": sendable_images}


def _choose_image(block: Any, picture: Image) -> Any:
    """The picture as it came, unless it is text that the API may not take, or did not come as a block.

    A path and an object of the SDK are sent as they came: the client reads the file.
    """
    is_text = isinstance(block, str) and bool(picture.data)
    if block is None or is_text:
        return encode_picture(picture)
    return block


def _write_result(entry: Entry, result: ToolResult) -> Json:
    """A result as a message: with the text and the pictures that it came with, if they did not change.

    Pictures whose data lamina does not have are named in the text.
    """
    message = {"role": "tool", **_copy_other_fields(entry)}
    # A name that the client gave stays, even if the call has another one: it says what the client ran.
    name = message.pop("tool_name", "") or name_or_unnamed(find_result_name(entry, result))
    pictures = [part for part in result.content if isinstance(part, Image)]
    old_message = to_fields(find_origin(entry, NAME).message)
    if old_message and not is_changed(entry, "content"):
        message["content"] = old_message.get("content") or ""
        message |= _make_images_field(map(_choose_image, old_message.get("images") or (), pictures))
        return message | {"tool_name": name}
    sendable_pictures = list(filter(encode_picture, pictures))
    text = write_as_text(part for part in result.content if part not in sendable_pictures)
    return message | {"content": text, "tool_name": name} | _make_images_field(map(encode_picture, pictures))


def _write_call(entry: Entry, call: ToolCall) -> Any:
    """A call as its block, which stays the same object if the API takes it and nothing in it changed.

    `{"function": {"name": "read", "arguments": {"path": "a.py"}}}`. Arguments that came as text become an
    object.
    """
    origin = find_origin(entry, NAME)
    wire_call = fields_or_empty(origin.block)
    function = fields_or_empty(wire_call.get("function"))
    has_object_arguments = not isinstance(function.get("arguments"), str | None)
    old_call = entry.segment.parts[0]
    is_same = isinstance(old_call, ToolCall) and old_call == msgspec.structs.replace(call, id=old_call.id)
    if is_same and call.name and has_object_arguments:
        return origin.block
    function = {**function, "name": name_or_unnamed(call.name), "arguments": write_arguments(call)}
    return {**wire_call, "function": function}


def _copy_other_fields(entry: Entry) -> Json:
    """The fields of an entry's message that this module does not write, without texts that are no text.

    An unknown field of the first message of a group is sent again, and a `tool_name` only if it is a text.
    """
    fields = drop_fields(to_fields(find_origin(entry, NAME).message), _WRITTEN_FIELDS)
    for name in TEXT_FIELDS:
        if not isinstance(fields.get(name), str):
            fields.pop(name, None)
    return fields
