"""Commands about conversations that are kept: log, store, recall."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from lamina.errors import KeyNeeded
from lamina.formats.codec import encode
from lamina.segments import file, user
from lamina.sessions import Session
from lamina.stores import SqliteStore, open_store
from lamina.stores.sealed import Key, from_file, init_file
from lamina.stores.sqlite import wal_reset
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
    [first, second] = run("log", "--store", address).out.splitlines()
    assert first.endswith("  What does it say?")
    assert second == "    chat  session, 2 requests, 0 cuts, gpt-5"
    shown = json.loads(run("log", "chat", "--store", address, "--json").out)
    assert [said["text"] for said in shown["dialogue"]] == [
        "What does it say?", "Three retries.", "Sure?", "Yes.",
    ]  # fmt: skip


def list_segments(export: str) -> list[Any]:
    """The segments of an export as JSON lines, with or without what was recorded of requests."""
    lines = [json.loads(line) for line in export.splitlines()]
    records = [line.get("session", line) for line in lines]
    return [record["segment"] for record in records if "segment" in record]


def test_what_is_exported_is_imported_whole(tmp_path: Path) -> None:
    first, second, file_ = f"{tmp_path}/a.db", f"files:{tmp_path}/f", tmp_path / "chat"
    kept(first)
    file_.write_text(run("store", "export", "chat", "--format", "json", "--store", first).out, "utf-8")
    assert run("store", "import", str(file_), "again", "--store", second).code == 0
    one, other = (
        run("store", "export", name, "--format", "json", "--store", where).out
        for name, where in (("chat", first), ("again", second))
    )
    assert list_segments(one)
    assert one == other
    assert run("store", "import", str(file_), "again", "--store", second).code == 2


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    done = run("log", "--store", str(tmp_path / "none.db"))
    assert done.code == 2
    assert not list(tmp_path.iterdir())


def test_recall_brings_back_the_whole(tmp_path: Path) -> None:
    address = f"{tmp_path}/a.db"
    kept(address)
    where = ("recall", "chat", "spec.md", "--store", address)
    assert run(*where).out == f"{SPEC}\n"
    assert json.loads(run(*where, "--json").out) == {"text": SPEC, "total": len(SPEC)}
    assert run("recall", "chat", "nothing", "--store", address).code == 4


def test_a_sealed_store_opens_with_its_key_and_goes_over_to_another(tmp_path: Path) -> None:
    address, old, new = f"{tmp_path}/a.db", str(tmp_path / "old"), str(tmp_path / "new")
    init_file(old)
    kept(address, key=from_file(old))
    assert b"retried" not in Path(address).read_bytes()
    assert run("store", "verify", "--store", address, "--key-file", old).code == 0
    copy = f"{tmp_path}/b.db"
    copying = ("store", "copy", copy, "--store", address, "--key-file", old, "--new-key-file", new)
    assert run(*copying).code == 0
    assert run("log", "chat", "--store", copy, "--key-file", old).code == 4
    assert "Three retries." in run("log", "chat", "--store", copy, "--key-file", new).out


def test_a_command_that_is_gone_says_what_takes_its_place() -> None:
    done = run("rekey", "--store", "a.db")
    assert done.code == 2
    assert "lamina store copy NEW --store OLD --key-file OLD_KEY --new-key-file NEW_KEY" in done.err


def test_a_record_that_was_changed_is_found(tmp_path: Path) -> None:
    address, key = tmp_path / "folder", str(tmp_path / "key")
    init_file(key)
    kept(f"files:{address}", key=from_file(key))
    sealed = max(address.rglob("*.json"), key=lambda path: path.stat().st_size)
    sealed.write_bytes(sealed.read_bytes().replace(b"A", b"B", 1))
    done = run("store", "verify", "--store", f"files:{address}", "--key-file", key)
    assert done.code in (2, 4)
    assert done.err


def test_what_is_whole_of_a_damaged_sealed_conversation_is_rescued(tmp_path: Path) -> None:
    address, key = f"{tmp_path}/a.db", str(tmp_path / "key")
    assert run("store", "key", key).code == 0
    kept(address, key=from_file(key))
    with closing(sqlite3.connect(address, isolation_level=None)) as raw:
        raw.execute("UPDATE record SET body = x'00' WHERE seq = 3")
    where = ("--store", address, "--key-file", key)
    refused = run("log", "chat", *where)
    assert refused.code == 4
    assert "lamina store export NAME --damaged" in refused.err
    done = run("store", "export", "chat", "--damaged", *where)
    assert done.code == 0
    assert "A request is retried three" in done.out
    assert "not whole, or gone: 3" in done.err


def test_a_new_key_is_only_its_owners_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "chats.key"
    done = run("store", "key", str(path), "--json")
    assert json.loads(done.out) == {"file": str(path)}
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    again = run("store", "key", str(path))
    assert (again.code, path.read_bytes()) == (2, before)
    assert "exists already" in again.err


@pytest.mark.parametrize("command", [["log"], ["store", "verify"]])
def test_a_list_that_does_not_end_is_an_error(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from an index with a damaged cell: the same page, whatever comes after it is asked for."""
    address = f"{tmp_path}/a.db"
    kept(address)
    own = SqliteStore.list

    async def same_page(self: SqliteStore, workspace: str, **asked: Any) -> Any:
        return await own(self, workspace, **{**asked, "after": ""})

    monkeypatch.setattr(SqliteStore, "list", same_page)
    done = run(*command, "--store", address)
    assert done.code == 4
    assert "restore it from a backup" in done.err


