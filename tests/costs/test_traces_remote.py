from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from lamina.costs import Trace, read_traces
from lamina.costs.logs import find_files
from lamina.errors import BadInput
from tests.costs.recorded import written
from tests.costs.talks import session

fsspec: Any = pytest.importorskip("fsspec")

ROWS = [{"id": f"s{steps}", "messages": session(steps)} for steps in (2, 3, 4)]


@pytest.fixture
def bucket(tmp_path: Path) -> Any:
    """A file system in memory with two plain files, a packed one and one that is no log."""
    files = fsspec.filesystem("memory")
    for row in ROWS:
        files.pipe(f"/logs/{row['id']}.jsonl", written(tmp_path / "log", [row]).read_bytes())
    files.pipe("/logs/deep/s9.jsonl.gz", gzip.compress(written(tmp_path / "log", [ROWS[0]]).read_bytes()))
    files.pipe("/logs/picture.png", b"\x89PNG")
    yield files
    files.rm("/logs", recursive=True)


def test_urls_are_files_folders_and_globs(bucket: Any, tmp_path: Path) -> None:
    del bucket
    local = written(tmp_path / "local.jsonl", [ROWS[1]])
    paths = ["memory://logs/s3.jsonl", "memory://logs/s[24].jsonl", "memory://logs", str(local)]
    assert [str(path).rpartition("/")[2] for path in find_files(paths)] == [
        "s3.jsonl", "s2.jsonl", "s4.jsonl", "s9.jsonl.gz", "local.jsonl",
    ]  # fmt: skip
    traces = list(read_traces("memory://logs"))
    assert all(isinstance(each, Trace) for each in traces)
    assert [each.items for each in traces if isinstance(each, Trace)] == [
        ROWS[at]["messages"] for at in (0, 0, 1, 2)
    ]
    assert traces[0].place == "memory:///logs/deep/s9.jsonl.gz:1"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("memory://logs/none.jsonl", "there is no file"),
        ("memory://none/*.jsonl", "there is no file"),
        ("nosuch://logs/", "nosuch"),
    ],
)
def test_a_url_that_leads_nowhere_is_bad_input(url: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        find_files(url)
