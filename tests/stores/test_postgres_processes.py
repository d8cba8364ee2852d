"""Eight processes at one database. Each is this file as a script, without pytest, so that it starts soon."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import anyio

from lamina.stores.port import Page, Where
from lamina.stores.postgres import open_postgres
from lamina.testing.postgres import shared
from lamina.testing.store_races import check_linear, retried, turn

WRITERS, TURNS = 8, 10


async def write(url: str, schema: str, writer: int, conversations: int) -> None:
    """The turns of one writer: all in one conversation, or spread over several."""
    async with open_postgres(url, schema=schema, connections=2) as store:
        for number in range(TURNS):
            for name in {f"c{(writer + each) % conversations}" for each in range(2)}:
                await retried(store, Where("w", name), turn(writer, number), f"{writer}/{number}")


def written(schema: str, *, conversations: int) -> dict[str, Page]:
    """What stands there after eight processes, which began without tables, wrote at once."""
    url = shared().url
    command = [sys.executable, __file__, url, schema]
    children = [subprocess.Popen([*command, str(who), str(conversations)]) for who in range(WRITERS)]
    assert [child.wait(timeout=300) for child in children] == [0] * WRITERS

    async def read() -> dict[str, Page]:
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
    assert groups == {b"%d/%d" % write: 2 * len(turn(*write)) for write in writes}
    for page in pages.values():
        bodies = [record.body for record in page.records]
        starts = [at for at, body in enumerate(bodies) if body.endswith(b"/0")]
        for at in starts:
            group = turn(*(int(word) for word in bodies[at].decode().split("/")[:2]))
            assert bodies[at : at + len(group)] == group
        assert page.head.state == str(page.head.count).encode()


if __name__ == "__main__":
    anyio.run(write, sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