KINDS = ["sqlite:{}/a.db", "files:{}/folder"]
WITHOUT_KEY = [
    ("log",),
    ("log", "chat"),
    ("store", "export", "chat"),
    ("store", "export", "chat", "--format", "json"),
    ("store", "import", "{}/page.jsonl", "another"),
    ("store", "copy", "{}/copy.db"),
    ("store", "delete", "chat", "--yes"),
    ("store", "verify"),
    ("store", "verify", "chat"),
    ("store", "export", "chat", "--damaged"),
    ("recall", "chat", "spec.md"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_sealed_store_is_closed_without_its_key(kind: str, tmp_path: Path) -> None:
    address, key = kind.format(tmp_path), str(tmp_path / "key")
    init_file(key)
    init_file(tmp_path / "wrong")
    kept(address, key=from_file(key))
    (tmp_path / "page.jsonl").write_bytes(encode(user("hello")))
    before = _files_below(tmp_path)
    for command in WITHOUT_KEY:
        asked = [part.format(tmp_path) for part in command]
        for given, problem in (
            ((), "lamina: this store is sealed; give its key: --key-file FILE, or LAMINA_KEY"),
            (
                ("--key-file", str(tmp_path / "wrong")),
                "lamina: the given key does not open this store; give the",
            ),
        ):
            done = run(*asked, "--store", address, *given)
            assert (command, done.code, done.out) == (command, 4, "")
            assert done.err.startswith(problem)
            assert len(done.err.splitlines()) == 1
    told = json.loads(run("log", "--store", address, "--json").out)
    assert told["error"]["kind"] == "keyneeded"
    assert _files_below(tmp_path) == before


def _files_below(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and ".locks" not in path.parts)
    return {str(path): path.read_bytes() for path in files}


@pytest.mark.parametrize("kind", KINDS)
def test_the_settings_lead_to_no_sealed_store_without_its_key(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, key = kind.format(tmp_path), str(tmp_path / "key")
    init_file(key)
    kept(address, key=from_file(key))
    monkeypatch.setenv("LAMINA_STORE", address)
    assert run("log").code == 4

    async def open_by_settings() -> None:
        async with Session.open(None, "chat", model="gpt-5") as session:
            await session.ask("Nobody may read this.")

    with pytest.raises(KeyNeeded):
        anyio.run(open_by_settings)
    assert run("chat", "--model", "tiny", "--tools", "none", given=b"hello\n").code == 4
    assert run("log", "--key-file", key).code == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_is_not_taken_for_a_plain_store(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, key = kind.format(tmp_path), str(tmp_path / "key")
    init_file(key)
    kept(address)
    before = _files_below(tmp_path)
    listed = run("log", "--store", address, "--key-file", key)
    assert (listed.code, listed.out) == (4, "")
    assert "not sealed" in listed.err
    (tmp_path / "page.jsonl").write_bytes(encode(user("hello")))
    imported = run("store", "import", tmp_path / "page.jsonl", "new", "--store", address, "--key-file", key)
    assert imported.code == 4
    assert "holds conversations that are not sealed" in imported.err
    monkeypatch.setenv("LAMINA_KEY", Path(key).read_text())
    assert run("chat", "--model", "tiny", "--tools", "none", "--store", address, given=b"hello\n").code == 4
    (tmp_path / "page.jsonl").unlink()
    assert _files_below(tmp_path) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_plain_store_is_copied_into_a_sealed_one_and_back(kind: str, tmp_path: Path) -> None:
    plain, sealed, again = kind.format(tmp_path), f"{tmp_path}/sealed.db", f"files:{tmp_path}/again"
    key = str(tmp_path / "key")
    kept(plain)
    copied = run("store", "copy", sealed, "--new-key-file", key, "--store", plain, "--json")
    assert json.loads(copied.out) == {
        "copied": {"chat": 10}
    }  # six of its log, four of its requests and answers
    assert b"retried" not in Path(sealed).read_bytes()
    shown = run("log", "chat", "--store", sealed, "--key-file", key, "--json")
    assert json.loads(shown.out) == json.loads(run("log", "chat", "--store", plain, "--json").out)
    assert run("store", "copy", again, "--store", sealed, "--key-file", key).code == 0
    one, other = (run("store", "export", "chat", "--store", where).out for where in (plain, again))
    assert one == other
    twice = run("store", "copy", again, "--store", plain)
    assert twice.code == 2
    assert "already" in twice.err


def test_what_is_whole_of_a_damaged_conversation_is_rescued(tmp_path: Path) -> None:
    address = f"{tmp_path}/a.db"
    kept(address)
    with closing(sqlite3.connect(address, isolation_level=None)) as raw:
        log = "'chat' AND workspace NOT LIKE 'lamina.%'"
        raw.execute(f"UPDATE record SET body = x'00' WHERE seq = 3 AND conversation = {log}")  # noqa: S608
        raw.execute(f"UPDATE conversation SET state = x'00' WHERE name = {log}")  # noqa: S608
    shown = run("log", "chat", "--store", address)
    assert (shown.code, shown.out) == (4, "")
    assert "its state is not what was written" in shown.err
    assert "records 0 to 2 and 4 to 5 can be read" in shown.err
    done = run("store", "export", "chat", "--damaged", "--store", address)
    assert done.code == 0
    assert "not whole, or gone: 3" in done.err
    (tmp_path / "rescued").write_text(done.out)
    assert run("store", "import", tmp_path / "rescued", "chat 2", "--store", address).code == 0
    dialogue = json.loads(run("log", "chat 2", "--store", address, "--json").out)["dialogue"]
    assert [said["text"] for said in dialogue] == ["What does it say?", "Sure?", "Yes."]
    assert run("store", "export", "none", "--damaged", "--store", address).code == 4
    assert run("store", "export", "none", "--damaged", "--store", "memory:").code == 2


def test_a_file_with_a_faulty_sqlite_is_safe_and_only_doctor_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.40.1")
    address = f"{tmp_path}/a.db"
    kept(address)
    assert run("log", "--store", address).err == "1 conversation\n"
    for action in ("show chat", "verify"):
        assert "SQLite" not in run("store", *action.split(), "--store", address).err
    assert json.loads(run("store", "verify", "--store", address, "--json").out)["risk"] == ""
    lines = json.loads(run("doctor", "--store", address, "--json").out)["lines"]
    [line] = [line for line in lines if line["subject"] == "sqlite"]
    assert line["verdict"] == "remark"
    assert "SQLite 3.40.1 has the WAL-reset fault" in line["text"]
    assert "its files are safe" in line["text"]
    assert "SQLite 3.51.3 or newer" in line["next_step"]
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.51.3")
    lines = json.loads(run("doctor", "--store", address, "--json").out)["lines"]
    assert "sqlite" not in [line["subject"] for line in lines]


def test_where_nothing_keeps_processes_apart_verify_tells_the_risk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{tmp_path}/a.db"
    kept(address)
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.40.1")
    monkeypatch.setattr(wal_reset, "can_lock", lambda: False)
    monkeypatch.setattr(wal_reset, "_warned", {"3.40.1"})
    assert run("store", "verify", "--store", address).err.count("WAL-reset fault") == 1
    told = json.loads(run("store", "verify", "--store", address, "--json").out)
    assert "let one process at a time use a file" in told["risk"]


BASE = """
import sys
for name in ("cryptography", "psycopg", "numpy", "tokenizers"):
    sys.modules[name] = None
import contextlib, io, json
from lamina.cli import main
ended = []
for command in json.loads(sys.argv[1]):
    told = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(told):
        code = main(command)
    ended.append([code, told.getvalue()])
print(json.dumps(ended))
"""
"""Runs commands one after the other in a process that has no extra, and prints what each said."""

WITHOUT_EXTRAS: tuple[tuple[str, int, str], ...] = (
    ("store verify --store a.db", 0, "as it was written: 10 records in 1 conversation"),
    ("log --store a.db", 0, "1 conversation"),
    (
        "store verify --key-file key --store a.db",
        2,
        "install it: pip install 'lamina-context[encryption]'",
    ),
    ("log --key-file key --store a.db", 2, "pip install 'lamina-context[encryption]'"),
    ("log --store postgresql://nowhere/x", 2, "pip install 'lamina-context[postgres]'"),
    (
        "log --store sqlite+apsw:a.db",
        2,
        "no kind of store is called 'sqlite+apsw'",
    ),
    ("log --store sealed.db", 4, "lamina: this store is sealed; give its key: "),
)


def test_without_any_extra_commands_work_or_say_what_to_install(tmp_path: Path) -> None:
    kept(f"{tmp_path}/a.db")
    init_file(tmp_path / "its-key")
    kept(f"{tmp_path}/sealed.db", key=from_file(tmp_path / "its-key"))
    commands = json.dumps([command.split() for command, _, _ in WITHOUT_EXTRAS])
    done = subprocess.run(
        [sys.executable, "-c", BASE, commands], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    ended = json.loads(done.stdout)
    for (command, code, told), (ended_with, said) in zip(WITHOUT_EXTRAS, ended, strict=True):
        assert (command, ended_with) == (command, code), said
        assert told in said
        assert "Traceback" not in said
        assert "bug" not in said
