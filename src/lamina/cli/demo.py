"""`lamina demo`: one session of a coding agent in a small window: the cuts, the costs, and what comes back.

The session is made up, no model is asked and nothing leaves the machine. The figures are the lab's: those
that `lamina replay` gives for sessions of one's own.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from lamina.caches import rules_for
from lamina.cli.bar import SIGNS, draw_bar
from lamina.cli.colour import paint
from lamina.cli.output import emit, progress
from lamina.cli.parser import add_json, seed_number, window_size
from lamina.cli.recording import MODEL, make_recording, split_calls
from lamina.core.explanation import name_plainly
from lamina.core.hashing import handle
from lamina.core.text.clipping import count_units
from lamina.core.values import Budget, Entry, Form, Ledger, Ref, ToolCall, ToolResult
from lamina.core.wording import describe_segment, text_of
from lamina.fitting.policy import Policy
from lamina.fitting.request import Fitted, RequestMemo, fit_request
from lamina.replay.account_columns import format_percent
from lamina.replay.account_sums import Total, sum_outcomes
from lamina.replay.account_table import account_json
from lamina.replay.policies.port import RESERVED_PART
from lamina.replay.runs import replay
from lamina.replay.values import Point, ReplayAccount, ReplayOutcome, Trace

SEED, TURNS, WINDOW = 7, 14, 32_000
CHAT, OWN = "openai_chat", "lamina"
TITLES = {
    "none": "untouched",
    "drop_oldest": "drop oldest",
    "sliding": "sliding window",
    OWN: "lamina",
}
BAR = 40
PAUSE = 0.04
"""Seconds between two calls on a terminal, so that one can follow."""

MOST_CUTS = 2
"""Cuts that are printed one by one."""

RECALLED_LINES = 3
"""Lines of a recalled text that are printed."""

SENT = 74
"""Characters of a line of others' words."""

NOUNS = {
    "tool_result": ("result", "results"),
    "assistant": ("reply", "replies"),
    "user": ("question", "questions"),
}

_EXAMPLES = """\
On a terminal one bar is updated in place, and the cuts stay; elsewhere only the cuts are printed.
The session is made up from its seed. Whether lamina is also the cheapest depends on the session: try several.

examples:
  lamina demo
  lamina demo --seed 5 --window 24000
  lamina demo --json | jq '.account.totals'

exit status: 0 done, 3 the session cannot be made to fit the window
"""


_DIFFERENT = "Sessions differ: with --seed 5, sliding is cheaper, and 34 of 273 names gone."
_NEXT = "Next, what did your own sessions cost?  lamina replay ~/.claude/projects"


class CutLine(msgspec.Struct, frozen=True, kw_only=True):
    """One cut of the session: at which call, and what left."""

    call: int
    left: str
    before: int
    after: int


class RecalledSegment(msgspec.Struct, frozen=True, kw_only=True):
    """One segment that is not sent in full, and how it comes back.

    `sent` is what stands for it, `key` the name that the request gives, `size` the bytes that come back by
    that name, `text` the segment among them, and `equal` says whether it is what was left out.
    """

    what: str
    why: str
    sent: str
    key: str
    size: int
    text: str
    equal: bool


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lamina demo [--seed N] [--window N] [--json]"
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add("--seed", metavar="N", type=seed_number, default=SEED, help=f"which session (default: {SEED})")
    add(
        "--window",
        metavar="N",
        type=window_size,
        default=WINDOW,
        help=f"the context window in tokens (default: {WINDOW})",
    )
    add_json(parser, "the account of every policy, the cuts, and what was recalled")


def run(arguments: argparse.Namespace) -> int:
    """Replay a made-up session under each policy, and print what lamina did and what each costs."""
    request = make_recording(arguments.seed, turns=TURNS)
    with progress("replaying a made-up session"):
        fitted, cuts = _fit_calls(request, arguments.window)
        recalled = _recall_largest(fitted)
        account = _replay_policies(request, arguments)
    if arguments.json:
        emit(
            {
                "seed": arguments.seed,
                "turns": TURNS,
                "window": arguments.window,
                "account": account_json(account),
                "cuts": msgspec.to_builtins(cuts),
                "recalled": msgspec.to_builtins(recalled),
            }
        )
    else:
        _print_session(arguments, account, cuts, live=_can_update())
        _print_costs(account)
        _print_recall(recalled)
        _print_next(arguments)
    return 0


