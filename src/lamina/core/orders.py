"""What is lowered first: the order of a cut, as a pure function from entries to moves.

The ladder, top rung first: what is disposable; superseded results; then everything else that can be had
again, the ripest first; at the very end what cannot be recovered. A move is the riper the older and larger
what it takes, and the less it says for its size (`ripeness`). An order only proposes: `fit` takes moves
until the target is reached, and skips each that would not shrink the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from lamina.core.arrange import OWN_TURN_ONLY, pairs
from lamina.core.kinds import Kinds, Retention, is_section, is_turn_scoped, priority, recoverable, row
from lamina.core.superseded_results import Exchange, superseded
from lamina.core.values import Document, Entry, Form, Image, Layer, Role, Text, Thinking, ToolCall, ToolResult

REPLY_LIMIT = 400
"""Characters of an old reply that stay when replies are shortened."""

VERBATIM_LIMIT = 2_000
"""Characters of a user's message that a digest keeps word for word; longer ones are not folded."""


DOES_NOT_FIT = "does not fit beside what must stand"


class Move(NamedTuple):
    """Send the entry at `at` in `form`; `fold`: omitted under a digest, with its neighbours."""

    at: int
    form: Form
    why: str
    limit: int = 0
    fold: bool = False


Batch = tuple[Move, ...]
"""Moves that are taken together or not at all."""


class OrderView(msgspec.Struct, frozen=True, kw_only=True):
    """What an order may look at. `untouchable` and `spared` are positions: law, and wish.

    `current` are the positions of the prompt and the last step. What stands there may be lowered only where
    it is not untouchable, and it is never folded.
    """

    entries: Sequence[Entry]
    kinds: Kinds
    untouchable: frozenset[int]
    spared: frozenset[int]
    current: frozenset[int] = frozenset()

    def free(self) -> list[int]:
        """Positions that may be lowered now, oldest first."""
        blocked = self.untouchable | self.spared
        return [i for i, e in enumerate(self.entries) if e.form is not Form.OMITTED and i not in blocked]


Order = Callable[[OrderView], Iterator[Batch]]


def ladder(view: OrderView) -> Iterator[Batch]:
    """The order that is lamina's own."""
    free = [i for i in view.free() if view.entries[i].segment.origin != "lamina"]
    plain = [i for i in free if not goes_last(view.entries[i], view.kinds)]
    yield from _disposable(view, plain)
    yield from _stale(view, plain)
    rated = [*_messages(view, plain), *_attachments(view, plain), *_media(view, free), *_old_steps(view)]
    yield from (batch for _, batch in sorted(rated, key=lambda rated: -rated[0]))


def last_resort(view: OrderView) -> Iterator[Batch]:
    """When nothing else is left: what cannot be recovered, oldest first, then everything under digests."""
    free = [i for i in view.free() if view.entries[i].segment.origin != "lamina"]
    yield from ((Move(i, Form.STUB, "nothing else is left to lower"),) for i in free)
    yield from steps(view, verbatim=None)


def last_results(view: OrderView) -> Iterator[Batch]:
    """Results of the last step, when all else is lowered and the request is still too large; largest first.

    They have not been answered to yet, so they are shortened as little as the room allows.
    """
    results = [i for i in view.current if _answers(view.entries[i]) and _may_shorten(view, i)]
    results.sort(key=lambda i: (-view.entries[i].tokens, i))
    yield from ((Move(i, Form.COMPACT, DOES_NOT_FIT),) for i in results)
    yield from ((Move(i, Form.STUB, DOES_NOT_FIT),) for i in results)


def _answers(entry: Entry) -> bool:
    """Whether it is the result of a call, also where it came too late and stands as content."""
    parts = entry.segment.parts
    return bool(parts) and isinstance(parts[0], ToolResult)


def _may_shorten(view: OrderView, at: int) -> bool:
    entry = view.entries[at]
    if entry.form is Form.OMITTED or entry.segment.pinned or entry.segment.origin == "lamina":
        return False
    return recoverable(view.kinds, entry.segment)


