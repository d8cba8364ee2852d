"""How a cut takes moves from an order until the request has its size.

An order proposes moves; `_Lowering` takes them, one batch after the other, and can give the last ones back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from lamina.core.cut_digests import write_digests
from lamina.core.cut_progress import (
    CutProgress,
    count_digest_tokens,
    find_spared,
    find_untouchable,
    without_digests,
)
from lamina.core.cut_target import NOTHING_SPARED, Sparing
from lamina.core.digests import ONLY_RULES, is_digest, measure_rules
from lamina.core.digests import SHARE as DIGEST_SHARE
from lamina.core.entries import begins_with
from lamina.core.ledger import SAME_TEXT_LATER
from lamina.core.lowering import compact_entry, make_line, shorten_entry
from lamina.core.orders import CHARACTERS_PER_TOKEN, Batch, Move, Order, OrderView, repeated_system_text
from lamina.core.values import Entry, Form, Layer, LedgerLine, ToolResult

_ATTEMPTS = 8
"""How often digests are written until the request lands on its goal; in the last attempt but for landing, the
order is taken to its end."""

_AROUND_DIGEST = 120
"""Characters of the tags around a digest, where its size is guessed."""

_LANDING = 50
"""A cut may end this part of the room below its goal. What it freed beyond that, it gives back."""


def take_moves(
    progress: CutProgress,
    order: Order,
    *,
    goal: int,
    sparing: Sparing = NOTHING_SPARED,
    digest_limit: int | None = None,
) -> CutProgress:
    """Take moves from `order`, sparing the last steps, until the request has at most `goal` tokens.

    A `digest_limit` bounds each digest in characters. What digests cost is a guess until they are written. If
    they cost more, more moves are taken; if they cost less, the last moves are given back, so that the
    request ends just below its goal.
    """
    lowering = _Lowering(progress)
    moves = order(lowering.view(sparing))
    digest_tokens = _guess_digest_tokens(progress, digest_limit)
    tokens = sum(entry.tokens for entry in without_digests(progress.request))
    landed: CutProgress | None = None
    for attempt in range(1, _ATTEMPTS + 1):
        to_the_end = attempt == _ATTEMPTS and landed is None
        has_more = lowering.take(moves, tokens, goal, digest_tokens=digest_tokens, to_the_end=to_the_end)
        result = write_digests(lowering.finish(progress), digest_limit)
        digest_tokens = count_digest_tokens(result.request)
        if result.tokens > goal:
            if landed is not None or not has_more:
                break
            # The guess said that this is enough, and it is not: without one more move at least, the next
            # attempt would write the same digests again.
            lowering.must_take = True
            continue
        # Giving moves back changes the digests too, so that a later attempt may land lower than this one.
        if landed is None or result.tokens > landed.tokens:
            landed = result
        slack = goal - result.tokens
        if slack * _LANDING <= progress.limits.working:
            break
        if not lowering.give_back(slack) and not lowering.fill(slack):
            break
    chosen = landed or result
    return chosen.evolve(exhausted=chosen.tokens > goal)


def _guess_digest_tokens(progress: CutProgress, digest_limit: int | None) -> int:
    """About what the digests of a cut will take, those that stand already included.

    If the cut has written some already, the next ones will be about as large: they cover a little more.
    """
    free = progress.limits.free
    if digest_limit is not None:
        characters = measure_rules(free) if digest_limit == ONLY_RULES else max(digest_limit, 0)
        return (characters + _AROUND_DIGEST) // CHARACTERS_PER_TOKEN
    if progress.written:
        return count_digest_tokens(progress.request)
    return free // DIGEST_SHARE


def omit_repeated_system_text(progress: CutProgress) -> CutProgress:
    """Leave out system text in the conversation that is said again later: only the newest must be sent."""
    lowering = _Lowering(progress)
    for at in repeated_system_text(lowering.view(NOTHING_SPARED)):
        lowering.take_one(Move(at, Form.OMITTED, SAME_TEXT_LATER))
    return lowering.finish(progress)


class TakenBatch(NamedTuple):
    """A batch that was taken: the tokens that it freed, and what it changed, as it was before."""

    batch: Batch
    freed: int
    before: list[tuple[int, Entry, LedgerLine | None]]
    folded_before: frozenset[int]


class _Lowering:
    """The entries of a cut while moves are taken, one after the other.

    An order is a generator that looks at the entries while it proposes moves. What it proposes later depends
    on the moves that were taken before, so these change one list.
    """

    def __init__(self, progress: CutProgress) -> None:
        self.context = progress.context
        self.current = progress.current
        self.held = progress.held
        self.cut_number = progress.number
        self.tool_rules = progress.tool_rules
        self.entries = list(progress.entries)
        self.folded = set(progress.folded)
        self.lines = dict(progress.lines)
        self.freed = 0
        self.has_digests = any(is_digest(entry) for entry in progress.request)
        self.taken: list[TakenBatch] = []
        self.given_back: list[Batch] = []
        self.filled: set[int] = set()
        self.must_take = True

    def view(self, sparing: Sparing) -> OrderView:
        """What an order may look at."""
        return OrderView(
            entries=self.entries,
            kinds=self.context.kinds,
            untouchable=find_untouchable(self.entries, self.current) | self.folded | self.held,
            spared=find_spared(self.entries, sparing, self.current),
            largest_spared=sparing.largest,
            current=self.current,
            tool_rules=self.tool_rules,
        )

    def take(
        self, moves: Iterator[Batch], tokens: int, goal: int, *, digest_tokens: int, to_the_end: bool
    ) -> bool:
        """Take moves until the request has about `goal` tokens; return whether moves may be left.

        `tokens` are those of the request before any move, without digests; `digest_tokens` is what digests
        may cost. Moves that were given back are the first to be taken again.
        """
        while to_the_end or self.must_take or not self._reaches(tokens, goal, digest_tokens):
            self.must_take = False
            batch = self.given_back.pop() if self.given_back else next(moves, None)
            if batch is None:
                return False
            self._take_batch(batch)
        return True

    def _reaches(self, tokens: int, goal: int, digest_tokens: int) -> bool:
        """Whether the moves that were taken are enough, if digests cost so much."""
        if not self.folded and not self.has_digests:
            digest_tokens = 0
        return self.context.scale.total(tokens - self.freed + digest_tokens) <= goal

    def _take_batch(self, batch: Batch) -> None:
        """Take the moves of a batch, and remember how to undo them."""
        positions = dict.fromkeys(move.at for move in batch)
        before = [(at, self.entries[at], self.lines.get(self.entries[at].ref)) for at in positions]
        folded_before = frozenset(at for at in positions if at in self.folded)
        freed = 0
        for move in batch:
            if move.fold:
                freed += self._fold(move)
            else:
                freed += self.take_one(move)
        self.freed += freed
        self.taken.append(TakenBatch(batch, freed, before, folded_before))

    def give_back(self, slack: int) -> bool:
        """Undo the last moves that together freed at most `slack` tokens; return whether there were any.

        The least ripe of them were taken last, so they are worth most.
        """
        has_undone = False
        while self.taken and self.taken[-1].freed <= slack:
            undone = self.taken.pop()
            slack -= undone.freed
            self.freed -= undone.freed
            # To undo only what freed nothing would change nothing: the next attempt would land here again.
            has_undone |= undone.freed > 0
            for at, entry, line in undone.before:
                self.entries[at] = entry
                if at not in undone.folded_before:
                    self.folded.discard(at)
                if line is None:
                    self.lines.pop(entry.ref, None)
                else:
                    self.lines[entry.ref] = line
            self.given_back.append(undone.batch)
        return has_undone

    def fill(self, slack: int) -> bool:
        """Shorten the last result that was shortened by less, so that up to `slack` tokens more of it stay.

        One large result can be more than a cut had to free. Returns whether there was one.
        """
        for at_taken in range(len(self.taken) - 1, -1, -1):
            taken = self.taken[at_taken]
            for move, (at, entry, _) in zip(taken.batch, taken.before, strict=False):
                if not self._can_show_more(move, at, entry):
                    continue
                # What was tried once is passed over: as much of it as fits is shown already.
                self.filled.add(at)
                gain = self._show_more(at, entry, move.why, slack)
                if gain:
                    self.freed -= gain
                    self.taken[at_taken] = taken._replace(freed=taken.freed - gain)
                    return True
        return False

    def _can_show_more(self, move: Move, at: int, entry: Entry) -> bool:
        """Whether a move shortened a result that was whole before, and nothing lowered it further since.

        What an order replaces by its handle at once, as superseded results are, stays so.
        """
        if at in self.folded or at in self.filled:
            return False
        forms = (entry.form, move.form, self.entries[at].form)
        if forms != (Form.FULL, Form.COMPACT, Form.COMPACT):
            return False
        return begins_with(entry.parts, ToolResult)

    def _show_more(self, at: int, entry: Entry, why: str, slack: int) -> int:
        """Show up to `slack` tokens more of a shortened result; return the tokens that this adds."""
        shown_tokens = self.entries[at].tokens
        lowered, limit = self._compact_to(entry, why, shown_tokens + slack)
        gain = lowered.tokens - shown_tokens
        if lowered.form is not Form.COMPACT or lowered.tokens >= entry.tokens:
            return 0
        # The limit is for the text alone. With the framing of its message, it may take a little more.
        if not 0 < gain <= slack:
            return 0
        self._put(at, lowered, limit)
        return gain

    def _compact_to(self, entry: Entry, why: str, most: int) -> tuple[Entry, int]:
        """The entry COMPACT in at most so many tokens, and its limit in characters."""
        scale = self.context.scale
        lowered, limit = compact_entry(
            entry,
            why,
            wording=self.context.wording,
            scale=scale,
            most=most,
            limit=most * CHARACTERS_PER_TOKEN,
        )
        tokens = entry.tokens - scale.body(entry) + scale.body(lowered)
        return msgspec.structs.replace(lowered, tokens=tokens), limit

    def take_one(self, move: Move) -> int:
        """Take one move if it shrinks the request; return the tokens that it frees.

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
        gain = scale.gain(entry, lowered)
        least_gain = 0 if move.form is Form.OMITTED else 1
        if gain < least_gain:
            return 0
        self._put(move.at, msgspec.structs.replace(lowered, tokens=max(entry.tokens - gain, 0)), limit)
        return gain

    def _put(self, at: int, lowered: Entry, limit: int) -> None:
        """Put a lowered entry in its place, with the line that lowers it again."""
        self.entries[at] = lowered
        # A line of a cut is undone when its entry is the prompt or the last step again, after a rewind. What
        # is lowered while it stands there must stay so when the request is sent once more.
        cut = 0 if at in self.current else self.cut_number
        self.lines[lowered.ref] = make_line(lowered, limit=limit, cut=cut)

    def _fold(self, move: Move) -> int:
        """Mark one entry for a digest; return the tokens that this frees."""
        entry = self.entries[move.at]
        # What moves into the library when its turn is over would be lost to its digest then.
        will_move = entry.layer is Layer.TURN and self.context.options.layout.library == "hoisted"
        if move.at in self.folded or will_move:
            return 0
        self.folded.add(move.at)
        return entry.tokens

    def finish(self, progress: CutProgress) -> CutProgress:
        """The progress after the moves that were taken so far."""
        return progress.evolve(
            entries=list(self.entries), folded=frozenset(self.folded), lines=dict(self.lines)
        )
