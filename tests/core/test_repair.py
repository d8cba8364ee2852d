from __future__ import annotations

import re
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import BadInput, Entry, Envelope, Form, Ledger, Options, Role, Segment, build, diff
from lamina.core import CHARS4, Filter, Layout, Repairs, Text, ToolCall, ToolResult, text_of
from lamina.core.laws import Case, calls_and_results_pair
from lamina.core.repair import ANSWERED, ENDED, UNANSWERED
from lamina.core.turns import OWN_TURN_ONLY
from lamina.core.values import Ref
from lamina.segments import assistant, call, memory, result, segment, summary, system, user
from lamina.testing.strategies import logs

ASK = user("List the files")
LS = call("ls", {"path": "."}, id="c1")


def built(*log: Segment, ledger: Ledger | None = None, repairs: Repairs | None = None) -> Envelope:
    options = Options(repairs=repairs or Repairs())
    return build(log, ledger=ledger or Ledger(), counter=CHARS4, options=options)


def texts(envelope: Envelope) -> list[str]:
    return [text_of(e.parts) for e in envelope.sent]


def left_out(envelope: Envelope) -> dict[str, str]:
    return {text_of(e.segment.parts): e.why for e in envelope.entries if e.form is Form.OMITTED}


def ids(envelope: Envelope) -> list[str]:
    """The ids of calls and results, as sent."""
    parts = (e.parts[0] for e in envelope.sent)
    return [p.id for p in parts if isinstance(p, ToolCall | ToolResult)]


def pairs(envelope: Envelope) -> bool:
    return not list(calls_and_results_pair(Case(log=(), envelope=envelope)))


def kept_in_ledger(envelope: Envelope, key: str) -> str:
    return envelope.ledger.repairs[Ref(key)]


# calls without results


@pytest.mark.parametrize("after", [(), (user("Never mind"),), (assistant("Well"),)])
def test_a_call_without_a_result_is_answered_for_it(after: tuple[Segment, ...]) -> None:
    envelope = built(ASK, LS, *after)
    call_entry, answer = envelope.sent[1:3]
    assert answer.parts == (ToolResult(id="c1", name="ls", content=(Text(UNANSWERED),), error=True),)
    assert answer.segment.origin == "lamina"
    ended = {} if after else {f"{call_entry.ref}:end": ENDED}
    assert envelope.ledger.repairs == {call_entry.ref: ANSWERED} | ended
    assert pairs(envelope)


def test_the_answer_stays_and_a_result_that_comes_later_is_content() -> None:
    before = built(ASK, LS)
    ledger = Ledger.load(before.ledger.dump())
    after = built(ASK, LS, result("a.md", id="c1", name="ls"), user("Thanks"), ledger=ledger)
    assert diff(before, after).continues
    late, end = after.sent[len(before.sent) :][:2]
    assert (late.role, late.why) == (Role.ASSISTANT, "late result, as content")
    assert text_of(late.parts) == '<late_result tool="ls" call_id="c1">\na.md\n</late_result>'
    assert (end.role, text_of(end.parts)) == (Role.USER, "[end of the late result]")
    assert kept_in_ledger(after, late.ref) == "late result appended as content"
    assert pairs(after)


def test_without_that_request_the_same_result_is_a_result() -> None:
    envelope = built(ASK, LS, result("a.md", id="c1"), user("Thanks"))
    assert texts(envelope)[2:] == ["a.md", "Thanks"]
    assert envelope.ledger.repairs == {}


def test_what_was_said_before_a_result_follows_it() -> None:
    """Nothing may stand between a call and its result, and a result that is there is not invented."""
    envelope = built(ASK, LS, user("Hurry"), result("a.md", id="c1"))
    assert texts(envelope)[2:] == ["a.md", "Hurry"]
    assert envelope.ledger.repairs == {}
    after = built(ASK, LS, user("Hurry"), result("a.md", id="c1"), assistant("Here."), ledger=envelope.ledger)
    assert diff(envelope, after).continues


