"""Good moments for a cut: a step of the plan has just ended, so what led to it is needed least.

A cut must come at the trigger. Between a soft mark and the trigger it may come earlier, where

- the model released something (`lamina.core.wishes`),
- an item of a list of tasks was closed, as agents keep one with a tool,
- a commit was made,
- or the user began to speak of something else.

It comes only if the prices allow it: earlier cuts are more cuts, and each of them writes the cache anew.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from lamina.core.cut_target import CutLimits, Growth, Rates
from lamina.core.entries import has_failed, is_users_text
from lamina.core.text.characters import ALPHANUMERIC, fold_case, lower_ascii
from lamina.core.text.nesting import DEEPEST_ARGUMENTS, decode_json
from lamina.core.values import Entry, Layer, ToolCall
from lamina.core.wishes import Wishes
from lamina.core.wording import text_of

SOFT_MARK = 60
"""Of the room, in hundredths: below it no cut is made for the sake of a good moment."""

TOLERANCE = 2
"""In hundredths: so much more than at the trigger may a step cost if cuts come this early."""

RELEASED_NOW = "the model released something"
TASK_CLOSED = "a task was closed"
COMMITTED = "a commit was made"
OTHER_SUBJECT = "the user began another subject"

_DONE = frozenset(("completed", "complete", "done", "closed"))
"""What agents write as the status of a task that is over."""

_LISTS = ("todos", "plan", "items", "tasks")
"""Where a call that writes a whole list of tasks has it."""

_COMMIT = "git commit"

_LEAST_WORDS = 6
"""Different words that a message must have to tell its subject."""

_LEAST_LETTERS = 4
"""Letters of a word that tells a subject."""


def find_moment(entries: Sequence[Entry], wishes: Wishes) -> str:
    """Why this is a good moment for a cut, or "" if it is none.

    Only the newest step counts, or the prompt if it has none yet: a moment that has passed is none.
    """
    if wishes.released_now:
        return RELEASED_NOW
    if not entries:
        return ""
    if _changes_subject(entries):
        return OTHER_SUBJECT
    last_step = entries[-1].step
    for at in range(len(entries) - 1, -1, -1):
        entry = entries[at]
        if entry.step < last_step:
            break
        # A commit that failed, or a list of tasks that was refused, ends nothing.
        if entry.asked is None or has_failed(entry):
            continue
        if _COMMIT in entry.asked.arguments:
            return COMMITTED
        if closes_task(entry.asked, entries[:at]):
            return TASK_CLOSED
    return ""


def closes_task(call: ToolCall, earlier: Sequence[Entry]) -> bool:
    """Whether a call closes a task: it says so of one task, or its list has one more that is done."""
    arguments = _read_object(call.arguments)
    if arguments.get("status") in _DONE and any("id" in lower_ascii(name) for name in arguments):
        return True
    done = _count_done(arguments)
    if not done:
        return False
    for entry in reversed(earlier):
        before = entry.asked
        if before is None or before.name != call.name:
            continue
        if before.id != call.id:
            return done > _count_done(_read_object(before.arguments))
    return True


def _count_done(arguments: Mapping[str, Any]) -> int:
    """How many tasks of a list are done."""
    for name in _LISTS:
        tasks = arguments.get(name)
        if isinstance(tasks, list):
            return sum(isinstance(task, dict) and task.get("status") in _DONE for task in tasks)
    return 0


def _read_object(text: str) -> dict[str, Any]:
    value = decode_json(text, deepest=DEEPEST_ARGUMENTS)
    return value if isinstance(value, dict) else {}


def _changes_subject(entries: Sequence[Entry]) -> bool:
    """Whether the user's newest message shares no word of weight with the turn before it.

    A short message, such as "go on", tells no subject.
    """
    prompt = entries[-1]
    if prompt.layer is not Layer.PROMPT or not is_users_text(prompt):
        return False
    subject = _list_words(text_of(prompt.segment.parts))
    if len(subject) < _LEAST_WORDS:
        return False
    earlier: set[str] = set()
    for entry in reversed(entries[:-1]):
        if entry.turn < prompt.turn - 1:
            break
        earlier |= _list_words(text_of(entry.segment.parts))
    return bool(earlier) and subject.isdisjoint(earlier)


def _list_words(text: str) -> set[str]:
    return set(_telling_words().findall(fold_case(text)))


@cache
def _telling_words() -> re.Pattern[str]:
    return re.compile(f"[{ALPHANUMERIC}]{{{_LEAST_LETTERS},}}")


def allows_early_cut(tokens: int, limits: CutLimits, rates: Rates, growth: Growth) -> bool:
    """Whether cutting at this size, and not at the trigger, costs no more by the cache's prices.

    `cut_target` has the price of a step: what is read between two cuts, and what a cut writes anew.
    """
    is_early = tokens * 100 < limits.room * SOFT_MARK
    if is_early or not limits.is_worth_a_cut(tokens - limits.target):
        return False
    early = _price_of_step(tokens, limits, rates, growth)
    late = _price_of_step(limits.trigger, limits, rates, growth)
    return early * 100 <= late * (100 + TOLERANCE)


def _price_of_step(trigger: int, limits: CutLimits, rates: Rates, growth: Growth) -> float:
    """What a step costs on average if cuts are made at this size, in tokens at the price of input."""
    span = max(trigger - limits.target, 1)
    rewritten = max(limits.target - limits.fixed, 0)
    return (
        rates.read * (trigger + limits.target) / 2
        + (rates.write - rates.read) * rewritten * growth.tokens / span
    )
