"""Single decisions of the stores: which places, addresses and files they take."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from lamina.errors import BadInput
from lamina.stores import MemoryStore, Where
from lamina.stores.address import open_store
from lamina.stores.sqlite.readers import can_write
from tests.sessions.talking import awaited

WHERE = Where(workspace="team", conversation="talk")


@awaited
async def test_a_place_is_a_whole_number_from_0_on() -> None:
    store = MemoryStore()
    await store.append(WHERE, [b"one", b"two", b"three"], expect=0)
    page = await store.read(WHERE, at=[0, 2])
    assert [record.body for record in page.records] == [b"one", b"three"]
    wrong: Any
    for wrong in ("1", 1.5, None):
        with pytest.raises(BadInput, match="whole number"):
            await store.read(WHERE, at=[wrong])
    with pytest.raises(BadInput, match="count from 0"):
        await store.read(WHERE, at=[-1])


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
