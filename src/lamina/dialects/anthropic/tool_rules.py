"""Rules of the Messages API about calls and their results. Each docstring begins with the rule's number."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from lamina.dialects.anthropic.blocks import is_safe_name
from lamina.dialects.anthropic.readings import (
    Breaches,
    LocatedBlock,
    MessageReading,
    MessagesReading,
    collect_ids,
)

_NO_IDS: frozenset[str] = frozenset()


def calls_are_answered(reading: MessagesReading) -> Breaches:
    """A3: every tool_use has its tool_result in the next message.

    Broken if the user interrupted a call and the client sent only "go on" after it.
    """
    for position, message in enumerate(reading.messages):
        if not message.calls:
            continue
        answered_ids: Collection[str] = _NO_IDS
        if position + 1 < len(reading.messages):
            answered_ids = collect_ids(reading.messages[position + 1].results, "tool_use_id")
        for block_index, call in message.calls:
            call_id = call.get("id")
            if call_id not in answered_ids:
                problem = f"`tool_use` id {call_id!r} without a `tool_result` immediately after"
                yield message.block_place(block_index), problem


def results_have_their_call(reading: MessagesReading) -> Breaches:
    """A4: every tool_result answers a tool_use of the message before it.

    Broken if a client cut off the front of its history between a call and its result.
    """
    previous: MessageReading | None = None
    for message in reading.messages:
        if message.results:
            call_ids: Collection[str] = _NO_IDS
            if previous is not None:
                call_ids = collect_ids(previous.calls, "id")
            for block_index, result in message.results:
                call_id = result.get("tool_use_id")
                if call_id not in call_ids:
                    problem = f"unexpected `tool_use_id` {call_id!r}: no such call just before"
                    yield message.block_place(block_index), problem
        previous = message


def results_come_once(reading: MessagesReading) -> Breaches:
    """A4: a call has one result."""
    for message in reading.messages:
        if len(message.results) < 2:
            continue
        results = [(message, block_index, block) for block_index, block in message.results]
        yield from _find_repeated_ids(results, "tool_use_id", "a second result for")


def call_ids_are_unique(reading: MessagesReading) -> Breaches:
    """A5: no two tool_use blocks share an id, in the whole conversation.

    Broken by clients that count calls from 1 in each turn.
    """
    problem = "`tool_use` ids must be unique:"
    yield from _find_repeated_ids(reading.calls(), "id", problem, earlier_ids=reading.past.call_ids)


def _find_repeated_ids(
    blocks: Iterable[LocatedBlock], field: str, problem: str, *, earlier_ids: Collection[str] = _NO_IDS
) -> Breaches:
    """Reports blocks whose id an earlier one has, among these blocks or before them."""
    seen_ids: set[str] = set()
    for message, block_index, block in blocks:
        block_id = block.get(field)
        if not isinstance(block_id, str):
            continue
        if block_id in seen_ids or block_id in earlier_ids:
            yield message.block_place(block_index), f"{problem} {block_id!r}"
        seen_ids.add(block_id)


def results_come_first(reading: MessagesReading) -> Breaches:
    """A6: in a user message, results come before everything else.

    The results of one message are numbered 0, 1, 2 …; if each stands at the position of its number, nothing
    else comes before it.
    """
    for message in reading.messages:
        for rank, (block_index, _) in enumerate(message.results):
            if block_index != rank:
                place = message.block_place(block_index)
                yield place, "`tool_result` blocks must come before other content"


def names_are_allowed(reading: MessagesReading) -> Breaches:
    """A16: names of tools and ids of calls have letters, digits, `_` and `-`, at most 128."""
    for position, tool in enumerate(reading.request.get("tools") or ()):
        if "name" in tool and not _is_allowed(tool["name"]):
            yield f"tools[{position}].name", "tool names should match '^[a-zA-Z0-9_-]{1,128}$'"
    for message, block_index, call in reading.calls():
        for field in ("name", "id"):
            if not _is_allowed(call.get(field)):
                problem = f"tool_use.{field} should match '^[a-zA-Z0-9_-]{{1,128}}$'"
                yield f"{message.block_place(block_index)}.{field}", problem


def _is_allowed(name: Any) -> bool:
    return isinstance(name, str) and is_safe_name(name)
