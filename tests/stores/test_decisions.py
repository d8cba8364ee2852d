"""Single decisions of the stores: which places, addresses and files they take."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lamina.errors import BadInput
from lamina.stores import Where, open_store
from lamina.stores.port import Measurable
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
