"""`lamina memory`: what models keep with the memory tool, as a user sees and erases it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from lamina.conversations.memory_files import run_in_store
from lamina.stores.sqlite import open_sqlite
from tests.cli.running import run

NOTES = "/memories/notes.md"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A file that was changed once, and one below a directory."""
    path = tmp_path / "chats.db"

    async def fill() -> None:
        commands: list[dict[str, Any]] = [
            {"command": "create", "path": NOTES, "file_text": "tea\n"},
            {"command": "str_replace", "path": NOTES, "old_str": "tea", "new_str": "coffee"},
            {"command": "create", "path": "/memories/a/b.md", "file_text": ""},
        ]
        async with open_sqlite(path) as opened:
            for command in commands:
                assert not (await run_in_store(opened, "", command)).error

    anyio.run(fill)
    return path


def test_files_are_listed_and_shown_with_their_versions(store: Path) -> None:
    listed = run("memory", "list", "--store", store)
    assert [line.split() for line in listed.out.splitlines()] == [["0", "/memories/a/b.md"], ["7", NOTES]]
    assert run("memory", "show", NOTES, "--store", store).out == "coffee\n"
    versions = json.loads(run("memory", "versions", NOTES, "--store", store, "--json").out)["versions"]
    assert [version["text"] for version in versions] == ["tea\n", "coffee\n"]
    assert run("memory", "versions", NOTES, "--store", store).out.count("bytes") == 2


def test_files_are_erased_for_good_and_copied_with_the_rest(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    assert run("conversations", "copy", copy, "--store", store).code == 0
    assert run("memory", "delete", NOTES, "--store", store).code == 2
    done = run("memory", "delete", NOTES, "--store", store, "--yes")
    assert done.err == "1 file erased, with all versions\n"
    assert b"coffee" not in store.read_bytes()
    assert run("memory", "show", NOTES, "--store", copy).out == "coffee\n"
    assert json.loads(run("memory", "delete", "--store", store, "--yes", "--json").out) == {"erased": 1}
    assert run("memory", "list", "--store", store).err == "there are no files\n"


def test_what_is_not_there_is_named(store: Path) -> None:
    assert run("memory", "show", "/memories/none.md", "--store", store).code == 4
    assert run("memory", "versions", "/memories/none.md", "--store", store).code == 4
    assert run("memory", "delete", "/memories/none.md", "--store", store, "--yes").code == 4
    assert "takes a path" in run("memory", "show", "--store", store).err
