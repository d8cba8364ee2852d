"""Parses a request of the Converse API into a log and a head.

Each block becomes a segment, with the cache points that follow it. Results are logged before the rest of
their message, which is where the models behind this API want them. If a message breaks a rule but its meaning
is clear, it is noted as mended, so that rendering writes it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from lamina.core.text.characters import is_blank
from lamina.core.values import Raw, Role, Segment, Text, ToolCall, ToolResult
from lamina.dialects.bedrock_converse.blocks import (
    NAME,
    SERVER_TOOL,
    MarkedBlock,
    group_with_markers,
    has_blank_block,
    read_call,
    read_part,
    read_result,
    split_spoken_block,
    write_part,
)
from lamina.dialects.bedrock_converse.head import read_head
from lamina.dialects.extra_fields import ExtraFields, find_difference
from lamina.dialects.json_values import (
    LIST_TYPES,
    add_outer_place,
    mapping_or_empty,
    name_value,
    text_or_empty,
    to_dict_or_empty,
)
from lamina.dialects.memos import ParseMemo
from lamina.dialects.openai_chat.calls import ChatCalls, is_safe_name
from lamina.dialects.pairing import describe_result
from lamina.dialects.pieces import (
    MessagePiece,
    MessagePieces,
    join_pieces,
    make_segments,
    read_message_list,
    read_messages,
)
from lamina.dialects.port import ParsedRequest, Request
from lamina.errors import BadInput

ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}

_ROLE_OF_BLOCK = {"toolUse": "assistant", "reasoningContent": "assistant", "toolResult": "user"}
"""Blocks that only one role may send."""

_NO_EXTRA_FIELDS = ExtraFields(NAME)
"""What most blocks have besides their part. Nobody adds to it."""


def parse(request: Request, *, memo: ParseMemo | None = None) -> ParsedRequest:
    """Parse a request. Raises BadInput, with a path into the request, if it cannot be read.

    `{"system": [{"text": "Be brief."}], "messages": [{"role": "user", "content": [{"text": "Hi"}]}]}` has two
    segments.
    """
    messages = read_message_list(request)
    system = _read_system(request.get("system"))
    log = read_messages(messages, memo, begin_calls=ChatCalls, read_message=_read_message, lead=system)
    return ParsedRequest(log=log, head=read_head(request))


def parse_answer(content: Sequence[Any]) -> tuple[Segment, ...]:
    """The segments of what the model said."""
    return _read_message({"role": "assistant", "content": content}, 0, ChatCalls())


def _read_system(system: Any) -> tuple[Segment, ...]:
    """One segment for each block of the system text, so that each can be marked and compared on its own."""
    if not system:
        return ()
    if not isinstance(system, LIST_TYPES):
        hint = 'give a list of blocks such as [{"text": "Be brief."}]'
        raise BadInput(f"the system text is {name_value(system)}", place="system", hint=hint)
    pieces, extras = _read_groups(system, "system", lambda marked: _read_plain_piece(marked, "system"))
    return make_segments(NAME, system, MessagePieces(Role.SYSTEM, pieces), extras=extras)


def _read_groups(
    blocks: Sequence[Any], place: str, read: Callable[[MarkedBlock], MessagePiece]
) -> tuple[list[MessagePiece], list[ExtraFields]]:
    """A piece for each block with its cache points, and what the block has besides.

    An error names the place of the block.
    """
    pieces: list[MessagePiece] = []
    extras: list[ExtraFields] = []
    for marked in group_with_markers(blocks):
        try:
            piece = read(marked)
            extra = _find_rest(piece, marked.block)
        except BadInput as error:
            raise add_outer_place(f"{place}[{marked.position}]", error) from None
        pieces.append(piece)
        extras.append(extra)
    return pieces, extras


def _read_message(message: Any, _: int, calls: ChatCalls) -> tuple[Segment, ...]:
    """One message as segments, results first.

    A message without any block but cache points has one segment, which says nothing and is not sent.
    """
    fields = to_dict_or_empty(message)
    role = fields.get("role")
    if not isinstance(role, str) or role not in ROLES:
        problem = f"the role is {name_value(role)}"
        raise BadInput(problem, place="role", hint='use "user", "assistant" or "system"')
    content = fields.get("content")
    if not isinstance(content, LIST_TYPES):
        problem = f"the content is {name_value(content)}"
        raise BadInput(problem, place="content", hint='give a list of blocks such as [{"text": "Hi"}]')
    if role == "assistant":
        calls.begin_answer()
    pieces, extras = _read_groups(content, "content", lambda marked: _read_piece(marked, role, calls))
    if not pieces:
        return make_segments(
            NAME, message, MessagePieces(ROLES[role], [MessagePiece(role, Text(""))], is_sendable=False)
        )
    if role == "assistant":
        pieces, extras = _join_server_tools(pieces, extras)
    order = sorted(range(len(pieces)), key=lambda position: pieces[position].role is not Role.TOOL)
    results_first = [pieces[position] for position in order]
    is_mended = results_first != pieces or any(map(_must_be_mended, pieces))
    parsed = MessagePieces(ROLES[role], results_first, is_sendable=not is_mended)
    return make_segments(NAME, message, parsed, extras=[extras[position] for position in order])


def _join_server_tools(
    pieces: list[MessagePiece], extras: list[ExtraFields]
) -> tuple[list[MessagePiece], list[ExtraFields]]:
    """The pieces, of which a call of the API's own tool and its result are one: neither may stand alone."""
    joined: list[MessagePiece] = []
    joined_extras: list[ExtraFields] = []
    for are_server_tools, pairs in groupby(zip(pieces, extras, strict=True), key=_is_of_server_tool):
        run, run_extras = map(list, zip(*pairs, strict=True))
        if are_server_tools:
            run = [join_pieces(run)]
            run_extras = [_NO_EXTRA_FIELDS]
        joined += run
        joined_extras += run_extras
    return joined, joined_extras


