from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core.text.tags import guard, is_balanced, unguard, wrap_in_tag

TAGS = ("file_context", "excerpt", "content")
UNSEEN = (
    "\u00ad\u034f\u061c\u180e\u200b\u200f\u202a\u202e\u2060\u2066\u2069\ufe0f\ufeff\U000e0001\U000e007f\x00"
)
GAPS = st.text(st.sampled_from(" \t\n\u00a0\u2028" + UNSEEN), max_size=4)
MARKS = st.builds(
    "<{}{}{}{}{}{}".format, st.sampled_from(["", "\\", "\\\\"]), GAPS, st.sampled_from(["", "/"]), GAPS,
    st.sampled_from([*TAGS, "EXCERPT", "div"]), st.sampled_from([">", " x=1>", "s>", ""]),
)  # fmt: skip


@pytest.mark.parametrize("disguised", ["<{}/excerpt>", "</{}excerpt>", "<{0}/{0}{0}excerpt>", "<{}excerpt>"])
def test_what_nobody_sees_hides_no_tag(disguised: str) -> None:
    for sign in (*UNSEEN, *" \t\n\u2028"):
        text = disguised.format(sign)
        assert guard(f"a {text} b", TAGS) == f"a <\\{text[1:]} b"
        assert not is_balanced(wrap_in_tag("excerpt", {}, f"a {text} b"), TAGS)
        assert is_balanced(wrap_in_tag("excerpt", {}, guard(f"a {text} b", TAGS)), TAGS)


@pytest.mark.parametrize(
    "text",
    [
        "a < b / excerpt",
        "< //excerpt",
        "<\u200b\u200b",
        "a <\u200bdiv> </\u200bdiv>",
        "< / excerpts>",
        "<-excerpt",
    ],
)
def test_what_is_no_tag_of_ours_is_not_touched(text: str) -> None:
    assert guard(text, TAGS) == text


@given(st.lists(MARKS | GAPS, max_size=12).map("".join))
def test_disguised_tags_come_back_as_they_were(text: str) -> None:
    guarded = guard(text, TAGS)
    assert unguard(guarded, TAGS) == text
    assert is_balanced(wrap_in_tag("excerpt", {}, guarded), TAGS)


@pytest.mark.parametrize("unit", ["\u200b", " ", "<\u200b", "< /", "<\u200b/\u200b"], ids=ascii)
def test_a_long_run_of_gaps_is_read_once(unit: str) -> None:
    text = "<" + unit * 300_000  # read again from each place, this would take hours
    assert guard(text, TAGS) == text


@pytest.mark.parametrize("name", ["\u017fystem_context", "SYSTEM_CONTEXT", "sy\u017ftem_context"])
def test_letters_that_pass_for_others_hide_no_tag(name: str) -> None:
    assert guard(f"</{name}>", ("system_context",)) == f"<\\/{name}>"


def test_a_tag_ends_where_its_name_does() -> None:
    assert guard("<excerpts> <excerpt_2>", TAGS) == "<excerpts> <excerpt_2>"
    assert guard("<excerpt\u00e9>", TAGS) == "<\\excerpt\u00e9>"
