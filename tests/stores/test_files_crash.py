"""Whatever is cut short leaves a conversation as it was before or after, and nothing in between."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import anyio
import pytest

from lamina.errors import Broken
from lamina.stores.files import FilesStore, open_files
from lamina.stores.files.disk import is_record_file
from lamina.stores.port import Once, RecordPage, StoredHead, Where
from lamina.testing._store_races import check_linear
from tests.stores.files_disk import Cache, Died, at_call, in_memory

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
    for number in itertools.count(1, STEP):
        folder, acknowledged = tmp_path / str(number), [RecordPage()]
        folder.mkdir()
        cache = Cache(folder)
        with cache.watching(), at_call(number, Died) as calls, suppress(Died):
            anyio.run(works, folder, acknowledged)
        for cut in range(CUTS):
            after = tmp_path / f"{number}-{cut}"
            cache.cut(after, Random(1000 * number + cut))  # noqa: S311
            page = anyio.run(reread, after)
            assert page == acknowledged[-1] or is_next(page, acknowledged[-1]), (number, cut)
            assert stray(after, page) == [], (number, cut)
        if len(calls) < number:
            break
    assert number > 100


STEP, CUTS = 3, 3
"""Every so many calls, and how often the power fails there."""


async def works(folder: Path, acknowledged: list[RecordPage]) -> None:
    """Appends and replacements, and what was there after each."""
    async with open_files(folder) as store:
        for turns in range(3):
            once = Once(key=str(turns), digest=b"d")
            await store.append(WHERE, [b"{}", b"a%d" % turns], once=once, state=b"a%d" % turns)
            acknowledged.append(await store.read(WHERE))
            await store.replace(WHERE, {0: b"%d" % turns}, expect=2 * turns + 2, state=b"r%d" % turns)
            acknowledged.append(await store.read(WHERE))


def is_next(page: RecordPage, least: RecordPage) -> bool:
    """What was under way may have happened, wholly."""
    turns = least.head.count // 2
    bodies, before = ([record.body for record in each.records] for each in (page, least))
    if least.head.state.startswith(b"a"):
        return bodies == [b"%d" % (turns - 1), *before[1:]] and page.head.state == b"r%d" % (turns - 1)
    return bodies == [*before, b"{}", b"a%d" % turns] and page.head.state == b"a%d" % turns


def child(*words: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(Path(__file__).with_name("files_writer.py")), *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def test_what_was_acknowledged_before_kill_9_is_there(tmp_path: Path) -> None:
    dice, number = Random(3), 0  # noqa: S311
    for _ in range(3):
        with child("for-ever", tmp_path, number) as process:
            assert process.stdout is not None
            last = int(process.stdout.readline())
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=dice.uniform(0, 0.1))
            process.send_signal(signal.SIGKILL)
            last = max([last, *map(int, process.stdout.read().split(b"\n")[:-1])])
        page = anyio.run(reread, tmp_path)
        number = len(page.records) // 3
        assert last < number <= last + 2
        assert [record.body for record in page.records] == [
            b"%d/%d" % (each, part) for each in range(number) for part in range(3)
        ]
        assert page.head.state == b"%d" % (number - 1)


def test_processes_make_one_history(tmp_path: Path) -> None:
    with child("turns", tmp_path / "new", 8, 10) as process:
        assert process.wait(timeout=300) == 0
    check_linear(anyio.run(reread, tmp_path / "new"), writers=8, turns=10)
