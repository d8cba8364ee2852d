"""Patches change what differs, and leave every other byte of a text as it was."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lamina.conversations.erased_records import find_patches

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
)


def blank_some(value: Any, choose: st.DataObject) -> Any:
    """The value with some of it replaced; what is not is the same object."""
    if choose.draw(st.integers(0, 4)) == 0:
        return "[erased]"
    match value:
        case dict():
            fields = {name: blank_some(inner, choose) for name, inner in value.items()}
            return value if all(fields[name] is value[name] for name in value) else fields
        case list():
            items = [blank_some(inner, choose) for inner in value]
            return value if all(map(lambda one, other: one is other, items, value)) else items
    return value


@given(VALUES, st.data(), st.sampled_from([None, 2]), st.booleans())
def test_a_patched_text_says_what_it_should(
    before: Any,
    choose: st.DataObject,
    indent: int | None,
    ascii_only: bool,  # noqa: FBT001 - drawn
) -> None:
    text = json.dumps(before, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    try:
        text.decode()
    except UnicodeDecodeError:
        return
    after = blank_some(before, choose)
    parts: list[bytes] = []
    end = 0
    for patch in find_patches(text, before, after):
        assert patch.start >= end
        parts += (text[end : patch.start], patch.text)
        end = patch.stop
    patched = b"".join((*parts, text[end:]))
    assert json.loads(patched) == json.loads(json.dumps(after))
    if after is before:
        assert patched == text


def test_the_rest_keeps_its_bytes() -> None:
    text = b'{ "a" : [1, {"b":"x"} ],"c":  "\\u0041" }'
    before = json.loads(text)
    after = {**before, "a": [1, {"b": "y"}]}
    [patch] = find_patches(text, before, after)
    assert text[: patch.start] + patch.text + text[patch.stop :] == text.replace(b'"x"', b'"y"')
