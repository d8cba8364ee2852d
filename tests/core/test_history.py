"""Clients edit, cut off and rewind their history. What an old request lowered holds only while it stands."""

from __future__ import annotations

import msgspec
import pytest

from lamina import (
    BadInput,
    Budget,
    BudgetExceeded,
    BuildMemo,
    Envelope,
    Form,
    Ledger,
    Options,
    Role,
    Segment,
    build,
)
from lamina.core import CHARS4, Counter, Cut, Text, ToolResult, audit, text_of
from lamina.core.epochs import HISTORY_CHANGED, REWORDED
from lamina.core.laws import BuildInputs, Case
from lamina.core.ledger import SAME_TEXT_LATER, STEP_IS_FOLDED
from lamina.core.values import LEDGER_VERSION, Digest, Fold, LedgerLine, Ref
from lamina.segments import assistant, call, result, system, thinking, user
from tests.core.conversations import read_file, sent_text

SMALL = Budget(window=1_500, reserve=0, keep_last=1)
MIDDLE = Budget(window=6_000, reserve=0, keep_last=1)
"""Room for the short questions of two dozen turns. In `SMALL`, a digest quotes the first and the newest."""


def steps(count: int, *, size: int = 40) -> list[Segment]:
    """A task and an agent that reads one file after another for it."""
    log = [system("Be brief."), user("Read the modules.")]
    for number in range(count):
        log.append(assistant(f"Reading module {number}."))
        log.append(call("read_file", {"path": f"m{number}.py"}, id=f"c{number}"))
        log.append(result(f"value_{number} = {number}\n" * size, id=f"c{number}", name="read_file"))
    return log


def turns(count: int, *, size: int = 60) -> list[Segment]:
    """Questions and answers, and a last question."""
    log = [system("Be brief.")]
    for number in range(count):
        log.append(user(f"Question {number}?"))
        log.append(assistant(f"Answer {number}: " + f"word{number} " * size))
    return [*log, user(f"Question {count}?")]


def grown(log: list[Segment], budget: Budget = SMALL, memo: BuildMemo | None = None) -> Envelope:
    """The last of the requests of a conversation that grew to this log."""
    ledger = Ledger()
    for end in range(2, len(log) + 1):
        if log[end - 1].role is not Role.ASSISTANT:
            envelope = build(log[:end], budget=budget, ledger=ledger, memo=memo)
            ledger = envelope.ledger
    assert ledger.folds
    return envelope


def after(log: list[Segment], before: Envelope, budget: Budget = SMALL) -> Envelope:
    """The next request, for a log that the client changed; every law holds for it."""
    ledger = Ledger.load(before.ledger.dump())
    envelope = build(log, budget=budget, ledger=ledger)
    inputs = BuildInputs(budget=budget, ledger=ledger)
    audit(Case(log=tuple(log), envelope=envelope, before=before, inputs=inputs))
    return envelope


def covered(envelope: Envelope) -> set[Ref]:
    return {ref for fold in envelope.ledger.folds for ref in fold.covers}


def replaced(log: list[Segment], at: int, new: Segment) -> list[Segment]:
    return [*log[:at], new, *log[at + 1 :]]


# a fold applies while everything that it covers is there


@pytest.mark.parametrize("what", ["result", "call"])
def test_an_edit_inside_a_folded_step_undoes_the_fold(what: str) -> None:
    log = steps(20)
    before = grown(log)
    at = 4 if what == "result" else 3
    edits = {"result": result("[cleared]", id="c0"), "call": call("read_file", {"path": "other.py"}, id="c0")}
    edited = after(replaced(log, at, edits[what]), before)
    assert edited.cut is not None
    assert edited.cut.reason == HISTORY_CHANGED
    assert [cut.number for cut in edited.ledger.cuts] == list(range(1, len(edited.ledger.cuts) + 1))
    assert len(edited.ledger.cuts) == len(before.ledger.cuts) + 1


def test_where_room_is_short_it_is_folded_anew_in_the_same_cut() -> None:
    log = steps(20)
    before = grown(log)
    edited = after(replaced(log, 4, result("[cleared]", id="c0")), before)
    assert edited.cut is not None
    assert edited.cut.lowered
    assert edited.ledger.folds
    assert edited.tokens <= SMALL.window


