from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.clearing import KEPT_BY_PROVIDER
from bench.lab.plain import DropOldest, pinned_positions
from bench.lab.policies import POLICIES, find_policy
from bench.lab.port import ReplayPolicy, group_messages
from bench.lab.walk import NeededTerms, WalkStep, walk
from lamina.costs.logs.model_calls import RecordedConversation
from lamina.errors import BadInput
from tests.costs.talks import Json, result, says, session, setting, system, talk, user
from tests.examples import up_to

PLAIN = list(POLICIES)
FITTING = ("drop_oldest", "sliding", "sliding@0.3")
CLEARING = "bench.clearing:provider_clearing"


def walked(name: str, found: RecordedConversation, **sizes: Any) -> list[WalkStep]:
    its = setting(found, **sizes)
    return walk(found, find_policy(name), its, NeededTerms(found, its.message_sizes))


def messages(step: WalkStep) -> list[Json]:
    assert step.sent is not None, step.failed
    return step.sent.messages


TURNS = st.lists(st.tuples(st.booleans(), st.integers(1, 3), st.integers(1, 12)), min_size=1, max_size=8)


def made(turns: list[tuple[bool, int, int]]) -> list[Json]:
    """Turns of a question, perhaps, then a call of one to three tools with results of some words."""
    found: list[Json] = [system("Be brief."), user("Begin.")]
    for at, (asks, calls, words) in enumerate(turns):
        found += [user(f"Question {at}.")] if asks else []
        answers = [says(None, path=f"{at}-{number}") for number in range(calls)]
        found.append(answers[0] | {"tool_calls": [each["tool_calls"][0] for each in answers]})
        found += [result("word " * words, path=f"{at}-{number}") for number in range(calls)]
    return [*found, says("Done.")]


