from __future__ import annotations

import pytest

from lamina.core.values import Budget, Form
from lamina.errors import Conflict, NotFound
from lamina.segments import file, summary
from lamina.sessions import Session
from lamina.stores import MemoryStore
from tests.sessions.talking import awaited, list_texts, opened

SMALL = Budget(window=3_000, reserve=0, keep_last=1)


async def talk(session: Session, turns: int, *, start: int = 0, size: int = 20) -> None:
    for number in range(start, start + turns):
        await session.ask(f"q{number}", attach=[file(f"{number}.md", f"text {number} " * size)])
        await session.record(f"a{number}")


def pinned(session: Session) -> list[str]:
    return [one.key for one in session.log if one.pinned]


def form(session: Session, key: str) -> Form:
    assert session.envelope is not None
    return next(entry.form for entry in session.envelope.entries if entry.segment.key == key)


@awaited
async def test_no_cut_lowers_what_is_pinned_until_it_is_not_any_more() -> None:
    async with opened(MemoryStore(), model="gpt-5", budget=SMALL) as session:
        await talk(session, 2, size=150)
        await session.pin("0.md")
        await talk(session, 10, start=2, size=150)
        assert form(session, "0.md") is Form.FULL
        assert form(session, "1.md") is not Form.FULL
        await session.pin("0.md", on=False)
        await talk(session, 10, start=12, size=150)
        assert form(session, "0.md") is not Form.FULL


@awaited
async def test_pinning_changes_no_byte_and_no_name() -> None:
    async with opened(MemoryStore(), model="gpt-5") as session:
        await talk(session, 3)
        before = await session.build()
        for key, on in (("1.md", True), ("2.md", True), ("1.md", False)):
            await session.pin(key, on)
            after = await session.build()
            assert [entry.ref for entry in after.entries] == [entry.ref for entry in before.entries]
            assert (after.prefix, after.cut) == (before.prefix, None)
        assert pinned(session) == ["2.md"]


@awaited
async def test_pinned_after_it_was_lowered_it_stands_in_full_again_at_a_recorded_cut() -> None:
    async with opened(MemoryStore(), model="gpt-5", budget=SMALL) as session:
        await talk(session, 12, size=150)
        before = await session.build()
        assert form(session, "0.md") is not Form.FULL
        await session.pin("0.md")
        after = await session.build()
        assert form(session, "0.md") is Form.FULL
        assert len(after.ledger.cuts) == len(before.ledger.cuts) + 1


@awaited
async def test_what_a_summary_stood_for_stands_for_itself_again_at_a_recorded_cut() -> None:
    async with opened(MemoryStore(), model="gpt-5") as session:
        await talk(session, 3)
        await session.add(summary("It began with text.", covers=["0.md"]))
        await session.build()
        assert form(session, "0.md") is Form.OMITTED
        await session.pin("0.md")
        after = await session.build()
        assert form(session, "0.md") is Form.FULL
        assert after.cut in after.ledger.cuts


@awaited
async def test_a_pin_survives_reopening_reloading_a_fork_and_a_rewind() -> None:
    store = MemoryStore()
    async with opened(store, model="gpt-5") as session:
        await talk(session, 3)
        await session.pin("0.md")
        await session.pin("2.md")
        await session.pin("2.md", on=False)
        log = session.log
        await session.reload()
        assert session.log == log
        assert pinned(await session.fork(1, "b")) == ["0.md"]
        await session.rewind(1)
        assert pinned(session) == ["0.md"]
    for name in ("a", "b"):
        async with opened(store, name) as session:
            assert (pinned(session), list_texts(session)) == (["0.md"], ["q0", "a0"])


@awaited
async def test_what_was_taken_back_and_said_again_is_not_pinned() -> None:
    store = MemoryStore()
    async with opened(store, model="gpt-5") as session:
        await talk(session, 2)
        await session.pin("1.md")
        await session.rewind(1)
        await talk(session, 1, start=1)
        assert pinned(session) == []
        log = session.log
    async with opened(store) as session:
        assert session.log == log


@awaited
async def test_of_equal_content_only_what_is_named_is_pinned() -> None:
    async with opened(MemoryStore(), model="gpt-5") as session:
        for _ in range(2):
            await session.ask("again")
            await session.record("and again")
        first, _, second, _ = (entry.ref for entry in (await session.build()).entries)
        await session.pin(first)
        assert [one.pinned for one in session.log] == [True, False, False, False]
        await session.pin(second)
        assert [one.pinned for one in session.log] == [True, False, True, False]


@awaited
async def test_an_unknown_key_is_not_found_and_a_second_pin_adds_nothing() -> None:
    store = MemoryStore()
    async with opened(store, model="gpt-5") as session:
        await talk(session, 1)
        with pytest.raises(NotFound):
            await session.pin("9.md")
        await session.pin("0.md")
        [head] = await store.list("")
        await session.pin("0.md")
        assert await store.list("") == [head]


@awaited
async def test_a_pin_tells_of_another_writer_and_has_what_is_new() -> None:
    store = MemoryStore()
    async with opened(store, model="gpt-5") as session, opened(store) as other:
        await talk(session, 1)
        await other.reload()
        await talk(other, 1, start=1)
        with pytest.raises(Conflict):
            await session.pin("0.md")
        assert (list_texts(session), pinned(session)) == (["q0", "a0", "q1", "a1"], [])
        await session.pin("0.md")
        await other.reload()
        assert pinned(other) == ["0.md"]
