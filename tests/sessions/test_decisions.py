"""Single decisions of a session at their edges: marks and cuts of its state, turns, results."""

from __future__ import annotations

from typing import Any

import pytest

from lamina.core import CHARS4, KINDS, Cut, ToolCall, ToolResult, text_of
from lamina.core.build import build
from lamina.core.values import Budget, Ledger, Segment
from lamina.errors import BadInput
from lamina.segments import assistant, call, memory, note, persona, result, system, user
from lamina.sessions.answers import list_unanswered, make_results, order_results
from lamina.sessions.stored_conversation import CutPlace, SessionState
from lamina.sessions.turn_gathering import REPEATED_NOTE, _drop_repeated
from lamina.sessions.turns import index_before_open_calls, list_open_calls, list_turn_starts

READ = ToolCall(id="c1", name="read_file", arguments="{}")
WRITE = ToolCall(id="c2", name="write_file", arguments="{}")
TALK = [system("Be brief."), user("one"), assistant("1"), user("two")]


def test_the_mark_before_a_request_is_that_of_the_last_one_unless_a_cut_was_made() -> None:
    first = SessionState().built(build(TALK[:2], counter=CHARS4), 2)
    assert first.before is None
    envelope = build(TALK, ledger=first.ledger, counter=CHARS4)
    assert envelope.cut is None
    second = first.after_append().built(envelope, 4)
    assert second.before == first.ledger.mark is not None
    again = second.built(build(TALK, ledger=second.ledger, counter=CHARS4), 4)
    assert again.before == second.before


def test_after_a_cut_no_mark_is_before_the_request() -> None:
    log = [user("Read it."), *TALK[2:], user("words " * 2_000), assistant("Done."), user("And now?")]
    budget = Budget(window=1_000, reserve=0, keep_last=1)
    first = SessionState().built(build(log[:1], budget=budget, counter=CHARS4), 1)
    envelope = build(log, budget=budget, ledger=first.ledger, counter=CHARS4)
    assert envelope.cut is not None
    second = first.after_append().built(envelope, len(log))
    assert second.before is None
    assert second.cuts == (CutPlace(number=envelope.cut.number, count=len(log)),)
    assert second.find_made_cut(len(log)) == envelope.cut


def test_only_the_last_cut_was_made_for_the_last_request() -> None:
    earlier = Cut(number=1, reason="full")
    later = Cut(number=2, reason="full again")
    places = (CutPlace(number=1, count=4), CutPlace(number=2, count=9))
    state = SessionState(ledger=Ledger(cuts=(earlier, later)), cuts=places)
    assert state.find_made_cut(9) == later
    assert state.find_made_cut(4) is None
    assert state.find_made_cut(10) is None
    only = SessionState(ledger=Ledger(cuts=(earlier,)), cuts=places[:1])
    assert only.find_made_cut(4) == earlier
    assert SessionState().find_made_cut(0) is None


def test_results_may_be_a_dict_a_part_or_a_segment() -> None:
    ready = result("kept as it is", id="c3", name="other")
    made = make_results([{"c1": "read"}, ToolResult(id="c2", content=()), ready], [READ, WRITE])
    parts = [segment.parts[0] for segment in made]
    assert [(part.id, part.name) for part in parts if isinstance(part, ToolResult)] == [
        ("c1", "read_file"),
        ("c2", "write_file"),
        ("c3", "other"),
    ]
    assert text_of(made[0].parts) == "read"
    assert made[2] is ready


@pytest.mark.parametrize("wrong", ["text", ["c1", "text"], None, 3])
def test_anything_else_is_no_result(wrong: Any) -> None:
    with pytest.raises(BadInput, match="is no result"):
        make_results([wrong], [READ])


def test_results_stand_in_the_order_of_their_calls_and_foreign_ones_last() -> None:
    results = [result(id_, id=id_) for id_ in ("c9", "c2", "c1")]
    ordered = order_results(results, [READ, WRITE])
    assert [text_of(segment.parts) for segment in ordered] == ["c1", "c2", "c9"]
    assert list_unanswered([READ, WRITE], results[:2]) == [READ]


@pytest.mark.parametrize(
    ("log", "starts"),
    [
        ([], []),
        ([user("one")], [0]),
        ([persona("Ada"), memory("likes tea"), user("one")], [2]),
        ([system("Be brief."), user("one"), assistant("1"), memory("likes tea"), user("two")], [1, 3]),
        ([user("one"), assistant("1"), persona("Ada"), memory("likes tea"), user("two")], [0, 2]),
        ([user("one"), assistant("1"), memory("likes tea")], [0]),
        ([user("one"), user("more"), assistant("1")], [0]),
    ],
)
def test_sections_at_the_beginning_belong_to_no_turn_and_later_ones_to_the_next(
    log: list[Segment], starts: list[int]
) -> None:
    assert list_turn_starts(log, KINDS) == starts


def test_the_last_answer_begins_before_its_open_calls() -> None:
    log = [user("Read both."), assistant("Well."), call("read_file", {}, id="c1")]
    assert index_before_open_calls(log) == 1
    log.append(result("done", id="c1", name="read_file"))
    assert list_open_calls(log) == ()
    assert index_before_open_calls(log) == len(log)
    log.append(call("read_file", {}, id="c2"))
    assert index_before_open_calls(log) == 4
    assert index_before_open_calls([]) == 0


def test_messages_that_are_in_the_log_already_are_dropped_and_attachments_are_not() -> None:
    page = note("docs/spec.md", "The spec.")
    facts = memory("likes tea")
    log = [user("one"), page, facts, assistant("1")]
    again = _drop_repeated([user("one"), page, facts, user("two")], log, KINDS)
    assert again.segments == (page, facts, user("two"))
    assert again.notes == (REPEATED_NOTE.format(count=1),)
    assert _drop_repeated([page, facts], log, KINDS).segments == (page, facts)
