"""What is lowered first: the order of a cut, as a pure function from entries to moves.

The ladder, top rung first: what is disposable, superseded results, other old results (shortened, then
by handle), attachments by priority, old replies, large arguments of old calls, images and documents,
whole old steps under a digest; at the very end what cannot be recovered. An order only proposes: `fit`
takes moves until the target is reached, and skips each that would not shrink the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from lamina.core.arrange import pairs
from lamina.core.kinds import Kinds, Retention, priority, recoverable, row
from lamina.core.supersede import Exchange, superseded
from lamina.core.values import Document, Entry, Form, Image, Layer, Role, Text, Thinking, ToolCall, ToolResult

REPLY_LIMIT = 400
"""Characters of an old reply that stay when replies are shortened."""

VERBATIM_LIMIT = 2_000
"""Characters of a user's message that a digest keeps word for word; longer ones are not folded."""


class Move(NamedTuple):
    """Send the entry at `at` in `form`; `fold`: omitted under a digest, with its neighbours."""

    at: int
    form: Form
    why: str
    limit: int = 0
    fold: bool = False


Batch = tuple[Move, ...]
"""Moves that are taken together or not at all."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What an order may look at. `untouchable` and `spared` are positions: law, and wish."""

    entries: Sequence[Entry]
    kinds: Kinds
    untouchable: frozenset[int]
    spared: frozenset[int]

    def free(self) -> list[int]:
        """Positions that may be lowered now, oldest first."""
        blocked = self.untouchable | self.spared
        return [i for i, e in enumerate(self.entries) if e.form is not Form.OMITTED and i not in blocked]


Order = Callable[[View], Iterator[Batch]]


def ladder(view: View) -> Iterator[Batch]:
    """The order that is lamina's own."""
    free = [i for i in view.free() if view.entries[i].segment.origin != "lamina"]
    plain = [i for i in free if not goes_last(view.entries[i], view.kinds)]
    yield from _disposable(view, plain)
    yield from _stale(view, plain)
    results = [i for i in plain if _is(view.entries[i], ToolResult)]
    yield from ((Move(i, Form.COMPACT, "old result"),) for i in results)
    yield from ((Move(i, Form.STUB, "old result"),) for i in results)
    yield from _attachments(view, plain)
    replies = [i for i in plain if _is(view.entries[i], Text) and view.entries[i].role is Role.ASSISTANT]
    yield from ((Move(i, Form.COMPACT, "old reply", REPLY_LIMIT),) for i in replies)
    yield from ((Move(i, Form.COMPACT, "large arguments"),) for i in plain if _is(view.entries[i], ToolCall))
    yield from (
        (Move(i, Form.STUB, "image or document"),) for i in free if _is(view.entries[i], Image | Document)
    )
    yield from steps(view, verbatim=VERBATIM_LIMIT)


def last_resort(view: View) -> Iterator[Batch]:
    """When nothing else is left: what cannot be recovered, oldest first, then everything under digests."""
    free = [i for i in view.free() if view.entries[i].segment.origin != "lamina"]
    yield from ((Move(i, Form.STUB, "nothing else is left to lower"),) for i in free)
    yield from steps(view, verbatim=None)


def oldest_first(view: View) -> Iterator[Batch]:
    """The trimming RFC's order: replies and results, all before the spared ones at once, then one by one."""
    blocked = view.untouchable
    mine = [i for i, e in enumerate(view.entries) if i not in blocked and _trimmable(e)]
    before = min(view.spared, default=len(view.entries))
    yield tuple(Move(i, Form.STUB, "old") for i in mine if i < before)
    for _, message in groupby((i for i in mine if i >= before), key=lambda i: _message(view.entries, i)):
        yield tuple(Move(i, Form.STUB, "old") for i in message)