@pytest.mark.parametrize("how", ["deleted", "edited", "cut off", "rewound"])
def test_what_is_gone_from_the_log_is_in_no_request_and_in_no_ledger(how: str) -> None:
    secret = "my code is hunter2"  # noqa: S105 - it is a message
    log = replaced(turns(24, size=240), 3, user(secret))
    before = grown(log, MIDDLE)
    assert secret in sent_text(before)
    logs = {
        "deleted": log[:3] + log[5:],
        "edited": replaced(log, 3, user("[removed]")),
        "cut off": log[:1] + log[9:],
        "rewound": log[:2],
    }
    gone = after(logs[how], before, MIDDLE)
    assert secret not in sent_text(gone)
    assert secret not in str(gone.ledger.dump())


def test_a_message_that_was_put_between_undoes_the_fold() -> None:
    log = turns(24, size=240)
    before = grown(log, MIDDLE)
    new = user("By the way, skip the tests.")
    edited = after([*log[:4], new, *log[4:]], before, MIDDLE)
    assert "skip the tests" in sent_text(edited)


def test_lines_hold_no_text_and_stay_for_a_branch_that_comes_back() -> None:
    log = steps(20)
    before = grown(log)
    other = after(log[:2] + log[40:], before)
    assert set(other.ledger.lines) >= set(before.ledger.lines) - covered(before)


# the prompt and the last step


def test_going_back_to_any_turn_sends_its_prompt() -> None:
    log = turns(24)
    before = grown(log)
    for back_to in range(24):
        rewound = log[: 2 * back_to + 2]
        envelope = after(rewound, before)
        assert envelope.sent[-1].parts == rewound[-1].parts


@pytest.mark.parametrize("count", [3, 5, 7])
def test_a_client_that_drops_its_oldest_messages_still_sends_its_prompt(count: int) -> None:
    """All prompts are the same: by a count from the front, the last would be one that was folded."""
    log = [segment for n in range(30) for segment in (user("continue"), assistant(f"Part {n}. " * 30))]
    log.append(user("continue"))
    before = grown(log)
    envelope = after(log[-count:], before)
    assert [entry.parts for entry in envelope.sent] == [segment.parts for segment in log[-count:]]


def test_a_prompt_that_a_cut_had_taken_away_is_sent_in_full_when_it_is_asked_again() -> None:
    long = user("Please explain. " * 120)
    log = [*turns(2)[:-1], long, *turns(12)[1:]]
    budget = Budget(window=900, reserve=0, keep_last=0)
    before = grown(log, budget)
    again = after(log[: log.index(long) + 1], before, budget)
    assert again.sent[-1].parts == long.parts


def test_the_last_step_is_whole_when_the_client_went_back_to_it() -> None:
    log = steps(20)
    before = grown(log)
    envelope = after(log[:8], before)
    assert [entry.form for entry in envelope.entries[-3:]] == [Form.FULL] * 3


def test_a_result_of_the_last_step_that_does_not_fit_enters_lowered_and_stays_so() -> None:
    """Half of the room is taken by what must stand, so the result cannot have its usual share."""
    budget = Budget(window=1_000, reserve=0)
    log = [user("word " * 560), *read_file("a", "text of the file " * 400, 0)]
    first = build(log, budget=budget)
    assert first.entries[-1].form in (Form.COMPACT, Form.STUB)
    again = build(log, budget=budget, ledger=Ledger.load(first.ledger.dump()))
    assert again.prefix == first.prefix
    assert again.cut is None


def test_a_prompt_that_does_not_fit_is_refused() -> None:
    with pytest.raises(BudgetExceeded):
        build([user("word " * 2_000)], budget=Budget(window=1_000, reserve=0))


# pairs


@pytest.mark.parametrize("pinned", ["call", "result"])
def test_a_step_of_which_a_part_is_pinned_is_not_folded(pinned: str) -> None:
    parallel = [
        assistant("Reading."),
        call("read", {"path": "a"}, id="c1"),
        call("read", {"path": "b"}, id="c2"),
        result("short a", id="c1"),
        result("long text of b " * 40, id="c2"),
    ]
    at = 1 if pinned == "call" else 3
    parallel[at] = msgspec.structs.replace(parallel[at], pinned=True)
    log = [system("Be brief."), user("Read both."), *parallel]
    ledger = Ledger()
    for number in range(30):
        log += [assistant(f"Answer {number} " + f"word{number} " * 60), user(f"Question {number}?")]
        envelope = build(log, budget=SMALL, ledger=ledger)
        audit(Case(log=tuple(log), envelope=envelope, inputs=BuildInputs(budget=SMALL, ledger=ledger)))
        ledger = envelope.ledger
    assert ledger.folds


