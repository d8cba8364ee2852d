"""Many writers, retries, a store that fails, and state that was lost."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from itertools import count
from typing import Any

import anyio
import msgspec
import pytest

from lamina.core.values import Budget, Segment
from lamina.errors import BadInput, Conflict, Reused
from lamina.formats.codec import encode
from lamina.segments import excerpt, file, user
from lamina.sessions import Session
from lamina.stores import MemoryStore, Where
from tests.sessions.talking import Flaky, answer, awaited, list_texts, opened, setup_of, wire

A = Where("", "a")


@awaited
async def test_a_turn_is_put_after_what_another_writer_added() -> None:
    store = MemoryStore()
    async with opened(store, model="gpt-5") as one, opened(store, model="gpt-5") as two:
        await one.ask("first")
        await one.record("yes")
        envelope = await two.ask("second")
        assert list_texts(two) == ["first", "yes", "second"]
        assert len(envelope.sent) == 3
        with pytest.raises(Conflict):
            await one.record("too late")
        assert list_texts(one) == ["first", "yes", "second"]
        await two.record("fine")
    async with opened(store) as session:
        assert list_texts(session) == ["first", "yes", "second", "fine"]


@awaited
async def test_what_would_take_back_another_writers_turn_is_refused() -> None:
    store = MemoryStore()
    async with opened(store, model="gpt-5") as one, opened(store) as two:
        await one.ask("first")
        await two.reload()
        await one.record("yes")
        with pytest.raises(Conflict):
            await two.rewind(0)
        assert list_texts(two) == ["first", "yes"]


@awaited
async def test_many_tasks_on_one_session_and_many_sessions_lose_nothing() -> None:
    store = MemoryStore()

    async def write(name: str) -> None:
        async with opened(store, model="gpt-5") as session:
            for number in range(4):
                await session.ask(f"{name}{number}")

    async with anyio.create_task_group() as group:
        for name in "abcdef":
            group.start_soon(write, name)
    async with opened(store) as session:
        assert sorted(list_texts(session)) == sorted(
            f"{name}{number}" for name in "abcdef" for number in range(4)
        )


@pytest.mark.parametrize("fails", ["before", "after"])
@awaited
async def test_a_repeated_turn_is_kept_once(fails: str) -> None:
    store, seconds = Flaky(), count()
    clock = lambda: datetime.fromtimestamp(next(seconds), tz=UTC)  # noqa: E731
    async with opened(store, model="gpt-5", clock=clock) as session:
        store.fails = fails
        with pytest.raises(OSError, match="the "):
            await session.ask("hello", attach=[file("a.md", "text")], key="turn-1")
        for _ in range(2):
            envelope = await session.ask("hello", attach=[file("a.md", "text")], key="turn-1")
        assert len(envelope.sent) == 2
        store.fails = fails
        with pytest.raises(OSError, match="the "):
            await session.record("hi", key="answer-1")
        await session.record("hi", key="answer-1")
        assert list_texts(session) == ["hello", "hi"]
        with pytest.raises(Reused):
            await session.ask("something else", key="turn-1")
    async with opened(store) as session:
        await session.ask("hello", attach=[file("a.md", "text")], key="turn-1")
        assert list_texts(session) == ["hello", "hi"]
        assert not session.pending


@awaited
async def test_a_turn_may_be_repeated_though_its_sources_find_something_else() -> None:
    letters = iter("abc")

    async def source(_: str, __: int | None) -> list[Segment]:
        return [excerpt(next(letters), source="wiki")]

    async with opened(MemoryStore(), model="gpt-5", sources=[source]) as session:
        for _ in range(2):
            await session.ask("hello", key="turn-1")
        assert len(session.log) == 2


@pytest.mark.parametrize("fails", ["before", "after"])
@awaited
async def test_a_store_that_failed_leaves_a_session_that_goes_on(fails: str) -> None:
    store = Flaky()
    async with opened(store, model="gpt-5") as session:
        await session.ask("one")
        store.fails = fails
        with pytest.raises(OSError, match="the "):
            await session.record("first")
        await session.ask("two")
        expected = wire(await session.request())
    async with opened(store) as session:
        assert wire(await session.request()) == expected
        assert list_texts(session) == (["one", "first", "two"] if fails == "after" else ["one", "two"])


@awaited
async def test_an_answer_may_follow_a_turn_of_which_nobody_knew_that_it_was_kept() -> None:
    store = Flaky()
    async with opened(store, model="gpt-5") as session:
        store.fails = "after"
        with pytest.raises(OSError, match="got lost"):
            await session.ask("one")
        await session.record("first")
        assert list_texts(session) == ["one", "first"]


async def _request(session: Session) -> None:
    assert wire(await session.request()).endswith('{"role": "user", "content": "two"}]}')


async def _regenerate(session: Session) -> None:
    await session.regenerate()
    assert list_texts(session)[-1] == "two"


async def _rewind(session: Session) -> None:
    await session.rewind(-1)
    assert list_texts(session) == ["one", "first"]


async def _fork(session: Session) -> None:
    assert list_texts(await session.fork(name="b")) == ["one", "first", "two"]


@pytest.mark.parametrize("call", [_request, _regenerate, _rewind, _fork])
@awaited
async def test_whatever_comes_after_a_turn_of_unknown_end_looks_whether_it_was_kept(
    call: Callable[[Session], Awaitable[None]],
) -> None:
    store = Flaky()
    async with opened(store, model="gpt-5") as session:
        await session.ask("one")
        await session.record("first")
        store.fails = "after"
        with pytest.raises(OSError, match="got lost"):
            await session.ask("two")
        await call(session)


@awaited
async def test_after_a_crash_at_any_group_the_next_request_is_that_of_the_uncrashed_twin() -> None:
    budget, groups = Budget(window=900, reserve=0, keep_last=1), 16

    async def play(store: Flaky, crash: int) -> list[str]:
        played = []
        for number in range(groups):
            if number == crash:
                store.fails = "after"
            async with opened(store, **setup_of("anthropic", budget=budget)) as session:
                try:
                    await _group(session, number)
                except OSError:
                    continue
                played.append(wire(await session.request()) if session.pending else "answered")
        return played

    twin = await play(Flaky(), -1)
    for crash in range(groups):
        played = await play(Flaky(), crash)
        assert played == twin[:crash] + twin[crash + 1 :]


async def _group(session: Session, number: int) -> None:
    if session.pending:
        await session.record(answer("anthropic", f"answer {number} " + "word " * 30))
    else:
        await session.ask(f"question {number}", attach=[file(f"{number}.md", f"{number} line\n" * 40)])


async def broken(state: bytes) -> tuple[MemoryStore, str]:
    """A conversation with a cut, whose state was replaced; and what it would have sent."""
    store, budget = MemoryStore(), Budget(window=1_500, reserve=0)
    async with opened(store, model="gpt-5", budget=budget) as session:
        for number in range(8):
            await session.ask(f"q{number}", attach=[file(f"{number}.md", f"text {number} " * 60)])
            await session.record("a " * 60)
        assert session.ledger.lines
    await store.append(A, [], state=state)
    return store, ""


@pytest.mark.parametrize(
    "state", [b"", b"{", b"[]", b'{"version": "2"}', b'{"version": 2, "lines": 7}', b"\xff"]
)
@awaited
async def test_a_damaged_ledger_is_reported_and_rebuilt_from_the_log(state: bytes) -> None:
    store, _ = await broken(state)
    async with opened(store) as session:
        (note,) = session.notes
        assert "rebuilt from the log, as a new epoch" in note
        assert session.ledger.cuts[0].reason in ("no ledger was kept", "the ledger could not be read")
        await session.ask("go on")
        assert session.explain().tokens <= 1_500
        expected = wire(await session.request())
    async with opened(store) as session:
        assert session.notes == ()
        assert wire(await session.request()) == expected


@pytest.mark.parametrize(("version", "advice"), [(3, "update lamina"), (1, "export it")])
@awaited
async def test_a_ledger_of_another_version_is_refused_not_overwritten(version: int, advice: str) -> None:
    store, _ = await broken(b'{"version": %d, "lines": {}}' % version)
    with pytest.raises(BadInput, match=f"version {version}; .*{advice}"):
        async with opened(store):
            pass


@pytest.mark.parametrize(
    "record", [b'{"v": 2}', b'{"v": 1, "control": {"type": "merge"}}', b"{", b'{"v": 1, "segment": {}}']
)
@awaited
async def test_records_of_a_newer_release_are_refused(record: bytes) -> None:
    store = MemoryStore()
    await store.append(A, [encode(user("hi")), record])
    with pytest.raises(BadInput, match="record"):
        async with opened(store):
            pass


@awaited
async def test_the_ledger_can_be_read_by_whoever_reads_ledgers() -> None:
    from lamina.core.values import Ledger  # noqa: PLC0415

    store = MemoryStore()
    async with opened(store, model="gpt-5") as session:
        await session.ask("hello")
        state: Any = json.loads((await store.read(A)).head.state)
        assert Ledger.load(state) == session.ledger
        assert msgspec.json.decode((await store.read(A)).records[0].body)["control"]["type"] == "setup"
