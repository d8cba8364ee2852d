"""A store in a thread of its own: nobody waits for it in vain, and a forked process opens it again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from lamina.errors import BadInput
from lamina.stores import Store, open_store
from lamina.stores.store_thread import StoreThread

FORKED = """
import os, sys
from lamina.stores.port import Where
from lamina.stores.store_thread import StoreThread

PLACE = Where("w", "c")

async def append(store, text):
    await store.append(PLACE, [text.encode()])

async def read(store):
    page = await store.read(PLACE)
    return [record.body.decode() for record in page.records]

store = StoreThread(sys.argv[1])
store.run(append, "parent")
child = os.fork()
if child == 0:
    store.run(append, "child")
    sys.exit()
_, status = os.waitpid(child, 0)
store.run(append, "parent again")
print(status, store.run(read))
"""


async def wait_a_little(_: Store, answer: str) -> str:
    await anyio.sleep(0.001)
    return answer


def test_a_forked_process_opens_the_store_again(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKED, str(tmp_path / "chats.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "0 ['parent', 'child', 'parent again']\n", done.stderr


def test_a_closed_store_says_so() -> None:
    store = StoreThread("memory:")
    store.close()
    store.close()
    with pytest.raises(BadInput, match="the store is closed"):
        store.run(wait_a_little, "late")


def test_a_store_that_cannot_be_opened_says_why() -> None:
    with pytest.raises(BadInput, match="nowhere"):
        StoreThread("nowhere://chats")


@asynccontextmanager
async def open_breaking(broken: anyio.Event) -> AsyncIterator[Store]:
    """A store with a task of its own, which fails when `broken` is set."""

    async def fail() -> None:
        await broken.wait()
        raise OSError("the disk is gone")

    async with anyio.create_task_group() as tasks, open_store("memory:") as store:
        tasks.start_soon(fail)
        yield store


def test_whoever_waits_is_told_that_the_store_broke(caplog: pytest.LogCaptureFixture) -> None:
    broken = anyio.Event()
    store = StoreThread(partial(open_breaking, broken))

    async def wait_for_ever(_: Store) -> None:
        broken.set()
        await anyio.sleep_forever()

    with pytest.raises(BadInput, match="the store is closed"):
        store.run(wait_for_ever)
    assert "the disk is gone" in caplog.text


@pytest.mark.parametrize("turn", range(20))
def test_whoever_calls_while_another_closes_is_answered_or_told(turn: int) -> None:
    store = StoreThread("memory:")

    def call(number: int) -> str:
        try:
            return store.run(wait_a_little, f"{turn} {number}")
        except BadInput as error:
            return str(error)

    with ThreadPoolExecutor(8) as callers:
        answers = [callers.submit(call, number) for number in range(40)]
        callers.submit(store.close)
        later = [callers.submit(call, number) for number in range(40, 80)]
    expected = [{f"{turn} {number}", "store: the store is closed; open it again"} for number in range(80)]
    assert all(answer.result() in allowed for answer, allowed in zip(answers + later, expected, strict=True))
