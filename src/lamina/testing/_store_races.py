"""What a store promises to many writers at once.

Writers are tasks here; whether processes agree is for the tests of each store to ask, with
`append_until_accepted` and `check_linear`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from random import Random

import anyio
from anyio.lowlevel import checkpoint

from lamina.errors import Conflict
from lamina.stores.port import Once, RecordPage, Rekeyable, Store, StoredHead, Where
from lamina.testing._store_trial import (
    StorePromise,
    StoreTrial,
    expect_bodies,
    expect_count,
    expect_error,
    expect_head,
    expect_names,
    expect_value,
)
from lamina.testing.cases import expect, expect_equal

WRITERS = 8
"""How many tasks write to one conversation."""

TURNS = 12
"""How many groups each of them writes."""


async def append_until_accepted(
    store: Store, where: Where, group: Sequence[bytes], key: str
) -> tuple[StoredHead, int]:
    """Append a group to whatever is there, however often another is first; and how often it was."""
    once = Once(key=key, digest=hashlib.sha256(b"\0".join(group)).digest())
    conflicts = 0
    dice = Random(key)  # noqa: S311
    while True:
        await _wait_randomly(dice)
        head = (await store.read(where, last=0)).head
        try:
            state = str(head.count + len(group)).encode()
            return await store.append(where, group, expect=head.count, once=once, state=state), conflicts
        except Conflict:
            conflicts += 1


async def _wait_randomly(dice: Random) -> None:
    """Let others go first, or not, so that tasks do not run in step."""
    for _ in range(dice.randrange(4)):
        await checkpoint()


def make_turn(writer: int, number: int) -> list[bytes]:
    """One to three records that say whose they are."""
    return [f"{writer}/{number}/{part}".encode() for part in range(1 + (writer + number) % 3)]


def check_linear(page: RecordPage, *, writers: int, turns: int) -> None:
    """Every group there, once, unbroken, and each writer's in its order."""
    bodies_in_order = [record.body for record in page.records]
    turns_in_order = []
    for (writer, number), group in groupby(bodies_in_order, key=_turn_of):
        expect_equal(list(group), make_turn(writer, number), f"the group of {(writer, number)}")
        turns_in_order.append((writer, number))
    for writer in range(writers):
        numbers = [number for by, number in turns_in_order if by == writer]
        expect_equal(numbers, list(range(turns)), f"the turns of writer {writer}")
    expect_equal([record.seq for record in page.records], list(range(page.head.count)))


def _turn_of(body: bytes) -> tuple[int, int]:
    """The writer and the number of a record's turn: (3, 0) for `3/0/1`, the second record of that turn."""
    writer, number, _ = body.decode().split("/")
    return int(writer), int(number)


async def an_append_expects_what_was_read(trial: StoreTrial) -> None:
    """With another number of records there: Conflict, which says both, and nothing is written."""
    async with trial.open() as store:
        await store.append(trial.where, [b"a", b"b"], expect=0, state=b"s")
        before = await store.read(trial.where)
        for expected in (0, 1, 3):
            once = Once(key=f"k{expected}", digest=b"d")
            conflict = await expect_error(
                store.append(trial.where, [b"x"], expect=expected, once=once, state=b"t"), Conflict
            )
            expect_equal((conflict.expected, conflict.found), (expected, 2))
            await expect_value(store.read(trial.where), before)
        await expect_count(store.append(trial.where, [b"c"], expect=2), 3)
        await expect_error(store.append(Where(trial.workspace, "none"), [b"x"], expect=1), Conflict)
        await expect_names(store.list(trial.workspace), [trial.where.conversation])


