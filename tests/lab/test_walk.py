from __future__ import annotations

from typing import Any

from bench.lab.port import PolicyRequest, ReplayPolicy, Setting
from bench.lab.walk import NeededTerms, WalkStep, walk
from lamina.costs import RecordedUsage
from tests.costs.talks import Json, result, says, scripted, setting, system, talk, user

SYSTEM, FIRST, SECOND = system("Be brief."), user("Take key_1 for it."), user("And the other?")
TALK = (SYSTEM, FIRST, says("It is key_1."), SECOND, says("Also key_1."))


def walked(policy: ReplayPolicy, *messages: Json, **fields: Any) -> list[WalkStep]:
    found = talk(*(messages or TALK), **fields)
    its = setting(found)
    return walk(found, policy, its, NeededTerms(found, its.message_sizes))


def test_a_term_that_was_sent_is_visible() -> None:
    first, second = walked(scripted(list(TALK[:2]), list(TALK[:4])))
    assert (first.needed, first.visible, dict(first.hidden)) == (1, 1, {})
    assert (second.needed, second.visible) == (1, 1)


def test_a_term_that_was_left_out_is_hidden_with_the_message_that_has_it() -> None:
    _, second = walked(scripted(list(TALK[:2]), [SYSTEM, SECOND]))
    assert (second.needed, second.visible) == (1, 0)
    assert dict(second.hidden) == {2: 4 + 3}  # the answer, which is the last that says key_1


def test_a_digest_that_names_a_term_shows_it() -> None:
    _, second = walked(scripted(list(TALK[:2]), [SYSTEM, user("earlier: key_1"), SECOND]))
    assert second.visible == 1


def test_tokens_are_those_of_what_was_sent() -> None:
    first, _ = walked(scripted([FIRST], list(TALK[:4])))
    assert first.tokens == 4 + 4


def test_messages_that_lead_as_before_are_the_same() -> None:
    _, second = walked(scripted([SYSTEM, FIRST], [SYSTEM, dict(FIRST), SECOND]))
    assert second.same == 2
    _, second = walked(scripted([SYSTEM, FIRST], [SYSTEM, SECOND]))
    assert second.same == 1


def test_a_result_without_its_call_is_invalid() -> None:
    parted = [SYSTEM, result("x", path="1")]
    assert [step.invalid for step in walked(scripted(parted, list(TALK[:4])))] == [True, False]


def test_a_call_in_common_with_the_request_before_is_judged_with_the_results_that_follow_it_now() -> None:
    call, answer = says(None, path="1"), result("x", path="1")
    whole = [SYSTEM, FIRST, call, answer]
    assert [step.invalid for step in walked(scripted(whole, [SYSTEM, FIRST, call, SECOND]))] == [False, True]
    assert [step.invalid for step in walked(scripted([SYSTEM, FIRST, call], whole))] == [True, False]


def test_sending_nothing_is_invalid() -> None:
    assert walked(scripted([], []))[0].invalid


def test_a_policy_that_raises_has_failed_and_shows_nothing() -> None:
    first, second = walked(scripted(list(TALK[:2]), ZeroDivisionError("oh")))
    assert first.failed == ""
    assert second.sent is None
    assert "oh" in second.failed
    assert (second.needed, second.visible) == (1, 0)


def test_a_policy_that_cannot_start_has_failed_at_every_call() -> None:
    def start(_: Setting) -> Any:
        raise OSError("not there")

    steps = walked(ReplayPolicy(name="p", title="p", start=start))
    assert ["not there" in step.failed for step in steps] == [True, True]


def test_after_a_failed_call_a_request_is_compared_with_the_last_that_was_sent() -> None:
    messages = (*TALK, user("And now?"), says("Nothing."))
    steps = walked(scripted(list(TALK[:2]), ValueError(), list(messages[:6])), *messages)
    assert steps[2].same == 2


def test_a_policy_is_told_how_long_nothing_was_sent() -> None:
    idle: list[float] = []

    def start(_: Setting) -> Any:
        def run(request: Json, seconds: float) -> PolicyRequest:
            idle.append(seconds)
            return PolicyRequest(messages=request["messages"])

        return run

    walked(
        ReplayPolicy(name="p", title="p", start=start),
        used={2: RecordedUsage(at=100.0), 4: RecordedUsage(at=700.0)},
    )
    assert idle == [0.0, 600.0]


def test_the_policys_own_seconds_are_taken_where_it_tells_them() -> None:
    def start(_: Setting) -> Any:
        return lambda request, _idle: PolicyRequest(messages=request["messages"], seconds=3.5)

    assert [step.seconds for step in walked(ReplayPolicy(name="p", title="p", start=start))] == [3.5, 3.5]
