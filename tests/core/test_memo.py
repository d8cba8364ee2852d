from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina import (
    Budget,
    BudgetExceeded,
    BuildMemo,
    Entry,
    Envelope,
    Layer,
    Ledger,
    Options,
    RequestHead,
    Role,
    Segment,
    build,
)
from lamina.core import CHARS4, KINDS, RFC, Counter, Filter, Layout, Raw, Thinking, Wording, text_of
from lamina.core.cut_target import count_standing
from lamina.core.draft import may_split_at
from lamina.core.history_window import LastN
from lamina.core.laws import is_same_request
from lamina.core.repair import AS_IS, LogScan, ScanMemory
from lamina.core.tokens import Framing
from lamina.core.values import Calibration, Ref
from lamina.segments import assistant, call, file, result, system, user
from lamina.testing import generate_session, split_calls
from lamina.testing.strategies import EDITS, logs, reworded
from tests.examples import up_to

Log = tuple[Segment, ...]
EMPTY = Ledger()


@pytest.fixture(autouse=True, scope="module")
def _few_names_settle() -> Iterator[None]:
    """Otherwise only the longest logs would have names and ids that are settled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lamina.core.hashing.SETTLED_AT", 2)
        patch.setattr("lamina.core.repair.SETTLED_AT", 2)
        yield


FEWER_KINDS = {**KINDS, "note": KINDS["user"], "file": KINDS["selected_text"]}
"""A table in which notes are the user's words, and files cannot be recovered."""


OPTIONS = (
    Options(),
    Options(kinds=FEWER_KINDS),
    Options(binding="strict"),
    Options(layout=Layout(library="hoisted")),
    Options(salt="1", remind=False),
    Options(wording=Wording(tagged=True), late_system=False),
    Options(layout=Layout(exclude=Filter(kinds=frozenset({"tool_result"})))),
    Options(carries=lambda segment: "results stay away" if segment.kind == "tool_result" else ""),
    Options(binding="drop", window=LastN(4, 1)),
)
"""A memo that was made under one of them must not shape a request under another."""

HEADS = (RequestHead(), RequestHead(tools=({"name": "read_file"},)))


def calibrated(ledger: Ledger, millis: int) -> Ledger:
    """The ledger after a provider has reported so many thousandths of what was counted."""
    return msgspec.structs.replace(ledger, calibration=Calibration(millis=millis, samples=1))


class Talk:
    """One conversation: its log, what is said next in it, and the ledger of its last request."""

    def __init__(self, log: Log, rest: Log, ledger: Ledger) -> None:
        self.log = log
        self.rest = rest
        self.ledger = ledger

    def grow(self, dice: Random) -> None:
        count = dice.randint(1, 5)
        self.log += self.rest[:count]
        self.rest = self.rest[count:]

    def tell(self, dice: Random) -> None:
        """Say some things that nothing else says, and much about others."""
        for _ in range(dice.randint(1, 4)):
            shelf = dice.randint(1, 30)
            filler = " ".join(
                dice.choices(("again", "sorted", "moved", "counted"), k=dice.choice((3, 60, 300)))
            )
            fact = f"Shelf {shelf} of aisle{shelf} holds {dice.randint(10, 99)} crates of tea. {filler}"
            if dice.random() < 0.5:
                self.log += (user(fact), assistant(f"Noted. {filler}"))
                continue
            call_id = f"tell{len(self.log)}"
            asked = call("read_file", {"path": f"src/{shelf}.md"}, id=call_id, joins=False)
            self.log += (asked, result(f"{filler}. {fact}", id=call_id, name="read_file"))

    def ask(self, dice: Random) -> None:
        """Ask about something that was said."""
        names = re.findall(r"aisle\d+", " ".join(text_of(segment.parts) for segment in self.log))
        self.log += (user(f"How many crates of tea does {dice.choice(names or ['it'])} hold?"),)

    def grow_last(self, _: Random) -> None:
        self.log += (assistant("And more.", joins=True),)

    def change_last(self, dice: Random) -> None:
        self.log = reworded(self.log, len(self.log) - 1, dice)

    def pin(self, dice: Random) -> None:
        """The client pins a segment, or releases it."""
        at = dice.randrange(len(self.log))
        changed = msgspec.structs.replace(self.log[at], pinned=not self.log[at].pinned)
        self.log = (*self.log[:at], changed, *self.log[at + 1 :])

    def edit(self, dice: Random) -> None:
        """The client changes its history. Now and then it takes back what it said last."""
        edited = dice.choice(EDITS)(self.log, dice.randrange(len(self.log)), dice)
        self.log = edited or self.log

    def report(self, dice: Random) -> None:
        """A provider reports how many tokens it has counted."""
        self.ledger = calibrated(self.ledger, dice.randint(700, 1_500))

    def reload(self, _: Random) -> None:
        self.ledger = Ledger.load(self.ledger.dump())