# system text in the conversation


def reminded(count: int, reminder: str = "Reminder: be brief.") -> list[Segment]:
    """An agent's client that puts system text after each result."""
    log = steps(0)
    for number in range(count):
        log += steps(number + 1)[-3:]
        log.append(system(reminder or f"Note {number}: the build is red."))
    return log


def test_system_text_among_folded_steps_stands_in_order() -> None:
    log = reminded(16, "")
    envelope = grown(log, Budget(window=2_500, reserve=0, keep_last=1))
    notes = [text_of(entry.parts) for entry in envelope.sent if entry.role is Role.SYSTEM]
    assert notes == ["Be brief.", *[f"Note {number}: the build is red." for number in range(16)]]


def test_it_stands_after_the_users_words_of_a_digest_and_before_the_models() -> None:
    log = [system("Be brief."), user("Start."), system("The date is 1 May."), *turns(24)[2:]]
    envelope = grown(log)
    roles = [entry.role for entry in envelope.sent[:4]]
    assert roles == [Role.SYSTEM, Role.USER, Role.SYSTEM, Role.ASSISTANT]
    assert [entry.segment.kind for entry in envelope.sent[:4]] == ["system", "digest", "system", "digest"]


def test_of_equal_reminders_only_the_newest_must_stand() -> None:
    log = reminded(16)
    before = grown(log)
    reminders = [entry for entry in before.entries if entry.segment.kind == "system"][1:]
    assert reminders[-1].form is Form.FULL
    assert SAME_TEXT_LATER in {entry.why for entry in reminders}
    without = [segment for segment in log if segment.parts != log[-1].parts or segment is log[5]]
    alone = after(without, before)
    assert [e.form for e in alone.entries if e.segment.parts == log[-1].parts] == [Form.FULL]


def test_system_text_that_does_not_fit_is_named() -> None:
    log = [*turns(2), system("rules " * 900, key="rules"), assistant("Yes."), user("Go on.")]
    with pytest.raises(BudgetExceeded) as caught:
        build(log, budget=Budget(window=700, reserve=0), ledger=Ledger(cuts=(Cut(number=1, reason="made"),)))
    assert caught.value.segments[0][0] == "rules"


def test_a_digest_never_stands_among_the_system_text() -> None:
    """The client drops what stands before a system message in the middle, so that this comes first."""
    log = [user("Start."), assistant("Yes."), system("From here on, in one sentence."), *turns(20)[1:]]
    before = grown(log)
    envelope = after(log[2:], before)
    for entry in envelope.sent:
        assert entry.role is Role.SYSTEM or entry.segment.kind != "system"


def test_sections_lead_while_nothing_was_sent_and_wait_for_a_cut_after_that() -> None:
    log = [user("Before?"), assistant("Yes."), system("You are brief.", key="contract"), user("And?")]
    first = build(log)
    assert first.sent[0].segment.key == "contract"
    more = [*log, assistant("Well."), system("You are long.", key="contract"), user("So?")]
    second = build(more, ledger=first.ledger)
    assert second.cut is None
    brief, long = [text_of(entry.parts) for entry in second.sent if entry.role is Role.SYSTEM]
    assert brief == "You are brief."
    assert long.startswith("From here on this holds, in place of the text above")
    assert long.endswith("\nYou are long.")
    assert second.sent[0].segment.key == "contract"


# dense scripts


DENSE = {
    "digits": "7\n3\n1\n9\n",
    "hex": "4f a0 17 c3 9e 00 ff 1b\n",
    "Chinese": "本系统在收到请求之后会先检查缓存。",
    "Khmer": "ឯកសារនេះពន្យល់អំពីរបៀប។ ",
    "emoji": "👩‍👩‍👧‍👦🏳️‍🌈",
}


def dense(text: str) -> int:
    """A tokenizer that knows no script: three tokens a character."""
    return 3 * len(text)


