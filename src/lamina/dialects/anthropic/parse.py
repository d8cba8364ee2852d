"""Parses a request of the Messages API into a log and a head.

Each block becomes a segment that notes where it came from, so that `render` can give back the same objects.
Results are logged before the rest of their message, which is where this API wants them. Messages that the API
reads as one (calls spread over several assistant messages in a row, results over several user messages) are
one message in the log too. For a model that refuses system messages, later ones are marked to be written anew
in the user's voice, and `lasting` names them for the ledger.

How a message is parsed depends only on itself, on what came before it, and on the model. So a memo may be
reused for all messages up to the first one that changed.

How a message is read depends on the messages before it. This module knows whether a message goes on;
`call_history` knows which call a result answers. What a block says by itself is read in `parts`, and pieces
become segments in `segments`.

    parse ──▶ MessageScan.parse ──▶ pieces of a message ──▶ build_segments
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, groupby
from typing import Any

from lamina.core.envelope import Envelope
from lamina.core.opaque_blocks import is_called_by_program
from lamina.core.values import (
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
from lamina.dialects.anthropic.call_history import (
    CallHistory,
    find_last_assistant,
    find_subject,
    read_program_id,
)
from lamina.dialects.anthropic.deferred import find_deferred_tools, find_references
from lamina.dialects.anthropic.model import NAME, is_safe_name, read_model, refuses_system_messages
from lamina.dialects.anthropic.parts import (
    parse_call,
    parse_content_block,
    parse_result,
    read_text,
)
from lamina.dialects.anthropic.segments import BlockPiece, build_segments, select_extra_fields
from lamina.dialects.extra_fields import ExtraParts
from lamina.dialects.json_values import (
    LIST_TYPES,
    Json,
    add_outer_place,
    name_value,
    text_or_empty,
    to_dict_or_empty,
    to_dict_or_none,
)
from lamina.dialects.memos import ParsedMessage, ParseMemo, count_unchanged
from lamina.dialects.origins import ON_THE_WIRE, read_origin_in
from lamina.dialects.port import ParsedRequest, Request
from lamina.dialects.same_objects import drop_field
from lamina.errors import BadInput

ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}

DEMOTED = "said in the user's voice: the model takes no system messages"
"""The line in the ledger's repairs. It is stored, so it may not change."""

_ROLE_OF_BLOCK = {
    "tool_use": "assistant",
    "thinking": "assistant",
    "redacted_thinking": "assistant",
    "tool_result": "user",
}
"""Blocks that only one role may send."""

_TOOL_KINDS = frozenset(("tool_call", "tool_result"))

_NO_TOOLS: Mapping[str, Json] = {}


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
    basis = (demotes_system, deferred_tools)

    reused: list[ParsedMessage] = []
    if memo is not None and memo.basis == basis:
        reused = memo.known[: count_unchanged(messages, memo.known)]
    past = [parsed.segments for parsed in reused]
    new_messages = messages[len(past) :]
    scan = MessageScan(past, demotes_system=demotes_system, deferred_tools=deferred_tools)
    new: list[tuple[Segment, ...]] = []
    for position, message in enumerate(new_messages, len(past)):
        try:
            new.append(scan.parse(message))
        except BadInput as error:
            raise add_outer_place(f"messages[{position}]", error) from None
    if memo is not None:
        memo.basis = basis
        memo.known = reused + memo.remember(new_messages, new)

    log = tuple(chain(system, chain.from_iterable(past), chain.from_iterable(new)))
    return ParsedRequest(log=log, head=_parse_head(request))


def parse_message(message: Any) -> tuple[Segment, ...]:
    """Parse one message as if it were the first of a conversation."""
    return MessageScan([]).parse(message)


def lasting(envelope: Envelope) -> dict[Ref, str]:
    """The lines for the ledger: system messages that this request, and so every later one, has to demote.

    What was said in the user's voice once stays so, even if a later request goes to a model that takes system
    messages.
    """
    if not refuses_system_messages(read_model(envelope.head.parameters)):
        return {}
    demoted: dict[Ref, str] = {}
    for entry in envelope.sent:
        if entry.role is not Role.SYSTEM or entry.layer is Layer.SYSTEM:
            continue
        if read_origin_in(entry.segment, NAME) is not None:
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
        return build_segments([BlockPiece(Role.SYSTEM, "system", (Text(system),))], system)
    if not isinstance(system, LIST_TYPES):
        hint = "give a string or a list of text blocks"
        raise BadInput(name_value(system), place="system", hint=hint)
    pieces: list[BlockPiece] = []
    for position, block in enumerate(system):
        try:
            part = parse_content_block(block)
        except BadInput as error:
            raise add_outer_place(f"system[{position}]", error) from None
        pieces.append(BlockPiece(Role.SYSTEM, "system", (part,), [block]))
    return build_segments(pieces, system)


