"""Parses a request of the Messages API into a log and a head.

    parse ──▶ MessageScan.parse ──▶ pieces of a message ──▶ make_segments

Each block becomes a segment that notes where it came from, so that `render` can give back the same objects.
`MessageScan` reads the messages, with what earlier ones mean for later ones. `lasting` names system messages
for the ledger that a model refuses, and that are said in the user's voice.

How a message is parsed depends on itself, on the messages before it, and on the model, but on nothing that
follows. So a memo holds for all messages up to the first one that changed.

Besides its typed part, a block may have fields that a model reads (they are counted), and fields that it does
not read but whose change makes another message (their digest is noted).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import msgspec

from lamina.core.entries import find_sent
from lamina.core.envelope import Envelope
from lamina.core.opaque_blocks import is_called_by_program
from lamina.core.values import (
    Document,
    Image,
    Layer,
    Part,
    Raw,
    Ref,
    RequestHead,
    Role,
    Segment,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from lamina.dialects.anthropic.deferred import find_deferred_tools, find_loaded_tools, find_references
from lamina.dialects.anthropic.model import (
    NAME,
    continues_thread,
    is_safe_name,
    read_model,
    refuses_system_messages,
)
from lamina.dialects.anthropic.parts import (
    parse_call,
    parse_content_block,
    parse_result,
    parse_thinking,
    read_text,
    render_part,
)
from lamina.dialects.extra_fields import ExtraFields, ExtraParts, KnownFields, know_fields
from lamina.dialects.json_values import (
    LIST_TYPES,
    Json,
    drop_field,
    drop_fields,
    list_or_empty,
    name_value,
    read_each,
    text_or_empty,
    to_dict_or_empty,
    to_dict_or_none,
)
from lamina.dialects.memos import GrowingList, ParseMemo
from lamina.dialects.origins import NO_ORIGIN, ON_THE_WIRE, read_origin_in
from lamina.dialects.pairing import CallLog, describe_result, find_last_answer
from lamina.dialects.pieces import MessagePiece, MessagePieces, join_pieces, make_segments, read_messages
from lamina.dialects.port import ParsedRequest, Request
from lamina.errors import BadInput

DEMOTED = "said in the user's voice: the model takes no system messages"
"""The line in the ledger's repairs. It is stored, so it may not change."""

ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}

_ROLE_OF_BLOCK = {
    "tool_use": "assistant",
    "thinking": "assistant",
    "redacted_thinking": "assistant",
    "tool_result": "user",
}
"""Blocks that only one role may send."""

_TOOL_KINDS = frozenset(("tool_call", "tool_result"))

_NO_TOOLS: Mapping[str, Json] = {}

_BLOCK_WORDS = "text source title context name input tool_use_id content thinking signature data"

_NO_FIELDS: Mapping[str, Any] = {}

_MESSAGE_FIELDS = know_fields("content")
_BLOCK_FIELDS: Mapping[type[Part], KnownFields] = {
    Text: know_fields("text", counted=_BLOCK_WORDS),
    ToolCall: know_fields("name input", counted=_BLOCK_WORDS),
    Thinking: know_fields("thinking signature data", counted=_BLOCK_WORDS),
    ToolResult: know_fields("tool_use_id content is_error", counted=_BLOCK_WORDS),
    Image: know_fields(_BLOCK_WORDS),
    Document: know_fields(_BLOCK_WORDS),
}
"""The fields of each sort of block that its typed part holds. Pictures and documents are compared whole."""


