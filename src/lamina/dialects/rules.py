"""Defines how a rule of an API is written, and applies rules to a request.

A rule is a function, and its name is the name of the rule. It gets the request as its dialect reads it,
changes nothing, and yields each place where the request breaks it, with what is wrong there. A rule about
single messages loops over them itself: a generator for each message and rule would cost more than the rules.

A rule that only says which values some fields may hold has a table of them:

    _RESULT_NAMES = {"tool": [Field("tool_call_id", (str,), "missing or empty", is_filled=True)]}

    def results_name_their_call(reading: ChatReading) -> Faults:
        return find_wrong_fields(reading.by_role, _RESULT_NAMES)

reports each tool message whose `tool_call_id` is not a string, or an empty one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from lamina.dialects.json_values import list_or_empty
from lamina.dialects.memos import CheckedPast, CheckMemo
from lamina.dialects.port import Request, Violation
from lamina.errors import BadInput

Faults = Iterator[tuple[str, str]]
"""Where a rule is broken, and how."""


class MessageView(Protocol):
    """A message, a content or an item as rules see it: whether the model made it."""

    @property
    def speaks(self) -> bool: ...


class StepView(Protocol):
    """A message that may make calls, or answer some."""

    @property
    def makes_calls(self) -> bool: ...

    @property
    def is_result(self) -> bool: ...


class RoleMessageView:
    """A message of an API in which each message has a role, as its rules see it.

    `message` is the object as it came, `wire` are its fields, which are empty if it is no object. `role` is
    one of the roles of the API, else "", and the `sort` of a message is its role.
    """

    __slots__ = ("index", "message", "role", "sort", "wire")

    def __init__(self, message: Any, index: int, wire: Mapping[str, Any], roles: Collection[str]) -> None:
        """Read the role once for all rules. A value that is not one of `roles` is ""."""
        role = wire.get("role")
        if not isinstance(role, str) or role not in roles:
            role = ""
        self.index = index
        self.message = message
        self.wire = wire
        self.role = role
        self.sort = role

    @property
    def place(self) -> str:
        return f"messages[{self.index}]"

    @property
    def speaks(self) -> bool:
        return self.role == "assistant"


AnyView = TypeVar("AnyView", bound=MessageView)
AnyStepView = TypeVar("AnyStepView", bound=StepView)
AnyPast = TypeVar("AnyPast", bound=CheckedPast)


Rule = Callable[[Any], Faults]
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
    reading: Callable[[Request, Sequence[AnyView], AnyPast], Any],
    basis: Any = None,
    ends_a_step: Callable[[AnyView], bool] = lambda view: not view.speaks,
) -> list[Violation]:
    """Every rule that a request breaks. With a memo, only the end of a request that grows is read again.

    `view` reads the item at a position, `past` makes an empty past, `reading` makes what the rules look at.
    `basis` is what the rules depend on besides the items. What is before a message with which the model
    begins to speak is not checked again; `ends_a_step` says whether the message before it may be its end.
    """
    if memo is None:
        all_views = [view(item, position) for position, item in enumerate(items)]
        return apply_rules(rules, reading(request, all_views, past()))
    start, checked_past = memo.resume(items, basis, past)
    views = memo.view_tail(items, start, view)
    violations = apply_rules(rules, reading(request, views, checked_past))
    if violations:
        # The rules find nothing wrong before a seam only if nothing was wrong there the last time.
        memo.forget()
        return violations
    clean_count = _find_last_seam(views, ends_a_step, memo.tail)
    for clean_view in views[:clean_count]:
        checked_past.add(clean_view)
    clean_end = start + clean_count
    tail = zip(items[clean_end:], views[clean_count:], strict=True)
    memo.remember(start, items[start:clean_end], basis, checked_past, tail)
    return violations


def _find_last_seam(views: list[AnyView], ends_a_step: Callable[[AnyView], bool], tail: int) -> int:
    """The last position before the tail at which the model begins to speak, 0 if there is none.

    For user, assistant, user, assistant … it is the last position of an assistant before the tail.
    """
    # Up to there all calls have their results, and nothing that follows can change that.
    for position in range(len(views) - tail, 0, -1):
        if views[position].speaks and ends_a_step(views[position - 1]):
            return position
    return 0


def apply_rules(rules: Rules, subject: Any) -> list[Violation]:
    """Every place where a request breaks one of these rules. `subject` is what the rules look at.

    They are in the order of the rules, and for each rule in its own order.
    """
    violations: list[Violation] = []
    for name, rule in rules.items():
        for place, problem in rule(subject):
            violations.append(Violation(rule=name, place=place, message=problem))
    return violations


class Field(msgspec.Struct, frozen=True):
    """A field, the types of values that the API takes there, and what is wrong with any other value.

    With `is_filled` an empty value is refused too. `place` is where a fault is reported, seen from the object
    that has the field: the field itself, unless another place is given.
    """

    name: str
    types: tuple[type, ...]
    problem: str
    is_filled: bool = False
    place: str | None = None

    @property
    def suffix(self) -> str:
        if self.place is None:
            return f".{self.name}"
        return self.place


class SortedView(Protocol):
    """What `find_wrong_fields` looks at: an object of a request, with its sort, its fields and its place."""

    @property
    def sort(self) -> str | None: ...

    @property
    def wire(self) -> Mapping[str, Any]: ...

    @property
    def place(self) -> str: ...


HoldersBySort = Mapping[str | None, Sequence[SortedView]]
"""Objects of a request in lists, one for each sort."""


FieldsBySort = Mapping[str | None, Sequence[Field]]
"""The fields that the objects of each sort have: messages by their role, parts by their type."""


def find_wrong_fields(holders_by_sort: HoldersBySort, fields_by_sort: FieldsBySort) -> Faults:
    """The places of values that the API does not take. Objects of other sorts may hold anything.

    Faults come by sort, and within one in the order of the request.
    """
    for sort, fields in fields_by_sort.items():
        for holder in holders_by_sort.get(sort, ()):
            wire = holder.wire
            for field in fields:
                value = wire.get(field.name)
                is_unfilled = field.is_filled and not value
                if is_unfilled or not isinstance(value, field.types):
                    yield f"{holder.place}{field.suffix}", field.problem


AnySortedView = TypeVar("AnySortedView", bound=SortedView)


def report_unreadable(error: BadInput) -> Violation:
    """The violation of a request that cannot be parsed: of `roles` if a role is wrong, else of `readable`."""
    rule = "readable"
    if error.place.endswith(".role"):
        rule = "roles"
    return Violation(rule=rule, place=error.place, message=f"{error.problem}; {error.hint}")


def group_by_sort(views: Iterable[AnySortedView]) -> dict[str | None, list[AnySortedView]]:
    """The same objects in lists, one for each sort."""
    views_by_sort: dict[str | None, list[AnySortedView]] = {}
    for view in views:
        views_by_sort.setdefault(view.sort, []).append(view)
    return views_by_sort


class RoleReading(Protocol):
    """A request whose messages have roles."""

    @property
    def request(self) -> Request: ...

    @property
    def views(self) -> Sequence[RoleMessageView]: ...


def messages_are_objects(reading: RoleReading) -> Faults:
    """A request has a list of messages, each an object, and at least one.

    `{"messages": ["Hi"]}` breaks it. An empty object is an object, which other rules refuse.
    """
    if not list_or_empty(reading.request.get("messages")):
        yield "messages", "not a list of at least one message"
    for view in reading.views:
        # Whatever is not an object is read as one without fields.
        if not view.wire and view.message != {}:
            yield view.place, "not an object"


def roles_are_known(reading: RoleReading) -> Faults:
    """A message has one of the roles of this API. Another rule reports messages that are not objects.

    Broken by `{"role": "bot", "content": "Hi"}`.
    """
    for view in reading.views:
        if view.wire and not view.role:
            yield f"{view.place}.role", "not a role of this API"


def find_steps(views: Sequence[AnyStepView]) -> Iterator[tuple[AnyStepView, list[AnyStepView]]]:
    """Each message that makes calls, with the results that follow it before any other message.

    Of assistant with calls, tool, tool, user it is the assistant message with both tool messages.
    """
    results: list[AnyStepView] = []
    steps: list[tuple[AnyStepView, list[AnyStepView]]] = []
    for view in views:
        if view.is_result:
            results.append(view)
            continue
        results = []
        if view.makes_calls:
            steps.append((view, results))
    return iter(steps)
