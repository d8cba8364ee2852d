"""An envelope as a request of the Messages API.

A message of which nothing changed is the object that was parsed; of one that changed in part, the other
blocks are. Rendering mends what this API refuses: the results of one assistant message stand together, first
in the user message after it; a system message stands last on the user's side; a conversation that would begin
with the assistant begins with a user message that says so; names of tools that were called have letters that
the API takes; and of the client's cache markers, as many are left as it takes. It decides nothing about what
is sent, and places no markers: one on a lowered block stays there.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from itertools import groupby
from typing import Any

from lamina.core.envelope import Envelope
from lamina.core.repair import side
from lamina.core.values import Entry, Head, Layer, Raw, Ref, Role, Text, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects.anthropic.blocks import (
    Block,
    arguments_of,
    block_of,
    is_safe_name,
    plain,
    result_content,
    safe_name,
)
from lamina.dialects.anthropic.mark import with_allowed_marks
from lamina.dialects.anthropic.messages import Message, begins_compacted, is_server_result, opening, role_of
from lamina.dialects.anthropic.model import NAME, model_of, refuses_system_messages, takes_system_messages
from lamina.dialects.port import ON_THE_WIRE, grouped, groups, original, wire


def render(envelope: Envelope) -> dict[str, Any]:
    """The request for this envelope."""
    request = dict(envelope.head.parameters)
    found = groups(envelope)
    system = [entry for group in found if group[0].layer is Layer.SYSTEM for entry in group]
    said = [group for group in found if group[0].layer is not Layer.SYSTEM]
    if envelope.head.tools:
        request["tools"] = list(envelope.head.tools)
    if system:
        request["system"] = _system(system)
    request["messages"] = _messages(said, _Voices(model_of(request), envelope.ledger.repairs))
    return with_allowed_marks(request)


def _system(entries: list[Entry]) -> Any:
    """The system text as it came, or as blocks: a system message that nothing precedes belongs to it too."""
    whole = original(entries, NAME)
    if whole is not None and plain(whole) is None:
        return whole
    return [block for entry in entries for block in _blocks(entry)]


DEMOTED = "said in the user's voice: the model takes no system messages"


def lasting(envelope: Envelope) -> dict[Ref, str]:
    """System messages that are said in the user's voice, for a model that takes none. They stay so."""
    if not refuses_system_messages(model_of(envelope.head.parameters)):
        return {}
    later = [
        entry for entry in envelope.sent if entry.role is Role.SYSTEM and entry.layer is not Layer.SYSTEM
    ]
    return {Ref(f"{entry.ref}{ON_THE_WIRE}"): DEMOTED for entry in later if _note(entry)}


def _messages(said: list[list[Entry]], voices: _Voices) -> list[Message]:
    messages: list[Message] = []
    placed = _instructions_placed(said, voices)
    for voice, in_a_row in groupby(placed, key=lambda group: voices.of(group[0])):
        run = list(in_a_row)
        if voice == "user":
            run = _together(run)
        elif voice == "system":
            run = _joined(run)
        messages += [made for group in run if (made := _message(group, voice)) is not None]
    return _begun(messages)


class _Voices:
    """Whose message an entry is. Where the model takes no system messages, later instructions are the user's.

    Where it is not known whether it does, a client's own system messages are passed on. What an earlier
    request said in the user's voice stays so.
    """

    def __init__(self, model: str, repairs: Container[str] = ()) -> None:
        self.native = takes_system_messages(model)
        self.refused = refuses_system_messages(model)
        self.repairs = repairs

    def of(self, entry: Entry) -> str:
        if entry.role is not Role.SYSTEM:
            return side(entry.role)
        if f"{entry.ref}{ON_THE_WIRE}" in self.repairs or self.refused:
            return "user"
        return "system" if self.native or _note(entry) else "user"


def order(said: Sequence[Entry], head: Head) -> list[int]:
    """The positions of entries as they stand on the wire."""
    at = {id(entry): i for i, entry in enumerate(said)}
    placed = _instructions_placed(grouped(said), _Voices(model_of(head.parameters)))
    return [at[id(entry)] for group in placed for entry in group]


def _instructions_placed(said: list[list[Entry]], voices: _Voices) -> list[list[Entry]]:
    """The messages with each system message at the first place, from its own on, where the API takes it.

    A11: after the user or a server tool's result; last, or before the assistant. One without words may stand
    before the user too. What finds no place stands last: `check` says that it cannot stand there.
    """
    placed: list[list[Entry]] = []
    waiting: list[list[Entry]] = []
    may_follow = False
    for group in said:
        voice = voices.of(group[0])
        if voice == "system":
            stays = may_follow and not waiting and _sets_only(group[0])
            (placed if stays else waiting).append(group)
            continue
        if waiting and voice == "assistant" and may_follow:
            placed += waiting
            waiting = []
        placed.append(group)
        may_follow = voice == "user" or _served(group[-1])
    return placed + waiting


