from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.lab.walk import NeededTerms, find_terms
from lamina.costs.logs.message_sizes import MessageSizes
from tests.costs.talks import WORDS, Json, result, says, talk, user


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("open src/parse_1.py now", {"src/parse_1.py"}),
        ("call readFile or read_file", {"readFile", "read_file"}),
        ("port 8080, not 80", {"8080"}),
        ("it says 'not found' twice", {"not found"}),
        ('and "no such file" too', {"no such file"}),
        ("`a-b c` and HTTP", {"a-b c", "HTTP"}),
        ("plain words only, the end.", set()),
        ("see config.toml.", {"config.toml"}),
    ],
)
def test_terms_are_what_a_model_cannot_make_up(answer: str, found: set[str]) -> None:
    assert find_terms(answer) == found


def of(*messages: Json) -> NeededTerms:
    found = talk(*messages)
    return NeededTerms(found, MessageSizes(WORDS, []))


def test_only_what_stood_before_an_answer_was_needed() -> None:
    needs = of(
        user("Read aa_1, bb_2."), says("aa_1 has cc_3"), user("And?"), says("cc_3 is like dd_4 and bb_2")
    )
    assert needs.by_call == [{"aa_1"}, {"cc_3", "bb_2"}]


def test_a_term_that_stands_only_later_was_not_needed() -> None:
    assert of(user("Go."), says("made zz_9"), user("zz_9?"), says("yes")).by_call == [
        frozenset(),
        frozenset(),
    ]


def test_names_and_arguments_of_earlier_calls_count_as_said() -> None:
    needs = of(
        user("Go."),
        says(None, path="src/x_1.py"),
        result("ok", path="src/x_1.py"),
        says("src/x_1.py is fine"),
    )
    assert needs.by_call[1] == {"src/x_1.py"}


def test_what_would_come_back_is_the_latest_message_with_the_term() -> None:
    needs = of(user("aa_1"), says("x"), user("aa_1 again"), says("y"), user("none"), says("aa_1"))
    assert needs.latest("aa_1", 5) == 2
    assert needs.latest("aa_1", 2) == 0


WORDS_OF_IT = st.sampled_from(["aa_1", "bb_2", "cc_3", "aa_11", "src/aa_1", "plain", "\n", "'aa_1 bb'"])
TEXTS = st.lists(WORDS_OF_IT, max_size=6).map(" ".join)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=6))
def test_needs_are_the_terms_that_some_earlier_message_has(turns: list[tuple[str, str]]) -> None:
    messages = [message for ask, answer in turns for message in (user(ask), says(answer))]
    needs = of(*messages)
    for number, terms_needed in enumerate(needs.by_call):
        end = 2 * number + 1
        before = [str(message["content"]) for message in messages[:end]]
        has = {
            term: [at for at, text in enumerate(before) if term in text]
            for term in find_terms(turns[number][1])
        }
        assert terms_needed == {term for term, places in has.items() if places}
        assert all(needs.latest(term, end) == has[term][-1] for term in terms_needed)
