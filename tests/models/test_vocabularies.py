from __future__ import annotations

import sys
import unicodedata
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core.text.estimate import estimate_tokens
from lamina.core.tokens import STRICT
from lamina.errors import BadInput
from lamina.models.counters import count_guard as guard
from lamina.models.counters import vocabularies
from lamina.models.counters.count_guard import LONGEST, between_long_runs, guard_count
from lamina.models.counters.vocabularies import vocabulary

NAMES = vocabularies.names()
LONG_RUN = 200_000

# Counts of the references that notes/counting.md names: tiktoken, tokenizers, mistral-common's ranks.
TEXTS = {
    "code": "def area(r: float) -> float:\n    return 3.14159 * r**2  # m²\n",
    "json": '{"id": 40817, "tags": ["new", "\\u00fc"], "price": 12.50, "ok": true, "next": null}',
    "cjk": "東京都の天気は晴れ、気温は二十三度です。北京今天多云转晴。서울은 맑음",
    "emoji": "👩\u200d👩\u200d👧 🏳\ufe0f\u200d🌈 👍🏽 🇩🇪🇯🇵",
    "base64": "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4",
    "runs": "a" * 100 + "=" * 100 + " " * 100 + "x",
    "log": "2026-11-15T05:14:07.113Z ERROR [http.pool] 502 from 10.0.3.17:8443 after 30001 ms id=9f3ac2\n",
    "white": "\r\n\r\n\t\t \n \u00a0\u3000 \n\n\n  x",
    "special": "<|endoftext|><|im_start|>user<think></think><|think|>[INST]<s>",
    "marks": "e\u0301 n\u0303 a\u030a o\u0308\u0304 \u0e01\u0e33",
    "tags": "<table><tr><td>1</td></tr></table> <p>no</p> <code>x</code>",
}
PINNED = {
    "o200k_base": "25 36 28 26 31 18 47 7 26 12 27",
    "cl100k_base": "25 36 39 39 32 19 47 7 26 16 27",
    "gemma2": "30 42 25 17 33 25 66 13 25 11 18",  # runs: as reported usage has it, the file says 27
    "llama3": "25 36 29 36 32 19 47 7 26 12 27",
    "qwen3": "28 42 30 23 33 19 65 7 26 9 27",
    "deepseek_v3": "25 36 28 25 33 19 48 11 26 12 27",
    "mistral_v3": "28 42 31 47 39 57 66 13 27 15 28",
    "glm4": "25 37 29 36 32 19 49 7 26 16 27",
}


@pytest.mark.parametrize("name", PINNED)
def test_counts_are_those_of_the_reference(name: str) -> None:
    counts = {kind: vocabulary(name).count(text) for kind, text in TEXTS.items()}
    assert counts == dict(zip(TEXTS, map(int, PINNED[name].split()), strict=True))


def test_every_vocabulary_with_a_reference_is_pinned() -> None:
    assert set(NAMES) - set(PINNED) == {"gemma3", "gemma4", "kimi_k2", "kimi_k3"}


@pytest.mark.parametrize("name", NAMES)
def test_special_tokens_in_text_are_text(name: str) -> None:
    count = vocabulary(name).count
    for text in ("<|endoftext|>", "<|think|>", "<|im_start|>", "<start_of_turn>", "<|eot_id|>", "[INST]"):
        assert count(text) > 1


@given(pieces=st.lists(st.sampled_from(("<|", "|>", "<", "|", "endoftext", "think", " ", "世", "\ud800"))))
def test_a_count_is_that_of_the_ids_wherever_a_special_token_may_begin(pieces: list[str]) -> None:
    text = "".join(pieces)
    for name in ("o200k_base", "cl100k_base", "llama3"):
        assert vocabulary(name).count(text) == len(vocabularies.encode(text, vocabulary=name))


