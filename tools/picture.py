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

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 64, 180, 74, 46
CUT_WIDTH = 34
"""Pixels that the words at a cut take; they stand above the bars below them."""

GREY, RED, CACHED, NEW = "#6b7280", "#c0392b", "#2a9d8f", "#e9973f"
NAMES = {
    "none": "untouched",
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
    title = f"{calls} requests of one agent session, in a window of {facts['window']:,} tokens"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="#1f2937">\n'
        f"<title>{title}</title>\n"
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>\n'
        f'<text x="24" y="30" font-size="16" font-weight="600">{title}</text>\n'
        f'<text x="24" y="50" fill="{GREY}">from lamina demo, seed {facts["seed"]}; '
        "tokens of each request</text>"
    )


def _axes(scale: _Scale, window: int) -> list[str]:
    """Tokens at the left, calls below, and the room: the lab leaves an eighth of the window to the answer."""
    lines = []
    for tokens in range(0, scale.most, 10_000):
        y = scale.y(tokens)
        lines.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end" fill="{GREY}">{tokens:,}</text>')
        lines.append(f'<path d="M{LEFT} {y}H{scale.x(scale.calls)}" stroke="#e5e7eb"/>')
    room = window * 7 // 8
    y = scale.y(room)
    lines.append(f'<path d="M{LEFT} {y}H{scale.x(scale.calls)}" stroke="{RED}" stroke-dasharray="5 4"/>')
    lines.append(f'<text x="{LEFT + 6}" y="{y - 6}" fill="{RED}">a request may have {room:,}</text>')
    below = HEIGHT - BOTTOM + 18
    calls = [
        f'<text x="{scale.x(call)}" y="{below}" text-anchor="middle" fill="{GREY}">{call}</text>'
        for call in (1, 50, 100, scale.calls)
    ]
    return lines + calls


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
            below = points[at : at + round(CUT_WIDTH / scale.step)]
            highest = scale.y(max(each["tokens"] for each in below))
            cuts.append(f'<text x="{x + 2}" y="{round(highest - 6, 1)}">a cut</text>')
    return [
        f'<path d="{"".join(cached)}" fill="{CACHED}"/>',
        f'<path d="{"".join(new)}" fill="{NEW}"/>',
        *cuts,
    ]


def _line(scale: _Scale, plain: Sequence[int], *, refused: int) -> list[str]:
    places = " ".join(f"{scale.x(at)},{scale.y(tokens)}" for at, tokens in enumerate(plain))
    x = scale.x(len(plain))
    return [
        f'<polyline points="{places}" fill="none" stroke="{GREY}" stroke-width="2"/>',
        f'<text x="{x + 8}" y="{scale.y(plain[-1]) + 10}" fill="{GREY}" font-weight="600">untouched:</text>',
        f'<text x="{x + 8}" y="{scale.y(plain[-1]) + 26}" fill="{RED}">{refused} requests too large</text>',
    ]


def _costs(totals: dict[str, dict[str, Any]]) -> list[str]:
    """The legend, and what the input costs under each policy that fits the window."""
    x, y = WIDTH - RIGHT + 8, HEIGHT - BOTTOM - 148
    lines = [
        f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{NEW}"/>',
        f'<text x="{x + 18}" y="{y}">lamina: new</text>',
        f'<rect x="{x}" y="{y + 10}" width="12" height="12" fill="{CACHED}"/>',
        f'<text x="{x + 18}" y="{y + 20}">lamina: from the cache</text>',
        f'<text x="{x}" y="{y + 54}" font-weight="600">input cost, gpt-5</text>',
    ]
    y += 74
    for policy, total in totals.items():
        if total["over"]:
            continue
        dollars = total["dollars"] * (1 + total["recall_equivalents"] / total["equivalents"])
        weight = 700 if policy == "lamina" else 400
        lines.append(
            f'<text x="{x}" y="{y}" font-weight="{weight}">{NAMES[policy]}</text>'
            f'<text x="{WIDTH - 16}" y="{y}" text-anchor="end" font-weight="{weight}">${dollars:.2f}</text>'
        )
        y += 18
    lines.append(f'<text x="{x}" y="{y + 4}" fill="{GREY}">recalls are included</text>')
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