def repeated_system_text(view: OrderView) -> list[int]:
    """Positions of system text in the conversation that stands again, byte for byte, further on.

    Sections are not meant: a cut puts the newest one among the system text, in place of the older ones.
    """
    reminders = [
        i
        for i, entry in enumerate(view.entries)
        if entry.role is Role.SYSTEM
        and entry.layer is not Layer.SYSTEM
        and entry.form is not Form.OMITTED
        and not is_section(view.kinds, entry.segment)
    ]
    newest = {view.entries[i].content: i for i in reminders}
    return [
        i
        for i in reminders
        if newest[view.entries[i].content] > i
        and i not in view.current
        and not view.entries[i].segment.pinned
    ]


def steps(view: OrderView, *, verbatim: int | None) -> Iterator[Batch]:
    """Whole steps, oldest first, for a digest.

    A step with calls is folded as a whole or not at all: a digest may not stand between a call and its
    result, and a call may not stand without its result.
    """
    past = [i for i in view.free() if i not in view.current]
    foldable = {i for i in past if _foldable(view.entries[i], view.kinds, verbatim)}
    broken = _steps_that_would_break(view.entries, foldable)
    ordered = sorted(i for i in foldable if view.entries[i].step not in broken)
    for _, step in groupby(ordered, key=lambda i: view.entries[i].step):
        yield tuple(Move(i, Form.OMITTED, "folded", fold=True) for i in step)


def _steps_that_would_break(entries: Sequence[Entry], foldable: set[int]) -> set[int]:
    """Steps with calls of which a part must stay that stands among the rest, or is a call or a result itself.

    What stays before or after all the rest, such as an item of the provider's own, stands beside the digest.
    """
    paired = {i for pair in pairs(entries) for i in pair}
    with_calls = {entries[i].step for i in paired}
    folded: dict[int, list[int]] = {}
    for i in sorted(foldable):
        folded.setdefault(entries[i].step, []).append(i)
    broken: set[int] = set()
    for i, entry in enumerate(entries):
        if entry.step not in with_calls or i in foldable or not _stands_in_step(entry):
            continue
        rest = folded.get(entry.step, [])
        if i in paired or (rest and rest[0] < i < rest[-1]):
            broken.add(entry.step)
    return broken


def _stands_in_step(entry: Entry) -> bool:
    """Whether an entry is sent as a part of its step. System text and digests are not."""
    if entry.form is Form.OMITTED or entry.segment.kind == "digest":
        return False
    return entry.role is not Role.SYSTEM and entry.layer is not Layer.LIBRARY


def goes_last(entry: Entry, kinds: Kinds) -> bool:
    """Critical, or not to be had again: lowered when nothing else is left. Images have their own rung."""
    if entry.segment.parts and isinstance(entry.segment.parts[0], Image | Document):
        return False
    return row(kinds, entry.segment).retention is Retention.CRITICAL or not recoverable(kinds, entry.segment)


def _disposable(view: OrderView, free: list[int]) -> Iterator[Batch]:
    """What stands in its own turn only, and thinking; of one message all of it or none."""
    for i in free:
        entry = view.entries[i]
        retention = row(view.kinds, entry.segment).retention
        if is_turn_scoped(view.kinds, entry.segment) and entry.layer is Layer.HISTORY:
            yield (Move(i, Form.OMITTED, OWN_TURN_ONLY),)
        elif retention is Retention.DISPOSABLE and not _is(entry, Thinking):
            yield (Move(i, Form.STUB, "disposable"),)
    thoughts = [i for i in free if _is(view.entries[i], Thinking)]
    for _, step in groupby(thoughts, key=lambda i: view.entries[i].step):
        yield tuple(Move(i, Form.OMITTED, "disposable") for i in step)


def _stale(view: OrderView, free: list[int]) -> Iterator[Batch]:
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


Rated = tuple[int, Batch]
"""A batch and how ripe it is."""

TELLS = {
    "full": 900,
    "compact": 2_500,
    "small": 1_200,
    "reply": 2_000,
    "call": 2_000,
    "asked": 2_000,
    "step": 1_200,
}
"""How much a token says that a move takes away, in thousandths of one of a small result: docs/planner.md."""

COMPACT_TOKENS, SHORT_TOKENS, STUB_TOKENS = 250, 100, 60
"""About what is left of a COMPACT result, of a shortened reply or call, and of anything by handle."""


