"""One session of a coding agent, call by call: what lamina sends, what it lowers, and what that costs.

    python examples/demo.py [--seed 7] [--window 32000]

The session is made up, no model is asked and nothing leaves the machine. Beside lamina stand two ways
without it: a sliding window, which drops the oldest messages until the rest fits, and no management.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import accumulate

from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.core.hashing import handle
from lamina.core.memo import Memo
from lamina.core.part import part
from lamina.core.recall import recall
from lamina.core.target import Rates
from lamina.core.tokens import Counter, part_cost, tools_cost
from lamina.core.values import Budget, Form, Head, Ledger, Role, Segment
from lamina.core.wording import described, text_of
from lamina.counters.openai import o200k
from lamina.errors import BudgetExceeded
from lamina.testing.sessions import calls, session

RATES = Rates(read=0.1, write=1.25)
ANSWER = 4_096
TOOLS = {
    "read_file": ("path", "offset", "limit"),
    "edit_file": ("path", "old", "new"),
    "write_file": ("path", "content"),
    "search": ("pattern", "limit"),
    "shell": ("command",),
    "recall": ("key",),
}
BAR = 20
COLUMNS = f"{'call':>4} {'turn':>4} {'tokens':>7}  {'room used':<{BAR + 2}} {'prefix kept':>11}"


class Tally:
    """What one way of working adds up to. `kept` are tokens of each request that the next one begins with."""

    def __init__(self, name: str, room: int) -> None:
        self.name, self.room = name, room
        self.calls = self.sent = self.kept = self.over = self.moved = 0
        self.last = self.could = 0
        self.first_over = 0

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
        return self.kept / self.could if self.could else 1.0

    @property
    def cost(self) -> float:
        """In input tokens at the plain price."""
        return RATES.read * self.kept + RATES.write * (self.sent - self.kept)


def main() -> int:
    arguments = parsed()
    log = session(arguments.seed, turns=14, steps=10)
    try:
        run(log, Budget(window=arguments.window))
    except BudgetExceeded as error:
        print(f"The session does not fit: {error}", file=sys.stderr)
        return 1
    return 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Send one made-up session through lamina, call by call.")
    parser.add_argument("--seed", type=int, default=7, help="which session (default: 7)")
    parser.add_argument(
        "--window", type=int, default=32_000, help="the model's context window (default: 32000)"
    )
    parser.add_argument("--once", action="store_true", help="one plain run, then stop; this is the default")
    return parser.parse_args()


def run(log: Sequence[Segment], budget: Budget) -> None:
    counter, head = o200k(), Head(tools=tuple(definitions()), parameters={"max_tokens": ANSWER})
    ours, envelope = managed(log, head, budget, counter)
    room = envelope.room or 0
    others = [sliding(log, head, counter, room), unmanaged(log, head, counter, room)]
    print()
    summary([ours, *others])
    print()
    recalled(log, envelope)


def definitions() -> Iterator[dict[str, object]]:
    for name, wanted in TOOLS.items():
        properties = {argument: {"type": "string"} for argument in wanted}
        schema = {"type": "object", "properties": properties, "required": [wanted[0]]}
        yield {"type": "function", "function": {"name": name, "parameters": schema}}


def managed(log: Sequence[Segment], head: Head, budget: Budget, counter: Counter) -> tuple[Tally, Envelope]:
    """Every call through lamina, with one line each."""
    memo, ledger, tally = Memo(), Ledger(), None
    last: Envelope | None = None
    for prefix in calls(log):
        envelope = build(prefix, head=head, budget=budget, ledger=ledger, counter=counter, memo=memo)
        kept = part(last, envelope).kept if last else 0
        if tally is None:
            tally = Tally("lamina", envelope.room or 0)
            print(f"window {budget.window:,}, of which {tally.room:,} tokens are room for input\n\n{COLUMNS}")
        tally.add(envelope.tokens, kept)
        print(line(tally.calls, envelope, kept, last), flush=True)
        last, ledger = envelope, envelope.ledger
    if tally is None or last is None:
        raise ValueError(log)
    return tally, last


def line(number: int, envelope: Envelope, kept: int, last: Envelope | None) -> str:
    room = envelope.room or 0
    full = -(-BAR * envelope.tokens // room)
    bar = f"[{'#' * full}{'.' * (BAR - full)}]"
    share = f"{100 * kept // last.tokens} %" if last else "-"
    cells = f"{number:>4} {envelope.entries[-1].turn + 1:>4} {envelope.tokens:>7,}  {bar} {share:>11}"
    return f"{cells}{event(envelope)}"


def event(envelope: Envelope) -> str:
    cut = envelope.cut
    if cut is None:
        return ""
    amount = f": {cut.before:,} to {cut.after:,} tokens, {cut.lowered} lowered" if cut.lowered else ""
    return f"  cut {cut.number}, {cut.reason}{amount}"


def weights(log: Sequence[Segment], counter: Counter) -> list[int]:
    """Tokens of each segment as it is, without lamina."""
    framing = counter.framing
    return [
        sum(part_cost(each, counter) for each in s.parts) + (0 if s.joins else framing.message) for s in log
    ]


def unmanaged(log: Sequence[Segment], head: Head, counter: Counter, room: int) -> Tally:
    tally = Tally("no management", room)
    fixed = tools_cost(head.tools, counter) + counter.framing.request
    total = [0, *accumulate(weights(log, counter))]
    for prefix in calls(log):
        tally.add(fixed + total[len(prefix)], kept=tally.last)
    return tally


def sliding(log: Sequence[Segment], head: Head, counter: Counter, room: int) -> Tally:
    """The system text and the newest messages that fit; no result stands without its call."""
    tally = Tally("sliding window", room)
    total = [0, *accumulate(weights(log, counter))]
    fixed = tools_cost(head.tools, counter) + counter.framing.request + total[1]
    start = before = 1
    for prefix in calls(log):
        end = len(prefix)
        while start < end and (fixed + total[end] - total[start] > room or not begins(log[start])):
            start += 1
        tally.add(fixed + total[end] - total[start], kept=tally.last if start == before else fixed)
        before = start
    return tally


def begins(segment: Segment) -> bool:
    return not segment.joins and segment.role is not Role.TOOL


def summary(tallies: Sequence[Tally]) -> None:
    ours = tallies[0]
    rows = {
        "calls": [f"{t.calls:,}" for t in tallies],
        "calls over the room": [f"{t.over:,}" for t in tallies],
        "calls that moved the prefix": [f"{t.moved:,}" for t in tallies],
        "tokens sent": [f"{t.sent:,}" for t in tallies],
        "of the prefix kept": [f"{100 * t.share:.1f} %" for t in tallies],
        "input cost, in tokens": [f"{t.cost:,.0f}" for t in tallies],
        "input cost, relative": [f"{t.cost / ours.cost:.2f}" for t in tallies],
    }
    print(f"{'':<28}" + "".join(f"{t.name:>16}" for t in tallies))
    for what, cells in rows.items():
        print(f"{what:<28}" + "".join(f"{cell:>16}" for cell in cells))
    print(
        f"\nassumed prices: a cached token is read at {RATES.read} of the input price, a new one is written"
    )
    print(f"to the cache at {RATES.write}; the cache outlives the pause between two calls")
    plain = tallies[-1]
    if plain.over:
        print(f"without management {plain.over:,} of {plain.calls:,} calls would be refused, the first of")
        print(f"them call {plain.first_over:,}; the cost shown is what it would be in a window without end")


def recalled(log: Sequence[Segment], envelope: Envelope) -> None:
    """One thing that was lowered, as it is sent now and as it comes back."""
    stubs = [e for e in envelope.entries if e.form is Form.STUB and e.segment.origin != "lamina"]
    if not stubs:
        print("nothing is sent by its handle alone: there is nothing to bring back")
        return
    entry = max(stubs, key=lambda e: len(text_of(e.segment.parts)))
    key = handle(entry.content)
    (back,) = recall(log, key, ledger=envelope.ledger)
    text = text_of(back.parts)
    print(f"lowered:  {described(entry.segment)} ({entry.why})")
    print(f"sent as:  {text_of(entry.parts)}")
    print(f"recalled: {len(text.encode()):,} bytes, {text.count(chr(10)) + 1:,} lines by the key {key}")
    print(f"equal to what was lowered: {'yes' if back.parts == entry.segment.parts else 'no'}")


if __name__ == "__main__":
    sys.exit(main())
