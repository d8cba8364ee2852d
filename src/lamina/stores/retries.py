"""Writes again after another writer was faster.

    async def write() -> None:
        page = await store.read(where)
        await store.append(where, plan(page), expect=page.head.count)

    await retry_conflicts(write, tries=20)

The function reads anew each time, so it sees what the other writer has added.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from lamina.errors import Conflict

T = TypeVar("T")


async def retry_conflicts(write: Callable[[], Awaitable[T]], *, tries: int) -> T:
    """Call a function that reads and then writes, until nobody else has written in between.

    If others were first each time, the last Conflict is raised.
    """
    for _ in range(tries - 1):
        with suppress(Conflict):
            return await write()
    return await write()
