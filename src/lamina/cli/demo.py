"""`lamina demo`: one session of a coding agent, replayed: what is sent, what is lowered, what it costs.

The session is made up, no model is asked and nothing leaves the machine. The figures are the lab's: those
that `lamina replay` gives for sessions of one's own.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from lamina.caches import rules_for
from lamina.cli.bar import SIGNS, bar, legend
from lamina.cli.output import emit, progress, tell
from lamina.cli.parser import add_json, tokens
from lamina.cli.recording import MODEL, calls, recording
from lamina.cli.replay import write
from lamina.core.hashing import handle
from lamina.core.values import Budget, Form, Ledger
from lamina.core.wording import described, text_of
from lamina.fitting.request import Fitted, RequestMemo, fit_request
from lamina.replay.account_table import account_json, account_text, format_whole
from lamina.replay.html import render_page
from lamina.replay.runs import replay
from lamina.replay.values import Point, ReplayAccount, ReplayOutcome, Trace

SEED, TURNS, WINDOW = 7, 14, 32_000
CHAT, OWN = "openai_chat", "lamina"
POLICIES = ("none", "drop_oldest", "sliding", OWN)
BAR = 32
PAUSE = 0.04
"""Seconds between two calls on a terminal, so that one can follow."""

COLUMNS = f"{'call':>4} {'turn':>4} {'tokens':>7}  {'layers, and what is free':<{BAR + 2}} {'cached':>7}"

_NOTES = """\
cost:   the input, in tokens at full price: what the cache gives counts for less
recall: of the names, paths and numbers that answers took from earlier context, the share in the request
reach:  the same share, counting what a recall brings back; "for recalls" is what that costs
over:   requests that the provider would refuse, since they exceed the window\
"""

_EXAMPLES = """\
On a terminal the account is updated in place; elsewhere, and with --once, it is one line a call. The page
with drawings is written to a new folder for temporary files, or to --html FILE.

examples:
  lamina demo
  lamina demo --once --seed 8 --window 24000
  lamina demo --json | jq '.account.totals'

