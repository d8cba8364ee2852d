"""What a store does whose head is of an earlier time than its records."""

from __future__ import annotations

from typing import Any

from lamina.errors import Damaged
from lamina.stores.port import Where
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
