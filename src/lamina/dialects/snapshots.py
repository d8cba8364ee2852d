"""What a parse memo compares with: copies of messages that share their text, and how far they still hold.

A message counts as unchanged if it equals its copy, and the object that its segments came from does too: that
object may have been changed in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from lamina.core.values import Segment
from lamina.errors import BadInput

ParsedMessages = Sequence[tuple[Any, tuple[Segment, ...]]]
"""Copies of messages, each with the segments that the message was parsed into."""


def count_unchanged(messages: Sequence[Any], parsed_messages: ParsedMessages) -> int:
    """How many messages are as they were when they were parsed, from the first on."""
    count = 0
    try:
        for message, (message_copy, segments) in zip(messages, parsed_messages, strict=False):
            source = segments[0].meta["wire"]["message"]
            if message != message_copy:
                break
            if source is not message and source != message_copy:
                break
            count += 1
    except RecursionError:
        return count
    return count


def are_unchanged(before: ParsedMessages, now: ParsedMessages) -> bool:
    """Whether none of the messages that the memo held before has been changed in place since.

    Messages that it still holds were compared when the request was parsed. The others are compared here.
    """
    same_count = 0
    for old, new in zip(before, now, strict=False):
        if old is not new:
            break
        same_count += 1
    try:
        return all(_equals_copy(message_copy, segments) for message_copy, segments in before[same_count:])
    except RecursionError:
        return False


def _equals_copy(message_copy: Any, segments: tuple[Segment, ...]) -> bool:
    source = None
    if segments:
        source = segments[0].meta.get("wire", {}).get("message")
    return bool(source == message_copy)


def copy_message(message: Any) -> Any:
    """A copy to compare with later. It shares all text with the message."""
    try:
        return _copy_value(message)
    except RecursionError:
        raise BadInput("it is nested too deeply", place="request", hint="give plain JSON") from None


def _copy_value(value: Any) -> Any:
    if isinstance(value, str | bytes):
        return value
    if type(value) is dict:
        return {name: _copy_value(inner) for name, inner in value.items()}
    if type(value) is list:
        return [_copy_value(inner) for inner in value]
    return deepcopy(value)
