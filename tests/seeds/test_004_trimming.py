"""Source system 004: when it trims and what (S4-09 to S4-30).

Where its budget cannot be met it trims all and returns too much, in silence. lamina raises instead, so
such a case stands twice here: with its own window, which is refused, and with one that can be met.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import BudgetExceeded, Entry, Form, Role, Segment
from lamina.core import ToolCall, ToolResult
from lamina.segments import assistant, result, system, user
from tests.seeds import rfc
from tests.seeds.rfc import (
    before,
    bodies,
    call,
    messages,
    smallest,
    texts,
    trim,
    trimmed,
    turns,
    untrimmed,
)

Setting = tuple[int, int, float]
"""Window, assistants to keep, threshold."""

LONG = "y" * 300


def refused(log: list[Segment], window: int, *, keep: int = 2, threshold: float = 0.8) -> BudgetExceeded:
    with pytest.raises(BudgetExceeded) as caught:
        trim(log, window, keep=keep, threshold=threshold)
    assert caught.value.room == window
    return caught.value


ONE_RESULT_EACH = [
    user("u1"), *call("tc_1"), result("r" * 200, id="tc_1"), assistant("follow-up 1"),
    user("u2"), *call("tc_2"), result("r" * 200, id="tc_2"), assistant("follow-up 2"),
]  # fmt: skip
TWO_USERS_IN_A_ROW = [
    user("u1"), assistant("a1" + LONG), user("u2"), assistant("a2" + LONG), user("u3"), user("u4"),
    assistant("a3" + LONG),
]  # fmt: skip
THREE_LONG = [
    user("u1"), assistant("a1" + LONG), user("u2"), assistant("a2" + LONG), user("u3"),
    assistant("a3_last" + LONG),
]  # fmt: skip
TWO_LONG = [
    user("u1"), assistant("y" * 500), user("u2"), assistant("w" * 500), user("recent"), assistant("response"),
]  # fmt: skip
TOOL_TURNS = rfc.agent_turns(5, "user turn {i}", "result {i}: r*200", "follow-up {i}")


@pytest.mark.parametrize(
    ("log", "setting", "index", "tokens"),
    [
        pytest.param(TWO_LONG, (400, 2, 0.8), 3, (359, 212), id="s4_10"),
        pytest.param(TWO_USERS_IN_A_ROW, (400, 2, 0.8), 3, (335, 247), id="s4_11"),
        pytest.param(ONE_RESULT_EACH, (299, 1, 0.8), 7, (269, 153), id="s4_12"),
        pytest.param(THREE_LONG, (350, 1, 0.8), 5, (329, 153), id="s4_13"),
        pytest.param(TOOL_TURNS, (700, 3, 0.8), 15, (704, 457), id="s4_15"),
        pytest.param(
            turns(6, "user {i}", "assistant {i}: x*500"), (500, 3, 0.8), 10, (1040, 284), id="s4_18"
        ),
        pytest.param(
            turns(5, "User {i}: x*100", "Asst {i}: y*100"), (500, 2, 0.8), 7, (410, 322), id="s4_22"
        ),
        pytest.param(turns(5, "q{i}", "y*300"), (800, 50, 0.3), 8, (541, 193), id="s4_23"),
        pytest.param(rfc.PRODUCTION, (10_000, 20, 0.8), 95, (25_851, 7_945), id="s4_30"),
    ],
)
def test_the_same_messages_are_trimmed_to_the_same_size(
    log: list[Segment], setting: Setting, index: int, tokens: tuple[int, int]
) -> None:
    window, keep, threshold = setting
    fitted = trim(log, window, keep=keep, threshold=threshold)
    assert (untrimmed(log).tokens, fitted.tokens) == tokens
    assert trimmed(fitted) == before(log, index)
    assert fitted.tokens <= window * threshold
    assert len(messages(fitted)) == len(messages(untrimmed(log)))


@pytest.mark.parametrize(
    ("log", "setting", "tokens"),
    [
        pytest.param(
            turns(20, "Message {i}: x*100", "Response {i}: y*100"), (100, 2, 0.8), (1691, 914), id="s4_09"
        ),
        pytest.param(turns(2, "x*200", "a{i}"), (50, 0, 0.8), (158, 158), id="s4_14"),
        pytest.param(turns(3, "x*300", "a{i}"), (50, 10, 0.8), (325, 325), id="s4_16"),
        pytest.param(
            turns(10, "User turn {i}: x*200", "Assistant turn {i}: y*200"), (500, 50, 0.3), (1470, 829),
            id="s4_17",
        ),
        pytest.param(turns(10, "u{i}: x*100", "a{i}: y*100"), (100, 2, 0.8), (798, 469), id="s4_20"),
        pytest.param(turns(10, "Msg {i}: x*100", "Resp {i}: y*100"), (100, 2, 0.8), (819, 480), id="s4_21"),
        pytest.param(
            turns(5, "User turn {i}: a*80", "Assistant turn {i}: b*80"), (200, 2, 0.8), (373, 251), id="s4_24"
        ),
    ],
)  # fmt: skip
def test_a_window_that_cannot_be_met_is_refused_with_its_floor(
    log: list[Segment], setting: Setting, tokens: tuple[int, int]
) -> None:
    window, keep, threshold = setting
    error = refused(log, window, keep=keep, threshold=threshold)
    assert (untrimmed(log).tokens, error.floor) == tokens
    floor = smallest(log)
    assert error.floor <= floor, "one digest for all replies may take less than a line for each"
    fitted = trim(log, floor, keep=keep, threshold=threshold)
    assert fitted.tokens == floor
    assert trimmed(fitted) == before(log, len(log) - 1), "it is met by trimming all but the last reply"
    assert all(e.form is Form.FULL for e in fitted.entries if e.role is Role.USER)


def test_s4_11_keep_counts_assistants_after_merging() -> None:
    fitted = trim(TWO_USERS_IN_A_ROW, 400)
    assert [m[0].role for m in messages(fitted)] == ["user", "assistant"] * 3
    assert texts(fitted)[4] == "u3\nu4"


def test_s4_11_several_replies_in_a_row_count_as_one() -> None:
    run = [assistant(f"{number} " + "a" * 200) for number in range(6)]
    log = [*turns(2, "q{i}", "b*200"), user("q2"), *run, user("q3")]
    assert trimmed(trim(log, 700, keep=2)) == [1]


def test_s4_14_trimming_never_makes_a_request_larger() -> None:
    """Upstream grows from 158 to 162 tokens here; a reply shorter than the placeholder stays."""
    fitted = trim(turns(2, "x*200", "a{i}"), 190, keep=0)
    assert fitted.tokens == 158 > 190 * 0.8
    assert (trimmed(fitted), fitted.cut) == ([], None)


def test_s4_14_with_nothing_to_keep_all_but_the_last_reply_goes() -> None:
    fitted = trim(turns(3, "x*20", "y*90"), 110, keep=0)
    assert trimmed(fitted) == [1, 3]


def test_s4_15_exactly_the_last_three_assistants_stay() -> None:
    fitted = messages(trim(TOOL_TURNS, 700, keep=3))
    whole = [i for i, m in enumerate(fitted) if m[0].role == "assistant" and m[0].form is Form.FULL]
    tools = {i: m[0].form for i, m in enumerate(fitted) if m[0].role == "tool"}
    assert whole == [15, 17, 19]
    assert tools == {i: Form.FULL if i >= 15 else Form.STUB for i in (2, 6, 10, 14, 18)}


@pytest.mark.parametrize("keep", [2, 50])
def test_s4_17_the_budget_overrides_the_wish_to_keep(keep: int) -> None:
    log = turns(10, "User turn {i}: x*200", "Assistant turn {i}: y*200")
    assert 1 in trimmed(trim(log, 1_000, keep=keep, threshold=0.3))


def test_s4_18_budget_goes_past_the_kept_assistants() -> None:
    fitted = trim(turns(6, "user {i}", "assistant {i}: x*500"), 500, keep=3)
    assert max(trimmed(fitted)) > 7


def test_s4_19_tool_definitions_count() -> None:
    log = turns(3, "x*100", "y*100")
    assert untrimmed(log).tokens == 234
    assert trimmed(trim(log, 312)) == []
    with pytest.raises(BudgetExceeded) as caught:
        trim(log, 312, tools=rfc.BIG_TOOLS)
    assert caught.value.floor == smallest(log, tools=rfc.BIG_TOOLS) == 12_979
    assert caught.value.segments[0] == ("tools", 12_800)
    assert trimmed(trim(log, 13_100, tools=rfc.BIG_TOOLS)) == [1, 3], "index 6 but for the last reply"


TWO_CALLS_AT_ONCE = [
    *call("tc_old_1", "tc_old_2"), result("x" * 200, id="tc_old_1"), result("y" * 200, id="tc_old_2"),
    *call("tc_new_1"), result("recent result", id="tc_new_1"), user("What happened?"),
    assistant("Here is what I found"),
]  # fmt: skip


def identities(items: Iterable[Segment | Entry]) -> list[list[str]]:
    """Roles, and the ids and names of calls and results."""
    return [
        [item.role, *(n for p in item.parts if isinstance(p, ToolCall | ToolResult) for n in (p.id, p.name))]
        for item in items
    ]


def test_s4_25_calls_and_results_keep_their_ids() -> None:
    fitted = trim(TWO_CALLS_AT_ONCE, 200)
    assert trimmed(fitted) == [0, 1, 2, 3]
    assert [type(part).__name__ for part in bodies(fitted)[0]] == ["Text", "ToolCall", "ToolCall"]
    assert [p.id for p in bodies(fitted)[1] if isinstance(p, ToolResult)] == ["tc_old_1", "tc_old_2"]


@given(rfc.STEPS, st.integers(0, 5), st.integers(0, 100))
def test_s4_25_trimming_keeps_structure(steps: list[rfc.Step], keep: int, slack: int) -> None:
    log = rfc.conversation(steps)
    window = smallest(log) + slack
    fitted = trim(log, window, keep=keep)
    assert identities(fitted.sent) == identities(log)
    assert len(messages(fitted)) == len(messages(untrimmed(log)))
    assert fitted.tokens <= window


READ_ONCE = [
    *call("tc_1", text="thinking...", arguments='{"path":"README.md"}'), result("X" * 350, id="tc_1"),
    user("follow up"), assistant("recent"),
]  # fmt: skip


def test_s4_26_a_call_beside_trimmed_text_is_kept() -> None:
    fitted = trim(READ_ONCE, 100, keep=1, target=0.6)
    first = bodies(fitted)[0]
    assert texts(fitted)[:2] == [f'{rfc.TRIMMED}\n{{"path":"README.md"}}', rfc.TRIMMED]
    assert first[1] == READ_ONCE[1].parts[0]


def test_s4_26_when_even_calls_do_not_fit_a_digest_stands_for_the_whole_exchange() -> None:
    """Upstream's window: it returns more than fits; the budget is law here, and pairs go together."""
    fitted = rfc.trim_with_headroom(READ_ONCE, 120, output=64, keep=1)
    assert fitted.tokens <= 120 - 64 < smallest(READ_ONCE)
    assert [e.segment.kind for e in fitted.sent] == ["digest", "user", "assistant"]


@pytest.mark.parametrize(
    ("log", "floor"),
    [
        ([system("S" * 200), user("u1"), assistant("A" * 500), user("u2"), assistant("recent")], 111),
        ([user("U" * 200), assistant("A" * 500), user("V" * 200), assistant("recent")], 161),
    ],
    ids=["system", "user"],
)
def test_s4_27_user_and_system_text_is_never_trimmed(log: list[Segment], floor: int) -> None:
    assert refused(log, 88, keep=1).floor == floor == smallest(log)
    fitted = trim(log, floor, keep=1)
    whole = [e.parts for e in fitted.sent if e.role in (Role.USER, Role.SYSTEM)]
    assert whole == [s.parts for s in log if s.role in (Role.USER, Role.SYSTEM)]
