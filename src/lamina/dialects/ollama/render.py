"""An envelope as a request of Ollama's chat API.

A message of which nothing changed is the very object that was parsed; one that changed in part is a shallow
copy in which unchanged pictures and calls are the same objects. Since results have no ids, those of one
message stand in the order of their calls wherever another order would be read wrongly. Nothing is left out
for want of room, and no window is set: what the server may cut off is for `check` to say.
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
from lamina.dialects.ollama.fields import NAME, arguments_of, encoded, named, plain
from lamina.dialects.ollama.parse import TEXTS
from lamina.dialects.pairing import Result, reading_order
from lamina.dialects.port import groups, original, wire
from lamina.dialects.words import said
from lamina.errors import BadInput

Json = dict[str, Any]


def render(envelope: Envelope) -> Json:
    """The request: parameters as they came, messages, tools."""
    writer = _Writer()
    for group in groups(envelope):
        message = original(group, NAME)
        if message is None:
            writer.write(group)
        else:
            writer.keep(message, group)
    writer.flush()
    if not writer.messages:
        hint = "add a message that says something"
        raise BadInput("nothing is left to send", place="messages", hint=hint)
    tools = {"tools": list(envelope.head.tools)} if envelope.head.tools else {}
    return {**envelope.head.parameters, "messages": writer.messages, **tools}


def carries(segment: Segment) -> str:
    """Why a segment that another dialect parsed cannot be said here; nothing if it can."""
    if segment.origin == NAME:
        return ""
    return next((why for part in segment.parts if (why := _unsaid(part, segment))), "")


def _unsaid(part: Part, segment: Segment) -> str:
    match part:
        case Thinking(signature=signature) if signature:
            return f"reasoning of {segment.origin or 'another model'} cannot be sent to {NAME}"
        case Raw(dialect=dialect) if dialect != NAME and segment.role is Role.ASSISTANT:
            what = "reasoning" if segment.kind == "thinking" else "a block"
            return f"{what} of {dialect} cannot be sent to {NAME}"
        case Image() if not encoded(part):
            what = "that is not base64" if part.data else "at an address"
            return f"a picture {what} cannot be sent to {NAME}"
        case Document(text=text) if not text:
            return f"a document without its text cannot be sent to {NAME}"
        case ToolResult(content=content):  # an address is said in full by its words, content is not
            media = (inner for inner in content if isinstance(inner, Image | Document) and inner.data)
            return next((why for inner in media if (why := _unsaid(inner, segment))), "")
    return ""


class _Writer:
    """Messages so far. `results` wait until the last of their step is there."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.calls: list[ToolCall] = []
        self.results: list[tuple[Any, Result]] = []

    def keep(self, message: Any, group: Sequence[Entry]) -> None:
        """A message as it came."""
        part = group[0].parts[0]
        if isinstance(part, ToolResult):
            self._answer(message, part)
        else:
            self._say([message], group)

    def write(self, group: Sequence[Entry]) -> None:
        """A message that changed: its results first, each a message of its own, then the rest."""
        rest = []
        for entry in group:
            part = entry.parts[0]
            if isinstance(part, ToolResult):
                self._answer(_result(entry, part), part)
            else:
                rest.append(entry)
        if rest:
            self._say(_assistant(rest) if rest[0].role is Role.ASSISTANT else _said(rest), rest)

    def flush(self) -> None:
        """The results of a step are complete."""
        order = reading_order(self.calls, [result for _, result in self.results])
        self.messages += [self.results[at][0] for at in order]
        self.results, self.calls = [], []

    def _answer(self, message: Any, part: ToolResult) -> None:
        said = plain(message)
        name, id_ = said.get("tool_name") or "", said.get("tool_call_id") or ""
        self.results.append((message, Result(asked=part.id, name=name, id=id_)))

    def _say(self, messages: list[Any], group: Sequence[Entry]) -> None:
        self.flush()
        self.messages += messages
        sent = (entry.parts[0] for entry in group)
        self.calls = [_as_sent(part) for part in sent if isinstance(part, ToolCall)]


def _as_sent(call: ToolCall) -> ToolCall:
    return ToolCall(id=call.id, name=named(call.name), arguments="")


def _said(group: Sequence[Entry]) -> list[Json]:
    content, images = _content(group)
    kept = any(isinstance(part, Raw) and part.dialect == NAME for e in group for part in e.parts)
    if not content and not images and not kept:
        return []
    role = "system" if group[0].role is Role.SYSTEM else "user"
    return [{"role": role, **_others(group[0]), "content": content, **images}]


