from __future__ import annotations

import os
import sys
import types
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core.wording import text_of
from lamina.errors import BadInput
from lamina.sources.documents import text_in
from lamina.sources.files import NOTES, files, tags_in
from lamina.sources.port import Found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "src" / "deep").mkdir(parents=True)
    (folder / "notes").mkdir()
    (folder / "src" / "a.py").write_text("a = 1\n")
    (folder / "src" / "deep" / "b.py").write_text("b = 2\n")
    (folder / "notes" / "plan.md").write_text("---\ntags: [release, Work/Now]\n---\n# Plan\n")
    (folder / "notes" / "idea.md").write_text("An idea #later\n```\n#release\n```\n")
    (folder / "top.txt").write_text("top")
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "link.py").symlink_to(tmp_path / "secret.txt")
    return folder


def found(root: Path, *, room: int | None = None, **given_: Any) -> Found:
    source = files(root, **given_)
    return anyio.run(partial(source, "prompt"), room)  # type: ignore[return-value]


def keys(result: Found) -> list[str]:
    return [segment.key for segment in result]


def test_paths_come_in_the_order_given_and_once(root: Path) -> None:
    result = found(root, paths=["top.txt", "src/a.py", "./top.txt"], globs=["*.txt"])
    assert keys(result) == ["top.txt", "src/a.py"]
    assert text_of(result.segments[1].parts) == "a = 1\n"
    assert result.notes == ()


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("*.py", []),
        ("**/*.py", ["src/a.py", "src/deep/b.py"]),
        ("src/*", ["src/a.py"]),
        ("src/**", ["src/a.py", "src/deep/b.py"]),
        ("**/deep/?.py", ["src/deep/b.py"]),
        ("src/**/a.py", ["src/a.py"]),
        ("*", ["top.txt"]),
        ("[t]op.txt", ["top.txt"]),
    ],
)
def test_patterns_find_files(root: Path, glob: str, expected: list[str]) -> None:
    assert keys(found(root, globs=[glob])) == expected


def test_a_folder_is_everything_below_it(root: Path) -> None:
    assert keys(found(root, folders=["src"])) == ["src/a.py", "src/deep/b.py"]
    assert found(root, folders=["gone", "src"]).notes


@pytest.mark.parametrize(
    ("tag", "expected"),
    [("#release", ["notes/plan.md"]), ("work", ["notes/plan.md"]), ("later", ["notes/idea.md"]), ("now", [])],
)
def test_tags_find_notes_also_those_in_front_matter(root: Path, tag: str, expected: list[str]) -> None:
    result = found(root, tags=[tag])
    assert keys(result) == expected
    assert {segment.kind for segment in result} <= {"note"}


def test_tags_are_words_outside_of_code_and_addresses() -> None:
    front = "---\ntitle: x\ntags:\n  - one\n  - two\n---\n"
    text = f"{front}#three, see http://x/#four and #5 ## five\n~~~\n#six\n~~~\n"
    assert tags_in(text) == {"one", "two", "three"}


@given(st.text(alphabet="-#`~tag:s \n[]/", max_size=300))
def test_any_text_has_tags_or_none(text: str) -> None:
    assert all(tag == tag.lower() for tag in tags_in(text))


def test_what_cannot_be_had_is_noted_and_never_read(root: Path) -> None:
    (root / "bin.dat").write_bytes(b"\0\1")
    (root / "latin.txt").write_bytes("é".encode("latin-1"))
    (root / "big.txt").write_text("x" * 200)
    os.mkfifo(root / "pipe")
    wanted = [
        "../secret.txt",
        "link.py",
        "bin.dat",
        "latin.txt",
        "big.txt",
        "pipe",
        "gone",
        "/etc/passwd",
        "src",
    ]
    result = found(root, paths=[*wanted, "top.txt"], limit=100)
    assert keys(result) == ["top.txt"]
    assert len(result.notes) == len(wanted)
    assert all("left out" in note and "secret" not in note.split(":", 1)[1] for note in result.notes)
    assert found(root, globs=["**"]).notes[-1].startswith("pipe")


def test_many_notes_become_their_number(root: Path) -> None:
    result = found(root, paths=[f"gone{number}" for number in range(NOTES + 3)])
    assert result.notes[-1] == "3 more were left out"


def test_what_the_room_does_not_hold_is_left_out(root: Path) -> None:
    (root / "big.txt").write_text("word " * 5_000)
    result = found(root, paths=["big.txt", "top.txt"], room=100)
    assert keys(result) == ["top.txt"]
    assert "big.txt: left out" in result.notes[0]
    (root / "half.txt").write_text("word " * 60)
    (root / "other.txt").write_text("text " * 60)
    assert keys(found(root, paths=["half.txt", "other.txt"], room=100)) == ["half.txt"]


@pytest.mark.parametrize(
    ("data", "text"),
    [(b"\xef\xbb\xbfhi", "hi"), ("hi".encode("utf-16"), "hi"), ("hé".encode(), "hé"), (b"", "")],
)
def test_text_is_read_with_its_mark(data: bytes, text: str) -> None:
    assert text_in("a.txt", data) == text


@pytest.mark.parametrize(("name", "data"), [("a.pdf", b"%PDF-1.7 ..."), ("a.docx", b"PK\3\4...")])
def test_documents_say_which_package_would_help(
    name: str, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("pypdf", "docx"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(BadInput, match=r"install lamina\[documents\]"):
        text_in(name, data)


def test_text_of_a_pdf_comes_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reader:
        def __init__(self, _: object) -> None:
            page = types.SimpleNamespace
            self.pages = [page(extract_text=lambda: "one"), page(extract_text=lambda: "two")]

    monkeypatch.setitem(sys.modules, "pypdf", types.SimpleNamespace(PdfReader=Reader))
    assert text_in("x", b"%PDF-1.7") == "one\n\ntwo"
    monkeypatch.setattr(Reader, "__init__", lambda *_: 1 / 0)
    with pytest.raises(BadInput, match="no text can be had"):
        text_in("x", b"%PDF-1.7")
