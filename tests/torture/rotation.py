"""Keys change while others write: nobody is refused, nothing is lost, and old keys open nothing any more."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from tempfile import TemporaryDirectory

import anyio

from lamina.errors import StoreError, WrongKey
from lamina.stores.sealed import (
    Key,
    Sealed,
    add_key,
    conversations,
    finish,
    generate,
    make_primary,
    rekey,
    retire,
    rewrap,
)
from tests.torture.children import Child, failure, forked
from tests.torture.outcome import Outcome, Tally
from tests.torture.sealing import sealing
from tests.torture.story import Story
from tests.torture.telling import OpenStore, Telling

Sealing = Callable[[list[Key]], OpenStore]

WRITERS = 2
PATIENCE = 20
"""How often a key may still be in use by who has not heard of the new one yet."""


def rotation(
    open_store: OpenStore, count: int, *, story: Story | None = None, within: str | None = None
) -> Outcome:
    """So many new keys, one after the other, beside two writers."""
    tally = Tally("key rotation under load")
    ring = [generate() for _ in range(count + 1)]
    with TemporaryDirectory(prefix="torture-", dir=within, ignore_cleanup_errors=True) as folder:
        anyio.run(_begun, open_store, folder, ring[0])
        tellings = [Telling(sealing(open_store, ring), story) for _ in range(WRITERS)]
        writers = [_writer(telling, folder) for telling in tellings]
        for writer in writers:
            writer.first()
        try:
            for old, new in pairwise(ring):
                tally.tries += 1
                anyio.run(_rotated, open_store, folder, ring, old, new)
        except Exception as error:  # noqa: BLE001 - whatever it is, the store does not hold
            tally.broken(f"rotation {tally.tries}", error)
        finally:
            for writer in writers:
                writer.kill()
            said = [writer.said() for writer in writers]
        tally.acknowledged = sum(map(len, said))
        try:
            for lines in said:
                assert not failure(lines), f"a writer was refused: {failure(lines)}"
            _check(tellings, partial(sealing, open_store), folder, ring, list(map(len, said)))
        except Exception as error:  # noqa: BLE001 - as above
            tally.broken("after the rotations", error)
    return tally.outcome()


def _writer(telling: Telling, folder: str) -> Child:
    return forked(lambda say: telling.write(folder, lambda number: say(str(number)), start=0))


async def _begun(open_store: OpenStore, folder: str, key: Key) -> None:
    async with sealing(open_store, [key])(folder) as store:
        await store.list("")


async def _rotated(open_store: OpenStore, folder: str, ring: list[Key], old: Key, new: Key) -> None:
    async with sealing(open_store, ring)(folder) as store:
        assert isinstance(store, Sealed)
        await make_primary(store, await add_key(store, new))
        await _retired(store, old)
        for where in [each async for each in conversations(store)]:
            await rekey(store, where)


async def _retired(store: Sealed, old: Key) -> None:
    for last in (n == PATIENCE - 1 for n in range(PATIENCE)):
        await rewrap(store)
        try:
            await retire(store, old.id)
        except StoreError:
            if last:
                raise
        else:
            return


def _check(
    tellings: list[Telling], sealed: Sealing, folder: str, ring: list[Key], acknowledged: list[int]
) -> None:
    """What each writer wrote is there, and what it began it goes on with, before old keys are forgotten.

    Somebody else may still write under the data keys of a conversation that was begun and has nothing yet.
    """
    opened = sealed(ring[-1:])
    for telling, count in zip(tellings, acknowledged, strict=True):
        Telling(opened, telling.story, workspace=telling.workspace).check(folder, count)
    anyio.run(_finished, opened, folder)
    for telling, count in zip(tellings, acknowledged, strict=True):
        Telling(opened, telling.story, workspace=telling.workspace).check(folder, count + 1)
        for old in ring[:-1]:
            anyio.run(_locked_out, sealed([old]), folder, telling)


async def _finished(opened: OpenStore, folder: str) -> None:
    """Nobody else is there now, so the data keys of before can be forgotten."""
    async with opened(folder) as store:
        assert isinstance(store, Sealed)
        for where in [each async for each in conversations(store)]:
            await rekey(store, where)
            assert await finish(store, where), "something is still sealed under a key of before"


async def _locked_out(opened: OpenStore, folder: str, telling: Telling) -> None:
    try:
        async with opened(folder) as store:
            await store.read(telling.where(0))
    except WrongKey:
        return
    raise AssertionError("a retired key still opens the store")
