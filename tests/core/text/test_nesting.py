from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core.text.arguments import pick_telling_argument, shorten_arguments
from lamina.core.text.json_text import is_deeper

VALUES = st.recursive(
    st.text(st.sampled_from('a"\\[]{}')) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=20,
)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@given(VALUES, st.integers(0, 5), st.booleans())
def test_depth_is_that_of_the_value_whatever_its_strings_hold(value: Any, limit: int, spaced: bool) -> None:  # noqa: FBT001
    text = json.dumps(value, indent=1 if spaced else None)
    assert is_deeper(text, limit) is (depth(value) > limit)


@pytest.mark.parametrize("levels", [201, 400, 990, 5_000])
def test_arguments_nested_too_deeply_are_none_on_every_interpreter(levels: int) -> None:
    """The decoder gives up between 300 and 3,000 levels: where depends on the interpreter and the caller."""
    arguments = '{"path": "a.py", "deep": ' + "[" * levels + "]" * levels + "}"
    assert pick_telling_argument(arguments) == ""
    assert shorten_arguments(arguments, limit=2, mark="[x]") == "{}"


def test_arguments_nested_as_deeply_as_people_do_are_read() -> None:
    arguments = '{"path": "a.py", "deep": ' + "[" * 150 + "]" * 150 + "}"
    assert pick_telling_argument(arguments) == "a.py"
    assert json.loads(shorten_arguments(arguments, limit=10, mark="[x]")) == {"path": "a.py", "deep": "[x]"}
