"""Whatever is cut short leaves a conversation as it was before or after, and nothing in between."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import anyio
import pytest

from lamina.errors import Broken
from lamina.stores import FilesStore, Once, RecordPage, StoredHead, Where, open_files
from lamina.stores.files.disk import is_record_file
from tests.stores.files_disk import Died, at_call, in_memory
from tests.torture import shim
from tests.torture.children import Say, failure
from tests.torture.medium import Journal

WHERE = Where("w", "c")
ONCE = Once(key="turn", digest=b"d")

Write = Callable[[FilesStore], Awaitable[object]]

APPEND: Write = lambda store: store.append(WHERE, [b"b", b"{}"], expect=1, once=ONCE, state=b"2")  # noqa: E731
REPLACE: Write = lambda store: store.replace(WHERE, {0: b"B"}, expect=1, state=b"3")  # noqa: E731
DELETE: Write = lambda store: store.delete(WHERE)  # noqa: E731
WRITES = pytest.mark.parametrize("write", [APPEND, REPLACE, DELETE], ids=["append", "replace", "delete"])


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with TemporaryDirectory(dir=in_memory(), prefix="files-") as folder:
        yield Path(folder)


async def begun(folder: Path) -> RecordPage:
    """A conversation with one record, in the clear, so that replacing it gives its file another name."""
    async with open_files(folder) as store:
        await store.append(WHERE, [b'{"v":1,"segment":{"role":"user"}}'], state=b"1")
        return await store.read(WHERE)


async def afterwards(folder: Path, write: Write) -> RecordPage:
    await begun(folder)
    async with open_files(folder) as store:
        await write(store)
        return await store.read(WHERE)


async def reread(folder: Path) -> RecordPage:
    async with open_files(folder) as store:
        return await store.read(WHERE)


def stray(folder: Path, page: RecordPage) -> list[str]:
    """Files that belong to nothing, after the next append has swept."""

    async def swept() -> None:
        async with open_files(folder) as store:
            await store.append(WHERE, [b"z"], expect=page.head.count)

    anyio.run(swept)
    there = [path.name for path in (folder / "w" / "c").iterdir()]
    sheets = [name for name in there if is_record_file(name)]
    assert len(sheets) == page.head.count + 1
    return [name for name in there if name.endswith((".tmp", ".new")) or name == ".begun"]


@WRITES
def test_a_process_that_dies_at_any_call_leaves_before_or_after(tmp_path: Path, write: Write) -> None:
    after = anyio.run(afterwards, tmp_path / "after", write)
    seen = set()
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        before = anyio.run(begun, folder)

        async def dies(folder: Path = folder, number: int = number) -> list[str]:
            async with open_files(folder) as store:
                with at_call(number, Died) as calls, suppress(Died):
                    await write(store)
                return calls

        calls = anyio.run(dies)
        page = anyio.run(reread, folder)
        assert page in (before, after), number
        seen.add(page == after)
        assert stray(folder, page) == [], number
        if len(calls) < number:
            break
    assert seen == {False, True}
    assert page == after


@pytest.mark.parametrize("times", ["once", "for ever"])
@WRITES
def test_a_failing_disk_is_an_error_and_nothing_more_is_taken(
    tmp_path: Path, write: Write, times: str
) -> None:
    after = anyio.run(afterwards, tmp_path / "after", write)
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        before = anyio.run(begun, folder)

        async def fails(folder: Path = folder, number: int = number) -> bool:
            async with open_files(folder) as store:
                full, once = (lambda: OSError(28, "No space left on device")), times == "once"
                with at_call(number, full, once=once) as calls, suppress(Broken):
                    await write(store)
                if len(calls) < number:
                    return False
                for call in (write(store), store.read(WHERE), store.append(WHERE, [b"x"])):
                    with pytest.raises(Broken, match="No space left"):
                        await call
                return True

        failed = anyio.run(fails)
        assert anyio.run(reread, folder) in ((before, after) if failed else (after,)), number
        if not failed:
            break
    assert number > 5


def test_a_retried_turn_is_kept_once_wherever_the_first_try_died(tmp_path: Path) -> None:
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        anyio.run(begun, folder)

        async def tries(folder: Path = folder, number: int = number) -> tuple[StoredHead, RecordPage, int]:
            async with open_files(folder) as store:
                with at_call(number, Died) as calls, suppress(Died):
                    await APPEND(store)
            async with open_files(folder) as store:
                head = await store.append(WHERE, [b"b", b"{}"], expect=1, once=ONCE, state=b"2")
                return head, await store.read(WHERE), len(calls)

        head, page, calls = anyio.run(tries)
        assert head == page.head == StoredHead(count=3, state=b"2")
        if calls < number:
            break


def test_a_power_cut_at_any_call_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    pages: list[RecordPage] = [RecordPage()]

    async def keep(store: FilesStore) -> None:
        pages.append(await store.read(WHERE))

    anyio.run(works, tmp_path / "whole", keep)
    live = tmp_path / "live"
    live.mkdir()

    def work(say: Say) -> None:
        async def tell(_: FilesStore) -> None:
            say("0")

        anyio.run(works, live, tell)

    calls, said = shim.recorded(work, str(live))
    assert not failure(said)
    journal = Journal(str(live), calls)
    assert journal.acknowledged(len(journal)) == len(pages) - 1
    for cut in range(0, len(journal) + 1, STEP):
        acknowledged = journal.acknowledged(cut)
        for number in range(CUTS):
            after = tmp_path / f"{cut}-{number}"
            journal.lay_out(cut, Random(1000 * cut + number), after)  # noqa: S311
            page = anyio.run(reread, after)
            assert page in pages[acknowledged : acknowledged + 2], (cut, number)
            assert stray(after, page) == [], (cut, number)


STEP, CUTS = 3, 3
"""Every so many calls, and how often the power fails there."""


async def works(folder: Path, acknowledge: Callable[[FilesStore], Awaitable[None]]) -> None:
    """Appends and replacements, each of which is acknowledged."""
    async with open_files(folder) as store:
        for turns in range(3):
            once = Once(key=str(turns), digest=b"d")
            await store.append(WHERE, [b"{}", b"a%d" % turns], once=once, state=b"a%d" % turns)
            await acknowledge(store)
            await store.replace(WHERE, {0: b"%d" % turns}, expect=2 * turns + 2, state=b"r%d" % turns)
            await acknowledge(store)
