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
def test_the_estimate_is_near_the_exact_count(family: str) -> None:
    encode = Tokenizer.from_pretrained(EXACT[family]).encode_ordinary
    ratios = {
        sort: estimate_tokens(text * 5, family=family) / len(encode(text * 5))
        for sort, text in SPREAD.items()
    }
    assert {sort: ratio for sort, ratio in ratios.items() if not 0.6 < ratio < 1.6} == {}


BOUNDED = ("o200k_base", "cl100k_base", "llama3", "qwen3", "deepseek_v3", "mistral_v3", "gemma3", "glm4")
HARD = SPREAD | {
    "short words": "the cat sat on the mat and ate a rat ",
    "one word": "big ",
    "letters": "a b ",
    "digits": "1 2 3 4 5 6 ",
    "small json": '{"a":1,"b":[1,2,3]},',
    "times": "2026-03-14T06:12:09Z 48213\n",
    "hex": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n",
    "table": "| vessel | tonnes |\n|---|--:|\n| Grey Heron | 118.25 |\n| `Alma` | 7.5 % |\n",
    "log": "[06:12:09.482] harbour.master:118 - the Grey Heron is at quay 4 (0.31s)\n",
    "emoji": "🚢 ⚓ 🌊 ok, 👍🏽 🐦\n",
    "japanese": "港長はここに寄港するすべての船を、到着時刻と積み荷とともに記録する。",
    "korean": "항만장은 이곳에 들르는 모든 배를 도착 시각과 화물과 함께 기록한다. ",
    "thai": "นายท่าเรือบันทึกเรือทุกลำที่แวะมาที่นี่ พร้อมเวลาที่มาถึงและสินค้า ",
}


def test_the_estimate_for_unknown_models_is_an_upper_bound() -> None:
    """Of all texts and vocabularies few are above the estimate, and none by much."""
    ratios: dict[tuple[str, str], float] = {}
    for vocabulary in BOUNDED:
        encode = Tokenizer.from_pretrained(vocabulary).encode_ordinary
        for sort, text in HARD.items():
            estimate = estimate_tokens(text * 20, family="unknown")
            ratios[vocabulary, sort] = estimate / len(encode(text * 20))
    too_low = {pair: ratio for pair, ratio in ratios.items() if ratio < 1}
    assert len(too_low) <= 0.03 * len(ratios), too_low
    assert min(ratios.values()) > 0.9, too_low


def test_the_bound_for_unknown_models_leaves_most_of_the_window() -> None:
    """An upper bound is easily had; this one is near the truth on what agents send."""
    encode = Tokenizer.from_pretrained("o200k_base").encode_ordinary
    text = (PROSE + CODE + JSON) * 10
    assert estimate_tokens(text, family="unknown") < 1.6 * len(encode(text))


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


@pytest.mark.parametrize(
    "character", ["a", "A", " ", "\t", "\n", "=", "0", "\0", "é", "я", "漢", "，", "😀", "\ud800"]
)
def test_a_long_run_is_not_free(character: str) -> None:
    estimates = {family: estimate_tokens(character * 10_000, family=family) for family in FAMILIES}
    assert {family: tokens for family, tokens in estimates.items() if tokens < 50} == {}


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