async def an_append_expects_the_state_that_was_read(trial: StoreTrial) -> None:
    """With another state there: Conflict, and nothing is written; the number of records may be the same."""
    async with trial.open() as store:
        await expect_count(store.append(trial.where, [b"a"], was=b"", state=b"one"), 1)
        await store.append(trial.where, [], expect=1, was=b"one", state=b"two")
        before = await store.read(trial.where)
        for was in (b"", b"one", b"two ", b"two\0"):
            once = Once(key=f"k{was!r}", digest=b"d")
            for expected in (None, 1):
                append = store.append(trial.where, [b"x"], expect=expected, was=was, once=once, state=b"t")
                conflict = await expect_error(append, Conflict)
                expect_equal((conflict.expected, conflict.found), (1, 1))
                expect("state" in str(conflict), f"the error does not name the state: {conflict}")
                await expect_value(store.read(trial.where), before)
        conflict = await expect_error(store.append(trial.where, [], expect=7, was=b"two"), Conflict)
        expect_equal((conflict.expected, conflict.found), (7, 1))
        await expect_value(store.append(trial.where, [b"b"], was=b"two"), StoredHead(count=2, state=b"two"))
        await expect_error(store.append(Where(trial.workspace, "none"), [b"x"], was=b"s"), Conflict)
        await expect_names(store.list(trial.workspace), [trial.where.conversation])


async def of_two_writers_one_wins(trial: StoreTrial) -> None:
    """The other gets Conflict, and nothing of it is there."""
    async with trial.open() as store:
        for number in range(20):
            there = (await store.read(trial.where, last=0)).head.count
            won: dict[int, bool] = {}

            async def write(writer: int, number: int = number, there: int = there) -> None:
                group = make_turn(writer, number)
                try:
                    await store.append(trial.where, group, expect=there, state=group[0])
                    won[writer] = True  # noqa: B023 - read within the round
                except Conflict:
                    won[writer] = False  # noqa: B023

            async with anyio.create_task_group() as tasks:
                for writer in (0, 1):
                    tasks.start_soon(write, writer)
            expect_equal(sorted(won.values()), [False, True], "who won")
            winner = max(won, key=lambda writer: won[writer])
            page = await store.read(trial.where, after=there)
            expect_equal([record.body for record in page.records], make_turn(winner, number))
            expect_equal(page.head.state, make_turn(winner, number)[0])


async def of_two_states_one_wins(trial: StoreTrial) -> None:
    """Where only the state changes, `was` tells who was first."""
    async with trial.open() as store:
        await store.append(trial.where, [b"a"], state=b"0")
        for number in range(20):
            was = (await store.read(trial.where, last=0)).head.state
            won: list[bytes] = []

            async def write(writer: int, number: int = number, was: bytes = was) -> None:
                state = b"%d of %d" % (number, writer)
                try:
                    await store.append(trial.where, [], expect=1, was=was, state=state)
                except Conflict:
                    return
                won.append(state)  # noqa: B023 - read within the round

            async with anyio.create_task_group() as tasks:
                for writer in (0, 1):
                    tasks.start_soon(write, writer)
            expect_equal(len(won), 1, "the number of winners")
            await expect_head(store.read(trial.where, last=0), StoredHead(count=1, state=won[0]))


async def many_writers_make_one_history(trial: StoreTrial) -> None:
    """Groups of eight writers stand one after another, each whole and once."""
    async with trial.open() as store:

        async def write(writer: int) -> None:
            for number in range(TURNS):
                await append_until_accepted(
                    store, trial.where, make_turn(writer, number), f"{writer}/{number}"
                )

        async with anyio.create_task_group() as tasks:
            for writer in range(WRITERS):
                tasks.start_soon(write, writer)
        page = await store.read(trial.where)
        check_linear(page, writers=WRITERS, turns=TURNS)
        expect_equal(page.head.state, str(page.head.count).encode())


async def groups_stand_together(trial: StoreTrial) -> None:
    """Also those of writers who expect nothing."""
    async with trial.open() as store:

        async def write(writer: int) -> None:
            dice = Random(writer)  # noqa: S311
            for number in range(TURNS):
                await _wait_randomly(dice)
                await store.append(trial.where, make_turn(writer, number))

        async with anyio.create_task_group() as tasks:
            for writer in range(WRITERS):
                tasks.start_soon(write, writer)
        check_linear(await store.read(trial.where), writers=WRITERS, turns=TURNS)


