"""The store under test with encryption around it, for the trials that need some."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from lamina.stores import Store
from lamina.stores.sealed import Key, Sealed
from tests.torture.telling import OpenStore

Between = Callable[[Store], Store]


def sealing(open_store: OpenStore, key: Key, *, between: Between | None = None) -> OpenStore:
    """Open the store sealed by this key. `between` stands where an attacker would: below the sealing."""

    @asynccontextmanager
    async def opened(folder: str) -> AsyncIterator[Store]:
        async with open_store(folder) as store:
            yield Sealed(between(store) if between else store, key, create=True)

    return opened