def _assistant(group: Sequence[Entry]) -> list[Json]:
    thoughts = [
        text for e in group if e.segment.kind == "thinking" and not is_blank(text := text_of(e.parts))
    ]
    content, images = _content([e for e in group if e.segment.kind != "thinking"])
    calls = [_call(e, e.parts[0]) for e in group if isinstance(e.parts[0], ToolCall)]
    new: Json = {"thinking": "\n".join(thoughts)} if thoughts else {}
    new |= {**images, **({"tool_calls": calls} if calls else {})}
    if not content and not new:
        return []
    return [{"role": "assistant", **_others(group[0]), "content": content, **new}]


def _result(entry: Entry, result: ToolResult) -> Json:
    others = {name: value for name, value in _others(entry).items() if name != "tool_name"}
    images = [image for part in result.content if isinstance(part, Image) and (image := encoded(part))]
    text = said(part for part in result.content if not (isinstance(part, Image) and encoded(part)))
    before, name = entry.segment.parts[0], named(entry.asked.name if entry.asked else result.name)
    if isinstance(before, ToolResult) and before.content == result.content and _origin(entry):
        return {"role": "tool", **others, **_content_of(entry), "tool_name": name}
    new = {"role": "tool", **others, "content": text, "tool_name": name}
    return new | ({"images": images} if images else {})


def _content_of(entry: Entry) -> Json:
    """Text and pictures of a result that keeps them, in the shape that the API takes."""
    message = _origin(entry)
    result = entry.segment.parts[0]
    parts = result.content if isinstance(result, ToolResult) else ()
    pictures = [part for part in parts if isinstance(part, Image)]
    given = zip(message.get("images") or (), pictures, strict=True)
    images = [encoded(part) if isinstance(block, str) and part.data else block for block, part in given]
    return {"content": message.get("content") or "", **({"images": images} if images else {})}


def _content(group: Sequence[Entry]) -> tuple[str, Json]:
    """All text of a message in one string, and its pictures."""
    texts: list[str] = []
    images: list[Any] = []
    for entry in group:
        for part in entry.parts:
            if isinstance(part, Image):
                images.append(_image(entry, part))
            elif isinstance(part, Text | Document | Raw) and not is_blank(text := _text(part)):
                texts.append(text)
    images = [image for image in images if image]
    return "\n".join(texts), ({"images": images} if images else {})


def _text(part: Part) -> str:
    if isinstance(part, Raw):
        return "" if part.dialect == NAME or not part.data else text_of((part,))
    return text_of((part,))


def _image(entry: Entry, part: Image) -> Any:
    """The picture as it came, unless the API would not take it so."""
    block = entry.segment.meta.get("wire", {}).get("block") if wire(entry, NAME) else None
    return encoded(part) if block is None or (isinstance(block, str) and part.data) else block


def _call(entry: Entry, part: Part) -> Any:
    """A call as its block, which stays the same object if the API takes it and nothing in it changed."""
    if not isinstance(part, ToolCall):
        raise TypeError(part)
    note = entry.segment.meta.get("wire", {})
    block = note.get("block") if note.get("dialect") == NAME else None
    was = {} if block is None else plain(block)
    function = plain(was.get("function") or {})
    before = entry.segment.parts[0]
    same = isinstance(before, ToolCall) and (before.name, before.arguments) == (part.name, part.arguments)
    if block is not None and same and not isinstance(function.get("arguments"), str | None) and part.name:
        return block
    now = {**function, "name": named(part.name), "arguments": arguments_of(part)}
    return {**was, "function": now}


def _others(entry: Entry) -> Json:
    """What the message of an entry has beside the fields that are written here."""
    found = {name: value for name, value in _origin(entry).items() if name not in _WRITTEN}
    return {name: value for name, value in found.items() if name not in TEXTS or isinstance(value, str)}


_WRITTEN = frozenset(("role", "content", "images", "thinking", "tool_calls"))


def _origin(entry: Entry) -> Json:
    """The message that an entry was parsed from, unless it now speaks in another voice."""
    note = entry.segment.meta.get("wire", {})
    own = note.get("dialect") == NAME and entry.role is entry.segment.role
    return plain(note["of"]) if own else {}
