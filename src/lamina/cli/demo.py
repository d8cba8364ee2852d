"""`lamina demo`: one session of a coding agent, call by call: what is sent, what is lowered, what it costs.

The session is made up, no model is asked and nothing leaves the machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from lamina.cli.bar import SIGNS, amounts, bar, legend
from lamina.cli.output import emit
from lamina.cli.parser import add_json, tokens
from lamina.cli.recording import MODEL, calls, recording
from lamina.cli.ways import RATES, Others, Tally, summary
from lamina.core.bench import Options
from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.core.hashing import handle
from lamina.core.values import Budget, Form, Ledger
from lamina.core.wording import described, text_of
from lamina.counters import counter_for
from lamina.dialects import DIALECTS
from lamina.part import part
from lamina.request import AS_LOGGED, Fitted, RequestMemo, fit_request

SEED, WINDOW = 7, 32_000
CHAT = DIALECTS["openai_chat"]
BAR = 32
PAUSE = 0.04
"""Seconds between two calls on a terminal, so that one can follow."""

COLUMNS = (
    f"{'call':>4} {'turn':>4} {'tokens':>7}  {'layers, and what is free':<{BAR + 2}} {'prefix kept':>11}"
)

_EXAMPLES = """\
On a terminal the account is updated in place; elsewhere, and with --once, it is one line a call.

examples:
  lamina demo
  lamina demo --once --seed 8 --window 24000
  lamina demo --json | jq '.ways'