async def repeats_at_once_are_kept_once(trial: StoreTrial) -> None:
    """A turn that is sent five times at the same moment stands there once."""
    async with trial.open() as store:
        heads: list[StoredHead] = []

        async def send(number: int) -> None:
            once = Once(key=str(number), digest=b"d")
            heads.append(await store.append(trial.where, make_turn(0, number), once=once))

        for number in range(10):
            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(send, number)
            expect_equal(len(set(heads)), number + 1, "the number of heads")
        bodies = [body for number in range(10) for body in make_turn(0, number)]
        await expect_bodies(store.read(trial.where), bodies)


async def a_read_sees_one_moment(trial: StoreTrial) -> None:
    """Records, count and state belong together, while others write."""
    async with trial.open() as store:
        done = anyio.Event()

        async def write(writer: int) -> None:
            for number in range(TURNS):
                await append_until_accepted(
                    store, trial.where, make_turn(writer, number), f"{writer}/{number}"
                )

        async def look(number: int) -> None:
            dice = Random(number)  # noqa: S311
            while not done.is_set():
                for page in (await store.read(trial.where), await store.read(trial.where, last=4)):
                    _check_moment(page)
                await _wait_randomly(dice)

        async with anyio.create_task_group() as tasks:
            for number in range(2):
                tasks.start_soon(look, number)
            async with anyio.create_task_group() as writers:
                for writer in range(3):
                    writers.start_soon(write, writer)
            done.set()


def _check_moment(page: RecordPage) -> None:
    """The records of a page are the last of as many as its head says, and its state says the same number."""
    state = b""
    if page.head.count:
        state = str(page.head.count).encode()
    expect_equal(page.head.state, state)
    first = page.head.count - len(page.records)
    expect_equal([record.seq for record in page.records], list(range(first, page.head.count)))


async def a_read_sees_one_moment_of_what_changes(trial: StoreTrial) -> None:
    """Bodies and state of one replacement, or of one conversation of several that had the name in turn."""
    async with trial.open() as store:
        done = anyio.Event()

        async def change() -> None:
            for number in range(40):
                mark = b"%d" % number
                if number % 8 == 0 or not isinstance(store, Rekeyable):
                    await store.delete(trial.where)
                    await store.append(trial.where, [mark] * 20, expect=0, state=mark)
                else:
                    await store.replace(trial.where, dict.fromkeys(range(20), mark), expect=20, state=mark)
            done.set()

        async def look(number: int) -> None:
            dice = Random(number)  # noqa: S311
            while not done.is_set():
                page = await store.read(trial.where)
                expect_equal([record.body for record in page.records], [page.head.state] * page.head.count)
                await _wait_randomly(dice)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(change)
            for number in range(3):
                tasks.start_soon(look, number)


async def a_cancelled_append_happened_or_did_not(trial: StoreTrial) -> None:
    """Never a part of it; and the store goes on."""
    async with trial.open() as store:
        for number in range(30):
            before = await store.read(trial.where)
            group = [f"{number}/{part}".encode() for part in range(50)]
            async with anyio.create_task_group() as tasks:
                call = partial(store.append, expect=before.head.count, state=b"%d" % number)
                tasks.start_soon(call, trial.where, group)
                await _a_moment(number)
                tasks.cancel_scope.cancel()
            after = await store.read(trial.where)
            if after.head.count != before.head.count:
                expect_equal([record.body for record in after.records[before.head.count :]], group)
                expect_equal(after.head, StoredHead(count=before.head.count + 50, state=b"%d" % number))
            else:
                expect_equal(after, before)
        count = (await store.read(trial.where, last=0)).head.count
        await expect_count(store.append(trial.where, [b"goes on"], expect=count), count + 1)


async def _a_moment(length: int) -> None:
    """First some steps of the event loop, which a quick store takes, then some tenths of a millisecond."""
    for _ in range(min(length, 10)):
        await checkpoint()
    if length > 10:
        await anyio.sleep((length - 10) * 0.0002)


RACES: tuple[StorePromise, ...] = (
    an_append_expects_what_was_read,
    an_append_expects_the_state_that_was_read,
    of_two_writers_one_wins,
    of_two_states_one_wins,
    many_writers_make_one_history,
    groups_stand_together,
    repeats_at_once_are_kept_once,
    a_read_sees_one_moment,
    a_read_sees_one_moment_of_what_changes,
    a_cancelled_append_happened_or_did_not,
)
