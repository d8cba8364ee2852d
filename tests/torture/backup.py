"""Backups while others write: each copy opens, is one moment, and holds what was acknowledged before it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from lamina.stores import Store
from tests.torture.children import Say, failure, forked
from tests.torture.outcome import Outcome, Tally
from tests.torture.telling import Telling

Backup = Callable[[Store, str], Awaitable[None]]
"""Copies a store into a folder in which it can be opened again."""

PAUSE = 0.02


def backups(
    telling: Callable[[], Telling], backup: Backup, count: int, *, within: str | None = None
) -> Outcome:
    """So many copies, one after the other, beside a writer."""
    tally = Tally("backup under load")
    with TemporaryDirectory(prefix="torture-", dir=within, ignore_cleanup_errors=True) as folder:
        subject, live = telling(), Path(folder) / "live"
        live.mkdir()
        (Path(folder) / "told").write_text("0")
        writer = forked(lambda say: _write(subject, folder, say))
        writer.first()
        try:
            for number in range(count):
                tally.tries += 1
                try:
                    anyio.run(_copied, subject, backup, folder, number)
                except Exception as error:  # noqa: BLE001 - whatever it is, the store does not hold
                    tally.broken(f"copy {number}", error)
        finally:
            writer.kill()
        lines = writer.said()
        tally.acknowledged = len(lines)
        if words := failure(lines):
            tally.broken("the writer", AssertionError(words))
    return tally.outcome()


def _write(telling: Telling, folder: str, say: Say) -> None:
    def acknowledge(number: int) -> None:
        new = Path(folder, "told.new")
        new.write_text(str(number + 1))
        new.replace(Path(folder, "told"))
        say(str(number))

    telling.write(f"{folder}/live", acknowledge, start=0)


async def _copied(telling: Telling, backup: Backup, folder: str, number: int) -> None:
    copy, told = Path(folder) / f"copy-{number}", Path(folder) / "told"
    copy.mkdir()
    await anyio.sleep(PAUSE)
    before = int(told.read_text())
    async with telling.open(f"{folder}/live") as store:
        await backup(store, str(copy))
    async with telling.open(str(copy)) as store:
        there = await telling.told(store)
    after = int(told.read_text())
    assert before <= there <= after + 1, f"{there} groups in a copy made between group {before} and {after}"
