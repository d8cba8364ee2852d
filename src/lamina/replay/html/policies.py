"""The policies beside each other: cost against recall, the table of all figures, why prefixes broke."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lamina.replay.account_table import Total, frontier, settings, shown, whole
from lamina.replay.html.markup import Safe, tag
from lamina.replay.html.plots import PlotPoint, classes, scatter
from lamina.replay.html.tables import cell, folded, framed, head, table
from lamina.replay.values import ReplayAccount

OWN = "lamina"
"""The policy that the page shows in the strongest colour."""


def colours(names: Sequence[str]) -> dict[str, str]:
    return classes(list(dict.fromkeys(names)), {OWN: "own"})


def policies(account: ReplayAccount, sums: Sequence[Total]) -> list[Safe]:
    """One section for each cache and window."""
    styles = colours([each.policy for each in sums])
    return [_setting(account, rows, styles) for rows in settings(sums).values()]


def _setting(account: ReplayAccount, rows: Sequence[Total], styles: dict[str, str]) -> Safe:
    window, rules = rows[0].window, rows[0].rules
    columns = shown(rows)
    said = tag(
        "ul",
        *(
            tag("li", tag("b", column.head), f": {column.meaning}")
            for column in columns[1:]
            if column.meaning
        ),
    )
    return tag(
        "section",
        tag("h2", f"Window {window:,}, cache rules {rules}"),
        table(columns, rows, about="totals", key="policy", caption="All sessions, by policy", own=OWN),
        folded("What the columns mean", said),
        *_against(rows, styles),
        *_broken(account, rules, window),
        data_rules=rules,
        data_window=window,
    )


def _against(rows: Sequence[Total], styles: dict[str, str]) -> list[Safe]:
    marks = [
        PlotPoint(
            each.policy, styles[each.policy], each.equivalents, each.recall, not each.refused, _reach(each)
        )
        for each in rows
        if each.recall is not None
    ]
    if not marks:
        return []
    best = [(each.equivalents, each.recall or 0.0) for each in frontier(rows)]
    title = f"Cost against recall, window {rows[0].window:,}, cache rules {rows[0].rules}"
    said = (
        "Upper left is better. The dotted line joins policies that no other beats in both. Hollow points "
        "are policies with requests that the provider would refuse. A thin line leads to where one stands "
        "once everything that can be recalled is recalled, and paid for. The table above has the figures."
    )
    drawn = scatter(title, marks, best, label="cost, in input tokens at full price")
    return [
        tag("h3", "Cost against recall"),
        tag("figure", drawn, tag("figcaption", said), data_plot="frontier"),
    ]


def _reach(total: Total) -> tuple[float, float] | None:
    further = total.within_reach is not None and total.recallable > total.visible
    return (total.equivalents + total.recall_equivalents, total.within_reach or 0.0) if further else None


def _broken(account: ReplayAccount, rules: str, window: int) -> list[Safe]:
    """Why requests did not continue the ones before them, where the calls were kept."""
    found: Counter[tuple[str, str]] = Counter()
    for each in account.outcomes:
        if (each.rules, each.window) == (rules, window):
            found.update((each.policy, point.broken) for point in each.points if point.broken)
    if not found:
        return []
    rows = [
        tag("tr", cell("policy", policy), cell("why", why), cell("times", times, whole))
        for (policy, why), times in sorted(found.items(), key=lambda item: (-item[1], item[0]))
    ]
    heads = [head("policy", figure=False), head("why", figure=False), head("times")]
    return [folded("Why prefixes broke", framed(heads, rows, about="broken", caption="By policy and reason"))]
