from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from splintr import Tokenizer

from lamina.core.text.estimate import FAMILIES, PATTERNS, estimate_tokens, features

# What each family's tokenizer is called where splintr has it.
EXACT = {
    "o200k": "o200k_base",
    "cl100k": "cl100k_base",
    "gemini": "gemma2",
    "llama3": "llama3",
    "qwen3": "qwen3",
    "deepseek": "deepseek_v3",
    "mistral": "mistral_v3",
}
PROSE = (
    "The harbour master keeps a ledger of every vessel that calls here, with the hour of its arrival, "
    "the cargo it carries and the name of whoever signs for it. On quiet mornings she reads the old "
    "volumes, and notes in pencil which of the ships have since been lost. "
)
CODE = """
def weigh(cargo: dict[str, int], *, limit: int = 4_000) -> list[str]:
    kept, total = [], 0
    for name, weight in sorted(cargo.items(), key=lambda item: -item[1]):
        if total + weight <= limit:
            kept.append(name)
            total += weight
    return kept
"""
JSON = (
    '{"id": 48213, "vessel": "Grey Heron", "arrived": "2026-03-14T06:12:09Z", "tonnes": 118.25, "ok": true}, '
)
GERMAN = "Der Hafenmeister führt ein Verzeichnis aller Schiffe, die hier anlegen, mit Uhrzeit und Ladung. "
RUSSIAN = "Начальник порта ведёт журнал всех судов, которые заходят сюда, и отмечает их груз. "
CHINESE = "港务长记录每一艘停靠在这里的船只，包括到达时间、所载货物以及签收人的姓名。"
SPREAD = {
    "prose": PROSE,
    "code": CODE,
    "json": JSON,
    "german": GERMAN,
    "russian": RUSSIAN,
    "chinese": CHINESE,
}


@pytest.mark.parametrize("family", EXACT)
@pytest.mark.parametrize("sort", SPREAD)
def test_the_estimate_is_near_the_exact_count(family: str, sort: str) -> None:
    text = SPREAD[sort] * 5
    exact = len(Tokenizer.from_pretrained(EXACT[family]).encode_ordinary(text))
    assert 0.6 < estimate_tokens(text, family=family) / exact < 1.6


def test_newer_claude_models_count_more_than_older_ones() -> None:
    assert estimate_tokens(PROSE, family="claude") > 1.2 * estimate_tokens(PROSE, family="claude3")


@given(st.text())
def test_no_text_is_free_nor_costs_more_than_its_bytes(text: str) -> None:
    size = len(text.encode())
    for family in FAMILIES:
        assert min(size, 1) <= estimate_tokens(text, family=family) <= size


@given(st.text(min_size=1), st.integers(1, 50))
def test_more_of_the_same_never_costs_less(text: str, times: int) -> None:
    assert estimate_tokens(text * times) <= estimate_tokens(text * (times + 1))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "character", ["a", "A", " ", "\t", "\n", "=", "0", "\0", "é", "я", "漢", "，", "😀", "\ud800"]
)
def test_a_long_run_is_not_free(family: str, character: str) -> None:
    assert estimate_tokens(character * 100_000, family=family) >= 500


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("a bC", {"sa": 1, "A": 1, "aA": 1, "/cc": 1}),
        ("x1, 22", {"d": 3, "p": 1, "sd": 1, "dp": 1}),
        ("\n\tдень", {"n": 1, "t": 1, "nt": 1, "k": 4, "kkkk": 1}),
        ("", {}),
    ],
)
def test_features_are_counts_of_the_patterns(text: str, counted: dict[str, int]) -> None:
    found = dict(zip(PATTERNS, features(text), strict=True))
    assert {pattern: number for pattern, number in found.items() if number} == counted | {"1": 1}


def test_an_unknown_family_is_an_error() -> None:
    with pytest.raises(ValueError, match="klingon"):
        estimate_tokens("text", family="klingon")