def _print_next(arguments: argparse.Namespace) -> None:
    """What to try next. The last line opens this very session in a browser."""
    command = "lamina inspect --demo --open"
    print()
    if arguments.seed == SEED:
        print(_DIFFERENT)
    else:
        command = f"lamina inspect --demo {arguments.seed} --open"
    print(f"{_NEXT}\nAnd what did the model see of this one?  {command}")


def _make_trace(request: dict[str, Any], seed: int) -> Trace:
    return Trace(
        id=f"made up, seed {seed}",
        place="lamina demo",
        dialect=CHAT,
        source="demo",
        model=MODEL,
        items=request["messages"],
        head={"tools": request["tools"]},
    )


def _fit_calls(request: dict[str, Any], window: int) -> tuple[Fitted, list[CutLine]]:
    """The last call of the session, after all calls before it, and the cuts on the way.

    A cut is told by what was in full in the call before it, and is no longer.
    """
    rules = rules_for(MODEL, dialect=CHAT)
    policy = Policy(budget=Budget(window=window, reserve=window // RESERVED_PART), rules=rules)
    memo = RequestMemo()
    ledger = Ledger()
    refs_in_full: set[Ref] = set()
    cuts = []
    for number, call in enumerate(split_calls(request), start=1):
        fitted = fit_request(call, dialect=CHAT, ledger=ledger, policy=policy, memo=memo)
        ledger = fitted.ledger
        entries = {entry.ref: entry for entry in fitted.envelope.entries}
        earlier_refs = refs_in_full
        refs_in_full = {ref for ref, entry in entries.items() if entry.form is Form.FULL}
        cut = fitted.envelope.cut
        if cut is None or not cut.lowered:
            continue
        lowered = [entry for ref, entry in entries.items() if ref in earlier_refs - refs_in_full]
        cuts.append(CutLine(call=number, left=_count_by_sort(lowered), before=cut.before, after=cut.after))
    return fitted, cuts


def _count_by_sort(entries: Iterable[Entry]) -> str:
    """What these are: `14 results, 3 files and 2 replies`."""
    counts: Counter[str] = Counter()
    for entry in entries:
        first = entry.segment.parts[0]
        if isinstance(first, ToolCall):  # its result is counted
            continue
        kind = entry.segment.kind
        if isinstance(first, ToolResult):
            kind = "tool_result"
        counts[kind] += 1
    words = []
    for kind, count in counts.most_common():
        singular, plural = NOUNS.get(kind, (kind, f"{kind}s"))
        words.append(f"1 {singular}" if count == 1 else f"{count} {plural}")
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _recall_largest(fitted: Fitted) -> RecalledSegment | None:
    """The largest segment that is not sent in full; one that is sent as a stub, if there is any."""
    entries = [entry for entry in fitted.envelope.entries if not entry.segment.is_own]
    lowered = [entry for entry in entries if entry.form is not Form.FULL]
    if not lowered:
        return None
    largest = max(lowered, key=lambda entry: (entry.form is Form.STUB, len(text_of(entry.segment.parts))))
    text = text_of(largest.segment.parts)
    key = handle(largest.content)
    sent = text_of(largest.parts)
    for fold in fitted.ledger.folds:
        if largest.ref in fold.covers:
            key = fold.key
            sent = _digest_text(fitted, key)
    recalled_text = fitted.recall(key)
    return RecalledSegment(
        what=name_plainly(largest.segment.kind, describe_segment(largest.segment)),
        why=largest.why,
        sent=sent,
        key=key,
        size=len(recalled_text.encode()),
        text=text,
        equal=text in recalled_text,
    )


def _digest_text(fitted: Fitted, key: str) -> str:
    """The words of the digest that has this key."""
    for entry in fitted.envelope.entries:
        if entry.segment.key == key:
            return text_of(entry.parts)
    return ""


def _replay_policies(request: dict[str, Any], arguments: argparse.Namespace) -> ReplayAccount:
    trace = _make_trace(request, arguments.seed)
    return replay(
        [trace],
        policies=tuple(TITLES),
        windows=[arguments.window],
        rules=[rules_for(MODEL, dialect=CHAT).name],
        jobs=1,
        points=True,
    )


def _can_update() -> bool:
    """Whether a line on the screen can be drawn over."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def _print_session(
    arguments: argparse.Namespace, account: ReplayAccount, cuts: Sequence[CutLine], *, live: bool
) -> None:
    """Print the cuts; if `live`, also the newest call in place.

    A call is drawn over by the next one, unless there was a cut at it, or it is the last.
    """
    own = next(outcome for outcome in account.outcomes if outcome.policy == OWN)
    print(
        f"A coding agent's session, made up (seed {arguments.seed}): {own.calls} requests, "
        f"window {arguments.window:,} tokens.\nPer request: {_legend(own)}\n"
    )
    cut_by_call = {cut.call: cut for cut in cuts[:MOST_CUTS]}
    columns = shutil.get_terminal_size().columns - 1  # a line that wraps cannot be drawn over
    for number, point in enumerate(own.points, start=1):
        line = _draw_call(number, point, own.window)
        cut = cut_by_call.get(number)
        stays = cut is not None or number == own.calls
        if live:
            print(f"\r\x1b[K{line[:columns]}", end="", flush=True)
            time.sleep(PAUSE)
            line = ""  # it is drawn
        if stays:
            print(line)
        if cut is not None:
            sizes = f"{cut.before:,} to {cut.after:,} tokens"
            print(paint(f"  cut {sizes}: {cut.left} left out", "remark"))
    if len(cuts) > MOST_CUTS:
        print(f"      (cuts so far: {len(cuts)})")


def _legend(own: ReplayOutcome) -> str:
    """What each sign of a bar stands for, without layers that no request of the session has."""
    layers = {"framing", "free"}
    for point in own.points:
        layers.update(point.layers)
    return ", ".join(f"{sign} {name}" for name, sign in SIGNS.items() if name in layers)


def _draw_call(number: int, point: Point, window: int) -> str:
    """One call: its number, its layers as a bar, its tokens, and how much of it was cached."""
    amounts = {name: point.layers.get(name, 0) for name in SIGNS}
    amounts["framing"] = max(point.tokens - sum(amounts.values()), 0)
    amounts["free"] = max(window - point.tokens, 0)
    bar = draw_bar(amounts, width=BAR)
    cached = 100 * point.read // max(point.tokens, 1)
    return f"{number:>4}  {bar} {point.tokens:>7,} tokens, {cached:>2} % cached"


def _print_costs(account: ReplayAccount) -> None:
    """One sentence with its price for each policy."""
    print(f"\nCost of the input ({MODEL}, {account.as_of}), and names gone that answers need:")
    for total in sum_outcomes(account.outcomes):
        line = f"  {TITLES[total.policy]:<14} ${total.price or 0.0:.2f}  {_describe_total(total)}"
        if total.refused:
            line = paint(line, "bad")
        elif total.policy == "lamina":
            line = paint(line, "good")
        print(line)


def _describe_total(total: Total) -> str:
    """What a policy did to the session, in a sentence: refused, nothing, or cuts and what is missing."""
    if total.refused:
        return f"{total.refused} of {total.calls} requests are too large, and refused"
    if not total.cuts:
        return "everything fits: nothing is left out"
    facts = [f"{total.cuts} cuts", f"{format_percent(total.cached)} cached"]
    missing = total.needed - total.visible
    out_of_reach = total.needed - total.recallable
    if not missing:
        facts.append("all that answers need is there")
    elif out_of_reach:
        facts.append(f"{out_of_reach} of {total.needed:,} names gone")
    else:
        facts.append(f"0 of {total.needed:,} names gone, {count_units(total.recalls, 'recalls')}")
    return ", ".join(facts)


def _print_recall(recalled: RecalledSegment | None) -> None:
    """One thing that was left out, as it is sent now and as it comes back."""
    if recalled is None:
        print("\nEverything is sent in full: there is nothing to recall.")
        return
    sent = " ".join(recalled.sent.split())
    equal = "byte for byte" if recalled.equal else "but not as it was"
    print(f"\nOne thing that was left out is {recalled.what}. In its place is sent:")
    print(f"    {sent[:SENT]}…")
    print(f'recall("{recalled.key}") brings it back, {equal}:')
    lines = [line for line in recalled.text.split("\n") if line]
    for line in lines[:RECALLED_LINES]:
        print(f"    {line[:SENT]}")
