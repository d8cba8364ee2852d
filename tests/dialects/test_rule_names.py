"""Names of rules that are written as text somewhere are names of rules that exist."""

from __future__ import annotations

from lamina.dialects import sending
from lamina.dialects.anthropic.check import RULES as ANTHROPIC
from lamina.dialects.bedrock_converse.check import RULES as BEDROCK
from lamina.dialects.gemini.check import RULES as GEMINI
from lamina.dialects.ollama.check import RULES as OLLAMA
from lamina.dialects.openai_chat.check import RULES as CHAT
from lamina.dialects.openai_responses.check import RULES as RESPONSES
from lamina.dialects.text.check import RULES as TEXT

ALL = {name for rules in (ANTHROPIC, BEDROCK, GEMINI, OLLAMA, CHAT, RESPONSES, TEXT) for name in rules}


def test_hints_are_about_rules_that_exist() -> None:
    assert sending._HINTS.keys() <= ALL  # noqa: SLF001


def test_the_rule_of_the_last_turn_exists() -> None:
    assert set(sending._RULE_OF_LAST_TURN.values()) <= ALL  # noqa: SLF001
