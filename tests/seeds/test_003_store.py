"""System 003 keeps messages in files, one each. An example reads them; new ones are lamina's own.

The files here are written by `Writer`, in the format of that system.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from examples.importers.elara_folder import ElaraMessages, import_folder, read_folder, role_of
from lamina import BadInput, Role, Segment
from lamina.core import Text
from lamina.errors import Conflict, WrongKey
from lamina.formats.codec import decode, encode
from lamina.segments import assistant, user
from lamina.stores import MemoryStore, Where, open_files
from lamina.stores.sealed import Sealed, generate

BEGIN = datetime(2025, 8, 24, 16, 36, 25, 123000, tzinfo=UTC)
WHERE = Where("home", "kitchen")


class Writer:
    """One process of that system: its folder, its key, its counter, which begins at 1 in each."""

    def __init__(self, folder: Path, key: str = "") -> None:
        self.folder, self.key, self.seq = folder, key, 0

    def append(self, text: str, role: str = "User", *, after: int = 0, **more: Any) -> Path:
        at = BEGIN + timedelta(seconds=after)
        message = {"Role": role, "Content": text, "TimestampUtc": at.isoformat(), "Metadata": None, **more}
        envelope = self.sealed(message) if self.key else {"Alg": "PLAINTEXT", "Iv": None, "Content": message}
        return self.write(json.dumps(envelope, separators=(",", ":")), role, at)

    def sealed(self, message: dict[str, Any]) -> dict[str, Any]:
        nonce, cipher = os.urandom(12), AESGCM(hashlib.sha256(self.key.encode()).digest())
        content = cipher.encrypt(nonce, json.dumps(message).encode(), None)
        parts = {"Iv": nonce, "Content": content[:-16], "Tag": content[-16:]}
        return {"Alg": "AES-256-GCM"} | {k: base64.b64encode(v).decode() for k, v in parts.items()}

    def write(self, content: str | bytes, role: str = "user", at: datetime = BEGIN) -> Path:
        self.seq += 1
        stamp = f"{at:%Y%m%dT%H%M%S}{at.microsecond // 1000:03d}Z"
        path = self.folder / f"{stamp}_{self.seq:04d}_{role.lower()}.json"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path


def found(folder: Path, key: str = "", last: int | None = None) -> ElaraMessages:
    return anyio.run(lambda: read_folder(folder, key=key, last=last))


def texts(segments: Sequence[Segment]) -> list[str]:
    return [part.text for segment in segments for part in segment.parts if isinstance(part, Text)]


def three_writers(folder: Path) -> None:
    """p0 k1 u2 p3 k4 u5: in the clear, with the key that is known, with one that is not."""
    writers = {"p": Writer(folder), "k": Writer(folder, "known"), "u": Writer(folder, "lost")}
    for after, name in enumerate("pkupku"):
        writers[name].append(f"{name}{after}", after=after)


def test_s3_01_encrypted_messages_come_back_in_order(tmp_path: Path) -> None:
    writer = Writer(tmp_path, "test-key")
    paths = [writer.append("hello"), writer.append("world", "Assistant", after=1)]
    assert not any(word in path.read_bytes() for path in paths for word in (b"hello", b"world"))
    read = found(tmp_path, "test-key", 2)
    assert texts(read.segments) == ["hello", "world"]
    assert [segment.role for segment in read.segments] == [Role.USER, Role.ASSISTANT]
    assert read.unreadable == ()


def test_s3_01_new_encrypted_records_do_not_show_what_they_say(tmp_path: Path) -> None:
    async def tail() -> list[str]:
        async with open_files(tmp_path / "new") as files:
            kept = Sealed(files, generate(), create=True)
            await kept.append(WHERE, [encode(user("hello")), encode(assistant("world"))])
            return texts(decode(record.body for record in (await kept.read(WHERE, last=2)).records))

    assert anyio.run(tail) == ["hello", "world"]
    everything = [path for path in (tmp_path / "new").rglob("*") if path.is_file()]
    assert not any(word in path.read_bytes() for path in everything for word in (b"hello", b"world", b"user"))
    assert {path.stem.rpartition("_")[2] for path in everything if path.suffix == ".json"} == {"record"}


def test_s3_02_messages_in_the_clear(tmp_path: Path) -> None:
    path = Writer(tmp_path).append("hello")
    assert b'"Alg":"PLAINTEXT"' in path.read_bytes()
    assert b'"Role":"User"' in path.read_bytes()
    segment = found(tmp_path).segments[0]
    assert (segment.role, segment.kind, segment.at) == (Role.USER, "user", BEGIN.isoformat())
    assert segment.origin == f"elara:{path.name}"


def test_s3_03_both_in_one_folder(tmp_path: Path) -> None:
    plain, sealed = Writer(tmp_path), Writer(tmp_path, "mixed")
    for after, (writer, text) in enumerate([(plain, "p0"), (sealed, "e1"), (plain, "p2"), (sealed, "e3")]):
        writer.append(text, after=after)
    assert texts(found(tmp_path, "mixed", 10).segments) == ["p0", "e1", "p2", "e3"]


def test_s3_04_messages_under_an_unknown_key_are_passed_over_and_named(tmp_path: Path) -> None:
    three_writers(tmp_path)
    read = found(tmp_path, "known")
    assert texts(read.segments) == ["p0", "k1", "p3", "k4"]
    assert [(each.name[:19], each.why.partition(",")[0]) for each in read.unreadable] == [
        ("20250824T163627123Z", "it was encrypted with another key"),
        ("20250824T163630123Z", "it was encrypted with another key"),
    ]


def test_s3_05_the_last_ones_are_the_last_that_can_be_read(tmp_path: Path) -> None:
    three_writers(tmp_path)
    read = found(tmp_path, "known", 2)
    assert texts(read.segments) == ["p3", "k4"]
    assert len(read.unreadable) == 1


def test_s3_06_roles_are_names_in_any_case_or_numbers(tmp_path: Path) -> None:
    said = {
        "Assistant": Role.ASSISTANT,
        "system": Role.SYSTEM,
        "USER": Role.USER,
        0: Role.USER,
        1: Role.ASSISTANT,
    }
    assert {value: role_of(value) for value in said} == said
    assert [role_of(value) for value in ("invalid", 3, -1, True, None, 1.0, ["User"])] == [None] * 7
    Writer(tmp_path).append("x", "invalid")
    assert [each.why for each in found(tmp_path).unreadable] == ["it holds no message"]


@pytest.mark.parametrize(("last", "read"), [(0, []), (-1, []), (1, ["c"]), (99, ["a", "b", "c"])])
def test_s3_09_the_last_none_or_more_than_there_are(tmp_path: Path, last: int, read: list[str]) -> None:
    for after, text in enumerate("abc"):
        Writer(tmp_path).append(text, after=after)
    assert texts(found(tmp_path, last=last).segments) == read


def test_s3_10_bare_and_broken_files_and_those_without_a_key(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    bare = {"role": "User", "content": "bare", "timestampUtc": "2025-08-24T16:36:25.123Z"}
    writer.write(b"\xef\xbb\xbf" + json.dumps(bare | {"metadata": {"source": "voice"}}).encode())
    writer.write('{"Alg":"PLAINTEXT","Content":{"Role"')
    Writer(tmp_path, "key").append("secret", after=1)
    read = found(tmp_path)
    assert texts(read.segments) == ["bare"]
    assert read.segments[0].meta == {"metadata": {"source": "voice"}}
    assert [each.why for each in read.unreadable] == [
        "it is not JSON",
        "it is encrypted, and no key was given",
    ]
    assert "secret" not in repr(read)


def test_s3_11_equal_times_stand_in_the_order_of_the_counter(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.seq = 9_997
    for text in "abcd":
        writer.append(text, "User" if text < "c" else "Assistant")
    assert texts(found(tmp_path).segments) == ["a", "b", "c", "d"]
    assert texts(found(tmp_path, last=2).segments) == ["c", "d"]


def test_s3_11_in_a_store_of_lamina_no_clock_can_change_the_order(tmp_path: Path) -> None:
    times = iter([BEGIN, BEGIN, BEGIN - timedelta(days=3650), BEGIN + timedelta(days=1)])

    async def tail() -> list[bytes]:
        async with open_files(tmp_path, now=lambda: next(times)) as kept:
            for body in (b"a", b"b", b"c", b"d"):
                await kept.append(WHERE, [body])
        async with open_files(tmp_path) as kept:
            return [record.body for record in (await kept.read(WHERE, last=3)).records]

    assert anyio.run(tail) == [b"b", b"c", b"d"]


def test_the_envelope_as_its_document_spells_it(tmp_path: Path) -> None:
    writer = Writer(tmp_path, "key")
    sealed = writer.sealed({"role": "assistant", "content": "hi", "timestampUtc": "2025-08-24T16:36:25Z"})
    spelled = {
        "alg": "AES-256-GCM",
        "iv": sealed["Iv"],
        "ciphertext": sealed["Content"],
        "tag": sealed["Tag"],
    }
    writer.write(json.dumps(spelled))
    assert texts(found(tmp_path, "key").segments) == ["hi"]


@pytest.mark.parametrize("key", ["", "  ", "another"])
def test_a_wrong_key_is_never_an_empty_conversation(tmp_path: Path, key: str) -> None:
    Writer(tmp_path, "key").append("secret")
    with pytest.raises(WrongKey, match="1 encrypted files, and none opens"):
        found(tmp_path, key)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "7", "null", '{"Alg":7}', '{"Alg":"ROT13","Content":"x"}', '{"Alg":"PLAINTEXT"}', "[" * 99_999,
     '{"Alg":"AES-256-GCM","Iv":"!","Content":"","Tag":""}', '{"Alg":"AES-256-GCM","Content":"AAAA"}',
     '{"Role":0,"Content":"no time"}', '{"Role":0,"Content":7,"TimestampUtc":"2025-01-01T00:00:00Z"}',
     '{"Role":0,"Content":"x","TimestampUtc":"soon"}',
     '{"Role":0,"Content":"\\ud800","TimestampUtc":"2025-01-01T00:00:00Z"}', b"\xff\xfe"],
)  # fmt: skip
def test_any_other_content_is_reported_and_passed_over(tmp_path: Path, content: str | bytes) -> None:
    writer = Writer(tmp_path)
    writer.append("before")
    path = writer.write(content)
    read = found(tmp_path, "key", 1)
    assert texts(read.segments) == ["before"]
    assert [each.name for each in read.unreadable] == [path.name]


def test_links_pipes_and_folders_are_not_followed(tmp_path: Path) -> None:
    outside = Writer(tmp_path).append("outside")
    folder = tmp_path / "conversation"
    folder.mkdir()
    (folder / "a.json").symlink_to(outside)
    os.mkfifo(folder / "b.json")
    (folder / "c.json").mkdir()
    read = found(folder)
    assert read.segments == ()
    assert [each.name for each in read.unreadable] == ["a.json", "b.json", "c.json"]


def test_a_folder_that_is_not_there_is_not_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="give the folder with the files"):
        found(tmp_path / "none")


def test_a_folder_is_imported_once(tmp_path: Path) -> None:
    three_writers(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    kept = MemoryStore()
    for _ in range(2):
        imported = anyio.run(lambda: import_folder(tmp_path, kept, WHERE, key="known"))
        assert (imported.added, imported.head.count, len(imported.unreadable)) == (4, 4, 2)
    page = anyio.run(kept.read, WHERE)
    assert decode(record.body for record in page.records) == list(found(tmp_path, "known").segments)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_import_adds_to_nothing_that_is_there(tmp_path: Path) -> None:
    Writer(tmp_path).append("hello")
    kept = MemoryStore()
    anyio.run(kept.append, WHERE, [b"x"])
    with pytest.raises(Conflict):
        anyio.run(lambda: import_folder(tmp_path, kept, WHERE))


def test_files_in_the_clear_need_no_cryptography(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Writer(tmp_path).append("hello")
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    assert texts(found(tmp_path).segments) == ["hello"]
    with pytest.raises(BadInput, match=r"lamina-context\[encryption\]"):
        found(tmp_path, "key")
