"""The suite itself: stores with one fault each, which it has to find."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from lamina.errors import BadInput, LaminaError
from lamina.stores import ListedConversation, MemoryStore, Once, RecordPage, Store, StoredHead, Where
from lamina.stores.checks import check_no_plain, is_sealed_name
from lamina.stores.memory import _Conversation
from lamina.stores.port import HEADER, OwnName
from lamina.testing import store


class NoCompareAndSwap(MemoryStore):
    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        return await super().append(where, records, **{**arguments, "expect": None})


class ComparesTooEarly(MemoryStore):
    async def append(
        self, where: Where, records: Sequence[bytes], *, expect: int | None = None, **arguments: Any
    ) -> StoredHead:
        if expect is not None and expect == (await self.read(where)).head.count:
            expect = None
        return await super().append(where, records, expect=expect, **arguments)


class SplitsGroups(MemoryStore):
    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        head = await super().append(where, records[:1], **arguments)
        for record in records[1:]:
            head = await super().append(where, [record])
        return head


class StateComesLater(MemoryStore):
    async def append(
        self, where: Where, records: Sequence[bytes], *, state: bytes | None = None, **arguments: Any
    ) -> StoredHead:
        head = await super().append(where, records, **arguments)
        return head if state is None else await super().append(where, [], state=state)


class IgnoresKeys(MemoryStore):
    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        return await super().append(where, records, **{**arguments, "once": None})


class IgnoresDigests(MemoryStore):
    async def append(
        self, where: Where, records: Sequence[bytes], *, once: Once | None = None, **arguments: Any
    ) -> StoredHead:
        return await super().append(where, records, once=once and Once(key=once.key, digest=b""), **arguments)


class KeysOfAll(MemoryStore):
    """One set of keys for all conversations."""

    def __init__(self) -> None:
        super().__init__()
        self.heads: dict[str, StoredHead] = {}

    async def append(
        self, where: Where, records: Sequence[bytes], *, once: Once | None = None, **arguments: Any
    ) -> StoredHead:
        if once is not None and once.key in self.heads:
            return self.heads[once.key]
        head = await super().append(where, records, once=once, **arguments)
        if once is not None:
            self.heads[once.key] = head
        return head


class IgnoresWorkspaces(MemoryStore):
    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        return await super().append(Where("", where.conversation), records, **arguments)

    async def read(self, where: Where, **arguments: Any) -> RecordPage:
        return await super().read(Where("", where.conversation), **arguments)

    async def list(self, workspace: str, **arguments: Any) -> Sequence[ListedConversation]:
        return await super().list(workspace and "", **arguments)

    async def delete(self, where: Where) -> bool:
        return await super().delete(Where("", where.conversation))


class TailReversed(MemoryStore):
    async def read(self, where: Where, *, last: int | None = None, **arguments: Any) -> RecordPage:
        page = await super().read(where, last=last, **arguments)
        return page if last is None else RecordPage(records=page.records[::-1], head=page.head)


class CleansNames(MemoryStore):
    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        return await super().append(Where(where.workspace, where.conversation.strip()), records, **arguments)

    async def read(self, where: Where, **arguments: Any) -> RecordPage:
        return await super().read(Where(where.workspace, where.conversation.strip()), **arguments)


class DeletesRecordsOnly(MemoryStore):
    async def delete(self, where: Where) -> bool:
        conversation = self._conversations.get(where)
        if conversation is None or not conversation.bodies:
            return False
        conversation.bodies, conversation.state = [], b""
        return True


class HalfOfAFailedGroup(MemoryStore):
    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        try:
            return await super().append(where, records, **arguments)
        except BadInput:
            await super().append(where, records[:1])
            raise


class HalfOfACancelledGroup(MemoryStore):
    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        head = await super().append(where, records[:25], **arguments)
        if len(records) <= 25:
            return head
        await checkpoint()
        return await super().append(where, records[25:], state=arguments.get("state"))


class HeadOfAnotherMoment(MemoryStore):
    async def read(self, where: Where, **arguments: Any) -> RecordPage:
        page = await super().read(where, **arguments)
        await checkpoint()
        return RecordPage(records=page.records, head=(await super().read(where)).head)


class ReplacesBlindly(MemoryStore):
    async def replace(
        self, where: Where, bodies: Mapping[int, bytes], *, expect: int, **arguments: Any
    ) -> StoredHead:
        count = (await self.read(where)).head.count
        return await super().replace(where, bodies, expect=max(expect, count), **arguments)


class ReplacesAnyState(MemoryStore):
    async def replace(self, where: Where, bodies: Mapping[int, bytes], **arguments: Any) -> StoredHead:
        return await super().replace(where, bodies, **{**arguments, "was": None})


class IgnoresStates(MemoryStore):
    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        return await super().append(where, records, **{**arguments, "was": None})


class ComparesStatesTooEarly(MemoryStore):
    async def append(
        self, where: Where, records: Sequence[bytes], *, was: bytes | None = None, **arguments: Any
    ) -> StoredHead:
        if was is not None and was == (await self.read(where)).head.state:
            was = None
        return await super().append(where, records, was=was, **arguments)


class StateBeforeKey(MemoryStore):
    """Looks at the state before it looks at the key."""

    async def append(
        self, where: Where, records: Sequence[bytes], *, was: bytes | None = None, **arguments: Any
    ) -> StoredHead:
        await super().append(where, [], was=was)
        return await super().append(where, records, **arguments)


class StateOfTheFirstTime(MemoryStore):
    """Keeps a state with each key."""

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[tuple[Where, str], bytes] = {}

    async def append(
        self, where: Where, records: Sequence[bytes], *, once: Once | None = None, **arguments: Any
    ) -> StoredHead:
        head = await super().append(where, records, once=once, **arguments)
        if once is None:
            return head
        return StoredHead(count=head.count, state=self.states.setdefault((where, once.key), head.state))


class CountOfNow(MemoryStore):
    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        await super().append(where, records, **arguments)
        return (await super().read(where)).head


class LastBeforeAfter(MemoryStore):
    async def read(self, where: Where, *, last: int | None = None, **arguments: Any) -> RecordPage:
        return await super().read(where, last=last, **({} if last is not None else arguments))


class ForgetsTheKey(MemoryStore):
    """Lets everybody read and write beside sealed records."""

    def _check_key(self, workspace: str) -> None:
        pass


class TakesAnySeal(MemoryStore):
    """Lets itself be sealed whatever it holds."""

    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        if where != HEADER:
            return await super().append(where, records, **arguments)
        before, self._conversations = (
            self._conversations,
            {other: conversation for other, conversation in self._conversations.items() if other == HEADER},
        )
        try:
            return await super().append(where, records, **arguments)
        finally:
            self._conversations = before | self._conversations


class SealsTooLate(MemoryStore):
    """Looks for plain conversations, and lets others begin some before it keeps the header."""

    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        if where != HEADER:
            return await super().append(where, records, **arguments)
        check_no_plain(plain=any(not is_sealed_name(other.workspace) for other in self._conversations))
        for _ in range(20):
            await checkpoint()
        self._conversations[HEADER] = header = _Conversation()
        header.bodies, header.state = [*records], arguments["state"]
        return StoredHead(count=1, state=arguments["state"])


class TakesNamesOfLamina(MemoryStore):
    """Lets anybody write where only lamina itself does."""

    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        return await super().append(Where(OwnName(where.workspace), where.conversation), records, **arguments)


FAULTS: dict[Callable[[], Store], str] = {
    NoCompareAndSwap: "an append expects what was read",
    ComparesTooEarly: "of two writers one wins",
    SplitsGroups: "groups stand together",
    StateComesLater: "a read sees one moment",
    IgnoresKeys: "a repeated append is kept once",
    IgnoresDigests: "a key is for one body",
    KeysOfAll: "workspaces are apart",
    IgnoresWorkspaces: "workspaces are apart",
    TailReversed: "a read finds what it names",
    CleansNames: "odd names stay apart",
    DeletesRecordsOnly: "what is deleted is gone",
    TakesNamesOfLamina: "names of lamina are refused",
    HalfOfAFailedGroup: "a group is kept whole or not at all",
    HalfOfACancelledGroup: "a cancelled append happened or did not",
    HeadOfAnotherMoment: "a read sees one moment",
    ReplacesBlindly: "replacing changes bodies only",
    ReplacesAnyState: "replacing changes bodies only",
    IgnoresStates: "an append expects the state that was read",
    ComparesStatesTooEarly: "of two states one wins",
    StateBeforeKey: "a repeated append is kept once",
    StateOfTheFirstTime: "a repeated append is kept once",
    CountOfNow: "a repeated append is kept once",
    LastBeforeAfter: "a read names its records in one way",
    ForgetsTheKey: "a sealed store gives nothing without its key",
    TakesAnySeal: "a plain store takes no seal",
    SealsTooLate: "plain and sealed do not meet",
}


@pytest.mark.parametrize(
    ("faulty", "promise"), FAULTS.items(), ids=lambda each: getattr(each, "__name__", "")
)
def test_a_faulty_store_is_found(faulty: Callable[[], Store], promise: str) -> None:
    @asynccontextmanager
    async def opened(_folder: str) -> AsyncIterator[Store]:
        yield faulty()

    [case] = [case for case in store(opened, lasting=False) if case.name == promise]
    with pytest.raises((AssertionError, ExceptionGroup, LaminaError)):
        case()


def test_a_store_that_forgets_is_found() -> None:
    @asynccontextmanager
    async def opened(_folder: str) -> AsyncIterator[Store]:
        yield MemoryStore()

    [case] = [case for case in store(opened) if case.name == "opened again everything is there"]
    with pytest.raises(AssertionError):
        case()


def test_faults_are_found_where_python_leaves_out_asserts() -> None:
    """`TailReversed` is found by comparing a page, which an `assert` would not do under `python -O`."""
    script = (
        "from tests.stores.test_suite import TailReversed, test_a_faulty_store_is_found as find\n"
        "find(TailReversed, 'a read finds what it names')"
    )
    subprocess.run([sys.executable, "-O", "-c", script], check=True, timeout=60)
