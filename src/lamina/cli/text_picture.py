"""Draws a session for a terminal: what was sent, under the line of what would have been sent without lamina.

          ----  61,300 without lamina
   -------
▂▄▆▄▅▆▇▂▃▄▅▆
   ✂    ✂
"""

from __future__ import annotations

from collections.abc import Sequence

WIDTH = 48
HEIGHT = 7
LEVELS = " ▁▂▃▄▅▆▇█"
LINE = "-"


def draw_session(sent: Sequence[int], whole: Sequence[int], cuts: Sequence[int]) -> list[str]:
    """The lines of the picture: sizes of requests in tokens, and the numbers of those with a cut, from 0.

    Of several requests in one column the largest is drawn.
    """
    columns = min(len(sent), WIDTH)
    groups = [range(at * len(sent) // columns, (at + 1) * len(sent) // columns) for at in range(columns)]
    largest = max(whole)
    eighths = HEIGHT * (len(LEVELS) - 1)
    bars = [round(max(sent[at] for at in group) * eighths / largest) for group in groups]
    line = [round(max(whole[at] for at in group) * eighths / largest) for group in groups]
    rows: list[str] = []
    for row in reversed(range(HEIGHT)):
        base = row * (len(LEVELS) - 1)
        cells = ""
        for bar, mark in zip(bars, line, strict=True):
            filled = min(max(bar - base, 0), len(LEVELS) - 1)
            cell = LEVELS[filled]
            if not filled and base < mark <= base + len(LEVELS) - 1:
                cell = LINE
            cells += cell
        rows.append(f"  {cells}")
    rows = [rows[0], *(row.rstrip(" ") for row in rows[1:])]
    rows[0] += f" {whole[-1]:,} tokens without lamina"
    marks = "".join(" ✂"[any(at in cuts for at in group)] for group in groups)
    return [*rows, f"  {marks}".rstrip(" ")]
