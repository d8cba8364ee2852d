"""Finds the earlier tool results that say nothing that a later result does not say better.

Calls are compared by their subjects (`lamina.core.text.subjects`): one pass finds, for each result, the
latest one that makes it redundant. A call without a subject supersedes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.core.text.replaced_calls import find_replaced_calls
from lamina.core.text.subjects import SUBJECT_READERS, SubjectReader, read_subject
from lamina.core.values import ToolCall, ToolResult


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """A call and the result that answered it."""

    call: ToolCall
    result: ToolResult


def find_superseded(
    exchanges: Sequence[Exchange], *, table: tuple[SubjectReader, ...] = SUBJECT_READERS
) -> dict[int, int]:
    """The index of each result that says nothing new, with the index of the latest that says it better."""
    calls = [(read_subject(exchange.call, table=table), exchange.result.error) for exchange in exchanges]
    return find_replaced_calls(calls)
