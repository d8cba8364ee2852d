"""An envelope as a request of the Responses API.

An item of which nothing changed is the very object that was parsed. One that changed in part is a shallow
copy with new content, in which unchanged blocks are the same objects. What lamina made itself, or another
dialect parsed, is written from its typed parts. A call of a built-in tool that can no longer be said as such
becomes the call of a function, and so does its output. Nothing is left out here for want of room: only
reasoning that the API would refuse, as `fates` says.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lamina.core.arrange import pairs
from lamina.core.envelope import Envelope
from lamina.core.hashing import stem
from lamina.core.text.characters import is_blank
from lamina.core.values import (
    Entry,
    Form,
    Head,
    Layer,
    Raw,
    Ref,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from lamina.core.wording import text_of
from lamina.dialects.openai_responses.fates import fates, item_key, note_of
from lamina.dialects.openai_responses.items import (
    NAMED,
    NEEDS_ID,
    OUTPUT_OF,
    OUTPUTS,
    answer_is_whole,
    id_field,
    reworded,
    safe_name,
    sort_of,
)
from lamina.dialects.openai_responses.mark import with_allowed_marks
from lamina.dialects.openai_responses.parse import as_item, continues
from lamina.dialects.openai_responses.parts import (
    MARKED,
    MARKER,
    NAME,
    SPOKEN,
    WORDS,
    Json,
    block_of,
    fits,
    plain,
    spoken,
)
from lamina.dialects.port import ON_THE_WIRE, failed, original, wire
from lamina.errors import BadInput

NAMELESS = "sent without its id: the reasoning that led to it was left out"


def lasting(envelope: Envelope) -> dict[Ref, str]:
    """The items that are sent without their id. They stay so, whatever becomes of their reasoning."""
    bare = fates(envelope.entries, envelope.ledger.repairs).bare
    sent = [envelope.entries[i] for i in sorted(bare) if envelope.entries[i].form is not Form.OMITTED]
    named = [entry for entry in sent if "id" in as_item(note_of(entry).get("of", {}))]
    return {Ref(f"{stem(entry.ref)}{ON_THE_WIRE}"): NAMELESS for entry in named}


def render(envelope: Envelope) -> Json:
    """The request: parameters as they came, instructions, items, tools."""
    decided = fates(envelope.entries, envelope.ledger.repairs)
    sent = [(i, e) for i, e in enumerate(envelope.entries) if e.form is not Form.OMITTED]
    sent = [(i, e) for i, e in sent if i not in decided.dropped]
    instructions, rest = _instructions(sent)
    writer = _Writer(envelope.head, _unsayable(sent, decided.bare))
    for group in _as_given(_groups(rest)):
        writer.write([e for _, e in group], bare=group[0][0] in decided.bare)
    request = {**envelope.head.parameters, **instructions}
    trigger = request.get("input") or []  # what parsing left in the head
    if writer.items:
        request["input"] = _input([*writer.items, *trigger])
    elif not trigger and not continues(request):
        hint = "add an item that says something"
        raise BadInput("nothing is left to send", place="input", hint=hint)
    if envelope.head.tools:
        request["tools"] = list(envelope.head.tools)
    return with_allowed_marks(request)


_Placed = list[tuple[int, Entry]]


def _instructions(sent: _Placed) -> tuple[Json, _Placed]:
    """The system text that stands before every item, and what is left."""
    end = 0
    while end < len(sent) and _instructs(sent[end][1]):
        end += 1
    if not end:
        return {}, sent
    whole = original([sent[0][1]], NAME) if end == 1 else None
    text = whole if isinstance(whole, str) else "\n\n".join(text_of(e.parts) for _, e in sent[:end])
    return {"instructions": text}, sent[end:]


def _instructs(entry: Entry) -> bool:
    note = note_of(entry)
    words = all(isinstance(part, Text) for part in entry.parts)
    return entry.layer is Layer.SYSTEM and words and ("field" in note or not note)


def _groups(sent: _Placed) -> Iterator[_Placed]:
    """Entries of one item, or of one message that did not come as items."""
    group: _Placed = []
    for i, entry in sent:
        if group and (item_key(entry) != item_key(group[-1][1]) or (entry.opens and not note_of(entry))):
            yield group
            group = []
        group.append((i, entry))
    if group:
        yield group


def _as_given(found: Iterable[_Placed]) -> list[_Placed]:
    """Items in the order of the client: here others may stand between a call and its output.

    The log has them after the output, so that calls and outputs are neighbours for the core.
    """
    given: list[_Placed] = []
    for group in found:
        at = len(given)
        if group[0][1].role in (Role.USER, Role.SYSTEM):
            while at and _came_later(given[at - 1][0][1], group[0][1]):
                at -= 1
        given.insert(at, group)
    return given


def _came_later(output: Entry, other: Entry) -> bool:
    """Whether an output was given after another item that the log has behind it."""
    after, before = note_of(output).get("at"), note_of(other).get("at")
    if after is None or before is None or output.role is not Role.TOOL:
        return False
    return bool(after > before)


def _input(items: list[Any]) -> Any:
    """The items; a lone string as it came."""
    if len(items) == 1 and isinstance(items[0], str):
        return items[0]
    return [_item("user", item) if isinstance(item, str) else item for item in items]


class _Writer:
    """Items so far, with the type that each call was written as; some must be told as calls of functions."""

    def __init__(self, head: Head, as_functions: Iterable[str]) -> None:
        self.items: list[Any] = []
        self._types: dict[str, str] = {}
        self._written: set[tuple[int, int] | None] = set()
        self._defined = frozenset(_names(head))
        self._as_functions = frozenset(as_functions)

    def write(self, group: Sequence[Entry], *, bare: bool) -> None:
        note = note_of(group[0])
        if not note or "field" in note:
            self.items += self._made(group)
        else:
            self._item(group, note, bare=bare)
            self._written.add(item_key(group[0]))

    def _item(self, group: Sequence[Entry], note: Json, *, bare: bool) -> None:
        came, item = original(group, NAME), as_item(note["of"])
        loses_its_turn = bare and sort_of(item) != "compaction"  # which stands for what was before it
        nameless = loses_its_turn or "anonymous" in note or item_key(group[0]) in self._written
        part = group[0].parts[0]
        if isinstance(part, ToolCall):
            self._types[part.id] = sort_of(item)
        if (
            came is not None
            and not (nameless and "id" in item and sort_of(item) != "item_reference")
            and not self._paired_anew(part)
        ):
            self.items.append(came)
            return
        new = self._changed(group, item)
        drop = nameless and sort_of(item) not in ("local_shell_call_output", "item_reference")
        self.items += [_nameless(one) if drop and isinstance(one, dict) else one for one in new]

    def _paired_anew(self, part: Any) -> bool:
        return isinstance(part, ToolCall | ToolResult) and part.id in self._as_functions

    def _changed(self, group: Sequence[Entry], item: Json) -> list[Any]:
        entry, part = group[0], group[0].parts[0]
        if isinstance(part, ToolCall):
            return [self._call(part, item)]
        if isinstance(part, ToolResult):
            return [self._result(part, item, entry)]
        if sort_of(item) == "message":
            return _message(group, item)
        if wire(entry, NAME):
            return [item]
        if sort_of(item) in OUTPUTS:
            return [reworded(item, text_of(entry.parts)) or {**item, "output": text_of(entry.parts)}]
        return self._made(group)

    def _made(self, group: Sequence[Entry]) -> list[Json]:
        """A message from its typed parts: each call and result an item of its own, in order."""
        made: list[Json] = []
        content: list[Json] = []
        role = _voice(group[0])
        for entry in group:
            for part in entry.parts:
                if isinstance(part, ToolCall | ToolResult):
                    made += _said(role, content)
                    content = []
                    made.append(
                        self._call(part, {}) if isinstance(part, ToolCall) else self._result(part, {}, entry)
                    )
                elif not isinstance(part, Thinking) and not _blank(part):
                    content.append(block_of(part))
        return made + _said(role, content)

    def _call(self, call: ToolCall, item: Json) -> Json:
        sort = sort_of(item) if item else "function_call"
        if call.id in self._as_functions or sort == "function_call":
            self._types[call.id] = "function_call"
            was = item if sort == "function_call" else {}
            named = {"name": self._name(call.name), "arguments": call.arguments}
            return {**was, "type": "function_call", "call_id": call.id, **named}
        if sort == "custom_tool_call":
            return {**item, "call_id": call.id, "name": self._name(call.name), "input": _free(call)}
        return {**item, id_field(item): call.id}

    def _result(self, result: ToolResult, item: Json, entry: Entry) -> Json:
        """An output of the type that its call has; the same content if only its id changed."""
        asked = self._types.get(result.id, "function_call")
        if not item or result.id in self._as_functions:
            item = {"type": OUTPUT_OF.get(asked, "function_call_output")}
        else:
            before = entry.segment.parts[0]
            if isinstance(before, ToolResult) and before.content == result.content and answer_is_whole(item):
                return {**item, id_field(item): result.id}
        new = reworded(item, failed(result, text_of(result.content))) or {
            **item,
            "output": _output(result, item),
        }
        return {**new, id_field(item): result.id}

    def _name(self, name: str) -> str:
        """A name that the API takes; what the request itself defines is left alone."""
        return name if name in self._defined else safe_name(name)


def _unsayable(sent: _Placed, bare: frozenset[int]) -> Iterator[str]:
    """Ids of calls of built-in tools to be told as calls of functions, since half of the pair changed."""
    entries = [entry for _, entry in sent]
    for at, answer in pairs(entries):
        call, note = entries[at].parts[0], note_of(entries[at])
        sort = sort_of(as_item(note["of"])) if note else "function_call"
        if sort in NAMED or not isinstance(call, ToolCall):
            continue
        nameless = sent[at][0] in bare or "anonymous" in note
        if (nameless and sort in NEEDS_ID) or not _as_called(entries[at]) or not _told(entries[answer], sort):
            yield call.id


def _as_called(entry: Entry) -> bool:
    came, now = entry.segment.parts[0], entry.parts[0]
    return isinstance(came, ToolCall) and isinstance(now, ToolCall) and came.arguments == now.arguments


def _told(entry: Entry, sort: str) -> bool:
    """Whether an output says what it said, or may say something else, as the output of such a call."""
    came, now = entry.segment.parts[0], entry.parts[0]
    same = isinstance(came, ToolResult) and isinstance(now, ToolResult) and came.content == now.content
    return (same and bool(note_of(entry))) or reworded({"type": OUTPUT_OF[sort]}, "") is not None


def _message(group: Sequence[Entry], item: Json) -> list[Any]:
    """A message with new content: text where it was text."""
    if isinstance(item.get("content"), str):
        return [{**item, "content": text_of(group[0].parts)}] if not _verbatim(group) else [item]
    if _verbatim(group):
        return [item]
    blocks = [block for entry in group for block in _blocks(entry, str(item["role"]))]
    return [{**item, "content": blocks}] if blocks else []


def _verbatim(group: Sequence[Entry]) -> bool:
    """Whether it is a message that says nothing, kept as it came."""
    return len(group) == 1 and bool(wire(group[0], NAME)) and "block" not in note_of(group[0])


def _blocks(entry: Entry, role: str) -> list[Any]:
    """The block that it came as, else a copy of that with new text."""
    block = note_of(entry).get("block")
    was = plain(block) if block is not None else {}
    if wire(entry, NAME) and block is not None and fits(was, role):
        return [block]
    if wire(entry, NAME) and was.get("type") not in WORDS:
        return []  # pictures and files are the user's to show
    text, sort = text_of(entry.parts), was.get("type")
    if role == "assistant":
        kept = {name: value for name, value in was.items() if name not in ("annotations", "logprobs", MARKER)}
        return [{**kept, "refusal": text}] if sort == "refusal" else [{**_words(kept), **spoken(text)}]
    marker = {MARKER: was[MARKER]} if sort in MARKED and was.get(MARKER) else {}
    return [{**_words(was), "type": "input_text", "text": text, **marker}]


def _words(block: Json) -> Json:
    """The fields of a block of text, to keep; none of another sort of block."""
    return block if block.get("type") in WORDS and block["type"] not in SPOKEN - {"output_text"} else {}


def _said(role: str, content: list[Json]) -> list[Json]:
    """Content as messages. The assistant says each text by itself: parts are for answers that have an id."""
    if not content:
        return []
    if role == "assistant":
        return [_item(role, block["text"]) for block in content if "text" in block]
    lone = content[0] if len(content) == 1 else {}
    return [_item(role, lone["text"] if lone.keys() == {"type", "text"} else content)]


def _item(role: str, content: Any) -> Json:
    return {"type": "message", "role": role, "content": content}


def _output(result: ToolResult, item: Json) -> Any:
    """What a function answered: text, or parts where there is more; a marker stays on the last of them."""
    was = item.get("output")
    markers = (
        [b[MARKER] for b in was if isinstance(b, dict) and b.get(MARKER)] if isinstance(was, list) else []
    )
    texts = [part.text for part in result.content if isinstance(part, Text)]
    if len(texts) == len(result.content) <= 1 and not markers:
        return failed(result, "".join(texts))
    blocks = [block_of(part) for part in result.content]
    if result.error and texts:
        at = next(i for i, part in enumerate(result.content) if isinstance(part, Text))
        blocks[at] = {"type": "input_text", "text": failed(result, texts[0])}
    if markers and blocks:
        blocks[-1] = {**blocks[-1], MARKER: markers[-1]}
    return blocks or ""


def _free(call: ToolCall) -> str:
    """The free text of a custom call, which the log keeps as JSON."""
    try:
        given = json.loads(call.arguments)["input"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return call.arguments
    return given if isinstance(given, str) else call.arguments


def _nameless(item: Json) -> Json:
    return {name: value for name, value in item.items() if name != "id"}


def _voice(entry: Entry) -> str:
    return entry.role.value if entry.role in (Role.SYSTEM, Role.ASSISTANT) else "user"


def _blank(part: Any) -> bool:
    nothing = isinstance(part, Raw) and part.dialect != NAME and not part.data
    return nothing or (isinstance(part, Text) and is_blank(part.text))


def _names(head: Head) -> Iterator[str]:
    for tool in head.tools:
        name = tool.get("name")
        if isinstance(name, str):
            yield name
