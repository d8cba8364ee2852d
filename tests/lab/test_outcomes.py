from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bench.lab.outcomes import evaluate_walk
from bench.lab.policies import find_policy
from bench.lab.port import ReplayPolicy
from bench.lab.values import ReplayOutcome
from bench.lab.walk import NeededTerms, walk
from lamina.caches import all_rules
from lamina.costs import RecordedUsage
from tests.costs.talks import Json, says, scripted, setting, system, talk, user

FIVE = "one two three four five"
ASKED = (
    system(FIVE + " six"), user(FIVE + " key_1"), says(FIVE + " six"), user(FIVE + " seven"),
    says(FIVE + " key_1"), user(FIVE + " eight"), says("Of key_1."),
)  # fmt: skip
"""Three calls: of 20, 40 and 60 tokens, since each message has six words. The last two need key_1."""


def come_of(
    found: ReplayPolicy,
    *messages: Json,
    used: dict[int, RecordedUsage] | None = None,
    points: bool = False,
    **sizes: Any,
) -> ReplayOutcome:
    conversation = talk(*(messages or ASKED), used=used)
    its = setting(conversation, **sizes)
    steps = walk(conversation, found, its, NeededTerms(conversation, its.message_sizes))
    return evaluate_walk(conversation.trace, found, its, steps, points=points)


def sent(*places: int) -> list[Json]:
    return [ASKED[at] for at in places]


def test_what_is_sent_again_is_read_and_the_rest_written() -> None:
    found = come_of(find_policy("none"))
    assert (found.calls, found.sent, found.read, found.written, found.uncached) == (3, 120, 60, 60, 0)
    assert found.equivalents == pytest.approx(20 * 1.25 + (20 * 0.1 + 20 * 1.25) + (40 * 0.1 + 20 * 1.25))


def test_a_cache_that_went_cold_is_written_again() -> None:
    cold = {2: RecordedUsage(at=0.0), 4: RecordedUsage(at=10.0), 6: RecordedUsage(at=1_000.0)}
    found = come_of(find_policy("none"), used=cold)
    assert (found.read, found.written) == (20, 100)


def test_a_clock_that_goes_backwards_does_not_lose_the_cache() -> None:
    found = come_of(
        find_policy("none"),
        used={2: RecordedUsage(at=50.0), 4: RecordedUsage(at=10.0), 6: RecordedUsage(at=60.0)},
    )
    assert found.read == 60


def test_a_request_that_does_not_continue_the_one_before_is_broken() -> None:
    found = come_of(scripted(sent(0, 1), sent(0, 2, 3), sent(0, 2, 3, 4, 5)))
    assert found.broken == 1
    assert found.read == 10 + 30  # the system text, then all of the last request


def test_a_request_that_only_loses_its_end_is_broken() -> None:
    assert come_of(scripted(sent(0, 1), sent(0), sent(0))).broken == 1


def test_recall_is_what_was_visible_of_what_was_needed() -> None:
    found = come_of(scripted(sent(0, 1), sent(0, 3), sent(0, 3, 4, 5)))
    assert (found.needed, found.visible, found.recallable) == (2, 1, 1)
    assert (found.recalls, found.recall_equivalents) == (0, 0.0)


def test_what_can_be_recalled_is_in_reach_and_its_cost_is_told_apart() -> None:
    requests = (sent(0, 1), sent(0, 3), sent(0, 3, 4, 5))
    plain, found = come_of(scripted(*requests)), come_of(scripted(*requests, recalls=True))
    assert (found.visible, found.recallable, found.recalls) == (1, 2, 1)
    assert found.equivalents == plain.equivalents
    again = 0.1 * 20 + 1.25 * 10  # the second request once more, and the message that comes back
    assert found.recall_equivalents == pytest.approx(again + 0.1 * 10)  # which the third then reads


TWICE = (user("key_1 key_2"), says("a"), user("b"), says("Of key_1."), user("c"), says("Of key_2."))
"""Two answers need the same message, of 6 tokens."""


def test_what_came_back_is_not_recalled_again() -> None:
    requests = ([TWICE[0]], [TWICE[2]], [TWICE[2], TWICE[4]])
    found = come_of(scripted(*requests, recalls=True), *TWICE)
    assert (found.needed, found.visible, found.recalls) == (2, 0, 1)
    assert found.recall_equivalents == pytest.approx(0.1 * 5 + 1.25 * 6 + 0.1 * 6)


def test_what_came_back_is_recalled_again_once_the_prefix_is_broken() -> None:
    requests = ([TWICE[0]], [TWICE[2]], [TWICE[4]])
    found = come_of(scripted(*requests, recalls=True), *TWICE)
    assert (found.broken, found.recalls) == (2, 2)
    assert found.recall_equivalents == pytest.approx(2 * (0.1 * 5 + 1.25 * 6))


def test_the_end_of_the_last_request_is_marked_however_far_the_next_one_goes() -> None:
    found = come_of(find_policy("none"), user("a"), says("b"), *[user("c")] * 200, says("d"))
    assert (found.broken, found.read) == (0, 5)


def test_over_is_more_than_the_room() -> None:
    assert come_of(find_policy("none"), window=60).over == 0
    assert come_of(find_policy("none"), window=59).over == 1


def test_a_failed_call_costs_nothing_shows_nothing_and_is_in_nobodys_reach() -> None:
    found = come_of(scripted(sent(0, 1), KeyError("x"), sent(0, 1, 2, 3, 4, 5), recalls=True))
    assert (found.calls, found.failed, found.sent) == (3, 1, 80)
    assert (found.needed, found.visible, found.recallable) == (2, 1, 1)


def test_points_add_up_to_the_whole() -> None:
    found = come_of(scripted(sent(0, 1), sent(0, 2, 3), sent(0, 2, 3, 4, 5)), points=True)
    assert [point.tokens for point in found.points] == [20, 30, 50]
    assert sum(point.read for point in found.points) == found.read
    assert come_of(find_policy("none")).points == ()


def test_a_cache_without_markers_reads_the_longest_prefix() -> None:
    rules = msgspec.structs.replace(all_rules()["openai_legacy"], minimum=0, granularity=1)
    found = come_of(find_policy("none"), rules=rules)
    assert found.read == 60
    assert found.equivalents == pytest.approx(60 + 60 * rules.read)
