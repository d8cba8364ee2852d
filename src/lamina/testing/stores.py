"""What every store must do, as a suite that anyone can run on their own.

    @pytest.mark.parametrize("case", lamina.testing.store(open_my_store), ids=str)
    def test_my_store(case):
        case()

`open_my_store(folder)` gives an async context manager of the store that lives in this folder: a new folder
for each case, the same one again where a case opens it twice. A store that is not in a folder may pass over
it: workspaces have names that no other case uses. `_store_names` has the promises about names and lists,
`_store_races` those about many writers, `_store_seals` those to encryption. None asks how a store keeps
anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import anyio

from lamina.errors import BadInput, Conflict, LaminaError, Reused, StoreError
from lamina.stores.memory import MemoryStore
from lamina.stores.port import (
    ListedConversation,
    Once,
    RecordPage,
    Rekeyable,
    StoredHead,
    Where,
)
from lamina.testing._store_names import NAMES
from lamina.testing._store_races import RACES
from lamina.testing._store_seals import SEALABLE
from lamina.testing._store_trial import (
    OpenStore,
    StorePromise,
    StoreTrial,
    expect_bodies,
    expect_count,
    expect_error,
    expect_head,
    expect_names,
    expect_numbers,
    expect_value,
    make_bodies,
    number_bodies,
)
from lamina.testing.cases import Conformance, expect_equal, make_cases

__all__ = ["store"]

SECONDS = 300
"""A case that takes longer has met a deadlock."""

LARGE = 5_000_000

HUGE = 2**70
"""A number too large for a database."""

WALK = 400
"""Calls of one walk."""


def store(
    open_store: OpenStore, *, name: str = "", lasting: bool = True, sealable: bool = True, many: int = 10_000
) -> list[Conformance]:
    """The suite for one store. `lasting`: what was kept is there when it is opened again.

    `sealable`: encryption can be put around it, and each folder is a store of its own, which a case may seal.
    `many`: how many records the long conversation has.
    """
    promises = [*PROMISES, *NAMES, *RACES, it_does_what_the_store_in_memory_does]
    if lasting:
        promises += LASTING
    if sealable:
        promises += SEALABLE
    return make_cases(name, promises, partial(_try, open_store, many))


def _try(open_store: OpenStore, many: int, promise: StorePromise) -> None:
    async def try_promise() -> None:
        with anyio.fail_after(SECONDS):
            await promise(StoreTrial(open_store, folder, many=many))

    with TemporaryDirectory(prefix="store-", ignore_cleanup_errors=True) as folder:
        anyio.run(try_promise)


async def nothing_is_there_at_first(trial: StoreTrial) -> None:
    """A conversation that nobody began reads as empty, and is not listed."""
    async with trial.open() as store:
        await expect_value(store.read(trial.where), RecordPage())
        await expect_value(store.list(trial.workspace), [])
        await expect_value(store.delete(trial.where), value=False)


async def order_is_kept(trial: StoreTrial) -> None:
    """Records come back as they were given, in order, counted from 0."""
    async with trial.open() as store:
        await expect_value(store.append(trial.where, [b"a", b"b"]), StoredHead(count=2))
        await expect_value(store.append(trial.where, [b"c"]), StoredHead(count=3))
        page = RecordPage(records=number_bodies(b"a", b"b", b"c"), head=StoredHead(count=3))
        await expect_value(store.read(trial.where), page)


async def a_read_finds_what_it_names(trial: StoreTrial) -> None:
    """`after`, `last`, `at` and `limit`: none, some, more than there are, more than a database can count."""
    reads: list[tuple[dict[str, int | list[int]], list[int]]] = [
        ({"after": 0}, [0, 1, 2, 3, 4]),
        ({"after": 3}, [3, 4]),
        ({"after": 5}, []),
        ({"after": 99}, []),
        ({"last": 0}, []),
        ({"last": 2}, [3, 4]),
        ({"last": 5}, [0, 1, 2, 3, 4]),
        ({"last": 99}, [0, 1, 2, 3, 4]),
        ({"at": []}, []),
        ({"at": [3]}, [3]),
        ({"at": [4, 0, 4, 2]}, [0, 2, 4]),
        ({"at": [1, 99]}, [1]),
        ({"limit": 2}, [0, 1]),
        ({"limit": 0}, []),
        ({"limit": 99}, [0, 1, 2, 3, 4]),
        ({"after": 1, "limit": 2}, [1, 2]),
        ({"at": [0, 2, 4], "limit": 2}, [0, 2]),
        ({"after": HUGE}, []),
        ({"last": HUGE}, [0, 1, 2, 3, 4]),
        ({"at": [HUGE, 1]}, [1]),
        ({"limit": HUGE}, [0, 1, 2, 3, 4]),
    ]
    everything = number_bodies(*make_bodies(5))
    async with trial.open() as store:
        await store.append(trial.where, make_bodies(5), state=b"s")
        for options, numbers in reads:
            page = await store.read(trial.where, **options)  # type: ignore[arg-type]
            records = tuple(everything[number] for number in numbers)
            head = StoredHead(count=5, state=b"s")
            expect_equal(page, RecordPage(records=records, head=head), f"{options}")


async def negative_numbers_are_refused(trial: StoreTrial) -> None:
    """A negative number is BadInput, in a read, a list and an append."""
    async with trial.open() as store:
        await store.append(trial.where, make_bodies(3))
        await expect_error(store.read(trial.where, after=-1), BadInput)
        await expect_error(store.read(trial.where, last=-1), BadInput)
        await expect_error(store.read(trial.where, at=[0, -1]), BadInput)
        await expect_error(store.read(trial.where, limit=-1), BadInput)
        await expect_error(store.list(trial.workspace, limit=-1), BadInput)
        await expect_error(store.append(trial.where, [b"x"], expect=-1), BadInput)
        await expect_count(store.read(trial.where), 3)


async def a_read_names_its_records_in_one_way(trial: StoreTrial) -> None:
    """`after`, `last` and `at` exclude each other: two of them are BadInput."""
    async with trial.open() as store:
        await store.append(trial.where, make_bodies(3))
        await expect_error(store.read(trial.where, after=1, last=1), BadInput)
        await expect_error(store.read(trial.where, after=1, at=[1]), BadInput)
        await expect_error(store.read(trial.where, last=1, at=[1]), BadInput)
        await expect_error(store.read(trial.where, after=1, last=1, at=[]), BadInput)


async def the_state_is_kept_with_the_group(trial: StoreTrial) -> None:
    """A state replaces the last; without one it stays; an empty one is one, too."""
    async with trial.open() as store:
        await expect_value(store.append(trial.where, [b"a"], state=b"one"), StoredHead(count=1, state=b"one"))
        await expect_value(store.append(trial.where, [b"b"]), StoredHead(count=2, state=b"one"))
        await expect_value(store.append(trial.where, [], state=b"two"), StoredHead(count=2, state=b"two"))
        await expect_head(store.read(trial.where, last=0), StoredHead(count=2, state=b"two"))
        await expect_value(store.append(trial.where, [b"c"], state=b""), StoredHead(count=3, state=b""))
        await expect_head(store.read(trial.where), StoredHead(count=3))


async def a_group_is_kept_whole_or_not_at_all(trial: StoreTrial) -> None:
    """A group with something that is no record leaves nothing of itself, its state or its key."""
    once = Once(key="k", digest=b"d")
    async with trial.open() as store:
        await store.append(trial.where, [b"a"], state=b"s")
        for wrong in (object(), None, "text", 7):
            group: Sequence[bytes] = [b"b", wrong, b"c"]  # type: ignore[list-item]
            await expect_error(store.append(trial.where, group, once=once, state=b"t"), BadInput)
            await expect_value(
                store.read(trial.where),
                RecordPage(records=number_bodies(b"a"), head=StoredHead(count=1, state=b"s")),
            )
        await expect_error(store.append(trial.where, [b"b"], state="text"), BadInput)  # type: ignore[arg-type]
        await expect_error(store.append(trial.where, [b"b"], was="s"), BadInput)  # type: ignore[arg-type]
        fresh = Where(trial.workspace, "fresh")
        await expect_error(store.append(fresh, [b"b", None]), BadInput)  # type: ignore[list-item]
        await expect_names(store.list(trial.workspace), [trial.where.conversation])
        await expect_count(store.append(trial.where, [b"b"], once=once), 2)


async def a_repeated_append_is_kept_once(trial: StoreTrial) -> None:
    """The same key and digest: the count of the first time, whatever came after, whatever is expected."""
    once = Once(key="turn-1", digest=b"\x00\xff")
    async with trial.open() as store:
        first = await store.append(trial.where, [b"a"], expect=0, once=once, state=b"one")
        await expect_value(store.append(trial.where, [b"a"], expect=0, once=once, state=b"one"), first)
        await store.append(trial.where, [b"b"], expect=1, state=b"two")
        again = await store.append(trial.where, [b"a"], expect=0, was=b"", once=once, state=b"one")
        expect_equal(again, StoredHead(count=1, state=b"two"), "count of the first time, state of now")
        await store.append(trial.where, [], state=b"three")
        await expect_value(store.append(trial.where, [b"a"], once=once), StoredHead(count=1, state=b"three"))
        page = RecordPage(records=number_bodies(b"a", b"b"), head=StoredHead(count=2, state=b"three"))
        await expect_value(store.read(trial.where), page)


async def a_key_is_for_one_body(trial: StoreTrial) -> None:
    """With another digest it is Reused, and nothing is written; each conversation has keys of its own."""
    async with trial.open() as store:
        await store.append(trial.where, [b"a"], once=Once(key="k", digest=b"1"))
        await expect_error(
            store.append(trial.where, [b"b"], once=Once(key="k", digest=b"2"), state=b"t"), Reused
        )
        await expect_error(
            store.append(trial.where, [b"b"], expect=1, once=Once(key="k", digest=b"")), Reused
        )
        await expect_value(
            store.read(trial.where), RecordPage(records=number_bodies(b"a"), head=StoredHead(count=1))
        )
        other = Where(trial.workspace, "other")
        await expect_count(store.append(other, [b"b"], once=Once(key="k", digest=b"2")), 1)


async def what_is_deleted_is_gone(trial: StoreTrial) -> None:
    """Records, state and keys; the next of this name begins at 0."""
    once = Once(key="k", digest=b"1")
    async with trial.open() as store:
        await store.append(trial.where, make_bodies(3), once=once, state=b"s")
        await store.append(Where(trial.workspace, "stays"), [b"a"])
        await expect_value(store.delete(trial.where), value=True)
        await expect_value(store.read(trial.where), RecordPage())
        await expect_value(store.read(trial.where, at=[0, 1]), RecordPage())
        await expect_names(store.list(trial.workspace), ["stays"])
        await expect_value(store.delete(trial.where), value=False)
        anew = Once(key="k", digest=b"2")
        await expect_value(store.append(trial.where, [b"x"], expect=0, once=anew), StoredHead(count=1))
        await expect_value(
            store.read(trial.where), RecordPage(records=number_bodies(b"x"), head=StoredHead(count=1))
        )


async def bodies_of_any_size(trial: StoreTrial) -> None:
    """Nothing, every byte, and megabytes, as records and as state."""
    large = bytes(range(256)) * (LARGE // 256)
    async with trial.open() as store:
        group = [b"", bytes(range(256)), large, b""]
        head = StoredHead(count=4, state=large)
        await expect_value(store.append(trial.where, group, state=large), head)
        await expect_value(store.read(trial.where), RecordPage(records=number_bodies(*group), head=head))


async def many_records(trial: StoreTrial) -> None:
    """Thousands of records, in groups, are all there and in order."""
    async with trial.open() as store:
        everything = make_bodies(trial.many)
        for start in range(0, trial.many, 1000):
            await store.append(trial.where, everything[start : start + 1000], expect=start)
        await expect_bodies(store.read(trial.where), everything)
        tail = list(range(trial.many))[-50:]
        await expect_numbers(store.read(trial.where, last=50), tail)
        scattered = list(range(0, trial.many, 3))
        await expect_numbers(store.read(trial.where, at=scattered), scattered)
        await expect_numbers(store.read(trial.where, after=5, limit=2), [5, 6])


async def replacing_changes_bodies_only(trial: StoreTrial) -> None:
    """Where a store can: the named bodies and the state, if count and state are what is expected."""
    async with trial.open() as store:
        if not isinstance(store, Rekeyable):
            return
        once = Once(key="k", digest=b"d")
        await store.append(trial.where, [b"a", b"b"], once=once, state=b"old")
        await store.append(trial.where, [b"c"], state=b"older")
        await expect_value(
            store.replace(trial.where, {1: b"B"}, expect=3), StoredHead(count=3, state=b"older")
        )
        await expect_value(
            store.replace(trial.where, {0: b"A", 2: b"C" * 9}, expect=3, state=b"new"),
            StoredHead(count=3, state=b"new"),
        )
        whole = RecordPage(
            records=number_bodies(b"A", b"B", b"C" * 9), head=StoredHead(count=3, state=b"new")
        )
        await expect_error(store.replace(trial.where, {0: b"x"}, expect=2, state=b"x"), Conflict)
        for was in (b"", b"older"):
            conflict = await expect_error(store.replace(trial.where, {0: b"x"}, expect=3, was=was), Conflict)
            expect_equal((conflict.expected, conflict.found), (3, 3))
        await expect_error(store.replace(trial.where, {0: b"x", 3: b"x"}, expect=3, state=b"x"), BadInput)
        await expect_error(store.replace(trial.where, {0: b"x", 1: None}, expect=3), BadInput)  # type: ignore[dict-item]
        await expect_error(
            store.replace(Where(trial.workspace, "none"), {}, expect=0, state=b"x"), StoreError
        )
        await expect_value(store.read(trial.where), whole)
        await expect_value(
            store.append(trial.where, [b"a", b"b"], once=once), StoredHead(count=2, state=b"new")
        )
        replaced = store.replace(trial.where, {}, expect=3, was=b"new", state=b"newest")
        await expect_value(replaced, StoredHead(count=3, state=b"newest"))


async def closing_twice_does_no_harm(trial: StoreTrial) -> None:
    """A store that can be closed may be closed again, and by the end of its block a third time."""
    async with trial.open() as store:
        await store.append(trial.where, [b"a"])
        close = getattr(store, "close", None)
        if close is not None:
            await close()
            await close()


async def opened_again_everything_is_there(trial: StoreTrial) -> None:
    """Records, state, keys and lists, after the store was closed; also while another has it open."""
    once = Once(key="k", digest=b"1")
    async with trial.open() as store:
        await store.append(trial.where, make_bodies(20), once=once, state=b"s")
        await store.append(trial.where, [b"more"], state=b"t")
        before = await store.read(trial.where)
    async with trial.open() as store:
        await expect_value(store.read(trial.where), before)
        again = store.append(trial.where, make_bodies(20), once=once, state=b"s")
        await expect_value(again, StoredHead(count=20, state=b"t"))
        await expect_error(store.append(trial.where, [b"x"], once=Once(key="k", digest=b"2")), Reused)
        async with trial.open() as second:
            await expect_count(second.append(trial.where, [b"y"], expect=21), 22)
        await expect_count(store.append(trial.where, [b"z"], expect=22), 23)
        await expect_value(
            store.list(trial.workspace), [ListedConversation(conversation=trial.where.conversation, count=23)]
        )
        await expect_value(store.delete(trial.where), value=True)
    async with trial.open() as store:
        await expect_value(store.read(trial.where), RecordPage())


PROMISES: tuple[StorePromise, ...] = (
    nothing_is_there_at_first,
    order_is_kept,
    a_read_finds_what_it_names,
    negative_numbers_are_refused,
    a_read_names_its_records_in_one_way,
    the_state_is_kept_with_the_group,
    a_group_is_kept_whole_or_not_at_all,
    a_repeated_append_is_kept_once,
    a_key_is_for_one_body,
    what_is_deleted_is_gone,
    bodies_of_any_size,
    many_records,
    replacing_changes_bodies_only,
    closing_twice_does_no_harm,
)

LASTING: tuple[StorePromise, ...] = (opened_again_everything_is_there,)


async def it_does_what_the_store_in_memory_does(trial: StoreTrial) -> None:
    """Some hundred calls of every sort, made up: the same answers and the same errors."""
    async with trial.open() as store:
        model = MemoryStore()
        dice = Random(5)  # noqa: S311
        for step in range(WALK):
            name, arguments = _random_call(dice, trial.workspace, rekeyable=isinstance(store, Rekeyable))
            answer = await _answer(store, name, arguments)
            expected = await _answer(model, name, arguments)
            expect_equal(answer, expected, f"step {step}, {name}{arguments}")


Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Of one call: those by place, and those by name."""


