"""The terms of a text: beginnings of words, whole numbers and names, and pairs where there are no spaces."""

from __future__ import annotations

import pytest

from lamina.core.text.terms import list_terms


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Pay the invoices", ["pay", "the", "invoi"]),
        ("INV-4711", ["inv", "4711", "inv-4711"]),
        ("Kel120mora and kel121mora", ["kel120mora", "and", "kel121mora"]),
        ("Größe, Äpfeln, kel120mora", ["größe", "äpfel", "kel120mora"]),
        ("注文4711番", ["注文", "文4", "47", "71", "11", "1番"]),
        ("", []),
    ],
)
def test_terms(text: str, terms: list[str]) -> None:
    assert list_terms(text) == terms


@pytest.mark.parametrize("word", ["Invoices", "kel120mora", "4711a", "Zanzibar"])
def test_a_word_has_the_same_terms_beside_other_scripts(word: str) -> None:
    assert list_terms(f"{word} 注")[: len(list_terms(word))] == list_terms(word)
