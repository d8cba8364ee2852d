from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina import (
    Budget,
    BudgetExceeded,
    BuildMemo,
    Envelope,
    Form,
    Layer,
    Ledger,
    Options,
    Role,
    Segment,
    build,
)
from lamina.core import CHARS4, RFC, Counter, Filter, Layout, Raw, Thinking, Wording
from lamina.core.laws import is_same_request
from lamina.core.log_pieces import may_split_at
from lamina.core.repair import ScanMemory, repair
from lamina.core.tokens import ESTIMATE, Framing
from lamina.replay import generate_session, split_calls
from lamina.segments import assistant, call, file, result, system, user
from lamina.testing.strategies import logs
from tests.examples import up_to

Log = tuple[Segment, ...]


@pytest.fixture(autouse=True, scope="module")
def _few_names_settle() -> Iterator[None]:
    """Otherwise only the longest logs would have names and ids that are settled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lamina.core.hashing.SETTLED_AT", 2)
        patch.setattr("lamina.core.repair.SETTLED_AT", 2)
        yield


class Move(NamedTuple):
    """What happens to a conversation between two builds; `place` is a share of the log, in hundredths."""

    what: str
    place: int


WHATS = ("grow", "grow", "grow", "edit", "rewind", "fork", "reload", "options", "counter")
MOVES = st.lists(st.builds(Move, st.sampled_from(WHATS), st.integers(0, 99)), min_size=3, max_size=10)


OPTIONS = (
    Options(),
    Options(salt="1"),
    Options(wording=Wording(tagged=True)),
    Options(layout=Layout(exclude=Filter(kinds=frozenset({"tool_result"})))),
    Options(carries=lambda segment: "results stay away" if segment.kind == "tool_result" else ""),
)
"""A memo that was made under one of them must not shape a request under another."""


class Conversation:
    """A log that grows out of a longer one, and is tampered with; built with a memo and without."""

    def __init__(self, whole: Log, window: int) -> None:
        self.whole, self.end = whole, 2
        self.budget = Budget(window=window, reserve=0, keep_last=1)
        self.ledger, self.options, self.counter = Ledger(), Options(), ESTIMATE
        self.memo = BuildMemo()

    def take(self, move: Move) -> None:
        place = len(self.whole) * move.place // 100
        match move.what:
            case "grow":
                self.end = min(self.end + 1 + move.place % 5, len(self.whole))
            case "edit":
                self.whole = (*self.whole[:place], user(f"edited {move.place}"), *self.whole[place + 1 :])
            case "rewind":
                self.end = max(place, 2)
            case "fork":
                self.whole, self.ledger = (*self.whole[:place], *self.whole[place::-1]), Ledger()
            case "reload":
                self.ledger = Ledger.load(self.ledger.dump())
            case "options":
                self.options = OPTIONS[move.place % len(OPTIONS)]
            case "counter":
                self.counter = (ESTIMATE, RFC)[move.place % 2]

    def build(self, memo: BuildMemo | None) -> Envelope | int:
        try:
            return build(
                self.whole[: self.end],
                budget=self.budget,
                ledger=self.ledger,
                counter=self.counter,
                options=self.options,
                memo=memo,
            )
        except BudgetExceeded as error:
            return error.floor


@settings(max_examples=up_to(125))
@given(logs(), st.integers(400, 3_000), MOVES)
def test_a_memo_changes_nothing_whatever_happens_to_the_log(
    whole: Log, window: int, moves: list[Move]
) -> None:
    talk = Conversation(whole, window)
    for move in moves:
        talk.take(move)
        with_memo, without = talk.build(talk.memo), talk.build(None)
        if isinstance(with_memo, Envelope) and isinstance(without, Envelope):
            assert is_same_request(with_memo, without)
            talk.ledger = with_memo.ledger
        else:
            assert with_memo == without


def test_a_digest_is_not_there_before_what_it_covers() -> None:
    """A rewind into the folded steps, with the ledger and the memo of the build that folded them."""
    whole = generate_session(3, turns=6, steps=3)
    talk = Conversation(whole, 3_000)
    for move in (Move("grow", 4), *[Move("grow", 3)] * 12, Move("rewind", 20)):
        talk.take(move)
        with_memo, without = talk.build(talk.memo), talk.build(None)
        assert isinstance(with_memo, Envelope)
        assert isinstance(without, Envelope)
        assert is_same_request(with_memo, without)
        if move.what == "rewind":
            assert talk.ledger.folds
            assert not with_memo.ledger.folds
        talk.ledger = with_memo.ledger


def requests(log: Log, memo: Callable[[], BuildMemo | None]) -> list[Envelope]:
    """Every request of a session."""
    ledger, envelopes = Ledger(), []
    for each in split_calls(log):
        envelopes.append(build(each, budget=Budget(window=12_000, reserve=0), ledger=ledger, memo=memo()))
        ledger = envelopes[-1].ledger
    return envelopes


def test_two_threads_may_share_a_memo() -> None:
    shared = BuildMemo()
    sessions = [generate_session(seed, turns=2, steps=4) for seed in (1, 2)]
    plain = [requests(log, lambda: None) for log in sessions]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda log: requests(log, lambda: shared), sessions * 2))
    for index, envelopes in enumerate(results):
        assert all(map(is_same_request, envelopes, plain[index % 2]))
        assert len(envelopes) == len(plain[index % 2])


class Tally:
    """A counter that remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.counter = Counter(name="tally", count=self.count)

    def count(self, text: str) -> int:
        self.asked.append(text)
        return len(text)


