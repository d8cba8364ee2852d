"""The moves of a cut: which positions it may touch, and how it takes moves from an order until its goal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from lamina.core.cut_digests import write_digests
from lamina.core.cut_progress import CutProgress
from lamina.core.folds import find_digest_size
from lamina.core.ledger import SAME_TEXT_LATER, current_turn
from lamina.core.library import IN_THE_LIBRARY, NAMED_IN_THE_LIST
from lamina.core.lowering import make_line, shorten_entry
from lamina.core.orders import Batch, Move, Order, OrderView, goes_last, repeated_system_text
from lamina.core.values import Entry, Form, Layer, Role

_ATTEMPTS = 6
"""How often the cost of digests is guessed; in the last attempt the order is taken to its end."""


def take_moves(
    progress: CutProgress, order: Order, *, keep: int, goal: int, digest_limit: int | None = None
) -> CutProgress:
    """Takes moves from `order`, sparing the last `keep` steps, until the request has at most `goal` tokens.

    A `digest_limit` bounds each digest in characters, even the user's words in it; 0 leaves one line. What
    digests cost is a guess until they are written, so more moves may be needed after that.
    """
    lowering = _Lowering(progress, keeps_words=digest_limit is None)
    moves = order(lowering.view(keep))
    digest_size = find_digest_size(progress.limits.room) if digest_limit is None else digest_limit
    guess = (digest_size + 120) // 3
    for attempt in range(1, _ATTEMPTS + 1):
        tokens = sum(entry.tokens for entry in progress.request)
        has_more = lowering.take(moves, tokens, goal, guess=guess, to_the_end=attempt == _ATTEMPTS)
        progress = write_digests(lowering.finish(progress), digest_limit)
        if progress.tokens <= goal or not has_more:
            break
        guess = (progress.tokens - goal) // 2
    return msgspec.structs.replace(progress, exhausted=progress.tokens > goal)


def omit_repeated_system_text(progress: CutProgress) -> CutProgress:
    """Leaves out system text in the conversation that is said again later: only the newest must be sent."""
    lowering = _Lowering(progress, keeps_words=True)
    for at in repeated_system_text(lowering.view(keep=0)):
        lowering.take_one(Move(at, Form.OMITTED, SAME_TEXT_LATER))
    return lowering.finish(progress)


class _Lowering:
    """The entries of a cut while moves are taken, one after the other.

    An order is a generator that looks at the entries while it proposes moves. What it proposes later depends
    on the moves that were taken before, so these change one list.
    """

    def __init__(self, progress: CutProgress, *, keeps_words: bool) -> None:
        self.context = progress.context
        self.current = progress.current
        self.cut_number = progress.number
        self.keeps_words = keeps_words
        self.entries = list(progress.entries)
        self.folded = set(progress.folded)
        self.lines = dict(progress.lines)

    def view(self, keep: int) -> OrderView:
        """What an order may look at."""
        return OrderView(
            entries=self.entries,
            kinds=self.context.kinds,
            untouchable=find_untouchable(self.entries) | self.folded,
            spared=find_spared(self.entries, keep),
            current=self.current,
        )

    def take(self, moves: Iterator[Batch], tokens: int, goal: int, *, guess: int, to_the_end: bool) -> bool:
        """Takes moves until the request has about `goal` tokens; returns whether moves may be left.

        `guess` is what the digests may cost.
        """
        for batch in moves:
            for move in batch:
                if move.fold:
                    tokens -= self._fold(move)
                else:
                    tokens -= self.take_one(move)
            if to_the_end:
                continue
            digest_tokens = guess if self.folded else 0
            if self.context.scale.total(tokens + digest_tokens) <= goal:
                return True
        return False

    def take_one(self, move: Move) -> int:
        """Takes one move if it shrinks the request; returns the tokens that it frees."""
        entry = self.entries[move.at]
        if entry.form <= move.form or move.at in self.folded:
            return 0
        scale = self.context.scale
        wording = self.context.wording
        lowered, limit = shorten_entry(
            entry, move.form, move.why, wording=wording, scale=scale, limit=move.limit
        )
        gain = scale.body(entry)
        if lowered.parts:
            gain -= scale.body(lowered)
        least_gain = 0 if move.form is Form.OMITTED else 1
        if gain < least_gain:
            return 0
        self.entries[move.at] = msgspec.structs.replace(lowered, tokens=max(entry.tokens - gain, 0))
        # A line of a cut is undone when its entry is the prompt or the last step again, after a rewind. What
        # is lowered while it stands there must stay so when the request is sent once more.
        cut = 0 if move.at in self.current else self.cut_number
        self.lines[entry.ref] = make_line(lowered, wording=wording, limit=limit, cut=cut)
        return gain

    def _fold(self, move: Move) -> int:
        """Marks one entry for a digest; returns the tokens that this frees.

        The user's own words free nothing if the digest keeps them.
        """
        if move.at in self.folded:
            return 0
        self.folded.add(move.at)
        entry = self.entries[move.at]
        if self.keeps_words and goes_last(entry, self.context.kinds):
            return 0
        return entry.tokens

    def finish(self, progress: CutProgress) -> CutProgress:
        """The progress after the moves that were taken so far."""
        return msgspec.structs.replace(
            progress, entries=list(self.entries), folded=frozenset(self.folded), lines=dict(self.lines)
        )


def find_untouchable(entries: Sequence[Entry]) -> frozenset[int]:
    """Positions that no cut may touch: system text, what is pinned, the prompt, the last step."""
    current = current_turn(entries)
    positions: set[int] = set()
    for at, entry in enumerate(entries):
        if _is_untouchable(entry, is_current=at in current):
            positions.add(at)
    return frozenset(positions)


def _is_untouchable(entry: Entry, *, is_current: bool) -> bool:
    if entry.role is Role.SYSTEM or entry.layer is Layer.SYSTEM:
        return True
    if entry.segment.pinned:
        return True
    if entry.segment.kind == "digest":
        return False
    return is_current and entry.layer in (Layer.PROMPT, Layer.STEPS)


def find_spared(entries: Sequence[Entry], keep: int) -> frozenset[int]:
    """Positions that a cut would rather spare: the last `keep` assistant steps, what came with the prompt."""
    if keep == 0:
        return frozenset()
    first_step = _find_first_spared_step(entries, keep)
    attached_now = {entry.content for entry in entries if entry.why in (IN_THE_LIBRARY, NAMED_IN_THE_LIST)}
    positions: set[int] = set()
    for at, entry in enumerate(entries):
        came_with_prompt = entry.layer is Layer.TURN or entry.content in attached_now
        if came_with_prompt or entry.step >= first_step:
            positions.add(at)
    return frozenset(positions)


def _find_first_spared_step(entries: Sequence[Entry], keep: int) -> int:
    """The first of the last `keep` steps in which the assistant speaks."""
    spoken: set[int] = set()
    for entry in entries:
        if entry.segment.role is not Role.ASSISTANT or entry.segment.kind == "digest":
            continue
        if entry.form is not Form.OMITTED:
            spoken.add(entry.step)
    if len(spoken) < keep:
        return 0
    return sorted(spoken)[-keep]
