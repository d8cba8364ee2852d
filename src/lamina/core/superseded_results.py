"""Finds the earlier tool results that say nothing that a later result does not say better.

Calls are compared by their subjects (`lamina.core.text.subjects`): one pass finds, for each result, the
latest one that makes it redundant. A call without a subject supersedes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.core.entries import pair_calls
from lamina.core.text.replaced_calls import find_replaced_calls
from lamina.core.text.subjects import SUBJECT_READERS, SubjectReader, read_subject
from lamina.core.values import Entry, Form, ToolCall, ToolResult


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


def find_full_exchanges(entries: Sequence[Entry]) -> tuple[list[int], list[Exchange]]:
    """The positions of all results that are sent in full, and each of them with its call.

    Only such a result can make an earlier one redundant.
    """
    positions: list[int] = []
    exchanges: list[Exchange] = []
    for call_at, result_at in pair_calls(entries):
        if entries[result_at].form is not Form.FULL:
            continue
        match entries[call_at].parts[0], entries[result_at].parts[0]:
            case ToolCall() as call, ToolResult() as result:
                positions.append(result_at)
                exchanges.append(Exchange(call=call, result=result))
    return positions, exchanges
