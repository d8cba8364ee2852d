"""An account added up, and as text: what was paid, what each policy would have cost, where caches were lost.

The sums are what the page and the JSON file show as well. Nothing here replays or reads a file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from lamina.replay.values import ReplayAccount, ReplayOutcome, Reported

SHOWN = 8
"""Reasons, and damaged lines, that the terminal shows; the JSON file has all."""

_SPAN = re.compile(r"^idle for [^,]+, ")  # how long is said call by call, and added up here

_ADDED = (
    "calls cuts broken over invalid failed sent read written uncached output equivalents needed visible "
    "recallable recalls recall_equivalents lowered lost seconds"
).split()


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """All sessions under one policy, window and cache; `priced` have prices, `dollars` is theirs."""

    policy: str
    window: int
    rules: str
    sessions: int = 0
    priced: int = 0
    dollars: float = 0.0
    calls: int = 0
    cuts: int = 0
    broken: int = 0
    over: int = 0
    invalid: int = 0
    failed: int = 0
    sent: int = 0
    read: int = 0
    written: int = 0
    uncached: int = 0
    output: int = 0
    equivalents: float = 0.0
    needed: int = 0
    visible: int = 0
    recallable: int = 0
    recalls: int = 0
    recall_equivalents: float = 0.0
    lowered: int = 0
    lost: int = 0
    seconds: float = 0.0

    @property
    def cached(self) -> float | None:
        """The share of what was sent that the cache gave."""
        return self.read / self.sent if self.sent else None

    @property
    def recall(self) -> float | None:
        """Of what the answers needed, the share that stood in the request."""
        return self.visible / self.needed if self.needed else None

    @property
    def within_reach(self) -> float | None:
        """Of what the answers needed, the share that stood in the request or could be had back."""
        return self.recallable / self.needed if self.needed else None

    @property
    def price(self) -> float | None:
        """What the sessions that have a price come to."""
        return self.dollars if self.priced else None

    @property
    def pace(self) -> float | None:
        """Seconds for each call."""
        return self.seconds / self.calls if self.calls else None

    @property
    def refused(self) -> int:
        """Calls that have no answer: over the window, invalid, or given up."""
        return self.over + self.invalid + self.failed


class Paid(msgspec.Struct, frozen=True, kw_only=True):
    """What the records say of all sessions of one model."""

    model: str
    sessions: int
    calls: int
    sent: int
    read: int
    output: int
    dollars: float | None
    losses: int
    paid_again: int

    @property
    def cached(self) -> float | None:
        return self.read / self.sent if self.sent else None


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """One call that found its cache gone."""

    trace: str
    call: int
    tokens: int
    why: str


def totals(outcomes: Iterable[ReplayOutcome]) -> tuple[Total, ...]:
    """Sums by cache, window and policy, in the order in which they were first seen."""
    groups: dict[tuple[str, int, str], list[ReplayOutcome]] = {}
    for each in outcomes:
        groups.setdefault((each.rules, each.window, each.policy), []).append(each)
    return tuple(_total(group) for group in groups.values())


def _total(group: Sequence[ReplayOutcome]) -> Total:
    first = group[0]
    priced = [each.dollars for each in group if each.dollars is not None]
    added = {name: sum(getattr(each, name) for each in group) for name in _ADDED}
    return Total(
        policy=first.policy,
        window=first.window,
        rules=first.rules,
        sessions=len(group),
        priced=len(priced),
        dollars=sum(priced),
        **added,
    )


def settings(sums: Iterable[Total]) -> dict[tuple[str, int], list[Total]]:
    """The sums of each cache and window beside each other."""
    found: dict[tuple[str, int], list[Total]] = {}
    for each in sums:
        found.setdefault((each.rules, each.window), []).append(each)
    return found


def frontier(sums: Sequence[Total]) -> list[Total]:
    """Those that no other beats in both cost and recall, cheapest first; none whose requests are refused."""
    able = [each for each in sums if not each.refused and each.recall is not None]
    best, found = -1.0, []
    for each in sorted(able, key=lambda total: (total.equivalents, -(total.recall or 0))):
        if (each.recall or 0) > best:
            best = each.recall or 0
            found.append(each)
    return found


def paid(reported: Iterable[Reported]) -> tuple[Paid, ...]:
    """What the records say, by model, of sessions that have usage; the most calls first."""
    groups: dict[str, list[Reported]] = {}
    for each in reported:
        if not each.calls:
            continue
        groups.setdefault(each.model, []).append(each)
    rows = [_paid(model, group) for model, group in groups.items()]
    return tuple(sorted(rows, key=lambda row: (-row.calls, row.model)))


def _paid(model: str, group: Sequence[Reported]) -> Paid:
    prices = [each.dollars for each in group if each.dollars is not None]
    return Paid(
        model=model,
        sessions=len(group),
        calls=sum(each.calls for each in group),
        sent=sum(each.read + each.written + each.uncached for each in group),
        read=sum(each.read for each in group),
        output=sum(each.output for each in group),
        dollars=sum(prices) if prices else None,
        losses=sum(len(each.lost) for each in group),
        paid_again=sum(tokens for each in group for _, tokens, _ in each.lost),
    )


def losses(reported: Iterable[Reported]) -> list[Loss]:
    """Every lost cache of the records, the dearest first."""
    found = [
        Loss(trace=each.trace, call=call, tokens=tokens, why=why)
        for each in reported
        for call, tokens, why in each.lost
    ]
    return sorted(found, key=lambda loss: (-loss.tokens, loss.trace, loss.call))


def reasons(found: Iterable[Loss]) -> list[tuple[str, int, int]]:
    """Why caches were lost, how often, and the tokens paid again for it; the dearest first."""
    times: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for loss in found:
        why = _SPAN.sub("idle, ", loss.why)
        times[why] += 1
        tokens[why] += loss.tokens
    return sorted(((why, times[why], tokens[why]) for why in times), key=lambda row: (-row[2], row[0]))


def facts(account: ReplayAccount) -> dict[str, Any]:
    """Everything as plain JSON: the sums that are shown, and what they are sums of."""
    lost = losses(account.reported)
    return {
        "as_of": account.as_of,
        "totals": [
            _shown(POLICY_COLUMNS, each) | {"refused": each.refused} for each in totals(account.outcomes)
        ],
        "paid": [_shown(PAID_COLUMNS, each) for each in paid(account.reported)],
        "losses": [{"why": why, "times": times, "tokens": tokens} for why, times, tokens in reasons(lost)],
        "reported": msgspec.to_builtins(account.reported),
        "outcomes": msgspec.to_builtins(account.outcomes),
        "damaged": msgspec.to_builtins(account.damaged),
    }


def _shown(columns: Iterable[Column], row: Total | Paid) -> dict[str, Any]:
    """A sum with every figure that a table shows, under the name it has there."""
    return {**msgspec.to_builtins(row), **{column.name: getattr(row, column.name) for column in columns}}


class Column(NamedTuple):
    """One figure of a row: its name there and in the JSON file, its head, meaning, and how it is written."""

    name: str
    head: str
    meaning: str
    write: Callable[[Any], str]


def whole(number: float | None) -> str:
    return "-" if number is None else f"{number:,.0f}"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def money(dollars: float | None) -> str:
    return "-" if dollars is None else f"{dollars:,.2f}" if dollars >= 1 else f"{dollars:.4f}"


def milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.1f}"


POLICY_COLUMNS = (
    Column("policy", "policy", "how the requests were made to fit", str),
    Column("equivalents", "cost", "input, in tokens at full price, as the cache's rules price it", whole),
    Column("price", "USD", "input and output, where the models have prices", money),
    Column("cached", "cached", "of the tokens sent, those that the cache gave", percent),
    Column("recall", "recall", "of what the answers needed, what stood in the request", percent),
    Column(
        "within_reach", "reach", "of what the answers needed, what stood there or could be recalled", percent
    ),
    Column("recall_equivalents", "for recalls", "what those recalls would add to the cost", whole),
    Column("cuts", "cuts", "times that something was lowered or dropped", whole),
    Column("broken", "broken", "requests that did not continue the one before byte for byte", whole),
    Column("over", "over", "requests over the window", whole),
    Column("invalid", "invalid", "requests that the provider would refuse", whole),
    Column("failed", "failed", "calls that the policy gave up", whole),
    Column("pace", "ms a call", "time that the policy took for each call", milliseconds),
)

PAID_COLUMNS = (
    Column("model", "model", "as the records name it", lambda name: name or "(not named)"),
    Column("sessions", "sessions", "", whole),
    Column("calls", "calls", "", whole),
    Column("sent", "tokens sent", "", whole),
    Column("cached", "cached", "of the tokens sent, those that the cache gave", percent),
    Column("output", "output", "tokens that the model wrote", whole),
    Column("dollars", "USD", "at the prices of this day, where they are known", money),
    Column("losses", "caches lost", "calls that read less than half of what the call before had sent", whole),
    Column("paid_again", "paid again", "tokens that those calls had to pay again", whole),
)


def text(account: ReplayAccount, *, recorded: bool = True) -> str:
    """The account for a terminal; without what was `recorded`, only what each policy would cost."""
    found = [*(_paid_text(account) if recorded else ()), *_policies_text(account), *_damaged_text(account)]
    return "\n".join(found).rstrip("\n")


def _paid_text(account: ReplayAccount) -> list[str]:
    rows = paid(account.reported)
    if not rows:
        return ["the records hold no usage: what these sessions took is not known", ""]
    lines = ["what these sessions took, as their records say", *aligned(PAID_COLUMNS, rows), ""]
    found = reasons(losses(account.reported))
    if found:
        lines += ["where caches were lost"]
        lines += [
            f"{times:>6,} times {tokens:>12,} tokens  {plain(why)}" for why, times, tokens in found[:SHOWN]
        ]
        lines += [*_more(len(found) - SHOWN, "reasons"), ""]
    return lines


def _policies_text(account: ReplayAccount) -> list[str]:
    lines: list[str] = []
    for (rules, window), rows in settings(totals(account.outcomes)).items():
        count = f"{rows[0].sessions:,} {'session' if rows[0].sessions == 1 else 'sessions'}"
        calls = f"{rows[0].calls:,} calls"
        lines += [
            f"window {window:,}, cache rules {rules}: {count}, {calls}",
            *aligned(shown(rows), rows),
            "",
        ]
    return lines


def shown(rows: Sequence[Total]) -> list[Column]:
    """The columns that say anything: no dollars without prices, no recall where nothing was needed."""
    always = {"policy", "equivalents", "over", "invalid", "broken"}
    return [
        column
        for column in POLICY_COLUMNS
        if column.name in always or any(getattr(row, column.name) not in (None, 0) for row in rows)
    ]


def _damaged_text(account: ReplayAccount) -> list[str]:
    if not account.damaged:
        return []
    lines = [f"{len(account.damaged):,} damaged, and skipped"]
    lines += [f"  {plain(each.place)}: {plain(each.reason)}" for each in account.damaged[:SHOWN]]
    return [*lines, *_more(len(account.damaged) - SHOWN, "places"), ""]


def _more(count: int, what: str) -> list[str]:
    return [f"  and {count:,} more {what}; the JSON file has all"] if count > 0 else []


def aligned(columns: Sequence[Column], rows: Sequence[Any]) -> list[str]:
    """Rows in columns: the first to the left, figures to the right."""
    cells = [[column.head for column in columns]]
    cells += [[plain(column.write(getattr(row, column.name))) for column in columns] for row in rows]
    widths = [max(len(row[at]) for row in cells) for at in range(len(columns))]
    return [
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width) for at, (cell, width) in enumerate(pairs)
        )
        for pairs in (list(zip(row, widths, strict=True)) for row in cells)
    ]


def plain(text: str) -> str:
    """On one line, without what would move a terminal's cursor: names come from files."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)
