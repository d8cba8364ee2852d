"""Lets a store overwrite the bytes of records that were replaced.

A database leaves the bytes of a replaced record in its file until it needs their place. Every store of lamina
removes such bytes when it deletes a conversation, so one is made and deleted for it.
"""

from __future__ import annotations

from lamina.stores.port import OwnName, Store, Where

SWEEP = Where(OwnName("lamina.sweep"), "sweep")
"""The conversation that is made and deleted."""


async def sweep_replaced(store: Store, *, place: Where = SWEEP) -> None:
    """Remove from the disk what `replace` has replaced, as far as a deletion removes it."""
    await store.append(place, [b""])
    await store.delete(place)
