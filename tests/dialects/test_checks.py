"""Each rule of each API: a request that breaks it breaks no other, and the rules that are named exist."""

from __future__ import annotations

from typing import Any

import pytest

from lamina.dialects import DIALECTS, sending
from lamina.dialects.anthropic.check import RULES as ANTHROPIC
from lamina.dialects.bedrock_converse.check import RULES as BEDROCK
from lamina.dialects.gemini.check import RULES as GEMINI
from lamina.dialects.ollama.check import RULES as OLLAMA
from lamina.dialects.openai_chat.check import RULES as CHAT
from lamina.dialects.openai_responses.check import RULES as RESPONSES
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
    "anthropic": {*ANTHROPIC, "roles", "readable"},
    "openai_chat": {*CHAT},
    "openai_responses": {*RESPONSES},
    "gemini": {*GEMINI},
    "ollama": {*OLLAMA},
    "bedrock_converse": {*BEDROCK},
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
    ("openai_responses", "call_ids_are_unique"): {"calls_are_answered", "outputs_have_calls"},
    ("openai_responses", "reasoning_is_followed"): {"content_is_there"},
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
    assert {rule for rule, _, _ in BROKEN[dialect]} == RULES[dialect]
    for request in VALID[dialect]:
        assert DIALECTS[dialect].wire.check(request) == []


def test_hints_are_about_rules_that_exist() -> None:
    known = set().union(*RULES.values())
    assert sending._HINTS.keys() <= known  # noqa: SLF001
    assert set(sending._RULE_OF_LAST_TURN.values()) <= known  # noqa: SLF001


def test_only_the_messages_api_binds_thinking_to_the_past() -> None:
    assert [name for name, dialect in DIALECTS.items() if dialect.server is not None] == ["anthropic"]
