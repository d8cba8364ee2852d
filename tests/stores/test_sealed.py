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
from msgspec.structs import replace

from lamina.context.search import Chunk
from lamina.errors import BadInput, Conflict, Reused, StoreError, WrongKey
from lamina.sessions import open_search
from lamina.stores import ListedConversation, MemoryStore, Once, Store, StoredHead, Where, open_sqlite
from lamina.stores.port import Within
from lamina.stores.sealed import Sealed, add_key, generate, make_primary, retire, rewrap, verify
from lamina.stores.sealed.cipher import NotSealedHere
from lamina.stores.sealed.documents import mark_deleting, new_data_key, unwrap
from lamina.stores.sealed.records import SealedPlace
from lamina.testing import Conformance, store
from lamina.testing._store_names import NAMES
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


@asynccontextmanager
async def with_plain_names(_folder: str) -> AsyncIterator[Store]:
    yield Sealed(MemoryStore(), KEY, create=True, names="plain", bucket=256)


@pytest.mark.parametrize("case", store(over_memory, lasting=False, sealable=False, many=400), ids=str)
def test_sealed_over_memory(case: Conformance) -> None:
    case()


ABOUT_NAMES = {promise.__name__.replace("_", " ") for promise in NAMES}
WITH_PLAIN_NAMES = store(with_plain_names, lasting=False, sealable=False)


@pytest.mark.parametrize("case", [case for case in WITH_PLAIN_NAMES if case.name in ABOUT_NAMES], ids=str)
def test_sealed_with_plain_names(case: Conformance) -> None:
    case()


@pytest.mark.thorough  # the suite over memory is the same code above it, and test_sealed_doors opens files
@pytest.mark.parametrize("case", store(over_sqlite, sealable=False, many=2000), ids=str)
def test_sealed_over_sqlite(case: Conformance) -> None:
    case()


@given(
    groups=st.lists(
        st.tuples(st.lists(st.binary(max_size=80), max_size=4), st.none() | st.binary(max_size=40))
    ),
    bucket=st.sampled_from([1, 16, 256]),
)
def test_any_records_in_any_groups_come_back(
    groups: list[tuple[list[bytes], bytes | None]], bucket: int
) -> None:
    async def trial() -> None:
        inner = MemoryStore()
        sealed = Sealed(inner, KEY, create=True, bucket=bucket)
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
        states.add((await inner.read(sealed.vault.inner(WHERE))).head.state[47:])
    sealed_bodies = [record.body for record in (await inner.read(sealed.vault.inner(WHERE))).records]
    for start, end in ((6, 22), (54, 66), (66, None)):  # id, nonce, ciphertext
        assert len({body[start:end] for body in sealed_bodies}) == 100
    assert len({state[:12] for state in states}) == len(states) == 20


def test_a_wrapped_key_that_is_not_the_committed_one_is_refused() -> None:
    place = SealedPlace(b"s" * 16, "team", "chat")
    data = new_data_key(place, KEY, generation=1, since=0)
    assert len(unwrap(place, KEY, data)) == 32
    other = new_data_key(place, KEY, generation=1, since=0)
    for wrong in (replace(data, commitment=other.commitment), replace(data, wrapped=other.wrapped)):
        with pytest.raises(NotSealedHere):
            unwrap(place, KEY, wrong)
    for elsewhere in (SealedPlace(b"t" * 16, "team", "chat"), SealedPlace(b"s" * 16, "team", "chat2")):
        with pytest.raises(NotSealedHere):
            unwrap(elsewhere, KEY, data)


def test_names_are_readable_within_only_if_asked_for() -> None:
    async def trial(names: str) -> list[str]:
        inner = MemoryStore()
        await Sealed(inner, KEY, create=True, names=names).append(WHERE, [b"x"])
        return [each.conversation for each in await inner.list(Within("team"))]

    assert anyio.run(trial, "hashed") == []
    assert anyio.run(trial, "plain") == ["chat"]


def test_the_same_names_are_hidden_differently_in_each_store() -> None:
    async def trial() -> Where:
        sealed = Sealed(MemoryStore(), KEY, create=True)
        await sealed.append(WHERE, [b"x"])
        return sealed.vault.inner(WHERE)

    one, other = anyio.run(trial), anyio.run(trial)
    assert one.workspace != other.workspace
    assert one.conversation != other.conversation


