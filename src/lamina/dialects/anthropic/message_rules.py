"""Rules of the Messages API about whole messages: their order, their content, system messages.

Each docstring begins with the rule's number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lamina.core.text.characters import is_blank
from lamina.dialects.anthropic.blocks import Block
from lamina.dialects.anthropic.messages import begins_with_compaction, ends_with_server_result
from lamina.dialects.anthropic.model import read_model, refuses_system_messages, rejects_prefill
from lamina.dialects.anthropic.readings import Breaches, MessageReading, MessagesReading
from lamina.dialects.json_values import list_or_empty, to_dict_or_empty
from lamina.dialects.port import Request


def has_limit(reading: MessagesReading) -> Breaches:
    """A request says how long the answer may be."""
    limit = reading.request.get("max_tokens")
    if not isinstance(limit, int) or limit < 0:
        yield "max_tokens", "max_tokens: field required, as a number"


def begins_with_user(reading: MessagesReading) -> Breaches:
    """A1: the first message is the user's, or a compaction.

    A compaction replaces what the user said before it. A system message may come first too, as far as this
    rule is concerned; A11 says more about those.
    """
    if reading.has_earlier_messages:
        return
    if not reading.messages:
        yield "messages", "at least one message is required"
        return
    first = reading.messages[0]
    if first.role == "assistant" and not begins_with_compaction(first.message):
        yield "messages[0].role", "the first message must use the user role"


def ends_with_user(reading: MessagesReading) -> Breaches:
    """A2: models from 4.6 on take no assistant prefill.

    A prefill is an assistant message at the end, which the model would have continued.
    """
    if not reading.messages:
        return
    last = reading.messages[-1]
    if last.role == "assistant" and rejects_prefill(read_model(reading.request)):
        yield last.place, "this model does not support assistant message prefill; end with a user message"


def nothing_is_empty(reading: MessagesReading) -> Breaches:
    """A8: no blank text, and no message without content.

    Texts are looked for in messages, inside tool results, and in the system text. A directive, which is a
    system message with an empty list of blocks, is allowed.
    """
    for message in reading.messages:
        if not message.blocks and not message.is_directive:
            yield message.place, "messages must have non-empty content"
        for block_index, block in enumerate(message.blocks):
            for inner_place in _find_blank_texts(block):
                place = f"{message.block_place(block_index)}{inner_place}"
                yield place, "text content blocks must be non-empty"
    for position, block in enumerate(_read_system_blocks(reading.request)):
        for inner_place in _find_blank_texts(block):
            yield f"system[{position}]{inner_place}", "system: text content blocks must be non-empty"


def _read_system_blocks(request: Request) -> list[dict[str, Any]]:
    return [to_dict_or_empty(block) for block in list_or_empty(request.get("system"))]


def _find_blank_texts(block: Block) -> Iterator[str]:
    """The places of blank texts in a block: "" for its own, ".content[0]" for one inside a result."""
    block_type = block.get("type")
    if block_type == "text" and is_blank(str(block.get("text"))):
        yield ""
    if block_type != "tool_result":
        return
    for position, piece in enumerate(list_or_empty(block.get("content"))):
        inner = to_dict_or_empty(piece)
        if inner.get("type") == "text" and is_blank(str(inner.get("text"))):
            yield f".content[{position}]"


def system_messages_stand_right(reading: MessagesReading) -> Breaches:
    """A11: after the user, or a server tool's result; last, or before the assistant.

    A directive (a system message without words) may stand before the user too. So the neighbours of a system
    message are looked for past it.
    """
    if all(message.role != "system" for message in reading.messages):
        return
    previous: MessageReading | None = None
    unfollowed: MessageReading | None = None  # a system message whose next neighbour was not seen yet
    for message in reading.messages:
        if unfollowed is not None and not message.is_directive:
            if message.role != "assistant":
                problem = "a system message must be last, or stand before an assistant message"
                yield unfollowed.place, problem
            unfollowed = None
        if message.role == "system" and not _may_follow(previous, message):
            yield message.place, "a system message must follow a user message"
        if message.is_directive:
            continue
        previous = message
        if message.role == "system":
            unfollowed = message


def _may_follow(previous: MessageReading | None, system_message: MessageReading) -> bool:
    if previous is None:
        return False
    if previous.role == "user":
        return True
    if previous.role == "assistant":
        return ends_with_server_result(previous.message)
    return previous.role == "system" and system_message.is_directive


def system_messages_are_taken(reading: MessagesReading) -> Breaches:
    """A11: models before 4.8 have no system messages, only `system`."""
    if not refuses_system_messages(read_model(reading.request)):
        return
    for message in reading.messages:
        if message.role == "system":
            yield message.place, 'this model takes no messages with the role "system"'