def test_with_a_memo_only_what_is_new_is_counted() -> None:
    tally, memo = Tally(), BuildMemo()
    log = [user("One"), call("ls", {}, id="c1"), result("a.md", id="c1"), assistant("Two"), user("Three")]
    first = build(log, counter=tally.counter, memo=memo)
    tally.asked.clear()
    build([*log, assistant("Four"), user("Five")], counter=tally.counter, ledger=first.ledger, memo=memo)
    assert sorted(tally.asked) == ["Five", "Four"]


@pytest.mark.parametrize(
    "other",
    [
        Counter(name="mine", count=len, framing=Framing(call=50)),
        Counter(name="mine", count=lambda text: 2 * len(text)),
    ],
    ids=["framing", "count"],
)
def test_counters_that_share_a_name_do_not_share_their_counts(other: Counter) -> None:
    log, memo = [user("One"), call("ls", {}, id="c1"), result("a.md", id="c1")], BuildMemo()
    build(log, counter=Counter(name="mine", count=len), memo=memo)
    assert build(log, counter=other, memo=memo).tokens == build(log, counter=other).tokens


def test_words_that_come_again_late_and_results_of_old_calls_are_known_to_a_memo() -> None:
    memo, ledger, log = BuildMemo(), Ledger(), [user("Begin."), assistant("Yes.")]
    for number in range(9):
        question = "Again?" if number % 4 == 0 else f"And {number}?"
        log += [user(question), call("read", {}, id=f"c{number}"), result("found", id=f"c{number}")]
        log += [result("found at last", id="c0")] if number % 4 == 3 else []
        log += [assistant("Yes.")]
        with_memo = build([*log, user("Go on.")], ledger=ledger, memo=memo)
        assert is_same_request(with_memo, build([*log, user("Go on.")], ledger=ledger))
        ledger = with_memo.ledger


def test_turns_that_are_taken_back_make_the_prompt_a_prompt_again() -> None:
    memo, log = BuildMemo(), [user("One"), assistant("Two"), user("Three")]
    before = build(log, memo=memo)
    after = build(log[:2], ledger=before.ledger, memo=memo)
    assert (before.entries[0].layer, after.entries[0].layer) == (Layer.HISTORY, Layer.PROMPT)


def test_a_memo_resumes_where_the_log_continues_and_begins_anew_where_it_does_not() -> None:
    memo, log = BuildMemo(), [user("One"), assistant("Two"), user("Three"), assistant("Four"), user("Five")]
    first = build(log, counter=CHARS4, memo=memo)
    checkpoint = memo.checkpoint
    assert checkpoint is not None
    assert checkpoint.log[: checkpoint.boundary] == tuple(log[:3])
    edited = [user("Zero"), *log[1:]]
    build(edited, counter=CHARS4, ledger=first.ledger, memo=memo)
    assert memo.checkpoint is not None
    assert memo.checkpoint.log[: memo.checkpoint.boundary] == tuple(edited[:3])


@pytest.mark.parametrize("before", OPTIONS)
@pytest.mark.parametrize("after", OPTIONS)
def test_a_memo_of_other_options_changes_nothing(before: Options, after: Options) -> None:
    log = [user("Read both.")]
    for number in range(4):
        log += [call("read", {}, id=f"c{number}", joins=False), result("found", id=f"c{number}")]
    log += [assistant("Done."), user("Go on.")]
    memo = BuildMemo()
    ledger = build(log[:-2], options=before, memo=memo).ledger
    with_memo = build(log, options=after, ledger=ledger, memo=memo)
    assert is_same_request(with_memo, build(log, options=after, ledger=ledger))


