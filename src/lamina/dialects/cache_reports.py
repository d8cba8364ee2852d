"""Reads what a provider says about its own cache: whether it read a request from it, and if not, why.

Two APIs compare a request with an earlier one if they are given the id of its answer. Shapes: anthropic 2.8
(`diagnostics.previous_message_id`) and openai 3.49 (`prompt_cache_options.comparison_response_id`, in the
Responses API only). Reports are read from every answer, whoever asked. Nothing is sent here.
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

UNDECIDED = (PENDING, "unavailable", "previous_message_not_found", "comparison_response_not_found")
"""Words by which a provider says that it did not compare the two requests."""


class CacheReport(msgspec.Struct, frozen=True, kw_only=True):
    """The provider's own word for what happened, "" if it said nothing.

    `missed` are the tokens that it says would have been read, 0 if it does not say.
    """

    cause: str = ""
    missed: int = 0

    @property
    def is_miss(self) -> bool:
        """Whether the provider names something that broke the prefix."""
        return self.cause not in ("", HIT, *UNDECIDED)


NO_REPORT = CacheReport()


class AnswerNote(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer says of itself: its `id`, by which a later request can name it, and its cache report."""

    id: str
    report: CacheReport


NO_NOTE = AnswerNote(id="", report=NO_REPORT)


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


def read_answer_note(answer: Any, request: Mapping[str, Any] | None = None) -> AnswerNote:
    """Read an answer of an SDK, or the list of all events of a stream, for its id and its report.

    Anthropic begins a stream with the message, OpenAI ends it with the response.
    """
    holders = [answer]
    if isinstance(answer, list):
        holders = [read_field(event, "message") or read_field(event, "response") for event in answer]
    answer_id = ""
    report = NO_REPORT
    for holder in holders:
        answer_id = text_or_empty(read_field(holder, "id")) or answer_id
        holder_report = read_cache_report(holder)
        if holder_report.cause:
            report = holder_report
    if report is NO_REPORT and answer_id:
        report = read_cache_report({}, request)
    return AnswerNote(id=answer_id, report=report)


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


_BAD_REQUEST = 400
_QUESTIONS = ("diagnostics", "previous_message_id", "comparison_response_id")
"""The fields that ask for a report. A server that does not know one names it in its refusal."""


def refuses_question(status: int | None, message: str) -> bool:
    """Whether a server refused a request because it does not know the field that asks for a report."""
    return status == _BAD_REQUEST and any(name in message for name in _QUESTIONS)


def ask_anthropic_report(request: Mapping[str, Any], previous_answer: str) -> dict[str, Any]:
    """The fields by which a request of the Messages API asks for a comparison; empty if it asks already."""
    if request.get("diagnostics") is not None:
        return {}
    return {"diagnostics": {"previous_message_id": previous_answer or None}}


def ask_openai_report(request: Mapping[str, Any], previous_answer: str) -> dict[str, Any]:
    """The fields by which a request of the Responses API asks for a comparison; empty if it asks already.

    The other options of the cache stay as they are.
    """
    options = mapping_or_empty(request.get("prompt_cache_options"))
    if not previous_answer or options.get("comparison_response_id"):
        return {}
    return {"prompt_cache_options": {**options, "comparison_response_id": previous_answer}}
