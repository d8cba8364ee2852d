"""An account as text for a terminal, and as JSON: first the answer, then one table, then what is left to say.

`headline` and `account_sums` have the figures.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from lamina.dialects.usage import count_noun
from lamina.replay.account_sums import (
    AS_IT_WAS,
    OWN_RULES,
    OWN_WINDOW,
    PaidTotal,
    ReplaySetting,
    Total,
    group_by_setting,
    list_losses,
    sum_losses,
    sum_outcomes,
    sum_paid,
    sum_recorded,
)
from lamina.replay.groups import GroupCost, group_sessions
from lamina.replay.headline import (
    Headline,
    LossReason,
    SessionCost,
    SimulatedPair,
    compare_sessions,
    summarise,
)
from lamina.replay.traces.own_answers import WITHOUT_TIMES
from lamina.replay.values import ReplayAccount, UnreadableLine

WIDTH = 80
"""Columns of the sentences in a terminal. Tables are as wide as their figures."""

MOST_GROUPS = 40
"""Rows of a table of groups in a terminal."""

MOST_LISTED = 8
"""Dearer sessions and damaged lines that the terminal shows; the JSON file has all."""


class Column(NamedTuple):
    """One figure of a row: its name there and in the JSON file, its head, meaning, and how it is written."""

    name: str
    head: str
    meaning: str
    write: Callable[[Any], str]


def format_whole(number: float | None) -> str:
    """`1234.5` is "1,234"; "-" if it is not known."""
    return _format(number, "{:,.0f}")


def format_percent(share: float | None) -> str:
    """`0.251` is "25.1 %"."""
    return _format(share, "{:.1f} %", scale=100)


def format_milliseconds(seconds: float | None) -> str:
    """Seconds as milliseconds: `0.0021` is "2.1"."""
    return _format(seconds, "{:.1f}", scale=1000)


def format_money(dollars: float | None) -> str:
    """Two digits after the point; four for less than a dollar."""
    pattern = "{:.4f}"
    if abs(dollars or 0) >= 1:
        pattern = "{:,.2f}"
    return _format(dollars, pattern)


def format_date(moment: float | None) -> str:
    """The day, in UTC."""
    if moment is None:
        return "-"
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d}"


def _format(number: float | None, pattern: str, *, scale: int = 1) -> str:
    """A number in this pattern, times the scale; "-" if it is not known."""
    if number is None:
        return "-"
    return pattern.format(scale * number)


def format_model(name: str) -> str:
    """A model's name, or that the records do not name it."""
    return name or "(not named)"


POLICY_COLUMNS = (
    Column("policy", "policy", "how the requests were made to fit", str),
    Column("price", "USD", "input, output and recalls, for sessions whose model has prices", format_money),
    Column(
        "price_of_recalls", "of it recalls", "what it takes to recall all that answers needed", format_money
    ),
    Column(
        "equivalents",
        "input",
        "input in tokens at full price, without recalls: a cached token counts for less",
        format_whole,
    ),
    Column("cached", "cached", "of the tokens sent, those that the cache gave", format_percent),
    Column(
        "recall",
        "in request",
        "of the names and numbers that answers took from before, those that the request had",
        format_percent,
    ),
    Column("within_reach", "in reach", "the same, with what could be recalled", format_percent),
    Column("recall_equivalents", "for recalls", "what those recalls would add to the input", format_whole),
    Column("cuts", "cuts", "times that something was left out; in the records, compactions", format_whole),
    Column("broken", "broken", "requests that did not continue the one before byte for byte", format_whole),
    Column(
        "refused", "refused", "calls without an answer: over the window, invalid, or given up", format_whole
    ),
    Column("over", "over", "requests over the window", format_whole),
    Column("invalid", "invalid", "requests that the provider would refuse", format_whole),
    Column("failed", "failed", "calls that the policy gave up", format_whole),
    Column("pace", "ms a call", "time that the policy took for each call", format_milliseconds),
)

_IN_TERMINAL = frozenset(
    "policy price price_of_recalls equivalents cached recall within_reach cuts refused".split()
)
_ALWAYS_SHOWN = frozenset(("policy", "equivalents", "refused"))

PAID_COLUMNS = (
    Column("model", "model", "as the records name it", format_model),
    Column("sessions", "sessions", "", format_whole),
    Column("calls", "calls", "", format_whole),
    Column("sent", "tokens sent", "", format_whole),
    Column("cached", "cached", "of the tokens sent, those that the cache gave", format_percent),
    Column("output", "output", "tokens that the model wrote", format_whole),
    Column("dollars", "USD", "at list prices, where they are known", format_money),
    Column(
        "losses", "misses", "calls that read less than half of what the call before had sent", format_whole
    ),
    Column("paid_again", "paid again", "tokens that those calls had to pay again", format_whole),
)


