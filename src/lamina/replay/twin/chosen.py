"""Reads what an answer chose, and says whether two answers chose the same.

A choice is the calls of an answer, in any order: names, and arguments as canonical JSON. Texts are not
compared, because two good answers are never the same letters. Calls of lamina's own recall tool are no
choice: who serves them goes on until the model has answered or called something else.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from lamina.core.hashing import canonical_json
from lamina.core.values import ToolCall
from lamina.dialects import DIALECTS
from lamina.dialects.port import Absorbed
from lamina.fitting.recalls import RECALL


class Verdict(StrEnum):
    """How two answers compare."""

    SAME = "same"
    OTHER_ARGUMENTS = "other arguments"
    OTHER_TOOL = "other tool"
    ONE_WITHOUT_CALL = "one without a call"
    BOTH_TEXT = "both text"
    UNFINISHED = "unfinished"

    @property
    def counts(self) -> bool:
        """Whether the pair says anything about the choice of a call."""
        return self not in (Verdict.BOTH_TEXT, Verdict.UNFINISHED)


class ChosenCalls(NamedTuple):
    """The calls of an answer. `only_recalled`: it called nothing but lamina's recall tool."""

    calls: tuple[tuple[str, str], ...]
    only_recalled: bool

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


class TwinPair(msgspec.Struct, frozen=True, kw_only=True):
    """One call that was sent twice, with both answers as the provider gave them.

    `original` is the request as the client sent it, `fitted` as lamina did, both in the format of `dialect`.
    """

    dialect: str
    original: dict[str, Any]
    fitted: dict[str, Any]
    answer_to_original: dict[str, Any]
    answer_to_fitted: dict[str, Any]

    def compare(self) -> Verdict:
        """Whether both answers chose the same."""
        return compare_choices(
            read_choice(self.dialect, self.answer_to_original),
            read_choice(self.dialect, self.answer_to_fitted),
        )


def read_choice(dialect: str, answer: dict[str, Any]) -> ChosenCalls:
    """The calls of an answer in the format of a dialect, without those of lamina's own tool."""
    return list_chosen(DIALECTS[dialect].answers.absorb(answer))


def list_chosen(answer: Absorbed) -> ChosenCalls:
    """The same of an answer that was read already, whole or as a stream."""
    calls = []
    recalled = False
    for segment in answer.segments:
        for part in segment.parts:
            if not isinstance(part, ToolCall):
                continue
            if part.name == RECALL.name:
                recalled = True
            else:
                calls.append((part.name, _canonical_arguments(part.arguments)))
    return ChosenCalls(calls=tuple(sorted(calls)), only_recalled=recalled and not calls)


def compare_choices(one: ChosenCalls, other: ChosenCalls) -> Verdict:
    """How two choices compare. The order of parallel calls does not matter."""
    if one.only_recalled or other.only_recalled:
        return Verdict.UNFINISHED
    if not one.calls and not other.calls:
        return Verdict.BOTH_TEXT
    if not one.calls or not other.calls:
        return Verdict.ONE_WITHOUT_CALL
    if one.calls == other.calls:
        return Verdict.SAME
    if one.names == other.names:
        return Verdict.OTHER_ARGUMENTS
    return Verdict.OTHER_TOOL


def _canonical_arguments(arguments: str) -> str:
    """Arguments without what JSON leaves open: `{"b":1, "a":2}` is `{"a":2,"b":1}`. What is no JSON stays."""
    try:
        return canonical_json(msgspec.json.decode(arguments or "{}")).decode()
    except (msgspec.DecodeError, ValueError, RecursionError):
        return arguments
