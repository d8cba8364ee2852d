"""Paths go through a workspace: what may not be had is noted, what is wrong with one's own is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lamina.core.tokens import CHARS4
from lamina.core.wording import text_of
from lamina.errors import BadInput
from lamina.sessions import Session
from lamina.sessions import attachments as attaching
from lamina.stores.memory import MemoryStore
from tests.sessions.talking import awaited, opened


async def ask_with(*paths: str | Path, root: Path | None) -> Session:
    async with opened(MemoryStore(), model="gpt-5", counter=CHARS4, root=root) as session:
        await session.ask("look", attach=paths)
        return session


def keys(session: Session) -> list[str]:
    return [one.key for one in session.log if one.kind == "file"]


@awaited
async def test_a_note_names_the_path_and_the_reason(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret.md").write_text("secret")
    (root / "a.md").write_text("mine")
    (root / "link.md").symlink_to(tmp_path / "secret.md")
    (root / ".env").write_text("KEY=1")
    os.link(tmp_path / "secret.md", root / "twin.md")
    os.mkfifo(root / "pipe.md")
    session = await ask_with(
        "./a.md",
        "../secret.md",
        "../nothing.md",
        "link.md",
        ".env",
        "twin.md",
        "pipe.md",
        "a.md/b",
        root=root,
    )
    assert keys(session) == ["a.md"]
    assert list(session.notes) == [
        "../secret.md: left out, it is not inside the workspace",
        "../nothing.md: left out, it is not inside the workspace",
        "link.md: left out, a symbolic link",
        ".env: left out, '.env' is excluded from this workspace",
        "twin.md: left out, a hard link",
        "pipe.md: left out, a pipe",
        "a.md/b: left out, it is no folder, or a link on the way to it",
    ]


@awaited
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("gone.md", "no such file"),
        ("gone/a.md", "no such file"),
        ("docs", "folder"),
        (".", "folder"),
        ("b.bin", "not UTF-8"),
    ],
)
async def test_what_is_wrong_with_ones_own_file_is_an_error(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "b.bin").write_bytes(b"\xff\x00")
    with pytest.raises(BadInput, match=why):
        await ask_with(name, root=tmp_path)


@awaited
async def test_a_file_too_large_is_an_error_with_and_without_a_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attaching, "LARGEST", 10)
    (tmp_path / "big.md").write_text("x" * 11)
    for path, root in (("big.md", tmp_path), (tmp_path / "big.md", None)):
        with pytest.raises(BadInput, match="larger than 10 bytes"):
            await ask_with(path, root=root)


@awaited
async def test_without_a_root_links_and_keys_may_be_attached_but_no_pipe_or_device(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("mine")
    (tmp_path / "link.md").symlink_to("a.md")
    (tmp_path / ".env").write_text("KEY=1")
    os.link(tmp_path / ".env", tmp_path / "twin")
    session = await ask_with(*(tmp_path / name for name in ("link.md", ".env", "twin")), root=None)
    assert keys(session) == [str(tmp_path / name) for name in ("link.md", ".env", "twin")]
    assert text_of(session.log[0].parts) == "mine"
    os.mkfifo(tmp_path / "pipe")
    for bad in (tmp_path / "pipe", "/dev/zero", tmp_path, tmp_path / "gone", "a\0b", tmp_path / ("x" * 300)):
        with pytest.raises(BadInput):
            await ask_with(bad, root=None)


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - shorter


@awaited
async def test_no_folder_stays_open(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("mine")
    before = handles()
    for root in (tmp_path, None):
        for _ in range(5):
            await ask_with("a.md" if root else tmp_path / "a.md", root=root)
    assert handles() <= before + 3