GROUP_COLUMNS = (
    Column("name", "", "", str),
    *(column for column in PAID_COLUMNS if column.name in ("sessions", "calls", "sent", "cached", "output")),
    Column("dollars", "USD", "at list prices, where they are known", format_money),
    *(column for column in PAID_COLUMNS if column.name == "losses"),
    Column("lost_dollars", "USD of misses", "what those calls cost beyond reading the cache", format_money),
    Column("saved", "lamina saves", "of the cost, where it can be compared", format_percent),
)


def account_json(account: ReplayAccount, *, by: Sequence[str] = ()) -> dict[str, Any]:
    """Everything as plain JSON: the figures that are shown, and what they are sums of.

    The terminal and the page show the same figures, under the same names. `by` names groups of sessions.
    """
    recorded = [_row_as_json(POLICY_COLUMNS, total) for total in sum_recorded(account.reported)]
    return {
        "as_of": account.as_of,
        "headline": msgspec.to_builtins(summarise(account)),
        "totals": [_row_as_json(POLICY_COLUMNS, total) for total in sum_outcomes(account.outcomes)],
        "recorded": next(iter(recorded), None),
        "paid": [_row_as_json(PAID_COLUMNS, total) for total in sum_paid(account.reported)],
        "losses": [loss._asdict() for loss in sum_losses(list_losses(account.reported))],
        "sessions": msgspec.to_builtins(compare_sessions(account)),
        "reported": msgspec.to_builtins(account.reported),
        "outcomes": msgspec.to_builtins(account.outcomes),
        "groups": {
            name: [_row_as_json(GROUP_COLUMNS, group) for group in group_sessions(account, name)]
            for name in by
        },
        "damaged": msgspec.to_builtins(account.damaged),
        "foreign": msgspec.to_builtins(account.foreign),
    }


def _row_as_json(columns: Iterable[Column], row: Total | PaidTotal | GroupCost) -> dict[str, Any]:
    """A sum with every figure that a table shows, under the name it has there."""
    figures = {column.name: getattr(row, column.name) for column in columns}
    return {**msgspec.to_builtins(row), **figures}


def account_text(account: ReplayAccount, *, recorded: bool = True, by: Sequence[str] = ()) -> str:
    """The account for a terminal; without what was `recorded`, only what each policy would cost.

    First the answer, then a table of policies, then dearer sessions, models, the groups that `by` names, and
    what was skipped.
    """
    lines: list[str] = []
    if recorded:
        for line in headline_lines(summarise(account), as_of=account.as_of):
            lines += wrap_line(line)
        lines.append("")
    lines += _policy_lines(account, recorded=recorded)
    if recorded:
        lines += _dearer_lines(compare_sessions(account))
        if "model" not in by:
            lines += _model_lines(account)
        for name in by:
            lines += _group_lines(account, name)
    lines += _damaged_lines(account.damaged)
    lines += _foreign_lines(account.foreign)
    return "\n".join(lines).rstrip("\n")


def wrap_line(line: str) -> list[str]:
    """A line in `WIDTH` columns. What does not fit goes on below, indented."""
    indent = max(len(line) - len(line.lstrip()), 6)
    return textwrap.wrap(
        line, WIDTH, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )


def headline_lines(headline: Headline, *, as_of: str) -> list[str]:
    """The answer: what was paid, what it would have been, and what was lost to cache misses.

    The first line counts sessions and calls. Each line after it has an amount, and what that is based on.
    """
    lines = [describe_sessions(headline)]
    if not headline.compared:
        return [*lines, "what they cost is not known: no model of them has a price"]
    first, source = "untouched", "by simulation: their records hold no usage"
    if headline.is_recorded:
        first, source = "they cost", "as their records say"
    of_how_many = ""
    if headline.compared < headline.sessions:
        of_how_many = f"; {headline.compared:,} of the {headline.sessions:,} sessions have prices"
    prices = f", prices of {as_of}" if as_of else ""
    lines.append(f"{first:<22}${format_money(headline.before):>10}  {source}{prices}{of_how_many}")
    if headline.own is not None:
        lines.append(
            f"{'under lamina':<22}${format_money(headline.own):>10}  {describe_difference(headline)}"
        )
    if headline.under_lamina:
        count = count_noun(headline.under_lamina, "session")
        lines.append(f"{count} ran under lamina already: what was recorded is the cost under lamina")
    lines += _pair_lines(headline)
    lines += _lost_lines(headline)
    return lines


