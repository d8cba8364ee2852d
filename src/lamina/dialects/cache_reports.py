"""Reads what a provider says about its own cache: whether it read a request from it, and if not, why.

Two APIs compare a request with an earlier one if a client gives them the id of its answer. Shapes: anthropic
2.8 (`diagnostics.previous_message_id`) and openai 3.49 (`prompt_cache_options.comparison_response_id`, in the
Responses API only). lamina asks for no report. It reads those that clients ask for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lamina.dialects.json_values import mapping_or_empty, read_field, text_or_empty, to_count

HIT = "hit"
"""The provider compared the two requests and found nothing that breaks the cached prefix."""

PENDING = "pending"
"""The answer was written before the comparison was done."""

LONGEST_WORD = 40
"""Characters of a provider's word that are kept. The longest word of today has 29."""


class CacheReport(msgspec.Struct, frozen=True, kw_only=True):
    """The provider's own word for what happened, "" if it said nothing.

    `missed` are the tokens that it says would have been read, 0 if it does not say.
    """

    cause: str = ""
    missed: int = 0


NO_REPORT = CacheReport()


def read_cache_report(answer: Any, request: Mapping[str, Any] | None = None) -> CacheReport:
    """What an answer (a dict, or an object of an SDK) reports about its cache.

    `request` is the one that was answered. Anthropic's API answers null both if nobody asked and if nothing
    differs, so without it a null is no report.
    """
    compared = read_field(answer, "prompt_cache_diagnostics")
    if compared is not None:
        return _read_openai(compared)
    diagnostics = read_field(answer, "diagnostics")
    if diagnostics is not None:
        return _read_anthropic(diagnostics)
    if request is not None and _names_previous_message(request):
        return CacheReport(cause=HIT)
    return NO_REPORT


def _read_anthropic(diagnostics: Any) -> CacheReport:
    """What the Messages API reports: why the prefix was not read, or nothing as long as it compares."""
    reason = read_field(diagnostics, "cache_miss_reason")
    if reason is None:
        return CacheReport(cause=PENDING)
    missed = to_count(read_field(reason, "cache_missed_input_tokens"))
    return CacheReport(cause=_read_word(reason, "type"), missed=missed)


def find_cache_report(answer: Any, request: Mapping[str, Any] | None = None) -> CacheReport:
    """What an answer of an SDK, or the list of all events of a stream, reports about its cache.

    Anthropic begins a stream with the message, OpenAI ends it with the response.
    """
    holders = [answer]
    if isinstance(answer, list):
        holders = [read_field(event, "message") or read_field(event, "response") for event in answer]
    for holder in holders:
        report = read_cache_report(holder)
        if report.cause:
            return report
    has_answer = any(read_field(holder, "id") for holder in holders)
    if not has_answer:  # a stream that has only begun has said nothing yet
        return NO_REPORT
    return read_cache_report({}, request)


def _read_openai(compared: Any) -> CacheReport:
    """What the Responses API reports: a hit, a miss with its reason, or why it did not compare."""
    word = _read_word(compared, "type")
    if word == "cache_hit":
        return CacheReport(cause=HIT)
    if word == "cache_miss":
        word = _read_word(compared, "reason")
    return CacheReport(cause=word, missed=to_count(read_field(compared, "cache_missed_tokens")))


def _read_word(holder: Any, name: str) -> str:
    """A word of the provider. It goes into logs, so a server cannot put a text there."""
    return text_or_empty(read_field(holder, name))[:LONGEST_WORD]


def _names_previous_message(request: Mapping[str, Any]) -> bool:
    """Whether a request of Anthropic's API names the answer of an earlier one.

    With null it only says that it wants reports: on the first turn there is nothing to compare.
    """
    return bool(mapping_or_empty(request.get("diagnostics")).get("previous_message_id"))
