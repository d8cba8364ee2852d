"""What a parse memo compares with: copies of messages that share their text, and how far they still hold.

A message counts as unchanged if it equals its copy, and the object that its segments came from does too: it
may have been changed in place since.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from lamina.core.values import Segment
from lamina.errors import BadInput

Known = Sequence[tuple[Any, tuple[Segment, ...]]]


def unchanged(messages: Sequence[Any], known: Known) -> int:
    """How many messages are as they were, and so are the objects that their segments came from."""
    count = 0
    try:
        for message, (was, segments) in zip(messages, known, strict=False):
            before = segments[0].meta["wire"]["message"]
            if message != was or (before is not message and before != was):
                break
            count += 1
    except RecursionError:
        return count
    return count


def intact(before: Known, now: Known) -> bool:
    """Whether none of the messages that were known before has been changed in place since.

    Those that are known still were compared when the request was parsed; the others are compared here.
    """
    same = 0
    for old, new in zip(before, now, strict=False):
        if old is not new:
            break
        same += 1
    try:
        return all(_as_it_was(copied, segments) for copied, segments in before[same:])
    except RecursionError:
        return False


def _as_it_was(copied: Any, segments: tuple[Segment, ...]) -> bool:
    message = segments[0].meta.get("wire", {}).get("message") if segments else None
    return bool(message == copied)


def snapshot(message: Any) -> Any:
    """A copy to compare with later, sharing all text."""
    try:
        return _copied(message)
    except RecursionError:
        raise BadInput("it is nested too deeply", place="request", hint="give plain JSON") from None


def _copied(value: Any) -> Any:
    if isinstance(value, str | bytes):
        return value
    if type(value) is dict:
        return {name: _copied(inner) for name, inner in value.items()}
    if type(value) is list:
        return [_copied(inner) for inner in value]
    return deepcopy(value)