def _pair_lines(headline: Headline) -> list[str]:
    """What is simulated of sessions with refused calls, and how far the simulation is off."""
    pair = headline.pair
    if pair is None:
        return []
    lines = [f"not compared          {describe_pair(pair)}"]
    if headline.simulated_share is not None:
        lines.append(f"      {describe_simulation(headline.simulated_share)}")
    return lines


def describe_pair(pair: SimulatedPair) -> str:
    """Both sides of sessions that cannot be compared, since a call that is refused costs nothing."""
    recorded = ""
    if pair.recorded is not None:
        recorded = f", ${format_money(pair.recorded)} as recorded"
    return (
        f"{count_noun(pair.sessions, 'session')} with calls that would be refused{recorded}; simulated: "
        f"${format_money(pair.untouched)} untouched with {pair.untouched_refused:,} refused, "
        f"${format_money(pair.own)} under lamina with {pair.own_refused:,} refused"
    )


def describe_simulation(share: float) -> str:
    """How far off the simulation is where it can be compared with records."""
    return f"the simulation says {share:.2f} times what was recorded, in the median session"


def describe_sessions(headline: Headline) -> str:
    """Such as "12 sessions, 340 calls, 2026-01-02 to 2026-02-03"; the days only if the records have times."""
    words = f"{count_noun(headline.sessions, 'session')}, {count_noun(headline.calls, 'call')}"
    if headline.began is None:
        return words
    days = dict.fromkeys([format_date(headline.began), format_date(headline.ended)])
    return f"{words}, {' to '.join(days)}"


def describe_difference(headline: Headline) -> str:
    """How lamina compares, in a sentence. Without a cut the difference is not lamina's.

    "recalls included: -20.0 %; dearer in 3 sessions", for example.
    """
    before = headline.comparable_before
    difference = ((headline.own or 0.0) - before) / (before or 1.0)
    words = f"recalls included: {100 * difference:+.1f} %"
    if headline.comparable < headline.compared:
        words += f" of the ${format_money(before)} of {count_noun(headline.comparable, 'session')}"
    if not headline.own_cuts and abs(difference) < 1e-9:
        return f"{words}; no window was full, so lamina would have changed nothing"
    if not headline.own_cuts:
        return f"{words}; the clients compacted, where lamina had no need to cut"
    if headline.dearer:
        return f"{words}; dearer in {count_noun(headline.dearer, 'session')}"
    return words


def _lost_lines(headline: Headline) -> list[str]:
    """What was lost to cache misses, for which reasons, and what to do about each."""
    if not headline.lost_calls:
        return [f"{'lost to cache misses':<22}$         0  no call read less than half of what it could"]
    dollars = f"${format_money(headline.lost):>10}"
    lines = [f"{'lost to cache misses':<22}{dollars}  in {count_noun(headline.lost_calls, 'call')}, mostly:"]
    for reason in headline.reasons:
        lines += [f"  {describe_reason(reason)}", f"      {reason.advice}"]
    return lines


def describe_reason(reason: LossReason) -> str:
    """Such as "$1.20, 3 times: the model changed".

    If there is no price, tokens stand in place of dollars.
    """
    cost = f"{reason.tokens:,} tokens" if reason.dollars is None else f"${format_money(reason.dollars)}"
    return f"{cost}, {count_noun(reason.times, 'time')}: {printable(reason.why)}"


def describe_setting(setting: ReplaySetting) -> str:
    """Such as "window 200,000, cache rules anthropic".

    Window and rules may be each session's own.
    """
    window = f"window {setting.window:,}"
    if setting.window == OWN_WINDOW:
        window = "the window of each session's model"
    rules = f"cache rules {setting.rules}"
    if setting.rules == OWN_RULES:
        rules = "the cache rules of its provider"
    return f"{window}, {rules}"


def _policy_lines(account: ReplayAccount, *, recorded: bool) -> list[str]:
    """One table for each setting, and under the last what its columns mean.

    What was recorded is the first row of each table. A column that says nothing is left out.
    """
    lines: list[str] = []
    recorded_rows = sum_recorded(account.reported) if recorded else []
    columns: list[Column] = []
    for setting, totals in group_by_setting(sum_outcomes(account.outcomes)).items():
        rows = [*recorded_rows, *totals]
        columns = [column for column in useful_columns(rows) if column.name in _IN_TERMINAL]
        counts = f"{count_noun(totals[0].sessions, 'session')}, {count_noun(totals[0].calls, 'call')}"
        lines.append(f"{describe_setting(setting)}: {counts}")
        lines += [*align_columns(columns, rows), ""]
    if not columns:
        return []
    if recorded_rows:
        lines.append(f"{AS_IT_WAS}: what the records say; all other rows are simulated")
    for column in columns[1:]:
        lines += wrap_line(f"{column.head}: {column.meaning}")
    return [*lines, ""]


