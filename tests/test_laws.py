"""One property a law, under the law's name; the cases come from logs that grow under a budget.

What costs time is to build a story, so one property looks at it with all laws together, and often. Those of
single laws say which one is meant, in fewer examples.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import Phase, given, settings

from lamina.core.laws import LAWS
from lamina.testing.laws import all_hold, cases, holds, repeats
from lamina.testing.strategies import Story, stories

USUAL = settings().max_examples
seldom = settings(max_examples=max(USUAL // 4, 1))


@settings(max_examples=10 * USUAL)
@given(stories())
def test_every_law_holds_of_every_story(story: Story) -> None:
    repeats(story)
    all_hold(story)


@seldom
@given(stories())
def test_deterministic(story: Story) -> None:
    repeats(story)
    holds("deterministic", story)


@seldom
@given(stories())
def test_within_the_room(story: Story) -> None:
    holds("within_the_room", story)


@seldom
@given(stories())
def test_append_only_within_an_epoch(story: Story) -> None:
    holds("append_only_within_an_epoch", story)


@seldom
@given(stories())
def test_forms_never_rise(story: Story) -> None:
    holds("forms_never_rise", story)


@seldom
@given(stories())
def test_calls_and_results_pair(story: Story) -> None:
    holds("calls_and_results_pair", story)


@seldom
@given(stories())
def test_conservation(story: Story) -> None:
    holds("conservation", story)


@seldom
@given(stories())
def test_nothing_is_lost(story: Story) -> None:
    holds("nothing_is_lost", story)


@seldom
@given(stories())
def test_what_cannot_be_recovered_goes_last(story: Story) -> None:
    holds("what_cannot_be_recovered_goes_last", story)


@seldom
@given(stories())
def test_once_in_full(story: Story) -> None:
    holds("once_in_full", story)


@seldom
@given(stories())
def test_lowering_shrinks(story: Story) -> None:
    holds("lowering_shrinks", story)


@seldom
@given(stories())
def test_untouched_means_untouched(story: Story) -> None:
    holds("untouched_means_untouched", story)


@seldom
@given(stories())
def test_no_authority_is_gained(story: Story) -> None:
    holds("no_authority_is_gained", story)


@seldom
@given(stories())
def test_what_the_user_said_is_not_lost_in_silence(story: Story) -> None:
    holds("what_the_user_said_is_not_lost_in_silence", story)


@seldom
@given(stories())
def test_nothing_crosses(story: Story) -> None:
    holds("nothing_crosses", story)


def test_every_law_has_its_property() -> None:
    assert {f"test_{name}" for name in LAWS} <= set(globals())


def test_stories_have_enough_to_test() -> None:
    """At least 30 % of the logs contain a cut, 10 % a fold, 10 % bound thinking."""
    counts: Counter[str] = Counter()

    @settings(max_examples=100, phases=[Phase.generate], database=None, derandomize=True)
    @given(stories())
    def count(story: Story) -> None:
        ledgers = [case.envelope.ledger for case in cases(story)]
        counts["logs"] += 1
        counts["cut"] += any(cut.lowered for ledger in ledgers for cut in ledger.cuts)
        counts["fold"] += any(ledger.folds for ledger in ledgers)
        counts["bound"] += any(ledger.bound for ledger in ledgers)

    count()
    print(dict(counts))
    assert counts["cut"] >= 0.3 * counts["logs"]
    assert counts["fold"] >= 0.1 * counts["logs"]
    assert counts["bound"] >= 0.1 * counts["logs"]
