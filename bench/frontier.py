"""Draws cost against what is kept: lamina's settings beside plain policies, one panel for each window.

    python bench/talks.py --bfcl FOLDER --windows 4000,8000 --policies ... --json bfcl.json
    python bench/policies.py PATH... --windows 16000,32000 --policies ... --json agents.json
    python bench/frontier.py --talks BFCL=bfcl.json LoCoMo=locomo.json --svg notes/frontier.svg
    python bench/frontier.py --agents agents.json --svg docs/frontier-agents.svg
    python bench/frontier.py --quick                              a drawing of made-up figures

A panel of talks shows what is in sight throughout the talks over the cost relative to sending everything. A
panel of agents shows needed names in sight over the cost relative to the sliding window. Settings of lamina
are one line, those of the sliding window another, and other policies are points. Two panels stand side by
side, in letters that can be read on a telephone, and the colours follow the reader's light or dark theme.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.samples import QUICK_HELP

WIDTH, HEIGHT, COLUMNS = 270, 220, 2
LEFT, TOP, RIGHT, BOTTOM = 38, 32, 14, 40
LEGEND = 44
FURTHEST = 1.6
"""Relative cost beyond which a policy is not drawn, but named below: it would squeeze all others."""

LINES = {"lamina": "own", "sliding": "sliding"}
"""Families of policies that are drawn as a line, and the name of its style."""

STEPS = (1, 2, 2.5, 5, 10)
"""Round steps between the ticks of an axis, times a power of ten."""

SHORT_NAMES = {"drop_oldest": "drop", "clear_then_drop": "clear", "none": "all"}
STYLE = """
svg { font: 13px system-ui, sans-serif }
.paper { fill: #ffffff } text { fill: #374151 } .title { font-weight: 600; fill: #111827 }
.grid { stroke: #e5e7eb } .own { stroke: #0b7a55; fill: #0b7a55 } .sliding { stroke: #a0621a; fill: #a0621a }
.other { fill: #6b7280 } polyline { fill: none !important; stroke-width: 2 } text.key { stroke: none }
@media (prefers-color-scheme: dark) {
.paper { fill: #111827 } text { fill: #d1d5db } .title { fill: #f9fafb } .grid { stroke: #374151 }
.own { stroke: #34d399; fill: #34d399 } .sliding { stroke: #f0a24b; fill: #f0a24b } .other { fill: #9ca3af }
}"""


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


def read_talks(path: Path, *, name: str = "talks") -> list[Panel]:
    """Panels from what `bench/talks.py --json` wrote; `name` is what the talks are called."""
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
        panels.append(Panel(f"{name}, {window:,} tokens", points))
    return panels


def read_agents(path: Path) -> list[Panel]:
    """Panels from what `bench/policies.py --json` wrote."""
    panels: list[Panel] = []
    for table in json.loads(path.read_text("utf-8"))["tables"]:
        points = [Kept(row["policy"], row["relative"], row["recall"]) for row in table["rows"]]
        panels.append(Panel(f"agents, {table['window']:,} tokens", points))
    return panels


def draw(panels: Sequence[Panel]) -> str:
    """The panels as one SVG, with a legend."""
    rows = -(-len(panels) // COLUMNS)
    width = WIDTH * min(COLUMNS, len(panels))
    height = HEIGHT * rows + LEGEND
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
        f"<title>Cost against what is kept</title><style>{STYLE}</style>"
        f'<rect class="paper" width="{width}" height="{height}" rx="8"/>'
    )
    parts = [head]
    for number, panel in enumerate(panels):
        left = WIDTH * (number % COLUMNS)
        top = HEIGHT * (number // COLUMNS)
        parts.append(f'<g transform="translate({left} {top})">{_draw_panel(panel)}</g>')
    low = height - LEGEND + 14
    parts.append(f'<text class="own key" x="10" y="{low}">lamina</text>')
    parts.append(f'<text class="sliding key" x="62" y="{low}">sliding window</text>')
    parts.append(f'<text x="168" y="{low}">others by name</text>')
    parts.append(f'<text x="10" y="{low + 18}">up: % in sight · across: relative cost</text></svg>')
    return "\n".join(parts) + "\n"


def _draw_panel(panel: Panel) -> str:
    drawn = [point for point in panel.points if point.cost <= FURTHEST]
    beyond = [point for point in panel.points if point.cost > FURTHEST]
    costs = [point.cost for point in drawn]
    shares = [100 * point.share for point in drawn]
    across = PlotScale(min(costs) - 0.05, max(costs) + 0.05, LEFT, WIDTH - RIGHT)
    up = PlotScale(min(shares) - 2, min(max(shares) + 2, 101), HEIGHT - BOTTOM, TOP)
    parts = [f'<text class="title" x="{LEFT}" y="19">{escape(panel.title)}</text>']
    axis = HEIGHT - BOTTOM + 16
    parts += [_label(across(tick), axis, f"{tick:g}", anchor="middle") for tick in across.ticks(4)]
    for tick in up.ticks(4):
        parts.append(_label(LEFT - 5, up(tick) + 3, f"{tick:g}", anchor="end"))
        parts.append(f'<path d="M{LEFT} {up(tick)}H{WIDTH - RIGHT}" class="grid"/>')
    for family, style in LINES.items():
        points = sorted((point for point in drawn if point.family == family), key=lambda point: point.cost)
        places = " ".join(f"{across(point.cost)},{up(100 * point.share)}" for point in points)
        parts.append(f'<polyline points="{places}" class="{style}"/>')
    parts += [_draw_point(point, across(point.cost), up(100 * point.share)) for point in drawn]
    if beyond:
        told = [f"{_name(point)} {100 * point.share:.0f} % at {point.cost:.1f}" for point in beyond]
        parts.append(_label(WIDTH - RIGHT, HEIGHT - 6, f"→ {', '.join(told)}", anchor="end"))
    return "".join(parts)


def _draw_point(point: Kept, x: float, y: float) -> str:
    style = LINES.get(point.family, "other")
    radius = 5 if point.policy == "lamina" else 3
    told = escape(f"{point.policy}: {100 * point.share:.1f} % at {point.cost:.3f}")
    dot = f'<circle cx="{x}" cy="{y}" r="{radius}" class="{style}"><title>{told}</title></circle>'
    if point.family in LINES:
        return dot
    if x > (LEFT + WIDTH) / 2:
        return dot + _label(x - 6, y + 4, _name(point), anchor="end")
    return dot + _label(x + 6, y + 4, _name(point), anchor="start")


def _name(point: Kept) -> str:
    return SHORT_NAMES.get(point.policy, point.policy)


def _label(x: float, y: float, text: str, *, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--talks", nargs="+", default=[], metavar="NAME=FILE")
    parser.add_argument("--agents", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--svg", type=Path, metavar="FILE")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was drawn to this file, too")
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    options = parser.parse_args()
    panels: list[Panel] = []
    for named in options.talks:
        name, _, path = named.rpartition("=")
        panels += read_talks(Path(path), name=name or "talks")
    for path in options.agents:
        panels += read_agents(path)
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


class PlotScale(NamedTuple):
    """A straight line from figures `low … high` to places `start … end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, figure: float) -> float:
        span = (self.high - self.low) or 1
        return round(self.start + (figure - self.low) / span * (self.end - self.start), 1)

    def ticks(self, count: int) -> list[float]:
        """Round figures from low to high, about `count` of them."""
        step = round_step((self.high - self.low) / count)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [step * number for number in range(first, last + 1)]


def round_step(size: float) -> float:
    """The smallest of 1, 2, 2.5 and 5 times a power of ten that is not below a size.

    Of 3 it is 5, of 230 it is 250, of 0.08 it is 0.1.
    """
    power = 10.0 ** math.floor(math.log10(size))
    for step in STEPS:
        if step * power >= size * (1 - 1e-9):
            return step * power
    return 10 * power


if __name__ == "__main__":
    sys.exit(main())
