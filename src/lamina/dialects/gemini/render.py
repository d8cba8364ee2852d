"""Renders an envelope as a generateContent request, in the shape that it came in; else in the SDK's.

A content of which nothing changed is the object that was parsed. In a content that changed in part, the
unchanged parts are the same objects. Rendering mends what this API refuses: the calls of a step stand in one
content, and so do its results, right after it; calls that no Gemini model made, or that lost their
signature, carry the one that Google documents for them; a request that would begin with a call begins with
a content of the user. Later instructions are said in the user's voice, since only the head has system text.
Rendering decides nothing about what is sent.

A missing signature is refused in the current turn only (G4). A call that was signed here must stay so when
its turn is over, so `lasting` names it and the ledger keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import Any, NamedTuple

from lamina.core.entries import find_sent
from lamina.core.envelope import Envelope
from lamina.core.values import Entry, Form, Layer, Ref, Role, Thinking, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects.gemini.contents import LooseParts, read_extra_fields
from lamina.dialects.gemini.head import choose_spelling, read_declarations, write_request
from lamina.dialects.gemini.parts import (
    ID_PREFIX,
    stands_beside_result,
    write_block,
    write_media,
    write_response,
)
from lamina.dialects.gemini.wire import (
    FOREIGN_SIGNATURE,
    NAME,
    find_spelling,
    get_field,
    get_text,
    make_safe_name,
    requires_signatures,
    to_dict_or_empty,
    to_dict_or_none,
)
from lamina.dialects.json_values import Json, decode_arguments, drop_field
from lamina.dialects.origins import (
    ON_THE_WIRE,
    find_origin,
    find_other_dialect,
    find_unchanged_message,
    group_entries,
    is_changed,
    is_sent_as_it_came,
)
from lamina.dialects.pairing import find_result_name
from lamina.dialects.render_memo import RenderMemo, write_messages
from lamina.dialects.words import OPENING, ToolNames
from lamina.errors import BadInput

SIGNED = "signed by lamina: the call came without a thought signature"


def render(envelope: Envelope, memo: RenderMemo | None = None) -> Json:
    """The request for this envelope.

    System text stands in the head, everything else in `contents`.
    """
    writer = _GeminiWriter(envelope)
    write_messages(envelope, writer, memo)
    if not writer.messages:
        hint = "add a content that says something"
        raise BadInput("nothing is left to send", place="contents", hint=hint)
    return write_request(envelope.head, writer.unpack_loose_parts(), writer.write_system())


def lasting(envelope: Envelope, _start: int) -> dict[Ref, str]:
    """The calls of the current turn that must carry a signature and came without one.

    Only the first call of a content carries a signature, so only that one is looked at.
    """
    if not requires_signatures(get_text(envelope.head.parameters, "model")):
        return {}
    repairs: dict[Ref, str] = {}
    for _, group in _group_contents(_current_turn(envelope.entries)):
        call = _find_entry(group, ToolCall)
        if call is None:
            continue
        source = _read_source(call)
        if source.blocks and not get_field(source.block, "thoughtSignature"):
            repairs[Ref(f"{call.ref}{ON_THE_WIRE}")] = SIGNED
    return repairs


def _current_turn(entries: Sequence[Entry]) -> list[Entry]:
    """The entries that are sent after the user last said something that is not a result.

    Later instructions of the system are said in the user's voice, so they end a turn too.
    """
    turn: list[Entry] = []
    for entry in reversed(entries):
        if entry.form is Form.OMITTED:
            continue
        if entry.role is not Role.ASSISTANT and not isinstance(entry.parts[0], ToolResult):
            break
        turn.append(entry)
    turn.reverse()
    return turn


def _group_contents(entries: Sequence[Entry]) -> Iterator[tuple[str, list[Entry]]]:
    """Entries by content, each with the role of the content.

    What the model says in a row is one content if it makes calls, since calls come right after the user (G1).
    What the user's side says in a row has all its results in the first content, right after the calls (G2).
    """
    for role, groups_in_a_row in groupby(group_entries(entries), key=_role_of_group):
        groups = list(groups_in_a_row)
        joined_count = 1
        for count, group in enumerate(groups, start=1):
            if _find_entry(group, ToolResult):
                joined_count = count
            if _find_entry(group, ToolCall):
                joined_count = len(groups)
        yield role, list(chain.from_iterable(groups[:joined_count]))
        for group in groups[joined_count:]:
            yield role, group


def _role_of_group(group: Sequence[Entry]) -> str:
    """Who says a group: "model", or "user" for everyone else."""
    if group[0].role is Role.ASSISTANT:
        return "model"
    return "user"


def _find_entry(group: Sequence[Entry], part_type: type[ToolCall | ToolResult]) -> Entry | None:
    """The first call of a group, or its first result; None without one.

    A step has its calls in one content, so the first one stands for all of them.
    """
    for entry in group:
        if isinstance(entry.parts[0], part_type):
            return entry
    return None


class _GeminiWriter:
    """Writes the contents of one request: it knows the spelling, the signatures and the names of tools.

    `messages` are the contents, with loose parts among them, of which `loose_roles` has the roles by their
    positions. `all_parsed`: each is an object that came in. System text waits in `system_entries`.
    """

    def __init__(self, envelope: Envelope) -> None:
        """Find what is the same for the whole request.

        A call that an earlier request signed stays signed, and so do those that this request has to sign.
        """
        parameters = envelope.head.parameters
        self.spell = choose_spelling(parameters)
        self.requires_signatures = requires_signatures(get_text(parameters, "model"))
        self.signed_refs = {ref for ref, repair in envelope.ledger.repairs.items() if repair == SIGNED}
        self._settled_refs = frozenset(self.signed_refs)
        self.signed_refs.update(lasting(envelope, 0))
        declarations = read_declarations(envelope.head.tools)
        names = (get_text(declaration, "name") for _, _, declaration in declarations)
        self.tool_names = ToolNames(names, make_safe_name)
        self.messages: list[Any] = []
        self.loose_roles: dict[int, str] = {}
        self.all_parsed = True
        self.system_entries: list[Entry] = []

    def save(self) -> Any:
        """What was written, unless a later request may write it in another way.

        Loose parts depend on all other contents, and a call that only this request signs on its turn.
        """
        if self.loose_roles or self._settled_refs != self.signed_refs:
            return None
        return list(self.system_entries), self.all_parsed

    def restore(self, saved: Any) -> None:
        system_entries, self.all_parsed = saved
        self.system_entries += system_entries

    def write(self, entries: Sequence[Entry]) -> None:
        """Add the contents of entries, as they came if nothing of them changed.

        If the user's words at the beginning were left out, and the model begins with a call, an opening of
        the user's comes first.
        """
        other_entries: list[Entry] = []
        for entry in find_sent(entries):
            if entry.layer is Layer.SYSTEM:
                self.system_entries.append(entry)
            else:
                other_entries.append(entry)
        for role, group in _group_contents(other_entries):
            content = self.write_content(role, group)
            if content is None:
                continue
            if role == "model" and not self.messages and _find_entry(group, ToolCall):
                # G1: the API wants a content of the user before a call.
                self.messages.append({"role": "user", "parts": [{"text": OPENING}]})
                self.all_parsed = False
            if isinstance(content, LooseParts):
                self.loose_roles[len(self.messages)] = role
            if content is not _read_source(group[0]).message:
                self.all_parsed = False
            self.messages.append(content)

    def unpack_loose_parts(self) -> Any:
        """The value of `contents`, with loose parts as they came: alone, or in the list.

        Between contents that were written anew, loose parts get a content of their own, since the SDK refuses
        a mixture.

        `["Hi", image]` stays a list of two parts. Beside a content that was written anew it becomes `{"role":
        "user", "parts": [{"text": "Hi"}, image]}`.
        """
        match self.messages:
            case [LooseParts(bare=True) as loose_parts]:
                return loose_parts[0]
        if not self.loose_roles:
            return self.messages
        stay_loose = self.all_parsed or len(self.loose_roles) == len(self.messages)
        contents: list[Any] = []
        for position, content in enumerate(self.messages):
            if position not in self.loose_roles:
                contents.append(content)
            elif stay_loose:
                contents += content
            else:
                parts = list(map(_wrap_text, content))
                contents.append({"role": self.loose_roles[position], "parts": parts})
        return contents

    def write_system(self) -> Any:
        """The system text as it came, or as parts; None without any.

        `"Be brief."` stays that text. Lowered text becomes `{"parts": [{"text": "…"}]}`.
        """
        entries = self.system_entries
        if not entries:
            return None
        system = find_unchanged_message(entries, NAME)
        if system is not None:
            return system
        parts: list[Any] = []
        for entry in entries:
            parts += map(_wrap_text, self._write_entry(entry))
        if not parts:
            return None
        return {"parts": parts}

    def write_content(self, role: str, group: list[Entry]) -> Any:
        """The content of a group: as it came if nothing of it changed; None if it says nothing.

        If all of the group came from one content, the other fields of that content are sent too.
        """
        content = find_unchanged_message(group, NAME)
        if content is not None and not any(map(self._is_signed_here, group)):
            return content
        parts = list(map(_wrap_text, self._write_parts(group)))
        if not parts:
            return None
        messages = [_read_source(entry).message for entry in group]
        other_fields: Json = {}
        if all(message is messages[0] for message in messages):
            other_fields = read_extra_fields(messages[0])
        return {"role": role, "parts": parts, **other_fields}

    def _write_parts(self, group: list[Entry]) -> Iterator[Any]:
        """The parts of a content: results first, then their media, then the rest.

        Results must come first, since they belong to the calls of the content before them.
        """
        media: list[Json] = []
        for entry in group:
            part = entry.parts[0]
            if isinstance(part, ToolResult):
                yield self._write_result(entry, part)
                media += self._write_result_media(entry, part)
        yield from media
        needs_signature = self.requires_signatures
        for entry in group:
            part = entry.parts[0]
            if isinstance(part, ToolCall):
                yield self._write_call(entry, part, needs_signature=needs_signature)
                needs_signature = False  # only the first call of a content carries one
            elif not isinstance(part, ToolResult):
                yield from self._write_entry(entry)

    def _write_entry(self, entry: Entry) -> list[Any]:
        """The parts of an entry: as they came, else with new text, else from its typed parts.

        The signature of a part was made for its old text, so it is left out if the text is new.
        """
        source = _read_source(entry)
        if source.blocks and is_sent_as_it_came(entry, NAME):
            return list(source.blocks)
        if len(source.blocks) == 1 and isinstance(source.block.get("text"), str):
            unsigned = drop_field(source.block, find_spelling(source.block, "thoughtSignature"))
            return [{**unsigned, "text": text_of(entry.parts)}]
        if isinstance(entry.parts[0], Thinking) and find_other_dialect(entry.segment, NAME):
            return []
        blocks = (write_block(part, self.spell) for part in entry.parts)
        return list(filter(None, blocks))

    def _write_call(self, entry: Entry, call: ToolCall, *, needs_signature: bool) -> Any:
        """A call as its part, in which only what changed is new; a call from elsewhere gets a signature.

        `{"functionCall": {"name": "read", "args": {"path": "a.py"}}, "thoughtSignature": "…"}`. Fields of a
        call that this module does not know stay.
        """
        source = _read_source(entry)
        field = find_spelling(source.block, "functionCall") or self.spell("functionCall")
        function_call = dict(to_dict_or_empty(source.block.get(field)))
        if _has_wire_id(call.id):
            function_call["id"] = call.id
        function_call["name"] = self.tool_names.choose(call.name)
        comes_from_elsewhere = not source.blocks
        if comes_from_elsewhere or is_changed(entry, "arguments"):
            function_call["args"] = decode_arguments(call.arguments)
        block = {**source.block, field: function_call}
        is_unsigned = comes_from_elsewhere and needs_signature
        if is_unsigned or self._is_signed_here(entry):
            block[self.spell("thoughtSignature")] = FOREIGN_SIGNATURE
        return source.keep_equal(block)

    def _write_result(self, entry: Entry, result: ToolResult) -> Any:
        """A result as its part, in which only what changed is new.

        `{"functionResponse": {"name": "read", "response": {"output": "…"}}}`. It has the name of its call,
        whatever it came with.
        """
        source = _read_source(entry)
        field = find_spelling(source.block, "functionResponse") or self.spell("functionResponse")
        function_response = dict(to_dict_or_empty(source.block.get(field)))
        function_response.pop("id", None)  # its call decides, and may have none on the wire
        if _has_wire_id(result.id):
            function_response["id"] = result.id
        function_response["name"] = self.tool_names.choose(find_result_name(entry, result))
        old_response = to_dict_or_none(function_response.get("response"))
        if old_response is None or is_changed(entry, "content"):
            function_response["response"] = write_response(result, old_response or {})
            function_response.pop("parts", None)
        return source.keep_equal({**source.block, field: function_response})

    def _write_result_media(self, entry: Entry, result: ToolResult) -> list[Json]:
        """Media of a result that is written anew, which stand beside it.

        A result that came from this API holds its media itself, as long as nothing of it changed.
        """
        came_from_here = len(_read_source(entry).blocks) > 0
        if came_from_here and not is_changed(entry, "content"):
            return []
        media = filter(stands_beside_result, result.content)
        return [write_media(part, self.spell) for part in media]

    def _is_signed_here(self, entry: Entry) -> bool:
        """Whether this call carries a signature of lamina's, now or since an earlier request."""
        if not self.signed_refs:
            return False
        return f"{entry.ref}{ON_THE_WIRE}" in self.signed_refs


class _Source(NamedTuple):
    """What an entry was parsed from: the content, and its blocks there. An entry from elsewhere has none."""

    message: Any = None
    blocks: Sequence[Any] = ()

    @property
    def block(self) -> Json:
        """The first of the blocks as a dict; empty without one."""
        if not self.blocks:
            return {}
        return to_dict_or_empty(self.blocks[0])

    def keep_equal(self, block: Json) -> Any:
        """The block to send; the one that came, as the object that it is, if the two are equal.

        Equal objects are not enough: a client may compare the parts of its request by identity.
        """
        if self.blocks and block == self.block:
            return self.blocks[0]
        return block


def _read_source(entry: Entry) -> _Source:
    """What parsing noted on the entry's segment; nothing if the entry's role has changed since."""
    origin = find_origin(entry, NAME)
    return _Source(origin.message, origin.block or ())


def _wrap_text(part: Any) -> Any:
    """A part as it stands in a content, where text needs its field."""
    if isinstance(part, str):
        return {"text": part}
    return part


def _has_wire_id(call_id: str) -> bool:
    """Whether an id is sent: ids that were made for the log are not.

    Calls of this API may come without an id, and the log then has one that nobody else knows.
    """
    return call_id != "" and not call_id.startswith(ID_PREFIX)
