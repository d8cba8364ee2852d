"""A sample of `bench/replay.py`: generated sessions through `fit_request`, whole and damaged, all checked."""

from __future__ import annotations

import pytest

from bench.replay import generated, session
from lamina.dialects import DIALECTS

BROKEN = ("unconverted", "invalid", "over", "moved", "inexact", "unlawful", "lost", "refused", "exceeded")


@pytest.mark.parametrize("harm", [False, True], ids=["whole", "damaged"])
@pytest.mark.parametrize("window", [16_000, pytest.param(32_000, marks=pytest.mark.thorough)])
def test_sessions_keep_every_promise(window: int, *, harm: bool) -> None:
    for seed, row in enumerate(generated(range(3))):
        found = session(row, window, harm=harm, seed=seed)
        assert found["calls"] > 10
        assert {name: found[name] for name in BROKEN if found[name]} == {}
        if not harm:
            assert found["shallow"] == found["edits"] == 0


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_session_keeps_every_promise_in_every_dialect(dialect: str) -> None:
    [row] = generated([7])
    found = session(row, 16_000, into=dialect, every=3)
    assert found["cuts"] > 0
    assert {name: found[name] for name in BROKEN if found[name]} == {}