class SharedMemo:
    """Two conversations that are built with one memo, and each time without it."""

    def __init__(self, first: Log, second: Log, window: int) -> None:
        self.talk = Talk(first[:2], first[2:], Ledger())
        self.other = Talk(first[:2], second, Ledger())
        self.budget = Budget(window=window, reserve=0, keep_last=1)
        self.options = OPTIONS[0]
        self.head = HEADS[0]
        self.interrupted = Counter(name="interrupted", count=self.count)
        self.counter = self.interrupted
        self.idle = 0
        self.is_interrupted = False
        self.memo = BuildMemo()
        self.earlier: list[tuple[Entry, ...]] = [()]

    def count(self, text: str) -> int:
        """Count a text. Before the first one, another thread may build the other conversation."""
        if self.is_interrupted:
            self.is_interrupted = False
            meanwhile = self.build(self.other, self.memo)
            if isinstance(meanwhile, Envelope):
                self.earlier.append(meanwhile.entries)
        return len(text) // 4

    def fork(self, dice: Random) -> None:
        """The other conversation becomes a branch of this one."""
        end = dice.randint(min(2, len(self.talk.log)), len(self.talk.log))
        self.other = Talk(self.talk.log[:end], self.other.rest, self.talk.ledger)

    def turn(self, _: Random) -> None:
        """Go on with the other conversation."""
        self.talk, self.other = self.other, self.talk

    def meanwhile(self, dice: Random) -> None:
        """While this conversation is built, another thread builds the other one."""
        self.is_interrupted = True
        self.talk.grow(dice)

    def choose_settings(self, dice: Random) -> None:
        """The client asks for something else. Now and then it comes back after a long pause."""
        match dice.choice(("options", "counter", "head", "window", "pause")):
            case "options":
                self.options = dice.choice(OPTIONS)
            case "counter":
                self.counter = dice.choice((self.interrupted, RFC))
            case "head":
                self.head = dice.choice(HEADS)
            case "window":
                self.budget = Budget(window=dice.randint(600, 4_000), reserve=0, keep_last=dice.randint(0, 2))
            case "pause":
                self.idle = 100_000

    def build(self, talk: Talk, memo: BuildMemo | None) -> Envelope | int:
        try:
            return build(
                talk.log,
                head=self.head,
                budget=self.budget,
                ledger=talk.ledger,
                counter=self.counter,
                idle=self.idle,
                options=self.options,
                memo=memo,
            )
        except BudgetExceeded as error:
            return error.floor

    def check(self) -> None:
        """Build with the memo and without it: requests, reasons, counts and ledgers are the same."""
        with_memo = self.build(self.talk, self.memo)
        self.is_interrupted = False
        without = self.build(self.talk, None)
        self.idle = 0
        if not isinstance(with_memo, Envelope) or not isinstance(without, Envelope):
            assert with_memo == without
            return
        assert is_same_request(with_memo, without)
        assert (with_memo.cut, with_memo.room, with_memo.tail) == (without.cut, without.room, without.tail)
        checkpoint = self.memo.checkpoint
        if checkpoint is not None and checkpoint.standing_tokens is not None:
            assert checkpoint.standing_tokens == count_standing(with_memo.entries)
        self.earlier.append(with_memo.entries)
        self.talk.ledger = with_memo.ledger


