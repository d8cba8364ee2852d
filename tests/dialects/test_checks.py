"""Each rule of each API: a request that breaks it breaks no other, and the rules that are named exist."""

from __future__ import annotations

from typing import Any

import pytest

from lamina.dialects import DIALECTS, sending
from lamina.dialects.anthropic.check import FORMAT as ANTHROPIC
from lamina.dialects.bedrock_converse.check import FORMAT as BEDROCK
from lamina.dialects.gemini.check import FORMAT as GEMINI
from lamina.dialects.ollama.check import FORMAT as OLLAMA
from lamina.dialects.openai_chat.check import FORMAT as CHAT
from lamina.dialects.openai_responses.check import FORMAT as RESPONSES
from lamina.dialects.rules import COMMON_RULES
from lamina.dialects.text.check import RULES as TEXT
from tests.dialects import (
    anthropic_requests,
    bedrock_requests,
    gemini_requests,
    ollama_requests,
    openai_chat_requests,
    openai_responses_requests,
    text_requests,
)
from tests.dialects.broken import Broken

Json = dict[str, Any]

RULES = {
    "anthropic": {*ANTHROPIC.rules, "roles", "readable"},
    "openai_chat": {*CHAT.rules},
    "openai_responses": {*RESPONSES.rules},
    "gemini": {*GEMINI.rules},
    "ollama": {*OLLAMA.rules},
    "bedrock_converse": {*BEDROCK.rules},
    "text": {*TEXT},
}
BROKEN: dict[str, list[Broken]] = {
    "anthropic": anthropic_requests.BROKEN,
    "openai_chat": openai_chat_requests.BROKEN,
    "openai_responses": openai_responses_requests.BROKEN,
    "gemini": gemini_requests.BROKEN,
    "ollama": ollama_requests.BROKEN,
    "bedrock_converse": bedrock_requests.BROKEN,
    "text": text_requests.BROKEN,
}
VALID: dict[str, list[Json]] = {
    "anthropic": [anthropic_requests.VALID],
    "openai_chat": [openai_chat_requests.VALID],
    "openai_responses": openai_responses_requests.VALID_REQUESTS,
    "gemini": [gemini_requests.VALID],
    "ollama": [ollama_requests.VALID],
    "bedrock_converse": [bedrock_requests.conversation(7)],
    "text": [text_requests.VALID],
}
BESIDE = {
    ("anthropic", "system_messages_stand_right"): {"ends_with_user"},
    ("gemini", "ids_are_unique"): {"calls_and_results_pair"},
    ("openai_responses", "ids_are_unique"): {"calls_and_results_pair"},
    ("openai_responses", "reasoning_is_followed"): {"nothing_is_empty"},
}
"""Rules that cannot be broken without another one."""

ROWS = [
    pytest.param(dialect, rule, place, request, id=f"{dialect}-{number}-{rule}")
    for dialect, rows in BROKEN.items()
    for number, (rule, place, request) in enumerate(rows)
]


@pytest.mark.parametrize(("dialect", "rule", "place", "request_"), ROWS)
def test_each_rule_is_broken_alone(dialect: str, rule: str, place: str, request_: Json) -> None:
    violations = DIALECTS[dialect].wire.check(request_)
    broken = {violation.rule for violation in violations}
    assert broken - BESIDE.get((dialect, rule), set()) == {rule}
    assert not place or place in [violation.place for violation in violations]
    assert all(violation.message for violation in violations)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_rule_is_broken_by_some_request_and_by_no_valid_one(dialect: str) -> None:
    broken = {rule for rule, _, _ in BROKEN[dialect]}
    assert RULES[dialect] <= broken <= {*RULES[dialect], *COMMON_RULES}
    for request in VALID[dialect]:
        assert DIALECTS[dialect].wire.check(request) == []


def test_each_rule_that_apis_share_is_broken_in_two_of_them() -> None:
    for shared in COMMON_RULES:
        assert sum(any(rule == shared for rule, _, _ in rows) for rows in BROKEN.values()) > 1, shared


def test_hints_are_about_rules_that_exist() -> None:
    known = set(COMMON_RULES).union(*RULES.values())
    assert sending._HINTS.keys() <= known  # noqa: SLF001


def test_only_the_messages_api_binds_thinking_to_the_past() -> None:
    assert [name for name, dialect in DIALECTS.items() if dialect.server is not None] == ["anthropic"]
