"""An envelope as a generateContent request, in the shape that it came in; else in that of the SDK.

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
from typing import Any

from lamina.core.envelope import Envelope
from lamina.core.values import Entry, Form, Layer, Ref, Role, Thinking, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects.gemini.contents import LooseParts, read_extra_fields
from lamina.dialects.gemini.head import choose_spelling, read_declarations, write_request
from lamina.dialects.gemini.parts import (
    ID_PREFIX,
    stands_beside_result,
    write_arguments,
    write_block,
    write_response,
)
from lamina.dialects.gemini.wire import (
    FOREIGN_SIGNATURE,
    LISTS,
    NAME,
    Json,
    find_spelling,
    get_field,
    get_model,
    get_text,
    make_safe_name,
    requires_signatures,
    to_dict_or_empty,
    to_dict_or_none,
    to_dicts,
)
from lamina.dialects.origins import (
    ON_THE_WIRE,
    find_other_dialect,
    find_unchanged_message,
    group_entries,
    read_note,
)
from lamina.dialects.words import OPENING
from lamina.errors import BadInput

SIGNED = "signed by lamina: the call came without a thought signature"


def render(envelope: Envelope) -> Json:
    """The request for this envelope."""
    writer = _GeminiWriter(envelope)
    system_entries = []
    other_entries = []
    for entry in envelope.sent:
        if entry.layer is Layer.SYSTEM:
            system_entries.append(entry)
        else:
            other_entries.append(entry)
    contents = _write_contents(writer, other_entries)
    return write_request(envelope.head, contents, writer.write_system(system_entries))


def lasting(envelope: Envelope) -> dict[Ref, str]:
    """The calls of the current turn that must carry a signature and came without one."""
    if not requires_signatures(get_model(envelope.head.parameters)):
        return {}
    repairs: dict[Ref, str] = {}
    for role, group in _group_contents(_current_turn(envelope.entries)):
        if role == "user":
            continue
        first_call = _find_call(group)
        if first_call is not None and _came_unsigned(first_call):
            repairs[Ref(f"{first_call.ref}{ON_THE_WIRE}")] = SIGNED
    return repairs


def _find_call(group: Sequence[Entry]) -> Entry | None:
    """The first call of a group; None without one."""
    for entry in group:
        if isinstance(entry.parts[0], ToolCall):
            return entry
    return None


def _current_turn(entries: Sequence[Entry]) -> list[Entry]:
    """The entries that are sent after the user last said something that is not a result."""
    turn: list[Entry] = []
    for entry in reversed(entries):
        if entry.form is Form.OMITTED:
            continue
        if entry.role is not Role.ASSISTANT and not _is_result(entry):
            break
        turn.append(entry)
    turn.reverse()
    return [entry for entry in turn if entry.layer is not Layer.SYSTEM]


def _group_contents(entries: Sequence[Entry]) -> Iterator[tuple[str, list[Entry]]]:
    """Entries by content, each with the role of the content."""
    for role, groups_in_a_row in groupby(group_entries(entries), key=_role_of_group):
        groups = list(groups_in_a_row)
        join_groups = _join_results if role == "user" else _join_calls
        for group in join_groups(groups):
            yield role, group


def _role_of_group(group: Sequence[Entry]) -> str:
    return "model" if group[0].role is Role.ASSISTANT else "user"


def _join_calls(groups: list[list[Entry]]) -> list[list[Entry]]:
    """What the model says in a row, in one content if it makes calls: they come right after the user."""
    if any(_find_call(group) is not None for group in groups):
        return [list(chain.from_iterable(groups))]
    return groups


def _join_results(groups: list[list[Entry]]) -> list[list[Entry]]:
    """What the user's side says in a row, with all its results in the first content."""
    last_index = 0
    for i, group in enumerate(groups):
        if any(map(_is_result, group)):
            last_index = i
    first_group = list(chain.from_iterable(groups[: last_index + 1]))
    return [first_group, *groups[last_index + 1 :]]


def _came_unsigned(call_entry: Entry) -> bool:
    """Whether a call came as a part of this API without a signature."""
    blocks = _get_note(call_entry).get("block")
    if blocks is None:
        return False
    return not get_field(to_dict_or_empty(blocks[0]), "thoughtSignature")


