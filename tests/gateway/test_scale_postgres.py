"""The tool that kills a gateway and a database says whether any request met that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("psycopg")

from tools.scale_postgres import FAULTS, GATEWAY_KILLED, PRIMARY_KILLED, Run, list_complaints

pytestmark = pytest.mark.anyio


def make_run(*waits: tuple[float, float]) -> Run:
    """A run with these requests (when each began, and how long it took) and two faults of a second each."""
    run = Run(len(waits))
    run.waits = list(waits)
    run.faults = {GATEWAY_KILLED: 10.0, PRIMARY_KILLED: 20.0}
    run.mended = {GATEWAY_KILLED: 11.0, PRIMARY_KILLED: 21.0}
    return run


@pytest.mark.parametrize(
    ("wait", "met"),
    [
        ((9.0, 0.5), 0),
        ((9.0, 1.5), 1),
        ((10.2, 0.1), 1),
        ((10.9, 5.0), 1),
        ((9.0, 9.0), 1),
        ((11.1, 5.0), 0),
    ],
)
def test_a_request_met_a_fault_if_it_was_under_way_before_the_end(
    wait: tuple[float, float], met: int
) -> None:
    assert make_run(wait).count_met(GATEWAY_KILLED) == met


async def test_no_more_requests_begin_than_are_allowed() -> None:
    async def begin(run: Run) -> None:
        for _ in range(3):
            await run.take_turn()

    run = Run(6)
    run.allowed = 4
    clients = asyncio.gather(begin(run), begin(run))
    await asyncio.sleep(0.1)
    begun = [run.begun]
    run.allowed = run.total
    await clients
    assert [*begun, run.begun] == [4, 6]


def describe(run: Run, **figures: Any) -> dict[str, Any]:
    outcome = {"conversations": 2, "lost": 0, "two_versions": 0, "other_bytes": 0, "stored_cut": 2}
    return {**outcome, **figures, "faults": {fault: run.describe_fault(fault) for fault in run.faults}}


def test_a_run_that_met_both_faults_has_no_complaints() -> None:
    assert list_complaints(describe(make_run((10.5, 0.2), (20.5, 3.0)))) == []


def test_a_run_whose_requests_all_ended_before_a_fault_is_refused() -> None:
    (complaint,) = list_complaints(describe(make_run((10.5, 0.2), (12.0, 1.0))))
    assert complaint.startswith(f"no request met this fault: {PRIMARY_KILLED}")


def test_a_fault_that_never_happened_is_refused() -> None:
    run = make_run((10.5, 0.2))
    run.faults.clear()
    assert len(list_complaints(describe(run))) == len(FAULTS)


def test_what_went_wrong_is_named() -> None:
    run = make_run((10.5, 0.2), (20.5, 3.0))
    assert list_complaints(describe(run, lost=1, stored_cut=1)) == [
        "lost is 1, and should be 0",
        "stored_cut is 1, and should be 2",
    ]
