"""What the checkers of the dialects share: how a rule is written, and how rules are applied to a request.

A rule is a function, and its name is the name of the rule. It gets a `Reading`, changes nothing, and yields
each place where the request breaks it, with what is wrong there. A rule about single messages loops over them
itself: a generator for each message and rule would cost more than the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from lamina.dialects.memos import CheckedPast, CheckMemo, recheck
from lamina.dialects.port import Request, Violation

Faults = Iterator[tuple[str, str]]
"""Where a rule is broken, and how."""


class MessageView(Protocol):
    """A message or an item as rules see it: its place in the request, and whether the model made it."""

    @property
    def place(self) -> str: ...

    @property
    def speaks(self) -> bool: ...


class StepView(Protocol):
    """A message that may make calls, or answer some."""

    @property
    def makes_calls(self) -> bool: ...

    @property
    def is_result(self) -> bool: ...


AnyView = TypeVar("AnyView", bound=MessageView)
AnyStepView = TypeVar("AnyStepView", bound=StepView)
AnyPast = TypeVar("AnyPast", bound=CheckedPast)


class Reading(msgspec.Struct, Generic[AnyView, AnyPast], frozen=True):
    """A request as rules see it: the messages to look at, and what is remembered of those before them."""

    request: Request
    views: Sequence[AnyView]
    past: AnyPast


Rule = Callable[[Reading[Any, Any]], Faults]
Rules = Mapping[str, Rule]
AnyRule = TypeVar("AnyRule", bound=Callable[..., Faults])


def name_rules(*rules: AnyRule) -> dict[str, AnyRule]:
    """Rules by their names, in the order in which they are applied."""
    return {rule.__name__: rule for rule in rules}


def check_growing(
    request: Request,
    items: Sequence[Any],
    memo: CheckMemo | None,
    *,
    rules: Rules,
    view: Callable[[Any, int], AnyView],
    past: Callable[[], AnyPast],
    basis: Any = None,
) -> list[Violation]:
    """Every rule that a request breaks. With a memo, only the end of a request that grows is read again.

    `view` reads the item at a position, `past` makes an empty past. `basis` is what the rules depend on
    besides the items. What is before a message with which the model begins to speak is not checked again.
    """

    def check_views(checked_past: AnyPast, _: int, views: list[AnyView]) -> list[Violation]:
        return apply_rules(rules, Reading(request, views, checked_past))

    def begins_to_speak(previous: AnyView, current: AnyView) -> bool:
        return current.speaks and not previous.speaks

    return recheck(items, memo, basis=basis, past=past, view=view, seam=begins_to_speak, rules=check_views)


def apply_rules(rules: Mapping[str, Callable[[Any], Faults]], subject: Any) -> list[Violation]:
    """Every place where a request breaks one of these rules. `subject` is what the rules look at."""
    violations: list[Violation] = []
    for name, rule in rules.items():
        for place, problem in rule(subject):
            violations.append(Violation(rule=name, place=place, message=problem))
    return violations


def find_steps(views: Sequence[AnyStepView]) -> Iterator[tuple[AnyStepView, list[AnyStepView]]]:
    """Each message that makes calls, with the results that follow it before any other message."""
    caller: AnyStepView | None = None
    results: list[AnyStepView] = []
    for view in views:
        if view.is_result:
            results.append(view)
            continue
        if caller is not None:
            yield caller, results
        caller = None
        if view.makes_calls:
            caller = view
        results = []
    if caller is not None:
        yield caller, results
