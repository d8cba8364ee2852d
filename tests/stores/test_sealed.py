from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.errors import BadInput, Conflict, Reused, StoreError, WrongKey
from lamina.stores import (
    MemoryStore,
    Once,
    Store,
    StoredHead,
    Where,
    copy_conversations,
    open_sqlite,
)
from lamina.stores.port import HEADER, places_beside
from lamina.stores.sealed import Passphrase, Sealed, generate
from lamina.testing import Conformance, store
from tests.sessions.talking import awaited

pytestmark = pytest.mark.filterwarnings("ignore::lamina.stores.sqlite.WalResetRisk")
KEY = generate()
WHERE = Where("team", "chat")
Result = TypeVar("Result")


@asynccontextmanager
async def over_memory(_folder: str) -> AsyncIterator[Store]:
    yield Sealed(MemoryStore(), KEY, create=True)


@asynccontextmanager
async def over_sqlite(folder: str) -> AsyncIterator[Store]:
    async with open_sqlite(Path(folder) / "chats.db") as inner:
        yield Sealed(inner, KEY, create=True)


@pytest.mark.parametrize("case", store(over_memory, lasting=False, sealable=False, many=400), ids=str)
def test_sealed_over_memory(case: Conformance) -> None:
    case()


@pytest.mark.thorough  # the suite over memory is the same code above it, and test_sealed_doors opens files
@pytest.mark.parametrize("case", store(over_sqlite, sealable=False, many=2000), ids=str)
def test_sealed_over_sqlite(case: Conformance) -> None:
    case()


@given(
    groups=st.lists(
        st.tuples(st.lists(st.binary(max_size=80), max_size=4), st.none() | st.binary(max_size=40))
    )
)
def test_any_records_in_any_groups_come_back(groups: list[tuple[list[bytes], bytes | None]]) -> None:
    async def trial() -> None:
        inner = MemoryStore()
        sealed = Sealed(inner, KEY, create=True)
        state, bodies = b"", list[bytes]()
        for records, new in groups:
            state, bodies = state if new is None else new, bodies + records
            assert await sealed.append(WHERE, records, state=new) == StoredHead(
                count=len(bodies), state=state
            )
        for reader in (sealed, Sealed(inner, KEY)):
            page = await reader.read(WHERE)
            assert [record.body for record in page.records] == bodies
            assert page.head == StoredHead(count=len(bodies), state=state)

    anyio.run(trial)


def test_what_is_within_holds_nothing_plain(tmp_path: Path) -> None:
    secrets = [b"the diagnosis is leukemia", b"ledger of patient zimmermann", b"clinic-zurich", b"case-4711"]

    async def trial() -> None:
        async with open_sqlite(tmp_path / "chats.db") as inner:
            sealed = Sealed(inner, KEY, create=True)
            where = Where(secrets[2].decode(), secrets[3].decode())
            once = Once(key="request-of-alice", digest=b"digest-of-something-plain")
            await sealed.append(where, [secrets[0]] * 3, state=secrets[1], once=once)
            assert [each.conversation for each in await sealed.list(where.workspace)] == ["case-4711"]

    anyio.run(trial)
    everything = b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))
    assert len(everything) > 4096
    for secret in [*secrets, b"request-of-alice", b"digest-of-something-plain", KEY.secret]:
        assert secret not in everything


@awaited
async def test_the_same_words_are_never_sealed_to_the_same_bytes() -> None:
    inner = MemoryStore()
    sealed = Sealed(inner, KEY, create=True)
    states = set()
    for _ in range(20):
        await sealed.append(WHERE, [b"same words"] * 5, state=b"same state")
        states.add((await inner.read(await sealed.inner(WHERE))).head.state[25:])
    sealed_bodies = [record.body for record in (await inner.read(await sealed.inner(WHERE))).records]
    for start, end in ((17, 33), (33, 45), (45, None)):  # id, nonce, ciphertext
        assert len({body[start:end] for body in sealed_bodies}) == 100
    assert len({state[:12] for state in states}) == len(states) == 20


@awaited
async def test_a_passphrase_opens_what_it_sealed_and_no_key_does() -> None:
    inner = MemoryStore()
    words = Passphrase("a quiet harbour of 7 lamps")
    await Sealed(inner, words, create=True).append(WHERE, [b"x"])
    assert (await Sealed(inner, words).read(WHERE)).records[0].body == b"x"
    for wrong in (Passphrase("a quiet harbour of 8 lamps"), KEY):
        with pytest.raises(WrongKey, match="does not open this store"):
            await Sealed(inner, wrong).read(WHERE)


@awaited
async def test_a_store_that_another_release_sealed_says_what_to_do() -> None:
    inner = MemoryStore()
    await inner.append(HEADER, [b""], state=b'{"format":1,"change":1,"store":"AA==","keys":[]}')
    with pytest.raises(StoreError, match="in format 1; copy it into a plain store with that release"):
        await Sealed(inner, KEY).read(WHERE)


@awaited
async def test_a_sealed_store_goes_over_to_another_key_by_copying() -> None:
    old, new = Sealed(MemoryStore(), KEY, create=True), Sealed(MemoryStore(), generate(), create=True)
    await old.append(WHERE, [b"a", b"b"], state=b"s")
    assert await copy_conversations(old, new, "team") == {"chat": 2}
    assert await new.read(WHERE) == await old.read(WHERE)


