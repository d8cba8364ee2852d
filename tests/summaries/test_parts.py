"""What is too long for the summarizer's window is read in parts, and what was written about them again."""

from __future__ import annotations

import re
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from lamina.core import CHARS4, text_of
from lamina.core.values import Budget, Segment
from lamina.errors import BadInput
from lamina.segments import assistant, system, user
from lamina.summaries import Bounds, Question, SummaryOutcome, Terms
from tests.summaries.test_summary import Script, run

TERMS = Terms(budget=Budget(window=40_000, reserve=0, keep_last=1), counter=CHARS4)


def long_talk(turns: int = 40) -> list[Segment]:
    """Each reply has a number of its own, so that one can see which part was read."""
    log = [system("You keep minutes.")]
    for n in range(turns):
        log += [user(f"Question {n}?"), assistant(f"Number {n} stands for cities and rivers. " * 20)]
    return [*log, user("And?")]


class Minutes:
    """Writes down the numbers that it reads, and remembers how large each question was."""

    def __init__(self) -> None:
        self.asked: list[Question] = []
        self.at_once = self.most_at_once = 0

    async def __call__(self, question: Question) -> str:
        self.asked.append(question)
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        await anyio.lowlevel.checkpoint()
        self.at_once -= 1
        read = text_of(part for entry in question.envelope.sent[:-1] for part in entry.parts)
        numbers = sorted({int(n) for n in re.findall(r"(?:Number |\+)(\d+)", read)})
        return "cities and rivers " + " ".join(f"+{n}" for n in numbers)


def summarised(write: Any, turns: int = 40, **bounds: Any) -> SummaryOutcome:
    return run(long_talk(turns), write, terms=TERMS, everything=True, bounds=Bounds(**bounds))


def test_all_of_it_is_read_within_the_window() -> None:
    write = Minutes()
    outcome = summarised(write, window=2_000)
    assert outcome.by == "model"
    assert outcome.segment is not None
    summary_text = text_of(outcome.segment.parts)
    assert all(f"+{n}" in summary_text for n in range(39))
    assert outcome.questions == len(write.asked) > 5
    assert max(question.envelope.tokens + question.most for question in write.asked) <= 2_000
    assert [question.purpose for question in write.asked[-2:]] == ["part", "summary"]
    assert not any(question.aligned for question in write.asked)
    assert 1 < write.most_at_once <= Bounds().at_once


def test_parts_have_the_system_text_and_stand_as_data() -> None:
    write = Minutes()
    summarised(write, window=2_000)
    first = [text_of(entry.parts) for entry in write.asked[0].envelope.sent]
    assert first[0] == "You keep minutes."
    assert first[1].startswith('<excerpt source="the conversation" place="part 1 of ')


def test_a_window_that_holds_it_is_asked_once_and_aligned() -> None:
    write = Minutes()
    assert summarised(write).questions == 1
    assert write.asked[0].aligned


def test_one_segment_larger_than_the_window_is_split() -> None:
    log = [
        user("Go"),
        assistant("Number 1 of cities and rivers. " * 600),
        user("1"),
        assistant("x"),
        user("2"),
    ]
    write = Minutes()
    outcome = run(log, write, terms=TERMS, everything=True, bounds=Bounds(window=2_000))
    assert outcome.by == "model"
    assert len(write.asked) > 3


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("", "what was written about part 1 of .* cannot be used: it is empty"),
        ("I'm sorry, I can't.", "what was written about part 1 of .* cannot be used: it is a refusal"),
        ("cities and rivers " * 300, "what was written about part 1 of .* is not much shorter than it"),
        (OSError("gone"), "the model failed: OSError: gone"),
    ],
)
def test_a_part_that_cannot_be_used_ends_the_attempt(answer: Any, why: str) -> None:
    outcome = summarised(Script(answer), window=2_000, tries=1, at_once=1)
    assert outcome.segment is None
    assert outcome.questions == 1
    assert re.fullmatch(f"the model's summary was not used: {why}", outcome.notes[0])


def test_the_number_of_questions_is_bounded() -> None:
    write = Minutes()
    outcome = summarised(write, window=2_000, parts=3)
    assert outcome.notes == (
        "the model's summary was not used: it would take more than 3 questions to read it",
    )
    assert write.asked == []


def test_a_window_too_small_for_any_part_is_said_so() -> None:
    assert "window is too small" in summarised(Minutes(), window=200).notes[0]


@pytest.mark.parametrize("name", ["tries", "seconds", "parts", "at_once"])
def test_bounds_are_above_nothing(name: str) -> None:
    with pytest.raises(BadInput, match=f"{name} is 0"):
        Bounds(**{name: 0})
