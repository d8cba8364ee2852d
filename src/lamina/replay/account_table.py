"""Writes an account as text and as JSON: first the answer, then a table of policies, then the rest.

`headline` and `account_sums` compute the figures, `account_columns` writes them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from lamina.core.text.characters import make_printable
from lamina.dialects.usage import count_noun
from lamina.replay.account_columns import (
    GROUP_COLUMNS,
    POLICY_COLUMNS,
    SAVED,
    Column,
    align_columns,
    format_date,
    format_money,
    useful_columns,
)
from lamina.replay.account_sums import (
    AS_IT_WAS,
    OWN_RULES,
    OWN_WINDOW,
    CutSum,
    LossReason,
    ReplaySetting,
    Total,
    group_by_setting,
    list_losses,
    sum_losses,
    sum_outcomes,
    sum_recorded,
)
from lamina.replay.headline import (
    UNTOUCHED,
    Headline,
    SessionCost,
    compare_sessions,
    group_sessions,
    summarise,
)
from lamina.replay.savings import Saving, compare_settings, saving_lines
from lamina.replay.traces.own_answers import WITHOUT_TIMES
from lamina.replay.values import ReplayAccount, Reported, UnreadableLine

WIDTH = 80
"""Columns of the sentences in a terminal. Tables are as wide as their figures."""

MOST_GAP = 0.2
"""How far a simulation of sending everything may be off from the records, to stand under them in a table."""

SHOWN_WORDS = 60
"""Characters of the first words of a session."""

MOST_GROUPS = 40
"""Rows of a table of groups in a terminal."""

MOST_LISTED = 8
"""Dearer sessions and damaged lines that the terminal shows; the JSON file has all."""


def account_json(account: ReplayAccount, *, by: Sequence[str] = ()) -> dict[str, Any]:
    """Everything as plain JSON: the figures that are shown, and what they are sums of.

    The terminal shows the same figures, under the same names. `by` names groups of sessions.
    """
    recorded = [_total_as_json(total) for total in sum_recorded(account.reported)]
    return {
        "as_of": account.as_of,
        "headline": msgspec.to_builtins(summarise(account)),
        "saving": msgspec.to_builtins(_find_saving(account)),
        "totals": [_total_as_json(total) for total in sum_outcomes(account.outcomes)],
        "recorded": next(iter(recorded), None),
        "losses": [msgspec.to_builtins(loss) for loss in sum_losses(list_losses(account.reported))],
        "sessions": msgspec.to_builtins(compare_sessions(account)),
        "reported": msgspec.to_builtins(account.reported),
        "outcomes": msgspec.to_builtins(account.outcomes),
        "groups": {name: msgspec.to_builtins(group_sessions(account, name)) for name in ("model", *by)},
        "damaged": msgspec.to_builtins(account.damaged),
        "foreign": msgspec.to_builtins(account.foreign),
    }


def _total_as_json(total: Total) -> dict[str, Any]:
    """A sum with every figure that a table shows, under the name it has there."""
    figures = {column.name: getattr(total, column.name) for column in POLICY_COLUMNS}
    return {**msgspec.to_builtins(total), **figures}


def account_text(account: ReplayAccount, *, by: Sequence[str] = ()) -> str:
    """The account for a terminal.

    First the answer, then what `lamina run` would have saved, or a table of policies, then dearer sessions,
    models, the groups that `by` names, and what was skipped.
    """
    lines: list[str] = []
    for line in headline_lines(summarise(account), as_of=account.as_of):
        lines += wrap_line(line)
    lines.append("")
    saving = _find_saving(account)
    if saving is not None:
        lines += saving_lines(saving)
    lines += _policy_lines(account)
    lines += _dearer_lines(compare_sessions(account))
    for name in dict.fromkeys(["model", *by]):
        lines += _group_lines(account, name)
    lines += _damaged_lines(account.damaged)
    lines += _foreign_lines(account.foreign)
    return "\n".join(lines).rstrip("\n")


def _find_saving(account: ReplayAccount) -> Saving | None:
    """What `lamina run` would have saved. Where policies were replayed, their table says what was asked."""
    if account.outcomes:
        return None
    return compare_settings(account.reported)


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
    first = "untouched"
    source = "by simulation: their records hold no usage"
    if headline.is_recorded:
        first = "they cost"
        source = "as their records say"
    of_how_many = ""
    if headline.compared < headline.sessions:
        of_how_many = f"; {headline.compared:,} of the {headline.sessions:,} sessions have prices"
    prices = ""
    if as_of:
        prices = f", prices of {as_of}"
    lines.append(f"{first:<22}${format_money(headline.before):>10}  {source}{prices}{of_how_many}")
    if headline.own is not None:
        lines.append(
            f"{'under lamina':<22}${format_money(headline.own):>10}  {describe_difference(headline)}"
        )
    if headline.under_lamina:
        count = count_noun(headline.under_lamina, "session")
        lines.append(f"{count} ran under lamina already: what was recorded is the cost under lamina")
    if headline.refused:
        count = count_noun(headline.refused, "session")
        lines.append(f"not compared: {count} with calls that would be refused, and so cost nothing")
    if headline.shortened:
        count = count_noun(headline.shortened, "session")
        lines.append(
            f"not compared: of {count} far less was sent than the log holds, and the log has no compaction. "
            "If lamina ran between the client and the API, its record has the cuts: give --store"
        )
    lines += _lost_lines(headline)
    if headline.cut_sum is not None:
        lines.append(describe_cuts(headline.cut_sum))
    return lines


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
    if not headline.own_cuts:
        # sums of prices in two orders differ in their last digit
        if abs(difference) < 1e-9:
            return f"{words}; no window was full; lamina run cuts earlier, see lamina replay without options"
        return f"{words}; the clients compacted, where lamina had no need to cut"
    if headline.dearer:
        return f"{words}; dearer in {count_noun(headline.dearer, 'session')}"
    return words


def _lost_lines(headline: Headline) -> list[str]:
    """What was lost to cache misses, for which reasons, and what to do about each."""
    if not headline.lost_calls:
        return [f"{'lost to cache misses':<22}$         0  no call read less than 3/4 of what it could"]
    dollars = f"${format_money(headline.lost):>10}"
    lines = [f"{'lost to cache misses':<22}{dollars}  in {count_noun(headline.lost_calls, 'call')}, mostly:"]
    for reason in headline.reasons:
        lines += [f"  {describe_reason(reason)}", f"      {reason.advice}"]
    return lines


def describe_cuts(cuts: CutSum) -> str:
    """What lamina's own cuts cost, and what they saved beside that."""
    words = f"{count_noun(cuts.cuts, 'cut')} of lamina: what was left was written anew"
    if cuts.cost is None:
        return words
    words += f", ${format_money(cuts.cost)} above reading it"
    if cuts.saved is None:
        return words
    return f"{words}; what they left out would have been read for about ${format_money(cuts.saved)}"


