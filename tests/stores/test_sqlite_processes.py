"""Eight processes at one file. They are forks of this script, which imports no pytest: so they start soon."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
import warnings
from collections import Counter
from pathlib import Path

import anyio

from lamina.stores.port import RecordPage, Where
from lamina.stores.sqlite import WalResetRisk, open_sqlite
from lamina.testing._store_races import append_until_accepted, check_linear, make_turn

WRITERS, TURNS = 8, 12


async def write(path: str, writer: int, conversations: int) -> None:
    """The turns of one writer: all in one conversation, or spread over several."""
    async with open_sqlite(path) as store:
        for number in range(TURNS):
            for name in {f"c{(writer + each) % conversations}" for each in range(2)}:
                await append_until_accepted(
                    store, Where("w", name), make_turn(writer, number), f"{writer}/{number}"
                )


def written(path: Path, *, conversations: int) -> dict[str, RecordPage]:
    """What stands in the file after eight processes, which began with no file, wrote to it at once."""
    command = [sys.executable, "-W", "ignore", __file__, str(path), str(conversations)]
    subprocess.run(command, check=True, timeout=300)

    async def read() -> dict[str, RecordPage]:
        async with open_sqlite(path) as store:
            return {
                one.conversation: await store.read(Where("w", one.conversation))
                for one in await store.list("w")
            }

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WalResetRisk)
        return anyio.run(read)


def test_processes_make_one_history(tmp_path: Path) -> None:
    pages = written(tmp_path / "chats.db", conversations=1)
    check_linear(pages["c0"], writers=WRITERS, turns=TURNS)


def test_processes_do_not_mix_conversations(tmp_path: Path) -> None:
    pages = written(tmp_path / "chats.db", conversations=WRITERS)
    assert len(pages) == WRITERS
    groups = Counter(record.body.rpartition(b"/")[0] for page in pages.values() for record in page.records)
    lengths = {
        b"%d/%d" % (who, number): 2 * len(make_turn(who, number))
        for who in range(WRITERS)
        for number in range(TURNS)
    }
    assert groups == lengths
    for page in pages.values():
        bodies = [record.body for record in page.records]
        assert all(
            make_turn(*who) == bodies[at : at + len(make_turn(*who))] for at, who in first_parts(bodies)
        )
        assert page.head.state == str(page.head.count).encode()


def first_parts(bodies: list[bytes]) -> list[tuple[int, tuple[int, int]]]:
    words = [body.decode().split("/") for body in bodies]
    return [(at, (int(who), int(number))) for at, (who, number, part) in enumerate(words) if part == "0"]


def fork_all(path: str, conversations: int) -> int:
    """Run the writers; how many of them failed."""
    children = []
    for writer in range(WRITERS):
        if not (child := os.fork()):
            try:
                anyio.run(write, path, writer, conversations)
            except BaseException:  # noqa: BLE001 - a fork ends here, whatever happened
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


if __name__ == "__main__":
    sys.exit(fork_all(sys.argv[1], int(sys.argv[2])))