def _is_of_server_tool(pair: tuple[MessagePiece, ExtraFields]) -> bool:
    """Whether a piece of the assistant's message is a call or a result of a tool that the API runs."""
    part = pair[0].part
    return isinstance(part, Raw) and split_spoken_block(part.data, "assistant")[0] == SERVER_TOOL


def _read_piece(marked: MarkedBlock, role: str, calls: ChatCalls) -> MessagePiece:
    """The piece for one block and its cache points. Raises BadInput for a block of the other side."""
    block_type, content = split_spoken_block(marked.block, role)
    owner = _ROLE_OF_BLOCK.get(block_type, role)
    if owner != role:
        problem = f"a {block_type} block in a message of the {role}"
        raise BadInput(problem, hint=f"a {block_type} block belongs to the {owner}")
    match block_type:
        case "toolUse":
            call = read_call(content)
            calls.add(call)
            return MessagePiece("tool_call", call, marked.group)
        case "toolResult":
            return _read_result_piece(marked, mapping_or_empty(content), calls)
        case "reasoningContent":
            return _read_plain_piece(marked, "thinking")
    return _read_plain_piece(marked, role)


def _read_result_piece(marked: MarkedBlock, tool_result: Mapping[str, Any], calls: ChatCalls) -> MessagePiece:
    """The piece for a result, which is named after the call that it answers.

    Some servers give all calls of an answer one id. Then each result takes the next of them.
    """
    call = calls.take(text_or_empty(tool_result.get("toolUseId")), "")
    tool_name = ""
    if call is not None:
        tool_name = call.name
    result = read_result(tool_result, tool_name)
    return MessagePiece(
        "tool_result",
        result,
        marked.group,
        describe_result(call),
        role=Role.TOOL,
    )


def _read_plain_piece(marked: MarkedBlock, kind: str) -> MessagePiece:
    """The piece for a block that holds neither a call nor a result.

    What a guardrail has to judge is never lowered: its text would be sent without being judged.
    """
    part = read_part(marked.block)
    is_guarded = "guardContent" in marked.block
    return MessagePiece(kind, part, marked.group, pinned=is_guarded)


def _find_rest(piece: MessagePiece, block: Any) -> ExtraFields:
    """What a block has besides its part, such as `citations` of a document. A `Raw` part holds all of it."""
    if isinstance(piece.part, Raw):
        return _NO_EXTRA_FIELDS
    difference = find_difference(mapping_or_empty(block), write_part(piece.part) or {})
    if not difference:
        return _NO_EXTRA_FIELDS
    extra = ExtraFields(NAME, rests={"": difference})
    extra.digest()  # a value that is not JSON is refused here, where its place is known
    return extra


def _must_be_mended(piece: MessagePiece) -> bool:
    """Whether the API refuses a block as it came: a blank text, a result with one, or a name of a tool."""
    match piece.part:
        case Text(text):
            return is_blank(text)
        case ToolCall(name=name):
            return not is_safe_name(name)
        case ToolResult():
            return any(has_blank_block(block.get("toolResult")) for block in piece.block)
    return False
