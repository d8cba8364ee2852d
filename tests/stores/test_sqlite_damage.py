"""A damaged file: whatever byte of its first page is another, what is raised is lamina's own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import anyio

from lamina.errors import LaminaError
from lamina.stores.port import Where
from lamina.stores.sqlite import open_sqlite

WHERE = Where("w", "c")
PAGE = 4096


async def _tried(whole: bytes, folder: Path, *, step: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for at in range(100, PAGE, step):
        path = folder / f"{at}.db"
        await anyio.Path(path).write_bytes(whole[:at] + bytes([whole[at] ^ 0xA5]) + whole[at + 1 :])
        try:
            async with open_sqlite(path) as store:
                await store.read(WHERE)
                await store.append(WHERE, [b"y"])
            found["nothing"] += 1
        except LaminaError:
            found["typed"] += 1
    return found


def test_a_damaged_file_is_told_in_our_own_words(tmp_path: Path) -> None:
    async def trial() -> Counter[str]:
        async with open_sqlite(tmp_path / "whole.db") as store:
            for _ in range(20):
                await store.append(WHERE, [b"x" * 300])
        return await _tried(await anyio.Path(tmp_path / "whole.db").read_bytes(), tmp_path, step=61)

    found = anyio.run(trial)
    assert found["typed"] > 5
