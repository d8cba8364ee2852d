"""Eight processes at one database: forks of this script, which imports no pytest, so that they start soon."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections import Counter
from pathlib import Path

import anyio

from lamina.stores.port import RecordPage, Where
from lamina.stores.postgres import open_postgres
from lamina.testing._store_races import append_until_accepted, check_linear, make_turn
from tests.servers.postgres import shared

ROOT = Path(__file__).resolve().parent.parent.parent
WRITERS, TURNS = 8, 10


async def write(url: str, schema: str, writer: int, conversations: int) -> None:
    """The turns of one writer: all in one conversation, or spread over several."""
    async with open_postgres(url, schema=schema, connections=2) as store:
        for number in range(TURNS):
            for name in {f"c{(writer + each) % conversations}" for each in range(2)}:
                await append_until_accepted(
                    store, Where("w", name), make_turn(writer, number), f"{writer}/{number}"
                )


def written(schema: str, *, conversations: int) -> dict[str, RecordPage]:
    """What stands there after eight processes, which began without tables, wrote at once."""
    url = shared().url
    command = [sys.executable, "-m", "tests.stores.test_postgres_processes", url, schema, str(conversations)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300)

    async def read() -> dict[str, RecordPage]:
        async with open_postgres(url, schema=schema) as store:
            names = [one.conversation for one in await store.list("w")]
            return {name: await store.read(Where("w", name)) for name in names}

    return anyio.run(read)


def test_processes_make_one_history() -> None:
    pages = written("one history", conversations=1)
    check_linear(pages["c0"], writers=WRITERS, turns=TURNS)


def test_processes_do_not_mix_conversations() -> None:
    pages = written("many", conversations=WRITERS)
    assert len(pages) == WRITERS
    groups = Counter(record.body.rpartition(b"/")[0] for page in pages.values() for record in page.records)
    writes = [(who, number) for who in range(WRITERS) for number in range(TURNS)]
    assert groups == {b"%d/%d" % write: 2 * len(make_turn(*write)) for write in writes}
    for page in pages.values():
        bodies = [record.body for record in page.records]
        starts = [at for at, body in enumerate(bodies) if body.endswith(b"/0")]
        for at in starts:
            group = make_turn(*(int(word) for word in bodies[at].decode().split("/")[:2]))
            assert bodies[at : at + len(group)] == group
        assert page.head.state == str(page.head.count).encode()


def fork_all(url: str, schema: str, conversations: int) -> int:
    """Run the writers; how many of them failed."""
    children = []
    for writer in range(WRITERS):
        if not (child := os.fork()):
            try:
                anyio.run(write, url, schema, writer, conversations)
            except BaseException:  # noqa: BLE001 - a fork ends here, whatever happened
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


if __name__ == "__main__":
    sys.exit(fork_all(sys.argv[1], sys.argv[2], int(sys.argv[3])))
