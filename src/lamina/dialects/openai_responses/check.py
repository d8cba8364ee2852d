"""Checks a request against the rules of the Responses API. Rules are small functions that change nothing.

R1 to R9 are the rules that the API words itself. A rule skips values of a shape that another rule reports, so
that one fault is reported once. What only the server knows is not judged: calls of a response that the
request continues, and whether an item with an id had reasoning before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lamina.core.values import Ledger, Role
from lamina.dialects.json_values import list_or_empty
from lamina.dialects.memos import CheckMemo, recheck
from lamina.dialects.openai_responses.call_rules import (
    call_ids_are_unique,
    call_ids_fit,
    calls_are_answered,
    calls_are_whole,
    names_fit_the_pattern,
    outputs_have_calls,
)
from lamina.dialects.openai_responses.item_rules import (
    a_trigger_stands_last,
    compactions_are_whole,
    item_ids_are_unique,
    item_ids_fit_their_type,
    items_say_what_they_are,
    phases_are_known,
    reasoning_can_be_read_again,
    reasoning_is_followed,
    roles_are_known,
)
from lamina.dialects.openai_responses.parse import continues_server_state
from lamina.dialects.openai_responses.part_rules import (
    content_is_there,
    markers_stand_on_parts,
    parts_fit_their_role,
    parts_say_what_they_are,
)
from lamina.dialects.openai_responses.readings import EarlierItems, ItemReading, ResponsesReading, Rule
from lamina.dialects.openai_responses.request_rules import (
    cache_options_are_known,
    one_past_is_continued,
    something_is_asked,
    tools_are_whole,
    truncation_is_known,
)
from lamina.dialects.port import Request, Violation

RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        something_is_asked,
        items_say_what_they_are,
        roles_are_known,
        outputs_have_calls,
        calls_are_answered,
        reasoning_is_followed,
        reasoning_can_be_read_again,
        phases_are_known,
        a_trigger_stands_last,
        one_past_is_continued,
        truncation_is_known,
        compactions_are_whole,
        call_ids_fit,
        call_ids_are_unique,
        item_ids_are_unique,
        item_ids_fit_their_type,
        calls_are_whole,
        names_fit_the_pattern,
        tools_are_whole,
        content_is_there,
        parts_say_what_they_are,
        parts_fit_their_role,
        markers_stand_on_parts,
        cache_options_are_known,
    )
}


def check(request: Request, *, ledger: Ledger | None = None) -> list[Violation]:
    """Every rule that the request breaks. No thinking is bound in this API, so the ledger is not used."""
    del ledger
    if not isinstance(request, Mapping):
        return [Violation(rule="something_is_asked", place="", message="not an object")]
    return check_again(request)


def check_again(request: Request, memo: CheckMemo | None = None) -> list[Violation]:
    """Like `check`. With a memo, only the end of a request that grows is read again."""

    def apply_rules(past: EarlierItems, _: int, items: list[ItemReading]) -> list[Violation]:
        reading = ResponsesReading(request, items, past)
        violations: list[Violation] = []
        for name, rule in RULES.items():
            for place, problem in rule(reading):
                violations.append(Violation(rule=name, place=place, message=problem))
        return violations

    return recheck(
        _read_items(request),
        memo,
        basis=(request.get("store"), continues_server_state(request)),
        past=EarlierItems,
        view=ItemReading,
        seam=_begins_to_speak,
        rules=apply_rules,
    )


def _read_items(request: Request) -> Sequence[Any]:
    request_input = request.get("input")
    if isinstance(request_input, str) and request_input:
        return (request_input,)
    return list_or_empty(request_input)


def _begins_to_speak(previous: ItemReading, item: ItemReading) -> bool:
    return item.role is Role.ASSISTANT and previous.role is not Role.ASSISTANT
