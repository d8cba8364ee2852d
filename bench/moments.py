"""Cuts where a step of the plan ended, and a model that releases what it is done with: policies for the lab.

`bench/policies.py PATH... --policies lamina,bench.moments:moments,bench.moments:releases` compares them with
lamina as it is by default. `moments` is `Policy(good_moments=True)`. `releases` plays a model with the
context tool: when a recorded session closes a task of its list, the results since the task before it are
released, as if the model had asked for it. `both` does the two together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from lamina.core.good_moments import closes_task
from lamina.core.ladder import ladder
from lamina.core.orders import Batch, Order, OrderView
from lamina.core.values import Entry, ToolResult
from lamina.replay.policies.lamina_policies import LaminaRun
from lamina.replay.policies.port import PolicyRun, ReplayPolicy, Setting


def release_finished(view: OrderView) -> Iterator[Batch]:
    """The usual order, in which the results of finished tasks count as released."""
    return ladder(msgspec.structs.replace(view, released=find_finished(view.entries)))


def find_finished(entries: Sequence[Entry]) -> frozenset[int]:
    """The positions of results that led to a task which is closed by now."""
    finished: set[int] = set()
    since_close: list[int] = []
    has_list = False
    for at, entry in enumerate(entries):
        if entry.asked is None:
            continue
        if closes_task(entry.asked, entries[:at]):
            finished.update(since_close)
            since_close = []
            has_list = True
        elif _names_tasks(entry.asked.name):
            has_list = True
        elif has_list and begins_with_result(entry):
            since_close.append(at)
    return frozenset(finished)


def begins_with_result(entry: Entry) -> bool:
    """Whether a tool returned this."""
    return bool(entry.segment.parts) and isinstance(entry.segment.parts[0], ToolResult)


def _names_tasks(name: str) -> bool:
    return "todo" in name.lower() or name in ("TaskCreate", "TaskUpdate", "update_plan")


def _make_policy(name: str, title: str, *, order: Order | None = None, **changes: Any) -> ReplayPolicy:
    def start(setting: Setting) -> PolicyRun:
        run = LaminaRun(setting, target=None, prefer="balanced")
        run.policy = msgspec.structs.replace(run.policy, order=order, **changes)
        return run

    return ReplayPolicy(name=name, title=title, start=start, recalls=True, by_rules=True)


moments = _make_policy("moments", "lamina, cuts where a step of the plan ended", good_moments=True)
releases = _make_policy("releases", "lamina, finished tasks are released", order=release_finished)
both = _make_policy("releases_moments", "lamina, both of them", order=release_finished, good_moments=True)
