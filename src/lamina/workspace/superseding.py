"""Finds which earlier results a call of the workspace tools makes redundant, as an order for a cut.

    Options(order=superseding(TABLE))

The core's own table reads names and arguments that many tools share. This one adds what only these tools
mean. It proposes before another order does, and lowers nothing itself. It never looks at a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from lamina.core.ladder import find_full_exchanges, find_superseded, ladder
from lamina.core.orders import Batch, Move, Order, OrderView, goes_last
from lamina.core.text.subjects import SUBJECT_READERS, ReadableCall, Subject, SubjectReader
from lamina.core.values import Form
from lamina.errors import BadInput
from lamina.workspace.paths import join_path, split_path


def read_move(call: ReadableCall) -> Subject | None:
    """A move as a write of both paths, for a table of subjects: readings of either path are outdated."""
    if call.name != "mv":
        return None
    try:
        arguments = msgspec.json.decode(call.arguments, type=dict[str, Any])
        paths = [join_path(split_path(arguments[name])) for name in ("path", "to")]
    except (msgspec.MsgspecError, UnicodeError, KeyError, TypeError, RecursionError, BadInput):
        return None
    return Subject(verb="write", resource="\n".join(dict.fromkeys(paths)))


TABLE: tuple[SubjectReader, ...] = (read_move, *SUBJECT_READERS)
"""The subjects of calls, with those of the workspace tools."""


def superseding(table: tuple[SubjectReader, ...], *, then: Order = ladder) -> Order:
    """An order that first lowers results that only this table takes for outdated, then what `then` lowers."""

    def order(view: OrderView) -> Iterator[Batch]:
        yield from _lower_outdated(view, table)
        yield from then(view)

    return order


ORDER = superseding(TABLE)
"""The usual ladder, and before it the results of workspace tools. Sessions cut by it."""


def _lower_outdated(view: OrderView, table: tuple[SubjectReader, ...]) -> Iterator[Batch]:
    """Lower results that this table takes for outdated and the core's table does not."""
    positions, exchanges = find_full_exchanges(view.entries)
    superseded_for_core = find_superseded(exchanges)
    free = frozenset(view.free())
    for older, newer in sorted(find_superseded(exchanges, table=table).items()):
        position = positions[older]
        newer_result = view.entries[positions[newer]]
        if older in superseded_for_core or position not in free:
            continue
        if not goes_last(view.entries[position], view.kinds):
            yield (Move(position, Form.STUB, f"superseded by {newer_result.ref}"),)
