"""Parses a request of the Responses API into a log and a head, one segment for each piece to be lowered.

`item_scan` reads the items. An item that triggers a compaction says how this request is answered, so it is a
field of the head and not part of the log. Nothing is judged here: what may be lowered is for the core to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from lamina.core.text.characters import is_blank
from lamina.core.values import Head, Role, Segment, Text
from lamina.dialects.memos import ParseMemo, copy_message, count_unchanged
from lamina.dialects.openai_responses.item_scan import ItemPiece, ItemScan, build_segment
from lamina.dialects.openai_responses.items import read_type
from lamina.dialects.openai_responses.json_objects import describe_value
from lamina.dialects.port import ParsedRequest, Request
from lamina.errors import BadInput

CONTINUATION_FIELDS = ("previous_response_id", "conversation", "prompt")
"""Fields by which a request continues what only the server has."""

ParsedItem = tuple[Any, tuple[Segment, ...]]
"""A copy of an item, and the segments that it was parsed into."""


def parse(request: Request, *, memo: ParseMemo | None = None) -> ParsedRequest:
    """Parses instructions and items into a log, everything else into a head."""
    if not isinstance(request, Mapping):
        raise BadInput(f"the request is {describe_value(request)}", hint="give an object with an input")
    all_items = _read_items(request)
    items = [item for item in all_items if not _is_trigger(item)]
    trigger: Sequence[Any] = ()
    if all_items and _is_trigger(all_items[-1]):
        trigger = all_items[-1:]
    instructions = _parse_instructions(request.get("instructions"))
    head = _parse_head(request, items, instructions, trigger=trigger)

    is_stored = request.get("store") is not False
    has_unseen_calls = continues_server_state(request)
    scan = ItemScan(is_stored=is_stored, has_unseen_calls=has_unseen_calls)
    instructions_text = request.get("instructions") if instructions else None
    basis = (instructions_text, is_stored, has_unseen_calls)
    reused: list[ParsedItem] = []
    if memo is not None and memo.basis is not None and memo.basis[0] == basis:
        instructions = memo.basis[1]  # the same segment objects as before
        reused = _drop_last_reasoning(memo.known[: count_unchanged(items, memo.known)])

    past = [segment for _, segments in reused for segment in segments]
    scan.replay(past)
    new_items = items[len(reused) :]
    new = scan.read(new_items, start=len(reused))
    if memo is not None:
        copies = [copy_message(item) for item in new_items]
        memo.basis = (basis, instructions)
        memo.known = _drop_last_reasoning([*reused, *zip(copies, new, strict=True)])
    log = (*instructions, *past, *chain.from_iterable(new))
    return ParsedRequest(log=log, head=head)


def continues_server_state(request: Request) -> bool:
    """Whether the request continues something that only the server has."""
    return any(request.get(field) for field in CONTINUATION_FIELDS)


def _read_items(request: Request) -> Sequence[Any]:
    request_input = request.get("input")
    if request_input is None:
        return ()
    if isinstance(request_input, str):
        return (request_input,)
    if isinstance(request_input, list | tuple):
        return request_input
    problem = f"input is {describe_value(request_input)}"
    raise BadInput(problem, place="input", hint="give text or a list of items")


def _is_trigger(item: Any) -> bool:
    return isinstance(item, Mapping) and read_type(item) == "compaction_trigger"


def _parse_instructions(instructions: Any) -> tuple[Segment, ...]:
    if instructions is None:
        return ()
    if not isinstance(instructions, str):
        problem = f"instructions is {describe_value(instructions)}"
        raise BadInput(problem, place="instructions", hint="give text")
    if is_blank(instructions):
        return ()
    segment = build_segment(
        ItemPiece("system", Text(instructions)),
        Role.SYSTEM,
        instructions,
        {"field": "instructions"},
        is_first=True,
        count=1,
        joins=False,
        pinned=False,
    )
    return (segment,)


def _parse_head(
    request: Request, items: Sequence[Any], instructions: tuple[Segment, ...], *, trigger: Sequence[Any]
) -> Head:
    """Tools, and all other fields, as the same objects. An input without items is such a field too.

    Of an input that ends with a `trigger`, only that stays: `render` puts it after all items.
    """
    tools = request.get("tools") or ()
    if not isinstance(tools, list | tuple):
        problem = f"tools is {describe_value(tools)}"
        raise BadInput(problem, place="tools", hint="give a list of definitions")
    for position, tool in enumerate(tools):
        if not isinstance(tool, dict):
            problem = f"expected an object, got {describe_value(tool)}"
            raise BadInput(problem, place=f"tools[{position}]", hint="give a JSON object")
    asks_something = items or instructions or trigger or continues_server_state(request)
    if not asks_something:
        raise BadInput("nothing is asked", place="input", hint="give text or a list of items")

    parameters = dict(request)
    if items:
        del parameters["input"]
    if instructions:
        del parameters["instructions"]
    if tools:
        del parameters["tools"]
    if trigger:
        parameters["input"] = list(trigger)
    return Head(tools=tuple(tools), parameters=parameters)


def _drop_last_reasoning(parsed_items: list[ParsedItem]) -> list[ParsedItem]:
    """The items without reasoning at the end: how it is read depends on what will follow it."""
    end = len(parsed_items)
    while end > 0:
        _, segments = parsed_items[end - 1]
        if segments[0].kind != "thinking":
            break
        end -= 1
    return parsed_items[:end]
