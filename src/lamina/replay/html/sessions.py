"""Session by session: the course of the dearest ones as drawings, and all of them in one table."""

from __future__ import annotations

from collections.abc import Sequence

from lamina.replay.account_table import format_percent, format_whole
from lamina.replay.html.markup import Safe, join, tag
from lamina.replay.html.plots import Series, draw_lines, draw_stack, style_classes
from lamina.replay.html.policies import OWN, policy_styles
from lamina.replay.html.tables import column_head, details, figure_cell, table_frame
from lamina.replay.values import ReplayAccount, ReplayOutcome

DRAWN = 3
"""Sessions that are drawn: the dearest."""

LISTED = 1_000
"""Sessions in the table; the JSON file has all."""

ORDER = "tools system library history turn prompt steps framing".split()
"""Layers from the bottom of a stack, most stable first."""


def courses_section(account: ReplayAccount) -> Safe:
    """The dearest sessions call by call, in the smallest window, where policies differ most."""
    drawable = [outcome for outcome in account.outcomes if outcome.points]
    if not drawable:
        return Safe("")
    window = min(outcome.window for outcome in drawable)
    rules = drawable[0].rules
    sessions = _group_by_session([each for each in drawable if (each.window, each.rules) == (window, rules)])
    dearest = _dearest_first(sessions)[:DRAWN]
    note = f"Window {window:,}, cache rules {rules}"
    if len(sessions) > len(dearest):
        note += f": the dearest of {len(sessions):,} sessions"
    return tag(
        "section",
        tag("h2", "Over the session"),
        tag("p", f"{note}."),
        *(_course(trace, sessions[trace]) for trace in dearest),
    )


def _group_by_session(outcomes: Sequence[ReplayOutcome]) -> dict[str, list[ReplayOutcome]]:
    sessions: dict[str, list[ReplayOutcome]] = {}
    for outcome in outcomes:
        sessions.setdefault(outcome.trace, []).append(outcome)
    return sessions


def _dearest_first(sessions: dict[str, list[ReplayOutcome]]) -> list[str]:
    """The ids of sessions by what they cost under the dearest policy."""
    return sorted(sessions, key=lambda trace: -max(outcome.equivalents for outcome in sessions[trace]))


def _course(trace: str, outcomes: Sequence[ReplayOutcome]) -> Safe:
    styles = policy_styles([outcome.policy for outcome in outcomes])
    series = []
    for outcome in outcomes:
        costs = [point.spent for point in outcome.points]
        series.append(Series(outcome.policy, styles[outcome.policy], costs))
    title = f"Cost so far, call by call, in input tokens at full price: {trace}"
    figure = tag(
        "figure",
        draw_lines(title, series),
        tag("figcaption", "Cost so far, in input tokens at full price"),
        data_plot="spent",
    )
    return tag(
        "article",
        tag("h3", trace),
        figure,
        details("Figures of this drawing", _calls_table(series, "spent")),
        *_layers_of_first(outcomes),
        data_trace=trace,
    )


def _layers_of_first(outcomes: Sequence[ReplayOutcome]) -> list[Safe]:
    """The layers of lamina's requests, or of the first policy that reports layers."""
    own_first = sorted(outcomes, key=lambda outcome: outcome.policy != OWN)
    for outcome in own_first:
        if any(point.layers for point in outcome.points):
            return _layers(outcome)
    return []


def _layers(outcome: ReplayOutcome) -> list[Safe]:
    """Tokens by layer of one policy's requests."""
    seen = {name for point in outcome.points for name in point.layers}
    names = [name for name in ORDER if name in seen] + sorted(seen - set(ORDER))
    styles = style_classes(names)
    series = []
    for name in names:
        tokens = [point.layers.get(name, 0) for point in outcome.points]
        series.append(Series(name, styles[name], tokens))
    caption = f"Tokens of each request by layer, policy {outcome.policy}"
    figure = tag(
        "figure",
        draw_stack(f"{caption}: {outcome.trace}", series, limit=outcome.window),
        tag("figcaption", caption),
        data_plot="layers",
    )
    return [figure, details("Figures of this drawing", _calls_table(series, "layers"))]


def _calls_table(series: Sequence[Series], about: str) -> Safe:
    calls = max(len(each.figures) for each in series)
    rows = []
    for call in range(calls):
        cells = [figure_cell("call", call + 1, format_whole)]
        for each in series:
            figure = each.figures[call] if call < len(each.figures) else None
            cells.append(figure_cell(each.name, figure, format_whole))
        rows.append(tag("tr", *cells))
    heads = [column_head("call"), *(column_head(each.name) for each in series)]
    return table_frame(heads, rows, about=about)


def sessions_section(account: ReplayAccount) -> Safe:
    """Every session under every policy, one table for each cache and window."""
    groups: dict[tuple[str, int], list[ReplayOutcome]] = {}
    for outcome in account.outcomes:
        groups.setdefault((outcome.rules, outcome.window), []).append(outcome)
    if not groups:
        return Safe("")
    tables = [_sessions_table(outcomes) for outcomes in groups.values()]
    return tag("section", tag("h2", "Session by session"), *tables)


def _sessions_table(outcomes: Sequence[ReplayOutcome]) -> Safe:
    window = outcomes[0].window
    rules = outcomes[0].rules
    policies = list(dict.fromkeys(outcome.policy for outcome in outcomes))
    sessions = _group_by_session(outcomes)
    rows = [_session_row(trace, policies, sessions[trace]) for trace in _dearest_first(sessions)[:LISTED]]
    heads = [column_head("session", figure=False), column_head("calls")]
    heads += [column_head(f"cost, {name}") for name in policies]
    heads += [column_head(f"recall, {name}") for name in policies]
    caption = f"Window {window:,}, cache rules {rules}"
    if len(sessions) > LISTED:
        caption += f": the {LISTED:,} dearest of {len(sessions):,} sessions; the JSON file has all"
    frame = table_frame(heads, rows, about="sessions", caption=caption)
    return tag("div", frame, data_rules=rules, data_window=window)


def _session_row(trace: str, policies: Sequence[str], outcomes: Sequence[ReplayOutcome]) -> Safe:
    by_policy = {outcome.policy: outcome for outcome in outcomes}
    costs = []
    recalls = []
    for name in policies:
        outcome = by_policy.get(name)
        costs.append(figure_cell(f"equivalents {name}", _cost(outcome), format_whole))
        recalls.append(figure_cell(f"recall {name}", _recall(outcome), format_percent))
    return tag(
        "tr",
        figure_cell("trace", trace),
        figure_cell("calls", outcomes[0].calls, format_whole),
        join(costs),
        join(recalls),
        data_key=trace,
    )


def _cost(outcome: ReplayOutcome | None) -> float | None:
    if outcome is None:
        return None
    return outcome.equivalents


def _recall(outcome: ReplayOutcome | None) -> float | None:
    if outcome is None or not outcome.needed:
        return None
    return outcome.visible / outcome.needed
