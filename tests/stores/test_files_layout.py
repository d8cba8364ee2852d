"""How a conversation looks in its folder, and what is said of a folder that is not as it was left."""

from __future__ import annotations

import json
import stat
import sys
from base64 import b64decode
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import anyio
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from lamina.errors import BadInput, Damaged, StoreError, Tampered
from lamina.formats.codec import encode
from lamina.segments import assistant, result, system, user
from lamina.stores import ListedConversation, Once, RecordPage, Where, open_files
from lamina.stores.checksums import file_sum
from lamina.stores.files.disk import decode_body, encode_body, is_record_file, record_file_name
from lamina.stores.files.store import LONGEST, folder_name, name_of
from lamina.stores.port import HEADER
from lamina.stores.sealed import Sealed, generate
from tests.sessions.talking import awaited

WHERE = Where("team", "chat")
AT = datetime(2025, 8, 24, 16, 36, 25, 123999, tzinfo=UTC)


async def write_groups(folder: Path, *groups: list[bytes]) -> Path:
    """The folder of a conversation with these groups."""
    async with open_files(folder, now=lambda: AT) as store:
        for number, group in enumerate(groups):
            await store.append(WHERE, group, once=Once(key=str(number), digest=b"d"), state=b"state")
    return folder / "team" / "chat"


async def read(folder: Path, where: Where = WHERE) -> RecordPage:
    async with open_files(folder) as store:
        return await store.read(where)


def forged(conversation: Path, name: str, plain: str) -> None:
    """Write a hidden file whose checksum holds: what it says is all that can be wrong with it."""
    body = plain.encode()[:-1]
    sum_ = file_sum(WHERE, name, body)
    (conversation / name).write_bytes(body + f',"sum":"{sum_}"}}'.encode())


def sheets(conversation: Path) -> list[str]:
    return sorted(path.name for path in conversation.iterdir() if is_record_file(path.name))