def describe_reason(reason: LossReason) -> str:
    """Such as "$1.20, 3 times: the model changed".

    If there is no price, tokens stand in place of dollars.
    """
    cost = f"{reason.tokens:,} tokens" if reason.dollars is None else f"${format_money(reason.dollars)}"
    return f"{cost}, {count_noun(reason.times, 'time')}: {make_printable(reason.why)}"


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


def _policy_lines(account: ReplayAccount) -> list[str]:
    """One table for each setting, and under the last what its columns mean.

    What was recorded is the first row of a table, unless the simulation is far off from it: two scales do not
    stand under each other. A column that says nothing is left out.
    """
    lines: list[str] = []
    recorded_rows = sum_recorded(account.reported)
    columns: list[Column] = []
    gaps: list[str] = []
    for setting, totals in group_by_setting(sum_outcomes(account.outcomes)).items():
        gap = describe_gap(recorded_rows, totals, account.reported)
        gaps.append(gap)
        rows = list(totals)
        if not gap:
            rows = [*recorded_rows, *totals]
        columns = useful_columns(rows)
        counts = f"{count_noun(totals[0].sessions, 'session')}, {count_noun(totals[0].calls, 'call')}"
        lines.append(f"{describe_setting(setting)}: {counts}")
        lines += align_columns(columns, rows)
        if gap:
            lines += wrap_line(gap)
        lines.append("")
    if not columns:
        return []
    if recorded_rows and not all(gaps):
        lines.append(f"{AS_IT_WAS}: what the records say; all other rows are simulated")
    for column in columns[1:]:
        lines += wrap_line(f"{column.head}: {column.meaning}")
    return [*lines, ""]


