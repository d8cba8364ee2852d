"""Paths go through a workspace: what may not be had is noted, what is wrong with one's own is told."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from lamina.context.search import open_index
from lamina.core import CHARS4, text_of
from lamina.core.values import Segment
from lamina.errors import BadInput
from lamina.segments import excerpt
from lamina.sessions import Session
from lamina.sessions import attachments as attaching
from lamina.stores import MemoryStore
from lamina.workspace.fetch import Answer
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


# a folder, a tag, a link, a search


def vault(folder: Path) -> Path:
    root = folder / "vault"
    (root / "notes").mkdir(parents=True)
    (root / "notes" / "a.md").write_text("Lamps. #house")
    (root / "notes" / "b.txt").write_text("Boiler.")
    (root / "c.md").write_text("---\ntags: [house]\n---\nRoof.")
    (root / "d.md").write_text("Garden.")
    return root


@awaited
async def test_a_folder_and_a_tag_are_attached_to_one_message(tmp_path: Path) -> None:
    root = vault(tmp_path)
    async with opened(MemoryStore(), model="gpt-5", root=root) as session:
        await session.ask("look", attach=["notes/"])
        assert [one.key for one in session.log] == ["notes/a.md", "notes/b.txt", ""]
        await session.record("seen")
        await session.ask("look again", attach=[("#house", 3)])
        latest = list(session.log)[4:]
        assert [(one.key, one.priority) for one in latest] == [("c.md", 3), ("notes/a.md", 3), ("", None)]
        assert not session.notes
        await session.record("seen")
        await session.ask("and?", attach=["#garden", "nowhere/"])
        assert session.notes[0] == "#garden: nothing was found to attach"
        assert "nowhere" in session.notes[1]


@awaited
async def test_without_a_root_a_folder_is_read_and_a_tag_is_refused(tmp_path: Path) -> None:
    root = vault(tmp_path)
    async with opened(MemoryStore(), model="gpt-5") as session:
        await session.ask("look", attach=[f"{root}/notes/"])
        assert [one.key for one in session.log] == ["notes/a.md", "notes/b.txt", ""]
        with pytest.raises(BadInput, match="a tag needs a folder"):
            await session.ask("look", attach=["#house"])


@awaited
async def test_a_link_is_fetched_for_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetched(address: str, _: object) -> Answer:
        assert address == "https://example.org/spec"
        return Answer(url=address, kind="text/plain", body=b"At most 20 requests.", charset="utf-8")

    monkeypatch.setattr("lamina.context.web.fetch", fetched)
    async with opened(MemoryStore(), model="gpt-5") as session:
        await session.ask("look", attach=["https://example.org/spec"])
        page = session.log[0]
        assert (page.kind, page.key) == ("url", "https://example.org/spec")
        assert text_of(page.parts) == "At most 20 requests."


@awaited
async def test_a_search_is_asked_for_one_prompt() -> None:
    asked: list[str] = []

    async def find(prompt: str, _: int | None) -> list[Segment]:
        asked.append(prompt)
        return [excerpt("Found.", source="a.md")]

    async with opened(MemoryStore(), model="gpt-5") as session:
        await session.ask("where?", attach=[find])
        await session.record("there")
        await session.ask("and now?")
    assert asked == ["where?"]


@awaited
async def test_a_source_that_was_not_entered_is_refused_at_once() -> None:
    index = open_index()
    for given in ({"sources": [index]}, {"sources": ["a.md"]}):
        with pytest.raises(BadInput, match=r"sources\[0\]"):
            await opened(MemoryStore(), model="gpt-5", **given).__aenter__()
    async with opened(MemoryStore(), model="gpt-5") as session:
        with pytest.raises(BadInput, match="was not entered"):
            await session.ask("x", attach=[index])  # type: ignore[list-item]


@awaited
async def test_every_source_has_a_name_in_notes() -> None:
    async def broken(_: str, __: int | None, *, why: str = "no") -> list[Segment]:
        raise ValueError(why)

    sources = [broken, partial(broken, why="never"), lambda prompt, _: broken(prompt, None)]
    async with opened(MemoryStore(), model="gpt-5", sources=sources) as session:
        await session.ask("x")
        assert [note.split(" failed")[0] for note in session.notes] == [
            "source broken",
            "source broken",
            "source sources[2]",
        ]


@awaited
async def test_one_path_without_a_list_is_refused_and_its_letters_are_not_attached(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("not meant")
    (tmp_path / "aa").write_text("meant")
    async with opened(MemoryStore(), model="gpt-5", root=tmp_path) as session:
        with pytest.raises(BadInput, match=r"give a list: \['aa'\]"):
            await session.ask("look", attach="aa")
        assert session.log == ()
