"""Many processes write to one conversation at once, and each to one of its own: one linear history.

Every group is there once and unbroken; whoever was acknowledged before another began stands before it; every
page that anybody read is a piece of the final order; and a group that is sent again changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from functools import partial
from random import Random
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import NamedTuple

import anyio
import msgspec

from lamina.errors import Conflict
from lamina.stores import Once, RecordPage, Store, StoredHead, Where
from lamina.testing._store_races import check_linear, make_turn
from tests.torture.children import Say, failure, forked
from tests.torture.outcome import Outcome, Tally
from tests.torture.telling import OpenStore

AGAIN = 0.25
"""How many of the groups are sent twice."""


class Act(msgspec.Struct, frozen=True, array_like=True):
    """One group of one writer: when it began to send, when it was told, and what it had read before."""

    writer: int
    number: int
    began: float
    told: float
    count: int
    tail: tuple[str, ...]


class _Place(NamedTuple):
    open: OpenStore
    folder: str
    workspace: str

    @property
    def shared(self) -> Where:
        return Where(self.workspace, "shared")

    def own(self, writer: int) -> Where:
        return Where(self.workspace, f"own-{writer}")


def writers(
    open_store: OpenStore, count: int, turns: int, *, own: bool = True, within: str | None = None
) -> Outcome:
    """So many processes with so many turns each."""
    tally = Tally("concurrent writers")
    with TemporaryDirectory(prefix="torture-", dir=within, ignore_cleanup_errors=True) as folder:
        place = _Place(open_store, folder, f"writers-{token_hex(6)}")
        children = [
            forked(lambda say, writer=writer: _write(place, writer, turns, say, own=own))  # type: ignore[misc]
            for writer in range(count)
        ]
        said = [child.said() for child in children]
        tally.tries = count * turns
        try:
            for lines in said:
                assert not failure(lines), failure(lines)
            acts = [msgspec.convert(act, Act) for lines in said for act in json.loads(lines[0])["acts"]]
            tally.acknowledged = len(acts)
            tally.found["conflicts"] = sum(json.loads(lines[0])["lost"] for lines in said)
            anyio.run(_check, place, acts, count, turns, own)
        except Exception as error:  # noqa: BLE001 - whatever it is, the store does not hold
            tally.broken(f"{count} writers", error)
    return tally.outcome()


def _write(place: _Place, writer: int, turns: int, say: Say, *, own: bool) -> None:
    async def run() -> None:
        acts: list[Act] = []
        lost = 0
        dice = Random(writer)  # noqa: S311
        async with place.open(place.folder) as store:
            for number in range(turns):
                act, conflicts = await _turn(store, place.shared, writer, number, dice)
                acts.append(act)
                lost += conflicts
                if own:
                    await _turn(store, place.own(writer), writer, number, dice)
        say(json.dumps({"acts": msgspec.to_builtins(acts), "lost": lost}))

    anyio.run(run)


async def _turn(store: Store, where: Where, writer: int, number: int, dice: Random) -> tuple[Act, int]:
    group, lost = make_turn(writer, number), 0
    once = Once(key=f"{writer}/{number}", digest=hashlib.sha256(b"\0".join(group)).digest())
    while True:
        page = await store.read(where, last=3)
        began, count = time.monotonic(), page.head.count
        head = StoredHead(count=count + len(group), state=str(count + len(group)).encode())
        send = partial(store.append, where, group, expect=count, once=once, state=head.state)
        try:
            assert await send() == head, "a group was put behind another than the one that was expected"
        except Conflict:
            lost += 1
            continue
        told = time.monotonic()
        if dice.random() < AGAIN:
            assert (await send()).count == head.count, "a repeated group was answered with another count"
        tail = tuple(record.body.decode() for record in page.records)
        return Act(writer, number, began, told, count, tail), lost


async def _check(place: _Place, acts: Sequence[Act], count: int, turns: int, own: bool) -> None:  # noqa: FBT001
    async with place.open(place.folder) as store:
        page = await store.read(place.shared)
        check_linear(page, writers=count, turns=turns)
        check_history(page, acts)
        assert page.head.state == str(page.head.count).encode(), "the state is not that of the last group"
        for writer in range(count) if own else ():
            alone = await store.read(place.own(writer))
            expected = [body for number in range(turns) for body in make_turn(writer, number)]
            assert [record.body for record in alone.records] == expected, f"writer {writer} lost something"


def check_history(page: RecordPage, acts: Sequence[Act]) -> None:
    """One order explains everything that anybody saw."""
    order = [record.body.decode() for record in page.records]
    at = {word.rsplit("/", 1)[0]: place for place, word in reversed(list(enumerate(order)))}
    latest = -1.0
    for act in sorted(acts, key=lambda act: at[f"{act.writer}/{act.number}"]):
        assert act.told >= latest, f"group {act.writer}/{act.number} stands after one that began later"
        latest = max(latest, act.began)
    for act in acts:
        seen = order[act.count - len(act.tail) : act.count]
        assert list(act.tail) == seen, f"writer {act.writer} read what never was"
