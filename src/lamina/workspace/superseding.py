"""Which earlier results a call of the workspace tools makes redundant, as an order for a cut.

    Options(order=superseding(TABLE))

The core's own table reads names and arguments that many tools share; this one adds what only these tools
mean. It proposes before another order does, and lowers nothing itself. It never looks at a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from lamina.core.arrange import pairs
from lamina.core.orders import Batch, Move, Order, OrderView, goes_last, ladder
from lamina.core.superseded_results import Exchange, superseded
from lamina.core.text.subjects import SUBJECTS, ReadableCall, Subject, SubjectReader
from lamina.core.values import Entry, Form, ToolCall, ToolResult
from lamina.errors import BadInput
from lamina.workspace.paths import joined, steps


def moved(call: ReadableCall) -> Subject | None:
    """A move as a write of both paths, for a table of subjects: what was read at either place is old."""
    if call.name != "mv":
        return None
    try:
        given = msgspec.json.decode(call.arguments, type=dict[str, Any])
        paths = [joined(steps(given[name])) for name in ("path", "to")]
    except (msgspec.MsgspecError, UnicodeError, KeyError, TypeError, RecursionError, BadInput):
        return None
    return Subject(verb="write", resource="\n".join(dict.fromkeys(paths)))


TABLE: tuple[SubjectReader, ...] = (moved, *SUBJECTS)
"""The subjects of calls, with those of the workspace tools."""


def superseding(table: tuple[SubjectReader, ...], *, then: Order = ladder) -> Order:
    """An order that begins with what this table knows to be outdated and the core's own does not."""

    def order(view: OrderView) -> Iterator[Batch]:
        yield from _outdated(view, table)
        yield from then(view)

    return order


ORDER = superseding(TABLE)
"""The ladder, with the workspace tools known: what a session cuts by."""


def _outdated(view: OrderView, table: tuple[SubjectReader, ...]) -> Iterator[Batch]:
    found = [(c, r) for c, r in pairs(view.entries) if view.entries[r].form is Form.FULL]
    had = [_exchange(view.entries[c], view.entries[r]) for c, r in found]
    known, allowed = superseded(had), frozenset(view.free())
    for at, by in sorted(superseded(had, table=table).items()):
        result, later = found[at][1], view.entries[found[by][1]]
        if at not in known and result in allowed and not goes_last(view.entries[result], view.kinds):
            yield (Move(result, Form.STUB, f"superseded by {later.ref}"),)


def _exchange(call: Entry, result: Entry) -> Exchange:
    asked, answered = call.parts[0], result.parts[0]
    if not isinstance(asked, ToolCall) or not isinstance(answered, ToolResult):
        raise TypeError((asked, answered))
    return Exchange(call=asked, result=answered)