def test_a_file_for_each_record_named_by_time_place_and_role(tmp_path: Path) -> None:
    segments = [system("s"), user("u"), assistant("a"), result("r", id="1")]
    conversation = anyio.run(
        write_groups, tmp_path, [encode(segment) for segment in segments], [b"\x00sealed", b"{}"]
    )
    assert sheets(conversation) == [
        "20250824T163625123Z_0000_system.json",
        "20250824T163625123Z_0001_user.json",
        "20250824T163625123Z_0002_assistant.json",
        "20250824T163625123Z_0003_tool.json",
        "20250824T163625123Z_0004_record.json",
        "20250824T163625123Z_0005_record.json",
    ]
    visible = [path for path in conversation.iterdir() if not path.name.startswith(".")]
    assert len(visible) == 6
    assert all(isinstance(json.loads(path.read_bytes()), dict) for path in visible)
    assert (conversation / sheets(conversation)[1]).read_bytes() == encode(user("u"))


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    conversation = anyio.run(write_groups, tmp_path / "new", [b"a"])
    for path in (conversation.parent, conversation, *conversation.iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    for folder in (tmp_path / "a", tmp_path / "a" / "b"):
        with pytest.raises(StoreError, match=f"'{folder}'") as error:
            anyio.run(read, folder)
        assert error.value.hint == "check the path and its permissions"


def test_the_time_in_a_name_is_utc_and_the_place_grows_past_four_digits() -> None:
    there = datetime(2025, 1, 1, 1, 0, tzinfo=timezone(timedelta(hours=2)))
    assert record_file_name(12_345, b"x", there) == "20241231T230000000Z_12345_record.json"


LIKE_OURS = [
    b'{"base64":"AA=="}',
    b"{}",
    b'{"base64":',
    b"[1]",
    b'{"a":1} ',
    encode_body(bytes(99), sealed=True),
]


@given(st.binary() | st.binary(min_size=55, max_size=99) | st.sampled_from(LIKE_OURS), st.booleans())
def test_any_bytes_are_a_json_file_and_come_back(body: bytes, sealed: bool) -> None:  # noqa: FBT001
    content = encode_body(body, sealed=sealed)
    assert isinstance(json.loads(content), dict)
    assert decode_body(content) == body


@given(st.lists(st.text(max_size=80).filter(lambda name: "\0" not in name and _utf8(name)), unique=True))
def test_names_are_folders_that_no_file_system_mixes_up(names: list[str]) -> None:
    folders = [folder_name(name) for name in names]
    assert len({folder.lower() for folder in folders}) == len(names)
    for name, folder in zip(names, folders, strict=True):
        assert name_of(folder) in (name, None)
        assert folder.isascii()
        assert len(folder) <= LONGEST
        assert "/" not in folder
        assert folder[0] != "."


def test_names_that_differ_in_case_are_two_folders_everywhere() -> None:
    assert folder_name("Chat") == "%43hat"
    assert folder_name("chat") == "chat"
    assert folder_name("..") == "%2e."


def _utf8(name: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in name)


def test_a_name_too_long_for_a_folder_is_listed_as_it_is(tmp_path: Path) -> None:
    long = "é" * 500

    async def listed() -> list[ListedConversation]:
        async with open_files(tmp_path) as store:
            await store.append(Where(long, long), [b"a"])
            return list(await store.list(long))

    assert anyio.run(listed) == [ListedConversation(conversation=long, count=1)]


def test_what_is_deleted_leaves_no_byte(tmp_path: Path) -> None:
    anyio.run(write_groups, tmp_path, [b'{"secret":1}'], [b"secret"])

    async def delete() -> bool:
        async with open_files(tmp_path) as store:
            return await store.delete(WHERE)

    assert anyio.run(delete)
    assert list((tmp_path / "team").iterdir()) == []
    assert all(b"secret" not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_a_deletion_cut_short_is_finished_when_the_store_is_opened(tmp_path: Path) -> None:
    conversation = anyio.run(write_groups, tmp_path, [b"a"])
    conversation.rename(conversation.with_name(".deleted.chat"))
    assert anyio.run(read, tmp_path) == RecordPage()
    assert list((tmp_path / "team").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("*_0000_record.json", '{"a":2}', "is not what was written"),
        ("*_0001_record.json", '{"base64":"!"}', "is not what was written"),
        ("*_0000_record.json", None, "is gone"),
        (".head", None, "there are records and no '.head'"),
        (".head", "", "cannot be read"),
        (".head", '{"workspace":"team","conversation":"chat"}', "is not what was written"),
    ],
)
def test_a_damaged_folder_is_never_read_as_something_else(
    tmp_path: Path, name: str, content: str | None, problem: str
) -> None:
    conversation = anyio.run(write_groups, tmp_path, [b'{"a":1}'], [b"b"])
    for path in conversation.glob(name):
        path.unlink() if content is None else path.write_text(content)
    with pytest.raises(Tampered, match=problem):
        anyio.run(read, tmp_path)


@pytest.mark.parametrize("files", ['[["../x","d"]]', '[["/etc/passwd","d"]]', '[[".locks","d"]]', '"all"'])
def test_no_head_can_name_a_file_outside(tmp_path: Path, files: str) -> None:
    conversation = anyio.run(write_groups, tmp_path, [b'{"a":1}'])
    forged(conversation, ".head", f'{{"workspace":"team","conversation":"chat","files":{files}}}')
    with pytest.raises(Damaged, match="cannot be read"):
        anyio.run(read, tmp_path)


@pytest.mark.parametrize("names", ['["../../victim"]', '["/etc/victim"]', '[".locks"]', "{"])
def test_no_begun_write_can_name_a_file_outside(tmp_path: Path, names: str) -> None:
    conversation = anyio.run(write_groups, tmp_path / "store", [b"a"])
    victim = tmp_path / "store" / "victim"
    victim.write_text("stays")
    (conversation / ".begun").write_text(names)
    anyio.run(write_groups, tmp_path / "store", [b"a"], [b"c"])
    assert victim.read_text() == "stays"
    assert (tmp_path / "store" / ".locks").is_dir()


def test_a_key_that_is_another_is_noticed(tmp_path: Path) -> None:
    conversation = anyio.run(write_groups, tmp_path, [b"a"], [b"b"])
    head = conversation / ".head"
    changed = head.read_bytes().replace(b'"ZA==",1]', b'"ZA==",7]')
    assert changed != head.read_bytes()
    head.write_bytes(changed)
    with pytest.raises(Damaged, match="is not what was written"):
        anyio.run(read, tmp_path)


def test_damage_says_which_records_are_whole(tmp_path: Path) -> None:
    conversation = anyio.run(write_groups, tmp_path, [b'{"a":1}', b"b"], [b"c"], [b"d", b"e"])
    (conversation / sheets(conversation)[1]).write_bytes(b"other")
    with pytest.raises(Damaged) as raised:
        anyio.run(read, tmp_path)
    assert raised.value.whole == (0, 2, 3, 4)
    assert str(raised.value).startswith("conversation 'chat': '")
    assert "records 0 and 2 to 4 can be read" in str(raised.value)
    (conversation / ".head").write_bytes(b"{}")
    with pytest.raises(Damaged) as raised:
        anyio.run(read, tmp_path)
    assert raised.value.whole == (0, 2, 3, 4)


def test_the_end_is_read_without_the_rest(tmp_path: Path) -> None:
    async def read_end() -> RecordPage:
        async with open_files(tmp_path) as store:
            return await store.read(WHERE, last=3)

    conversation = anyio.run(write_groups, tmp_path, [f"record {number}".encode() for number in range(50)])
    for name in sheets(conversation)[:40]:
        (conversation / name).write_text("damaged", encoding="utf-8")
    assert [record.body for record in anyio.run(read_end).records] == [
        b"record 47", b"record 48", b"record 49",
    ]  # fmt: skip


def test_a_long_name_that_was_damaged_is_not_left_out_of_the_list(tmp_path: Path) -> None:
    long = "é" * 500

    async def fill() -> None:
        async with open_files(tmp_path) as store:
            await store.append(Where("team", long), [b"a"])

    async def listed() -> list[ListedConversation]:
        async with open_files(tmp_path) as store:
            return list(await store.list("team"))

    anyio.run(fill)
    [head] = (tmp_path / "team").glob("~*/.head")
    whole = head.read_bytes()
    for damaged in (whole.replace("é".encode(), "è".encode(), 1), whole[:100], b""):
        head.write_bytes(damaged)
        with pytest.raises(Damaged):
            anyio.run(listed)


def test_records_without_a_head_are_not_swept_away_by_an_append(tmp_path: Path) -> None:
    conversation = anyio.run(write_groups, tmp_path, [b"a"], [b"b"])
    for path in conversation.glob(".*"):
        path.unlink()
    with pytest.raises(Tampered):
        anyio.run(write_groups, tmp_path, [b"c"])
    assert len(sheets(conversation)) == 2


@pytest.mark.parametrize("groups", [0, 1, 2, 3])
def test_a_head_of_an_earlier_time_is_noticed_and_nothing_behind_it_is_swept_away(
    tmp_path: Path, groups: int
) -> None:
    """As a write that was lost, or a synchronisation that had not come to the hidden file yet."""
    bodies = [[b"a"], [b"b"], [b"c"], [b"d"]]
    earlier = anyio.run(write_groups, tmp_path / "earlier", *bodies[:groups]) / ".head"
    conversation = anyio.run(write_groups, tmp_path / "now", *bodies)
    if groups:
        (conversation / ".head").write_bytes(earlier.read_bytes())
    else:
        (conversation / ".head").unlink()
    with pytest.raises(Damaged) as raised:
        anyio.run(read, tmp_path / "now")
    assert raised.value.whole == (0, 1, 2, 3)
    with pytest.raises(Damaged):
        anyio.run(write_groups, tmp_path / "now", [b"e"])
    assert len(sheets(conversation)) == 4


def test_files_of_an_append_that_was_cut_short_do_not_count(tmp_path: Path) -> None:
    head = anyio.run(write_groups, tmp_path / "earlier", [b"a"]) / ".head"
    conversation = anyio.run(write_groups, tmp_path / "now", [b"a"], [b"b"])
    (conversation / ".head").write_bytes(head.read_bytes())
    (conversation / ".begun").write_text(json.dumps(sheets(conversation)[1:]))
    assert [record.body for record in anyio.run(read, tmp_path / "now").records] == [b"a"]
    anyio.run(write_groups, tmp_path / "now", [b"a"], [b"c"])
    assert [record.body for record in anyio.run(read, tmp_path / "now").records] == [b"a", b"c"]


@awaited
async def test_a_replaced_record_has_a_file_of_another_name(tmp_path: Path) -> None:
    conversation = await write_groups(tmp_path, [b"a", b"b"])
    async with open_files(tmp_path) as store:
        await store.replace(WHERE, {0: b'{"words":1}'}, expect=2)
        assert [record.body for record in (await store.read(WHERE)).records] == [b'{"words":1}', b"b"]
    assert sheets(conversation) == [
        "20250824T163625123Z_0001_record.json",
        "20250824T163625124Z_0000_record.json",
    ]


def test_a_sealed_record_is_an_envelope_that_its_key_opens_without_lamina(tmp_path: Path) -> None:
    key = generate()

    async def fill() -> bytes:
        async with open_files(tmp_path) as inner:
            await Sealed(inner, key, create=True).append(WHERE, [b'{"what":"was said"}'])
            return (await inner.read(HEADER)).head.state

    header = json.loads(anyio.run(fill))
    [path] = [path for path in tmp_path.rglob("*_0000_record.json") if b'"alg"' in path.read_bytes()]
    file = {name: b64decode(value) for name, value in json.loads(path.read_bytes()).items() if name != "alg"}
    fields = [b"lamina/sealed/2", b"conversation", b"team", b"chat"]
    info = b"".join(len(field).to_bytes(8, "big") + field for field in fields)
    secret = HKDF(SHA256(), 32, salt=b64decode(header["store"]), info=info).derive(key.secret)
    bound = b"record 0 " + file["bound"]
    text = AESGCM(secret).decrypt(file["iv"], file["ciphertext"] + file["tag"], bound)
    assert json.loads(text) == {"what": "was said"}


def test_a_folder_in_the_place_of_another_is_noticed(tmp_path: Path) -> None:
    anyio.run(write_groups, tmp_path, [b"a"]).rename(tmp_path / "team" / "other")
    with pytest.raises(Tampered, match="another conversation"):
        anyio.run(read, tmp_path, Where("team", "other"))


@pytest.mark.parametrize(("version", "advice"), [(5, "update lamina"), (3, "export it")])
def test_a_folder_of_another_version_is_refused(tmp_path: Path, version: int, advice: str) -> None:
    anyio.run(write_groups, tmp_path, [b"a"])
    (tmp_path / ".lamina").write_text(f'{{"v":{version}}}')
    with pytest.raises(StoreError, match=f"says version {version}; .*{advice}"):
        anyio.run(read, tmp_path)


def test_a_folder_with_other_files_is_not_taken_for_a_store(tmp_path: Path) -> None:
    (tmp_path / "20250824T163625123Z_0001_user.json").write_text("{}")
    with pytest.raises(BadInput, match="give an empty folder"):
        anyio.run(read, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["20250824T163625123Z_0001_user.json"]


def test_a_closed_store_takes_nothing(tmp_path: Path) -> None:
    async def use() -> None:
        async with open_files(tmp_path) as store:
            pass
        await store.read(WHERE)

    with pytest.raises(StoreError, match="closed"):
        anyio.run(use)


def test_a_system_without_locks_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(StoreError, match="SQLite"):
        anyio.run(read, tmp_path)