def describe_gap(recorded: Sequence[Total], totals: Sequence[Total], reported: Sequence[Reported]) -> str:
    """How far the simulation of sending everything is off from the records, and why; "" if it is near."""
    untouched = [total for total in totals if total.policy == UNTOUCHED]
    if not recorded or not untouched or recorded[0].priced != untouched[0].priced:
        return ""
    paid = recorded[0].price
    simulated = untouched[0].price
    if not paid or simulated is None or abs(simulated / paid - 1) <= MOST_GAP:
        return ""
    reason = _explain_gap(untouched[0], reported)
    return (
        f"{AS_IT_WAS}: ${format_money(paid)}, which is not to be compared with these rows. The simulation "
        f"of sending everything says {simulated / paid:.2f} times that: {reason}. Compare the rows with each "
        "other"
    )


def _explain_gap(untouched: Total, reported: Sequence[Reported]) -> str:
    """Why the simulation is far off from the records: the first reason that is known."""
    reported_calls = sum(report.calls for report in reported)
    if reported_calls < untouched.calls:
        return f"only {reported_calls:,} of {untouched.calls:,} calls have a reported usage"
    if untouched.refused:
        return f"{count_noun(untouched.refused, 'call')} of it would be refused, and cost nothing"
    if any(report.under_lamina for report in reported):
        return "the records are of requests that lamina had cut"
    if any(report.compactions for report in reported):
        return "the clients compacted what they sent"
    recorded_tokens = sum(report.sent for report in reported)
    if recorded_tokens < untouched.sent * (1 - MOST_GAP):
        return f"{recorded_tokens:,} tokens were sent, and the logs hold {untouched.sent:,}"
    return "the real cache did not do what its rules say, or calls came from other places"


def _dearer_lines(sessions: Iterable[SessionCost]) -> list[str]:
    """The sessions that cost more under lamina, each with the reason.

    At most a few are named. A last line then says how many more there are.
    """
    dearer = [session for session in sessions if session.dearer]
    if not dearer:
        return []
    lines = ["dearer under lamina"]
    for session in dearer[:MOST_LISTED]:
        lines += [f"  {make_printable(describe_session(session))}", f"      {session.dearer}"]
    return [*lines, *_lines_about_more(len(dearer) - MOST_LISTED, "sessions"), ""]


def describe_session(session: SessionCost) -> str:
    """A session as a reader knows it: its date, its project, its first words, and its calls.

    "2026-01-02 lamina Read the spec (12 calls)", for example. What is not known is left out.
    """
    words = [format_date(session.began), session.project, session.title[:SHOWN_WORDS] or session.trace]
    named = "  ".join(word for word in words if word not in ("", "-"))
    return f"{named} ({count_noun(session.calls, 'call')})"


def _group_lines(account: ReplayAccount, by: str) -> list[str]:
    """A table by user, say: what was recorded, and what lamina would have saved. The dearest are listed."""
    groups = group_sessions(account, by)
    if by == "model" and len(groups) < 2:
        return []
    listed_groups = groups[:MOST_GROUPS]
    if by in ("day", "month"):
        listed_groups = groups[-MOST_GROUPS:]
    columns = list(GROUP_COLUMNS)
    if not account.outcomes:  # only a replay says what lamina saves of a group
        columns.remove(SAVED)
    return [
        f"by {by}, as the records say",
        *align_columns(columns, listed_groups),
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
    lines += [make_printable(f"  {damage.place}: {damage.reason}") for damage in damaged[:MOST_LISTED]]
    return [*lines, *_lines_about_more(len(damaged) - MOST_LISTED, "places"), ""]


def _lines_about_more(count: int, noun: str) -> list[str]:
    """One line that says how many are not shown; no line if all are."""
    if count <= 0:
        return []
    return [f"  and {count:,} more {noun}; the JSON file has all"]
