"""The offline oracle: the cheapest schedule of cuts for a conversation whose future is known.

    Ground ──▶ Left, one for each call and depth ──▶ Paths ──▶ Schedule ──▶ played ──▶ compared

A schedule says at which calls a cut is made and to which share of the room. It is found by dynamic
programming over a simple model of a cache, then played for real, with lamina's own order of lowering, and
judged like every other policy. docs/planner.md derives what the planner takes from it.
"""

from __future__ import annotations

from lamina.replay.oracle.compared import Compared, compared
from lamina.replay.oracle.frontier import Shown, cost_at
from lamina.replay.oracle.ground import Ground, Left
from lamina.replay.oracle.paths import Paths, Schedule
from lamina.replay.oracle.scheduled import scheduled
from lamina.replay.oracle.tariff import Tariff

__all__ = [
    "Compared",
    "Ground",
    "Left",
    "Paths",
    "Schedule",
    "Shown",
    "Tariff",
    "compared",
    "cost_at",
    "scheduled",
]