@awaited
async def test_a_longest_name_is_sealed_and_listed() -> None:
    sealed = Sealed(MemoryStore(), KEY, create=True)
    name = "é" * 512
    await sealed.append(Where("team", name), [b"x"])
    assert [listed.conversation for listed in await sealed.list("team")] == [name]


def test_the_same_names_are_hidden_differently_in_each_store() -> None:
    async def trial() -> Where:
        sealed = Sealed(MemoryStore(), KEY, create=True)
        await sealed.append(WHERE, [b"x"])
        return await sealed.inner(WHERE)

    one, other = anyio.run(trial), anyio.run(trial)
    assert one.workspace != other.workspace
    assert one.conversation != other.conversation


@awaited
async def test_a_wrong_key_is_never_an_empty_history() -> None:
    inner = MemoryStore()
    await Sealed(inner, KEY, create=True).append(WHERE, [b"x"])
    for create in (False, True):
        wrong = Sealed(inner, generate(), create=create)
        with pytest.raises(WrongKey, match="does not open this store"):
            await wrong.read(WHERE)
        with pytest.raises(WrongKey):
            await wrong.append(WHERE, [b"y"])
        with pytest.raises(WrongKey):
            await wrong.list("team")


@awaited
async def test_a_store_without_a_header_is_not_taken_for_a_new_one() -> None:
    sealed = Sealed(MemoryStore(), KEY)
    with pytest.raises(WrongKey, match="not sealed"):
        await sealed.read(WHERE)
    with pytest.raises(WrongKey, match="not sealed"):
        await sealed.append(WHERE, [b"x"])


@pytest.mark.parametrize("key", [[], [KEY], None, "words"])
def test_anything_but_one_key_is_refused(key: Any) -> None:
    with pytest.raises(BadInput, match="give one Key or Passphrase"):
        Sealed(MemoryStore(), key)


@awaited
async def test_errors_name_the_conversation_as_its_users_know_it() -> None:
    sealed = Sealed(MemoryStore(), KEY, create=True)
    await sealed.append(WHERE, [b"x"], once=Once(key="k", digest=b"1"))
    with pytest.raises(Conflict) as conflict:
        await sealed.append(WHERE, [b"y"], expect=7)
    assert (conflict.value.conversation, conflict.value.expected, conflict.value.found) == ("chat", 7, 1)
    with pytest.raises(Conflict) as conflict:
        await sealed.append(WHERE, [b"y"], expect=7, once=Once(key="new", digest=b"1"))
    assert (conflict.value.conversation, conflict.value.expected, conflict.value.found) == ("chat", 7, 1)
    with pytest.raises(Reused) as reused:
        await sealed.append(WHERE, [b"y"], once=Once(key="k", digest=b"2"))
    assert reused.value.conversation == "chat"
    assert (await sealed.read(WHERE)).head.count == 1


@awaited
async def test_two_instances_see_each_others_writes_and_deletions() -> None:
    inner = MemoryStore()
    one, other = Sealed(inner, KEY, create=True), Sealed(inner, KEY)
    await one.append(WHERE, [b"a"])
    await other.append(WHERE, [b"b"])
    assert [record.body for record in (await one.read(WHERE)).records] == [b"a", b"b"]
    assert await other.delete(WHERE)
    assert (await one.read(WHERE)).head == StoredHead()
    await other.append(WHERE, [b"new"])
    assert [record.body for record in (await one.read(WHERE)).records] == [b"new"]
    await one.append(WHERE, [b"newer"], expect=1)
    assert (await other.read(WHERE, last=1)).records[0].body == b"newer"


class DiedHere(Exception):
    """Stands for the end of a process: no code of lamina catches it."""


class DiesAtCall(MemoryStore):
    """Dies at the n-th call that changes it, before or after the change; -1 never."""

    calls_left = -1
    dies_after = False

    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        return await self._change(partial(super().append, where, records, **arguments))

    async def delete(self, where: Where) -> bool:
        return await self._change(partial(super().delete, where))

    async def _change(self, change: Callable[[], Awaitable[Result]]) -> Result:
        self.calls_left -= 1
        if self.calls_left != -1:
            return await change()
        if self.dies_after:
            await change()
        raise DiedHere


@pytest.mark.parametrize("dies_after", [True, False])
@pytest.mark.parametrize("call", range(2))
@awaited
async def test_a_deletion_that_dies_anywhere_can_be_made_again(call: int, *, dies_after: bool) -> None:
    """The record goes first: while any of it is left, the conversation is listed."""
    inner = DiesAtCall()
    sealed = Sealed(inner, KEY, create=True)
    await sealed.append(WHERE, [b"old"], state=b"old ledger")
    [record] = places_beside(WHERE)
    await sealed.append(record, [b"old request"])
    inner.calls_left, inner.dies_after = call, dies_after
    with pytest.raises(DiedHere):
        await sealed.delete(WHERE)
    inner.calls_left = -1
    again = Sealed(inner, KEY)
    is_there = bool((await again.read(WHERE)).head.count)
    assert [each.conversation for each in await again.list(WHERE.workspace)] == ["chat"] * is_there
    assert await again.delete(WHERE) is is_there
    assert (await again.read(record)).head.is_empty
    head = await again.append(WHERE, [b"new"], expect=0, was=b"", state=b"new ledger")
    assert head == StoredHead(count=1, state=b"new ledger")
    assert len(inner._conversations) == 2, "the header, and the new conversation"  # noqa: SLF001