def test_padding_hides_sizes() -> None:
    async def trial() -> set[int]:
        inner = MemoryStore()
        sealed = Sealed(inner, KEY, create=True, bucket=256)
        await sealed.append(WHERE, [b"x" * size for size in (0, 1, 100, 255)])
        page = await inner.read(sealed.vault.inner(WHERE))
        assert [len(record.body) for record in (await sealed.read(WHERE)).records] == [0, 1, 100, 255]
        return {len(record.body) for record in page.records}

    assert len(anyio.run(trial)) == 1


@awaited
async def test_a_wrong_key_is_never_an_empty_history() -> None:
    inner = MemoryStore()
    await Sealed(inner, KEY, create=True).append(WHERE, [b"x"])
    for create in (False, True):
        wrong = Sealed(inner, generate(), create=create)
        with pytest.raises(WrongKey, match="none of the given keys"):
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


def test_no_key_is_refused() -> None:
    with pytest.raises(BadInput, match="never stored plain"):
        Sealed(MemoryStore(), [])


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


class Deletes(MemoryStore):
    """Another process deletes everything between the listing of names and the reading of cards."""

    busy = False

    async def list(
        self, workspace: str, *, after: str = "", limit: int = 1000
    ) -> Sequence[ListedConversation]:
        listed = await super().list(workspace, after=after, limit=limit)
        if self.busy:
            self.busy = False
            await Sealed(self, KEY).delete(WHERE)
        return listed


@awaited
async def test_a_conversation_deleted_while_it_is_listed_is_no_alarm() -> None:
    inner = Deletes()
    await Sealed(inner, KEY, create=True).append(WHERE, [b"x"])
    inner.busy = True
    assert await Sealed(inner, KEY).list("team") == []


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

    async def withdraw(self, where: Where, *, was: bytes) -> bool:
        return await self._change(partial(super().withdraw, where, was=was))

    async def _change(self, change: Callable[[], Awaitable[Result]]) -> Result:
        self.calls_left -= 1
        if self.calls_left != -1:
            return await change()
        if self.dies_after:
            await change()
        raise DiedHere


class OnlyThePort:
    """A store of somebody else: the four functions, and nothing that is optional."""

    def __init__(self, store: Store) -> None:
        self.append = store.append
        self.read = store.read
        self.list = store.list
        self.delete = store.delete


async def interrupted_deletion(
    call: int, *, dies_after: bool, only_the_port: bool = False
) -> tuple[MemoryStore, bool]:
    """A store in which the deletion of a conversation died at a call; False if it was finished before."""
    inner = DiesAtCall()
    sealed = Sealed(OnlyThePort(inner) if only_the_port else inner, KEY, create=True)
    await sealed.append(WHERE, [b"old"], state=b"old ledger")
    async with open_search(sealed, workspace=WHERE.workspace) as index:
        await index.replace(WHERE.conversation, [Chunk(text="old words")])
    inner.calls_left = call
    inner.dies_after = dies_after
    try:
        await sealed.delete(WHERE)
    except DiedHere:
        died = True
    else:
        died = False
    inner.calls_left = -1
    return inner, died


@pytest.mark.parametrize("remedy", ["append", "delete", "index"])
@pytest.mark.parametrize("dies_after", [True, False])
@awaited
async def test_a_deletion_that_dies_anywhere_can_be_finished(remedy: str, *, dies_after: bool) -> None:
    outcomes: list[str] = []
    for call in range(20):
        inner, died = await interrupted_deletion(call, dies_after=dies_after)
        if not died:
            break
        outcomes.append(await check_recovery(inner, remedy))
    else:
        pytest.fail("a deletion has no end")
    last = ["gone"] if dies_after else []  # the last call of a deletion drops the card
    assert set(outcomes) == {"there", "unfinished", *last}


