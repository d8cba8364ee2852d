"""How likely a result is needed again: by its age and size, by what its call did, and by what came after it.

Of the results that stand in a request, few are needed again. `ONE_IN` says how many, by their age and size.
The weights say how much more or less often that is, by what the call did, and by whether its file was read
again or edited since. The ladder lowers first what is needed least, and says of each result how often such
results are needed again.

The figures come from 378 recorded sessions of coding agents (157,817 cases). notes/planner.md says how they
were found, and what they are worth in sessions that they were not found in. All is in whole numbers, so that
every machine agrees.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal, NamedTuple

from lamina.core.entries import begins_with, has_failed
from lamina.core.text.subjects import Subject, read_subject
from lamina.core.values import Entry, Form, ToolResult

AGES = (4, 8, 16, 32, 64)
"""Steps: up to each of them, and beyond the last, `ONE_IN` has a row."""

SIZES = (100, 400, 1_600, 6_400)
"""Tokens: up to each of them, and beyond the last, `ONE_IN` has a column."""

ONE_IN = (
    (10, 4, 3, 2, 4),
    (15, 7, 4, 3, 3),
    (24, 10, 5, 3, 3),
    (44, 20, 9, 5, 3),
    (82, 43, 18, 9, 5),
    (433, 153, 60, 26, 13),
)
"""Of so many results of that age and size, one was needed by the answers until the next cut."""

DOUBLING = 8
"""Weights are eighths of a doubling: with 8 a result is needed twice as often, with -8 half as often."""

NO_SUBJECT = "other"
"""The verb of a call of which nobody knows what it was about."""

VERB_WEIGHTS = {"call": -5, "list": -5, NO_SUBJECT: -6, "read": 4, "search": -5, "write": 8}
"""By what the call did."""

Since = Literal["untouched", "read again", "edited"]
"""What later calls did to the file that a result shows."""

SINCE_WEIGHTS: dict[Since, int] = {"edited": -6, "read again": -2, "untouched": 3}
"""By what happened to the file of a result. It is added to the weight of the verb."""

RAREST = 1_000
"""A chance is told as one to so many at most."""

_POWERS_OF_TWO = (1_000, 1_091, 1_189, 1_297, 1_414, 1_542, 1_682, 1_834)
"""Two to the power of 0/8 to 7/8, in thousandths."""


def weigh_results(entries: Sequence[Entry]) -> dict[int, int]:
    """The weight of each result that is sent, by position.

    A failed call leaves a file as it was, so that it neither shows nor changes anything.
    """
    subjects: dict[int, Subject | None] = {}
    touched = _TouchedFiles({}, {})
    for position, entry in enumerate(entries):
        call = entry.asked
        if call is None or entry.form is Form.OMITTED or not begins_with(entry.segment.parts, ToolResult):
            continue
        subject = read_subject(call)
        subjects[position] = subject
        if subject is not None and not has_failed(entry):
            touched.note(subject, position)
    weights: dict[int, int] = {}
    for position, subject in subjects.items():
        if subject is None:
            weights[position] = VERB_WEIGHTS[NO_SUBJECT] + SINCE_WEIGHTS["untouched"]
        else:
            since = touched.since(subject, position)
            weights[position] = VERB_WEIGHTS.get(subject.verb, 0) + SINCE_WEIGHTS[since]
    return weights


class _TouchedFiles(NamedTuple):
    """Where each file was read and written last, by its path."""

    read: dict[str, int]
    written: dict[str, int]

    def note(self, subject: Subject, position: int) -> None:
        """Take note of a call that read or wrote files."""
        if subject.verb == "read":
            self.read.update(dict.fromkeys(subject.resource.split("\n"), position))
        elif subject.verb == "write":
            self.written.update(dict.fromkeys(subject.resource.split("\n"), position))

    def since(self, subject: Subject, position: int) -> Since:
        """What happened after this position to the files of a call."""
        paths = subject.resource.split("\n")
        if any(self.written.get(path, -1) > position for path in paths):
            return "edited"
        if any(self.read.get(path, -1) > position for path in paths):
            return "read again"
        return "untouched"


def count_cases(age: int, tokens: int, *, weight: int) -> int:
    """Of how many such results one is needed again. The weight counts for the odds: 2 or more."""
    against = ONE_IN[bisect_left(AGES, age)][bisect_left(SIZES, tokens)] - 1
    return 1 + max(min(_times_power_of_two(against, -weight, DOUBLING), RAREST), 1)


def scale_ripeness(ripeness: int, weight: int) -> int:
    """The ripeness of a result of this weight. It goes with one over the square of the chance.

    So a result that is needed twice as often, with a weight of 8, is a quarter as ripe.
    """
    return _times_power_of_two(ripeness, -weight, DOUBLING // 2)


def _times_power_of_two(number: int, parts: int, doubling: int) -> int:
    """The number times two to the power of `parts / doubling`, rounded down."""
    doublings, rest = divmod(parts * DOUBLING // doubling, DOUBLING)
    number = number * _POWERS_OF_TWO[rest] // 1_000
    if doublings >= 0:
        return number << doublings
    return number >> -doublings
