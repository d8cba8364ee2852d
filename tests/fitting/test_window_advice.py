"""A window that is too small for its work is named once, with a number that is large enough."""

from __future__ import annotations

from typing import Any

import pytest

from lamina import Budget, fit_request
from lamina.fitting.fitted import Fitted


def play(
    *, window: int, results: list[int], system: str = "Be brief.", reserve: int = 500
) -> list[tuple[Fitted, str]]:
    """Each request of a loop whose tool returns so many words, with what was advised after it."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": system},
        {"role": "user", "content": "Read on."},
    ]
    ledger = None
    played: list[tuple[Fitted, str]] = []
    for number, size in enumerate(results):
        function = {"name": "read", "arguments": f'{{"page": {number}}}'}
        call = {"id": f"c{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        text = " ".join(f"word{number}x{at}" for at in range(size))
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": text})
        request = {"model": "gpt-4o", "messages": list(messages)}
        fitted = fit_request(request, budget=Budget(window=window, reserve=reserve), ledger=ledger)
        ledger = fitted.ledger
        advice = fitted.window_advice
        played.append((fitted, advice.reason if advice else ""))
    return played


def given(played: list[tuple[Fitted, str]]) -> list[str]:
    return [reason for _, reason in played if reason]


def test_a_window_with_room_gets_no_advice() -> None:
    played = play(window=16_000, results=[120] * 60)
    assert len(played[-1][0].ledger.cuts) > 0
    assert given(played) == []


def test_own_text_that_fills_the_window_is_named_once() -> None:
    system = "Rule: " + " ".join(f"rule{at}" for at in range(1_200))
    played = play(window=6_000, system=system, results=[100] * 60)
    assert given(played).count("own text") == 1


def test_one_result_that_fills_the_window_is_named() -> None:
    played = play(window=4_000, results=[20] * 30 + [450] + [20] * 8)
    assert "one result" in given(played)


def test_many_cuts_are_named_with_twice_the_window() -> None:
    played = play(window=4_000, results=[300] * 12)
    assert given(played).count("many cuts") == 1
    [advised] = [fitted.window_advice for fitted, reason in played if reason == "many cuts"]
    assert advised is not None
    assert advised.window == 8_000
    assert "3 cuts in " in str(advised)


@pytest.mark.parametrize("results", [[300] * 12, [20] * 30 + [450] + [20] * 8])
def test_the_advised_window_is_large_enough(results: list[int]) -> None:
    played = play(window=4_000, results=results)
    advice = next(fitted.window_advice for fitted, reason in played if reason)
    assert advice is not None
    assert advice.reason not in given(play(window=advice.window, results=results))
