"""What a cache lost, why, who did it and what it cost: the one function that every room asks."""

from __future__ import annotations

from typing import Any

import pytest

from lamina.caches import Tally
from lamina.conversations.lost_caches import (
    PaidCall,
    count_losses,
    explain_by_bytes,
    find_loss,
    find_losses,
)
from lamina.conversations.record import CutNote
from lamina.core.epochs import TOOLS_CHANGED
from lamina.diagnose import Difference

MODEL = "claude-opus-4-6"


def answered(read: int, written: int, **fields: Any) -> PaidCall:
    return PaidCall(tally=Tally(read=read, written=written), model=MODEL, **fields)


def cut_from(before: int, after: int, *, reason: str = "over the trigger", lowered: int = 3) -> CutNote:
    return CutNote(number=1, reason=reason, before=before, after=after, lowered=lowered)


def test_a_cut_of_lamina_is_no_lost_cache_and_says_what_it_cost_and_saved() -> None:
    """The request after the cut is shorter, which by amounts alone would be the client's doing."""
    calls = [
        answered(0, 20_000),
        answered(2_000, 6_000, cut=cut_from(22_000, 8_000)),
        answered(8_000, 1_000),
        answered(9_000, 1_000),
        answered(2_000, 6_000, cut=cut_from(22_000, 8_000)),
    ]
    first, second = find_losses(calls)
    assert (first.by, first.cause, first.why) == ("lamina", "cut", "lamina made a cut: over the trigger")
    assert (first.call, first.tokens) == (2, 6_000)
    one_read = calls[0].price(Tally(read=14_000))
    assert one_read is not None
    assert first.saved == pytest.approx(3 * one_read), "three requests until the next cut"
    assert second.saved == pytest.approx(2 * one_read), "what the first one left out stays left out"
    assert first.dollars == pytest.approx(second.dollars)
    assert count_losses([first, second]) == 0


def test_a_cut_saved_what_nothing_cut_would_have_cost_more() -> None:
    """Where the record tells what each request would have cost, the savings of all cuts are that sum."""
    calls = [
        answered(0, 20_000, saving=0.0),
        answered(2_000, 6_000, cut=cut_from(22_000, 8_000), saving=-0.02),
        answered(8_000, 1_000, saving=0.03),
        answered(9_000, 1_000, saving=0.04),
        answered(2_000, 6_000, cut=cut_from(22_000, 8_000), saving=-0.01),
    ]
    saved = sum((loss.saved or 0.0) - (loss.dollars or 0.0) for loss in find_losses(calls))
    assert saved == pytest.approx(0.04)


def test_what_the_caller_changed_is_a_loss_of_the_client() -> None:
    changed = cut_from(0, 0, reason=TOOLS_CHANGED, lowered=0)
    [loss] = find_losses([answered(0, 20_000), answered(0, 21_000, cut=changed)])
    assert (loss.by, count_losses([loss])) == ("client", 1)


@pytest.mark.parametrize(
    ("difference", "by", "cause"),
    [
        (Difference(cause="system changed", at=0, sentence="it changed"), "client", "system changed"),
        (Difference(cause="expired", at=0, sentence="too late"), "expiry", "expired"),
        (Difference(cause="none", at=9), "provider", "forgotten"),
    ],
)  # fmt: skip
def test_the_bytes_say_who_it_was(difference: Difference, by: str, cause: str) -> None:
    loss = find_loss([answered(0, 20_000)], answered(0, 21_000))
    assert loss is not None
    assert loss.by == "unknown"
    explained = explain_by_bytes(loss, difference)
    assert (explained.by, explained.cause) == (by, cause)
    assert (explained.tokens, explained.dollars) == (loss.tokens, loss.dollars)


def test_the_bytes_do_not_take_a_cut_for_a_change_of_the_client() -> None:
    """With its first cut lamina adds its recall tool, and from the second on the bytes say "lowered"."""
    loss = find_loss([answered(0, 20_000)], answered(0, 8_000, cut=cut_from(20_000, 8_000)))
    assert loss is not None
    assert explain_by_bytes(loss, Difference(cause="tool added", at=0, sentence="a tool was added")) is loss


def test_only_what_was_held_can_be_lost() -> None:
    """The first request wrote its head alone, and the second reads that."""
    first = PaidCall(tally=Tally(written=5_000, uncached=15_000), model=MODEL)
    second = PaidCall(tally=Tally(read=5_000, uncached=16_000), model=MODEL)
    assert find_losses([first, second]) == []


def test_a_model_without_price_and_cache_loses_nothing() -> None:
    calls = [PaidCall(tally=Tally(uncached=9_000), model="nobody-knows-1") for _ in range(2)]
    assert find_losses(calls) == []
