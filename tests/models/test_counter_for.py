from __future__ import annotations

import sys

import pytest

from lamina.core import Counter
from lamina.core.tokens import estimate_for
from lamina.models import counters
from lamina.models.counters import claude, counter_for
from lamina.models.framing import framing_for


@pytest.mark.parametrize(
    ("model", "name", "rests_on"),
    [
        ("gpt-5.5", "o200k", "exact"),
        ("gpt-4", "cl100k", "exact"),
        ("gpt-oss-20b", "o200k", "exact"),
        ("gpt-6.1-sol", "o200k", "estimated"),
        ("claude-opus-4-7", "ctok-4.8", "measured"),
        ("anthropic/claude-sonnet-4.5", "ctok-3.0", "measured"),
        ("us.anthropic.claude-3-haiku-20240307-v1:0", "ctok-3.0", "measured"),
        ("claude-sonnet-5-20260901", "ctok-4.8", "measured"),
        ("claude-sonnet-5-5", "ctok-4.8", "estimated"),
        ("claude-fable-5-20260601", "ctok-4.8", "measured"),
        ("claude-fable-5-2", "ctok-4.8", "estimated"),
        ("claude-2.1", "estimate:claude3_bound", "estimated"),
        ("gemini-3-pro-preview", "gemma2", "measured"),
        ("gemini-2.5-pro", "gemma2", "estimated"),
        ("gemini-3.5-flash", "gemma4", "estimated"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3", "exact"),
        ("llama3.1:8b", "llama3", "exact"),
        ("llama-4-scout", "o200k", "estimated"),
        ("qwen3-8b", "qwen3", "exact"),
        ("qwen3-max", "qwen3", "estimated"),
        ("qwen3.8-max", "qwen3", "estimated"),
        ("deepseek-chat", "deepseek_v3", "exact"),
        ("deepseek-flash", "deepseek_v3", "estimated"),
        ("deepseek-r1:7b", "deepseek_v3", "estimated"),
        ("deepseek-r1-distill-qwen-7b", "qwen3", "estimated"),
        ("deepseek-v2.5", "deepseek_v3", "estimated"),
        ("open-mistral-nemo", "mistral_v3", "exact"),
        ("codestral-latest", "mistral_v3", "estimated"),
        ("mixtral-8x7b", "estimate:mistral", "estimated"),
        ("glm-4.5v", "glm4", "exact"),
        ("glm-5.2", "glm4", "estimated"),
        ("kimi-k2", "kimi_k2", "estimated"),
        ("mystery-1", "estimate:unknown", "estimated"),
        ("", "estimate:unknown", "estimated"),
    ],
)
def test_every_model_has_a_counter_and_no_more_is_claimed_than_is_known(
    model: str, name: str, rests_on: str
) -> None:
    counter = counter_for(model)
    assert (counter.name, counter.basis, counter.framing) == (name, rests_on, framing_for(model))


@pytest.mark.parametrize(
    ("model", "family"),
    [("gpt-4o", "o200k"), ("gpt-4", "cl100k"), ("claude-opus-5", "claude_bound"), ("qwen3", "qwen3")],
)
def test_without_the_native_packages_the_estimate_counts(
    model: str, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(model: str) -> Counter:
        raise ImportError(model)

    monkeypatch.setattr(counters, "load_vocabulary", missing)
    monkeypatch.setattr(claude, "version", missing)
    counter = counter_for.__wrapped__(model)
    assert (counter.name, counter.basis) == (f"estimate:{family}", "estimated")


def test_without_ctok_claude_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctok", None)
    monkeypatch.setattr(claude, "version", claude.version.__wrapped__)
    monkeypatch.setattr(claude, "_count_of", claude._count_of.__wrapped__)  # noqa: SLF001
    assert counter_for.__wrapped__("claude-opus-4-7").name == "estimate:claude_bound"


def test_an_estimate_is_never_called_more() -> None:
    assert estimate_for("claude").basis == "estimated"
