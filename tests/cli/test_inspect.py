"""`lamina inspect` says what it cannot read, and writes no page about nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from lamina.cli import main
from tests.inspector.recorded import write_session


def test_a_file_that_cannot_be_read_is_named_and_no_empty_page_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(b"\xff\xfe no session\n")
    page = tmp_path / "page.html"
    assert main(["inspect", str(broken), "--html", str(page)]) == 2
    errors = capsys.readouterr().err
    assert "broken.jsonl" in errors
    assert "there is no session to write" in errors
    assert not page.exists()


def test_a_page_is_written_beside_what_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = write_session(tmp_path, turns=1)
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(b"\xff\xfe no session\n")
    page = tmp_path / "page.html"
    assert main(["inspect", str(session), str(broken), "--html", str(page)]) == 0
    assert "broken.jsonl" in capsys.readouterr().err
    assert "lamina-data" in page.read_text("utf-8")
