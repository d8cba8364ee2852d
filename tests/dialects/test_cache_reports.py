"""What a provider says about its own cache, read from answers of a client that asked for it."""

from __future__ import annotations

import pytest

from lamina.dialects import CacheReport
from lamina.dialects.usage import HIT, NO_REPORT, read_cache_report

ASKS = {"diagnostics": {"previous_message_id": "msg_1"}}
MISS = {"diagnostics": {"cache_miss_reason": {"type": "tools_changed", "cache_missed_input_tokens": 9}}}


def test_null_is_a_report_only_if_the_request_named_an_answer() -> None:
    assert read_cache_report({"diagnostics": None}) is NO_REPORT
    first_turn = {"diagnostics": {"previous_message_id": None}}
    assert read_cache_report({"diagnostics": None}, first_turn) is NO_REPORT
    assert read_cache_report({"diagnostics": None}, ASKS) == CacheReport(cause=HIT)
    assert read_cache_report({"diagnostics": {"cache_miss_reason": None}}, ASKS).cause == "pending"


@pytest.mark.parametrize(
    ("compared", "report"),
    [
        ({"type": "cache_hit"}, CacheReport(cause=HIT)),
        (
            {"type": "cache_miss", "reason": "input_changed", "cache_missed_tokens": 7},
            CacheReport(cause="input_changed", missed=7),
        ),
        ({"type": "comparison_response_not_found"}, CacheReport(cause="comparison_response_not_found")),
    ],
)
def test_each_answer_of_the_responses_api_is_read(compared: object, report: CacheReport) -> None:
    assert read_cache_report({"prompt_cache_diagnostics": compared}) == report


def test_a_hostile_report_is_bounded() -> None:
    reason = {"type": "x" * 10_000, "cache_missed_input_tokens": "many"}
    report = read_cache_report({"diagnostics": {"cache_miss_reason": reason}})
    assert len(report.cause) == 40
    assert report.missed == 0
    assert read_cache_report({"prompt_cache_diagnostics": [1, 2]}).cause == ""
