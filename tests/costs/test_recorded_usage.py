from __future__ import annotations

from typing import Any

import pytest

from lamina.costs import RecordedUsage, Request, Trace, price_trace
from lamina.models import model


def trace(*used: RecordedUsage, compacted: tuple[int, ...] = (), **fields: Any) -> Trace:
    """A trace whose answers stand at 1, 3, 5 and so on."""
    items = [{"role": role, "content": "a"} for _ in used for role in ("user", "assistant")]
    taken = {2 * number + 1: each for number, each in enumerate(used)}
    named = {"model": "claude-opus-4-6", "dialect": "anthropic"} | fields
    return Trace(id="t", place="f:1", items=items, used=taken, compacted=compacted, source="s", **named)


def call(read: int, rest: int = 1_000, *, at: float | None = None) -> RecordedUsage:
    return RecordedUsage(read=read, written=rest, output=10, at=at)


def find_losses(*used: RecordedUsage, compacted: tuple[int, ...] = ()) -> dict[int, Request]:
    """The rows that lost a cache, by their number from 1."""
    rows = price_trace(trace(*used, compacted=compacted))
    return {number: row for number, row in enumerate(rows, start=1) if row.lost}


def test_what_was_reported_is_a_row() -> None:
    rows = price_trace(
        trace(RecordedUsage(uncached=1, read=2, written=3, output=4), RecordedUsage(uncached=10, read=20))
    )
    assert [(row.conversation, row.client) for row in rows] == [("t", "s")] * 2
    assert [(row.tokens, row.read, row.written, row.output) for row in rows] == [(6, 2, 3, 4), (30, 20, 0, 0)]


def test_dollars_are_the_models_own_prices() -> None:
    prices = model("claude-opus-4-6").prices
    [told] = price_trace(trace(RecordedUsage(uncached=1_000, read=2_000, written=3_000, output=400)))
    parts = ((1_000, prices.input), (2_000, prices.read), (3_000, prices.write), (400, prices.output))
    assert told.dollars == pytest.approx(sum(tokens * (price or 0) for tokens, price in parts) / 1e6)


@pytest.mark.parametrize("name", ["", "nobody-knows-1"])
def test_a_model_without_prices_has_no_dollars(name: str) -> None:
    [told] = price_trace(trace(call(0), model=name))
    assert told.dollars is None


def test_a_trace_without_usage_says_nothing() -> None:
    assert price_trace(trace()) == []


def test_a_cache_that_was_read_is_not_lost() -> None:
    assert find_losses(call(0, 10_000), call(10_000), call(11_000)) == {}


@pytest.mark.parametrize(
    ("calls", "compacted", "why"),
    [
        ((call(0, 50_000), call(40_000, 11_000), call(5_000, 7_000)), (4,), "the client compacted"),
        ((call(0, 50_000, at=0), call(50_000, at=10), call(0, 52_000, at=800)), (),
         "idle for 13 minutes, past the lifetime of 5 minutes"),
        ((call(0, 50_000), call(50_000), call(5_000, 20_000)), (), "less was sent than before"),
        ((call(0, 50_000), call(50_000), call(0, 52_000)), (), "nothing was read"),
        ((call(9_000, 3_000), call(12_000, 40_000), call(12_000, 41_000)), (), "only the head was read"),
        ((call(9_000, 3_000), call(12_000, 90_000), call(20_000, 83_000)), (), "only a part of the messages"),
    ],
)  # fmt: skip
def test_a_loss_has_its_number_its_tokens_and_a_reason(
    calls: tuple[RecordedUsage, ...], compacted: tuple[int, ...], why: str
) -> None:
    loss = find_losses(*calls, compacted=compacted)[3]
    assert why in loss.why
    assert loss.lost == min(calls[1].total, calls[2].total) - calls[2].read


def test_where_no_call_ever_read_it_says_so() -> None:
    losses = find_losses(call(0, 9_000), call(0, 10_000), call(0, 11_000))
    assert [(number, loss.why) for number, loss in losses.items()] == [
        (2, "no call of it had read anything"), (3, "no call of it had read anything"),
    ]  # fmt: skip


def test_less_than_the_provider_caches_cannot_be_lost() -> None:
    assert find_losses(call(0, 900), call(0, 1_000)) == {}


def test_the_first_call_loses_nothing() -> None:
    assert find_losses(call(0, 90_000)) == {}
