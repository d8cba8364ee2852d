"""Parses a request of the Responses API into a log and a head, one segment for each piece to be lowered.

`item_scan` reads the items. An item that triggers a compaction says how this request is answered, so it is a
field of the head and not part of the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lamina.core.text.characters import is_blank
from lamina.core.values import RequestHead, Role, Segment, Text
from lamina.dialects.json_values import LIST_TYPES, describe_value, read_optional_text
from lamina.dialects.memos import ParsedPast, ParseMemo
from lamina.dialects.openai_responses.item_scan import ItemScan
from lamina.dialects.openai_responses.items import read_type
from lamina.dialects.openai_responses.parts import NAME
from lamina.dialects.pieces import MessagePiece, MessagePieces, make_segments, require_definitions
from lamina.dialects.port import ParsedRequest, Request
from lamina.errors import BadInput

CONTINUATION_FIELDS = ("previous_response_id", "conversation", "prompt")
"""Fields by which a request continues what only the server has."""


def parse(request: Request, *, memo: ParseMemo | None = None) -> ParsedRequest:
    """Parse instructions and items into a log, everything else into a head.

    `{"instructions": "Be brief.", "input": "Hi", "store": false}` has two segments, and the head `{"store":
    false}`. Instructions of a request that did not change are the same segment objects as before.
    """
    if not isinstance(request, Mapping):
        raise BadInput(f"the request is {describe_value(request)}", hint="give an object with an input")
    all_items = _read_items(request)
    trigger = [item for item in all_items[-1:] if _is_trigger(item)]
    basis = _ParseBasis(
        text=read_optional_text(request, "instructions") or "",
        is_stored=request.get("store") is not False,
        continues=continues_server_state(request),
    )
    memo = memo or ParseMemo(copies=False)
    if memo.basis == basis:
        basis = memo.basis  # with the same segment objects as before
    else:
        basis.instructions = _read_instructions(basis.text)
    unchanged = _drop_last_reasoning(memo.find_unchanged(all_items, basis))
    start = len(unchanged.groups)
    new_items = [item for item in all_items[start:] if not _is_trigger(item)]
    has_items = start > 0 or bool(new_items)
    head = _parse_head(
        request, has_items=has_items, has_instructions=bool(basis.instructions), trigger=trigger
    )

    try:
        # Whoever goes on takes the reader out. A fork that shares these items finds none, in another thread
        # too, and neither does the next request after one that cannot be read.
        scan: ItemScan = (unchanged.state or []).pop()
    except IndexError:
        scan = ItemScan(is_stored=basis.is_stored, has_unseen_calls=basis.continues)
        scan.replay(unchanged.log[unchanged.lead_count :])
    new = scan.read(new_items, start=start)
    memo.basis = basis
    log = memo.remember(unchanged, new_items, new, lead=basis.instructions, state=[scan])
    memo.past = _drop_last_reasoning(memo.past)
    return ParsedRequest(log=log, head=head)


@dataclass
class _ParseBasis:
    """What the reading of items depends on besides the items. `instructions` are the segments of `text`."""

    text: str
    is_stored: bool
    continues: bool
    instructions: tuple[Segment, ...] = field(default=(), compare=False)


def _read_instructions(text: str) -> tuple[Segment, ...]:
    if is_blank(text):
        return ()
    message = MessagePieces(Role.SYSTEM, [MessagePiece("system", Text(text))])
    return make_segments(NAME, text, message, notes={"field": "instructions"})


def continues_server_state(request: Request) -> bool:
    """Whether the request continues something that only the server has.

    `{"previous_response_id": "resp_1"}` does, and so does a stored prompt.
    """
    return any(map(request.get, CONTINUATION_FIELDS))


def _read_items(request: Request) -> Sequence[Any]:
    """The input as items; a text is one item.

    `"Hi"` is read as the items `("Hi",)`, and no input at all as none: a request may only continue another.
    """
    match request.get("input"):
        case None:
            return ()
        case str(text):
            return (text,)
        case list() | tuple() as items:
            return items
        case request_input:
            problem = f"input is {describe_value(request_input)}"
            raise BadInput(problem, place="input", hint="give text or a list of items")


def _is_trigger(item: Any) -> bool:
    """Whether an item asks the server to compact what stands before it."""
    return isinstance(item, Mapping) and read_type(item) == "compaction_trigger"


def _parse_head(
    request: Request, *, has_items: bool, has_instructions: bool, trigger: Sequence[Any]
) -> RequestHead:
    """Tools, and all other fields, as the same objects. An input without items is such a field too.

    Of an input that ends with a `trigger`, only that stays: `render` puts it after all items.
    """
    tools = request.get("tools") or ()
    if not isinstance(tools, LIST_TYPES):
        problem = f"tools is {describe_value(tools)}"
        raise BadInput(problem, place="tools", hint="give a list of definitions")
    require_definitions(tools, "tools")
    if not any((has_items, has_instructions, trigger, continues_server_state(request))):
        raise BadInput("nothing is asked", place="input", hint="give text or a list of items")
    parameters = dict(request)
    read_elsewhere = {"input": has_items, "instructions": has_instructions, "tools": bool(tools)}
    for name, is_read in read_elsewhere.items():
        if is_read:
            del parameters[name]
    if trigger:
        parameters["input"] = list(trigger)
    return RequestHead(tools=tuple(tools), parameters=parameters)


def _drop_last_reasoning(past: ParsedPast) -> ParsedPast:
    """The items without reasoning at the end: how it is read depends on what will follow it.

    If an answer follows in the next request, the reasoning led to it; if not, it cannot be sent.
    """
    end = len(past.groups)
    while end > 0 and past.groups[end - 1][0].kind == "thinking":
        end -= 1
    return past.first(end)
