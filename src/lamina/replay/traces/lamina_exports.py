"""What lamina itself exported: a record of `codec` on each line, or a chat as a Markdown page.

A log is no request, so it is rendered once, with nothing lowered, in the dialect that most of it was parsed
from; Chat Completions where it was parsed from none. Usage is not part of an export.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from lamina.core.arrange import Layout
from lamina.core.build import build
from lamina.core.values import Head, Segment
from lamina.dialects import DIALECTS
from lamina.dialects.translate import options_for
from lamina.errors import BadInput, LaminaError
from lamina.formats.codec import decode
from lamina.formats.markdown import read
from lamina.replay.traces.lines import TraceRow
from lamina.replay.traces.requests import FIELDS
from lamina.replay.values import Trace, UnreadableLine

_PAGE = "---\n"


def is_export(row: dict[str, Any]) -> bool:
    return "v" in row and "segment" in row


class Exported:
    """State: the records of a file."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.place = ""

    def take(self, row: TraceRow) -> Iterator[UnreadableLine]:
        try:
            decode([row.raw])
        except LaminaError as error:
            yield UnreadableLine(place=row.place, reason=_said(error))
            return
        self.place = self.place or row.place
        self.records.append(row.raw)

    def end(self) -> Iterator[Trace | UnreadableLine]:
        if self.records:
            yield trace_of(decode(self.records), self.place)
        self.records = []


def page(text: str, place: str) -> Iterator[Trace | UnreadableLine]:
    """The chat of a page that lamina wrote; nothing for any other page."""
    if not text.startswith(_PAGE) or "\n<!-- lamina:" not in text:
        return
    try:
        chat = read(text)
    except LaminaError as error:
        yield UnreadableLine(place=place, reason=_said(error))
        return
    if chat.log:
        yield trace_of(chat.log, place, model=chat.model)


def trace_of(log: Sequence[Segment], place: str, *, model: str = "") -> Trace | UnreadableLine:
    """A log as the conversation that a provider would be sent."""
    dialect = DIALECTS[_dialect(log)]
    try:
        options = options_for(dialect, Head(), layout=Layout(context="logged"))
        request = dialect.render(build(log, options=options))
    except LaminaError as error:
        return UnreadableLine(place=place, reason=_said(error))
    items = request.pop(FIELDS[dialect.name])
    return Trace(
        id=place, place=place, dialect=dialect.name, items=items, head=request, source="lamina", model=model
    )


def _dialect(log: Sequence[Segment]) -> str:
    notes = (segment.meta.get("wire") for segment in log)
    names = Counter(str(note.get("dialect")) for note in notes if isinstance(note, dict))
    return next((name for name, _ in names.most_common() if name in FIELDS), "openai_chat")


def _said(error: LaminaError) -> str:
    return error.problem if isinstance(error, BadInput) else str(error)