def test_a_result_that_comes_after_the_model_went_on_is_quoted_in_its_voice() -> None:
    envelope = built(ASK, LS, assistant("I will wait."), user("Hurry"), result("a.md", id="c1"))
    assert texts(envelope)[2] == UNANSWERED
    late, end = envelope.sent[-2:]
    assert (late.role, late.why) == (Role.ASSISTANT, "late result, as content")
    assert (end.role, end.segment.origin) == (Role.USER, "lamina")


def test_parallel_results_with_words_between_them_all_find_their_call() -> None:
    calls = [call("ls", {}, id="c1"), call("ls", {}, id="c2")]
    messages = [result("one", id="c1"), user("and?", joins=True), result("two", id="c2", joins=False)]
    envelope = built(ASK, *calls, *messages)
    assert texts(envelope)[3:] == ["one", "two", "and?"]
    assert pairs(envelope)


def test_late_results_and_unanswered_calls_can_be_left_out_instead() -> None:
    mirror = Repairs(dangling="omit", late="omit")
    envelope = built(ASK, LS, user("Hurry"), result("a.md", id="c1"), repairs=mirror)
    assert left_out(envelope) == {'{"path": "."}': "call without a result", "a.md": "result without its call"}
    assert sorted(envelope.ledger.repairs.values()) == [
        "call without a result left out",
        "result without its call",
    ]


def test_a_system_message_between_a_call_and_its_result_waits_for_the_result() -> None:
    answer, instruction = result("a.py", id="c1"), system("Be brief.")
    log = (ASK, LS, instruction, answer, assistant("One file."))
    envelope = built(*log)
    assert [e.segment for e in envelope.sent] == [ASK, LS, answer, instruction, log[-1]]
    assert envelope.ledger.repairs == {}


def test_an_answer_that_was_sent_stays_before_the_system_message_that_followed_it() -> None:
    first = built(ASK, LS, system("Be brief."))
    assert texts(first)[2:] == [UNANSWERED, "Be brief."]
    second = built(ASK, LS, system("Be brief."), result("a.py", id="c1"), ledger=first.ledger)
    assert second.cut is None
    assert texts(second)[2:4] == [UNANSWERED, "Be brief."]
    assert "a.py" in texts(second)[4]


def test_what_the_model_says_after_an_answer_that_was_sent_stands_after_it() -> None:
    """The client does not know of the answer, so what follows continues the message of the call."""
    goes_on = (assistant("Well.", joins=True), call("ls", {"path": "b"}, id="c2", joins=True))
    first = built(ASK, LS)
    second = built(ASK, LS, *goes_on, ledger=first.ledger)
    assert texts(second)[:3] == texts(first)
    assert second.cut is None
    assert [e.opens for e in second.sent] == [True, True, True, True, False, True]
    third = built(ASK, LS, *goes_on, user("Thanks"), ledger=second.ledger)
    assert texts(third)[:6] == texts(second)
    assert third.cut is None
    assert texts(built(ASK, LS, *goes_on))[2] == "Well."


@pytest.mark.parametrize("joins", [False, True])
def test_words_between_a_call_and_its_result_stand_after_it(joins: bool) -> None:  # noqa: FBT001
    words = [user("Wait."), user("Or not.", joins=joins)]
    log = (ASK, LS, *words, result("a.py", id="c1"), assistant("One file."))
    envelope = built(*log)
    assert texts(envelope)[2:5] == ["a.py", "Wait.", "Or not."]
    assert [e.opens for e in envelope.sent[3:5]] == [True, not joins]
    assert pairs(envelope)
    assert envelope.ledger.repairs == {}


def test_words_after_an_answer_that_was_sent_stay_there() -> None:
    first = built(ASK, LS, user("Wait."))
    second = built(ASK, LS, user("Wait."), result("a.py", id="c1"), ledger=first.ledger)
    assert texts(second)[:4] == texts(first)
    assert second.cut is None
    assert second.sent[-1].role is Role.USER


# results that are too many, or have no call


