"""What makes a result needed again, learned from one half of the sessions and checked on the other."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from lamina.core.need import RECORDED, ReadResult
from lamina.replay.need_learning import NeedCase, check_table, fit_table, gather_cases, learn_need
from lamina.replay.values import Trace

PLAIN = msgspec.structs.replace(RECORDED, verbs={}, since={})


def cases_of(sessions: int, *, chances: dict[str, float], seed: int = 3) -> list[NeedCase]:
    """Sessions with results of two tools, each needed with its chance, whatever its age and size."""
    dice = Random(seed)  # noqa: S311 - the same each time
    cases: list[NeedCase] = []
    for number in range(sessions):
        for place in range(6, 30, 6):
            for tool, chance in chances.items():
                for at in range(4):
                    age = dice.randint(2, 40)
                    taken = int(dice.random() < chance)
                    result = ReadResult(tool, "other", "untouched")
                    cases.append(
                        NeedCase(f"session-{number}", place, len(tool) * 10 + at, age, 400, result, taken)
                    )
    return cases


def test_a_tool_whose_results_are_needed_again_gets_a_higher_weight() -> None:
    table = fit_table(cases_of(60, chances={"needed": 0.4, "never": 0.01}))
    assert table.tools["needed"] > 8
    assert "never" not in table.tools, "too few of its results were needed to say anything of them"
    assert table.verbs["other"] + table.tools["needed"] > table.verbs["other"]
    assert (table.sessions, table.cases) == (60, 60 * 4 * 8)


def test_what_keeps_more_in_the_other_half_is_learned() -> None:
    learned = learn_need(cases_of(60, chances={"needed": 0.4, "rare": 0.05}), than=PLAIN)
    assert learned.table is not None
    assert learned.check is not None
    assert sum(learned.check.after) > sum(learned.check.before)
    assert learned.lines()[-1] == "learned from 60 sessions, 1,920 cases"


def test_what_is_no_better_in_the_other_half_is_refused() -> None:
    learned = learn_need(cases_of(60, chances={"one": 0.2, "other": 0.2}), than=PLAIN)
    assert learned.table is None
    assert learned.check is not None
    assert "keeps no more than age and size do" in learned.lines()[-1]


def test_few_sessions_teach_nothing_and_it_says_how_many_it_takes() -> None:
    learned = learn_need(cases_of(7, chances={"one": 0.2}))
    assert learned.table is None
    assert learned.check is None
    (line,) = learned.lines()
    assert line.startswith("nothing was learned: 6 sessions with results of 2 steps and more are too few")
    assert line.endswith("it takes 20: half teach, half check it")


def test_the_same_sessions_teach_the_same_in_any_order() -> None:
    cases = cases_of(30, chances={"needed": 0.4, "rare": 0.05})
    shuffled = list(cases)
    Random(1).shuffle(shuffled)  # noqa: S311 - the same each time
    assert fit_table(shuffled) == fit_table(cases)
    assert check_table(shuffled, fit_table(cases), than=PLAIN) == check_table(
        cases, fit_table(cases), than=PLAIN
    )


def step(number: int, path: str, says: str, *, shows: str) -> list[dict[str, Any]]:
    function = {"name": "read_file", "arguments": msgspec.json.encode({"path": path}).decode()}
    tool_call = {"id": f"c{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": says, "tool_calls": [tool_call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": shows},
    ]


def test_a_case_knows_how_many_names_the_next_answers_take() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
    for number in range(14):
        says = "I use first_thing and second_thing." if number == 9 else "Next."
        shows = "first_thing and second_thing stand here" if number == 2 else f"file {number} has nothing"
        messages += step(number, f"{number}.py", says, shows=shows)
    messages.append({"role": "assistant", "content": "Done."})
    trace = Trace(id="one", source="made up", place="here", dialect="openai_chat", items=messages)
    cases = gather_cases(trace, count_as="gpt-5.4")
    assert {case.place for case in cases} == {6, 12}
    taken = {(case.place, case.age): case.taken for case in cases if case.taken}
    assert taken == {(6, 3): 2}
    assert {case.result.verb for case in cases} == {"read"}


@pytest.mark.parametrize("results", [0, 1])
def test_a_short_session_has_no_cases(results: int) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
    for number in range(results):
        messages += step(number, "a.py", "Next.", shows="nothing")
    messages.append({"role": "assistant", "content": "Done."})
    trace = Trace(id="one", source="made up", place="here", dialect="openai_chat", items=messages)
    assert gather_cases(trace) == []
