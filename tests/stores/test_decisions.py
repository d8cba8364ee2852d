"""Single decisions of the stores: which places, addresses and files they take."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec
import pytest

from lamina.errors import BadInput, Tampered
from lamina.stores import Where, open_store
from lamina.stores.port import Measurable
from lamina.stores.sealed import Cost, Passphrase, generate
from lamina.stores.sealed.documents import Header, encode_document, new_header, parse_document
from lamina.stores.sealed.keys import SCRYPT, Derivation, derive
from lamina.stores.sqlite.store import can_write
from tests.sessions.talking import awaited

WHERE = Where(workspace="team", conversation="talk")


@awaited
async def test_a_size_is_the_bytes_of_the_records_and_the_state(tmp_path: Path) -> None:
    async with open_store(f"sqlite:{tmp_path / 'chats.db'}") as store:
        assert isinstance(store, Measurable)
        assert await store.sizes("team") == {}
        await store.append(WHERE, [b"one", b"three"], state=b"four")
        await store.append(Where(workspace="team", conversation="other"), [b"x" * 50])
        await store.append(Where(workspace="others", conversation="talk"), [b"x" * 500])
        assert await store.sizes("team") == {"talk": 12, "other": 50}


@pytest.mark.parametrize(
    ("field", "least", "most"), [("memory", 19_456, 1_048_576), ("passes", 2, 64), ("lanes", 1, 16)]
)
def test_a_guess_costs_enough_and_not_too_much(field: str, least: int, most: int) -> None:
    for fine in (least, most):
        assert getattr(Cost(**{field: fine}), field) == fine
    for wrong in (least - 1, most + 1):
        with pytest.raises(BadInput, match="passes"):
            Cost(**{field: wrong})


@pytest.mark.parametrize("address", ["ab:chats.db", "zz:"])
@awaited
async def test_two_letters_before_a_colon_are_no_drive(address: str) -> None:
    with pytest.raises(BadInput, match="no kind of store"):
        async with open_store(address):
            pass


@pytest.mark.parametrize(
    ("writable", "expected"),
    [({"file", "folder"}, True), ({"file"}, False), ({"folder"}, False), (set(), False)],
)
def test_a_file_is_written_only_if_its_folder_takes_a_log(
    writable: set[str], *, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rights are made up, since the superuser may write everywhere."""

    def access(path: str | Path, mode: int) -> bool:
        assert mode == os.W_OK
        return ("folder" if Path(path) == tmp_path else "file") in writable

    monkeypatch.setattr(os, "access", access)
    assert can_write(str(tmp_path / "chats.db")) is expected


@pytest.mark.parametrize(("memory", "n"), [(19_456, 1 << 14), (32_767, 1 << 14), (32_768, 1 << 15)])
def test_a_key_of_scrypt_is_derived_as_every_release_derives_it(memory: int, n: int) -> None:
    """Otherwise nothing that was sealed before could be opened."""
    salt = bytes(range(16))
    how = Derivation(method=SCRYPT, salt=salt, cost=Cost(memory=memory))
    key = derive(Passphrase("open sesame, and then some"), how)
    expected = hashlib.scrypt(
        b"open sesame, and then some", salt=salt, n=n, r=8, p=1, maxmem=1 << 27, dklen=32
    )
    assert key.secret == expected


@pytest.mark.parametrize(("version", "advice"), [(2, "update lamina"), (0, "export it")])
def test_a_sealed_store_of_another_version_says_what_to_do(version: int, advice: str) -> None:
    header, _ = new_header(generate(), names="hashed", how=None)
    state = encode_document(msgspec.structs.replace(header, format=version))
    with pytest.raises(Tampered, match=f"the header has format {version}; .*{advice}"):
        parse_document(state, Header, header.change)


@pytest.mark.parametrize("folder", ["new", "new/and/deep", "empty"])
@awaited
async def test_files_are_kept_in_a_new_folder_at_any_depth_or_in_an_empty_one(
    folder: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    for expected in ([], [b"one"]):  # the second time it is a store already
        async with open_store(f"files:{tmp_path / folder}") as store:
            page = await store.read(WHERE)
            assert [record.body for record in page.records] == expected
            if not expected:
                await store.append(WHERE, [b"one"], expect=0)
