"""Session by session: the course of the dearest ones as drawings, and all of them in one table."""

from __future__ import annotations

from collections.abc import Sequence

from lamina.replay.account_table import percent, whole
from lamina.replay.html.markup import Safe, join, tag
from lamina.replay.html.plots import Series, classes, lines, stack
from lamina.replay.html.policies import OWN, colours
from lamina.replay.html.tables import cell, folded, framed, head
from lamina.replay.values import ReplayAccount, ReplayOutcome

DRAWN = 3
"""Sessions that are drawn: the dearest."""

LISTED = 1_000
"""Sessions in the table; the JSON file has all."""

ORDER = "tools system library history turn prompt steps framing".split()
"""Layers from the bottom of a stack, most stable first."""


def courses(account: ReplayAccount) -> Safe:
    """The dearest sessions call by call, in the smallest window, where policies differ most."""
    drawn = [each for each in account.outcomes if each.points]
    if not drawn:
        return Safe("")
    window, rules = min(each.window for each in drawn), drawn[0].rules
    beside = _by_session([each for each in drawn if (each.window, each.rules) == (window, rules)])
    dearest = sorted(beside, key=lambda trace: -max(each.equivalents for each in beside[trace]))[:DRAWN]
    said = (
        f"Window {window:,}, cache rules {rules}: the dearest of {len(beside):,} sessions."
        if len(beside) > len(dearest)
        else f"Window {window:,}, cache rules {rules}."
    )
    return tag(
        "section",
        tag("h2", "Over the session"),
        tag("p", said),
        *(_course(trace, beside[trace]) for trace in dearest),
    )


def _by_session(outcomes: Sequence[ReplayOutcome]) -> dict[str, list[ReplayOutcome]]:
    found: dict[str, list[ReplayOutcome]] = {}
    for each in outcomes:
        found.setdefault(each.trace, []).append(each)
    return found


def _course(trace: str, outcomes: Sequence[ReplayOutcome]) -> Safe:
    styles = colours([each.policy for each in outcomes])
    series = [
        Series(each.policy, styles[each.policy], [point.spent for point in each.points]) for each in outcomes
    ]
    title = f"Cost so far, call by call, in input tokens at full price: {trace}"
    layered = next(
        (each for each in _own_first(outcomes) if any(point.layers for point in each.points)), None
    )
    return tag(
        "article",
        tag("h3", trace),
        tag(
            "figure",
            lines(title, series),
            tag("figcaption", "Cost so far, in input tokens at full price"),
            data_plot="spent",
        ),
        folded("Figures of this drawing", _calls_table(series, "spent")),
        *(_layers(layered) if layered else ()),
        data_trace=trace,
    )


def _own_first(outcomes: Sequence[ReplayOutcome]) -> list[ReplayOutcome]:
    return sorted(outcomes, key=lambda each: each.policy != OWN)


def _layers(outcome: ReplayOutcome) -> list[Safe]:
    """Tokens by layer of one policy's requests."""
    seen = {name for point in outcome.points for name in point.layers}
    names = [name for name in ORDER if name in seen] + sorted(seen - set(ORDER))
    styles = classes(names)
    series = [
        Series(name, styles[name], [point.layers.get(name, 0) for point in outcome.points]) for name in names
    ]
    said = f"Tokens of each request by layer, policy {outcome.policy}"
    return [
        tag(
            "figure",
            stack(f"{said}: {outcome.trace}", series, limit=outcome.window),
            tag("figcaption", said),
            data_plot="layers",
        ),
        folded("Figures of this drawing", _calls_table(series, "layers")),
    ]


def _calls_table(series: Sequence[Series], about: str) -> Safe:
    calls = max(len(each.figures) for each in series)
    rows = [
        tag(
            "tr",
            cell("call", call + 1, whole),
            *(
                cell(each.name, each.figures[call] if call < len(each.figures) else None, whole)
                for each in series
            ),
        )
        for call in range(calls)
    ]
    return framed([head("call"), *(head(each.name) for each in series)], rows, about=about)


def sessions(account: ReplayAccount) -> Safe:
    """Every session under every policy, one table for each cache and window."""
    found: dict[tuple[str, int], list[ReplayOutcome]] = {}
    for each in account.outcomes:
        found.setdefault((each.rules, each.window), []).append(each)
    if not found:
        return Safe("")
    return tag("section", tag("h2", "Session by session"), *(_sessions(rows) for rows in found.values()))


def _sessions(outcomes: Sequence[ReplayOutcome]) -> Safe:
    window, rules = outcomes[0].window, outcomes[0].rules
    names = list(dict.fromkeys(each.policy for each in outcomes))
    grouped = _by_session(outcomes)
    dearest = sorted(grouped, key=lambda trace: -max(each.equivalents for each in grouped[trace]))
    rows = [_session(trace, names, grouped[trace]) for trace in dearest[:LISTED]]
    heads = [head("session", figure=False), head("calls"), *(head(f"cost, {name}") for name in names)]
    heads += [head(f"recall, {name}") for name in names]
    caption = f"Window {window:,}, cache rules {rules}"
    if len(grouped) > LISTED:
        caption += f": the {LISTED:,} dearest of {len(grouped):,} sessions; the JSON file has all"
    return tag(
        "div", framed(heads, rows, about="sessions", caption=caption), data_rules=rules, data_window=window
    )


def _session(trace: str, names: Sequence[str], outcomes: Sequence[ReplayOutcome]) -> Safe:
    by_policy = {each.policy: each for each in outcomes}
    every = [(name, by_policy.get(name)) for name in names]
    return tag(
        "tr",
        cell("trace", trace),
        cell("calls", outcomes[0].calls, whole),
        join(cell(f"equivalents {name}", _cost(each), whole) for name, each in every),
        join(cell(f"recall {name}", _recall(each), percent) for name, each in every),
        data_key=trace,
    )


def _cost(outcome: ReplayOutcome | None) -> float | None:
    return outcome.equivalents if outcome else None


def _recall(outcome: ReplayOutcome | None) -> float | None:
    return outcome.visible / outcome.needed if outcome and outcome.needed else None
