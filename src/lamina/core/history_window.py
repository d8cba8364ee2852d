"""A window over history: the last messages are sent, and a bounded digest of what came before them.

The window slides in steps. A cut brings history back to so many messages when it has grown by `slack`;
between two cuts every request continues the one before it. Nothing is lost: what is outside can be recalled
by the key of the digest, or by its own. The open turn is not history. This file chooses what is outside;
`cut` folds it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from lamina.core.entries import find_sent
from lamina.core.orders import Batch, Move, Order, OrderView, fold_steps
from lamina.core.values import Entry, Form, Layer, Ledger, Ref, Role
from lamina.errors import BadInput

DIGEST = 800
"""Characters of the digest of what is outside."""

_NO_END = 2**31  # more messages than any conversation has

# Ledgers in stores have this text, and it is read back: with other words, what an older window took out would
# never come back.
_BEYOND = "history beyond the last "
_REASON = re.compile(_BEYOND + r"([\d,]+) messages", re.ASCII)
"""The reason of a cut, by which a wider window knows what a narrower one took out."""


class LastN(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last `messages` of history are sent; a message of the model counts with its tool results.

    `slack` is how many more may gather before a cut takes them out; None is as many again. With 0 the window
    is exact, and each turn rewrites the prompt after the system text: a cache can read no more than that.
    `digest` bounds the digest of the rest, in characters; with 0 it is one line, with None there is none.
    """

    messages: int
    slack: int | None = None
    digest: int | None = DIGEST

    def __post_init__(self) -> None:
        """Raise BadInput for anything but whole numbers. `True` is an int too, and means nothing here."""
        numbers = {"messages": self.messages, "slack": self.slack, "digest": self.digest}
        for name, value in numbers.items():
            if value is None and name != "messages":
                continue
            if type(value) is not int or value < 0:
                raise BadInput(f"{name} is {value!r}", place="LastN", hint="give a whole number, 0 or more")

    @property
    def reason(self) -> str:
        """Why a cut was made, as the ledger records it."""
        return f"{_BEYOND}{self.messages:,} messages"

    @property
    def is_exact(self) -> bool:
        """Whether not one message more than these may be sent."""
        return self.slack == 0

    @property
    def at_rest(self) -> LastN:
        """The same window, such that it takes nothing more out and brings nothing back."""
        return msgspec.structs.replace(self, slack=_NO_END)

    def outside(self, entries: Sequence[Entry]) -> frozenset[int]:
        """The steps that a cut takes out now: none while history has not outgrown window and slack.

        With `messages=10` and no slack given, the cut comes at 21 messages and leaves 10.
        """
        history = _find_history_steps(find_sent(entries))
        slack = self.messages if self.slack is None else self.slack
        if len(history) <= self.messages + slack:
            return frozenset()
        return frozenset(history[: len(history) - self.messages])

    def may_take(self, entries: Sequence[Entry]) -> frozenset[Ref]:
        """Everything that some cut of this window could have taken out, whether it is sent or not.

        The laws ask for it: what a window took out was not lowered for want of room.
        """
        history = _find_history_steps(entries)
        beyond = frozenset(history[: max(len(history) - self.messages, 0)])
        return frozenset(entry.ref for entry in entries if _may_fold(entry, beyond))


def release_window(ledger: Ledger, window: LastN | None) -> Ledger:
    """The ledger without what a narrower window took out; the same ledger if there is nothing of it.

    What is outside of the window that holds now is taken out again by the same build. A window without a
    digest lets no older digest stay either.
    """
    released = frozenset(cut.number for cut in ledger.cuts if _is_released(cut.reason, window))
    if not released:
        return ledger
    folds = tuple(fold for fold in ledger.folds if fold.cut not in released)
    lines = {ref: line for ref, line in ledger.lines.items() if not _is_narrower(line.why, window)}
    # A cut stays in the ledger when what it took out is back: then there is nothing more to release.
    if len(folds) == len(ledger.folds) and len(lines) == len(ledger.lines):
        return ledger
    return msgspec.structs.replace(ledger, folds=folds, lines=lines)


def _is_released(reason: str, window: LastN | None) -> bool:
    """Whether the digests of a cut with this reason must not stay.

    A window without a digest ends the digests that another window made. If a cut was made for the room as
    well, the digests are the room's, and stay.
    """
    if window is not None and window.digest is None:
        return _REASON.fullmatch(reason) is not None
    return _is_narrower(reason, window)


def _is_narrower(reason: str, window: LastN | None) -> bool:
    """Whether this is the reason of a narrower window than the one that holds now."""
    messages = _read_messages(reason)
    if messages is None:
        return False
    return window is None or window.messages > messages


def _read_messages(reason: str) -> int | None:
    """How many messages the window had that this reason is of; None for any other reason.

    A cut that was made for the room as well has both reasons: `history beyond the last 2 messages; over the
    trigger`.
    """
    match = _REASON.match(reason)
    if match is None:
        return None
    return int(match[1].replace(",", ""))


def take_outside(outside: frozenset[int], why: str = "") -> Order:
    """An order that puts these steps under digests, oldest first; with `why`, none stands in their place.

    System text stays.
    """

    def order(view: OrderView) -> Iterator[Batch]:
        for batch in fold_steps(view, verbatim=None):
            moves = [move for move in batch if _may_fold(view.entries[move.at], outside)]
            if why:
                moves = [Move(move.at, Form.OMITTED, why) for move in moves]
            if moves:
                yield tuple(moves)

    return order


def refs_up_to(entries: Sequence[Entry], outside: frozenset[int]) -> frozenset[Ref]:
    """All entries up to the last of these steps: digests of nothing else may become one.

    A digest inside of the window belongs to a cut for want of room, and stays.
    """
    last_step = max(outside, default=-1)
    return frozenset(entry.ref for entry in entries if entry.step <= last_step)


def _find_history_steps(entries: Sequence[Entry]) -> list[int]:
    """The steps in which history has a message that could be taken out, oldest first.

    What is pinned stays, and lamina's own lines are no messages of the conversation.
    """
    steps: set[int] = set()
    for entry in entries:
        may_be_taken = not entry.segment.is_own and not entry.segment.pinned
        if may_be_taken and _is_in_history(entry):
            steps.add(entry.step)
    return sorted(steps)


def _may_fold(entry: Entry, outside: frozenset[int]) -> bool:
    """Whether an entry of history stands in one of these steps."""
    return entry.step in outside and _is_in_history(entry)


def _is_in_history(entry: Entry) -> bool:
    """Whether an entry is of history. System text among it stays where it is."""
    return entry.layer is Layer.HISTORY and entry.role is not Role.SYSTEM