exit status: 0 done, 3 the session cannot be made to fit the window
"""


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lamina demo [--once] [--seed N] [--turns N] [--window N] [--html FILE] [--json]"
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add("--once", action="store_true", help="plain lines, on a terminal too")
    add("--seed", metavar="N", type=tokens, default=SEED, help=f"which session (default: {SEED})")
    add("--turns", metavar="N", type=tokens, default=TURNS, help=f"how long it is (default: {TURNS})")
    add(
        "--window",
        metavar="N",
        type=tokens,
        default=WINDOW,
        help=f"the context window in tokens (default: {WINDOW})",
    )
    add("--html", metavar="FILE", help="where the page is written; by default, a new folder")
    add_json(parser, "the account of every policy, and what was recalled")


def run(arguments: argparse.Namespace) -> int:
    request = recording(arguments.seed, turns=max(arguments.turns, 1))
    with progress("replaying a made-up session"):
        recalled = _lowered(_fitted(request, arguments.window))
        account = _account(request, arguments)
    report = arguments.html or str(Path(tempfile.mkdtemp(prefix="lamina-demo-")) / "report.html")
    write(report, render_page(account, title=f"A made-up session in a window of {arguments.window:,} tokens"))
    if arguments.json:
        emit(_facts(arguments, account, recalled))
    else:
        _watch(_Shown(request, account), live=not arguments.once and _can_update())
        print(f"\n{account_text(account, recorded=False)}\n\n{_NOTES}\n\n{_told(recalled)}")
    tell(f"the page with drawings: {report}")
    return 0


def _account(request: dict[str, Any], arguments: argparse.Namespace) -> ReplayAccount:
    trace = Trace(
        id=f"made up, seed {arguments.seed}",
        place="lamina demo",
        dialect=CHAT,
        source="demo",
        model=MODEL,
        items=request["messages"],
        head={"tools": request["tools"]},
    )
    return replay(
        [trace],
        policies=POLICIES,
        windows=[arguments.window],
        rules=[rules_for(MODEL, dialect=CHAT).name],
        jobs=1,
        points=True,
    )


class _Shown:
    """What is watched: the calls under lamina, with the turn that each belongs to and all costs so far."""

    def __init__(self, request: dict[str, Any], account: ReplayAccount) -> None:
        self.outcomes = account.outcomes
        self.own: ReplayOutcome = next(each for each in self.outcomes if each.policy == OWN)
        asked = (sum(m["role"] == "user" for m in each["messages"]) for each in calls(request))
        self.turns = list(asked)
        self.cuts = list(accumulate(bool(point.cut) for point in self.own.points))

    def line(self, at: int) -> str:
        point = self.own.points[at]
        drawn = bar(self.amounts(point), width=BAR)
        share = f"{100 * point.read // point.tokens} %" if point.tokens else "-"
        cells = f"{at + 1:>4} {self.turns[at]:>4} {point.tokens:>7,}  {drawn} {share:>7}"
        return f"{cells}  cut {self.cuts[at]}, {point.cut}" if point.cut else cells

    def amounts(self, point: Point) -> dict[str, int]:
        """Tokens by layer, with what stands around the messages, and what is free of the window."""
        known = {name: point.layers[name] for name in SIGNS if point.layers.get(name)}
        around = {"framing": max(point.tokens - sum(known.values()), 0)}
        free = {"free": max(self.own.window - point.tokens, 0)}
        return {name: count for name, count in (known | around | free).items() if count}

    def panel(self, at: int) -> list[str]:
        """What is redrawn at every call; always as many lines."""
        point = self.own.points[at]
        spent = [(each.policy, each.points[min(at, len(each.points) - 1)].spent) for each in self.outcomes]
        costs = ", ".join(f"{policy} {format_whole(cost)}" for policy, cost in spent)
        quiet = self.line(at).partition("  cut ")[0]
        lines = [quiet, "", legend(self.amounts(point)), f"cost so far: {costs}"]
        columns = shutil.get_terminal_size().columns - 1  # a line that wraps would be two to go back over
        return [line[:columns] for line in lines]


def _can_update() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def _watch(shown: _Shown, *, live: bool) -> None:
    """The account of each call: all of them as lines, or the newest in place and the cuts above it."""
    signs = ", ".join(f"{sign} {name}" for name, sign in SIGNS.items())
    print(f"one session of a coding agent, made up, in a window of {shown.own.window:,} tokens")
    print(f"{signs}\n\n{COLUMNS}")
    for at, point in enumerate(shown.own.points):
        if not live:
            print(shown.line(at), flush=True)
            continue
        drawn = shown.panel(at)
        back = f"\x1b[{len(drawn)}F\x1b[J" if at else ""
        above = [shown.line(at)] if point.cut else []
        print(back + "\n".join([*above, *drawn]), flush=True)
        time.sleep(PAUSE)


class _Lowered(NamedTuple):
    """One segment that is not sent in full, and how it comes back."""

    what: str
    why: str
    sent: str
    key: str
    text: str
    equal: bool


def _fitted(request: dict[str, Any], window: int) -> Fitted:
    """The last call of the session, after all calls before it."""
    ledger, memo = Ledger(), RequestMemo()
    for fitted in _each(request, window, ledger, memo):
        last = fitted
    return last


def _each(request: dict[str, Any], window: int, ledger: Ledger, memo: RequestMemo) -> Iterator[Fitted]:
    for each in calls(request):
        fitted = fit_request(each, dialect=CHAT, budget=Budget(window=window), ledger=ledger, memo=memo)
        ledger = fitted.ledger
        yield fitted


def _lowered(fitted: Fitted) -> _Lowered | None:
    """The largest segment that is not sent in full; one that stands as a stub, if there is any."""
    found = [e for e in fitted.envelope.entries if e.form is not Form.FULL and e.segment.origin != "lamina"]
    if not found:
        return None
    entry = max(found, key=lambda e: (e.form is Form.STUB, len(text_of(e.segment.parts))))
    key, whole_text = handle(entry.content), text_of(entry.segment.parts)
    back = fitted.recall(key)
    return _Lowered(described(entry.segment), entry.why, text_of(entry.parts), key, back, back == whole_text)


def _told(found: _Lowered | None) -> str:
    """One thing that was lowered, as it is sent now and as it comes back."""
    if found is None:
        return "everything is sent in full: there is nothing to bring back"
    size = f"{len(found.text.encode()):,} bytes, {found.text.count(chr(10)) + 1:,} lines"
    return (
        f"lowered:  {found.what} ({found.why})\n"
        f"sent as:  {' '.join(found.sent.split())[:120] or 'part of a digest'}\n"
        f"recalled: {size} by the key {found.key}\n"
        f"equal to what was lowered: {'yes' if found.equal else 'no'}"
    )


def _facts(
    arguments: argparse.Namespace, account: ReplayAccount, recalled: _Lowered | None
) -> dict[str, Any]:
    return {
        "seed": arguments.seed,
        "turns": arguments.turns,
        "window": arguments.window,
        "account": account_json(account),
        "recalled": recalled._asdict() if recalled else None,
    }
