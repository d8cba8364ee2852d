"""Three drawings as SVG: lines over the calls of a session, its layers as a stack, cost against recall.

A drawing knows figures, names and classes; colours are the style's, so that light and dark are the reader's
choice. Each has a title for readers who cannot see it, and the page puts its figures in a table beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from lamina.replay.headline import OWN_POLICY
from lamina.replay.html.markup import join, tag
from lamina.replay.html.scale import PlotScale, round_step, round_up, short_figure, spread_apart

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 132, 14, 40
TEXT = 13
"""Height of a label, in units of the drawing."""

LAYERS = ("tools", "system", "library", "history", "turn", "prompt", "steps", "framing")
LAYER_STYLES = {name: f"c{number}" for number, name in enumerate(LAYERS)}
"""The class of each layer, most stable first: a layer has one colour in every drawing."""

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


def draw_lines(title: str, series: Sequence[Series]) -> Markup:
    """Figures over calls, one line each, named at its end.

    Names that would cover each other are moved apart.
    """
    calls = max((len(line.figures) for line in series), default=1)
    highest = max((figure for line in series for figure in line.figures), default=1)
    across = _scale_of_calls(calls)
    up = _scale_from_zero(highest)
    paths = [tag("path", d=_path(line.figures, across, up), class_=f"line {line.style}") for line in series]
    ends = [up(line.figures[-1]) for line in series]
    heights = spread_apart(ends, least=TEXT, end=HEIGHT - BOTTOM)
    names = [
        _name_at(line, x=across(len(line.figures)), y=height)
        for line, height in zip(series, heights, strict=True)
    ]
    return _drawing(title, _axes(across, up, "call"), *paths, *names)


def draw_stack(title: str, series: Sequence[Series], *, limit: float = 0) -> Markup:
    """Layers over calls, each on top of the last, and the limit as a line.

    The name of a layer stands at the middle of its end.
    """
    calls = max((len(layer.figures) for layer in series), default=1)
    columns = zip(*(layer.figures for layer in series), strict=True)
    highest = max([limit, *(sum(column) for column in columns)])
    across = _scale_of_calls(calls)
    up = _scale_from_zero(highest)
    bands = []
    middles = []
    below = [0.0] * calls
    for layer in series:
        above = [base + figure for base, figure in zip(below, layer.figures, strict=True)]
        bands.append(tag("path", d=_band(below, above, across, up), class_=f"band {layer.style}"))
        middles.append(up((below[-1] + above[-1]) / 2))
        below = above
    heights = spread_apart(middles, least=TEXT, end=HEIGHT - BOTTOM)
    names = [
        _name_at(layer, x=across(calls), y=height) for layer, height in zip(series, heights, strict=True)
    ]
    limit_line = [_limit_line(up(limit), across)] if limit else []
    return _drawing(title, _axes(across, up, "call"), *bands, *limit_line, *names)


def draw_scatter(
    title: str, points: Sequence[PlotPoint], frontier: Sequence[tuple[float, float]], *, label: str
) -> Markup:
    """Each policy as a point, the best of them joined; refused ones are hollow.

    The cost goes to the right, and what could be seen goes up. So the best are at the top left.
    """
    across = PlotScale(*_range_of_costs(points), LEFT, WIDTH - RIGHT)
    lowest = min((point.up for point in points), default=0)
    up = PlotScale(max(0.0, int((lowest - 0.02) * 20) / 20), 1.0, HEIGHT - BOTTOM, TOP)
    frontier_path = []
    if len(frontier) > 1:
        corners = [f"{across(x)} {up(y)}" for x, y in frontier]
        frontier_path = [tag("path", d=f"M{' L'.join(corners)}", class_="frontier")]
    heights = _label_heights(points, across, up)
    marks = [_mark(point, across, up, height) for point, height in zip(points, heights, strict=True)]
    return _drawing(title, _axes(across, up, label, percent=True), *frontier_path, *marks)


def _range_of_costs(points: Sequence[PlotPoint]) -> tuple[float, float]:
    """From 0, or from near the least where all are close together, to above the most."""
    costs = [point.across for point in points]
    costs += [point.reach[0] for point in points if point.reach]
    least = min(costs)
    most = max(costs)
    # costs of 90 to 100 would be one heap in a drawing that begins at 0
    if least < most / 2:
        return 0, round_up(most)
    step = round_step((most - least) / 3 or most / 5)
    return max(step * (least // step - 1), 0), step * (most // step + 2)


def _label_heights(points: Sequence[PlotPoint], across: PlotScale, up: PlotScale) -> list[float]:
    """Heights of labels: moved apart among points that stand close to each other.

    A label stands beside its point, so only points with about the same cost are in each other's way.
    """
    heights = [0.0] * len(points)
    for group in _close_points(points, across):
        places = [up(points[at].up) for at in group]
        moved = spread_apart(places, least=TEXT, end=HEIGHT - BOTTOM - 4)
        for at, height in zip(group, moved, strict=True):
            heights[at] = height
    return heights


def _close_points(points: Sequence[PlotPoint], across: PlotScale) -> list[list[int]]:
    """Positions of points, from left to right, in groups in which each is close to the one before it.

    Points at 10, 50 and 400 are two groups: the first two, and the third.
    """
    groups: list[list[int]] = []
    last_place = 0.0
    for at in sorted(range(len(points)), key=lambda at: across(points[at].across)):
        place = across(points[at].across)
        if groups and place - last_place < CLOSE:
            groups[-1].append(at)
        else:
            groups.append([at])
        last_place = place
    return groups


def _mark(point: PlotPoint, across: PlotScale, up: PlotScale, label_height: float) -> Markup:
    """A policy as a circle with its name. What it costs and shows is in its title and in data fields."""
    x = across(point.across)
    title = f"{point.name}: cost {point.across:,.0f}, recall {100 * point.up:.1f} %"
    style = f"mark {point.style}"
    if not point.able:
        title += "; some of its requests are refused"
        style += " hollow"
    return tag(
        "g",
        tag("title", title),
        *_reach_line(point, across, up),
        tag("circle", cx=x, cy=up(point.up), r=5, class_=style),
        tag("text", point.name, x=x + 9, y=round(label_height + 4, 1), class_=f"name {point.style}"),
        data_policy=point.name,
        data_cost=point.across,
        data_recall=point.up,
    )


def _reach_line(point: PlotPoint, across: PlotScale, up: PlotScale) -> list[Markup]:
    """A thin line to where recalls would take it, with a small ring at its end."""
    if point.reach is None:
        return []
    x = across(point.reach[0])
    y = up(point.reach[1])
    path = f"M{across(point.across)} {up(point.up)} L{x} {y}"
    return [
        tag("path", d=path, class_=f"reach {point.style}"),
        tag("circle", cx=x, cy=y, r=3, class_=f"reach {point.style}"),
    ]


def _scale_of_calls(calls: int) -> PlotScale:
    """Calls from left to right, from the first on."""
    return PlotScale(1, max(calls, 2), LEFT, WIDTH - RIGHT)


def _scale_from_zero(highest: float) -> PlotScale:
    """Figures from 0 at the bottom to above the highest."""
    return PlotScale(0, round_up(highest), HEIGHT - BOTTOM, TOP)


def _name_at(series: Series, *, x: float, y: float) -> Markup:
    """The name of a line, or of a layer, beside its end."""
    return tag("text", series.name, x=x + 6, y=y + 4, class_=f"name {series.style}")


def _path(figures: Sequence[float], across: PlotScale, up: PlotScale) -> str:
    """A line through all figures, one for each call."""
    corners = [f"{across(call)} {up(figure)}" for call, figure in enumerate(figures, 1)]
    return f"M{' L'.join(corners)}"


def _band(below: Sequence[float], above: Sequence[float], across: PlotScale, up: PlotScale) -> str:
    """The area between two lines."""
    back = [f"{across(call)} {up(figure)}" for call, figure in enumerate(below, 1)]
    back.reverse()
    return f"{_path(above, across, up)} L{' L'.join(back)} Z"


def _limit_line(height: float, across: PlotScale) -> Markup:
    return join(
        [
            tag("line", x1=across.start, x2=across.end, y1=height, y2=height, class_="limit"),
            tag("text", "window", x=across.start + 4, y=height - 4, class_="tick"),
        ]
    )


def _axes(across: PlotScale, up: PlotScale, label: str, *, percent: bool = False) -> Markup:
    """The grid with its figures; those at the left may be percents.

    Lines of the grid are drawn for heights only.
    """
    base = up.start
    elements = []
    for tick in up.ticks():
        text = f"{100 * tick:.0f} %" if percent else short_figure(tick)
        height = up(tick)
        line = tag("line", x1=across.start, x2=across.end, y1=height, y2=height, class_="grid")
        elements.append(join([line, tag("text", text, x=LEFT - 8, y=height + 4, class_="tick end")]))
    for tick in across.ticks(6):
        text = short_figure(tick)
        elements.append(tag("text", text, x=across(tick), y=base + 16, class_="tick middle"))
    elements.append(tag("text", label, x=across.end, y=base + 32, class_="tick end"))
    return tag("g", *elements)


def _drawing(title: str, *children: str) -> Markup:
    """The plot as one SVG, with its title for readers who do not see it."""
    return tag(
        "svg", tag("title", title), *children, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=title
    )


def policy_styles(names: Sequence[str]) -> dict[str, str]:
    """A class for each policy, the same for the same names in the same order; lamina has its own.

    There are nine colours. With more policies they repeat.
    """
    styles = {OWN_POLICY: "own"}
    for name in names:
        if name not in styles:
            styles[name] = f"c{(len(styles) - 1) % 9}"
    return styles