def test_of_two_results_the_first_stands_since_it_was_sent() -> None:
    log = (ASK, LS, result("first", id="c1"))
    before = built(*log)
    after = built(*log, result("second", id="c1"), user("Go on"), ledger=before.ledger)
    assert diff(before, after).continues
    assert left_out(after) == {"second": "duplicate result: an earlier one stands"}
    assert list(after.ledger.repairs.values()) == ["duplicate result: an earlier one stands"]


def test_of_two_results_the_last_stands_where_that_is_asked_for() -> None:
    log = (ASK, LS, result("first", id="c1"), result("second", id="c1"))
    envelope = built(*log, repairs=Repairs(duplicates="last"))
    assert texts(envelope)[2:] == ["second"]
    assert left_out(envelope) == {"first": "duplicate result: a later one stands"}
    assert kept_in_ledger(envelope, envelope.entries[2].ref) == "duplicate result"


def test_a_result_whose_call_was_never_there_is_left_out() -> None:
    envelope = built(ASK, result("who asked?", id="c9"), assistant("Hm"))
    assert left_out(envelope) == {"who asked?": "result without its call"}
    assert kept_in_ledger(envelope, envelope.entries[1].ref) == "result without its call"


# ids


def test_calls_that_share_one_id_are_paired_by_position() -> None:
    log = [ASK]
    for name in "abc":
        log += [call("read", {"path": name}, id="call"), result(name * 3, id="call")]
    envelope = built(*log)
    assert texts(envelope)[2::2] == ["aaa", "bbb", "ccc"]
    assert (left_out(envelope), envelope.ledger.repairs) == ({}, {})


def test_parallel_calls_that_share_one_id_get_one_result_each() -> None:
    log = (ASK, call("read", {"n": 1}, id="x"), call("read", {"n": 2}, id="x"))
    envelope = built(*log, result("one", id="x"), result("two", id="x"))
    assert texts(envelope)[3:] == ["one", "two"]
    short = built(*log, result("one", id="x"))
    assert texts(short)[3:] == ["one", UNANSWERED]
    assert pairs(short)


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_results_of_parallel_calls_may_come_in_any_order(order: tuple[str, ...]) -> None:
    log = [ASK, assistant("All three"), *(call("read", {"path": i}, id=i) for i in "abc")]
    envelope = built(*log, *(result(f"content of {i}", id=i) for i in order))
    assert ids(envelope) == [*"abc", *order]
    assert envelope.ledger.repairs == {}
    assert pairs(envelope)


@pytest.mark.parametrize("missing", "abc")
def test_only_the_missing_one_of_parallel_calls_is_answered(missing: str) -> None:
    log = [ASK, *(call("read", {"path": i}, id=i) for i in "abc")]
    envelope = built(*log, *(result("there", id=i) for i in "cba" if i != missing))
    assert ids(envelope)[-1] == missing
    assert texts(envelope).count(UNANSWERED) == 1
    assert pairs(envelope)


def test_ids_that_break_the_pattern_are_renamed_with_their_results() -> None:
    log = (ASK, call("read", {}, id="a/b"), call("read", {"n": 1}, id="a_b"))
    answers = (result("one", id="a/b"), result("two", id="a_b"))
    envelope = built(*log, *answers, repairs=Repairs(id_pattern="[a-z_0-9]+"))
    renamed = ids(envelope)[0]
    assert ids(envelope) == [renamed, "a_b", renamed, "a_b"]
    assert re.fullmatch("a_b_[0-9a-f]{8}", renamed)
    call_entry = envelope.sent[1]
    assert envelope.ledger.repairs == {Ref(f"{call_entry.ref}:id"): f"id renamed to {renamed}"}
    assert call_entry.segment == log[1], "the log keeps the id"


def test_an_id_that_was_used_before_is_renamed_where_ids_must_be_unique() -> None:
    log = [ASK]
    for name in ("one", "two", "three"):
        log += [call("read", {"path": name}, id="call"), result(name, id="call")]
    envelopes = [built(*log[:end], repairs=Repairs(unique_ids="log")) for end in (5, 7)]
    first, second, third = ids(envelopes[1])[::2]
    assert first == "call"
    assert len({first, second, third}) == 3
    assert ids(envelopes[1])[1::2] == [first, second, third]
    assert ids(envelopes[0]) == ids(envelopes[1])[:4], "a later call does not change the id of an earlier one"


