from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina import BadInput
from lamina.core import Counter
from lamina.core.tokens import estimate_for
from lamina.models.counters import claude, counter_for
from lamina.models.counters.count_guard import LONGEST
from tests.examples import up_to

pytest.importorskip("ctok")

# What ctok 1.3 says, less its frame of one message.
PINNED = [
    ("", 0, 0),
    ("hello, world", 3, 4),
    ("def area(r: float) -> float:\n    return 3.14159 * r**2\n", 23, 24),
    ("<|endoftext|>", 7, 8),
    ("東京都の天気は晴れ", 12, 11),
]


@pytest.mark.parametrize(("text", "three", "four"), PINNED)
def test_text_is_counted_without_the_frame_of_a_message(text: str, three: int, four: int) -> None:
    assert (claude.version("3.0").count(text), claude.version("4.8").count(text)) == (three, four)


def test_nothing_of_claude_is_called_exact() -> None:
    models = ("claude-opus-4-7", "claude-3-opus", "claude-sonnet-5-5", "claude-next")
    assert not any(counter_for(model).exact for model in models)


@pytest.mark.parametrize("unit", [" ", "a", "=", "\n", "A", "\u0301\u0316", "\ud800"])
def test_a_long_run_of_one_character_is_counted(unit: str) -> None:
    assert 0 < claude.version("4.8").count(unit * (200_000 // len(unit))) <= 600_000


def test_a_long_text_is_sampled_and_stays_near(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (
        f"{number}: the quick brown fox_{number} jumps, {number * 7919 % 1000}\n" for number in range(3000)
    )
    text = "".join(lines)
    assert len(text) > claude.WHOLE
    count = claude.version("4.8").count
    sampled = count(text)
    monkeypatch.setattr(claude, "WHOLE", len(text))
    whole = claude._count_of.__wrapped__("4.8")(text)  # noqa: SLF001
    assert sampled == pytest.approx(whole, rel=0.02)
    assert estimate_for("claude").count(text) != pytest.approx(whole, rel=0.02)


@pytest.mark.parametrize("dense", ["任何情况下不要修改配置文件", "qZ7xK9/vW2+jY", "e\u0301\u0316\u0322"])
def test_a_long_text_that_is_dense_between_its_ends_is_not_counted_too_low(dense: str) -> None:
    """Eight samples at an even distance would all be prose here, and say that all of it is."""
    prose = "the quick brown fox jumps over the lazy dog and back "
    period = 13_700
    text = ((prose * 100)[:4_100] + (dense * period)[: period - 4_100]) * 7 + (prose * 100)[:4_100]
    assert len(text) > claude.WHOLE
    count = claude.version("4.8").count
    pieces = sum(count(text[start : start + 10_000]) for start in range(0, len(text), 10_000))
    assert count(text) == pytest.approx(pieces, rel=0.05)


def test_long_runs_of_marks_reach_ctok_in_pieces() -> None:
    asked: list[str] = []

    def spy(text: str, _: str) -> int:
        asked.append(text)
        return 1

    claude._text_tokens(spy, "4.8", 0, "a" + "\u0301\u0316" * 500)  # noqa: SLF001
    assert max(map(len, asked)) <= LONGEST + 1


@settings(max_examples=up_to(50))
@given(st.text(st.characters(), max_size=60), st.sampled_from(["3.0", "4.8"]))
def test_no_text_fails(text: str, version: str) -> None:
    assert claude.version(version).count(text) >= 0


def test_a_ctok_that_counts_otherwise_is_refused() -> None:
    with pytest.raises(BadInput, match="known text"):
        claude._proven_frame(lambda text, _: len(text), "4.8")  # noqa: SLF001


def test_generations_that_nobody_measured_are_refused() -> None:
    with pytest.raises(BadInput, match=r"4\.8"):
        claude.version("2.0")


def test_one_memo_serves_all_names_of_a_generation() -> None:
    counters: list[Counter] = [counter_for(model) for model in ("claude-opus-4-7", "claude-next")]
    assert counters[0].count is counters[1].count