def steps(view: View, *, verbatim: int | None) -> Iterator[Batch]:
    """Whole steps, oldest first, for a digest; a call goes with its result or stays with it."""
    foldable = {i for i in view.free() if _foldable(view.entries[i], view.kinds, verbatim)}
    for call, result in pairs(view.entries):
        if (call in foldable) != (result in foldable):
            foldable -= {call, result}
    ordered = sorted(foldable)
    for _, step in groupby(ordered, key=lambda i: view.entries[i].step):
        yield tuple(Move(i, Form.OMITTED, "folded", fold=True) for i in step)


def goes_last(entry: Entry, kinds: Kinds) -> bool:
    """Critical, or not to be had again: lowered when nothing else is left. Images have their own rung."""
    if entry.segment.parts and isinstance(entry.segment.parts[0], Image | Document):
        return False
    return row(kinds, entry.segment).retention is Retention.CRITICAL or not recoverable(kinds, entry.segment)


def _disposable(view: View, free: list[int]) -> Iterator[Batch]:
    """What stands in its own turn only, and thinking; of one message all of it or none."""
    for i in free:
        entry = view.entries[i]
        retention = row(view.kinds, entry.segment).retention
        if retention is Retention.EPHEMERAL and entry.layer is Layer.HISTORY:
            yield (Move(i, Form.OMITTED, "stands in its own turn only"),)
        elif retention is Retention.DISPOSABLE and not _is(entry, Thinking):
            yield (Move(i, Form.STUB, "disposable"),)
    thoughts = [i for i in free if _is(view.entries[i], Thinking)]
    for _, step in groupby(thoughts, key=lambda i: view.entries[i].step):
        yield tuple(Move(i, Form.OMITTED, "disposable") for i in step)


def _stale(view: View, free: list[int]) -> Iterator[Batch]:
    """Results that a later one, standing in full, makes redundant."""
    allowed = frozenset(free)
    found = [(c, r) for c, r in pairs(view.entries) if view.entries[r].form is Form.FULL]
    exchanges = [_exchange(view.entries[c], view.entries[r]) for c, r in found]
    for at, by in sorted(superseded(exchanges).items()):
        result, later = found[at][1], view.entries[found[by][1]]
        if result in allowed:
            yield (Move(result, Form.STUB, f"superseded by {later.ref}"),)


def _exchange(call: Entry, result: Entry) -> Exchange:
    asked, answered = call.parts[0], result.parts[0]
    if not isinstance(asked, ToolCall) or not isinstance(answered, ToolResult):
        raise TypeError((asked, answered))
    return Exchange(call=asked, result=answered)


def _attachments(view: View, free: list[int]) -> Iterator[Batch]:
    """Lowest importance first; among equals the one that was added first."""
    found = [i for i in free if row(view.kinds, view.entries[i].segment).attachment]
    found.sort(key=lambda i: -priority(view.kinds, view.entries[i].segment))
    yield from ((Move(i, Form.COMPACT, "attachment"),) for i in found)
    yield from ((Move(i, Form.STUB, "attachment"),) for i in found)


def _foldable(entry: Entry, kinds: Kinds, verbatim: int | None) -> bool:
    if entry.segment.kind == "digest" or entry.layer is Layer.LIBRARY:
        return False
    if verbatim is None or not goes_last(entry, kinds) or entry.segment.origin == "lamina":
        return True
    words = [part for part in entry.segment.parts if isinstance(part, Text)]
    return (
        entry.role is Role.USER
        and len(words) == len(entry.parts)
        and sum(len(p.text) for p in words) <= verbatim
    )


def _trimmable(entry: Entry) -> bool:
    return entry.role in (Role.ASSISTANT, Role.TOOL) and entry.form is Form.FULL and not _is(entry, ToolCall)


def _message(entries: Sequence[Entry], index: int) -> int:
    while not entries[index].opens and index > 0:
        index -= 1
    return index


def _is(entry: Entry, sort: type | object) -> bool:
    return bool(entry.parts) and isinstance(entry.parts[0], sort)  # type: ignore[arg-type]
