"""How likely a result is needed again: by its age and size, by what its call did, and by what came after it.

Of the results that stand in a request, few are needed again. How many, `NeedTable` says by their age and
size, and its weights say how much more or less often that is, by what the call did, by the name of its tool,
and by whether its file was read again or edited since. `lamina replay --learn` finds such a table in a user's
own sessions; `RECORDED` was found by the same means in recorded sessions of coding agents.

The ladder lowers first what is needed least, and says of each result how often such results are
needed again. docs/planner.md has what that is worth.

All is in whole numbers, so that every machine agrees.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import chain
from typing import Literal, NamedTuple

import msgspec

from lamina.core.entries import begins_with, has_failed
from lamina.core.text.subjects import Subject, read_subject
from lamina.core.values import Entry, Form, ToolResult
from lamina.errors import BadInput

Since = Literal["untouched", "read again", "edited"]
"""What later calls did to the file that a result shows."""

NO_SUBJECT = "other"
"""The verb of a call of which nobody knows what it was about."""

DOUBLING = 8
"""Weights are whole parts of a doubling: with a weight of 8 a result is needed twice as often."""

RAREST = 1_000
"""A chance is told as one to so many at most."""

_POWERS_OF_TWO = (1_000, 1_091, 1_189, 1_297, 1_414, 1_542, 1_682, 1_834)
"""Two to the power of 0/8 to 7/8, in thousandths."""


AGES = (4, 8, 16, 32, 64)
"""Steps: up to each of them, and beyond the last, a table has a row."""

SIZES = (100, 400, 1_600, 6_400)
"""Tokens: up to each of them, and beyond the last, a table has a column."""


class NeedTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often results are needed again by the answers until the next cut.

    `one_in` has a row for each of `AGES` and one more, with a number for each of `SIZES` and one more: of so
    many results of that age and size, one was needed. The weights are in eighths of a doubling: with 8 a
    result is needed twice as often, with -8 half as often. `verbs` are what calls do,
    `tools` their names, and `since` is what happened to the file of a result: the weights of all three add
    up. `sessions` and `cases` say from how much the table was learned.
    """

    one_in: tuple[tuple[int, ...], ...]
    verbs: dict[str, int] = {}
    tools: dict[str, int] = {}
    since: dict[str, int] = {}
    sessions: int = 0
    cases: int = 0

    def __post_init__(self) -> None:
        rows = len(AGES) + 1
        columns = len(SIZES) + 1
        shape = [len(row) for row in self.one_in]
        if shape != [columns] * rows or min(chain.from_iterable(self.one_in)) < 1:
            hint = f"one_in has {rows} rows of {columns} numbers above 0; lamina replay --learn writes it"
            raise BadInput("the table of needs has another shape", place="need", hint=hint)

    @property
    def has_weights(self) -> bool:
        """Whether anything but age and size counts."""
        return any((*self.verbs.values(), *self.tools.values(), *self.since.values()))

    def weigh(self, result: ReadResult) -> int:
        """The weight of a result, in eighths of a doubling."""
        by_call = self.verbs.get(result.verb, 0) + self.tools.get(result.tool, 0)
        return by_call + self.since.get(result.since, 0)

    def count_cases(self, age: int, tokens: int, *, weight: int = 0) -> int:
        """Of how many such results one is needed again. The weight counts for the odds: 2 or more."""
        against = self.one_in[bisect_left(AGES, age)][bisect_left(SIZES, tokens)] - 1
        return 1 + max(min(_times_power_of_two(against, -weight, DOUBLING), RAREST), 1)


class ReadResult(NamedTuple):
    """What is known of a result besides its age and size."""

    tool: str
    verb: str
    since: Since


RECORDED = NeedTable(
    one_in=(
        (10, 4, 3, 2, 4),
        (15, 7, 4, 3, 3),
        (24, 10, 5, 3, 3),
        (44, 20, 9, 5, 3),
        (82, 43, 18, 9, 5),
        (433, 153, 60, 26, 13),
    ),
    verbs={"call": -5, "list": -5, NO_SUBJECT: -6, "read": 4, "search": -5, "write": 8},
    since={"edited": -6, "read again": -2, "untouched": 3},
    sessions=378,
    cases=157_817,
)
"""What recorded sessions of coding agents say: bench/learn_need.py."""


def read_results(entries: Sequence[Entry]) -> dict[int, ReadResult]:
    """The results that are sent, by position, each with what its call did and what came after it.

    A failed call leaves a file as it was, so that it neither shows nor changes anything.
    """
    calls: dict[int, tuple[str, Subject | None]] = {}
    touched = _TouchedFiles({}, {})
    for position, entry in enumerate(entries):
        call = entry.asked
        if call is None or entry.form is Form.OMITTED or not begins_with(entry.segment.parts, ToolResult):
            continue
        subject = read_subject(call)
        calls[position] = (call.name, subject)
        if subject is not None and not has_failed(entry):
            touched.note(subject, position)
    results: dict[int, ReadResult] = {}
    for position, (tool, subject) in calls.items():
        if subject is None:
            results[position] = ReadResult(tool, NO_SUBJECT, "untouched")
        else:
            results[position] = ReadResult(tool, subject.verb, touched.since(subject, position))
    return results


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