@pytest.mark.parametrize("name", PLAIN)
@settings(max_examples=15)
@given(turns=TURNS, window=st.integers(60, 400))
def test_no_policy_parts_a_call_from_its_results(
    name: str, turns: list[tuple[bool, int, int]], window: int
) -> None:
    found = talk(*made(turns))
    steps = walked(name, found, window=window, trigger=window * 8 // 10, target=window // 2)
    assert not any(step.invalid for step in steps)


@pytest.mark.parametrize("name", FITTING)
@settings(max_examples=up_to(40))
@given(turns=TURNS, trigger=st.integers(30, 300))
def test_what_can_be_dropped_is_dropped(name: str, turns: list[tuple[bool, int, int]], trigger: int) -> None:
    found = talk(*made(turns))
    for step in walked(name, found, window=trigger * 5 // 4, trigger=trigger, target=trigger // 2):
        sent, whole = messages(step), found.messages[: step.call.end]
        kept = [whole[at] for at in sorted(pinned_positions(whole) | set(group_messages(whole)[-1]))]
        assert all(message in sent for message in kept)
        assert step.tokens <= trigger or sent == kept


def test_groups_are_a_call_with_its_results() -> None:
    found = session(2)
    assert group_messages(found) == [[0], [1], [2, 3], [4, 5], [6]]


def test_nothing_is_cut_before_the_trigger() -> None:
    found = talk(*session(3))
    for name in (*FITTING, "none", CLEARING, "lamina"):
        steps = walked(name, found, window=10_000, trigger=8_000, target=5_000)
        assert [messages(step) for step in steps] == [found.messages[: step.call.end] for step in steps], name
        assert not any(step.sent.cut for step in steps if step.sent), name


def test_sliding_keeps_its_boundary_until_the_next_cut() -> None:
    steps = walked("sliding", talk(*session(12)), trigger=120, target=60)
    cuts = [bool(step.sent and step.sent.cut) for step in steps]
    assert 2 <= sum(cuts) < len(steps) // 2
    for before, after, cut in zip(steps, steps[1:], cuts[1:], strict=False):
        assert (after.same == len(messages(before))) is not cut


def test_a_lower_target_cuts_less_often() -> None:
    found = talk(*session(20))

    def cuts(name: str) -> int:
        steps = walked(name, found, window=200, trigger=160, target=100)
        return sum(bool(step.sent and step.sent.cut) for step in steps)

    assert cuts("sliding@0.2") < cuts("sliding") < cuts("sliding@0.7")
    assert cuts("sliding@0.5") == cuts("sliding")


def test_dropping_the_oldest_moves_the_boundary_with_every_step() -> None:
    steps = walked("drop_oldest", talk(*session(12)), trigger=120)
    cuts = [bool(step.sent and step.sent.cut) for step in steps]
    first = cuts.index(True)
    assert all(cuts[first:-1])


def test_a_boundary_that_stays_is_no_cut() -> None:
    small = [message for _ in range(3) for message in (says("a"), user("b"))]
    steps = walked("drop_oldest", talk(*session(6, words=40)[:-1], *small, says("c")), trigger=120)
    cuts = [bool(step.sent and step.sent.cut) for step in steps]
    assert any(cuts[:-1])
    assert not cuts[-1]
    assert len(messages(steps[-1])) < steps[-1].call.end


def test_the_prompt_stands_though_everything_around_it_is_dropped() -> None:
    steps = walked("sliding", talk(*session(12)), trigger=60, target=40)
    assert all(session(0)[:2] == messages(step)[:2] for step in steps)


def test_an_earlier_prompt_goes_when_the_user_has_spoken_again() -> None:
    asked = [
        system("s"),
        user("first " * 20),
        says("a"),
        user("second " * 20),
        says("b"),
        user("third"),
        says("c"),
    ]
    steps = walked("sliding", talk(*asked), trigger=40, target=20)
    assert asked[1] not in messages(steps[-1])
    assert asked[5] in messages(steps[-1])


def test_clearing_spares_the_last_results_and_every_other_message() -> None:
    found = talk(*session(12))
    last = walked(CLEARING, found, trigger=60)[-1]
    sent, whole = messages(last), found.messages[: last.call.end]
    changed = [at for at, (one, other) in enumerate(zip(sent, whole, strict=True)) if one != other]
    results = [at for at, message in enumerate(whole) if message["role"] == "tool"]
    assert changed == results[:-KEPT_BY_PROVIDER]
    assert all(sent[at]["tool_call_id"] == whole[at]["tool_call_id"] for at in changed)


@pytest.mark.parametrize("name", ["lamina", "lamina@0.3"])
def test_lamina_stays_within_the_room_and_loses_nothing(name: str) -> None:
    found = talk(*session(120, words=60))
    steps = walked(name, found, window=3_000, trigger=2_400, target=1_500)
    sent = [step.sent for step in steps if step.sent is not None]
    assert len(sent) == len(steps)
    assert all(step.tokens <= 3_000 and not step.invalid for step in steps)
    assert sum(bool(each.cut) for each in sent) > 1
    assert max(each.lowered for each in sent) > 0
    assert sum(each.lost for each in sent) == 0


MINE = ReplayPolicy(name="mine", title="what a test adds", start=DropOldest)


def mine() -> ReplayPolicy:
    return MINE


def test_a_policy_of_another_package_is_imported_by_its_name() -> None:
    assert find_policy(f"{__name__}:MINE") is MINE
    assert find_policy(f"{__name__}:mine") is MINE
    assert find_policy(f"{__name__}:MINE@0.3").name == "mine@0.3"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no.such.module:policy", "cannot be imported: No module named 'no'"),
        ("bench.lab.plain:absent", "cannot be imported"),
        (":policy", "cannot be imported"),
        ("bench.clearing:KEPT", "is a int"),
    ],
)
def test_what_is_no_policy_is_refused(name: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        find_policy(name)


@pytest.mark.parametrize(
    "name", ["nobody", "sliding@", "sliding@0", "sliding@0.99", "sliding@half", "peer:nobody"]
)
def test_an_unknown_policy_or_target_is_refused(name: str) -> None:
    if name == "sliding@":
        assert find_policy(name).name == "sliding"
        return
    with pytest.raises(BadInput):
        find_policy(name)
