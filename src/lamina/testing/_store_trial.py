"""One case of a suite for stores: the store on trial, and what its answers are expected to be.

A case has a `StoreTrial`: the folder of the store, and names that no other case uses. Every check raises
AssertionError by itself, so that a suite fails under `python -O` too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from secrets import token_hex
from typing import TypeVar

from lamina.stores.port import ListedConversation, Record, RecordPage, Store, StoredHead, Where
from lamina.testing.cases import expect_equal

OpenStore = Callable[[str], AbstractAsyncContextManager[Store]]
"""Opens the store that lives in a folder."""

E = TypeVar("E", bound=BaseException)


class StoreTrial:
    """A store on trial. `many` is how many records a long conversation has."""

    def __init__(self, open_store: OpenStore, folder: str, *, many: int) -> None:
        self._open = open_store
        self._folder = folder
        self.many = many
        self.workspace = f"workspace-{token_hex(6)}"
        self.where = Where(self.workspace, "conversation")

    def open(self) -> AbstractAsyncContextManager[Store]:
        """The store in the folder of this case. A second call opens the same store again."""
        return self._open(self._folder)


def make_bodies(count: int) -> list[bytes]:
    """So many bodies, each of which says its number."""
    return [f"record {number}".encode() for number in range(count)]


async def expect_error(call: Awaitable[object], kind: type[E]) -> E:
    """The error that the call raises, which has to be of this kind."""
    try:
        answer = await call
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was due, not {answer!r}")


async def expect_value(call: Awaitable[object], value: object) -> None:
    """The call has to answer with this value. A list may be any sequence."""
    answer = await call
    if isinstance(value, list) and isinstance(answer, Sequence):
        answer = list(answer)
    expect_equal(answer, value)


async def expect_count(call: Awaitable[StoredHead | RecordPage], count: int) -> None:
    """The call has to answer that the conversation has so many records."""
    answer = await call
    if isinstance(answer, RecordPage):
        answer = answer.head
    expect_equal(answer.count, count, "the number of records")


async def expect_names(call: Awaitable[Sequence[ListedConversation]], names: Sequence[str]) -> None:
    """The call has to list conversations of these names."""
    listed = [conversation.conversation for conversation in await call]
    expect_equal(listed, list(names))


async def expect_numbers(call: Awaitable[RecordPage], numbers: Sequence[int]) -> None:
    """The call has to read the records of these numbers."""
    page = await call
    expect_equal([record.seq for record in page.records], list(numbers))


async def expect_bodies(call: Awaitable[RecordPage], bodies: Sequence[bytes], place: str = "") -> None:
    """The call has to read records with these bodies."""
    page = await call
    expect_equal([record.body for record in page.records], list(bodies), place)


async def expect_head(call: Awaitable[RecordPage], head: StoredHead) -> None:
    """The call has to read a page with this head."""
    page = await call
    expect_equal(page.head, head)


def number_bodies(*bodies: bytes) -> tuple[Record, ...]:
    """The records that a store makes of these bodies, if they are the first."""
    return tuple(Record(seq=seq, body=body) for seq, body in enumerate(bodies))


StorePromise = Callable[[StoreTrial], Awaitable[None]]
"""One thing that every store must do. Its name is the title of the case."""