@pytest.mark.parametrize("other", [{"index": True}, {"index": 1.0}])
def test_what_only_python_holds_for_equal_is_another_log_to_a_memo(other: dict[str, object]) -> None:
    """`1`, `1.0` and `true` are equal here and three different requests on the wire."""

    def log_of(data: dict[str, object]) -> list[Segment]:
        block = Segment(role=Role.ASSISTANT, kind="assistant", parts=(Raw(dialect="anthropic", data=data),))
        return [user("One"), block, user("Two"), assistant("Three"), user("Four")]

    memo = BuildMemo()
    first = build(log_of({"index": 1}), memo=memo)
    again = build(log_of(other), ledger=first.ledger, memo=memo)
    assert is_same_request(again, build(log_of(other), ledger=first.ledger))


PIECES = st.sampled_from(
    [
        user("Please go on."),
        user(" "),
        system("Be brief."),
        system(" "),
        assistant("Here it is."),
        assistant(" "),
        assistant("And more.", joins=True),
        call("read", {}, id="a", joins=False),
        call("read", {}, id="b"),
        result("found", id="a"),
        result("nothing", id="b"),
    ]
)
"""What may follow what in a log that a client has made badly."""


@given(st.lists(PIECES, min_size=2, max_size=9), st.integers(0, 9))
def test_a_log_may_be_mended_in_two_pieces_wherever_it_may_be_parted(
    log: list[Segment], sent_before: int
) -> None:
    """Also with the repairs of an earlier request, which ended in the midst of the log."""
    _, repairs = repair(log[:sent_before], Ledger(), wording=Wording(), memory=ScanMemory())
    before = Ledger(repairs=repairs)
    at_once = repair(log, before, wording=Wording(), memory=ScanMemory())
    for at in range(1, len(log)):
        if not may_split_at(log, at):
            continue
        memory = ScanMemory()
        first, first_repairs = repair(log[:at], before, wording=Wording(), memory=memory, ends=False)
        second, second_repairs = repair(log[at:], before, wording=Wording(), memory=memory)
        assert (first + second, first_repairs | second_repairs) == at_once


def test_a_log_is_not_parted_between_system_text_and_a_call_with_a_blank_message_between() -> None:
    """The call may belong to the message before the system text, whose calls wait for their results."""
    log = [
        call("read", {}, id="a", joins=False),
        system("Be brief."),
        assistant(" "),
        call("read", {}, id="b", joins=False),
    ]
    assert not may_split_at(log, 3)


@given(st.randoms(use_true_random=False), st.sampled_from([300, 600, 1_200, 3_000]))
def test_pins_that_come_and_go_are_the_same_with_a_memo(dice: Random, window: int) -> None:
    """Attachments that repeat each other, some of them pinned: what is pinned stands in full, each time."""
    texts = ("line of text here\n" * 60, "other text there\n" * 40)
    log: list[Segment] = []
    memo = BuildMemo()
    ledger = Ledger()
    budget = Budget(window=window, reserve=0, keep_last=1)
    for turn in range(5):
        names = dice.sample("ab", dice.randint(0, 2))
        log += [file(name, dice.choice(texts), pinned=dice.random() < 0.3) for name in names]
        at = dice.randrange(len(log)) if log else -1
        if at >= 0 and log[at].kind == "file":
            log[at] = msgspec.structs.replace(log[at], pinned=not log[at].pinned)
        log.append(user(f"question {turn}"))
        try:
            without = build(log, budget=budget, ledger=ledger, counter=CHARS4)
        except BudgetExceeded:
            return
        with_memo = build(log, budget=budget, ledger=ledger, counter=CHARS4, memo=memo)
        assert is_same_request(with_memo, without)
        assert all(entry.form is Form.FULL for entry in without.entries if entry.segment.pinned)
        ledger = without.ledger
        log.append(assistant("word " * dice.randint(1, 100)))


def test_a_rewind_to_thinking_makes_the_question_current_again() -> None:
    """Thinking begins no step. If the client takes back the answer after it, the attachment is sent again."""
    thinking = Segment(role=Role.ASSISTANT, kind="thinking", parts=(Thinking(text="Hm.", signature="s"),))
    begun = (
        system("Be brief."),
        user("Read this."),
        assistant("Reading."),
        file("notes/a.md", "the same words again and again " * 30),
        user("What does it say?"),
        thinking,
        thinking,
    )
    answered = (*begun, msgspec.structs.replace(assistant("It says a lot."), joins=True))
    gone_on = (*answered, user("And now?"), assistant("More. " * 120), user("And then?"))
    ledger, memo = Ledger(), BuildMemo()
    for log in (begun[:5], gone_on, answered, begun):
        arguments: dict[str, Any] = {
            "budget": Budget(window=400, reserve=0),
            "options": Options(binding="strict"),
        }
        plain = build(log, ledger=ledger, **arguments)
        remembered = build(log, ledger=ledger, memo=memo, **arguments)
        assert is_same_request(plain, remembered)
        ledger = remembered.ledger
    assert ledger.cuts[0].lowered