async def check_recovery(inner: MemoryStore, remedy: str) -> str:
    """What a new process finds after a deletion that died, and that it can go on. The outcome in a word."""
    again = Sealed(inner, KEY)
    unfinished = await again.unfinished_deletions(WHERE.workspace)
    bodies = [record.body for record in (await again.read(WHERE)).records]
    outcome = "gone"
    if unfinished:
        outcome = "unfinished"
        assert (unfinished, bodies) == (["chat"], [])
        open_card = await again.cards.read(WHERE, fresh=True)
        assert open_card is not None
        assert open_card.card.data == (), "the keys are gone before anything else"
        with pytest.raises(StoreError, match="deletion was interrupted"):
            await verify(again, WHERE)
    elif bodies:
        outcome = "there"
        assert bodies == [b"old"]
    if not unfinished:
        assert (await verify(again, WHERE)).count == len(bodies)
    assert [each.conversation for each in await again.list(WHERE.workspace)] == ["chat"] * len(bodies)
    if remedy == "delete" or outcome == "there":
        assert await again.delete(WHERE) is (outcome != "gone")
    if remedy == "index":
        async with open_search(again, workspace=WHERE.workspace) as index:
            await index.replace(WHERE.conversation, [Chunk(text="new words")])
            assert [hit.chunk.text for hit in await index.query("words")] == ["new words"]
    head = await again.append(WHERE, [b"new"], expect=0, was=b"", state=b"new ledger")
    assert head == StoredHead(count=1, state=b"new ledger")
    assert [record.body for record in (await Sealed(inner, KEY).read(WHERE)).records] == [b"new"]
    assert (await verify(again, WHERE)).count == 1
    assert await again.unfinished_deletions(WHERE.workspace) == []
    return outcome


@awaited
async def test_who_has_listed_a_conversation_lists_it_no_more_once_its_deletion_began() -> None:
    inner = MemoryStore()
    deleting, watching = Sealed(inner, KEY, create=True), Sealed(inner, KEY)
    await deleting.append(WHERE, [b"old"])
    assert [each.conversation for each in await watching.list(WHERE.workspace)] == ["chat"]
    await deleting.cards.change(WHERE, lambda now: mark_deleting(now.card))  # and here it is killed
    assert await watching.list(WHERE.workspace) == []
    assert await watching.delete(WHERE)


@awaited
async def test_a_store_without_conditions_finishes_a_deletion_too() -> None:
    inner, died = await interrupted_deletion(3, dies_after=True, only_the_port=True)
    assert died
    await check_recovery(inner, "append")


class SlowDeletion(MemoryStore):
    """Lets something happen before a record or a card is deleted, once."""

    meanwhile: Callable[[], Awaitable[None]] | None = None
    withdrawals_before = 0

    async def withdraw(self, where: Where, *, was: bytes) -> bool:
        self.withdrawals_before -= 1
        if self.withdrawals_before < 0 and self.meanwhile is not None:
            happens = self.meanwhile
            self.meanwhile = None
            await happens()
        return await super().withdraw(where, was=was)


@pytest.mark.parametrize("withdrawals_before", [0, 1])
@awaited
async def test_a_slow_deletion_spares_what_was_begun_after_it(withdrawals_before: int) -> None:
    inner = SlowDeletion()
    slow = Sealed(inner, KEY, create=True)
    fast = Sealed(inner, KEY)
    await slow.append(WHERE, [b"old"])

    async def meanwhile() -> None:
        await fast.append(WHERE, [b"new"], expect=0)

    inner.withdrawals_before = withdrawals_before
    inner.meanwhile = meanwhile
    assert await slow.delete(WHERE)
    assert inner.meanwhile is None
    for each in (slow, fast, Sealed(inner, KEY)):
        assert [record.body for record in (await each.read(WHERE)).records] == [b"new"]
    assert (await verify(fast, WHERE)).count == 1


@awaited
async def test_a_key_is_not_retired_while_an_interrupted_deletion_needs_it() -> None:
    inner, died = await interrupted_deletion(3, dies_after=True)
    assert died
    new = generate()
    sealed = Sealed(inner, [KEY, new])
    assert await sealed.unfinished_deletions(WHERE.workspace) == ["chat"]
    await make_primary(sealed, await add_key(sealed, new))
    with pytest.raises(StoreError, match="in use"):
        await retire(sealed, KEY.id)
    await rewrap(sealed)
    await retire(sealed, KEY.id)
    later = Sealed(inner, new)
    await later.append(WHERE, [b"new"], expect=0)
    assert [record.body for record in (await later.read(WHERE)).records] == [b"new"]
