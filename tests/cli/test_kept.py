"""Commands about conversations that are kept: sessions, recall, rekey."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from lamina.segments import file
from lamina.session import Session
from lamina.stores.address import open_store
from lamina.stores.sealed import Key, from_file, init_file
from lamina.stores.sqlite import SqliteStore
from tests.cli.running import run

SPEC = "# Retry\n\nA request is retried three times.\n" * 30


def kept(address: str, *, key: Key | None = None) -> None:
    """A conversation "chat" of two turns."""

    async def talk() -> None:
        async with (
            open_store(address, key=key) as store,
            Session.open(store, "chat", model="gpt-5") as session,
        ):
            await session.ask("What does it say?", attach=[file("spec.md", SPEC)])
            await session.record("Three retries.")
            await session.ask("Sure?")
            await session.record("Yes.")

    anyio.run(talk)


@pytest.mark.parametrize("kind", ["sqlite:{}/a.db", "files:{}/folder", "{}/b.db"])
def test_conversations_are_listed_and_shown(kind: str, tmp_path: Path) -> None:
    address = kind.format(tmp_path)
    kept(address)
    assert run("sessions", "list", "--store", address).out.split() == ["6", "chat"]
    shown = json.loads(run("sessions", "show", "chat", "--store", address, "--json").out)
    assert [said["text"] for said in shown["dialogue"]] == [
        "What does it say?", "Three retries.", "Sure?", "Yes.",
    ]  # fmt: skip


@pytest.mark.parametrize("form", ["markdown", "json"])
def test_what_is_exported_is_imported_whole(form: str, tmp_path: Path) -> None:
    first, second, file_ = f"{tmp_path}/a.db", f"files:{tmp_path}/f", tmp_path / "chat"
    kept(first)
    file_.write_text(run("sessions", "export", "chat", "--format", form, "--store", first).out, "utf-8")
    assert run("sessions", "import", str(file_), "again", "--store", second).code == 0
    one, other = (
        run("sessions", "export", name, "--format", "json", "--store", where).out
        for name, where in (("chat", first), ("again", second))
    )
    assert one == other
    assert run("sessions", "import", str(file_), "again", "--store", second).code == 2


def test_what_is_deleted_is_gone_and_only_when_it_is_meant(tmp_path: Path) -> None:
    address = f"{tmp_path}/a.db"
    kept(address)
    assert run("sessions", "delete", "chat", "--store", address).code == 2
    assert run("sessions", "delete", "chat", "--yes", "--store", address).code == 0
    gone = run("sessions", "show", "chat", "--store", address)
    assert (gone.code, gone.out) == (4, "")
    assert "there is none of this name" in gone.err


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    done = run("sessions", "list", "--store", str(tmp_path / "none.db"))
    assert done.code == 2
    assert not list(tmp_path.iterdir())


def test_recall_brings_back_the_whole_a_part_or_the_places(tmp_path: Path) -> None:
    address = f"{tmp_path}/a.db"
    kept(address)
    where = ("recall", "chat", "spec.md", "--store", address)
    assert run(*where).out == f"{SPEC}\n"
    assert run(*where, "--part", "2:5").out == "Retry\n"
    found = json.loads(run(*where, "--find", "three times", "--json").out)
    assert SPEC[found["matches"][0]["at"] :].startswith("three times")
    assert run("recall", "chat", "nothing", "--store", address).code == 4


def test_a_sealed_store_opens_with_its_key_and_goes_over_to_another(tmp_path: Path) -> None:
    address, old, new = f"{tmp_path}/a.db", str(tmp_path / "old"), str(tmp_path / "new")
    init_file(old)
    kept(address, key=from_file(old))
    assert b"retried" not in Path(address).read_bytes()
    assert run("sessions", "verify", "--store", address, "--key-file", old).code == 0
    done = run("rekey", "--store", address, "--key-file", old, "--new-key-file", new, "--json")
    assert json.loads(done.out)["records"] >= 6
    assert run("sessions", "show", "chat", "--store", address, "--key-file", old).code == 4
    assert "Three retries." in run("sessions", "show", "chat", "--store", address, "--key-file", new).out


def test_a_record_that_was_changed_is_found(tmp_path: Path) -> None:
    address, key = tmp_path / "folder", str(tmp_path / "key")
    init_file(key)
    kept(f"files:{address}", key=from_file(key))
    sealed = max(address.rglob("*.json"), key=lambda path: path.stat().st_size)
    sealed.write_bytes(sealed.read_bytes().replace(b"A", b"B", 1))
    done = run("sessions", "verify", "--store", f"files:{address}", "--key-file", key)
    assert done.code in (2, 4)
    assert done.err


@pytest.mark.parametrize("action", ["list", "verify"])
def test_a_list_that_does_not_end_is_an_error(
    action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from an index with a damaged cell: the same page, whatever comes after it is asked for."""
    address = f"{tmp_path}/a.db"
    kept(address)
    own = SqliteStore.list

    async def same_page(self: SqliteStore, workspace: str, **asked: Any) -> Any:
        return await own(self, workspace, **{**asked, "after": ""})

    monkeypatch.setattr(SqliteStore, "list", same_page)
    done = run("sessions", action, "--store", address)
    assert done.code == 4
    assert "restore it from a backup" in done.err
