"""Policies for `lamina replay` and `policies.py`: lamina with the working window of each preference.

    lamina replay PATH... --window 1000000 --rules anthropic \
        --policy none,lamina,bench.working_window:BALANCED,bench.working_window:COST

`lamina replay` adds the system text and tools that the first request of a session had and its records do not
hold. A working window is above these, so it makes a difference here.
"""

from __future__ import annotations

import msgspec

from lamina.caches import rates
from lamina.core.cut_target import choose_working
from lamina.core.values import Preference
from lamina.replay.policies.lamina_policies import LaminaRun
from lamina.replay.policies.port import PolicyRun, ReplayPolicy, Setting


def by_price(prefer: Preference) -> ReplayPolicy:
    """What `lamina run --prefer` does."""

    def start(setting: Setting) -> PolicyRun:
        run = LaminaRun(setting, prefer=prefer)
        working = choose_working(rates(setting.rules, setting.model), prefer)
        budget = msgspec.structs.replace(run.policy.budget, working=working)  # type: ignore[type-var]
        run.policy = msgspec.structs.replace(run.policy, budget=budget)
        return run

    name = f"by price, {prefer}"
    return ReplayPolicy(name=name, title=f"lamina, {name}", start=start, recalls=True, by_rules=True)


MEMORY = by_price("memory")
BALANCED = by_price("balanced")
COST = by_price("cost")
