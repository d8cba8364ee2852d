"""A store on which a story is told: who writes it, and who looks afterwards.

Any other thing that keeps turns can be a `Subject`, too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from itertools import count
from secrets import token_hex
from typing import Protocol

import anyio

from lamina.errors import Reused
from lamina.stores import Once, Store, StoredHead, Where
from tests.torture.story import Chapter, Story

OpenStore = Callable[[str], AbstractAsyncContextManager[Store]]
Acknowledge = Callable[[int], None]

SECONDS = 120
"""Whoever looks at a store for longer has met a deadlock."""


class Subject(Protocol):
    """What keeps turns in a folder. Turns are numbered from 0."""

    def write(self, folder: str, acknowledge: Acknowledge, *, start: int, most: int | None = None) -> None:
        """Add the turns from `start` on, and say of each when it is kept."""

    def check(self, folder: str, acknowledged: int) -> int:
        """How many turns are there. Raises AssertionError, or anything, if not all of these are."""


class Telling:
    """A story, again and again, in one conversation after the other."""

    def __init__(self, open_store: OpenStore, story: Story | None = None, *, workspace: str = "") -> None:
        self.open, self.story = open_store, story or Story()
        self.workspace = workspace or f"torture-{token_hex(6)}"

    def write(self, folder: str, acknowledge: Acknowledge, *, start: int, most: int | None = None) -> None:
        anyio.run(self._write, folder, acknowledge, start, most)

    def check(self, folder: str, acknowledged: int) -> int:
        return anyio.run(self._check, folder, acknowledged)

    def where(self, number: int) -> Where:
        """The conversation that the turn with this number belongs to."""
        return Where(self.workspace, f"c{number // len(self.story):06d}")

    def chapter(self, number: int) -> Chapter:
        return self.story.chapters[number % len(self.story)]

    async def tell(self, store: Store, number: int) -> StoredHead:
        chapter = self.chapter(number)
        was = self.chapter(number - 1).state if chapter.start else b""
        return await store.append(
            self.where(number),
            chapter.records,
            expect=chapter.start,
            was=was,
            once=chapter.once,
            state=chapter.state,
        )

    async def told(self, store: Store) -> int:
        """How many turns are there. All conversations are whole but the last."""
        listed = await store.list(self.workspace, limit=100_000)
        names = [each.conversation for each in listed]
        assert names == [self.where(n * len(self.story)).conversation for n in range(len(names))], (
            f"conversations {names} are not 0, 1, 2 ..."
        )
        whole = self.story.chapters[-1].end
        assert all(each.count == whole for each in listed[:-1]), "an earlier conversation has lost something"
        if not listed:
            return 0
        page = await store.read(self.where((len(listed) - 1) * len(self.story)))
        assert page.head.count == listed[-1].count, "list and read tell different numbers"
        return (len(listed) - 1) * len(self.story) + self.story.told(page)

    async def _write(self, folder: str, acknowledge: Acknowledge, start: int, most: int | None) -> None:
        numbers = count(start) if most is None else range(start, start + most)
        async with self.open(folder) as store:
            for number in numbers:
                head = await self.tell(store, number)
                assert head.count == self.chapter(number).end, (
                    f"group {number} was answered with {head.count}"
                )
                acknowledge(number)

    async def _check(self, folder: str, acknowledged: int) -> int:
        """One writer, so at most one turn is there that nobody was told of."""
        with anyio.fail_after(SECONDS):
            async with self.open(folder) as store:
                told = await self.told(store)
                assert told >= acknowledged, f"{acknowledged} groups were acknowledged, {told} are there"
                assert told <= acknowledged + 1, f"{told} groups are there, {acknowledged} were acknowledged"
                return await self._retry(store, told, acknowledged)

    async def _retry(self, store: Store, told: int, acknowledged: int) -> int:
        """Send again what was not acknowledged, twice, and what was: each is there once."""
        for number in (acknowledged, acknowledged, *([acknowledged - 1] if acknowledged else ())):
            head, chapter = await self.tell(store, number), self.chapter(number)
            assert head.count == chapter.end, f"a retry was answered with {head.count} records"
            newest = max(told, acknowledged + 1) - 1
            now = chapter if self.where(newest) != self.where(number) else self.chapter(newest)
            assert head.state == now.state, "a retry was answered with another state than that of now"
        assert await self.told(store) == max(told, acknowledged + 1), "a retried group is there twice"
        await self._reuse(store, acknowledged)
        return acknowledged + 1

    async def _reuse(self, store: Store, number: int) -> None:
        chapter = self.chapter(number)
        other = Once(key=chapter.once.key, digest=b"of something else")
        try:
            await store.append(self.where(number), [b"something else"], once=other)
        except Reused:
            return
        raise AssertionError("an idempotency key was taken for another group")
