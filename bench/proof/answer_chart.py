"""Draws right answers by window: a bar for each policy with its interval, and a line for the full context.

Two panels stand one below the other, so that they can be read on a telephone; colours follow the theme.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from bench.frontier import STYLE
from bench.plot_scale import PlotScale
from bench.proof.rows import Range

WIDTH, HEIGHT, LEGEND = 540, 230, 30
LEFT, TOP, RIGHT, BOTTOM = 44, 34, 14, 30
BAR, BETWEEN = 34, 6
STYLES = {"lamina": "own", "sliding": "sliding", "drop_oldest": "other"}
"""Policies that have a bar, in this order, and the name of its style."""

NAMES = {"lamina": "lamina", "sliding": "sliding window", "drop_oldest": "drop the oldest"}
KEY_PLACES = {"lamina": 10, "sliding": 70, "drop_oldest": 184}
MORE_STYLE = ".whisker { stroke: #9ca3af; stroke-width: 2 } .full { stroke: #6b7280; stroke-dasharray: 5 4 }"


class AnswerPanel(NamedTuple):
    """One benchmark: its scores between 0 and 1 by window and policy, and that of the full context."""

    title: str
    full: float
    scores: dict[int, dict[str, Range]]


def draw_answers(panels: Sequence[AnswerPanel]) -> str:
    """The panels as one SVG, with a legend."""
    height = HEIGHT * len(panels) + LEGEND
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
        f"<title>Right answers by window</title><style>{STYLE}{MORE_STYLE}</style>"
        f'<rect class="paper" width="{WIDTH}" height="{height}" rx="8"/>'
    )
    parts = [head]
    for number, panel in enumerate(panels):
        parts.append(f'<g transform="translate(0 {HEIGHT * number})">{"".join(_draw_panel(panel))}</g>')
    for policy, style in STYLES.items():
        place = f'x="{KEY_PLACES[policy]}" y="{height - 10}"'
        parts.append(f'<text class="{style} key" {place}>{NAMES[policy]}</text>')
    parts.append(
        f'<text x="{WIDTH - RIGHT}" y="{height - 10}" text-anchor="end">- - full context</text></svg>'
    )
    return "\n".join(parts) + "\n"


def _draw_panel(panel: AnswerPanel) -> Iterator[str]:
    highest = max(score.high for by_policy in panel.scores.values() for score in by_policy.values())
    up = PlotScale(0, 105 * max(highest, panel.full), HEIGHT - BOTTOM, TOP)
    yield f'<text class="title" x="{LEFT}" y="20">{escape(panel.title)}</text>'
    for tick in up.ticks(4):
        yield f'<text x="{LEFT - 6}" y="{up(tick) + 4}" text-anchor="end">{tick:g}</text>'
        yield f'<path d="M{LEFT} {up(tick)}H{WIDTH - RIGHT}" class="grid"/>'
    yield f'<path d="M{LEFT} {up(100 * panel.full)}H{WIDTH - RIGHT}" class="full"/>'
    room = (WIDTH - LEFT - RIGHT) / len(panel.scores)
    for number, (window, by_policy) in enumerate(sorted(panel.scores.items())):
        middle = LEFT + room * (number + 0.5)
        yield f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle">{window:,} tokens</text>'
        x = middle - (len(STYLES) * (BAR + BETWEEN) - BETWEEN) / 2
        for policy, style in STYLES.items():
            yield from _draw_bar(by_policy[policy], x, style, up)
            x += BAR + BETWEEN


def _draw_bar(score: Range, x: float, style: str, up: PlotScale) -> Iterator[str]:
    top = up(100 * score.mean)
    middle = x + BAR / 2
    told = f"{100 * score.mean:.1f} % [{100 * score.low:.1f}, {100 * score.high:.1f}]"
    yield f'<rect class="{style}" x="{x}" y="{top}" width="{BAR}" height="{up(0) - top}">'
    yield f"<title>{told}</title></rect>"
    yield f'<path class="whisker" d="M{middle} {up(100 * score.low)}V{up(100 * score.high)}"/>'
    place = f'x="{middle}" y="{up(0) - 6}" text-anchor="middle"'
    yield f'<text {place} class="paper">{100 * score.mean:.0f}</text>'
