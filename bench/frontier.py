"""Draws cost against what is kept: lamina's settings beside plain policies, one panel for each window.

    python bench/talks.py --bfcl FOLDER --windows 4000,8000 --policies ... --json talks.json
    python bench/policies.py PATH... --windows 16000,32000 --policies ... --json agents.json
    python bench/frontier.py --talks talks.json --agents agents.json --svg docs/frontier.svg
    python bench/frontier.py --quick                              a drawing of made-up figures

A panel of a talk shows answers in sight throughout the talk over the cost relative to sending everything. A
panel of agents shows needed names in sight over the cost relative to the sliding window. Settings of lamina
are one line, those of the sliding window another, and other policies are points.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.samples import QUICK_HELP
from lamina.replay.html.scale import PlotScale

WIDTH, HEIGHT = 250, 210
LEFT, TOP, RIGHT, BOTTOM = 42, 26, 10, 34
FURTHEST = 1.6
"""Relative cost beyond which a policy is not drawn, but named below: it would squeeze all others."""

LINES = {"lamina": "#0b6e4f", "sliding": "#8a6d3b"}
OTHER_COLOUR = "#888888"


class Kept(NamedTuple):
    """One policy in one panel: what it costs, and the share that it keeps."""

    policy: str
    cost: float
    share: float

    @property
    def family(self) -> str:
        return self.policy.partition("@")[0]


class Panel(NamedTuple):
    """All policies in one window."""

    title: str
    points: list[Kept]


def read_talks(path: Path) -> list[Panel]:
    """Panels from what `bench/talks.py --json` wrote."""
    sums: dict[int, dict[str, list[float]]] = {}
    for outcome in json.loads(path.read_text("utf-8")):
        row = sums.setdefault(outcome["window"], {}).setdefault(outcome["policy"], [0.0, 0.0, 0.0, 0.0])
        row[0] += outcome["cost"]
        row[1] += outcome["cost_of_all"]
        for seen, count in outcome["throughout"].values():
            row[2] += seen
            row[3] += count
    panels: list[Panel] = []
    for window, policies in sorted(sums.items()):
        points = [Kept(name, row[0] / row[1], row[2] / max(row[3], 1)) for name, row in policies.items()]
        panels.append(Panel(f"talks, {window:,} tokens", points))
    return panels


def read_agents(path: Path) -> list[Panel]:
    """Panels from what `bench/policies.py --json` wrote."""
    panels: list[Panel] = []
    for table in json.loads(path.read_text("utf-8"))["tables"]:
        points = [Kept(row["policy"], row["relative"], row["recall"]) for row in table["rows"]]
        panels.append(Panel(f"agents, {table['window']:,} tokens", points))
    return panels


def draw(panels: Sequence[Panel], *, columns: int = 4) -> str:
    """The panels as one SVG, with a legend."""
    rows = -(-len(panels) // columns)
    width = WIDTH * min(columns, len(panels))
    height = HEIGHT * rows + 30
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="10" role="img"><title>Cost against what is kept</title>'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    )
    parts = [head]
    for number, panel in enumerate(panels):
        left = WIDTH * (number % columns)
        top = HEIGHT * (number // columns)
        parts.append(f'<g transform="translate({left} {top})">{_draw_panel(panel)}</g>')
    legend = "green: lamina · brown: sliding window · grey: others · across: relative cost · up: % in sight"
    parts.append(f'<text x="8" y="{height - 10}" fill="#333333">{legend}</text></svg>')
    return "\n".join(parts) + "\n"


def _draw_panel(panel: Panel) -> str:
    drawn = [point for point in panel.points if point.cost <= FURTHEST]
    beyond = [point for point in panel.points if point.cost > FURTHEST]
    costs = [point.cost for point in drawn]
    shares = [100 * point.share for point in drawn]
    across = PlotScale(min(costs) - 0.05, max(costs) + 0.05, LEFT, WIDTH - RIGHT)
    up = PlotScale(min(shares) - 2, min(max(shares) + 2, 101), HEIGHT - BOTTOM, TOP)
    parts = [f'<text x="{LEFT}" y="16" font-weight="bold" fill="#222222">{escape(panel.title)}</text>']
    axis = HEIGHT - BOTTOM + 14
    parts += [_label(across(tick), axis, f"{tick:g}", anchor="middle") for tick in across.ticks(4)]
    for tick in up.ticks(4):
        parts.append(_label(LEFT - 5, up(tick) + 3, f"{tick:g}", anchor="end"))
        parts.append(f'<path d="M{LEFT} {up(tick)}H{WIDTH - RIGHT}" stroke="#e5e5e5"/>')
    for family, colour in LINES.items():
        points = sorted((point for point in drawn if point.family == family), key=lambda point: point.cost)
        places = " ".join(f"{across(point.cost)},{up(100 * point.share)}" for point in points)
        parts.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    parts += [_draw_point(point, across(point.cost), up(100 * point.share)) for point in drawn]
    if beyond:
        names = ", ".join(f"{point.policy} {point.cost:.1f}: {100 * point.share:.0f} %" for point in beyond)
        parts.append(_label(LEFT, HEIGHT - 4, f"beyond: {names}", anchor="start"))
    return "".join(parts)


def _draw_point(point: Kept, x: float, y: float) -> str:
    colour = LINES.get(point.family, OTHER_COLOUR)
    radius = 4 if point.policy == "lamina" else 2.5
    told = escape(f"{point.policy}: {100 * point.share:.1f} % at {point.cost:.3f}")
    dot = f'<circle cx="{x}" cy="{y}" r="{radius}" fill="{colour}"><title>{told}</title></circle>'
    if point.family in LINES:
        return dot
    return dot + _label(x + 4, y + 3, point.policy, anchor="start")


def _label(x: float, y: float, text: str, *, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="#555555">{escape(text)}</text>'


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--talks", type=Path, metavar="FILE")
    parser.add_argument("--agents", type=Path, metavar="FILE")
    parser.add_argument("--svg", type=Path, metavar="FILE")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was drawn to this file, too")
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    options = parser.parse_args()
    panels: list[Panel] = []
    if options.talks:
        panels += read_talks(options.talks)
    if options.agents:
        panels += read_agents(options.agents)
    if options.quick:
        points = [Kept("lamina", 0.8, 0.9), Kept("sliding", 1.0, 0.85), Kept("drop_oldest", 4.0, 0.9)]
        panels.append(Panel("made up, 1 token", points))
    if not panels:
        parser.error("name figures to draw: --talks, --agents or --quick")
    if options.json:
        options.json.write_text(json.dumps([panel._asdict() for panel in panels]), encoding="utf-8")
    drawing = draw(panels)
    if options.svg:
        options.svg.write_text(drawing, encoding="utf-8")
        print(f"wrote {options.svg}: {len(panels)} panels")
    else:
        print(drawing)
    return 0


if __name__ == "__main__":
    sys.exit(main())
