"""Parses a request of the Messages API into a log and a head.

    parse ──▶ MessageScan.parse ──▶ pieces of a message ──▶ build_segments

Each block becomes a segment that notes where it came from, so that `render` can give back the same objects.
`message_scan` reads the messages. `lasting` names system messages for the ledger that a model refuses, and
that are said in the user's voice.

How a message is parsed depends on itself, on the messages before it, and on the model, but on nothing that
follows. So a memo holds for all messages up to the first one that changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.core.entries import find_sent
from lamina.core.envelope import Envelope
from lamina.core.values import (
    Layer,
    Ref,
    RequestHead,
    Role,
    Segment,
    Text,
)
from lamina.dialects.anthropic.deferred import find_deferred_tools
from lamina.dialects.anthropic.message_scan import MessageScan
from lamina.dialects.anthropic.model import NAME, read_model, refuses_system_messages
from lamina.dialects.anthropic.parts import (
    parse_content_block,
)
from lamina.dialects.anthropic.segments import BlockPiece, build_segments
from lamina.dialects.json_values import (
    LIST_TYPES,
    name_value,
    read_each,
)
from lamina.dialects.memos import ParseMemo
from lamina.dialects.origins import NO_ORIGIN, ON_THE_WIRE, read_origin_in
from lamina.dialects.port import ParsedRequest, Request
from lamina.errors import BadInput

DEMOTED = "said in the user's voice: the model takes no system messages"
"""The line in the ledger's repairs. It is stored, so it may not change."""


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

    memo = memo or ParseMemo(copies=False)
    unchanged = memo.find_unchanged(messages, basis)
    past = unchanged.groups
    new_messages = messages[len(past) :]
    scan = MessageScan(past, demotes_system=demotes_system, deferred_tools=deferred_tools)
    new = read_each(new_messages, "messages", scan.parse, start=len(past))
    memo.basis = basis
    log = memo.remember(unchanged, new_messages, new)
    return ParsedRequest(log=(*system, *log), head=_parse_head(request))


def parse_message(message: Any) -> tuple[Segment, ...]:
    """Parse one message as if it were the first of a conversation."""
    return MessageScan([]).parse(message, 0)


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
        return build_segments([BlockPiece(Role.SYSTEM, "system", (Text(system),))], system)
    if not isinstance(system, LIST_TYPES):
        hint = "give a string or a list of text blocks"
        raise BadInput(name_value(system), place="system", hint=hint)
    return build_segments(read_each(system, "system", _read_system_block), system)


def _read_system_block(block: Any, _: int) -> BlockPiece:
    return BlockPiece(Role.SYSTEM, "system", (parse_content_block(block),), [block])
