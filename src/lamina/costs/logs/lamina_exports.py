"""Reads what lamina itself exported: a record of `codec` on each line.

A log is no request, so it is rendered once, with nothing lowered, in the dialect that most of it was parsed
from; in Chat Completions where it was parsed from none. Usage is not part of an export.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from lamina.core.build import build
from lamina.core.layout import Layout
from lamina.core.values import RequestHead, Segment
from lamina.costs.logs.lines import TraceRow
from lamina.costs.logs.requests import FIELDS
from lamina.costs.logs.values import Trace, UnreadableLine
from lamina.dialects import DIALECTS
from lamina.dialects.origins import read_origin
from lamina.dialects.translate import choose_options
from lamina.errors import BadInput, LaminaError
from lamina.formats.codec import decode


def is_export(row: dict[str, Any]) -> bool:
    """Whether it is a record of `codec`."""
    return "v" in row and "segment" in row


class Exported:
    """State: the records of a file."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.place = ""

    def take(self, row: TraceRow) -> Iterator[UnreadableLine]:
        """Take in a record, or say why it cannot be read."""
        try:
            decode([row.raw])
        except LaminaError as error:
            yield UnreadableLine(place=row.place, reason=_reason(error))
            return
        self.place = self.place or row.place
        self.records.append(row.raw)

    def end(self) -> Iterator[Trace | UnreadableLine]:
        if self.records:
            yield log_to_trace(decode(self.records), self.place)
        self.records = []


def log_to_trace(log: Sequence[Segment], place: str, *, model: str = "") -> Trace | UnreadableLine:
    """A log as the conversation that a provider would be sent."""
    dialect = DIALECTS[_most_common_dialect(log)]
    try:
        options = choose_options(dialect, RequestHead(), layout=Layout(context="logged"))
        request = dialect.wire.render(build(log, options=options))
    except LaminaError as error:
        return UnreadableLine(place=place, reason=_reason(error))
    items = request.pop(FIELDS[dialect.name])
    return Trace(
        id=place, place=place, dialect=dialect.name, items=items, head=request, source="lamina", model=model
    )


def _most_common_dialect(log: Sequence[Segment]) -> str:
    """The dialect that most segments were parsed from, of those that can be replayed."""
    counts: Counter[str] = Counter()
    for segment in log:
        origin = read_origin(segment)
        if origin is not None:
            counts[origin.dialect] += 1
    # a chat may have gone from one provider to another
    for name, _ in counts.most_common():
        if name in FIELDS:
            return name
    return "openai_chat"


def _reason(error: LaminaError) -> str:
    if isinstance(error, BadInput):
        return error.problem
    return str(error)
