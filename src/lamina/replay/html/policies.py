"""The policies beside each other: cost against recall, the table of all figures, why prefixes broke."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lamina.replay.account_sums import Total, find_frontier, group_by_setting
from lamina.replay.account_table import Column, format_whole, useful_columns
from lamina.replay.html.markup import Safe, tag
from lamina.replay.html.plots import PlotPoint, draw_scatter, style_classes
from lamina.replay.html.tables import column_head, details, figure_cell, table, table_frame
from lamina.replay.values import ReplayAccount

OWN = "lamina"
"""The policy that the page shows in the strongest colour."""


def policy_styles(names: Sequence[str]) -> dict[str, str]:
    return style_classes(list(dict.fromkeys(names)), {OWN: "own"})


def policy_sections(account: ReplayAccount, totals: Sequence[Total]) -> list[Safe]:
    """One section for each cache and window."""
    styles = policy_styles([total.policy for total in totals])
    return [_section(account, rows, styles) for rows in group_by_setting(totals).values()]


def _section(account: ReplayAccount, rows: Sequence[Total], styles: dict[str, str]) -> Safe:
    window = rows[0].window
    rules = rows[0].rules
    columns = useful_columns(rows)
    return tag(
        "section",
        tag("h2", f"Window {window:,}, cache rules {rules}"),
        table(columns, rows, about="totals", key="policy", caption="All sessions, by policy", own=OWN),
        details("What the columns mean", _meanings(columns)),
        *_frontier_figure(rows, styles),
        *_broken_table(account, rules, window),
        data_rules=rules,
        data_window=window,
    )


def _meanings(columns: Sequence[Column]) -> Safe:
    explained = [column for column in columns[1:] if column.meaning]
    return tag("ul", *(tag("li", tag("b", column.head), f": {column.meaning}") for column in explained))


def _frontier_figure(rows: Sequence[Total], styles: dict[str, str]) -> list[Safe]:
    points = []
    for total in rows:
        if total.recall is not None:
            point = PlotPoint(
                name=total.policy,
                style=styles[total.policy],
                across=total.equivalents,
                up=total.recall,
                able=not total.refused,
                reach=_reach(total),
            )
            points.append(point)
    if not points:
        return []
    frontier = [(total.equivalents, total.recall or 0.0) for total in find_frontier(rows)]
    title = f"Cost against recall, window {rows[0].window:,}, cache rules {rows[0].rules}"
    caption = (
        "Upper left is better. The dotted line joins policies that no other beats in both. Hollow points "
        "are policies with requests that the provider would refuse. A thin line leads to where one stands "
        "once everything that can be recalled is recalled, and paid for. The table above has the figures."
    )
    drawing = draw_scatter(title, points, frontier, label="cost, in input tokens at full price")
    return [
        tag("h3", "Cost against recall"),
        tag("figure", drawing, tag("figcaption", caption), data_plot="frontier"),
    ]


def _reach(total: Total) -> tuple[float, float] | None:
    """Cost and recall once everything that can be recalled is; None where that is nothing."""
    if total.within_reach is None or total.recallable <= total.visible:
        return None
    return total.equivalents + total.recall_equivalents, total.within_reach


def _broken_table(account: ReplayAccount, rules: str, window: int) -> list[Safe]:
    """Why requests did not continue the ones before them, if the outcomes have points."""
    times_by_reason: Counter[tuple[str, str]] = Counter()
    for outcome in account.outcomes:
        if (outcome.rules, outcome.window) == (rules, window):
            times_by_reason.update((outcome.policy, point.broken) for point in outcome.points if point.broken)
    if not times_by_reason:
        return []
    rows = [
        tag(
            "tr",
            figure_cell("policy", policy),
            figure_cell("why", why),
            figure_cell("times", times, format_whole),
        )
        for (policy, why), times in sorted(times_by_reason.items(), key=lambda item: (-item[1], item[0]))
    ]
    heads = [column_head("policy", figure=False), column_head("why", figure=False), column_head("times")]
    frame = table_frame(heads, rows, about="broken", caption="By policy and reason")
    return [details("Why prefixes broke", frame)]
