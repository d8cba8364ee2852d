"""A lamina store for frameworks that call it with and without `await`: see `lamina.stores.store_thread`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from lamina.errors import Damaged
from lamina.stores.paging import every_conversation
from lamina.stores.port import Store
from lamina.stores.store_thread import StoreAddress, StoreThread


def open_store_thread(store: StoreAddress | StoreThread, *, key: Any = None) -> StoreThread:
    """Return a store that is open already as it is, and open any other."""
    if isinstance(store, StoreThread):
        return store
    return StoreThread(store, key=key)


async def list_names(store: Store, workspace: str, *, prefix: str = "") -> list[str]:
    """The names of all conversations of a workspace that begin with the prefix."""
    names = [each.conversation async for each in every_conversation(store, workspace)]
    return [name for name in names if name.startswith(prefix)]


def decode_stored(source: bytes, kind: Any = Any) -> Any:
    """The value whose JSON a store has. Raises Damaged if it is not JSON, or not of this kind."""
    try:
        return msgspec.json.decode(source, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(f"what the store has cannot be read: {error}") from error


def run_both_ways(function: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Two methods of a class with a `store`, one that waits for `function` and one to await.

    `function` is an async method that gets the open store first.
    """

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.store.run(partial(function, self), *args, **kwargs)

    async def acall(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await self.store.arun(partial(function, self), *args, **kwargs)

    return call, acall
