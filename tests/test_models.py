from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core.values import Budget
from lamina.errors import BadInput
from lamina.models import _TABLE, Model, model
from lamina.text.estimate import FAMILIES


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("gpt-4o", "gpt-4o"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("openai/gpt-5-mini", "gpt-5-mini"),
        ("openrouter/openai/gpt-5.1:online", "gpt-5.1"),
        ("gpt-5-chat-latest", "gpt-5-chat"),
        ("ft:gpt-4.1-mini-2025-04-14:acme::id", "gpt-4.1-mini"),
        ("o4-mini-2025-04-16", "o4-mini"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
        ("anthropic/claude-opus-4.5", "claude-opus-4-5"),
        ("claude-opus-4-5@20251101", "claude-opus-4-5"),
        ("claude-opus-5-5", "claude-opus-5-5"),
        ("models/gemini-2.5-flash-preview-09-2025", "gemini-2.5-flash"),
        ("gemini-3-pro-preview", "gemini-3-pro"),
        ("deepseek/deepseek-v4-pro", "deepseek-v4-pro"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.3"),
        ("us.meta.llama3-3-70b-instruct-v1:0", "llama3.3"),
        ("llama3.1:8b", "llama3.1"),
        ("Qwen/Qwen3-32B", "qwen3"),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct", "qwen3-coder"),
        ("mistral-large-2512", "mistral-large"),
        ("mistral-large-latest", "mistral-large"),
    ],
)
def test_a_model_is_found_however_it_is_written(written: str, name: str) -> None:
    assert model(written).name == name


@pytest.mark.parametrize(
    "written",
    ["", "gpt-5.9", "claude-opus-5-9", "claude-opus-5-9-20270101", "gpt-50", "claude", "gpt-4", "o39"],
)
def test_a_version_that_the_table_lacks_is_not_taken_for_an_older_one(written: str) -> None:
    with pytest.raises(BadInput, match=r"Budget\(window=\.\.\.\)"):
        model(written)


@pytest.mark.parametrize("row", _TABLE, ids=lambda row: row.name)
def test_every_row_is_found_by_its_own_name_and_makes_a_budget(row: Model) -> None:
    assert model(row.name) is row
    assert Budget(window=row.window).window == row.window
    assert 0 <= row.output <= row.window
    assert row.family in FAMILIES


def test_thinking_is_bound_on_the_models_whose_page_says_so() -> None:
    bound = [row.name for row in _TABLE if row.binding == "strict"]
    assert sorted(bound) == ["claude-fable-5-1", "claude-opus-5-5", "claude-sonnet-5-5"]


@given(st.text(max_size=300))
def test_any_name_is_a_model_or_a_typed_error(written: str) -> None:
    with suppress(BadInput):
        assert model(written).window > 0
