"""A turn that brings too much: its attachments are summarised by a model, when that was asked for."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import msgspec
import pytest

from lamina.core import CHARS4, audit, text_of
from lamina.core.build import build
from lamina.core.laws import Case
from lamina.core.recall import recall
from lamina.core.values import Budget, Form, Segment
from lamina.errors import BadInput
from lamina.segments import assistant, clock, file, note, selected_text, system, user
from lamina.sessions import Session
from lamina.stores import MemoryStore
from lamina.summaries import (
    Bounds,
    Condense,
    Question,
    SummaryOutcome,
    Terms,
    condense_attachments,
    with_summary,
)
from tests.sessions.talking import awaited, opened
from tests.summaries.test_summary import Script

BUDGET = Budget(window=8_000, reserve=0, keep_last=1)
TERMS = Terms(budget=BUDGET, counter=CHARS4)
SUMMARY_TEXT = "The notes a.md, b.md and c.md: lines say something particular about topics 0 to 6."


def big(name: str, lines: int = 300) -> str:
    return "\n".join(
        f"Line {n} of {name} says something particular about topic {n % 7}." for n in range(lines)
    )


NOTES = [note(f"{name}.md", big(name)) for name in "abc"]
LOG = [system("Be brief."), user("Hello."), assistant("Hello.")]
ASK = user("What do they say?")


def condense_turn(
    turn: list[Segment], write: Any, log: list[Segment] = LOG, **options: Any
) -> SummaryOutcome:
    terms = options.pop("terms", TERMS)
    return anyio.run(partial(condense_attachments, log, turn, Condense(write=write, **options), terms=terms))


def names_all(question: Question) -> str:
    """An answer to whatever is asked: a part is told by its first line, the whole by all its names."""
    if question.purpose == "part":
        return "Line says something particular about topic 3."
    return SUMMARY_TEXT


def test_a_turn_that_brings_too_much_is_summarised_and_kept_in_full() -> None:
    write = Script(names_all)
    outcome = condense_turn([*NOTES, ASK], write)
    assert (outcome.by, outcome.notes) == ("model", ())
    assert outcome.segment
    assert outcome.before > 12_000 > 10 * outcome.after
    log = [*LOG, *with_summary([*NOTES, ASK], outcome.segment, kinds=TERMS.options.kinds)]
    assert [one.kind for one in log[3:]] == ["note", "note", "note", "progress_summary", "user"]
    envelope = build(log, budget=BUDGET, counter=CHARS4)
    audit(Case(log=tuple(log), envelope=envelope, counter=CHARS4))
    assert [entry.segment.kind for entry in envelope.sent[-2:]] == ["progress_summary", "user"]
    assert SUMMARY_TEXT in text_of(envelope.sent[-2].parts)
    for name in ("a.md", "b.md", "c.md"):
        assert envelope.entry(name).why == f"covered by {outcome.segment.key}"
        assert name in text_of(envelope.sent[-2].parts)
        assert text_of(recall(log, name)[0].parts) == big(name[0])


def test_what_is_longer_than_the_summarizers_window_is_read_in_parts_some_at_once() -> None:
    """Each question fits; all pieces together are all of the text; no more are asked at once than allowed."""
    running = most = 0

    async def write(question: Question) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(0.001)
        running -= 1
        assert question.envelope.tokens + question.most <= 3_000
        seen.append(question)
        return names_all(question)

    seen: list[Question] = []
    outcome = condense_turn([*NOTES, ASK], write, bounds=Bounds(window=3_000, at_once=3))
    assert outcome.by == "model"
    assert most == 3
    parts = [question for question in seen if question.purpose == "part"]
    assert outcome.questions == len(seen) == len(parts) + 1
    read = "\n".join(question.text for question in parts)
    for number in range(300):
        for name in "abc":
            assert f"Line {number} of {name} says" in read


def test_the_summarizer_sees_the_attachments_and_the_question_and_no_history() -> None:
    secret = [*LOG, user("My password is tulip."), assistant("I see.")]
    write = Script(names_all)
    condense_turn([*NOTES, user("What do they say about topic 3?")], write, log=secret)
    question_texts = "\n".join(one.text for one in write.asked)
    assert "tulip" not in question_texts
    assert "What do they say about topic 3?" in question_texts
    assert not any(one.aligned for one in write.asked)


@pytest.mark.parametrize(
    ("turn", "options", "why"),
    [
        ([file("a.py", "x = 1\n"), ASK], {}, "tokens, and"),
        ([ASK], {}, "take 0 tokens"),
        ([NOTES[0], ASK], {"limit": 10_000}, "10,000 are allowed"),
        ([*NOTES, ASK], {"terms": Terms(counter=CHARS4)}, "there is no budget, and no limit was given"),
        ([selected_text(big("s")), ASK], {"limit": 100}, "may be summarised"),
        ([msgspec.structs.replace(NOTES[0], pinned=True), ASK], {"limit": 100}, "may be summarised"),
        ([clock("noon " * 500), ASK], {"limit": 100}, "may be summarised"),
        ([*(file(f"{n}.py", "x = 1\n") for n in range(30)), ASK], {"limit": 100}, "may be summarised"),
    ],
    ids=["small", "none", "below the limit", "no limit", "selection", "pinned", "passing", "many small"],
)
def test_nobody_is_asked_without_need(turn: list[Segment], options: dict[str, Any], why: str) -> None:
    write = Script(SUMMARY_TEXT)
    outcome = condense_turn(turn, write, **options)
    assert (outcome.segment, write.asked) == (None, [])
    assert why in outcome.notes[0]


def test_the_least_important_and_largest_are_taken_and_only_as_many_as_needed() -> None:
    turn = [
        note("keep.md", big("keep", 100), priority=3),
        note("huge.md", big("huge", 300)),
        note("less.md", big("less", 100), priority=9),
        ASK,
    ]
    outcome = condense_turn(
        turn, Script("huge.md and less.md: lines say something particular about topics."), limit=3_500
    )
    assert outcome.segment
    covered = [name.partition("@")[0] for name in outcome.segment.covers]
    assert covered == ["huge.md", "less.md"]
    one = condense_turn(turn, Script("less.md: lines say something particular about topics."), limit=6_300)
    assert one.segment
    assert [name.partition("@")[0] for name in one.segment.covers] == ["less.md"]


def test_other_content_under_the_same_name_stays_as_it_is() -> None:
    """An earlier version of the file stands in the history: the summary is of the new one only."""
    earlier = note("a.md", "A short first version of the note.")
    log = [system("Be brief."), earlier, user("Look."), assistant("I see.")]
    outcome = condense_turn([*NOTES, ASK], Script(names_all), log=log)
    assert outcome.segment
    full = [*log, *with_summary([*NOTES, ASK], outcome.segment, kinds=TERMS.options.kinds)]
    envelope = build(full, budget=BUDGET, counter=CHARS4)
    versions = [entry for entry in envelope.entries if entry.segment.key == "a.md"]
    assert [entry.form for entry in versions] == [Form.FULL, Form.OMITTED]


def test_the_same_attachments_again_are_not_asked_about_again() -> None:
    write = Script(names_all)
    first = condense_turn([*NOTES, ASK], write)
    assert first.segment
    log = [*LOG, *with_summary([*NOTES, ASK], first.segment, kinds=TERMS.options.kinds), assistant("Topics.")]
    question_count = len(write.asked)
    again = condense_turn([*NOTES, user("And again?")], write, log=log)
    assert (again.by, len(write.asked)) == ("earlier", question_count)
    assert again.segment
    full = [*log, *with_summary([*NOTES, user("And again?")], again.segment, kinds=TERMS.options.kinds)]
    envelope = build(full, budget=BUDGET, counter=CHARS4)
    assert "Attached again, unchanged: a.md, b.md, c.md" in text_of(envelope.sent[-2].parts)
    assert envelope.tokens < 1_000


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("", "it is empty"),
        ("I'm sorry, I cannot do that.", "it is a refusal"),
        ("a.md and b.md: lines say something particular about topics.", "it does not name 'c.md'"),
        (RuntimeError("overloaded"), "the model failed: RuntimeError: overloaded"),
        (big("c.md b.md a.md", 250), "tokens, not"),
    ],
    ids=["empty", "refusal", "incomplete", "failure", "too long"],
)
def test_what_is_no_summary_is_not_used_and_the_turn_goes_on(answer: Any, why: str) -> None:
    write = Script(answer)
    outcome = condense_turn([*NOTES, ASK], write, bounds=Bounds(window=40_000))
    assert outcome.segment is None
    assert any(why in note for note in outcome.notes)
    assert outcome.questions == len(write.asked) == 2


def test_a_limit_is_not_negative() -> None:
    with pytest.raises(BadInput, match="Condense"):
        Condense(write=Script(""), limit=-1)


def session_options(**more: Any) -> dict[str, Any]:
    return {"model": "gpt-4o", "dialect": "openai_chat", "budget": BUDGET, "counter": CHARS4} | more


@awaited
async def test_a_session_asks_once_and_is_replayed_without_a_model() -> None:
    store, write = MemoryStore(), Script(names_all)
    async with opened(store, **session_options()) as session:
        envelope = await session.ask("What do they say?", attach=NOTES, condense=Condense(write=write))
        question_count, request = len(write.asked), await session.request()
        assert SUMMARY_TEXT in str(request["messages"])
        assert envelope.tokens < 1_000
        assert [one.kind for one in session.log] == ["note", "note", "note", "progress_summary", "user"]
        description = session.log[3].meta["summary"]
        assert (description["by"], description["before"] > 12_000, description["after"] < 500) == (
            "model",
            True,
            True,
        )
        assert session.recall("b.md").text == big("b")
        await session.record("They are about topics.")
    async with opened(store, **session_options()) as session:
        await session.ask("Go on.")
        after = await session.request()
        assert after["messages"][:-2] == request["messages"]
        assert session.report().continues
        assert len(write.asked) == question_count
        assert [one.text for one in session.dialogue()] == [
            "What do they say?",
            "They are about topics.",
            "Go on.",
        ]


@awaited
async def test_without_being_asked_for_no_model_is_asked() -> None:
    async with opened(MemoryStore(), **session_options()) as session:
        envelope = await session.ask("What do they say?", attach=NOTES)
    assert envelope.tokens <= 8_000
    assert not any(one.covers for one in session.log)


@awaited
async def test_what_is_redacted_is_not_shown_to_the_summarizer_either() -> None:
    write = Script(names_all)
    secret = note("a.md", big("a") + "\nThe password is tulip.")
    hidden = session_options(redact=lambda text: text.replace("tulip", "[hidden]"))
    async with opened(MemoryStore(), **hidden) as session:
        await session.ask("tulip?", attach=[secret, *NOTES[1:]], condense=Condense(write=write))
        assert "tulip" not in str(session.log)
    assert write.asked
    assert not any("tulip" in one.text for one in write.asked)


@awaited
async def test_a_summary_that_cannot_be_used_leaves_a_note_and_the_turn_is_kept() -> None:
    async with opened(MemoryStore(), **session_options()) as session:
        envelope = await session.ask("What?", attach=NOTES, condense=Condense(write=Script("")))
        assert envelope.tokens <= 8_000
        assert session.notes[-1].startswith("the model's summary was not used: ")
        assert session.notes[-1].endswith("it is empty")
        assert [one.kind for one in session.log] == ["note", "note", "note", "user"]


@awaited
async def test_a_turn_that_is_taken_back_takes_its_summary_along() -> None:
    async with opened(MemoryStore(), **session_options()) as session:
        await session.ask("What?", attach=NOTES, condense=Condense(write=Script(names_all)))
        await session.record("Topics.")
        await session.rewind(-1)
        assert session.log == ()
        assert isinstance(session, Session)
