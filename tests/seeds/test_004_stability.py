"""Source system 004: what was trimmed stays trimmed, and headroom keeps it from moving (S4-20 to S4-45)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import Budget, BudgetExceeded, Form, Ledger, build
from lamina.core import RFC, Part
from lamina.core.build import EMPTY_LEDGER
from lamina.core.values import Ref
from lamina.segments import assistant, user
from tests.seeds import rfc
from tests.seeds.rfc import (
    before,
    bodies,
    messages,
    smallest,
    texts,
    trim,
    trim_with_headroom,
    trimmed,
    turns,
    untrimmed,
)


def test_s4_20_what_was_trimmed_stays_when_more_may_be_kept() -> None:
    log = turns(10, "u{i}: x*100", "a{i}: y*100")
    first = trim(log, 600, keep=2)
    again = trim(log, 600, keep=8, ledger=first.ledger)
    assert trimmed(again) == trimmed(first) == before(log, 19)
    assert again.entries == first.entries


def test_s4_21_under_the_budget_the_trimmed_prefix_stays_and_nothing_joins_it() -> None:
    log = turns(10, "Msg {i}: x*100", "Resp {i}: y*100")
    first = trim(log, 600)
    roomy = trim(log, 200_000, ledger=first.ledger)
    assert (bodies(roomy), roomy.cut) == (bodies(first), None)
    grown = [*log, *turns(1, "Msg {i}: x*100", "Resp {i}: y*100", start=10)]
    assert trimmed(trim(grown, 660, ledger=roomy.ledger)) == [*trimmed(first), 19]


def test_s4_22_the_raw_size_of_what_is_trimmed_does_not_count() -> None:
    log = turns(5, "User {i}: x*100", "Asst {i}: y*100")
    first = trim(log, 500)
    grown = [*log, user("short"), assistant("brief")]
    second = trim(grown, 500, ledger=first.ledger)
    assert (untrimmed(grown).tokens, second.tokens) == (431, 343)
    assert (second.cut, trimmed(second)) == (None, trimmed(first))
    assert bodies(second)[: len(log)] == bodies(first)
    assert texts(second)[-2:] == ["short", "brief"]


def test_s4_23_progress_then_freeze() -> None:
    log = turns(5, "q{i}", "y*300")
    fitted = trim(log, 800, keep=50, threshold=0.3)
    for ask, answer, tokens in (("small", "ok", 213), ("tiny", "k", 233)):
        log += [user(ask), assistant(answer)]
        fitted = trim(log, 800, keep=50, threshold=0.3, ledger=fitted.ledger)
        assert (fitted.tokens, trimmed(fitted), fitted.cut) == (tokens, [1, 3, 5, 7], None)


def test_s4_24_lifecycle_through_saved_state() -> None:
    log = turns(5, "User turn {i}: a*80", "Assistant turn {i}: b*80")
    first = trim(log, 340)
    saved = Ledger.load(json.loads(json.dumps(first.ledger.dump())))
    assert saved == first.ledger
    log += turns(1, "User turn {i}: c*80", "Assistant turn {i}: d*80", start=5)
    second = trim(log, 340, ledger=saved)
    assert (trimmed(first), trimmed(second)) == ([1, 3, 5, 7], [1, 3, 5, 7, 9])
    assert len(messages(second)) == len(messages(first)) + 2


@given(rfc.STEPS, st.lists(st.tuples(st.integers(0, 5), st.integers(0, 200)), min_size=8, max_size=8))
def test_s4_20_trimmed_never_grows_back(steps: list[rfc.Step], settings: list[tuple[int, int]]) -> None:
    ledger = EMPTY_LEDGER
    last: dict[Ref, tuple[Form, tuple[Part, ...]]] = {}
    for end, (keep, slack) in zip(range(1, len(steps) + 1), settings, strict=False):
        log = rfc.conversation(steps[:end])
        fitted = trim(log, smallest(log) + slack, keep=keep, ledger=ledger)
        now = {e.ref: (e.form, e.parts) for e in fitted.entries if e.form < Form.FULL}
        for ref, (form, parts) in last.items():
            assert now[ref] == (form, parts) or now[ref][0] < form  # as it was, or lowered further
        ledger, last = fitted.ledger, now


NEXT_TURN = [user("Next question"), assistant("Response: " + "a" * 500)]


def test_s4_31_without_headroom_the_next_turn_trims_again() -> None:
    first = trim(rfc.PRODUCTION, 10_000, keep=20)
    log = [*rfc.PRODUCTION, *NEXT_TURN]
    assert trim(log, 200_000, ledger=first.ledger).tokens == 8_119
    second = trim(log, 10_000, keep=20, ledger=first.ledger)
    assert (second.tokens, trimmed(second)) == (7_968, before(log, 96))
    assert second.cut is not None


def test_s4_31_lamina_itself_leaves_room_for_the_next_turns() -> None:
    budget = Budget(window=10_000, reserve=0)
    first = build(rfc.PRODUCTION, budget=budget, counter=RFC)
    second = build([*rfc.PRODUCTION, *NEXT_TURN], budget=budget, counter=RFC, ledger=first.ledger)
    assert first.cut is not None
    assert second.cut is None
    assert bodies(second)[: len(messages(first))] == bodies(first)


def test_s4_40_headroom_keeps_the_boundary_for_the_next_turns() -> None:
    log = turns(10, "user-{i}", "assistant-{i}-Z*200")
    assert untrimmed(log).tokens == 830
    fitted = trim_with_headroom(log, 600)
    assert (fitted.tokens, trimmed(fitted)) == (282, before(log, 18))
    for ask, answer, tokens in (
        ("new question", "short answer", 307),
        ("another question", "another short answer", 335),
    ):
        log += [user(ask), assistant(answer)]
        fitted = trim_with_headroom(log, 600, ledger=fitted.ledger)
        assert (fitted.tokens, trimmed(fitted), fitted.cut) == (tokens, before(log, 18), None)


def test_s4_41_the_last_assistants_stay_where_that_is_enough() -> None:
    log = turns(8, "user-{i}", "assistant-{i}-X*200")
    fitted = trim_with_headroom(log, 700)
    assert (untrimmed(log).tokens, fitted.tokens) == (664, 299)
    assert trimmed(fitted) == before(log, 13) == [1, 3, 5, 7, 9, 11]


def test_s4_42_when_nothing_shrinks_any_more_nothing_is_trimmed() -> None:
    """Upstream jumps to index 22 at last, trims the newest reply and grows from 231 to 237 tokens."""
    log, ledger, sizes = turns(6, "u{i}", "a{i}-Q*200"), EMPTY_LEDGER, []
    for turn in range(5):
        log += turns(1, "extra-{i}", "reply-{i}", start=turn)
        fitted = trim_with_headroom(log, 300, ledger=ledger)
        ledger = fitted.ledger
        sizes.append(fitted.tokens)
        assert trimmed(fitted) == [1, 3, 5, 7, 9, 11]
    assert sizes == [147, 168, 189, 210, 231]
    assert len(ledger.cuts) == 1
    assert texts(fitted)[-1] == "reply-4"


def test_s4_43_the_same_messages_again_give_the_same_request() -> None:
    log = turns(6, "u{i}", "a{i}-Y*220")
    assert untrimmed(log).tokens == 511
    with pytest.raises(BudgetExceeded) as caught:
        trim_with_headroom(log, 180)
    assert caught.value.floor == 162 < smallest(log) == 191  # one digest for all replies
    first = trim_with_headroom(log, 230)
    second = trim_with_headroom(log, 230, ledger=first.ledger)
    assert trimmed(first) == before(log, 11)
    assert (second.entries, second.cut) == (first.entries, None)


def test_s4_44_a_large_tool_definition_counts_and_is_named() -> None:
    schema = {"type": "object", "properties": {"payload": {"type": "string", "description": "Z" * 4000}}}
    tool = {"name": "huge_tool", "description": "tool with massive schema", "input_schema": schema}
    log = turns(1, "small user message", "small assistant message")
    assert trimmed(trim_with_headroom(log, 220, keep=1)) == []
    with pytest.raises(BudgetExceeded) as caught:
        trim_with_headroom(log, 220, keep=1, tools=[tool])
    assert caught.value.floor == untrimmed(log, tools=[tool]).tokens
    assert caught.value.segments[0][0] == "tools"


def test_s4_45_without_a_budget_the_state_is_left_as_it_is() -> None:
    log = turns(5, "User {i}: x*100", "Asst {i}: y*100")
    first = trim(log, 500)
    plain = build([*log, user("more")], counter=RFC, options=rfc.MIRROR, ledger=first.ledger)
    assert (plain.ledger.lines, plain.ledger.cuts) == (first.ledger.lines, first.ledger.cuts)
    assert trimmed(plain) == trimmed(first)


def test_fact_13_state_of_another_conversation_trims_nothing() -> None:
    """Upstream's index is a position: carried into another history it trims whatever stands there."""
    ledger = trim(turns(10, "Msg {i}: x*100", "Resp {i}: y*100"), 600).ledger
    other = turns(2, "hello {i}", "a reply that is longer than the placeholder {i}")
    assert trimmed(trim(other, 200_000, ledger=ledger)) == []