def parse(request: Request, *, memo: ParseMemo | None = None) -> ParsedRequest:
    """Parse a request. Raises BadInput, with a path into the request, if it cannot be read.

    `{"system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}` has two
    segments, and the head `{"max_tokens": 5}`.
    """
    if not isinstance(request, Mapping):
        raise BadInput(f"a request is {name_value(request)}", place="request", hint="give an object")
    messages = request.get("messages")
    if not isinstance(messages, LIST_TYPES):
        raise BadInput("no list of messages", place="messages", hint='give "messages" as a list')
    system = _parse_system(request.get("system"))
    demotes_system = refuses_system_messages(read_model(request))
    deferred_tools = find_deferred_tools(request.get("tools"))
    has_unseen_calls = continues_thread(request)
    log = read_messages(
        messages,
        memo,
        begin_calls=lambda past: MessageScan(
            past,
            demotes_system=demotes_system,
            deferred_tools=deferred_tools,
            has_unseen_calls=has_unseen_calls,
        ),
        read_message=lambda message, _, scan: scan.parse(message),
        lead=system,
        basis=(demotes_system, deferred_tools, has_unseen_calls),
    )
    return ParsedRequest(log=log, head=_parse_head(request))


def lasting(envelope: Envelope, start: int) -> dict[Ref, str]:
    """The lines for the ledger: system messages that this request, and so every later one, has to demote.

    What was said in the user's voice once stays so, even if a later request goes to a model that takes system
    messages.
    """
    if not refuses_system_messages(read_model(envelope.head.parameters)):
        return {}
    demoted: dict[Ref, str] = {}
    for entry in find_sent(envelope.entries[start:]):
        is_late_system = entry.role is Role.SYSTEM and entry.layer is not Layer.SYSTEM
        if is_late_system and read_origin_in(entry.segment, NAME) is not NO_ORIGIN:
            demoted[Ref(f"{entry.ref}{ON_THE_WIRE}")] = DEMOTED
    return demoted


def _parse_head(request: Request) -> RequestHead:
    """Everything that is not a message. An empty `system` or `tools` field stays among the parameters.

    Tools are definitions, as the objects that came. Whether the API takes them is for `check` to say.
    """
    tools = request.get("tools") or ()
    if not isinstance(tools, LIST_TYPES) or not all(isinstance(tool, dict) for tool in tools):
        hint = 'give "tools" as a list of definitions'
        raise BadInput("not a list of objects", place="tools", hint=hint)
    parameters = dict(request)
    del parameters["messages"]
    for name in ("system", "tools"):
        if request.get(name):
            del parameters[name]
    return RequestHead(tools=tuple(tools), parameters=parameters)


def _parse_system(system: Any) -> tuple[Segment, ...]:
    """One segment for each block of the system text. An empty system text has none.

    `"Be brief."` is one segment, and `[A, B]` are two, so that each can be marked and compared on its own.
    """
    if not system:
        return ()
    if isinstance(system, str):
        return _make_segments([MessagePiece("system", Text(system))], system, role="system")
    if not isinstance(system, LIST_TYPES):
        hint = "give a string or a list of text blocks"
        raise BadInput(name_value(system), place="system", hint=hint)
    return _make_segments(read_each(system, "system", _read_system_block), system, role="system")


def _read_system_block(block: Any, _: int) -> MessagePiece:
    return MessagePiece("system", parse_content_block(block), [block])


