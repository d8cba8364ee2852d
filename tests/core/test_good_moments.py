"""Cuts before the trigger: only where a step of the plan ended, only above the soft mark, only if it pays."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import Budget, Ledger, build
from lamina.core.cut_target import CutLimits, Growth, Rates
from lamina.core.envelope import Envelope
from lamina.core.good_moments import (
    COMMITTED,
    OTHER_SUBJECT,
    RELEASED_NOW,
    SOFT_MARK,
    TASK_CLOSED,
    TOLERANCE,
    _price_of_step,
    allows_early_cut,
)
from lamina.core.options import Options
from lamina.core.tokens import CHARS4
from lamina.core.values import Segment
from lamina.segments import assistant, call, result, user
from tests.core.test_wishes import begin, read_step

WINDOW = 10_000
OPTIONS = Options(good_moments=True, context_tool="context")


def fill(share: float) -> list[Segment]:
    """A log that takes about this share of the window."""
    log = begin()
    number = 0
    while build(log, counter=CHARS4).tokens < share * WINDOW:
        number += 1
        log += read_step(number, words=40)
    return log


def use(name: str, arguments: dict[str, Any], text: str = "done", *, error: bool = False) -> list[Segment]:
    id_ = f"u-{name}-{sorted(arguments)}-{len(str(arguments))}"
    return [
        assistant("Next."),
        call(name, arguments, id=id_),
        result(text, id=id_, name=name, error=error),
    ]


def fit(log: list[Segment], options: Options = OPTIONS, ledger: Ledger | None = None) -> Envelope:
    budget = Budget(window=WINDOW, reserve=0)
    return build(log, budget=budget, counter=CHARS4, options=options, ledger=ledger)


def todos(*statuses: str) -> dict[str, Any]:
    return {"todos": [{"content": f"item {at}", "status": status} for at, status in enumerate(statuses)]}


def plan(*statuses: str) -> dict[str, Any]:
    return {"plan": [{"step": f"item {at}", "status": status} for at, status in enumerate(statuses)]}


ENDS = {
    "commit": (use("Bash", {"command": "git commit -m 'x'"}), COMMITTED),
    "task": (use("TaskUpdate", {"taskId": "1", "status": "completed"}), TASK_CLOSED),
    "todo": (
        [
            *use("TodoWrite", todos("in_progress", "pending")),
            *use("TodoWrite", todos("completed", "in_progress")),
        ],
        TASK_CLOSED,
    ),
    "plan": ([*use("update_plan", plan("in_progress")), *use("update_plan", plan("completed"))], TASK_CLOSED),
    "released": (
        [
            call("context", {"action": "release", "what": "line 1 of the file"}, id="x"),
            result("released: it", id="x", name="context"),
        ],
        RELEASED_NOW,
    ),
    "subject": (
        [
            assistant("Reviewed."),
            user("Please write an invitation for Saturday evening, with music, cake and lanterns."),
        ],
        OTHER_SUBJECT,
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_cut_is_made_where_a_step_of_the_plan_ended(name: str) -> None:
    end, reason = ENDS[name]
    log = [*fill(0.75), *end]
    envelope = fit(log)
    assert envelope.cut is not None
    assert envelope.cut.reason == reason
    assert fit(log, Options(context_tool="context")).cut is None


@pytest.mark.parametrize("name", ENDS)
def test_below_the_soft_mark_nothing_is_cut(name: str) -> None:
    end, _ = ENDS[name]
    assert fit([*fill(0.4), *end]).cut is None


NO_ENDS = {
    "a failed commit": use("Bash", {"command": "git commit -m 'x'"}, "hook failed", error=True),
    "a task begun": use("TaskUpdate", {"taskId": "1", "status": "in_progress"}),
    "the same list again": [
        *use("TodoWrite", todos("completed", "pending")),
        *use("TodoWrite", todos("completed", "in_progress")),
    ],
    "a result that speaks of a commit": use("Bash", {"command": "git log"}, "git commit; a task was closed"),
    "a status of something else": use("http", {"status": "completed"}),
    "arguments that are no object": [
        call("TodoWrite", "[1]", id="y"),
        result("ok", id="y", name="TodoWrite"),
    ],
    "a short prompt": [assistant("Reviewed."), user("Go on, please.")],
    "the same subject": [
        assistant("Reviewed."),
        user("Review the files again, and look for functions that nobody calls any more."),
    ],
    "a commit that is past": [*use("Bash", {"command": "git commit -m 'x'"}), *use("ls", {"path": "."})],
}


@pytest.mark.parametrize("name", NO_ENDS)
def test_other_moments_are_none(name: str) -> None:
    assert fit([*fill(0.75), *NO_ENDS[name]]).cut is None


def test_after_an_early_cut_the_prefix_stands_and_the_trigger_still_holds() -> None:
    log = [*fill(0.75), *ENDS["commit"][0]]
    before = fit(log)
    number = 500
    early_cuts = len(before.ledger.cuts)
    while len(before.ledger.cuts) == early_cuts:
        number += 1
        log += read_step(number, words=40)
        after = fit(log, ledger=before.ledger)
        if after.cut is None:
            sent = [entry.sent for entry in before.lasting]
            assert [entry.sent for entry in after.sent][: len(sent)] == sent
        before = after
    assert before.cut is not None
    assert before.cut.reason == "over the trigger"


def test_where_writing_the_cache_is_dear_the_cut_waits() -> None:
    """A model that reads for almost nothing and writes for much is cut as seldom as possible."""
    log = [*fill(0.75), *ENDS["commit"][0]]
    dear = msgspec.structs.replace(OPTIONS, rates=Rates(read=0.001, write=2.0))
    assert fit(log, dear).cut is None


@given(
    room=st.integers(2_000, 1_000_000),
    share=st.floats(0.0, 1.0),
    target=st.floats(0.1, 0.9),
    fixed=st.floats(0.0, 0.5),
    growth=st.integers(0, 50_000),
    read=st.floats(0.0, 1.0),
    write=st.floats(0.0, 3.0),
)
def test_an_early_cut_never_costs_more_than_its_tolerance(
    *, room: int, share: float, target: float, fixed: float, growth: int, read: float, write: float
) -> None:
    limits = CutLimits(
        room=room,
        trigger=room * 95 // 100,
        target=int(room * target),
        least=room // 5,
        fixed=int(room * fixed),
    )
    tokens = int(room * share)
    rates = Rates(read=read, write=write)
    grown = Growth(tokens=growth)
    if allows_early_cut(tokens, limits, rates, grown):
        assert tokens * 100 >= room * SOFT_MARK
        assert tokens - limits.target >= limits.least
        early = _price_of_step(tokens, limits, rates, grown)
        late = _price_of_step(limits.trigger, limits, rates, grown)
        assert early <= late * (100 + TOLERANCE) / 100 + 1e-6
