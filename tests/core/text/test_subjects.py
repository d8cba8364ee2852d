from __future__ import annotations

import json
import posixpath
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from lamina.core.text.subjects import Subject, read_subject

PATHS = st.text(st.sampled_from("ab./"), min_size=1)


class Call(NamedTuple):
    name: str
    arguments: str


def read(path: str) -> Subject | None:
    return read_subject(Call("read_file", json.dumps({"path": path})))


@given(PATHS)
def test_a_path_is_known_by_its_shortest_spelling(path: str) -> None:
    assert read(path) == Subject(verb="read", resource=posixpath.normpath(path))


def test_a_path_does_not_end_at_a_nul() -> None:
    """`posixpath.normpath` stops there on Python 3.11.2: reads of two files would be one and the same."""
    assert read("src/a\0b.py") == Subject(verb="read", resource="src/a\0b.py")
    assert read("src/a\0c.py") != read("src/a\0b.py")


def test_a_shell_reads_files_with_names_of_every_script() -> None:
    told = read_subject(Call("bash", json.dumps({"command": "cat docs/données/漢字.md"})))
    assert told == Subject(verb="read", resource="docs/données/漢字.md")