@pytest.mark.parametrize("name", ["gemma2", "qwen3", "deepseek_v3"])
@pytest.mark.parametrize("unit", [" ", "a", "=", "\u0301\u0316"])
def test_a_long_run_of_one_character_is_counted(name: str, unit: str) -> None:
    assert 0 < vocabulary(name).count(unit * (LONG_RUN // len(unit))) <= 3 * LONG_RUN


@pytest.mark.parametrize("name", NAMES)
def test_runs_are_counted_by_every_vocabulary(name: str) -> None:
    for unit in (" ", "a", "=", "\n", "\u0301\u0316", "</"):
        assert 0 < vocabulary(name).count(unit * 10_000) <= 40_000


@pytest.mark.parametrize("name", NAMES)
def test_lone_surrogates_count_as_their_replacement(name: str) -> None:
    count = vocabulary(name).count
    assert count("a\ud800b\udfff") == count("a\ufffdb\ufffd")
    assert count("\ud83c\udf0d") == count("🌍")


@given(text=st.text(st.characters(), max_size=80), name=st.sampled_from(NAMES))
def test_no_text_fails_or_has_more_tokens_than_bytes(text: str, name: str) -> None:
    # Composed characters may be longer in bytes than what they are composed of.
    composed = unicodedata.normalize(
        "NFC", text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )
    assert vocabulary(name).count(text) <= max(STRICT.count(text), STRICT.count(composed))


def test_qwen_composes_characters_before_it_counts() -> None:
    count = vocabulary("qwen3").count
    assert count("e\u0301tude") == count("étude")


def test_gemma_holds_some_tags_as_tokens() -> None:
    count = vocabulary("gemma2").count
    assert count("<code></code><h1></blockquote>") == 4
    assert count("<p>") > 1
    assert count("</codes>") > 1


@pytest.mark.parametrize("name", NAMES)
def test_a_vocabulary_of_bytes_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of_bytes = SimpleNamespace(encode_ordinary=lambda text: list(text.encode()))
    monkeypatch.setattr(vocabularies, "_load_tokenizer", lambda _: of_bytes)
    with pytest.raises(BadInput, match="known text"):
        vocabularies.tokenizer.__wrapped__(name)


def test_an_unknown_vocabulary_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match="o200k_base"):
        vocabulary("wordy")


def test_a_missing_splintr_is_noticed_when_the_counter_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "splintr", None)
    monkeypatch.setattr(vocabularies, "tokenizer", vocabularies.tokenizer.__wrapped__)
    with pytest.raises(ImportError, match="splintr"):
        vocabulary.__wrapped__("o200k_base")


class PanicException(BaseException):
    """As native code raises it."""


def test_a_panic_becomes_the_estimate_with_a_warning() -> None:
    def panics(text: str) -> int:
        raise PanicException(text)

    with pytest.warns(RuntimeWarning, match="estimated"):
        assert guard_count(panics, "o200k")("some text") == estimate_tokens("some text")


def test_an_interrupt_is_not_swallowed() -> None:
    def interrupted(text: str) -> int:
        raise KeyboardInterrupt(text)

    with pytest.raises(KeyboardInterrupt):
        guard_count(interrupted, "o200k")("some text")


def test_surrogate_pairs_are_joined() -> None:
    assert guard.without_surrogates("\ud83c\udf0d\ud800x") == "🌍\ufffdx"


@given(st.text(st.sampled_from("ab\u0301\u0316世"), max_size=300))
def test_no_piece_has_a_long_run_of_marks_and_nothing_is_lost(text: str) -> None:
    pieces = between_long_runs(text)
    assert "".join(pieces) == text
    assert all(_longest_run(piece) <= LONGEST for piece in pieces)


def _longest_run(text: str) -> int:
    longest = run = 0
    for character in text:
        run = run + 1 if unicodedata.combining(character) else 0
        longest = max(longest, run)
    return longest


def test_every_combining_character_is_known_to_combine() -> None:
    marks = [chr(code) for code in range(0x110000) if unicodedata.ucd_3_2_0.combining(chr(code))]
    assert [mark for mark in marks if len(between_long_runs(mark * (LONGEST + 1))) != 2] == []