def test_an_id_may_be_used_again_where_it_need_only_be_unique_in_its_message() -> None:
    log = [ASK]
    for name in ("one", "two"):
        log += [call("read", {"path": name}, id="c"), call("read", {"path": name * 2}, id="c")]
        log += [result(name, id="c"), result(name * 2, id="c")]
    first, again, *answers, third, _, _, _ = ids(built(*log, repairs=Repairs(unique_ids="message")))
    assert first == third == "c" != again
    assert answers == [first, again]


def test_an_id_without_a_valid_character_is_renamed_too() -> None:
    envelope = built(ASK, call("read", {}, id=""), result("r", id=""), repairs=Repairs(id_pattern=".+"))
    first, second = ids(envelope)
    assert first == second
    assert re.fullmatch("call_[0-9a-f]{8}", first)


# messages


@pytest.mark.parametrize("nothing", ["", "   ", "\n\t "])
def test_an_empty_message_is_left_out_with_a_reason(nothing: str) -> None:
    envelope = built(user(nothing), ASK, assistant(nothing))
    assert texts(envelope) == ["List the files"]
    assert [e.why for e in envelope.entries] == ["empty", "in full", "empty"]
    assert set(envelope.ledger.repairs.values()) == {"empty"}


def test_a_segment_without_parts_is_left_out() -> None:
    envelope = built(ASK, segment("assistant", Role.ASSISTANT, ()))
    assert [e.why for e in envelope.entries] == ["in full", "empty"]


def test_what_continues_an_empty_message_does_not_continue_the_one_before() -> None:
    envelope = built(ASK, assistant("One"), assistant(" "), LS, result("r", id="c1"))
    assert [(e.opens, e.step) for e in envelope.sent] == [(True, 0), (True, 1), (True, 2), (True, 2)]


def test_adjacent_messages_of_one_role_stay_apart_unless_merging_is_asked_for() -> None:
    log = (user("One"), user("Two"), assistant("Three"))
    assert [e.opens for e in built(*log).sent] == [True, True, True]
    assert [e.opens for e in built(*log, repairs=Repairs(merge=True)).sent] == [True, False, True]


def test_what_became_neighbours_is_merged_too() -> None:
    """A filter, or a summary, took out what stood between."""
    done = segment("task_completed", Role.ASSISTANT, "{}", key="done")
    layout = Layout(exclude=Filter(kinds=frozenset({"task_completed"})))
    merged = Options(repairs=Repairs(merge=True), layout=layout)
    log = [user("One"), done, user("Two"), assistant("Three"), done, assistant("Four"), user("Five"), done]
    envelope = build(log, options=merged)
    assert [e.opens for e in envelope.sent] == [True, False, True, False, True]
    later = build([*log, assistant("Six")], options=merged, ledger=envelope.ledger)
    assert later.cut is None
    covered = [user("One"), assistant("Two", key="two"), user("Three"), summary("Short.", covers=["two"])]
    envelope = build(covered, options=Options(repairs=Repairs(merge=True)))
    assert [e.opens for e in envelope.sent] == [True, False, False]


