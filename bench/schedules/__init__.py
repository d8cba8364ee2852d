"""The offline oracle: the cheapest schedule of cuts for a conversation whose future is known.

    Ground ──▶ Left, one for each call and depth ──▶ Paths ──▶ Schedule ──▶ played ──▶ compared

A schedule says at which calls a cut is made and to which share of the room. It is found by dynamic
programming over a simple model of a cache, then played for real, with lamina's own order of lowering, and
judged like every other policy. notes/planner.md derives what the planner takes from it.
"""

from __future__ import annotations

from bench.schedules.compared import Compared, compared
from bench.schedules.frontier import Shown, cost_at
from bench.schedules.ground import Ground, Left
from bench.schedules.paths import Paths, Schedule
from bench.schedules.scheduled import scheduled
from bench.schedules.tariff import Tariff

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