class _GeminiWriter:
    """Writes the contents of one request: it knows the spelling, the signatures and the names of tools."""

    def __init__(self, envelope: Envelope) -> None:
        parameters = envelope.head.parameters
        self.spell = choose_spelling(parameters)
        self.requires_signatures = requires_signatures(get_model(parameters))
        self.signed_refs = {ref for ref, repair in envelope.ledger.repairs.items() if repair == SIGNED}
        self.signed_refs.update(lasting(envelope))
        self.defined_names = set()
        for _, _, declaration in read_declarations(envelope.head.tools):
            self.defined_names.add(get_text(declaration, "name"))

    def write_system(self, entries: list[Entry]) -> Any:
        """The system text as it came, or as parts; None without any."""
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
        """The content of a group: as it came if nothing of it changed; None if it says nothing."""
        content = find_unchanged_message(group, NAME)
        if content is not None and not any(map(self._is_signed_here, group)):
            return content
        parts = [_wrap_text(part) for part in self._write_parts(group)]
        if not parts:
            return None
        return {"role": role, "parts": parts, **_read_common_fields(group)}

    def _write_parts(self, group: list[Entry]) -> Iterator[Any]:
        """The parts of a content: results first, then their media, then the rest."""
        results = [entry for entry in group if _is_result(entry)]
        for entry in results:
            yield from self._write_entry(entry)
        for entry in results:
            yield from self._write_result_media(entry)
        needs_signature = self.requires_signatures
        for entry in group:
            part = entry.parts[0]
            if isinstance(part, ToolCall):
                yield self._write_call(entry, part, needs_signature=needs_signature)
                needs_signature = False  # only the first call of a content carries one
            elif not isinstance(part, ToolResult):
                yield from self._write_entry(entry)

    def _write_entry(self, entry: Entry) -> list[Any]:
        """The parts of an entry: as they came, else with new text, else from its typed parts."""
        part = entry.parts[0]
        if isinstance(part, ToolResult):
            return [self._write_result(entry, part)]
        old_blocks = _get_note(entry).get("block")
        if old_blocks and read_note(entry, NAME):
            return list(old_blocks)
        old_text_block = _get_text_block(old_blocks)
        if old_text_block is not None:
            return [_replace_text(old_text_block, text_of(entry.parts))]
        if isinstance(part, Thinking) and find_other_dialect(entry.segment, NAME):
            return []
        blocks = [write_block(part, self.spell) for part in entry.parts]
        return [block for block in blocks if block is not None]

    def _write_call(self, entry: Entry, call: ToolCall, *, needs_signature: bool) -> Any:
        """A call as its part, in which only what changed is new; a call from elsewhere gets a signature."""
        old_blocks = _get_note(entry).get("block")
        old_block = _get_first_block(old_blocks)
        field = find_spelling(old_block, "functionCall") or self.spell("functionCall")
        function_call = dict(to_dict_or_empty(old_block.get(field)))
        if _has_wire_id(call.id):
            function_call["id"] = call.id
        function_call["name"] = self._allowed_name(call.name)
        if not old_blocks or _has_new_arguments(entry, call):
            function_call["args"] = write_arguments(call)
        block = {**old_block, field: function_call}
        comes_from_elsewhere = not old_blocks
        if self._is_signed_here(entry) or (needs_signature and comes_from_elsewhere):
            block[self.spell("thoughtSignature")] = FOREIGN_SIGNATURE
        return _keep_equal_block(old_blocks, block)

    def _write_result(self, entry: Entry, result: ToolResult) -> Any:
        """A result as its part, in which only what changed is new."""
        old_blocks = _get_note(entry).get("block")
        old_block = _get_first_block(old_blocks)
        field = find_spelling(old_block, "functionResponse") or self.spell("functionResponse")
        function_response = dict(to_dict_or_empty(old_block.get(field)))
        function_response.pop("id", None)
        if _has_wire_id(result.id):
            function_response["id"] = result.id
        name = entry.asked.name if entry.asked else result.name
        function_response["name"] = self._allowed_name(name)
        old_response = to_dict_or_none(function_response.get("response"))
        if old_response is None or _has_new_content(entry, result):
            function_response["response"] = write_response(result, old_response or {})
            function_response.pop("parts", None)
        block = {**old_block, field: function_response}
        return _keep_equal_block(old_blocks, block)

    def _write_result_media(self, entry: Entry) -> Iterator[Json]:
        """Media of a result that is written anew, which stand beside it."""
        result = entry.parts[0]
        if not isinstance(result, ToolResult):
            return
        if _get_note(entry) and not _has_new_content(entry, result):
            return
        for part in result.content:
            if not stands_beside_result(part):
                continue
            block = write_block(part, self.spell)
            if block is not None:
                yield block

    def _allowed_name(self, name: str) -> str:
        """A name that the API takes. A name that the request itself defines stays as it is."""
        if name in self.defined_names:
            return name
        return make_safe_name(name)

    def _is_signed_here(self, entry: Entry) -> bool:
        """Whether this call carries a signature of lamina's, now or since an earlier request."""
        if not self.signed_refs:
            return False
        return f"{entry.ref}{ON_THE_WIRE}" in self.signed_refs


