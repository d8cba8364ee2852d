"""How a cut takes moves from an order until its goal, and which positions it may touch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from lamina.core.cut_digests import choose_digest_size, write_digests
from lamina.core.cut_progress import CutProgress
from lamina.core.cut_target import NOTHING_SPARED, Sparing
from lamina.core.entries import begins_with, find_sent
from lamina.core.folds import is_digest
from lamina.core.ledger import SAME_TEXT_LATER, current_turn
from lamina.core.library import IN_THE_LIBRARY, NAMED_IN_THE_LIST
from lamina.core.lowering import make_line, shorten_entry
from lamina.core.orders import Batch, Move, Order, OrderView, repeated_system_text
from lamina.core.values import Entry, Form, Layer, Role, ToolResult

_ATTEMPTS = 6
"""How often the cost of digests is guessed; in the last attempt the order is taken to its end."""


def take_moves(
    progress: CutProgress,
    order: Order,
    *,
    goal: int,
    sparing: Sparing = NOTHING_SPARED,
    digest_limit: int | None = None,
) -> CutProgress:
    """Takes moves from `order`, sparing the last steps, until the request has at most `goal` tokens.

    A `digest_limit` bounds each digest in characters; 0 leaves one line. What digests cost is a guess until
    they are written, so more moves may be needed after that.
    """
    lowering = _Lowering(progress)
    moves = order(lowering.view(sparing))
    guess = (choose_digest_size(progress, digest_limit).total + 120) // 3
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
    lowering = _Lowering(progress)
    for at in repeated_system_text(lowering.view(NOTHING_SPARED)):
        lowering.take_one(Move(at, Form.OMITTED, SAME_TEXT_LATER))
    return lowering.finish(progress)


class _Lowering:
    """The entries of a cut while moves are taken, one after the other.

    An order is a generator that looks at the entries while it proposes moves. What it proposes later depends
    on the moves that were taken before, so these change one list.
    """

    def __init__(self, progress: CutProgress) -> None:
        self.context = progress.context
        self.current = progress.current
        self.cut_number = progress.number
        self.entries = list(progress.entries)
        self.folded = set(progress.folded)
        self.lines = dict(progress.lines)

    def view(self, sparing: Sparing) -> OrderView:
        """What an order may look at."""
        return OrderView(
            entries=self.entries,
            kinds=self.context.kinds,
            untouchable=find_untouchable(self.entries) | self.folded,
            spared=find_spared(self.entries, sparing),
            largest_spared=sparing.largest,
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
        """Takes one move if it shrinks the request; returns the tokens that it frees.

        Leaving something out may free nothing, as with an empty text. Any other move must free a token.
        """
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
        """Marks one entry for a digest; returns the tokens that this frees."""
        if move.at in self.folded:
            return 0
        self.folded.add(move.at)
        return self.entries[move.at].tokens

    def finish(self, progress: CutProgress) -> CutProgress:
        """The progress after the moves that were taken so far."""
        return msgspec.structs.replace(
            progress, entries=list(self.entries), folded=frozenset(self.folded), lines=dict(self.lines)
        )


def find_untouchable(entries: Sequence[Entry]) -> frozenset[int]:
    """Positions that no cut may touch: system text, what is pinned, the prompt, the last step.

    A digest that stands in the last turn may be written anew, and an attachment of the prompt may be lowered.
    """
    current = current_turn(entries)
    positions: set[int] = set()
    for at, entry in enumerate(entries):
        if _is_untouchable(entry, is_current=at in current):
            positions.add(at)
    return frozenset(positions)


def _is_untouchable(entry: Entry, *, is_current: bool) -> bool:
    """Whether no cut may touch an entry, given whether it belongs to the prompt or the last step.

    What came with the prompt, in the layer TURN, may be lowered. A digest may be written anew wherever it
    stands.
    """
    is_system_text = entry.role is Role.SYSTEM or entry.layer is Layer.SYSTEM
    if is_system_text or entry.segment.pinned:
        return True
    if entry.segment.kind == "digest":
        return False
    return is_current and entry.layer in (Layer.PROMPT, Layer.STEPS)


def find_spared(entries: Sequence[Entry], sparing: Sparing) -> frozenset[int]:
    """Positions that a cut would rather spare: the last steps, and what came with the prompt.

    In the hoisted layout, what came with the prompt may stand in the library, with equal content.
    """
    if not sparing:
        return frozenset()
    if sparing.steps:
        first_step = _find_first_of_last_steps(entries, sparing.steps)
    else:
        first_step = _find_first_step_within(entries, sparing)
    named_now = (IN_THE_LIBRARY, NAMED_IN_THE_LIST)
    attached_now = {entry.content for entry in entries if entry.why in named_now}
    positions: set[int] = set()
    for at, entry in enumerate(entries):
        came_with_prompt = entry.layer is Layer.TURN or entry.content in attached_now
        if came_with_prompt or entry.step >= first_step:
            positions.add(at)
    return frozenset(positions)


def _find_first_step_within(entries: Sequence[Entry], sparing: Sparing) -> int:
    """The first of the newest steps that together have at most the tokens to spare, besides the last one.

    No cut touches the last step and the prompt, so they do not count. A large result counts as the cut may
    leave it.
    """
    current = current_turn(entries)
    left = sparing.tokens
    first_step = entries[-1].step if entries else 0
    for at in range(len(entries) - 1, -1, -1):
        entry = entries[at]
        if at in current or entry.layer is Layer.SYSTEM or is_digest(entry):
            continue
        tokens = entry.tokens
        if sparing.largest and begins_with(entry.parts, ToolResult):
            tokens = min(tokens, sparing.largest)
        left -= tokens
        if left < 0:
            return max(first_step, entry.step + 1)
        first_step = min(first_step, entry.step)
    return first_step


def _find_first_of_last_steps(entries: Sequence[Entry], keep: int) -> int:
    """The first of the last `keep` steps in which the assistant speaks.

    If there are fewer than `keep`, it is the first step of all.
    """
    spoken: set[int] = set()
    for entry in find_sent(entries):
        is_models = entry.segment.role is Role.ASSISTANT
        if is_models and entry.segment.kind != "digest":
            spoken.add(entry.step)
    if len(spoken) < keep:
        return 0
    return sorted(spoken)[-keep]
