"""Messages that nobody writes by hand: what is found in them, though not every sentence is read."""

from __future__ import annotations

import pytest

from lamina import BudgetExceeded, Policy, fit_request
from lamina.core import Counter
from lamina.core.passages import GIANT, PassageIndex, rate_sentences, weigh_terms
from lamina.core.text.estimate import estimate_tokens
from lamina.core.text.standing_rules import find_rules, find_statements
from lamina.core.values import Ref

FILLER = "The harbour was grey in the morning, and the boats lay still. "
HALF = FILLER * (GIANT // len(FILLER))
RULE = "Never touch the vendor folder."
CHINESE_RULE = "任何情况下不要修改配置文件。"
GIANT_TEXT = f"{HALF}{RULE} {HALF}{CHINESE_RULE}{HALF}I prefer short answers."


def test_rules_and_wishes_in_the_middle_of_a_giant_text_are_found_where_they_stand() -> None:
    assert find_rules(GIANT_TEXT) == [RULE, CHINESE_RULE]
    statements = list(find_statements(GIANT_TEXT))
    assert [each.text for each in statements if each.weight == "wish"] == ["I prefer short answers."]
    for each in statements:
        assert GIANT_TEXT[each.start : each.end].strip() == each.text
    assert len(statements) * len(FILLER) < len(GIANT_TEXT) // 8


def test_of_a_giant_text_with_too_many_rules_as_many_of_the_first_are_found_as_of_the_last() -> None:
    rules = [f"Never touch folder {number}." for number in range(1_500)]
    found = [rules.index(rule) for rule in find_rules(f"{HALF}{f' {FILLER}'.join(rules)} {HALF}")]
    assert found == [*range(500), *range(1_000, 1_500)]


def test_a_giant_text_is_searched_for_what_a_question_asks() -> None:
    index = PassageIndex()
    index.add(Ref("short"), "The lighthouse keeper is called Ansgar.")
    index.add(Ref("giant"), GIANT_TEXT)
    index.add(Ref("later"), "Ansgar keeps the vendor list of INV-4711.")
    order = [Ref("short"), Ref("giant"), Ref("later")]

    def find(question: str) -> list[str]:
        rated = rate_sentences(index, weigh_terms(index, question), order)
        sentences = [index.sentences[each.sentence] for each in rated]
        return [index.sources[each.source].text[each.start : each.end] for each in sentences]

    assert any(RULE in piece for piece in find("What about the vendor folder?"))
    assert any(CHINESE_RULE[:8] in piece for piece in find("不要修改什么?"))
    assert find("Who is Ansgar?")[0] in ("The lighthouse keeper is called Ansgar.", index.sources[2].text)
    assert index.is_common("harbo")


def _mix(common: str, rare: str, *, period: int, rare_part: int) -> str:
    """A text of half a million characters in which `rare` stands once in each period, behind `common`."""
    one_period = (common * period)[: period - rare_part] + (rare * rare_part)[:rare_part]
    return one_period * (500_000 // period)


@pytest.mark.parametrize("family", ["unknown", "o200k"])
@pytest.mark.parametrize(
    "text",
    [
        GIANT_TEXT,
        _mix(FILLER, "任何情况下不要修改", period=5_000, rare_part=3_900),
        _mix(FILLER, "\U0001f9d1\u200d\U0001f680", period=5_000, rare_part=3_900),
        _mix(FILLER, "\x00\x01\x7f", period=2_500, rare_part=1_400),
        _mix(FILLER, "qZ7xK9/vW2+", period=5_000, rare_part=3_900),
        FILLER * 8_000 + "0xdeadBEEF," * 9_000 + FILLER * 8_000,
    ],
    ids=["even", "chinese", "emoji", "control characters", "base64", "one block of hex"],
)
def test_a_giant_text_has_as_many_tokens_as_its_parts_wherever_the_dense_ones_stand(
    text: str, family: str
) -> None:
    parts = sum(estimate_tokens(text[at : at + 10_000], family=family) for at in range(0, len(text), 10_000))
    assert 0.98 < estimate_tokens(text, family=family) / parts < 1.02


def test_a_giant_prompt_that_is_dense_in_places_does_not_leave_over_the_window() -> None:
    prompt = _mix(FILLER, "任何情况下不要修改", period=5_000, rare_part=3_900)
    request = {"model": "unknown-model", "messages": [{"role": "user", "content": prompt}]}
    with pytest.raises(BudgetExceeded):
        fit_request(request, budget=500_000)


def test_a_giant_text_that_a_cut_lowers_is_counted_once() -> None:
    counted: list[int] = []

    def count(text: str) -> int:
        counted.append(len(text))
        return len(text) // 4

    messages = [
        {"role": "user", "content": GIANT_TEXT},
        {"role": "assistant", "content": "Read."},
        {"role": "user", "content": "And now?"},
    ]
    policy = Policy(budget=60_000, counter=Counter(name="spy", count=count))
    fitted = fit_request({"model": "unknown-model", "messages": messages}, policy=policy)
    assert fitted.request["messages"][0]["content"] != GIANT_TEXT
    assert counted.count(len(GIANT_TEXT)) == 1