class MessageScan:
    """One pass over the messages, with what earlier messages mean for later ones.

    What a message needs of its past is little: the calls that wait for results, and whether the message
    before may be continued. So the scan can start in the middle of a request whose beginning was parsed
    before.

    `demotes_system`: the model takes no system messages, so those after the first other message are written
    anew in the user's voice. `deferred_tools` are the definitions that are not in the prompt until a block
    refers to them, by name.

    State: `calls` are those so far. `last_role` is the role of the last message, `last_has_tools` whether it
    took part in a tool loop. `conversation_began` is false while only system messages came.
    """

    def __init__(
        self,
        past: list[tuple[Segment, ...]],
        *,
        demotes_system: bool = False,
        deferred_tools: Mapping[str, Json] = _NO_TOOLS,
    ) -> None:
        """Begin after the messages in `past`, which were parsed before.

        Of these only the last step is taken in: it may have calls that wait. Older ones are looked at if
        a result asks for them.
        """
        self.demotes_system = demotes_system
        self.deferred_tools = deferred_tools
        self.last_role = ""
        self.last_has_tools = False
        self.conversation_began = False
        start = find_last_assistant(past)
        self.calls = CallHistory(past[:start])
        for segments in past[start:]:
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
        has_tools = any(piece.kind in _TOOL_KINDS for piece in pieces)
        joins = self._continues(role, has_tools=has_tools)

        results_first = sorted(pieces, key=lambda piece: piece.kind != "tool_result")  # rule A6
        is_late_system = role == "system" and self.conversation_began
        is_demoted = is_late_system and self.demotes_system
        is_reordered = results_first != pieces
        extra_fields = None
        if len(mapping) > 2:
            extra_fields = select_extra_fields(mapping)
        segments = build_segments(
            results_first,
            message,
            extra_fields=extra_fields,
            is_mended=is_demoted or is_reordered or any(piece.was_mended for piece in pieces),
            is_late_system=is_late_system,
            joins=joins,
        )
        self._begin(role, segments, has_tools=has_tools or joins, joins=joins)
        return segments

    def _follow(self, segments: tuple[Segment, ...]) -> None:
        """Take in a message that was parsed before.

        Its results take their calls again, so that the next results find what is left.
        """
        first = segments[0]
        role = first.role.value
        if first.role is Role.TOOL:
            role = "user"
        has_tools = first.joins or any(segment.kind in _TOOL_KINDS for segment in segments)
        self._begin(role, segments, has_tools=has_tools, joins=first.joins)
        for segment in segments:
            part = segment.parts[0]
            if isinstance(part, ToolResult):
                self.calls.take(part.id)

    def _continues(self, role: str, *, has_tools: bool) -> bool:
        """Whether a message continues the one before it.

        Three cases: calls wait, and the assistant goes on; results come in more than one user message; or
        only system messages came so far, and another one adds to the system text.
        """
        if role == "system":
            return not self.conversation_began
        if not self.last_has_tools or self.last_role != role:
            return False
        return has_tools or role == "assistant"

    def _begin(self, role: str, segments: Iterable[Segment], *, has_tools: bool, joins: bool) -> None:
        """Remember what the next message has to know of this one. Its calls are now the open ones."""
        self.last_role = role
        self.last_has_tools = has_tools
        if role != "system":
            self.conversation_began = True
        if role == "assistant":
            self.calls.add_assistant_message(segments, joins=joins)

    def _read_pieces(self, message: Json, role: str) -> list[BlockPiece]:
        """One piece for each block, or one for a string. A message without blocks has an empty piece.

        `"content": "Hi"` is one piece without blocks, and `"content": [A, B]` is two with one block each.
        """
        content = message.get("content")
        if isinstance(content, str):
            return [BlockPiece(ROLES[role], role, (Text(content),))]
        if not isinstance(content, LIST_TYPES):
            hint = "give a string or a list of blocks"
            raise BadInput(f"the content is {name_value(content)}", place=".content", hint=hint)
        if not content:
            part: Part = Text("")
            if role == "system" and self.conversation_began and not self.demotes_system:
                # A directive: a system message without words, which only sets something.
                part = Raw(dialect=NAME, data=select_extra_fields(message))
            return [BlockPiece(ROLES[role], role, (part,), [])]
        pieces: list[BlockPiece] = []
        for position, block in enumerate(content):
            try:
                pieces.append(self._read_block(block, role))
            except BadInput as error:
                raise add_outer_place(f".content[{position}]", error) from None
        if role == "assistant":
            return self._join_api_blocks(pieces)
        return pieces

    def _read_block(self, block: Any, role: str) -> BlockPiece:
        """The piece for one block. A compaction stands for all that came before it, so it is pinned.

        Thinking in a user message, and a result in one of the assistant, are refused.
        """
        mapping = to_dict_or_empty(block)
        block_type = text_or_empty(mapping.get("type"))
        owner = _ROLE_OF_BLOCK.get(block_type)
        if owner is None:
            part = parse_content_block(block)
            return BlockPiece(
                role=ROLES[role],
                kind=role,
                parts=(part,),
                blocks=[block],
                pinned=block_type == "compaction",
                loaded=self._load_tools(mapping),
            )
        if owner != role:
            problem = f"a {block_type} block in a message of the {role}"
            raise BadInput(problem, hint=f"a {block_type} block belongs to the {owner}")
        if block_type == "tool_result":
            return self._read_result(block, mapping)
        if block_type == "tool_use":
            call = parse_call(mapping)
            has_unsafe_name = not is_safe_name(call.name)
            return BlockPiece(
                role=Role.ASSISTANT,
                kind="tool_call",
                parts=(call,),
                blocks=[block],
                pinned=is_called_by_program(mapping),
                was_mended=has_unsafe_name,
            )
        # The signature of thinking, and the encrypted data of redacted thinking, are passed on unread.
        thinking = Thinking(
            text=text_or_empty(mapping.get("thinking")),
            signature=text_or_empty(mapping.get("signature")) or text_or_empty(mapping.get("data")),
        )
        return BlockPiece(Role.ASSISTANT, "thinking", (thinking,), [block])

    def _read_result(self, block: Any, mapping: Json) -> BlockPiece:
        """The piece for a result. The call that it answers tells the name of the tool, and the file.

        Its call is in the assistant message before it, or further back if a client moved the result. What a
        program called is read by that program alone. A result that loads tools stays: later calls may be of
        them.
        """
        call_id = read_text(mapping, "tool_use_id")
        call_segment = self.calls.take(call_id)
        tool_name = ""
        attrs = None
        is_unread = False
        if call_segment is not None:
            is_unread = read_program_id(call_segment) != ""
            call = call_segment.parts[0]
            if isinstance(call, ToolCall):
                tool_name = call.name
            attrs = find_subject(call_segment)
        result, mended_block = parse_result(mapping, call_id, tool_name)
        return BlockPiece(
            role=Role.TOOL,
            kind="tool_result",
            parts=(result,),
            blocks=[mended_block or block],
            attrs=attrs,
            pinned=is_unread or bool(find_references(mapping)),
            was_mended=mended_block is not None,
            unread=is_unread,
            loaded=self._load_tools(mapping),
        )

    def _load_tools(self, block: Json) -> ExtraParts:
        """The definitions of the deferred tools that a block refers to, as the model reads them there."""
        if not self.deferred_tools:
            return ()
        loaded: list[Raw] = []
        for name in find_references(block):
            if name in self.deferred_tools:
                definition = drop_field(self.deferred_tools[name], "defer_loading")
                loaded.append(Raw(dialect=NAME, data={"type": "tool_definition", "definition": definition}))
        return tuple(loaded)

    def _join_api_blocks(self, pieces: list[BlockPiece]) -> list[BlockPiece]:
        """Join blocks of the API's own that follow each other, such as a web search and its result.

        Each run becomes one piece, since neither of such blocks may be sent without the other. A run is
        pinned if it loads tools, or holds what belongs to a program.
        """
        joined: list[BlockPiece] = []
        for are_api_blocks, pieces_in_a_row in groupby(pieces, key=_is_api_block):
            run = list(pieces_in_a_row)
            if not are_api_blocks:
                joined += run
                continue
            blocks = list(chain.from_iterable(piece.blocks or () for piece in run))
            piece = BlockPiece(
                role=run[0].role,
                kind=run[0].kind,
                parts=tuple(chain.from_iterable(piece.parts for piece in run)),
                blocks=blocks,
                pinned=any(map(self._must_stay, blocks)),
                loaded=tuple(chain.from_iterable(piece.loaded for piece in run)),
            )
            joined.append(piece)
        return joined

    def _must_stay(self, block: Any) -> bool:
        """Whether a block of the API's own may never be left out.

        The result of a program that called tools answers a block whose calls stay.
        """
        mapping = to_dict_or_empty(block)
        if find_references(mapping) or is_called_by_program(mapping):
            return True
        return text_or_empty(mapping.get("tool_use_id")) in self.calls.program_ids - {""}


def _is_api_block(piece: BlockPiece) -> bool:
    """Whether a piece is a block of the API's own that may be joined to its neighbours."""
    return isinstance(piece.parts[0], Raw) and not piece.pinned
