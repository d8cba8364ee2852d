from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core.tokens import STRICT
from lamina.models.counters import counter_for, openai, vocabularies

# text, o200k ids, cl100k ids: those of OpenAI's own tokenizer with its published ranks.
GOLDEN = [
    ("", "", ""),
    ("Hello, world!", "13225 11 2375 0", "9906 11 1917 0"),
    (
        "def f(x):\n\treturn x**2  # ok\n",
        "1314 285 4061 1883 1393 1215 410 17 220 1069 4763 198",
        "755 282 2120 997 862 865 334 17 220 674 5509 198",
    ),
    (
        "I'm sure they'll've DON'T we'Re",
        "15390 3239 57956 7341 153384 581 146756",
        "40 2846 2771 814 3358 3077 45373 17773 584 50527",
    ),
    (
        "漢字とかな交じり文。",
        "183591 8134 5330 165732 10130 29884 7297 4883 788",
        "78256 95 19113 19732 32149 26854 39209 100204 31431 17161 1811",
    ),
    ("한국어 문장입니다", "114854 5959 26387 7681 27001", "24486 89059 255 32179 54535 41953 80052"),
    (
        "👩\u200d👩\u200d👧\u200d👦🏳\ufe0f\u200d🌈 é e\u0301",
        "28823 102 2524 28823 102 2524 28823 100 2524 28823 99 52622 111 15148 2524 64364 230 1212 319 13430",
        (
            "9468 239 102 378 235 9468 239 102 378 235 9468 239 100 378 235 9468 239 99 "
            "9468 237 111 31643 378 235 9468 234 230 4046 384 54939"
        ),
    ),
    (
        "<|endoftext|><|im_start|>system<|think|>",
        "27 91 419 1440 919 91 3784 91 321 10949 91 29 17360 27 91 49631 91 29",
        "27 91 8862 728 428 91 1822 91 318 5011 91 29 9125 27 91 27963 91 29",
    ),
    ("a" * 50, "117525 117525 117525 117525 117525 117525 3545", "70540 70540 70540 70540 70540 70540 5418"),
    (" " * 100 + "x", "9344 3523 1215", "5351 1961 865"),
    ("\r\n\r\n\t\t \n", "1414 101062", "881 39912"),
    (
        "1234567890 3.14159",
        "7633 19354 29338 15 220 18 13 16926 4621",
        "4513 10961 16474 15 220 18 13 9335 2946",
    ),
    ("=-" * 20, "167412 167412 92628", "96623 96623 56903"),
    ("\x00\x1b[31m\ufffd", "188 215 58 2911 76 3251", "188 91535 2148 76 5809"),
    (
        "ﷺ नमस्ते Привет שלום",
        "171 133162 100793 14681 628 14917 131903 173283",
        "171 115 118 15272 101 88344 79468 31584 97 35470 80584 28089 8341 88898 50391 37769 251",
    ),
    (
        "https://example.org/a?b=c&d=%20e#f",
        "4172 1684 18582 4519 23839 30 65 43473 5 67 18356 455 68 2 69",
        "2485 1129 8858 2726 14520 30 65 20105 5 67 8003 508 68 2 69",
    ),
    (
        "camelCaseHTTPServer_snake_case2",
        "178067 6187 17893 6444 68531 814 43667 17",
        "94421 4301 9412 5592 29122 731 19640 17",
    ),
    (
        "AKIAIOSFODNN7EXAMPLE/wJalrXUtnFEMI+K7MDENG==",
        (
            "14587 7068 37458 37 3329 19022 22 3922 "
            "50791 10407 41 280 81 55 52 2253 37 3646 40 10 42 22 11539 12674 560"
        ),
        "12173 5987 29236 37 2114 9944 22 96975 6458 41 278 81 55 52 1546 37 2783 40 10 42 22 6204 43575 419",
    ),
    ("'s 'LL 'ſ’t", "885 461 7454 461 70067 1573", "596 364 4178 364 129 123 1431"),
]


@pytest.mark.parametrize(("text", "o200k", "cl100k"), GOLDEN)
def test_ids_are_openais_own(text: str, o200k: str, cl100k: str) -> None:
    assert " ".join(map(str, vocabularies.encode(text, vocabulary="o200k_base"))) == o200k
    assert " ".join(map(str, vocabularies.encode(text, vocabulary="cl100k_base"))) == cl100k
    assert openai.o200k().count(text) == len(o200k.split())
    assert vocabularies.vocabulary("cl100k_base").count(text) == len(cl100k.split())


@pytest.mark.parametrize(
    ("character", "o200k", "cl100k"), [("a", 125000, 125000), (" ", 7813, 7813), ("=", 15625, 15625)]
)
def test_a_million_characters_are_counted(character: str, o200k: int, cl100k: int) -> None:
    text = character * 1_000_000
    assert (openai.o200k().count(text), vocabularies.vocabulary("cl100k_base").count(text)) == (o200k, cl100k)


def test_lone_surrogates_count_as_replacement_characters() -> None:
    encode = partial(vocabularies.encode, vocabulary="o200k_base")
    assert encode("a\ud800b\udfff") == encode("a\ufffdb\ufffd")
    assert encode("\ud83d\ude00") == encode("😀")


@given(st.text())
def test_a_count_is_exact_and_within_the_strict_bound(text: str) -> None:
    count = openai.o200k()(text)
    assert count.exact
    assert count.tokens <= STRICT.count(text)


@pytest.mark.parametrize(
    "model",
    ["gpt-4o", "gpt-4o-mini", "gpt-4.1", "gpt-4.5-preview", "gpt-5", "gpt-5.5", "o1", "o3-mini", "o4-mini",
     "chatgpt-4o-latest", "gpt-oss-120b", "openai/gpt-5-mini", "ft:gpt-4o-mini:acme::1", "GPT-4o"],
)  # fmt: skip
def test_models_with_o200k(model: str) -> None:
    counter = counter_for(model)
    assert (counter.name, counter.exact, counter.count) == ("o200k", True, openai.o200k().count)


@pytest.mark.parametrize(
    "model",
    ["gpt-4", "gpt-4-turbo", "gpt-4-1106-preview", "gpt-3.5-turbo", "gpt-35-turbo", "text-embedding-ada-002"],
)
def test_models_with_cl100k(model: str) -> None:
    counter = counter_for(model)
    assert (counter.name, counter.exact, counter.count) == (
        "cl100k",
        True,
        vocabularies.vocabulary("cl100k_base").count,
    )


def test_a_model_whose_encoding_is_unpublished_is_not_called_exact() -> None:
    for model in ("gpt-6.1-sol", "gpt-6"):
        counter = counter_for(model)
        assert not counter.exact
        assert counter.count is openai.o200k().count


@pytest.mark.parametrize("model", ["claude-3-opus", "gpt-4x", "o1x", "gpt-2", "", "unknown"])
def test_other_models_are_not_called_exact(model: str) -> None:
    assert not counter_for(model).exact