def _write_contents(writer: _GeminiWriter, entries: Sequence[Entry]) -> Any:
    """The value of `contents`, as it came if nothing of it changed."""
    contents = []
    for role, group in _group_contents(entries):
        content = writer.write_content(role, group)
        if content is not None:
            contents.append(content)
    if not contents:
        hint = "add a content that says something"
        raise BadInput("nothing is left to send", place="contents", hint=hint)
    if _role_of_content(contents[0]) == "model" and _has_call(contents[0]):
        # G1: the API wants a content of the user before a call.
        contents.insert(0, {"role": "user", "parts": [{"text": OPENING}]})
    parsed_ids = {id(_get_note(entry).get("of")) for entry in entries}
    is_untouched = all(id(content) in parsed_ids for content in contents)
    return _unpack_loose_parts(contents, is_untouched=is_untouched)


def _unpack_loose_parts(contents: list[Any], *, is_untouched: bool) -> Any:
    """The value of `contents`, with loose parts as they came: alone, or in the list.

    Between contents that were written anew, loose parts get a content of their own, since the SDK refuses a
    mixture.
    """
    are_loose = [isinstance(content, LooseParts) for content in contents]
    if are_loose == [True] and contents[0].bare:
        return contents[0][0]
    stay_loose = is_untouched or all(are_loose)
    items: list[Any] = []
    for content in contents:
        if not isinstance(content, LooseParts):
            items.append(content)
        elif stay_loose:
            items += content
        else:
            parts = [_wrap_text(part) for part in content]
            items.append({"role": _role_of_content(content), "parts": parts})
    return items


def _role_of_content(content: Any) -> str:
    """Who speaks in a content. A list of parts is the user's, unless its parts are loose calls."""
    if isinstance(content, LooseParts):
        return "model" if _has_call(content) else "user"
    if isinstance(content, LISTS):
        return "user"
    return str(to_dict_or_empty(content).get("role") or "user")


def _has_call(content: Any) -> bool:
    """Whether a content makes a call. A part that is text makes none."""
    parts = content
    if not isinstance(content, LISTS):
        parts = to_dict_or_empty(content).get("parts")
    return any(get_field(part, "functionCall") is not None for part in to_dicts(parts))


def _read_common_fields(group: Sequence[Entry]) -> Json:
    """The other fields of the content that all entries of a group were parsed from; empty without one."""
    messages = [_get_note(entry).get("of") for entry in group]
    first_message = messages[0]
    if first_message is None:
        return {}
    if any(message is not first_message for message in messages):
        return {}
    return read_extra_fields(first_message)


def _get_first_block(blocks: Sequence[Any] | None) -> Json:
    """The block of a call or a result that came from this API; empty for one from elsewhere."""
    if not blocks:
        return {}
    return to_dict_or_empty(blocks[0])


def _keep_equal_block(old_blocks: Sequence[Any] | None, block: Json) -> Any:
    """The block that a call or a result came as, if the one to send is equal to it; else the one to send."""
    if old_blocks and block == _get_first_block(old_blocks):
        return old_blocks[0]
    return block


def _get_text_block(blocks: Sequence[Any] | None) -> Json | None:
    """The one block that an entry was parsed from, if it holds text."""
    if not blocks or len(blocks) != 1:
        return None
    block = to_dict_or_none(blocks[0])
    if block is None or not isinstance(block.get("text"), str):
        return None
    return block


def _wrap_text(part: Any) -> Any:
    """A part as it stands in a content, where text needs its field."""
    return {"text": part} if isinstance(part, str) else part


def _replace_text(block: Json, text: str) -> Json:
    """A part with another text. Its signature was made for the old text, so it is left out."""
    signature_field = find_spelling(block, "thoughtSignature")
    new_block = {name: value for name, value in block.items() if name != signature_field}
    new_block["text"] = text
    return new_block


def _is_result(entry: Entry) -> bool:
    return isinstance(entry.parts[0], ToolResult)


def _has_new_arguments(entry: Entry, call: ToolCall) -> bool:
    old_call = entry.segment.parts[0]
    return not isinstance(old_call, ToolCall) or old_call.arguments != call.arguments


def _has_new_content(entry: Entry, result: ToolResult) -> bool:
    old_result = entry.segment.parts[0]
    return not isinstance(old_result, ToolResult) or old_result.content != result.content


def _has_wire_id(call_id: str) -> bool:
    """Whether an id is sent: ids that were made for the log are not."""
    return call_id != "" and not call_id.startswith(ID_PREFIX)


def _get_note(entry: Entry) -> Json:
    """The note that parsing left on the entry's segment; empty if the entry's role has changed since."""
    note: Json = entry.segment.meta.get("wire", {})
    if note.get("dialect") != NAME or entry.role is not entry.segment.role:
        return {}
    return note
