"""What a session costs in three ways: with lamina, with a sliding window, without management.

Costs follow from assumed prices of a prefix cache: what a request begins with as the last one did is read
from it, everything else is written to it. The other two ways never break a pair of call and result, so
they are compared at their best.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from lamina.core.envelope import Envelope
from lamina.core.target import Rates
from lamina.core.tokens import Counter
from lamina.core.values import Entry, Role
from lamina.core.weigh import scale_for

RATES = Rates(read=0.1, write=1.25)


class Tally:
    """What one way adds up to. `kept` are tokens of each request that the next one begins with."""

    def __init__(self, name: str, room: int) -> None:
        self.name, self.room = name, room
        self.calls = self.sent = self.kept = self.over = self.moved = 0
        self.last = self.could = self.first_over = 0

    def add(self, tokens: int, kept: int) -> None:
        self.calls += 1
        self.moved += kept < self.last
        self.could += self.last
        self.sent, self.kept, self.last = self.sent + tokens, self.kept + kept, tokens
        if tokens > self.room:
            self.over += 1
            self.first_over = self.first_over or self.calls

    @property
    def share(self) -> float:
        """Of the tokens that could have been read from the cache, those that were."""
        return self.kept / self.could if self.could else 1.0

    @property
    def cost(self) -> float:
        """In input tokens at the plain price."""
        return RATES.read * self.kept + RATES.write * (self.sent - self.kept)


class Others:
    """The two ways without lamina, call by call, over one session."""

    def __init__(self, whole: Envelope, counter: Counter, room: int) -> None:
        """`whole` is the session with everything in full."""
        self.sliding, self.unmanaged = Tally("sliding window", room), Tally("no management", room)
        self._entries, self._room = whole.entries, room
        self._scale = scale_for(counter, whole.head, None, {})
        self._sums = [0, *accumulate(entry.tokens for entry in whole.entries)]
        self._start = 1

    def call(self, end: int) -> None:
        """A call with the first `end` segments of the session."""
        self.unmanaged.add(self._total(1, end), self.unmanaged.last)
        before = self._start
        while self._start < end and not self._possible(self._start, end):
            self._start += 1
        kept = self.sliding.last if self._start == before else self._total(1, 1)
        self.sliding.add(self._total(self._start, end), min(kept, self.sliding.last))

    def _possible(self, start: int, end: int) -> bool:
        return _begins(self._entries[start]) and self._total(start, end) <= self._room

    def _total(self, start: int, end: int) -> int:
        """The system text, and the segments from `start` to `end`."""
        return self._scale.total(self._sums[1] + self._sums[end] - self._sums[start])


def _begins(entry: Entry) -> bool:
    """Whether a request can begin here, after the system text."""
    return entry.opens and entry.role is not Role.TOOL


def summary(tallies: Sequence[Tally]) -> str:
    """The ways beside each other; the first is what the others are compared with."""
    ours, plain = tallies[0], tallies[-1]
    rows = {
        "calls": [f"{t.calls:,}" for t in tallies],
        "calls over the room": [f"{t.over:,}" for t in tallies],
        "calls that moved the prefix": [f"{t.moved:,}" for t in tallies],
        "tokens sent": [f"{t.sent:,}" for t in tallies],
        "of the prefix kept": [f"{100 * t.share:.1f} %" for t in tallies],
        "input cost, in tokens": [f"{t.cost:,.0f}" for t in tallies],
        "input cost, relative": [f"{t.cost / ours.cost:.2f}" for t in tallies],
    }
    lines = [f"{'':<28}" + "".join(f"{t.name:>16}" for t in tallies)]
    lines += [f"{what:<28}" + "".join(f"{cell:>16}" for cell in cells) for what, cells in rows.items()]
    lines += [
        "",
        f"assumed prices: a cached token is read at {RATES.read} of the input price, a new one is written",
    ]
    lines += [f"to the cache at {RATES.write}; the cache outlives the pause between two calls"]
    if plain.over:
        lines += [
            f"without management {plain.over:,} of {plain.calls:,} calls would be refused, the first of"
        ]
        lines += [
            f"them call {plain.first_over:,}; the cost shown is what it would be in a window without end"
        ]
    return "\n".join(lines)
