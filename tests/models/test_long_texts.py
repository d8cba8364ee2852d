"""A long text is counted in pieces, and has as many tokens as in one."""

from __future__ import annotations

import random

import pytest

from lamina.models.counters import count_guard, vocabularies
from lamina.models.counters.count_guard import RUN, WHOLE, split_long_text

WORDS = (
    "the Über naïve 世界 12345 3.14 foo_bar() don't x=1; \t\t if(a&&b){return} HTTP/1.1 🌍 — ok\r\n".split(
        " "
    )
)


@pytest.mark.parametrize("name", vocabularies.names())
def test_pieces_have_the_tokens_of_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_guard, "WHOLE", 400)
    monkeypatch.setattr(count_guard, "RUN", 300)
    numbers = random.Random(name)  # noqa: S311 - the same texts each time
    for _ in range(10):
        text = "".join(numbers.choice(WORDS) + numbers.choice(("  ", " ", "\n", "")) for _ in range(400))
        pieces = list(split_long_text(text))
        assert len(pieces) > 3
        assert "".join(pieces) == text
        whole = vocabularies.encode(text, vocabulary=name)
        assert sum(len(vocabularies.encode(piece, vocabulary=name)) for piece in pieces) == len(whole)


def test_no_piece_is_long_whatever_the_text_is() -> None:
    for text in ("a" * (3 * WHOLE), "word " * WHOLE, "世" * WHOLE + "a b" * WHOLE):
        pieces = list(split_long_text(text))
        assert "".join(pieces) == text
        assert max(map(len, pieces)) <= WHOLE
        assert len(pieces) <= len(text) // (WHOLE - RUN) + 1


def test_a_run_without_blanks_is_off_by_a_token_for_each_piece() -> None:
    counter = vocabularies.vocabulary("o200k_base")
    run = "a" * (2 * WHOLE)
    eighths = 2 * WHOLE // 8  # eight letters `a` are one token
    assert eighths <= counter.count(run) <= eighths + 2
