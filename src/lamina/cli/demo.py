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
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from lamina.caches import rules_for
from lamina.cli.bar import SIGNS, draw_bar, draw_legend
from lamina.cli.output import emit, progress, tell
from lamina.cli.parser import add_json, whole_number
from lamina.cli.recording import MODEL, make_recording, split_calls
from lamina.cli.replay import write_file
from lamina.core.hashing import handle
from lamina.core.values import Budget, Form, Ledger
from lamina.core.wording import describe_segment, text_of
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
    add("--seed", metavar="N", type=whole_number, default=SEED, help=f"which session (default: {SEED})")
    add("--turns", metavar="N", type=whole_number, default=TURNS, help=f"how long it is (default: {TURNS})")
    add(
        "--window",
        metavar="N",
        type=whole_number,
        default=WINDOW,
        help=f"the context window in tokens (default: {WINDOW})",
    )
    add("--html", metavar="FILE", help="where the page is written; by default, a new folder")
    add_json(parser, "the account of every policy, and what was recalled")


def run(arguments: argparse.Namespace) -> int:
    request = make_recording(arguments.seed, turns=max(arguments.turns, 1))
    with progress("replaying a made-up session"):
        recalled = _recall_largest(_fit_last_call(request, arguments.window))
        account = _replay_policies(request, arguments)
    report = arguments.html
    if not report:
        report = str(Path(tempfile.mkdtemp(prefix="lamina-demo-")) / "report.html")
    write_file(
        report, render_page(account, title=f"A made-up session in a window of {arguments.window:,} tokens")
    )
    if arguments.json:
        emit(_demo_json(arguments, account, recalled))
    else:
        _watch(_WatchedCalls(request, account), live=not arguments.once and _can_update())
        print(f"\n{account_text(account, recorded=False)}\n\n{_NOTES}\n\n{_recalled_text(recalled)}")
    tell(f"the page with drawings: {report}")
    return 0


def _replay_policies(request: dict[str, Any], arguments: argparse.Namespace) -> ReplayAccount:
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


class _WatchedCalls:
    """The calls under lamina, with the turn that each belongs to, and what every policy cost so far."""

    def __init__(self, request: dict[str, Any], account: ReplayAccount) -> None:
        self.outcomes = account.outcomes
        self.own: ReplayOutcome = next(outcome for outcome in self.outcomes if outcome.policy == OWN)
        self.turns = [_count_user_messages(call) for call in split_calls(request)]
        self.cuts = list(accumulate(bool(point.cut) for point in self.own.points))

    def line(self, at: int) -> str:
        """One call with its cut, if there was one."""
        line = self._line_without_cut(at)
        point = self.own.points[at]
        if point.cut:
            line += f"  cut {self.cuts[at]}, {point.cut}"
        return line

    def panel(self, at: int) -> list[str]:
        """What is redrawn at every call; always as many lines."""
        costs = []
        for outcome in self.outcomes:
            point = outcome.points[min(at, len(outcome.points) - 1)]
            costs.append(f"{outcome.policy} {format_whole(point.spent)}")
        lines = [
            self._line_without_cut(at),
            "",
            draw_legend(self._amounts(self.own.points[at])),
            f"cost so far: {', '.join(costs)}",
        ]
        columns = shutil.get_terminal_size().columns - 1  # a line that wraps would be two to go back over
        return [line[:columns] for line in lines]

    def _line_without_cut(self, at: int) -> str:
        point = self.own.points[at]
        bar = draw_bar(self._amounts(point), width=BAR)
        share = f"{100 * point.read // point.tokens} %" if point.tokens else "-"
        return f"{at + 1:>4} {self.turns[at]:>4} {point.tokens:>7,}  {bar} {share:>7}"

    def _amounts(self, point: Point) -> dict[str, int]:
        """Tokens by layer, with what stands around the messages, and what is free of the window."""
        amounts = {name: point.layers[name] for name in SIGNS if point.layers.get(name)}
        amounts["framing"] = max(point.tokens - sum(amounts.values()), 0)
        amounts["free"] = max(self.own.window - point.tokens, 0)
        return {name: tokens for name, tokens in amounts.items() if tokens}


def _count_user_messages(request: dict[str, Any]) -> int:
    return sum(message["role"] == "user" for message in request["messages"])


def _can_update() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def _watch(calls: _WatchedCalls, *, live: bool) -> None:
    """Prints every call as a line; if `live`, the newest in place, and the cuts above it."""
    signs = ", ".join(f"{sign} {name}" for name, sign in SIGNS.items())
    print(f"one session of a coding agent, made up, in a window of {calls.own.window:,} tokens")
    print(f"{signs}\n\n{COLUMNS}")
    for at, point in enumerate(calls.own.points):
        if not live:
            print(calls.line(at), flush=True)
            continue
        lines = calls.panel(at)
        go_back = f"\x1b[{len(lines)}F\x1b[J" if at else ""
        if point.cut:
            lines.insert(0, calls.line(at))
        print(go_back + "\n".join(lines), flush=True)
        time.sleep(PAUSE)


class _Recalled(NamedTuple):
    """One segment that is not sent in full, and how it comes back."""

    what: str
    why: str
    sent: str
    key: str
    text: str
    equal: bool


def _fit_last_call(request: dict[str, Any], window: int) -> Fitted:
    """The last call of the session, after all calls before it."""
    budget = Budget(window=window)
    memo = RequestMemo()
    ledger = Ledger()
    for call in split_calls(request):
        fitted = fit_request(call, dialect=CHAT, budget=budget, ledger=ledger, memo=memo)
        ledger = fitted.ledger
    return fitted


def _recall_largest(fitted: Fitted) -> _Recalled | None:
    """The largest segment that is not sent in full; one that is sent as a stub, if there is any."""
    lowered = [
        entry
        for entry in fitted.envelope.entries
        if entry.form is not Form.FULL and entry.segment.origin != "lamina"
    ]
    if not lowered:
        return None
    largest = max(lowered, key=lambda entry: (entry.form is Form.STUB, len(text_of(entry.segment.parts))))
    key = handle(largest.content)
    text = fitted.recall(key)
    return _Recalled(
        what=describe_segment(largest.segment),
        why=largest.why,
        sent=text_of(largest.parts),
        key=key,
        text=text,
        equal=text == text_of(largest.segment.parts),
    )


def _recalled_text(recalled: _Recalled | None) -> str:
    """One thing that was lowered, as it is sent now and as it comes back."""
    if recalled is None:
        return "everything is sent in full: there is nothing to bring back"
    sent = " ".join(recalled.sent.split())[:120] or "part of a digest"
    lines = recalled.text.count("\n") + 1
    equal = "yes" if recalled.equal else "no"
    return (
        f"lowered:  {recalled.what} ({recalled.why})\n"
        f"sent as:  {sent}\n"
        f"recalled: {len(recalled.text.encode()):,} bytes, {lines:,} lines by the key {recalled.key}\n"
        f"equal to what was lowered: {equal}"
    )


def _demo_json(
    arguments: argparse.Namespace, account: ReplayAccount, recalled: _Recalled | None
) -> dict[str, Any]:
    return {
        "seed": arguments.seed,
        "turns": arguments.turns,
        "window": arguments.window,
        "account": account_json(account),
        "recalled": recalled._asdict() if recalled else None,
    }
