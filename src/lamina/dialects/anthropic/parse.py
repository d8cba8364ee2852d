"""Parses a request of the Messages API into a log and a head.

Each block becomes a segment that notes where it came from, so that `render` can give back the same objects.
Results are logged before the rest of their message, which is where this API wants them. Messages that the API
reads as one (calls spread over several assistant messages in a row, results over several user messages) are
one message in the log too. For a model that refuses system messages, later ones are marked to be written anew
in the user's voice.

How a message is parsed depends only on itself, on what came before it, and on the model. So a memo may be
reused for all messages up to the first one that changed.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from lamina.core.values import Head, Part, Role, Segment, Text
from lamina.dialects.anthropic.blocks import parse_content_block
from lamina.dialects.anthropic.message_scan import MessageScan
from lamina.dialects.anthropic.model import read_model, refuses_system_messages
from lamina.dialects.anthropic.pieces import MessagePiece, build_segment
from lamina.dialects.json_values import LIST_TYPES, add_outer_place
from lamina.dialects.memos import ParseMemo
from lamina.dialects.port import ParsedRequest, Request
from lamina.errors import BadInput

ParsedMessage = tuple[Any, tuple[Segment, ...]]
"""A copy of a message, and the segments that it was parsed into."""


def parse(request: Request, *, memo: ParseMemo | None = None) -> ParsedRequest:
    """Parses a request. Raises BadInput, with a path into the request, if it cannot be read."""
    if not isinstance(request, Mapping):
        raise BadInput(
            f"a request is a value of type {type(request).__name__}", place="request", hint="give an object"
        )
    messages = request.get("messages")
    if not isinstance(messages, LIST_TYPES):
        raise BadInput("no list of messages", place="messages", hint='give "messages" as a list')
    system = _parse_system(request.get("system"))
    demotes_system = refuses_system_messages(read_model(request))

    reused: list[ParsedMessage] = []
    if memo is not None and memo.basis == demotes_system:
        reused = memo.known[: _count_unchanged(memo.known, messages)]
    past = [segments for _, segments in reused]
    new = _parse_messages(messages, past, demotes_system=demotes_system)
    if memo is not None:
        memo.basis = demotes_system
        new_messages = messages[len(past) :]
        copies = [_copy_message(message) for message in new_messages]
        memo.known = reused + list(zip(copies, new, strict=True))

    log = tuple(chain(system, chain.from_iterable(past), chain.from_iterable(new)))
    return ParsedRequest(log=log, head=_parse_head(request, has_system=bool(system)))


def parse_message(message: Any) -> tuple[Segment, ...]:
    """Parses one message as if it were the first of a conversation."""
    return MessageScan([]).parse(message)


def _parse_messages(
    messages: Sequence[Any], past: list[tuple[Segment, ...]], *, demotes_system: bool
) -> list[tuple[Segment, ...]]:
    """Parses the messages after those that make up the past."""
    if len(messages) <= len(past):
        return []
    scan = MessageScan(past, demotes_system=demotes_system)
    new: list[tuple[Segment, ...]] = []
    for position in range(len(past), len(messages)):
        try:
            new.append(scan.parse(messages[position]))
        except BadInput as error:
            raise add_outer_place(f"messages[{position}]", error) from None
    return new


def _copy_message(message: Any) -> Any:
    """A copy to compare with later, which shares all strings. If it cannot be copied, it equals nothing."""
    try:
        return msgspec.to_builtins(message)
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        return copy.deepcopy(message)
    except Exception:  # noqa: BLE001 - a foreign object may do anything when copied
        return object()


def _count_unchanged(parsed: list[ParsedMessage], messages: Any) -> int:
    """How many messages are what they were when they were parsed.

    The object that the segments refer to is compared too, since it may have been changed in place.
    """
    try:
        for position, (message, (message_copy, segments)) in enumerate(zip(messages, parsed, strict=False)):
            if message_copy != message:
                return position
            noted = segments[0].meta["wire"]["message"]
            if noted is not message and noted != message:
                return position
    except RecursionError:
        return 0
    return min(len(parsed), len(messages))


def _parse_head(request: Request, *, has_system: bool) -> Head:
    """Everything that is not a message. An empty `system` or `tools` field stays among the parameters."""
    tools = request.get("tools") or ()
    if not isinstance(tools, LIST_TYPES) or not all(isinstance(tool, dict) for tool in tools):
        raise BadInput("not a list of objects", place="tools", hint='give "tools" as a list of definitions')
    taken = {"messages"}
    if has_system:
        taken.add("system")
    if tools:
        taken.add("tools")
    parameters = {name: value for name, value in request.items() if name not in taken}
    return Head(tools=tuple(tools), parameters=parameters)


def _parse_system(system: Any) -> list[Segment]:
    """One segment for each block of the system text. An empty system text has none."""
    if not system:
        return []
    if isinstance(system, str):
        piece = MessagePiece(Role.SYSTEM, "system", (Text(system),))
        return [build_segment(piece, system, is_first=True, count=1, joins=False)]
    if not isinstance(system, LIST_TYPES):
        raise BadInput(
            f"a value of type {type(system).__name__}",
            place="system",
            hint="give a string or a list of text blocks",
        )
    segments: list[Segment] = []
    for position, block in enumerate(system):
        piece = MessagePiece(Role.SYSTEM, "system", (_parse_system_block(block, position),), [block])
        is_first = position == 0
        segment = build_segment(piece, system, is_first=is_first, count=len(system), joins=not is_first)
        segments.append(segment)
    return segments


def _parse_system_block(block: Any, position: int) -> Part:
    try:
        return parse_content_block(block)
    except BadInput as error:
        raise add_outer_place(f"system[{position}]", error) from None