def useful_columns(rows: Sequence[Total]) -> list[Column]:
    """The columns that say anything: no dollars without prices, no recall where nothing was needed.

    A figure that is 0 or unknown in every row has no column, unless it is one that readers look for.
    """
    columns = []
    for column in POLICY_COLUMNS:
        has_figures = any(getattr(row, column.name) not in (None, 0) for row in rows)
        if has_figures or column.name in _ALWAYS_SHOWN:
            columns.append(column)
    return columns


def _dearer_lines(sessions: Iterable[SessionCost]) -> list[str]:
    """The sessions that cost more under lamina, each with the reason.

    At most a few are named. A last line then says how many more there are.
    """
    dearer = [session for session in sessions if session.dearer]
    if not dearer:
        return []
    lines = ["dearer under lamina"]
    for session in dearer[:MOST_LISTED]:
        lines += [f"  {printable(describe_session(session))}", f"      {session.dearer}"]
    return [*lines, *_lines_about_more(len(dearer) - MOST_LISTED, "sessions"), ""]


def describe_session(session: SessionCost) -> str:
    """A session as a reader knows it: its date, its project, its first words, and its calls.

    "2026-01-02 lamina Read the spec (12 calls)", for example. What is not known is left out.
    """
    words = [format_date(session.began), session.project, session.title or session.trace]
    named = "  ".join(word for word in words if word not in ("", "-"))
    return f"{named} ({count_noun(session.calls, 'call')})"


def _model_lines(account: ReplayAccount) -> list[str]:
    """What the records say by model, if there are several."""
    rows = sum_paid(account.reported)
    if len(rows) < 2:
        return []
    return ["by model, as the records say", *align_columns(PAID_COLUMNS, rows), ""]


def _group_lines(account: ReplayAccount, by: str) -> list[str]:
    """What the records say by user, say, and what lamina would have saved. Only the dearest are listed."""
    groups = group_sessions(account, by)
    listed_groups = groups[:MOST_GROUPS]
    if by in ("day", "month"):
        listed_groups = groups[-MOST_GROUPS:]
    return [
        f"by {by}, as the records say",
        *align_columns(GROUP_COLUMNS, listed_groups),
        *_lines_about_more(len(groups) - len(listed_groups), f"{by}s"),
        "",
    ]


def _foreign_lines(foreign: Sequence[UnreadableLine]) -> list[str]:
    """What was passed over though it is in order."""
    untimed = sum(line.reason == WITHOUT_TIMES for line in foreign)
    lines = []
    if len(foreign) > untimed:
        count = count_noun(len(foreign) - untimed, "file")
        lines.append(f"passed over, since they hold no session: {count}")
    if untimed:
        lines.append(f"left out, since they have no times: {count_noun(untimed, 'session')}")
    return lines


def _damaged_lines(damaged: Sequence[UnreadableLine]) -> list[str]:
    """What could not be read, each with its place and the reason.

    At most a few are named. A last line then says how many more there are.
    """
    if not damaged:
        return []
    lines = [f"{len(damaged):,} damaged, and skipped"]
    lines += [f"  {printable(damage.place)}: {printable(damage.reason)}" for damage in damaged[:MOST_LISTED]]
    return [*lines, *_lines_about_more(len(damaged) - MOST_LISTED, "places"), ""]


def _lines_about_more(count: int, noun: str) -> list[str]:
    """One line that says how many are not shown; no line if all are."""
    if count <= 0:
        return []
    return [f"  and {count:,} more {noun}; the JSON file has all"]


def align_columns(columns: Sequence[Column], rows: Sequence[Any]) -> list[str]:
    """Rows in columns: the first to the left, figures to the right.

    Widths are those of the longest cell, the head included.
    """
    table = [[column.head for column in columns]]
    for row in rows:
        cells = [printable(column.write(getattr(row, column.name))) for column in columns]
        table.append(cells)
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    lines = []
    for cells in table:
        figures = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        lines.append("  ".join([cells[0].ljust(widths[0]), *figures]))
    return lines


def printable(text: str) -> str:
    """On one line, without what would move a terminal's cursor: names come from files.

    A line end, an escape and a tab become question marks.
    """
    return "".join(sign if sign.isprintable() else "?" for sign in text)
