"""The last messages of history: what stands, what one digest stands for, and how often the prefix moves."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import BadInput, Budget, BuildMemo, Envelope, Form, Options, Role, Segment, build, recall
from lamina.core import CHARS4, audit, text_of
from lamina.core.epochs import WHOLE_HISTORY
from lamina.core.history_window import LastN
from lamina.core.laws import Case
from lamina.segments import assistant, call, file, result, system, thinking, user
from tests.core.conversations import build_each

WORDS = "words that take some room in a message of a chat "


def chat(turns: int, *, steps: int = 0) -> list[list[Segment]]:
    """Turns of question, tool calls and answer, each with its number in it."""
    envelopes: list[list[Segment]] = []
    for n in range(turns):
        turn = [user(f"question {n}: {WORDS}", key=f"q{n}")]
        for step in range(steps):
            name = f"c{n}-{step}"
            turn += [
                call("read", {"path": f"{name}.py"}, id=name, joins=False),
                result(f"result {name}: {WORDS}", id=name, name="read", key=f"r{n}-{step}"),
            ]
        envelopes.append([*turn, assistant(f"answer {n}: {WORDS}", key=f"a{n}")])
    return envelopes


def played(turns: list[list[Segment]], window: LastN | None, **arguments: Any) -> list[Envelope]:
    """The first request of each turn."""
    logs: list[list[Segment]] = []
    log = [system("Be brief.")]
    for turn in turns:
        opening = next(i for i, one in enumerate(turn) if one.role is Role.ASSISTANT)
        logs.append([*log, *turn[:opening]])
        log += turn
    return build_each(logs, options=Options(window=window), **arguments)


def sent_keys(envelope: Envelope) -> list[str]:
    """The keys of the messages of history that are sent."""
    return [e.segment.key for e in envelope.sent if e.segment.kind in {"user", "assistant"}][:-1]


def digests(envelope: Envelope) -> list[str]:
    return [text_of(e.parts) for e in envelope.sent if e.segment.kind == "digest"]


def test_an_exact_window_holds_the_last_messages_of_every_request() -> None:
    envelopes = played(chat(12), LastN(4, 0))
    last = [f"{who}{n}" for n in range(12) for who in "qa"]
    for number, envelope in enumerate(envelopes):
        assert sent_keys(envelope) == last[max(2 * number - 4, 0) : 2 * number]
    assert [bool(envelope.cut) for envelope in envelopes] == [n > 2 for n in range(12)]


def test_a_window_with_slack_moves_the_prefix_seldom_and_never_holds_less() -> None:
    envelopes = played(chat(30), LastN(6))
    sizes = [len(sent_keys(envelope)) for envelope in envelopes]
    assert sizes[:6] == [0, 2, 4, 6, 8, 10]
    assert all(6 <= size <= 12 for size in sizes[3:])
    cuts = [n for n, envelope in enumerate(envelopes) if envelope.cut]
    assert all(later - earlier == 4 for earlier, later in pairwise(cuts))
    assert {cut.reason for cut in envelopes[-1].ledger.cuts} == {"history beyond the last 6 messages"}


def test_everything_outside_can_be_recalled_by_one_handle_and_by_its_own() -> None:
    turns = chat(20)
    last = played(turns, LastN(4, 0))[-1]
    log = [system("Be brief."), *(one for turn in turns for one in turn)]
    outside: list[str] = []
    for fold, text in zip(last.ledger.folds, digests(last), strict=True):
        assert f'recall="{fold.key}"' in text
        covered = [one.key for one in recall(log, fold.key, ledger=last.ledger)]
        for key in covered:
            assert last.entry(key).form is Form.OMITTED
            assert last.entry(key).why == f"folded into {fold.key}"
            assert recall(log, key, ledger=last.ledger)[0].key == key
        outside += covered
    assert outside == [f"{who}{n}" for n in range(17) for who in "qa"]


@pytest.mark.parametrize("bound", [0, 200, 800])
def test_what_stands_for_the_rest_stays_bounded_however_long_a_conversation_is(bound: int) -> None:
    turns = chat(40)
    turns[3][0] = user("A very long message of the user's own. " * 200, key="q3")
    envelopes = played(turns, LastN(6, 2, digest=bound))
    for envelope in envelopes:
        assert sum(map(len, digests(envelope))) <= 2 * (bound + 150)
    assert envelopes[-1].tokens < 2 * envelopes[5].tokens


def test_calls_go_with_their_results_and_a_long_turn_is_not_cut_by_the_window() -> None:
    turns = chat(8, steps=2)
    envelopes = played(turns, LastN(3, 0))
    assert [sent_keys(envelope) for envelope in envelopes[2:]] == [[f"a{n}"] for n in range(1, 7)]
    results = [e.segment.key for e in envelopes[-1].sent if e.segment.kind == "tool_result"]
    assert results == ["r6-0", "r6-1"]  # two messages with their results, and the answer
    log = [one for turn in turns for one in turn][:-1]
    open_turn = [*log, *chat(1, steps=9)[0][:-1]]
    envelope = build(open_turn, counter=CHARS4, options=Options(window=LastN(3, 0)))
    audit(Case(log=tuple(open_turn), envelope=envelope, counter=CHARS4))
    steps = [e.segment.key for e in envelope.sent if e.segment.kind == "tool_result"]
    assert steps[-9:] == [f"r0-{n}" for n in range(9)]


def test_pinned_messages_and_system_text_stay_and_attachments_go_with_their_turn() -> None:
    turns = chat(10)
    turns[1][0] = user("Never forget this.", key="q1", pinned=True)
    turns[2].insert(0, file("a.py", "def f(): ...\n" * 20))
    last = played(turns, LastN(2, 0))[-1]
    assert last.entry("q1").form is Form.FULL
    assert last.entry("a.py").form is Form.OMITTED
    assert last.sent[0].segment.kind == "system"


def test_a_window_and_a_budget_make_one_cut() -> None:
    """A long answer comes in the turn before the window slides: what is left then is still too much."""
    budget = Budget(window=1_000, reserve=0, trigger=0.5, target=0.4, keep_last=0)
    turns = chat(8)
    turns[4][-1] = assistant("A long answer. " * 200, key="a4")
    envelopes = played(turns, LastN(4, 4), budget=budget)
    (cut, *_) = envelopes[-1].ledger.cuts
    assert cut.reason == "history beyond the last 4 messages; over the trigger"
    assert envelopes[5].cut == cut
    assert envelopes[5].entry("a4").form is Form.COMPACT
    assert sent_keys(envelopes[5]) == ["q3", "a3", "q4", "a4"]
    # A cache has lost everything from the earlier of the two places on: the window's here.
    assert cut.first == envelopes[5].entry("q0").ref
    numbers = [each.number for each in envelopes[-1].ledger.cuts]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_window_waits_while_its_line_would_be_longer_than_what_it_takes_out() -> None:
    turns = [[user(f"{n}", key=f"q{n}"), assistant("ok", key=f"a{n}")] for n in range(6)]
    envelopes = played(turns, LastN(2, 0))
    tokens = [envelope.tokens for envelope in envelopes]
    assert all(cut.after < cut.before for cut in envelopes[-1].ledger.cuts)
    assert max(tokens) < 60


def test_a_window_that_is_taken_away_brings_everything_back_at_a_recorded_cut() -> None:
    turns = chat(12)
    with_window = played(turns, LastN(4, 0))[-1]
    log = [system("Be brief."), *(one for turn in turns for one in turn)][:-1]
    after = build(log, counter=CHARS4, ledger=with_window.ledger)
    assert all(entry.form is Form.FULL for entry in after.entries)
    assert after.cut is not None
    assert after.cut.reason == WHOLE_HISTORY
    assert not after.ledger.folds


def test_a_window_at_rest_changes_nothing() -> None:
    turns = chat(12)
    with_window = played(turns, LastN(4, 0))[-1]
    log = [system("Be brief."), *(one for turn in turns for one in turn)][:-1]
    options = Options(window=LastN(4, 0).at_rest)
    after = build(log, counter=CHARS4, ledger=with_window.ledger, options=options)
    assert sent_keys(after) == sent_keys(with_window)
    assert after.cut is None


@given(st.integers(0, 6), st.integers(0, 4), st.lists(st.integers(0, 2), min_size=2, max_size=9))
def test_a_memo_changes_nothing_and_every_law_holds(messages: int, slack: int, shape: list[int]) -> None:
    turns = [chat(n + 1, steps=steps)[-1] for n, steps in enumerate(shape)]
    window = LastN(messages, slack)
    with_memo, without = played(turns, window, memo=BuildMemo()), played(turns, window)
    assert [one.entries for one in with_memo] == [one.entries for one in without]
    assert [one.ledger for one in with_memo] == [one.ledger for one in without]


@pytest.mark.parametrize("arguments", [{"messages": -1}, {"messages": 1, "slack": -1}, {"messages": 2.5}])
def test_a_window_is_a_number_of_messages(arguments: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="LastN"):
        LastN(**arguments)


def test_a_digest_ends_as_it_will_when_the_thinking_behind_it_is_loosened() -> None:
    """How a digest ends depends on who speaks next, and a cut takes bound thinking away from behind it."""
    options = Options(window=LastN(1, 0), binding="drop")
    log = [one for turn in chat(10, steps=2) for one in turn]
    log += [user("And?"), thinking("A loose thought.", signature="s")]
    first = build(log, counter=CHARS4, options=Options(binding="drop"))
    log.append(user("go on"))
    second = build(log, counter=CHARS4, ledger=first.ledger, options=options)
    third = build(log, counter=CHARS4, ledger=second.ledger, options=options)
    assert second.cut
    assert second.entries[-2].why == "thinking bound to the text before the cut"
    assert third.cut is None
    assert third.prefix == second.prefix


def test_a_window_without_a_digest_leaves_the_digests_of_the_room_alone() -> None:
    """Window and room may ask for one cut. What the room folded is not undone at each turn."""
    room = Budget(window=150, reserve=0, keep_last=0)
    envelopes = played(chat(12, steps=1), LastN(8, 0, digest=None), budget=room)
    assert sum(bool(envelope.ledger.folds) for envelope in envelopes) > 6
    assert sum(envelope.cut is not None for envelope in envelopes) <= 6


@pytest.mark.parametrize("window", [800, 1_200, 1_400])
def test_a_window_without_a_digest_writes_no_digest_of_the_room_anew(window: int) -> None:
    """It merged them under its own reason, and the next request sent everything again that they stood for."""
    turns = [
        [
            user(f"question {n}: {WORDS * (n % 3 + 1)}", key=f"q{n}"),
            call("read", {"path": f"{n}.py"}, id=f"c{n}", joins=False),
            result(f"result {n}: {WORDS * 40}", id=f"c{n}", name="read", key=f"r{n}"),
            assistant(f"answer {n}: {WORDS * (n % 4 + 1)}", key=f"a{n}"),
        ]
        for n in range(14)
    ]
    envelopes = played(turns, LastN(2, 6, digest=None), budget=Budget(window=window, reserve=0))
    assert any(envelope.ledger.folds for envelope in envelopes)


def test_the_answer_to_a_call_beyond_the_window_is_left_out_with_it() -> None:
    """The client deletes the result of such a call, so repair answers it, and no cut has seen that answer."""
    log = [one for turn in chat(4, steps=1) for one in turn] + [user("And?")]
    options = Options(window=LastN(2, 0, digest=None))
    before = build(log, counter=CHARS4, options=options)
    assert before.entry("r0-0").form is Form.OMITTED
    edited = [one for one in log if one.key != "r0-0"]
    after = build(edited, counter=CHARS4, ledger=before.ledger, options=options)
    assert [entry.form for entry in after.entries if entry.ref.endswith("!")] == [Form.OMITTED]
    again = build(edited, counter=CHARS4, ledger=after.ledger, options=options)
    assert (again.prefix, again.cut) == (after.prefix, None)