class MessageScan:
    """One pass over the messages, with what earlier messages mean for later ones.

    What a message needs of its past is little: the calls that wait for results, and whether the message
    before may be continued. So the scan can start in the middle of a request whose beginning was parsed
    before.

    `demotes_system`: the model takes no system messages, so those after the first other message are written
    anew in the user's voice. `deferred_tools` are the definitions that are not in the prompt until a block
    refers to them, by name. `has_unseen_calls`: calls may have been made that only the server has.

    State: `calls` are those so far. `last_role` is the role of the last message, `last_has_tools` whether it
    took part in a tool loop. `conversation_began` is false while only system messages came.
    """

    def __init__(
        self,
        past: GrowingList[tuple[Segment, ...]],
        *,
        demotes_system: bool = False,
        deferred_tools: Mapping[str, Json] = _NO_TOOLS,
        has_unseen_calls: bool = False,
    ) -> None:
        """Begin after the messages in `past`, which were parsed before.

        Of these only the last step is taken in: it may have calls that wait. Older ones are looked at if
        a result asks for them.
        """
        self.demotes_system = demotes_system
        self.deferred_tools = deferred_tools
        self.has_unseen_calls = has_unseen_calls
        self.last_role = ""
        self.last_has_tools = False
        self.conversation_began = False
        self.calls = AnthropicCalls(past)
        for segments in past.after(find_last_answer(past)):
            self._follow(segments)

    def parse(self, message: Any) -> tuple[Segment, ...]:
        """The segments of the next message.

        `{"role": "user", "content": [text, tool_result]}` has the segment of the result first (A6), and is
        marked as mended.
        """
        mapping = to_dict_or_none(message)
        if mapping is None:
            raise BadInput(f"a message is {name_value(message)}", hint="give an object")
        role = mapping.get("role")
        if not isinstance(role, str) or role not in ROLES:
            hint = 'use "user", "assistant" or "system"'
            raise BadInput(f"the role is {name_value(role)}", place=".role", hint=hint)
        pieces = self._read_pieces(mapping, role)
        has_tools = not _TOOL_KINDS.isdisjoint(piece.kind for piece in pieces)
        joins = self._continues(role, has_tools=has_tools)

        results_first = sorted(pieces, key=lambda piece: piece.kind != "tool_result")  # rule A6
        is_late_system = role == "system" and self.conversation_began
        is_demoted = is_late_system and self.demotes_system
        is_reordered = results_first != pieces
        extra_fields: Json = {}
        if len(mapping) > 2:  # more than role and content
            extra_fields = select_extra_fields(mapping)
        segments = _make_segments(
            results_first,
            message,
            role=role,
            extra_fields=extra_fields,
            is_sendable=not is_demoted and not is_reordered,
            is_late_system=is_late_system,
            joins=joins,
        )
        self._begin(role, has_tools=has_tools or joins)
        if role == "assistant" and not joins:
            self.calls.begin_answer()
        for segment in segments:
            if segment.kind == "tool_call":
                self.calls.add(self.calls.read_call(segment))
        return segments

    def _follow(self, segments: tuple[Segment, ...]) -> None:
        """Take in a message that was parsed before."""
        first = segments[0]
        role = first.role.value
        if first.role is Role.TOOL:
            role = "user"
        has_tools = not _TOOL_KINDS.isdisjoint(segment.kind for segment in segments)
        self._begin(role, has_tools=has_tools or first.joins)

    def _continues(self, role: str, *, has_tools: bool) -> bool:
        """Whether a message continues the one before it.

        Three cases: calls wait, and the assistant goes on; results come in more than one user message; or
        only system messages came so far, and another one adds to the system text.
        """
        if role == "system":
            return not self.conversation_began
        if self.last_role != role:
            return False
        # What the assistant says after its calls belongs to them. What the user says after results does not.
        goes_on = has_tools or role == "assistant"
        return goes_on and self.last_has_tools

    def _begin(self, role: str, *, has_tools: bool) -> None:
        """Remember what the next message has to know of this one."""
        self.last_role = role
        self.last_has_tools = has_tools
        if role != "system":
            self.conversation_began = True

    def _read_pieces(self, message: Json, role: str) -> list[MessagePiece]:
        """One piece for each block, or one for a string. A message without blocks has an empty piece.

        `"content": "Hi"` is one piece without blocks, and `"content": [A, B]` is two with one block each.
        """
        content = message.get("content")
        if isinstance(content, str):
            return [MessagePiece(role, Text(content))]
        if not isinstance(content, LIST_TYPES):
            hint = "give a string or a list of blocks"
            raise BadInput(f"the content is {name_value(content)}", place=".content", hint=hint)
        if not content:
            return [self._read_empty_message(message, role)]
        pieces = read_each(content, ".content", lambda block, _: self._read_block(block, role))
        if role == "assistant":
            return self._join_api_blocks(pieces)
        return pieces

    def _read_empty_message(self, message: Json, role: str) -> MessagePiece:
        """The piece of a message without blocks.

        A late system message without words is a directive: it only sets something, and is sent as it came.
        """
        part: Part = Text("")
        is_late_system = role == "system" and self.conversation_began
        if is_late_system and not self.demotes_system:
            part = Raw(dialect=NAME, data=select_extra_fields(message))
        return MessagePiece(role, part, [])

    def _read_block(self, block: Any, role: str) -> MessagePiece:
        """The piece for one block. A compaction stands for all that came before it, so it is pinned.

        Thinking in a user message, and a result in one of the assistant, are refused.
        """
        mapping = to_dict_or_empty(block)
        block_type = text_or_empty(mapping.get("type"))
        owner = _ROLE_OF_BLOCK.get(block_type, role)
        if owner != role:
            problem = f"a {block_type} block in a message of the {role}"
            raise BadInput(problem, hint=f"a {block_type} block belongs to the {owner}")
        match block_type:
            case "tool_result":
                return self._read_result(block, mapping)
            case "tool_use":
                call = parse_call(mapping)
                return MessagePiece(
                    kind="tool_call",
                    part=call,
                    block=[block],
                    pinned=is_called_by_program(mapping),
                    # A16: `fs.read`, from a history of another API, is written anew as `fs_read`.
                    is_sendable=is_safe_name(call.name),
                )
            case "thinking" | "redacted_thinking":
                return MessagePiece("thinking", parse_thinking(mapping), [block])
        return MessagePiece(
            kind=role,
            part=parse_content_block(block),
            block=[block],
            pinned=block_type == "compaction",
            loaded=self._load_tools(mapping),
        )

    def _read_result(self, block: Any, mapping: Json) -> MessagePiece:
        """The piece for a result. The call that it answers tells the name of the tool, and the file.

        Its call is in the assistant message before it, or further back if a client moved the result. What a
        program called is read by that program alone. A result that loads tools stays: later calls may be of
        them. A result whose call only the server has stays as it is.
        """
        call_id = read_text(mapping, "tool_use_id")
        call = self.calls.take(call_id, "")
        if call is None and self.has_unseen_calls and not self.conversation_began:
            part = Raw(dialect=NAME, data=mapping)
            return MessagePiece("tool_result", part, [block], role=Role.TOOL, pinned=True)
        tool_name = ""
        if call is not None:
            tool_name = call.name
        result, mended_block = parse_result(mapping, call_id, tool_name)
        is_of_program = call_id in self.calls.programs
        return MessagePiece(
            role=Role.TOOL,
            kind="tool_result",
            part=result,
            block=[mended_block or block],
            attrs=describe_result(call),
            pinned=is_of_program or bool(find_references(mapping)),
            is_sendable=mended_block is None,
            unread=is_of_program,
            loaded=self._load_tools(mapping),
        )

    def _load_tools(self, block: Json) -> ExtraParts:
        """The definitions of the deferred tools that a block refers to, as the model reads them there."""
        loaded: list[Raw] = []
        for tool in find_loaded_tools(block, self.deferred_tools):
            # Where it is loaded, the API writes it as if it had never been deferred.
            definition = drop_field(tool, "defer_loading")
            loaded.append(Raw(dialect=NAME, data={"type": "tool_definition", "definition": definition}))
        return tuple(loaded)

    def _join_api_blocks(self, pieces: list[MessagePiece]) -> list[MessagePiece]:
        """Join blocks of the API's own that follow each other, such as a web search and its result.

        Each run becomes one piece, since neither of such blocks may be sent without the other. A run is
        pinned if it loads tools, or holds what belongs to a program.
        """
        joined: list[MessagePiece] = []
        for are_api_blocks, pieces_in_a_row in groupby(pieces, key=_is_api_block):
            run = list(pieces_in_a_row)
            if not are_api_blocks:
                joined += run
                continue
            whole = join_pieces(run)
            pinned = any(map(self._must_stay, whole.block))
            joined.append(msgspec.structs.replace(whole, pinned=pinned))
        return joined

    def _must_stay(self, block: Any) -> bool:
        """Whether a block of the API's own may never be left out.

        The result of a program that called tools answers a block whose calls stay.
        """
        mapping = to_dict_or_empty(block)
        if find_references(mapping) or is_called_by_program(mapping):
            return True
        return text_or_empty(mapping.get("tool_use_id")) in self.calls.programs.values()


