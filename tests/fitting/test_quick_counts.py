"""A slow counter counts a request only if it may be near its window, and then it decides as it always did."""

from __future__ import annotations

from typing import Any

import msgspec

from lamina import Ledger, Policy, fit_request
from lamina.core import Counter
from lamina.fitting.request import FAR

COUNTED: list[str] = []


def count_slowly(text: str) -> int:
    COUNTED.append(text)
    return len(text) // 4


QUICK = Counter(name="quick", count=lambda text: len(text) // 3)
EXACT = Counter(name="slow", count=count_slowly)
SLOW = msgspec.structs.replace(EXACT, quick=QUICK)

WORDS = "one two three four five six seven eight nine ten "


def ask(turns: int, words: int = 100) -> dict[str, Any]:
    messages = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"Question {turn}. {WORDS * words}"})
        messages.append({"role": "assistant", "content": f"Answer {turn}. {WORDS * words}"})
    return {"model": "gpt-5", "messages": [*messages, {"role": "user", "content": "And now?"}]}


def fit(request: dict[str, Any], counter: Counter, window: int, ledger: Ledger | None = None) -> Any:
    COUNTED.clear()
    return fit_request(request, ledger=ledger, policy=Policy(counter=counter), budget=window)


def test_a_request_far_from_its_window_is_not_counted_slowly() -> None:
    fitted = fit(ask(10), SLOW, 400_000)
    assert fitted.envelope.tokens > FAR
    assert COUNTED == []


def test_a_short_request_and_one_near_its_window_are() -> None:
    for request, window in ((ask(1), 400_000), (ask(10), 36_000)):
        slow = fit(request, SLOW, window)
        assert COUNTED
        exact = fit(request, EXACT, window)
        assert slow.request == exact.request
        assert slow.ledger == exact.ledger


def test_what_is_sent_does_not_depend_on_who_counted() -> None:
    """Also for a conversation that grows from far to near and over the window."""
    slow_ledger = exact_ledger = None
    was_quick = was_cut = False
    for turns in range(1, 40, 3):
        slow = fit(ask(turns), SLOW, 60_000, slow_ledger)
        was_quick = was_quick or not COUNTED
        exact = fit(ask(turns), EXACT, 60_000, exact_ledger)
        assert slow.request == exact.request
        was_cut = was_cut or slow.envelope.cut is not None
        slow_ledger, exact_ledger = slow.ledger, exact.ledger
    assert was_quick
    assert was_cut
