"""Draws the session of `lamina demo`, for the README: every request of it, with lamina and without.

    python -m tools.picture            says whether docs/session.svg is what the demo gives
    python -m tools.picture --write    draws it again

The figures come from `lamina demo --json`. Nothing here counts tokens or money.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lamina.cli import main as run_lamina

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "session.svg"

WIDTH, HEIGHT = 480, 424
LEFT, RIGHT, TOP, BOTTOM = 40, 16, 84, 124
"""The drawing is narrow and its letters are large, so that it can be read on a telephone."""

CUT_WIDTH = 28
"""Pixels that the word at a cut takes; it stands above the bars below it."""

GREY, RED, CACHED, NEW = "#6b7280", "#c0392b", "#2a9d8f", "#e9973f"
NAMES = {
    "drop_oldest": "dropping the oldest",
    "sliding": "a sliding window",
    "lamina": "lamina",
}


def main(words: Sequence[str]) -> int:
    drawing = draw_session(run_demo())
    if "--write" in words:
        PICTURE.write_text(drawing, encoding="utf-8")
        return 0
    if PICTURE.read_text(encoding="utf-8") == drawing:
        return 0
    print("docs/session.svg is not what `lamina demo` gives: run python -m tools.picture --write")
    return 1


def run_demo() -> dict[str, Any]:
    """What `lamina demo --json` prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        run_lamina(["demo", "--json"])
    facts: dict[str, Any] = json.loads(printed.getvalue())
    return facts


def draw_session(facts: dict[str, Any]) -> str:
    """One drawing: a line for the requests as they were, and a bar for each request under lamina."""
    outcomes = {outcome["policy"]: outcome for outcome in facts["account"]["outcomes"]}
    totals = {total["policy"]: total for total in facts["account"]["totals"]}
    plain = [point["tokens"] for point in outcomes["none"]["points"]]
    scale = _Scale(calls=len(plain), most=max(plain))
    parts = [
        _opening(facts, len(plain)),
        *_axes(scale, facts["window"]),
        *_bars(scale, outcomes["lamina"]["points"]),
        *_line(scale, plain, refused=totals["none"]["over"]),
        *_costs(totals),
        "</svg>\n",
    ]
    return "\n".join(parts)


class _Scale:
    """Where a call and a number of tokens stand in the drawing."""

    def __init__(self, *, calls: int, most: int) -> None:
        self.step = (WIDTH - LEFT - RIGHT) / calls
        self.height = HEIGHT - TOP - BOTTOM
        self.most = most
        self.calls = calls

    def x(self, call: int) -> float:
        return round(LEFT + call * self.step, 1)

    def y(self, tokens: float) -> float:
        return round(TOP + self.height * (1 - tokens / self.most), 1)


def _opening(facts: dict[str, Any], calls: int) -> str:
    title = f"{calls} requests in a window of {facts['window']:,} tokens"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="560" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'role="img" font-family="system-ui, sans-serif" font-size="14" fill="#1f2937">\n'
        f"<title>{title}</title>\n"
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>\n'
        f'<text x="16" y="28" font-size="17" font-weight="600">{title}</text>\n'
        f'<text x="16" y="48" fill="{GREY}">lamina demo, seed {facts["seed"]}: tokens of each request</text>'
    )


def _axes(scale: _Scale, window: int) -> list[str]:
    """Tokens at the left, calls below, and the room: the lab leaves an eighth of the window to the answer."""
    lines = []
    for tokens in range(0, scale.most, 20_000):
        y = scale.y(tokens)
        label = f"{tokens // 1_000}k" if tokens else "0"
        lines.append(f'<text x="{LEFT - 6}" y="{y + 5}" text-anchor="end" fill="{GREY}">{label}</text>')
        lines.append(f'<path d="M{LEFT} {y}H{scale.x(scale.calls)}" stroke="#e5e7eb"/>')
    room = window * 7 // 8
    y = scale.y(room)
    lines.append(f'<path d="M{LEFT} {y}H{scale.x(scale.calls)}" stroke="{RED}" stroke-dasharray="5 4"/>')
    lines.append(f'<text x="{LEFT + 4}" y="{y - 6}" fill="{RED}">limit {room:,}</text>')
    return lines


def _bars(scale: _Scale, points: Sequence[dict[str, Any]]) -> list[str]:
    """A bar for each request: what the cache gave below, what is new above."""
    cached, new, cuts = [], [], []
    width = round(scale.step * 0.85, 1)
    floor = scale.y(0)
    for at, point in enumerate(points):
        x, top, middle = scale.x(at), scale.y(point["tokens"]), scale.y(point["read"])
        cached.append(f"M{x} {floor}V{middle}h{width}V{floor}z")
        new.append(f"M{x} {middle}V{top}h{width}V{middle}z")
        if point["cut"]:
            left = min(x + 2, scale.x(scale.calls) - CUT_WIDTH)
            below = points[at : at + round(CUT_WIDTH / scale.step)]
            highest = scale.y(max(each["tokens"] for each in below))
            cuts.append(f'<text x="{round(left, 1)}" y="{round(highest - 6, 1)}">cut</text>')
    return [
        f'<path d="{"".join(cached)}" fill="{CACHED}"/>',
        f'<path d="{"".join(new)}" fill="{NEW}"/>',
        *cuts,
    ]


def _line(scale: _Scale, plain: Sequence[int], *, refused: int) -> list[str]:
    places = " ".join(f"{scale.x(at)},{scale.y(tokens)}" for at, tokens in enumerate(plain))
    return [
        f'<polyline points="{places}" fill="none" stroke="{GREY}" stroke-width="2"/>',
        f'<text x="{LEFT + 4}" y="{TOP + 8}" fill="{GREY}">without lamina: {refused} are too large</text>',
    ]


def _costs(totals: dict[str, dict[str, Any]]) -> list[str]:
    """The legend, and what the input costs under each policy that fits the window, below the drawing."""
    y = HEIGHT - BOTTOM + 26
    lines = [
        f'<rect x="16" y="{y - 11}" width="12" height="12" fill="{CACHED}"/>',
        f'<text x="34" y="{y}">lamina, from the cache</text>',
        f'<rect x="{WIDTH // 2}" y="{y - 11}" width="12" height="12" fill="{NEW}"/>',
        f'<text x="{WIDTH // 2 + 18}" y="{y}">lamina, new</text>',
    ]
    for policy, total in totals.items():
        if total["over"]:
            continue
        y += 24
        lost = total["needed"] - total["recallable"]
        price = total["price"]
        weight = 700 if policy == "lamina" else 400
        row = f'y="{y}" font-weight="{weight}"'
        lines.append(
            f'<text x="16" {row}>{NAMES[policy]}</text>'
            f'<text x="{WIDTH * 2 // 3}" {row} text-anchor="end">${price:.2f} input</text>'
            f'<text x="{WIDTH - 16}" {row} text-anchor="end">{lost} names lost</text>'
        )
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
