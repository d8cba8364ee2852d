"""What the page shows, from top to bottom: the money, why caches missed, the policies, and every session.

The page asks for nothing: styles and script are in it, drawings are SVG, and its own policy forbids every
request and every script but the one it carries. Without the script all of it can be read; with it tables can
be sorted and the colours chosen. The figures are those of the JSON file.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Sequence
from importlib import resources
from typing import Any

import msgspec
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from lamina.replay.account_columns import (
    PAID_COLUMNS,
    Column,
    format_date,
    format_money,
    format_percent,
    format_whole,
    useful_columns,
)
from lamina.replay.account_sums import (
    AS_IT_WAS,
    ReplaySetting,
    Total,
    find_frontier,
    group_by,
    group_by_setting,
    list_losses,
    setting_of,
    sum_outcomes,
    sum_paid,
    sum_recorded,
)
from lamina.replay.account_table import (
    describe_difference,
    describe_reason,
    describe_session,
    describe_sessions,
    describe_setting,
)
from lamina.replay.headline import OWN_POLICY, compare_sessions, outcomes_of_first_setting, summarise
from lamina.replay.html.plots import (
    LAYER_STYLES,
    PlotPoint,
    Series,
    draw_lines,
    draw_scatter,
    draw_stack,
    policy_styles,
)
from lamina.replay.values import ReplayAccount, ReplayOutcome

DRAWN = 3
"""Sessions that are drawn: the dearest."""

LISTED = 1_000
"""Sessions in the table; the JSON file has all."""

LISTED_LOSSES = 200
"""Lost caches, and damaged lines, that the page names; the JSON file has all."""


class PolicySection(msgspec.Struct, frozen=True, kw_only=True):
    """The policies under one window and cache."""

    setting: ReplaySetting
    title: str
    columns: Sequence[Column]
    rows: Sequence[Total]
    frontier: str
    broken: Sequence[tuple[str, str, int]]


class FigureTable(msgspec.Struct, frozen=True, kw_only=True):
    """A drawing with its figures, call by call."""

    name: str
    caption: str
    drawing: str
    series: Sequence[Series]


class SessionCourse(msgspec.Struct, frozen=True, kw_only=True):
    """One session as it went on."""

    trace: str
    title: str
    figures: Sequence[FigureTable]


def render_page(account: ReplayAccount, *, title: str = "What these sessions cost") -> str:
    """The account as one page of HTML, with drawings, that loads nothing from elsewhere."""
    style = _read_asset("report.css")
    script = _read_asset("report.js")
    losses = list_losses(account.reported)
    sessions = compare_sessions(account)
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals.update(_WRITERS)
    template = environment.from_string(_read_asset("report.html"))
    return template.render(
        title=title,
        policy=_security_policy(style, script),
        style=Markup(style),  # noqa: S704 - a file of this package
        script=Markup(script),  # noqa: S704 - a file of this package
        account=account,
        headline=summarise(account),
        paid_columns=PAID_COLUMNS,
        paid=sum_paid(account.reported),
        losses=losses[:LISTED_LOSSES],
        loss_count=len(losses),
        policies=_policy_sections(account),
        sessions=sessions[:LISTED],
        session_count=len(sessions),
        own=OWN_POLICY,
        as_it_was=AS_IT_WAS,
        courses=_courses(account),
        damaged=account.damaged[:LISTED_LOSSES],
    ).lstrip()


_WRITERS: dict[str, Any] = {
    "money": format_money,
    "whole": format_whole,
    "percent": format_percent,
    "date": format_date,
    "exact": repr,
    "describe_difference": describe_difference,
    "describe_reason": describe_reason,
    "describe_session": describe_session,
    "describe_sessions": describe_sessions,
}


def _policy_sections(account: ReplayAccount) -> list[PolicySection]:
    """One section for each cache and window, with what was recorded as its first row.

    A policy has the same colour in all sections.
    """
    totals = sum_outcomes(account.outcomes)
    recorded = sum_recorded(account.reported)
    styles = policy_styles([total.policy for total in totals])
    sections = []
    for setting, rows in group_by_setting(totals).items():
        all_rows = [*recorded, *rows]
        section = PolicySection(
            setting=setting,
            title=describe_setting(setting),
            columns=useful_columns(all_rows),
            rows=all_rows,
            frontier=_draw_frontier(setting, rows, styles),
            broken=_count_broken(account, setting),
        )
        sections.append(section)
    return sections


def _draw_frontier(setting: ReplaySetting, rows: Sequence[Total], styles: dict[str, str]) -> str:
    """Cost against recall; "" where nothing was needed."""
    points = []
    for total in rows:
        if total.recall is None:
            continue
        # a policy that can recall has a second place: where it would be with all recalls made and paid
        reach = None
        if total.within_reach is not None and total.recallable > total.visible:
            reach = (total.equivalents + total.recall_equivalents, total.within_reach)
        point = PlotPoint(
            name=total.policy,
            style=styles[total.policy],
            across=total.equivalents,
            up=total.recall,
            able=not total.refused,
            reach=reach,
        )
        points.append(point)
    if not points:
        return ""
    frontier = [(total.equivalents, total.recall or 0.0) for total in find_frontier(rows)]
    title = f"Cost against what the request had, {describe_setting(setting)}"
    return draw_scatter(title, points, frontier, label="input, in tokens at full price")


def _count_broken(account: ReplayAccount, setting: ReplaySetting) -> list[tuple[str, str, int]]:
    """Why requests did not continue the ones before them, if the outcomes have points.

    A row is a policy, a reason and how often; the most frequent first.
    """
    times: Counter[tuple[str, str]] = Counter()
    for outcome in account.outcomes:
        if setting_of(outcome) == setting:
            times.update((outcome.policy, point.broken) for point in outcome.points if point.broken)
    rows = [(policy, why, count) for (policy, why), count in times.items()]
    return sorted(rows, key=lambda row: (-row[2], row[:2]))


def _courses(account: ReplayAccount) -> list[SessionCourse]:
    """The dearest sessions call by call, under the first setting, if the outcomes have points.

    A session is as dear as under its dearest policy.
    """
    outcomes = [outcome for outcome in outcomes_of_first_setting(account.outcomes) if outcome.points]
    outcomes_by_trace = group_by(outcomes, lambda outcome: outcome.trace)
    costs: dict[str, float] = {}
    for outcome in outcomes:
        costs[outcome.trace] = max(costs.get(outcome.trace, 0.0), outcome.equivalents)
    dearest = sorted(costs, key=lambda trace: -costs[trace])[:DRAWN]
    titles = {session.trace: describe_session(session) for session in compare_sessions(account)}
    return [_course(trace, titles[trace], outcomes_by_trace[trace]) for trace in dearest]


def _course(trace: str, title: str, outcomes: Sequence[ReplayOutcome]) -> SessionCourse:
    """One session: a line for each policy, and the layers of one that tells them, if there is one."""
    styles = policy_styles([outcome.policy for outcome in outcomes])
    spent = []
    for outcome in outcomes:
        costs = [point.spent for point in outcome.points]
        spent.append(Series(outcome.policy, styles[outcome.policy], costs))
    caption = "Input so far, in tokens at full price"
    figures = [
        FigureTable(
            name="spent", caption=caption, drawing=draw_lines(f"{caption}: {trace}", spent), series=spent
        )
    ]
    # layers are drawn for lamina if it is among the policies
    by_own_first = sorted(outcomes, key=lambda outcome: outcome.policy != OWN_POLICY)
    for outcome in by_own_first:
        if any(point.layers for point in outcome.points):
            figures.append(_layers(outcome))
            break
    return SessionCourse(trace=trace, title=title, figures=figures)


def _layers(outcome: ReplayOutcome) -> FigureTable:
    """Tokens by layer of one policy's requests. A layer has the same colour in every drawing.

    Layers that have no colour of their own, from other policies, come last.
    """
    layers: set[str] = set()
    for point in outcome.points:
        layers.update(point.layers)
    names = [name for name in LAYER_STYLES if name in layers]
    names += sorted(layers.difference(LAYER_STYLES))
    series = []
    for name in names:
        tokens = [point.layers.get(name, 0) for point in outcome.points]
        series.append(Series(name, LAYER_STYLES.get(name, "c8"), tokens))
    caption = f"Tokens of each request by layer, policy {outcome.policy}"
    drawing = draw_stack(f"{caption}: {outcome.trace}", series, limit=outcome.window)
    return FigureTable(name="layers", caption=caption, drawing=drawing, series=series)


def _security_policy(style: str, script: str) -> str:
    """What the browser may do for this page: show it, and run the one script that it came with."""
    return f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; form-action 'none'"


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _read_asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")
