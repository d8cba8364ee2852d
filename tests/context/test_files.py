from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.context.files import NOTES, SECONDS, files, matches_glob, tags_in
from lamina.context.port import GatheredSegments
from lamina.core import text_of
from lamina.workspace import Workspace
from lamina.workspace.documents import text_in
from tests.bounded import bounded_work


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


def gather_files(root: Path, *, room: int | None = None, **options: Any) -> GatheredSegments:
    source = files(root, **options)
    return anyio.run(partial(source, "prompt"), room)  # type: ignore[return-value]


def keys(result: GatheredSegments) -> list[str]:
    return [segment.key for segment in result]


def test_paths_come_in_the_order_given_and_once(root: Path) -> None:
    result = gather_files(root, paths=["top.txt", "src/a.py", "./top.txt"], globs=["*.txt"])
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
    assert keys(gather_files(root, globs=[glob])) == expected


def test_a_folder_is_everything_below_it(root: Path) -> None:
    assert keys(gather_files(root, folders=["src"])) == ["src/a.py", "src/deep/b.py"]
    assert gather_files(root, folders=["gone", "src"]).notes


@pytest.mark.parametrize(
    ("tag", "expected"),
    [("#release", ["notes/plan.md"]), ("work", ["notes/plan.md"]), ("later", ["notes/idea.md"]), ("now", [])],
)
def test_tags_find_notes_also_those_in_front_matter(root: Path, tag: str, expected: list[str]) -> None:
    result = gather_files(root, tags=[tag])
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
    patterns = [
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
    result = gather_files(root, paths=[*patterns, "top.txt"], limit=100)
    assert keys(result) == ["top.txt"]
    assert len(result.notes) == len(patterns)
    assert all("left out" in note and "secret" not in note.split(":", 1)[1] for note in result.notes)
    assert gather_files(root, globs=["**"]).notes[-1].startswith("pipe")


def test_many_notes_become_their_number(root: Path) -> None:
    result = gather_files(root, paths=[f"gone{number}" for number in range(NOTES + 3)])
    assert result.notes[-1] == "3 more were left out"


def test_what_the_room_does_not_hold_is_left_out(root: Path) -> None:
    (root / "big.txt").write_text("word " * 5_000)
    result = gather_files(root, paths=["big.txt", "top.txt"], room=100)
    assert keys(result) == ["top.txt"]
    assert "big.txt: left out" in result.notes[0]
    (root / "half.txt").write_text("word " * 60)
    (root / "other.txt").write_text("text " * 60)
    assert keys(gather_files(root, paths=["half.txt", "other.txt"], room=100)) == ["half.txt"]


@pytest.mark.parametrize(
    ("data", "text"),
    [(b"\xef\xbb\xbfhi", "hi"), ("hi".encode("utf-16"), "hi"), ("hé".encode(), "hé"), (b"", "")],
)
def test_text_is_read_with_its_mark(data: bytes, text: str) -> None:
    assert text_in("a.txt", data) == text


@pytest.mark.parametrize("stars", [2, 12, 40])
def test_a_pattern_of_many_stars_is_matched_in_little_work(root: Path, stars: int) -> None:
    deep = root / "/".join("abcdefghijklmnopqrstuvwxyz")
    deep.mkdir(parents=True)
    (deep / "found.txt").write_text("deep")
    with bounded_work():
        assert keys(gather_files(root, globs=["/".join(["**"] * stars) + "/missing.txt"])) == []
        assert keys(gather_files(root, globs=["/".join(["**", "*"] * (stars // 2)) + "/found.txt"])) in (
            [],
            [deep.relative_to(root).as_posix() + "/found.txt"],
        )


@given(
    st.lists(st.sampled_from("ab"), max_size=5).map(tuple),
    st.lists(st.sampled_from(["a", "b", "*", "**", "?"]), max_size=5).map(tuple),
)
def test_patterns_mean_what_they_meant_when_they_were_tried_one_by_one(
    way: tuple[str, ...], glob: tuple[str, ...]
) -> None:
    def fits(names: tuple[str, ...], steps: tuple[str, ...]) -> bool:
        if not steps or steps == ("**",):
            return bool(names) is bool(steps)
        if steps[0] == "**":
            return any(fits(names[skipped:], steps[1:]) for skipped in range(len(names)))
        return bool(names) and steps[0] in {names[0], "*", "?"} and fits(names[1:], steps[1:])

    assert matches_glob(way, glob) is fits(way, glob)


@pytest.mark.parametrize(
    "front", ["tags: " + "-" * 500_000, "tags: " + "/-" * 250_000, "tags:\n" + "  - \n" * 100_000]
)
def test_front_matter_without_a_tag_in_it_is_read_in_little_work(front: str) -> None:
    with bounded_work():
        assert tags_in(f"---\n{front}\n---\n#one") == {"one"}


def test_reading_files_ends_with_its_time(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands still until the first file has been read; then it jumps."""
    now = [0.0]
    monkeypatch.setattr("lamina.context.files.time.monotonic", lambda: now[0])
    read = Workspace.read

    def slow(space: Workspace, path: str, *, limit: int | None = None) -> bytes:
        now[0] += SECONDS
        return read(space, path, limit=limit)

    monkeypatch.setattr(Workspace, "read", slow)
    result = gather_files(root, paths=["top.txt", "src/a.py", "src/deep/b.py"])
    assert keys(result) == ["top.txt"]
    assert result.notes == (
        "src/a.py: left out, reading took more than 30 seconds",
        "src/deep/b.py: left out, reading took more than 30 seconds",
    )
