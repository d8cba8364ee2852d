"""Three drawings as SVG: lines over the calls of a session, its layers as a stack, cost against recall.

A drawing knows figures, names and classes; colours are the style's, so that light and dark are the reader's
choice. Each has a title for who cannot see it, and the page puts its figures in a table beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lamina.replay.html.markup import Safe, join, tag
from lamina.replay.html.scale import PlotScale, apart, round_step, round_up, short

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 132, 14, 40
TEXT = 13
"""Height of a label, in units of the drawing."""

CLOSE = 90
"""Points nearer than this to each other, from left to right, need labels at different heights."""


class Series(NamedTuple):
    """One line or layer: figures by call, in order; `style` is the class that gives it its colour."""

    name: str
    style: str
    figures: Sequence[float]


class PlotPoint(NamedTuple):
    """One point of cost against recall; one that is not `able` has requests that a provider refuses.

    `reach` is where it would stand if everything that it needs and can have back were recalled, and paid for.
    """

    name: str
    style: str
    across: float
    up: float
    able: bool
    reach: tuple[float, float] | None = None


def lines(title: str, series: Sequence[Series]) -> Safe:
    """Figures over calls, one line each, named at its end."""
    calls = max((len(each.figures) for each in series), default=1)
    highest = max((figure for each in series for figure in each.figures), default=1)
    across, up = _across_calls(calls), _up(highest)
    drawn = [tag("path", d=_path(each.figures, across, up), class_=f"line {each.style}") for each in series]
    ends = [up(each.figures[-1]) for each in series]
    names = [
        tag("text", each.name, x=across(len(each.figures)) + 6, y=place + 4, class_=f"name {each.style}")
        for each, place in zip(series, apart(ends, least=TEXT, end=HEIGHT - BOTTOM), strict=True)
    ]
    return _svg(title, _axes(across, up, "call"), *drawn, *names)


def stack(title: str, series: Sequence[Series], *, limit: float = 0) -> Safe:
    """Layers over calls, each on top of the last, and the limit as a line."""
    sums = [0.0] * max((len(each.figures) for each in series), default=1)
    highest = max([limit, *(sum(column) for column in zip(*(each.figures for each in series), strict=True))])
    across, up = _across_calls(len(sums)), _up(highest)
    drawn, middles = [], []
    for each in series:
        above = [below + figure for below, figure in zip(sums, each.figures, strict=True)]
        drawn.append(tag("path", d=_band(sums, above, across, up), class_=f"band {each.style}"))
        middles.append(up((sums[-1] + above[-1]) / 2))
        sums = above
    names = [
        tag("text", each.name, x=across(len(sums)) + 6, y=place + 4, class_=f"name {each.style}")
        for each, place in zip(series, apart(middles, least=TEXT, end=HEIGHT - BOTTOM), strict=True)
    ]
    edge = [_limit(up(limit), across)] if limit else []
    return _svg(title, _axes(across, up, "call"), *drawn, *edge, *names)


def scatter(
    title: str, marks: Sequence[PlotPoint], frontier: Sequence[tuple[float, float]], *, label: str
) -> Safe:
    """Each policy as a point, the best of them joined; refused ones are hollow."""
    costs = [cost for mark in marks for cost in (mark.across, mark.reach[0] if mark.reach else mark.across)]
    across = PlotScale(*_around(costs), LEFT, WIDTH - RIGHT)
    lowest = min((mark.up for mark in marks), default=0)
    up = PlotScale(max(0.0, int((lowest - 0.02) * 20) / 20), 1.0, HEIGHT - BOTTOM, TOP)
    best = " ".join(f"{'L' if at else 'M'}{across(x)} {up(y)}" for at, (x, y) in enumerate(frontier))
    joined = [tag("path", d=best, class_="frontier")] if len(frontier) > 1 else []
    places = _label_places(marks, across, up)
    points = [_mark(mark, across, up, place) for mark, place in zip(marks, places, strict=True)]
    return _svg(title, _axes(across, up, label, share=True), *joined, *points)


def _around(costs: Sequence[float]) -> tuple[float, float]:
    """From 0, or from near the least where all are close together, to above the most."""
    least, most = min(costs), max(costs)
    if least < most / 2:
        return 0, round_up(most)
    step = round_step((most - least) / 3 or most / 5)
    return max(step * (least // step - 1), 0), step * (most // step + 2)


def _label_places(marks: Sequence[PlotPoint], across: PlotScale, up: PlotScale) -> list[float]:
    """Heights of labels: moved apart among points that stand close to each other."""
    found = [0.0] * len(marks)
    order = sorted(range(len(marks)), key=lambda at: across(marks[at].across))
    groups: list[list[int]] = []
    for at in order:
        if groups and across(marks[at].across) - across(marks[groups[-1][-1]].across) < CLOSE:
            groups[-1].append(at)
        else:
            groups.append([at])
    for group in groups:
        moved = apart([up(marks[at].up) for at in group], least=TEXT, end=HEIGHT - BOTTOM - 4)
        for at, place in zip(group, moved, strict=True):
            found[at] = place
    return found


def _mark(mark: PlotPoint, across: PlotScale, up: PlotScale, place: float) -> Safe:
    x, y = across(mark.across), up(mark.up)
    said = f"{mark.name}: cost {mark.across:,.0f}, recall {100 * mark.up:.1f} %"
    hollow = "" if mark.able else " hollow"
    return tag(
        "g",
        tag("title", said if mark.able else f"{said}; some of its requests are refused"),
        *_reach(mark, across, up),
        tag("circle", cx=x, cy=y, r=5, class_=f"mark {mark.style}{hollow}"),
        tag("text", mark.name, x=x + 9, y=round(place + 4, 1), class_=f"name {mark.style}"),
        data_policy=mark.name,
        data_cost=mark.across,
        data_recall=mark.up,
    )


def _reach(mark: PlotPoint, across: PlotScale, up: PlotScale) -> list[Safe]:
    """A thin line to where recalls would take it, with a small ring at its end."""
    if mark.reach is None:
        return []
    x, y = across(mark.reach[0]), up(mark.reach[1])
    way = f"M{across(mark.across)} {up(mark.up)} L{x} {y}"
    return [
        tag("path", d=way, class_=f"reach {mark.style}"),
        tag("circle", cx=x, cy=y, r=3, class_=f"reach {mark.style}"),
    ]


def _across_calls(calls: int) -> PlotScale:
    return PlotScale(1, max(calls, 2), LEFT, WIDTH - RIGHT)


def _up(highest: float) -> PlotScale:
    return PlotScale(0, round_up(highest), HEIGHT - BOTTOM, TOP)


def _path(figures: Sequence[float], across: PlotScale, up: PlotScale) -> str:
    pairs = enumerate(figures, 1)
    return "M" + " L".join(f"{across(call)} {up(figure)}" for call, figure in pairs)


def _band(below: Sequence[float], above: Sequence[float], across: PlotScale, up: PlotScale) -> str:
    back = [f"{across(call)} {up(figure)}" for call, figure in enumerate(below, 1)]
    return f"{_path(above, across, up)} L{' L'.join(reversed(back))} Z"


def _limit(place: float, across: PlotScale) -> Safe:
    return join(
        [
            tag("line", x1=across.start, x2=across.end, y1=place, y2=place, class_="limit"),
            tag("text", "window", x=across.start + 4, y=place - 4, class_="tick"),
        ]
    )


def _axes(across: PlotScale, up: PlotScale, label: str, *, share: bool = False) -> Safe:
    base = up.start
    rows = [
        join(
            [
                tag("line", x1=across.start, x2=across.end, y1=up(tick), y2=up(tick), class_="grid"),
                tag(
                    "text",
                    f"{100 * tick:.0f} %" if share else short(tick),
                    x=LEFT - 8,
                    y=up(tick) + 4,
                    class_="tick end",
                ),
            ]
        )
        for tick in up.ticks()
    ]
    columns = [
        tag("text", short(tick), x=across(tick), y=base + 16, class_="tick middle")
        for tick in across.ticks(6)
    ]
    named = tag("text", label, x=across.end, y=base + 32, class_="tick end")
    return tag("g", *rows, *columns, named)


def _svg(title: str, *children: str) -> Safe:
    return tag(
        "svg", tag("title", title), *children, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=title
    )


def classes(names: Sequence[str], own: Mapping[str, str] | None = None) -> dict[str, str]:
    """A class for each name, the same for the same names in the same order; `own` are given."""
    given = own or {}
    rest = [name for name in names if name not in given]
    return {name: given.get(name) or f"c{rest.index(name) % 9}" for name in names}