def _random_call(dice: Random, workspace: str, *, rekeyable: bool) -> tuple[str, Arguments]:
    where = Where(f"{workspace}-{dice.randrange(2)}", f"c{dice.randrange(3)}")
    number = dice.randrange(6)
    state = dice.choice((None, b"", b"s", b"t"))
    was = dice.choice((None, None, None, b"", b"s"))
    kind = dice.choices(("append", "read", "list", "delete", "replace"), (10, 6, 2, 1, 2 * rekeyable))[0]
    if kind == "append":
        key = dice.choice((None, None, *"abc"))
        once = None if key is None else Once(key=key, digest=bytes([dice.randrange(2)]))
        group = [dice.randbytes(dice.randrange(5)) for _ in range(dice.randrange(4))]
        expect = dice.choice((None, None, number))
        return kind, ((where, group), {"expect": expect, "was": was, "once": once, "state": state})
    if kind == "read":
        options: dict[str, Any] = dice.choice(
            ({}, {"after": number}, {"last": number}, {"at": [number, 0, number * 2]})
        )
        if "last" not in options:
            options = {**options, "limit": dice.choice((None, 0, 2))}
        return kind, ((where,), options)
    if kind == "list":
        return kind, (
            (where.workspace,),
            {"after": dice.choice(("", "c0", "c1")), "limit": dice.choice((1, 1000))},
        )
    if kind == "replace":
        new = {dice.randrange(3): dice.randbytes(3)}
        return kind, ((where, new), {"expect": number, "was": was, "state": state})
    return kind, ((where,), {})


async def _answer(store: Any, name: str, arguments: Arguments) -> Any:
    """What a call returns, or the type of its error."""
    by_place, by_name = arguments
    try:
        answer = await getattr(store, name)(*by_place, **by_name)
    except LaminaError as error:
        return type(error)
    if name == "list":
        return tuple(answer)
    return answer
