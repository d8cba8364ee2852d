"""Checks a request against the rules of the Messages API that can be verified without calling it.

Each rule is a function from a `MessagesReading` to its breaches, and one row of `RULES`. The docstring of a
rule begins with its number, by which documents and tests cite it. A request that cannot be parsed breaks
`readable` (or `roles`), and no other rule is tried. Sizes, prices and what a tool's schema allows are not
checked.
"""

from __future__ import annotations

from lamina.core.values import Ledger
from lamina.dialects.anthropic.marker_rules import long_marks_come_first, marks_are_allowed, marks_are_few
from lamina.dialects.anthropic.markers import find_markers_before_messages, find_request_marker
from lamina.dialects.anthropic.message_rules import (
    begins_with_user,
    ends_with_user,
    has_limit,
    nothing_is_empty,
    system_messages_are_taken,
    system_messages_stand_right,
)
from lamina.dialects.anthropic.model import read_model
from lamina.dialects.anthropic.parse import parse
from lamina.dialects.anthropic.readings import EarlierMessages, MessageReading, MessagesReading, Rule
from lamina.dialects.anthropic.thinking_rules import thinking_is_bound, thinking_is_whole
from lamina.dialects.anthropic.tool_rules import (
    call_ids_are_unique,
    calls_are_answered,
    names_are_allowed,
    results_come_first,
    results_come_once,
    results_have_their_call,
)
from lamina.dialects.memos import CheckMemo, recheck
from lamina.dialects.port import Request, Violation
from lamina.errors import BadInput

RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        has_limit,
        begins_with_user,
        ends_with_user,
        calls_are_answered,
        results_have_their_call,
        results_come_once,
        call_ids_are_unique,
        results_come_first,
        nothing_is_empty,
        thinking_is_whole,
        thinking_is_bound,
        system_messages_stand_right,
        system_messages_are_taken,
        marks_are_few,
        long_marks_come_first,
        marks_are_allowed,
        names_are_allowed,
    )
}


def check(request: Request, *, ledger: Ledger | None = None) -> list[Violation]:
    """What the API would refuse, in the order of the rules. With a ledger, bound thinking is verified too."""
    try:
        parse(request)
    except BadInput as error:
        rule = "roles" if error.place.endswith(".role") else "readable"
        return [Violation(rule=rule, place=error.place, message=f"{error.problem}; {error.hint}")]
    return _apply_rules_to(request, None, ledger)


def check_again(request: Request, memo: CheckMemo | None = None) -> list[Violation]:
    """Like `check`, for a request that was parsed or rendered here: it is not parsed again."""
    return _apply_rules_to(request, memo, None)


def _apply_rules_to(request: Request, memo: CheckMemo | None, ledger: Ledger | None) -> list[Violation]:
    def apply_rules(
        past: EarlierMessages, past_count: int, messages: list[MessageReading]
    ) -> list[Violation]:
        markers = [*find_markers_before_messages(request), *past.markers]
        for message in messages:
            markers += message.markers
        markers += find_request_marker(request)
        reading = MessagesReading(request, messages, markers, past, past_count > 0, ledger)
        violations: list[Violation] = []
        for name, rule in RULES.items():
            for place, problem in rule(reading):
                violations.append(Violation(rule=name, place=place, message=problem))
        return violations

    return recheck(
        request["messages"],
        memo,
        basis=read_model(request),
        past=EarlierMessages,
        view=MessageReading,
        seam=_answers_user,
        rules=apply_rules,
    )


def _answers_user(previous: MessageReading, message: MessageReading) -> bool:
    return message.role == "assistant" and previous.role == "user"