exit status: 0 done, 3 the session cannot be made to fit the window
"""


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lamina demo [--once] [--seed N] [--window N] [--json]"
    parser.epilog = _EXAMPLES
    parser.add_argument("--once", action="store_true", help="plain lines, on a terminal too")
    parser.add_argument(
        "--seed", metavar="N", type=tokens, default=SEED, help=f"which session (default: {SEED})"
    )
    parser.add_argument(
        "--window",
        metavar="N",
        type=tokens,
        default=WINDOW,
        help=f"the context window in tokens (default: {WINDOW})",
    )
    add_json(parser, "every call, the sums, and what was recalled")


def run(arguments: argparse.Namespace) -> int:
    session = _Session(arguments.seed, Budget(window=arguments.window))
    if arguments.json:
        shown = [_facts(call) for call in session.play()]
        emit(_report(arguments, session, shown))
        return 0
    _watch(session, live=not arguments.once and _can_update())
    print(f"\n{summary(session.tallies)}\n\n{_recalled(session.last)}")
    return 0


class _Call(NamedTuple):
    """One call, fitted. `could` are the tokens of the call before it, `kept` those that it begins with."""

    number: int
    turn: int
    fitted: Fitted
    kept: int
    could: int

    @property
    def envelope(self) -> Envelope:
        return self.fitted.envelope


class _Session:
    """A recording that is played through `fit_request`, with the sums of each way beside it."""

    def __init__(self, seed: int, budget: Budget) -> None:
        self.request, self.budget = recording(seed), budget
        self.tallies: list[Tally] = []
        self.last: Fitted

    def play(self) -> Iterator[_Call]:
        ledger, memo, before = Ledger(), RequestMemo(), None
        for number, request in enumerate(calls(self.request), 1):
            self.last = fit_request(request, dialect=CHAT, budget=self.budget, ledger=ledger, memo=memo)
            envelope, ledger = self.last.envelope, self.last.ledger
            if before is None:
                ours, others = self._begin(envelope.room or 0)
            kept = part(before, envelope).kept if before else 0
            ours.add(envelope.tokens, kept)
            others.call(len(self.last.log))
            turn = sum(message["role"] == "user" for message in request["messages"])
            yield _Call(number, turn, self.last, kept, before.tokens if before else 0)
            before = envelope

    def _begin(self, room: int) -> tuple[Tally, Others]:
        counter, parsed = counter_for(MODEL), CHAT.parse(self.request)
        options = Options(repairs=CHAT.repairs, layout=AS_LOGGED)
        whole = build(parsed.log, head=parsed.head, counter=counter, options=options)
        ours, others = Tally("lamina", room), Others(whole, counter, room)
        self.tallies = [ours, others.sliding, others.unmanaged]
        return ours, others


def _can_update() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def _watch(session: _Session, *, live: bool) -> None:
    """The account of each call: all of them as lines, or the newest in place and the cuts above it."""
    for call in session.play():
        if call.number == 1:
            print(_opening(session))
        if not live:
            print(_line(call), flush=True)
            continue
        drawn = _panel(call, session)
        back = f"\x1b[{len(drawn)}F\x1b[J" if call.number > 1 else ""
        above = [_line(call)] if call.envelope.cut else []
        print(back + "\n".join([*above, *drawn]), flush=True)
        time.sleep(PAUSE)


def _opening(session: _Session) -> str:
    room = session.tallies[0].room
    signs = ", ".join(f"{sign} {name}" for name, sign in SIGNS.items())
    return (
        f"window {session.budget.window:,}, of which {room:,} tokens are room for input\n{signs}\n\n{COLUMNS}"
    )


def _line(call: _Call) -> str:
    drawn = bar(amounts(call.envelope), width=BAR)
    share = f"{100 * call.kept // call.could} %" if call.could else "-"
    cells = f"{call.number:>4} {call.turn:>4} {call.envelope.tokens:>7,}  {drawn} {share:>11}"
    return f"{cells}{_event(call.envelope)}"


def _event(envelope: Envelope) -> str:
    cut = envelope.cut
    if cut is None:
        return ""
    amount = f": {cut.before:,} to {cut.after:,} tokens, {cut.lowered} lowered" if cut.lowered else ""
    return f"  cut {cut.number}, {cut.reason}{amount}"


def _panel(call: _Call, session: _Session) -> list[str]:
    """What is redrawn at every call; always as many lines."""
    costs = ", ".join(f"{tally.name} {tally.cost:,.0f}" for tally in session.tallies)
    shares = ", ".join(f"{tally.name} {100 * tally.share:.1f} %" for tally in session.tallies)
    quiet = _line(call).removesuffix(_event(call.envelope))
    lines = [quiet, "", legend(amounts(call.envelope)), f"prefix kept: {shares}", f"input cost: {costs}"]
    columns = shutil.get_terminal_size().columns - 1  # a line that wraps would be two to go back over
    return [line[:columns] for line in lines]


class _Lowered(NamedTuple):
    """One segment that is not sent in full, and how it comes back."""

    what: str
    why: str
    sent: str
    key: str
    text: str
    equal: bool


def _lowered(fitted: Fitted) -> _Lowered | None:
    """The largest segment that is not sent in full; one that stands as a stub, if there is any."""
    found = [e for e in fitted.envelope.entries if e.form is not Form.FULL and e.segment.origin != "lamina"]
    if not found:
        return None
    entry = max(found, key=lambda e: (e.form is Form.STUB, len(text_of(e.segment.parts))))
    key = handle(entry.content)
    text = fitted.recall(key)
    return _Lowered(
        described(entry.segment),
        entry.why,
        text_of(entry.parts),
        key,
        text,
        text == text_of(entry.segment.parts),
    )


def _recalled(fitted: Fitted) -> str:
    """One thing that was lowered, as it is sent now and as it comes back."""
    found = _lowered(fitted)
    if found is None:
        return "everything is sent in full: there is nothing to bring back"
    size = f"{len(found.text.encode()):,} bytes, {found.text.count(chr(10)) + 1:,} lines"
    return (
        f"lowered:  {found.what} ({found.why})\n"
        f"sent as:  {' '.join(found.sent.split())[:120] or 'part of a digest'}\n"
        f"recalled: {size} by the key {found.key}\n"
        f"equal to what was lowered: {'yes' if found.equal else 'no'}"
    )


def _facts(call: _Call) -> dict[str, Any]:
    cut = call.envelope.cut
    parts = amounts(call.envelope)
    free = parts.pop("free", 0)
    return {
        "call": call.number, "turn": call.turn, "tokens": call.envelope.tokens, "layers": parts, "free": free,
        "kept": call.kept, "could_be_kept": call.could,
        "cut": {"number": cut.number, "reason": cut.reason, "lowered": cut.lowered} if cut else None,
    }  # fmt: skip


def _report(arguments: argparse.Namespace, session: _Session, shown: list[dict[str, Any]]) -> dict[str, Any]:
    found = _lowered(session.last)
    ways = [
        {"name": t.name, "calls": t.calls, "over": t.over, "moved": t.moved, "sent": t.sent, "kept": t.kept,
         "share": round(t.share, 4), "cost": round(t.cost, 2)}
        for t in session.tallies
    ]  # fmt: skip
    return {
        "seed": arguments.seed, "window": arguments.window, "room": session.tallies[0].room,
        "prices": {"read": RATES.read, "write": RATES.write}, "ways": ways, "calls": shown,
        "recalled": found._asdict() if found else None,
    }  # fmt: skip
