"""Golden sessions: the exact bytes of each request, in every dialect; `tools.golden` renews them."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from lamina.dialects import DIALECTS
from tests.fixtures.golden import sessions, walkthrough
from tools.golden import FOLDER, renderings

FILES = renderings()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_bytes_are_those_that_were_kept(path: Path) -> None:
    assert path.read_text("utf-8") == FILES[path]()


def test_every_kept_file_is_rendered() -> None:
    assert {path.name for path in FOLDER.glob("*.jsonl")} == {path.name for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_golden_request_is_valid(path: Path) -> None:
    dialect = DIALECTS[path.name.split(".")[1]]
    for line in requests_in(FILES[path]()):
        assert dialect.wire.check(json.loads(line)) == []


def kept(name: str, dialect: str) -> list[str]:
    return requests_in((FOLDER / f"{name}.{dialect}.jsonl").read_text("utf-8"))


def requests_in(text: str) -> list[str]:
    """The lines of a file; other line ends than a newline are content."""
    return text.removesuffix("\n").split("\n")


@pytest.mark.parametrize("dialect", [name for name, dialect in DIALECTS.items() if dialect.cache.steady])
def test_in_place_each_request_continues_the_last(dialect: str) -> None:
    stream = DIALECTS[dialect].cache.stream
    seen = [
        [b.data for b in stream(json.loads(line)).blocks] for line in kept("walkthrough-in-place", dialect)
    ]
    assert len(seen) == len(walkthrough())
    for before, after in pairwise(seen):
        assert after[: len(before)] == before


@pytest.mark.parametrize("dialect", DIALECTS)
def test_hoisted_the_library_grows_in_first_seen_order_and_turns_refer_to_it(dialect: str) -> None:
    one, two, three = kept("walkthrough-hoisted", dialect)
    assert "prior_context" not in one
    assert two.count("<prior_context") == 1
    assert three.count("<prior_context") == 2
    assert three.index("project-spec.md") < three.index("docs/api-docs.md")
    assert "## Sign-in" in three  # compacted, with its structure
    assert len(three) < len(kept("walkthrough-in-place", dialect)[2])


def test_there_are_sessions_of_every_sort() -> None:
    assert {golden.name for golden in sessions()} >= {
        "walkthrough-in-place",
        "walkthrough-hoisted",
        "cut",
        "gallery",
        "scripts",
    }
