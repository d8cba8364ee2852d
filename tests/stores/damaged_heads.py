"""What a store does whose head is damaged, or of an earlier time than its records."""

from __future__ import annotations

from typing import Any

from lamina.errors import Damaged
from lamina.stores.port import Once, StoredHead, Where
from lamina.testing._store_trial import expect_error


async def misses_what_an_older_head_does_not_count(store: Any, where: Where, count: int) -> None:
    """Whatever would read past the head, or write behind it, is refused; `count` is what the head says."""
    for call in (
        store.read(where),
        store.read(where, last=1),
        store.read(where, limit=1),
        store.read(where, after=count),
        store.append(where, [b"four"]),
        store.append(where, [], state=b"later"),
        store.replace(where, {}, expect=count),
        store.list(where.workspace),
    ):
        error = await expect_error(call, Damaged)
        assert "there are more records than its head says" in str(error)
        assert error.conversation == where.conversation


async def refuses_a_damaged_head(store: Any, here: Where, other: Where, once: Once) -> None:
    """Nothing is built upon a damaged head of four records, and others are read as before."""
    for call in (
        store.read(here),
        store.read(here, last=0),
        store.append(here, [b"later"]),
        store.append(here, [b"zero", b"one"], once=once),
        store.replace(here, {0: b"new"}, expect=4),
    ):
        error = await expect_error(call, Damaged)
        assert error.conversation == here.conversation
        assert error.whole == (0, 1, 2, 3)
    assert (await store.read(other)).head == StoredHead(count=2, state=b"of another")