def _is_api_block(piece: MessagePiece) -> bool:
    """Whether a piece is a block of the API's own that may be joined to its neighbours."""
    return isinstance(piece.part, Raw) and not piece.pinned


class AnthropicCalls(CallLog[ToolCall]):
    """The calls so far. `programs` has the program that made a call, by the id of the call.

    Only that program reads the result.
    """

    def __init__(self, past: GrowingList[tuple[Segment, ...]]) -> None:
        self.programs: dict[str, str] = {}
        super().__init__(past)

    def read_call(self, segment: Segment) -> Any:
        call = super().read_call(segment)
        if call is None:
            return None
        [source] = read_origin_in(segment, NAME).block or [{}]
        block = to_dict_or_empty(source)
        self.programs.pop(call.id, None)
        if is_called_by_program(block):
            self.programs[call.id] = text_or_empty(block["caller"].get("tool_id")) or "unknown"
        return call


def _make_segments(
    pieces: list[MessagePiece],
    message: Any,
    *,
    role: str,
    extra_fields: Mapping[str, Any] = _NO_FIELDS,
    is_sendable: bool = True,
    is_late_system: bool = False,
    joins: bool = False,
) -> tuple[Segment, ...]:
    """The segments of a message, or of the system text.

    `extra_fields` are the fields of the message besides role and content. They are counted with its last
    piece. All but the first note them: the first holds the whole message, and may be left out of a request.
    `is_late_system`: a system message inside the conversation. If a client drops what was before it, it is
    sent with the system text, which are other bytes.
    """
    extras: list[ExtraFields] = []
    for piece in pieces:
        extra = ExtraFields(NAME, piece.loaded)
        extras.append(extra)
        if is_late_system:
            extra.rests["role"] = "late system"
        if extra_fields and piece is pieces[-1]:
            extra.add("message", extra_fields, _MESSAGE_FIELDS)
        if piece.block and len(piece.block) == 1:
            _add_block(extra, "", piece.part, to_dict_or_empty(piece.block[0]))
    later_notes: dict[str, Any] = {}
    if extra_fields:
        later_notes["fields"] = extra_fields
    return make_segments(
        NAME,
        message,
        MessagePieces(ROLES[role], pieces, is_sendable),
        joins=joins,
        later_notes=later_notes,
        extras=extras,
    )


def select_extra_fields(message: Json) -> Json:
    """What a message has besides its role and its content.

    Of `{"role": "user", "content": "Hi", "id": "m1"}` it is `{"id": "m1"}`.
    """
    return drop_fields(message, ("role", "content"))


def _add_block(extra: ExtraFields, place: str, part: Part, block: Json) -> None:
    """Add what a block has that its typed part does not hold; of a result, what is inside it too.

    Of a document with `"citations": {"enabled": true}` it is that field. A `Raw` part holds all of its block.
    """
    if isinstance(part, Raw):
        return
    known_fields = _BLOCK_FIELDS[type(part)]
    if isinstance(part, Image | Document):
        extra.add_difference(place, block, render_part(part) or {}, known_fields)
        return
    extra.add(place, block, known_fields)
    if isinstance(part, ToolResult):
        is_error = block.get("is_error")
        if not isinstance(is_error, bool | None):
            # The typed part holds a switch, and this is something else.
            extra.rests.setdefault(place, {})["is_error"] = is_error
        blocks = map(to_dict_or_empty, list_or_empty(block.get("content")))
        for position, (inner_part, inner) in enumerate(zip(part.content, blocks, strict=False)):
            _add_block(extra, f"{place}.content[{position}]", inner_part, inner)
