"""What a store promises to encryption around it: plain and sealed conversations never meet in one store."""

from __future__ import annotations

import anyio

from lamina.errors import KeyNeeded, WrongKey
from lamina.stores.port import (
    HEADER,
    BodiesReadable,
    ListedConversation,
    Measurable,
    RecordPage,
    Rekeyable,
    StatesReadable,
    StoredHead,
    Where,
    Within,
)
from lamina.testing._store_trial import (
    StorePromise,
    StoreTrial,
    expect_count,
    expect_error,
    expect_head,
    expect_names,
    expect_value,
    number_bodies,
)
from lamina.testing.cases import expect


async def a_sealed_store_gives_nothing_without_its_key(trial: StoreTrial) -> None:
    """With the header of a seal in it, only names that encryption makes are read, written and listed."""
    inner = Where(Within(trial.workspace), "sealed")
    async with trial.open() as store:
        await store.append(HEADER, [b""], expect=0, state=b"header")
        await store.append(inner, [b"\x01sealed"], state=b"\x01")
        for where in (trial.where, Where(trial.workspace, "sealed")):
            await expect_error(store.read(where), KeyNeeded)
            await expect_error(store.append(where, [b"plain"]), KeyNeeded)
            await expect_error(store.append(where, [], state=b"plain"), KeyNeeded)
            await expect_error(store.delete(where), KeyNeeded)
            if isinstance(store, Rekeyable):
                await expect_error(store.replace(where, {0: b"plain"}, expect=1), KeyNeeded)
        await expect_error(store.list(trial.workspace), KeyNeeded)
        await expect_error(store.list(f"{trial.workspace}-other"), KeyNeeded)
        if isinstance(store, Measurable):
            await expect_error(store.sizes(trial.workspace), KeyNeeded)
        if isinstance(store, StatesReadable):
            await expect_error(store.states(trial.workspace), KeyNeeded)
        if isinstance(store, BodiesReadable):
            await expect_error(store.bodies(trial.workspace, ["sealed"]), KeyNeeded)
        expected = RecordPage(records=number_bodies(b"\x01sealed"), head=StoredHead(count=1, state=b"\x01"))
        await expect_value(store.read(inner), expected)
        await expect_value(store.list(inner.workspace), [ListedConversation(conversation="sealed", count=1)])
        await expect_count(store.append(inner, [b"\x01more"], expect=1), 2)
        await expect_head(store.read(HEADER), StoredHead(count=1, state=b"header"))
        await expect_value(store.delete(inner), value=True)


async def a_plain_store_takes_no_seal(trial: StoreTrial) -> None:
    """Not while there is a plain conversation; and the header can be changed where there is one."""
    async with trial.open() as store:
        await store.append(trial.where, [b"plain"])
        await expect_error(store.append(HEADER, [b""], expect=0, state=b"header"), WrongKey)
        await expect_value(store.read(HEADER), RecordPage())
        await expect_count(store.read(trial.where), 1)
        await expect_value(store.delete(trial.where), value=True)
        await expect_count(store.append(HEADER, [b""], expect=0, state=b"header"), 1)
        await expect_count(store.append(HEADER, [b""], expect=1, was=b"header", state=b"changed"), 2)


async def plain_and_sealed_do_not_meet(trial: StoreTrial) -> None:
    """Many begin plain conversations while one seals the store: the store is one of both in the end."""
    async with trial.open() as store:
        begun: list[str] = []
        sealed: list[bool] = []

        async def begin(number: int) -> None:
            try:
                await store.append(Where(trial.workspace, f"{number}"), [b"plain"])
            except KeyNeeded:
                return
            begun.append(f"{number}")

        async def seal() -> None:
            try:
                await store.append(HEADER, [b""], expect=0, state=b"header")
            except WrongKey:
                return
            sealed.append(True)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(begin, 0)
            tasks.start_soon(seal)
            for number in range(1, 8):
                tasks.start_soon(begin, number)
        expect(bool(begun) != bool(sealed), f"{len(begun)} plain conversations, and {len(sealed)} seals")
        if begun:
            await expect_names(store.list(trial.workspace), sorted(begun))


SEALABLE: tuple[StorePromise, ...] = (
    a_sealed_store_gives_nothing_without_its_key,
    a_plain_store_takes_no_seal,
    plain_and_sealed_do_not_meet,
)