@pytest.mark.parametrize("script", DENSE)
def test_a_dense_result_enters_in_what_its_share_allows(script: str) -> None:
    counter = Counter(name="dense", count=dense)
    text = DENSE[script] * (40_000 // len(DENSE[script]))
    log = [user("Read it."), call("read", {"path": "a"}, id="c", joins=False), result(text, id="c")]
    envelope = build(log, budget=Budget(window=4_000, reserve=0), counter=counter)
    assert envelope.tokens <= 4_000
    other = build(log, ledger=envelope.ledger, counter=CHARS4)
    assert other.prefix == envelope.prefix


def test_compact_texts_of_a_cut_have_their_size_in_tokens() -> None:
    counter = Counter(name="dense", count=dense)
    log = steps(0)
    ledger = Ledger()
    budget = Budget(window=20_000, reserve=0, keep_last=1)
    for number in range(12):
        log += steps(number + 1)[-3:-1]
        log.append(result(f"{number} {DENSE['Khmer'] * 40}", id=f"c{number}"))
        envelope = build(log, budget=budget, counter=counter, ledger=ledger)
        ledger = envelope.ledger
    compact = [entry for entry in envelope.sent if entry.form is Form.COMPACT]
    assert ledger.cuts
    # A cut that had to free less than one whole result shows more of that one.
    shown_more = [entry for entry in compact if entry.tokens > 700]
    assert compact
    assert len(shown_more) <= len(ledger.cuts)


# what was sent is checked


def test_a_line_that_is_worded_differently_is_a_recorded_cut_and_is_rewritten() -> None:
    log = steps(1, size=400)
    before = build(log, budget=Budget(window=1_000, reserve=0))
    [(ref, line)] = before.ledger.lines.items()
    altered = msgspec.structs.replace(line, wording=line.wording - 1, sent=Digest("0" * 64))
    assert before.ledger.mark is not None
    mark = msgspec.structs.replace(before.ledger.mark, prefix=Digest("0" * 64))
    ledger = msgspec.structs.replace(before.ledger, lines=before.ledger.lines | {ref: altered}, mark=mark)
    again = build(log, ledger=ledger)
    assert again.cut is not None
    assert again.cut.reason == REWORDED
    assert again.ledger.lines[ref] == line
    assert build(log, ledger=again.ledger).cut is None


@pytest.mark.parametrize("version", [1, 3, None])
def test_a_ledger_of_another_version_is_refused(version: int | None) -> None:
    with pytest.raises(BadInput, match=f"version {version}; this lamina reads version {LEDGER_VERSION}"):
        Ledger.load(Ledger().dump() | {"version": version})


def test_a_line_without_its_segment_stays_as_it_was() -> None:
    ledger = Ledger(lines={Ref("gone"): LedgerLine(form=Form.STUB, why="old", wording=3, sent=Digest("0"))})
    assert build([user("hi")], ledger=ledger).ledger.lines == ledger.lines


def test_a_memo_does_not_keep_what_an_edit_undid() -> None:
    memo = BuildMemo()
    log = steps(20)
    before = grown(log, memo=memo)
    edited = replaced(log, 4, result("[cleared]", id="c0"))
    with_memo = build(edited, budget=SMALL, ledger=before.ledger, memo=memo)
    assert with_memo == build(edited, budget=SMALL, ledger=before.ledger)


def test_options_of_a_build_do_not_matter_to_what_stands() -> None:
    """A salt changes every hash and no form."""
    log = turns(24)
    before = grown(log)
    salted = build(log, budget=SMALL, ledger=before.ledger, options=Options(salt="tenant"))
    assert [entry.form for entry in salted.entries] == [entry.form for entry in before.entries]


def test_text_parts_of_results_are_shortened_not_the_call() -> None:
    log = steps(1, size=400)
    envelope = build(log, budget=Budget(window=400, reserve=0))
    assert envelope.entries[-2].form is Form.FULL
    assert isinstance(envelope.entries[-1].parts[0], ToolResult)
    assert isinstance(envelope.entries[-1].parts[0].content[0], Text)


# what the fuzzer of clients found


def test_words_beside_results_are_the_newest_thing_the_user_said_and_stay() -> None:
    """A user may speak up in the message that brings a result; agents put reminders of theirs there, too."""
    log = steps(3)
    log += [assistant("Next."), call("read_file", {"path": "x.py"}, id="x"), result("x = 1", id="x")]
    log.append(user("Mind the tests!", joins=True))
    for number in range(3, 9):
        log += steps(number + 1)[-3:]
    envelope = grown(log)
    assert envelope.ledger.folds
    assert "Mind the tests!" in sent_text(envelope)
    [words] = [entry for entry in envelope.entries if text_of(entry.segment.parts) == "Mind the tests!"]
    assert words.form is Form.FULL


def test_a_call_after_system_text_belongs_to_the_calls_before_it() -> None:
    """Parallel calls with an item of the client's between them: each gets its own result."""
    log = [user("Go."), call("a", {}, id="1"), system("More tools."), call("b", {}, id="2")]
    log += [result("one", id="1"), result("two", id="2")]
    envelope = build(log, counter=CHARS4)
    assert envelope.ledger.repairs == {}
    kinds = [entry.segment.kind for entry in envelope.sent]
    assert kinds == ["user", "tool_call", "tool_call", "tool_result", "tool_result", "system"]
    assert build(log, counter=CHARS4, ledger=envelope.ledger).entries == envelope.entries


def test_a_late_result_that_is_lowered_stays_a_quotation() -> None:
    first = build([user("Go."), call("read", {}, id="1")], counter=CHARS4)
    log = [user("Go."), call("read", {}, id="1"), assistant("Hm.", joins=True), call("run", {}, id="2")]
    log += [result("word " * 2_000, id="1"), result("done", id="2")]
    envelope = build(log, budget=Budget(window=800, reserve=0), ledger=first.ledger, counter=CHARS4)
    (late,) = [entry for entry in envelope.sent if entry.why.startswith("does not fit")]
    assert late.role is Role.ASSISTANT
    assert text_of(late.parts).startswith("<late_result")
    assert text_of(late.parts).endswith("</late_result>")


def fold_from(log: list[Segment], at: int) -> Ledger:
    """A ledger in which all of a log from there on is folded."""
    covers = tuple(entry.ref for entry in build(log, counter=CHARS4).entries[at:])
    return Ledger(folds=(Fold(key="fold-1", covers=covers, text="read it", cut=1),))


@pytest.mark.parametrize("said", [[], [assistant("I will.")]])
def test_thinking_goes_with_its_step_when_only_the_step_is_still_folded(said: list[Segment]) -> None:
    """The client cut off what stood before: the fold stands, the line of the thinking before it does not.

    Or an edit joined two steps into one, and what the model said before the thinking is not folded.
    """
    log = [user("Go."), *said, thinking("first, look", signature="s", joins=bool(said))]
    ledger = fold_from([*log, call("read", {}, id="1", joins=True), result("x " * 400, id="1")], len(log))
    log += [call("read", {}, id="1", joins=True), result("x " * 400, id="1"), user("Now?")]
    envelope = build(log, counter=CHARS4, ledger=ledger)
    (thought,) = [entry for entry in envelope.entries if entry.segment.kind == "thinking"]
    assert (thought.form, thought.why) == (Form.OMITTED, STEP_IS_FOLDED)
    assert envelope.ledger.lines[thought.ref].form is Form.OMITTED
    assert all(envelope.entries[1 + at].form is Form.FULL for at in range(len(said)))


def test_no_digest_stands_between_a_call_and_its_answer_when_the_client_deletes_a_result() -> None:
    """The call before the folded step is answered behind that step now, since both are one message."""
    log = [user("Go."), call("poll", {}, id="1", joins=False), result("pending", id="1")]
    log += [thinking("first, look", signature="s", joins=True)]
    log += [call("read", {}, id="2", joins=True), result("x " * 400, id="2")]
    ledger = fold_from(log, 4)
    log.append(user("Now?"))
    assert build(log, counter=CHARS4, ledger=ledger).ledger.folds == ledger.folds
    del log[2]
    assert build(log, counter=CHARS4, ledger=ledger).ledger.folds == ()


def test_a_memo_sends_a_reminder_again_when_its_repetition_was_taken_back() -> None:
    budget = Budget(window=900, reserve=0, keep_last=1)
    log = reminded(8)
    for memo in (BuildMemo(), None):
        envelope = grown(log, budget, memo)
        rewound = [*log[:-4], user("Something else?")]
        again = build(rewound, budget=budget, ledger=envelope.ledger, counter=CHARS4, memo=memo)
        plain = build(rewound, budget=budget, ledger=envelope.ledger, counter=CHARS4)
        assert again.entries == plain.entries
