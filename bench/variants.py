"""lamina with one thing changed, as policies for the lab and for `talks.py` and `policies.py`.

`bench/policies.py PATH... --policies lamina,bench.variants:releases` compares one with lamina as it is by
default. `releases` plays a model with the context tool: when a recorded session closes a task of its list,
the results since the task before it are released, as if the model had asked for it. `no_reminders` brings
nothing back by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from lamina.core.ladder import ladder
from lamina.core.orders import Batch, OrderView
from lamina.core.text.json_text import DEEPEST_ARGUMENTS, decode_json
from lamina.core.values import Entry, ToolCall, ToolResult
from lamina.replay.policies.lamina_policies import LaminaRun
from lamina.replay.policies.port import PolicyRun, ReplayPolicy, Setting

_DONE = frozenset(("completed", "complete", "done", "closed"))
"""What agents write as the status of a task that is over."""

_LISTS = ("todos", "plan", "items", "tasks")
"""Where a call that writes a whole list of tasks has it."""


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


def closes_task(call: ToolCall, earlier: Sequence[Entry]) -> bool:
    """Whether a call closes a task: it says so of one task, or its list has one more that is done."""
    arguments = _read_object(call.arguments)
    if arguments.get("status") in _DONE and any("id" in name.lower() for name in arguments):
        return True
    done = _count_done(arguments)
    if not done:
        return False
    for entry in reversed(earlier):
        before = entry.asked
        if before is None or before.name != call.name:
            continue
        if before.id != call.id:
            return done > _count_done(_read_object(before.arguments))
    return True


def _count_done(arguments: Mapping[str, Any]) -> int:
    for name in _LISTS:
        tasks = arguments.get(name)
        if isinstance(tasks, list):
            return sum(isinstance(task, dict) and task.get("status") in _DONE for task in tasks)
    return 0


def _read_object(text: str) -> dict[str, Any]:
    value = decode_json(text, deepest=DEEPEST_ARGUMENTS)
    if isinstance(value, dict):
        return value
    return {}


def begins_with_result(entry: Entry) -> bool:
    """Whether a tool returned this."""
    return bool(entry.segment.parts) and isinstance(entry.segment.parts[0], ToolResult)


def _names_tasks(name: str) -> bool:
    return "todo" in name.lower() or name in ("TaskCreate", "TaskUpdate", "update_plan")


def start_with(setting: Setting, **changes: Any) -> PolicyRun:
    """A run under the default policy, but for these fields of it."""
    run = LaminaRun(setting)
    run.policy = msgspec.structs.replace(run.policy, **changes)
    return run


releases = ReplayPolicy(
    name="releases",
    title="lamina, finished tasks are released",
    start=partial(start_with, order=release_finished),
    recalls=True,
    by_rules=True,
)

no_reminders = ReplayPolicy(
    name="no reminders", title="lamina without reminders", start=partial(start_with, remind="off")
)