SAID = (
    *(Talk.grow, Talk.tell, Talk.ask) * 3,
    *(Talk.grow_last, Talk.change_last, Talk.pin, Talk.edit) * 2,
    *(Talk.report, Talk.reload),
)
DONE = (SharedMemo.fork, SharedMemo.turn, SharedMemo.meanwhile, SharedMemo.choose_settings)
"""What happens between two builds."""


@settings(max_examples=up_to(125))
@given(
    logs(thinks=True),
    logs(),
    st.integers(600, 4_000),
    st.lists(st.integers(0, 99_999), min_size=5, max_size=20),
)
def test_a_memo_changes_nothing_whatever_happens_to_the_log(
    first: Log, second: Log, window: int, numbers: list[int]
) -> None:
    """Nor whatever happens to another conversation that is built with the same memo."""
    shared = SharedMemo(first, second, window)
    for number in numbers:
        dice = Random(number)  # noqa: S311 - a story to repeat
        if dice.random() < 0.7:
            dice.choice(SAID)(shared.talk, dice)
        else:
            dice.choice(DONE)(shared, dice)
        shared.check()


def test_a_digest_is_not_there_before_what_it_covers() -> None:
    """A rewind into the folded steps, with the ledger and the memo of the build that folded them."""
    whole = generate_session(3, turns=6, steps=3)
    memo, ledger = BuildMemo(), Ledger()
    budget = Budget(window=3_000, reserve=0, keep_last=1)
    ends = [*range(5, 60, 4), len(whole) // 5]
    for end in ends:
        folds = ledger.folds
        with_memo = build(whole[:end], budget=budget, ledger=ledger, memo=memo)
        assert is_same_request(with_memo, build(whole[:end], budget=budget, ledger=ledger))
        ledger = with_memo.ledger
    assert folds
    assert not ledger.folds


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
    assert checkpoint.log[: checkpoint.saved.boundary] == tuple(log[:3])
    edited = [user("Zero"), *log[1:]]
    build(edited, counter=CHARS4, ledger=first.ledger, memo=memo)
    assert memo.checkpoint is not None
    assert memo.checkpoint.log[: memo.checkpoint.saved.boundary] == tuple(edited[:3])


def test_a_reported_usage_does_not_make_a_memo_begin_anew() -> None:
    """Providers report usage with each answer, and the mean of what they report moves with most of them."""
    memo, log = BuildMemo(), [user("One"), assistant("Two"), user("Three"), assistant("Four"), user("Five")]
    first = build(log, memo=memo)
    log += [assistant("Six"), user("Seven")]
    second = build(log, ledger=calibrated(first.ledger, 1_100), memo=memo)
    assert all(old is new for old, new in zip(first.entries[:3], second.entries, strict=False))


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

    def mend(*pieces: list[Segment], ledger: Ledger = EMPTY) -> tuple[list[Entry], dict[Ref, str]]:
        entries: list[Entry] = []
        repairs: dict[Ref, str] = {}
        memory = ScanMemory()
        for number, piece in enumerate(pieces, 1):
            scan = LogScan(ledger, Wording(), AS_IS, memory.copy())
            scan.take_all(piece, ends=number == len(pieces))
            entries += scan.entries
            repairs |= scan.new_repairs
            memory = scan.memory
        return entries, repairs

    before = Ledger(repairs=mend(log[:sent_before])[1])
    at_once = mend(log, ledger=before)
    for at in range(1, len(log)):
        if not may_split_at(log, at):
            continue
        assert mend(log[:at], log[at:], ledger=before) == at_once


def test_a_log_is_not_parted_between_system_text_and_a_call_with_a_blank_message_between() -> None:
    """The call may belong to the message before the system text, whose calls wait for their results."""
    log = [
        call("read", {}, id="a", joins=False),
        system("Be brief."),
        assistant(" "),
        call("read", {}, id="b", joins=False),
    ]
    assert not may_split_at(log, 3)


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
