"""A PostgreSQL server that is killed, with all its processes, while others write to it.

Writers send a group again, with the same idempotency key, until it is acknowledged. What was acknowledged is
there afterwards, once; what was not is there or not, and the key decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import Random

import anyio

from lamina.errors import Broken
from tests.servers.postgres import Server
from tests.torture.children import Child, failure, forked
from tests.torture.outcome import Outcome, Tally
from tests.torture.telling import Telling

WRITERS = 4
LATEST = 0.5
NEVER = 120.0
"""Seconds after which a group that is not acknowledged never will be."""


def server_kills(telling: Callable[[], Telling], server: Server, count: int, *, seed: int = 0) -> Outcome:
    """Kill the server so many times under the same writers."""
    tally, dice = Tally("server killed"), Random(seed)  # noqa: S311
    tellings = [telling() for _ in range(WRITERS)]
    anyio.run(_made, tellings[0])
    writers = [_writer(each) for each in tellings]
    for writer in writers:
        writer.first()
    try:
        for _ in range(count):
            time.sleep(dice.random() * LATEST)
            server.kill()
            server.start()
            tally.tries += 1
        time.sleep(LATEST)
    finally:
        for writer in writers:
            writer.kill()
        said = [writer.said() for writer in writers]
    for each, lines in zip(tellings, said, strict=True):
        _after(each, lines, tally)
    return tally.outcome()


async def _made(telling: Telling) -> None:
    async with telling.open("") as store:
        await store.list(telling.workspace)


def _writer(telling: Telling) -> Child:
    async def write(acknowledge: Callable[[int], None]) -> None:
        async with telling.open("") as store:
            number = 0
            while True:
                with anyio.fail_after(NEVER):
                    while True:
                        try:
                            await telling.tell(store, number)
                        except Broken:
                            await anyio.sleep(0.05)
                        else:
                            break
                acknowledge(number)
                number += 1

    return forked(lambda say: anyio.run(write, lambda number: say(str(number))))


def _after(telling: Telling, lines: Sequence[str], tally: Tally) -> None:
    tally.acknowledged += len(lines)
    try:
        assert not failure(lines), failure(lines)
        telling.check("", len(lines))
    except Exception as error:  # noqa: BLE001 - whatever it is, the store does not hold
        tally.broken("after the kills", error)
