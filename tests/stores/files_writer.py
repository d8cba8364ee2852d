"""Processes that write to a store in files, for tests: they import no pytest, so that they start soon."""

from __future__ import annotations

import itertools
import os
import sys
import traceback

import anyio

from lamina.stores.files import open_files
from lamina.stores.port import Once, Where
from lamina.testing._store_races import append_until_accepted, make_turn

WHERE = Where("w", "c")


async def append_for_ever(folder: str, start: int) -> None:
    """Groups of three; each is told when it was acknowledged."""
    async with open_files(folder) as store:
        for number in itertools.count(start):
            group = [b"%d/%d" % (number, part) for part in range(3)]
            await store.append(WHERE, group, once=Once(key=str(number), digest=b"d"), state=b"%d" % number)
            os.write(1, b"%d\n" % number)


async def write_turns(folder: str, writer: int, turns: int) -> None:
    async with open_files(folder) as store:
        for number in range(turns):
            await append_until_accepted(store, WHERE, make_turn(writer, number), f"{writer}/{number}")


def fork_all(folder: str, writers: int, turns: int) -> int:
    """Run the writers; how many of them failed."""
    children = []
    for writer in range(writers):
        if not (child := os.fork()):
            try:
                anyio.run(write_turns, folder, writer, turns)
            except BaseException:  # noqa: BLE001 - a fork ends here, whatever happened
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


if __name__ == "__main__":
    if sys.argv[1] == "turns":
        sys.exit(fork_all(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
    else:
        anyio.run(append_for_ever, sys.argv[2], int(sys.argv[3]))