def _sets_only(entry: Entry) -> bool:
    """Whether a system message has no words: it came as a directive of this API."""
    return isinstance(entry.parts[0], Raw) and _note(entry).get("block") == []


def _served(entry: Entry) -> bool:
    part = entry.parts[-1]
    return isinstance(part, Raw) and part.dialect == NAME and is_server_result(part.data)


def _joined(run: list[list[Entry]]) -> list[list[Entry]]:
    """System messages in a row as one, which is what the API takes; directives stay by themselves."""
    joined: list[list[Entry]] = []
    for silent, in_a_row in groupby(run, key=lambda group: _sets_only(group[0])):
        same = list(in_a_row)
        joined += same if silent else [[entry for group in same for entry in group]]
    return joined


def _together(run: list[list[Entry]]) -> list[list[Entry]]:
    """What the user's side says in a row, with all its results in the first message."""
    last = max((i for i, group in enumerate(run) if any(map(_answers, group))), default=0)
    return [[e for group in run[: last + 1] for e in group], *run[last + 1 :]] if last else run


def _answers(entry: Entry) -> bool:
    return isinstance(entry.parts[0], ToolResult)


def _message(group: list[Entry], voice: str) -> Message | None:
    whole = original(group, NAME)
    if whole is not None and role_of(whole) == voice:
        return whole
    group = sorted(group, key=lambda entry: not _answers(entry))
    blocks = [block for entry in group for block in _blocks(entry)]
    if not blocks:
        return None
    fields: dict[str, Any] = {}
    for entry in group:
        if entry.role is not Role.SYSTEM or voice == "system":
            fields = _fields(entry) | fields
    return {"role": voice, **fields, "content": blocks[0]["text"] if _one_string(group) else blocks}


def _fields(entry: Entry) -> dict[str, Any]:
    """What the entry's message had besides role and content, if it was said in that voice."""
    note = _note(entry)
    if "of" in note and role_of(note["of"]) != side(entry.role):
        return {}
    whole = plain(note.get("message")) or note.get("fields", {})
    return {name: value for name, value in whole.items() if name not in ("role", "content")}


def _one_string(group: Sequence[Entry]) -> bool:
    """Whether a message is one text that did not come as a block."""
    parts = group[0].parts
    return len(group) == len(parts) == 1 and isinstance(parts[0], Text) and "block" not in _note(group[0])


def _note(entry: Entry) -> dict[str, Any]:
    """What parsing noted on the entry's segment, whether or not it is sent as it came."""
    note: dict[str, Any] = entry.segment.meta.get("wire", {})
    return note if note.get("dialect") == NAME else {}


def _blocks(entry: Entry) -> Iterable[Any]:
    came, part = _note(entry).get("block"), entry.parts[0]
    if isinstance(part, ToolCall) and not is_safe_name(part.name):
        return [_block(entry, part, came)]
    if came and wire(entry, NAME):
        return list(came)
    blocks = (_block(entry, part, came) for part in entry.parts)
    return [block for block in blocks if block is not None]


def _block(entry: Entry, part: Any, came: list[Any] | None) -> Block | None:
    was = [plain(block) or {} for block in came or ()]
    if was and isinstance(part, ToolCall | ToolResult):
        return _changed(part, was[0], entry.segment.parts[0])
    marks = [block["cache_control"] for block in was if block.get("cache_control")]
    foreign = entry.segment.meta.get("wire", {}).get("dialect", NAME) != NAME
    made = block_of(part, signed=not foreign)
    if made is None and isinstance(part, Raw) and entry.role is not Role.ASSISTANT:
        made = block_of(Text(text_of((part,))))
    return {**made, "cache_control": marks[-1]} if made is not None and marks else made


def _changed(part: ToolCall | ToolResult, was: Block, came: Any) -> Block:
    """The block of a call or result with only what changed made anew, so markers and unknown fields stay."""
    if isinstance(part, ToolCall):
        same = isinstance(came, ToolCall) and came.arguments == part.arguments
        arguments = was.get("input", {}) if same else arguments_of(part)
        return {**was, "id": part.id, "name": safe_name(part.name), "input": arguments}
    block = {**was, "tool_use_id": part.id}
    if isinstance(came, ToolResult) and came.content == part.content:
        return block
    return {**block, "content": result_content(part)}


def _begun(messages: list[Message]) -> list[Message]:
    """Messages that begin with the user, or with a compaction, which stands for what the user said."""
    if messages and role_of(messages[0]) == "assistant" and not begins_compacted(messages[0]):
        return [opening(), *messages]
    return messages
