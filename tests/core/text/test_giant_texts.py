"""Messages that nobody writes by hand: what is found in them, though not every sentence is read."""

from __future__ import annotations

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


def test_a_giant_text_has_about_as_many_tokens_as_its_parts() -> None:
    parts = sum(estimate_tokens(GIANT_TEXT[at : at + 1_000]) for at in range(0, len(GIANT_TEXT), 1_000))
    assert 0.97 < estimate_tokens(GIANT_TEXT) / parts < 1.03
