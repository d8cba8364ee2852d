from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from lamina.core.text.arguments import shorten_arguments

MARK = "[trimmed: {size:,} bytes]"
VALUES = st.dictionaries(st.text(max_size=5), st.text(max_size=40) | st.integers() | st.none(), max_size=4)


def test_arguments_without_a_large_value_stay_as_they_were_written() -> None:
    written = '{"path":  "a.py",\n "all": true}'
    assert shorten_arguments(written, limit=200, mark=MARK) == written


def test_a_large_value_is_a_mark_with_its_size() -> None:
    written = json.dumps({"path": "a.py", "text": "x" * 300})
    assert json.loads(shorten_arguments(written, limit=200, mark=MARK)) == {
        "path": "a.py",
        "text": "[trimmed: 300 bytes]",
    }


@given(VALUES, st.integers(0, 60))
def test_what_changes_carries_the_mark(values: dict[str, object], limit: int) -> None:
    written = json.dumps(values)
    short = shorten_arguments(written, limit=limit, mark=MARK)
    assert short == written or "[trimmed: " in short
