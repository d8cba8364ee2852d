"""Which old results a digest quotes as a whole: those that the model's later calls still ask about."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from lamina import Policy, fit_request
from lamina.core.used_results import LONGEST, MOST_RESULTS, _find_shared, _ShortResult
from tests.dialects.wires import WIRES, Call, Result

LIST = "Buy for the party: lanterns, cardamom, paper cups, a corkscrew and birch logs. Pay in cash."
SHOPS = "A shop on the corner sells stamps and envelopes, and is shut on Mondays at noon."


def ask(shown: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """A conversation of calls, each with what it returned."""
    wire = WIRES["openai_chat"]
    messages = [wire.ask("Prepare the party.")]
    for number, (asked, answer) in enumerate(shown):
        messages += wire.call([Call(f"call_{number}", "act", {"action": asked})])
        messages += wire.answer([Result(f"call_{number}", "", answer)])
    return wire.request(messages)


def play(*, used: bool, answer: str = LIST) -> list[tuple[str, str]]:
    steps = [("read the note", answer), ("look at the corner", SHOPS)]
    wanted = ["lanterns", "cardamom", "cups", "corkscrew", "birch"]
    for round_number in range(12):
        thing = wanted[round_number % len(wanted)] if used else f"thing number {round_number}"
        steps.append((f"walk on to place {round_number}", f"It rains in place {round_number}. " * 12))
        steps.append((f"ask for {thing}", "They will think about it. " * 8))
    return steps


def send(steps: Sequence[tuple[str, str]], policy: Policy | None = None) -> str:
    fitted = fit_request(ask(steps), policy=policy, budget=1_400)
    assert fitted.ledger.cuts
    return json.dumps(fitted.request)


def test_a_result_that_later_calls_ask_about_is_quoted() -> None:
    sent = send(play(used=True))
    assert LIST in sent
    assert SHOPS not in sent


def test_a_result_that_no_later_call_asks_about_is_not() -> None:
    assert LIST not in send(play(used=False))


def test_a_long_result_is_never_quoted_as_a_whole() -> None:
    long_list = LIST + " It is for Sunday." * (LONGEST // 10)
    assert long_list not in send(play(used=True, answer=long_list))


def test_a_tool_with_the_rule_never_is_not_quoted() -> None:
    assert LIST not in send(play(used=True), Policy(tools={"act": "never"}))


def test_what_a_result_repeats_of_its_own_call_is_no_use_of_it() -> None:
    taken = "You take the lanterns and the cardamom."
    steps = [("take lanterns and cardamom", taken), *play(used=True)[1:]]
    assert taken not in send(steps)


def test_what_is_read_again_and_again_is_one_result() -> None:
    readings = [(f"read the note, time {number}", LIST) for number in range(6)]
    assert LIST in send([*readings, *play(used=True)[1:]])


class Unread(list[Any]):
    """Results that nobody may go through."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("every call would go through all results that have a common term")


def test_a_term_that_many_results_have_is_not_looked_up() -> None:
    rare = [_ShortResult(number) for number in range(3)]
    common = Unread(_ShortResult(number) for number in range(MOST_RESULTS + 1))
    assert _find_shared({"rare", "common"}, {"rare": rare, "common": common}) == rare
