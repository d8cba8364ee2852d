"""The disk that forgets, and the two ways to watch a program write."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from tests.torture import shim, strace
from tests.torture.children import Say, failure, forked
from tests.torture.medium import (
    Call,
    Create,
    Journal,
    Remove,
    Rename,
    Said,
    Sync,
    Truncate,
    Write,
)

ROOT = "/disk"
DISKS = 60
straced = pytest.mark.skipif(not strace.usable(), reason="there is no strace that may look")


def disks(calls: Sequence[Call], into: Path) -> list[dict[str, bytes]]:
    """What may be on the disk after all of these calls, many times over."""
    journal, dice = Journal(ROOT, calls), Random(1)  # noqa: S311
    contents = []
    into.mkdir(exist_ok=True)
    for number in range(DISKS):
        journal.lay_out(len(journal), dice, into / str(number))
        there = (into / str(number)).rglob("*")
        contents.append(
            {str(p.relative_to(into / str(number))): p.read_bytes() for p in there if p.is_file()}
        )
    return contents


def test_what_was_synced_is_there(tmp_path: Path) -> None:
    calls: list[Call] = [Create("/disk/a"), Write("/disk/a", 0, b"x" * 2000), Sync("/disk/a"), Sync("/disk")]
    assert disks(calls, tmp_path) == [{"a": b"x" * 2000}] * DISKS


def test_what_was_not_synced_is_there_in_sectors(tmp_path: Path) -> None:
    calls: list[Call] = [Create("/disk/a"), Sync("/disk"), Write("/disk/a", 100, b"x" * 2000)]
    contents = {disk["a"] for disk in disks(calls, tmp_path)}
    assert {b"", b"\0" * 100 + b"x" * 2000} < contents
    edges = {len(each) for each in contents}
    assert edges <= {0, 512, 1024, 1536, 2048, 2100}
    assert len(contents) > 5


def test_a_name_is_there_when_its_folder_was_synced(tmp_path: Path) -> None:
    calls: list[Call] = [Create("/disk/a.tmp"), Write("/disk/a.tmp", 0, b"x"), Sync("/disk/a.tmp")]
    unsure = disks([*calls, Rename("/disk/a.tmp", "/disk/a")], tmp_path / "unsure")
    assert {tuple(disk) for disk in unsure} == {(), ("a.tmp",), ("a",)}
    sure = disks([*calls, Rename("/disk/a.tmp", "/disk/a"), Sync("/disk")], tmp_path / "sure")
    assert sure == [{"a": b"x"}] * DISKS


def test_a_file_that_took_a_name_leaves_the_old_one_until_then(tmp_path: Path) -> None:
    calls: list[Call] = [
        Create("/disk/a"),
        Write("/disk/a", 0, b"old"),
        Sync("/disk/a"),
        Create("/disk/b"),
        Write("/disk/b", 0, b"new"),
        Sync("/disk/b"),
        Sync("/disk"),
        Rename("/disk/b", "/disk/a"),
    ]
    assert {disk["a"] for disk in disks(calls, tmp_path)} == {b"old", b"new"}


def test_a_folder_takes_what_is_in_it_along(tmp_path: Path) -> None:
    calls: list[Call] = [
        Create("/disk/f", folder=True),
        Create("/disk/f/a"),
        Write("/disk/f/a", 0, b"x"),
        Sync("/disk/f/a"),
        Sync("/disk/f"),
        Sync("/disk"),
        Rename("/disk/f", "/disk/g"),
        Sync("/disk"),
        Remove("/disk/g/a"),
    ]
    assert {tuple(disk) for disk in disks(calls, tmp_path)} == {(), ("g/a",)}


def test_acknowledged_counts_what_was_said_before_the_cut() -> None:
    journal = Journal(ROOT, [Create("/disk/a"), Said(0), Sync("/disk"), Said(1), Create("/elsewhere")])
    assert [journal.acknowledged(cut) for cut in range(len(journal) + 1)] == [0, 0, 1, 1, 2]


def _work(folder: Path, say: Say) -> None:
    (folder / "in").mkdir()
    number = os.open(folder / "in" / "a.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(number, b"one ")
    os.write(number, b"two")
    os.fsync(number)
    os.close(number)
    (folder / "in" / "a.tmp").replace(folder / "in" / "a")
    say("0")
    number = os.open(folder / "in" / "a", os.O_RDWR)
    os.ftruncate(number, 5)
    os.close(number)
    above = os.open(folder, os.O_RDONLY)
    os.fsync(above)
    os.unlink("in/a", dir_fd=above)
    os.rmdir("in", dir_fd=above)
    os.close(above)
    say("1")


@pytest.mark.parametrize(
    "recorder", [shim.recorded, pytest.param(strace.recorded, marks=straced)], ids=["shim", "strace"]
)
def test_both_ways_of_watching_see_the_same(recorder: shim.Recorder, tmp_path: Path) -> None:
    calls, lines = recorder(lambda say: _work(tmp_path, say), str(tmp_path))
    at = str(tmp_path)
    assert list(lines) == ["0", "1"]
    seen = [call for call in calls if isinstance(call, Said) or call.path.startswith(at)]
    assert [call for call in seen if call != Truncate(f"{at}/in/a.tmp", 0)] == [
        Create(f"{at}/in", folder=True),
        Create(f"{at}/in/a.tmp"),
        Write(f"{at}/in/a.tmp", 0, b"one "),
        Write(f"{at}/in/a.tmp", 4, b"two"),
        Sync(f"{at}/in/a.tmp"),
        Rename(f"{at}/in/a.tmp", f"{at}/in/a"),
        Said(0),
        Truncate(f"{at}/in/a", 5),
        Sync(at),
        Remove(f"{at}/in/a"),
        Remove(f"{at}/in"),
        Said(1),
    ]


def test_a_child_tells_what_it_raised() -> None:
    def work(say: Say) -> None:
        say("begun")
        raise ValueError("two\nlines")

    lines = forked(work).said()
    assert lines[0] == "begun"
    assert failure(lines) == "ValueError: two lines"


def test_a_killed_child_says_nothing_more() -> None:
    def work(say: Say) -> None:
        say("begun")
        while True:
            pass

    child = forked(work)
    child.first()
    child.kill()
    assert list(child.said()) == ["begun"]