def ripeness(age: int, tokens: int, tells: int) -> int:
    """Where the loss for each token freed is least, this is most: age and size count, what it says against.

    Later answers take from a text of n tokens, a steps old, about a^-1.5 n^-0.5 for each token; the value is
    one over the square of that, in whole numbers, so that every machine agrees.
    """
    return (age + 1) ** 3 * max(tokens, 1) * 1_000_000 // tells**2


def _age(view: OrderView, entry: Entry) -> int:
    return view.entries[-1].step - entry.step if view.entries else 0


def _messages(view: OrderView, plain: list[int]) -> Iterator[Rated]:
    """Old results, shortened and then by handle; old replies; large arguments of old calls."""
    for i in plain:
        entry = view.entries[i]
        age, tokens = _age(view, entry), entry.tokens
        if _is(entry, ToolResult):
            yield from _shortened(i, entry, age, "old result")
        elif _is(entry, Text) and entry.role is Role.ASSISTANT:
            yield ripeness(age, tokens, TELLS["reply"]), (Move(i, Form.COMPACT, "old reply", REPLY_LIMIT),)
        elif _is(entry, ToolCall):
            yield ripeness(age, tokens, TELLS["call"]), (Move(i, Form.COMPACT, "large arguments"),)


def _shortened(at: int, entry: Entry, age: int, why: str) -> Iterator[Rated]:
    """COMPACT and then STUB; a small text has no COMPACT form that would be worth it."""
    whole = entry.form is Form.FULL
    if whole and entry.tokens > COMPACT_TOKENS:
        first = ripeness(age, entry.tokens, TELLS["full"])
        yield first, (Move(at, Form.COMPACT, why),)
        yield min(first, ripeness(age, COMPACT_TOKENS, TELLS["compact"])), (Move(at, Form.STUB, why),)
    else:
        tells = TELLS["small" if whole else "compact"]
        yield ripeness(age, entry.tokens, tells), (Move(at, Form.STUB, why),)


def _attachments(view: OrderView, free: list[int]) -> Iterator[Rated]:
    """Lowest importance first; among equals the one that was added first."""
    found = [i for i in free if row(view.kinds, view.entries[i].segment).attachment]
    found.sort(key=lambda i: (priority(view.kinds, view.entries[i].segment), -i))  # the last is first to go
    least = {Form.COMPACT: 0, Form.STUB: 0}
    rated: list[Rated] = []
    for i in found:
        for ripe, batch in _shortened(i, view.entries[i], _age(view, view.entries[i]), "attachment"):
            form = batch[0].form
            least[form] = max(least[form], ripe)
            rated.append((least[form], batch))
    return iter(rated[::-1])


def _media(view: OrderView, free: list[int]) -> Iterator[Rated]:
    for i in free:
        entry = view.entries[i]
        if _is(entry, Image | Document):
            ripe = ripeness(_age(view, entry), entry.tokens, TELLS["reply"])
            yield ripe, (Move(i, Form.STUB, "image or document"),)


def _stands_for(view: OrderView, entry: Entry) -> bool:
    """Whether a handle can stand for all of it."""
    return _is(entry, ToolResult | Image | Document) or row(view.kinds, entry.segment).attachment


def _old_steps(view: OrderView) -> Iterator[Rated]:
    """Whole old steps, as they would be once everything in them is lowered."""
    for batch in steps(view, verbatim=VERBATIM_LIMIT):
        entries = [view.entries[move.at] for move in batch]
        left = sum(min(e.tokens, STUB_TOKENS if _stands_for(view, e) else SHORT_TOKENS) for e in entries)
        tells = TELLS["asked" if entries[0].role is Role.USER else "step"]
        yield ripeness(_age(view, entries[0]), left, tells), batch


def _foldable(entry: Entry, kinds: Kinds, verbatim: int | None) -> bool:
    if entry.segment.kind == "digest" or entry.layer is Layer.LIBRARY or entry.role is Role.SYSTEM:
        return False
    if verbatim is None or not goes_last(entry, kinds) or entry.segment.origin == "lamina":
        return True
    words = [part for part in entry.segment.parts if isinstance(part, Text)]
    return (
        entry.role is Role.USER
        and len(words) == len(entry.parts)
        and sum(len(p.text) for p in words) <= verbatim
    )


def _is(entry: Entry, sort: type | object) -> bool:
    return bool(entry.parts) and isinstance(entry.parts[0], sort)  # type: ignore[arg-type]
