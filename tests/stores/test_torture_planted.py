"""The kit itself: stores with one fault each, which it has to find."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from lamina.errors import LaminaError, Reused, Tampered
from lamina.stores import Record, RecordPage, Store, StoredHead, Where, open_files, open_sqlite
from lamina.stores import checksums as checks
from lamina.stores.files import disk as files_disk
from lamina.stores.sealed import Sealed
from lamina.stores.sqlite import connections
from lamina.stores.sqlite import writer as sqlite_writer
from tests.torture import shim, strace
from tests.torture.clock import clock
from tests.torture.damage import damage
from tests.torture.erasure import erasure
from tests.torture.failing import failing
from tests.torture.kill import kills
from tests.torture.outcome import Outcome
from tests.torture.powercut import cuts
from tests.torture.tamper import tamper
from tests.torture.telling import OpenStore, Telling
from tests.torture.writers import writers

pytestmark = pytest.mark.filterwarnings("ignore::lamina.stores.sqlite.WalResetRisk")

TRIES = 8
straced = pytest.mark.skipif(not strace.usable(), reason="there is no strace that may look")


@asynccontextmanager
async def sqlite(folder: str) -> AsyncIterator[Store]:
    async with open_sqlite(Path(folder) / "chats.db") as store:
        yield store


@asynccontextmanager
async def files(folder: str) -> AsyncIterator[Store]:
    async with open_files(folder) as store:
        yield store


class Passing:
    """A store that passes everything on; the faulty ones differ in one method."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        return await self.store.append(where, records, **arguments)

    async def read(self, where: Where, **arguments: Any) -> RecordPage:
        return await self.store.read(where, **arguments)

    async def list(self, workspace: str, **arguments: Any) -> Any:
        return await self.store.list(workspace, **arguments)

    async def delete(self, where: Where) -> bool:
        return await self.store.delete(where)


class Splits(Passing):
    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        for record in records[:-1]:
            await self.store.append(where, [record])
            await anyio.sleep(0.005)
        arguments["expect"] = None
        return await self.store.append(where, records[-1:], **arguments)


class AnswersEarly(Passing):
    """Writes a group when the next one comes."""

    late: Callable[[], Any] | None = None

    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        if self.late is not None:
            await self.late()
        self.late = partial(self.store.append, where, records, **arguments)
        return StoredHead(count=(arguments["expect"] or 0) + len(records), state=arguments["state"])


class ForgetsKeys(Passing):
    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        return await self.store.append(
            where, records, **{**arguments, "once": None, "expect": None, "was": None}
        )


class ForgetsState(Passing):
    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        head = await self.store.append(where, records, **{**arguments, "state": None, "was": None})
        return StoredHead(count=head.count, state=arguments["state"])


class NeverFails(Passing):
    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        try:
            return await self.store.append(where, records, **arguments)
        except Reused:
            raise
        except LaminaError:
            count = (arguments.get("expect") or 0) + len(records)
            return StoredHead(count=count, state=arguments.get("state", b""))


class FailsRaw(Passing):
    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        try:
            return await self.store.append(where, records, **arguments)
        except LaminaError as error:
            raise RuntimeError(str(error)) from None


class NoCompareAndSwap(Passing):
    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        there = (await self.store.read(where, last=0)).head.count
        if arguments["expect"] != there:
            return await self.store.append(where, records, **arguments)
        await anyio.sleep(0.005)
        return await self.store.append(where, records, **{**arguments, "expect": None})


class OrdersByTime(Passing):
    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        stamped = [b"%020d " % (time.time_ns() + 10**19) + record for record in records]
        return await self.store.append(where, stamped, **arguments)

    async def read(self, where: Where, **arguments: Any) -> RecordPage:
        page = await self.store.read(where, **arguments)
        bodies = [body[21:] for body in sorted(record.body for record in page.records)]
        numbered = zip(page.records, bodies, strict=True)
        return RecordPage(records=tuple(Record(seq=r.seq, body=body) for r, body in numbered), head=page.head)


class NoSync:
    """The functions of `os`, of which one does nothing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, _: int) -> None:
        """Not synced."""


def faulty(kind: type[Passing], within: OpenStore) -> OpenStore:
    @asynccontextmanager
    async def opened(folder: str) -> AsyncIterator[Store]:
        async with within(folder) as store:
            yield kind(store)

    return opened


def _finds(outcome: Outcome, words: str) -> None:
    assert any(words in violation for violation in outcome.violations), outcome


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Splits, "half a group"),
        (AnswersEarly, "were acknowledged"),
        (ForgetsKeys, "a retry was answered with"),
        (ForgetsState, "the state is not that of group"),
    ],
)
def test_a_kill_shows(kind: type[Passing], words: str) -> None:
    for tries in (2, TRIES):  # the second is the first kill after an acknowledged group
        outcome = kills(lambda: Telling(faulty(kind, files)), tries)
        if any(words in violation for violation in outcome.violations):
            break
    _finds(outcome, words)


def test_a_cut_shows_files_that_are_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_disk, "os", NoSync())
    _finds(cuts(lambda: Telling(files), TRIES, shim.recorded), "")


def test_a_cut_shows_folders_that_are_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (
        "lamina.stores.files.conversation",
        "lamina.stores.files.store",
        "lamina.stores.files.disk",
    ):
        monkeypatch.setattr(f"{module}.sync_folder", lambda _: None)
    _finds(cuts(lambda: Telling(files), TRIES, shim.recorded), "")


@straced
@pytest.mark.parametrize("synchronous", [0, 1])
def test_a_cut_shows_a_database_that_does_not_wait(monkeypatch: pytest.MonkeyPatch, synchronous: int) -> None:
    monkeypatch.setitem(connections.SETTINGS, "synchronous", synchronous)
    _finds(cuts(lambda: Telling(sqlite), TRIES, strace.recorded), "were acknowledged")


@pytest.mark.parametrize(("kind", "words"), [(NeverFails, "were acknowledged"), (FailsRaw, "RuntimeError")])
def test_a_failing_disk_shows(kind: type[Passing], words: str) -> None:
    _finds(failing(lambda: Telling(faulty(kind, files)), step=7, most=22, turns=2), words)


def test_writers_show_that_nobody_compares() -> None:
    outcome = writers(faulty(NoCompareAndSwap, sqlite), 4, 12, own=False)
    _finds(outcome, "behind another than the one that was expected")


def test_a_stepping_clock_shows_order_by_time() -> None:
    _finds(clock(lambda: Telling(faulty(OrdersByTime, sqlite))), "is not what was written")


def test_a_byte_scan_shows_what_was_only_unlinked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.SETTINGS, "secure_delete", 0)
    monkeypatch.setattr(sqlite_writer.Writer, "_scrub", lambda *_, **__: None)
    _finds(erasure(sqlite, 2), "still in the files")


def test_a_lie_shows_what_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Sealed.read

    async def forgiving(self: Sealed, where: Where, **arguments: Any) -> RecordPage:
        try:
            return await real(self, where, **arguments)
        except Tampered:
            return RecordPage()

    monkeypatch.setattr(Sealed, "read", forgiving)
    _finds(tamper(files, 10), "as if they were genuine")


def test_sums_that_are_always_the_same_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that keeps sums and could not tell one from another."""
    monkeypatch.setattr(checks, "zlib", SimpleNamespace(crc32=lambda *_: 0))
    assert any(damage(sqlite, blows).violations for blows in (14, 42))