def test_a_summary_of_one_of_several_calls_stands_before_all_of_them() -> None:
    """Between a call and its result no provider takes anything else."""
    log = [
        user("Do both."),
        assistant("I will."),
        call("read", {}, id="a", key="first"),
        call("write", {}, id="b", key="second"),
        result("one", id="a", key="found"),
        result("two", id="b", key="written"),
        user("And?"),
        summary("It is written.", covers=["second", "written"]),
    ]
    envelope = build(log, counter=CHARS4)
    assert [entry.segment.kind for entry in envelope.sent][1] == "progress_summary"
    assert envelope.entry("written").why.startswith("covered by")


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (segment("user", Role.USER, LS.parts[0]), "cannot hold a ToolCall"),
        (segment("tool_result", Role.ASSISTANT, result("r", id="c1").parts[0]), "cannot hold a ToolResult"),
        (segment("assistant", Role.ASSISTANT, (Text("so"), LS.parts[0])), "shares its segment"),
    ],
)
def test_what_no_log_can_mean_is_refused(bad: Segment, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        built(ASK, bad)


# the ledger


CHOICES = (
    "same content as",
    "replaced in the same turn",
    "replaced by",
    "attached twice with one question",
    OWN_TURN_ONLY,
)
"""Why a segment is not sent although nothing about it was mended."""


def mended(entry: Entry) -> str:
    """The line that the ledger must have for this entry, if repair did something to it."""
    if entry.segment.origin == "lamina":
        return "" if entry.segment.key.endswith("!end") else entry.segment.key.removesuffix("!")
    if entry.why.startswith(CHOICES):
        return ""
    if entry.form is Form.OMITTED or entry.role is not entry.segment.role:
        return entry.ref
    renamed = isinstance(entry.parts[0], ToolCall) and entry.parts != entry.segment.parts
    return f"{entry.ref}:id" if renamed else ""


REPAIRS = st.sampled_from(
    [
        Repairs(),
        Repairs(dangling="omit"),
        Repairs(duplicates="last"),
        Repairs(unique_ids="log", id_pattern=r"\w+"),
    ]
)


@given(logs(), REPAIRS)
def test_every_repair_is_a_line_of_the_ledger_and_is_made_once(
    log: tuple[Segment, ...], repairs: Repairs
) -> None:
    once = built(*log, repairs=repairs)
    lines = {line for line, what in once.ledger.repairs.items() if what != ENDED}
    assert {mended(e) for e in once.entries} - {""} == lines
    assert len(once.ledger.repairs) - len(lines) <= 1
    again = built(*log, ledger=Ledger.load(once.ledger.dump()), repairs=repairs)
    assert again.entries == once.entries
    assert again.ledger == once.ledger


@given(logs(oddly=False))
def test_a_well_formed_log_is_not_touched(log: tuple[Segment, ...]) -> None:
    envelope = built(*log)
    assert envelope.ledger.repairs == {}
    again = [e for e in envelope.entries if e.why.startswith(CHOICES)]
    assert all(e.form is not Form.OMITTED for e in envelope.entries if e not in again)
    assert all(e.mended is None for e in envelope.entries)


def test_parallel_calls_after_system_text_stay_together() -> None:
    """The model's message goes on after the system text, with all of its calls."""
    log = [user("Go."), call("read", {}, id="1", joins=False), system("Be brief.")]
    log += [call("read", {"a": 1}, id="2", joins=False), call("run", {}, id="3")]
    log += [result("two", id="2"), result("three", id="3"), user("Now?")]
    envelope = build(log, counter=CHARS4)
    calls = [entry.parts[0].id for entry in envelope.sent if isinstance(entry.parts[0], ToolCall)]
    results = [entry.parts[0].id for entry in envelope.sent if isinstance(entry.parts[0], ToolResult)]
    opened = [entry.opens for entry in envelope.sent if isinstance(entry.parts[0], ToolCall)]
    assert calls == ["1", "2", "3"]
    assert opened == [True, False, False]
    assert sorted(results) == calls
    assert not any(entry.why.startswith("late") for entry in envelope.entries)


@pytest.mark.parametrize("second_id", ["c", "d"])
def test_a_blank_message_ends_the_calls_before_it_also_if_system_text_follows(second_id: str) -> None:
    log = [call("bash", "{}", id="c"), assistant(""), memory("m"), call("bash", "{}", id=second_id)]
    envelope = build(log)
    parts = [type(entry.parts[0]) for entry in envelope.sent if entry.role is not Role.SYSTEM]
    assert parts == [ToolCall, ToolResult, ToolCall, ToolResult]
    assert list(calls_and_results_pair(Case(log=tuple(log), envelope=envelope))) == []
