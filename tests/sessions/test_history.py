from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lamina.core.values import Budget, Form
from lamina.errors import BadInput, Conflict, NotFound
from lamina.segments import file, user
from lamina.sessions import Session
from lamina.sessions.turns import list_dialogue
from lamina.stores import MemoryStore, Where
from tests.sessions.talking import answer, awaited, list_texts, opened, setup_of, wire


async def talk(session: Session, turns: int, *, start: int = 0, size: int = 1) -> None:
    for number in range(start, start + turns):
        await session.ask(f"q{number}", attach=[file(f"{number}.md", f"text {number} " * size)])
        await session.record(f"a{number} " + "word " * size)


def short(session: Session) -> list[str]:
    return [text.split()[0] for text in list_texts(session)]


@awaited
async def test_a_rewind_takes_back_a_turn_and_what_follows_and_removes_nothing() -> None:
    store = MemoryStore()
    async with opened(store, model="gpt-5") as session:
        await talk(session, 3)
        count = (await store.read(Where("", "a"))).head.count
        await session.rewind(1)
        assert short(session) == ["q0", "a0"]
        await talk(session, 1, start=7)
    async with opened(store) as session:
        assert short(session) == ["q0", "a0", "q7", "a7"]
        await session.rewind(-1)
        await session.rewind(-1)
        assert session.log == ()
    assert (await store.read(Where("", "a"))).head.count > count


@awaited
async def test_a_rewind_may_name_a_segment() -> None:
    async with opened(MemoryStore(), model="gpt-5") as session:
        await talk(session, 2)
        await session.rewind("1.md")
        assert short(session) == ["q0", "a0"]
        with pytest.raises(NotFound):
            await session.rewind("9.md")
        with pytest.raises(BadInput, match="1 turns"):
            await session.rewind(1)


@awaited
async def test_an_unanswered_prompt_is_a_turn_of_its_own() -> None:
    async with opened(MemoryStore(), model="gpt-5") as session:
        await session.ask("first try")
        await session.ask("second try")
        assert session.turns == 2
        await session.rewind(-1)
        assert list_texts(session) == ["first try"]


@pytest.mark.parametrize("dialect", ["anthropic", "openai_chat"])
@awaited
async def test_regenerate_asks_the_same_again(dialect: str) -> None:
    async with opened(MemoryStore(), **setup_of(dialect)) as session:
        await session.ask("read it")
        first = wire(await session.request())
        recorded = await session.record(answer(dialect, "reading", call="c1"))
        await session.results({recorded.calls[0].id: "contents"})
        await session.record(answer(dialect, "done"))
        await session.regenerate()
        assert list_texts(session) == ["read it"]
        assert wire(await session.request()) == first
        await session.regenerate()
        assert wire(await session.request()) == first


@awaited
async def test_there_is_nothing_to_regenerate_before_a_prompt() -> None:
    async with opened(MemoryStore(), model="gpt-5") as session:
        with pytest.raises(BadInput, match="ask first"):
            await session.regenerate()


TIGHT = Budget(window=2_500, reserve=0, keep_last=1)


@awaited
async def test_what_a_later_cut_lowered_stands_in_full_after_a_rewind() -> None:
    """Rewinding far back gives the very request that was sent there, not one with an old boundary in it."""
    async with opened(MemoryStore(), "twin", model="gpt-5", budget=TIGHT) as twin:
        await talk(twin, 2, size=60)
        await twin.ask("and then?")
        expected = wire(await twin.request())
    async with opened(MemoryStore(), model="gpt-5", budget=TIGHT) as session:
        await talk(session, 12, size=60)
        assert session.ledger.lines
        await session.rewind(2)
        envelope = await session.ask("and then?")
        assert {entry.form for entry in envelope.entries} == {Form.FULL}
        assert wire(await session.request()) == expected
        assert envelope.cut is not None
        assert "rewound" in envelope.cut.reason


@awaited
async def test_what_an_earlier_cut_lowered_stays_lowered_after_a_rewind() -> None:
    async with opened(MemoryStore(), model="gpt-5", budget=TIGHT) as session:
        await talk(session, 12, size=60)
        lowered = {ref for ref, line in session.ledger.lines.items() if line.cut}
        cuts = len(session.ledger.cuts)
        await session.rewind(-1)
        assert len(session.ledger.cuts) == cuts
        assert lowered & set(session.ledger.lines)


@awaited
async def test_regenerating_after_a_cut_keeps_the_cut() -> None:
    async with opened(MemoryStore(), model="gpt-5", budget=TIGHT) as session:
        cut = None
        for number in range(20):
            cut = (await session.ask(f"q{number}", attach=[file(f"{number}.md", f"{number} " * 150)])).cut
            first = wire(await session.request())
            await session.record(f"a{number} " * 60)
            cuts = session.ledger.cuts
            await session.regenerate()
            assert (wire(await session.request()), session.ledger.cuts) == (first, cuts)
            if cut:
                break
            await session.record(f"a{number} " * 60)
        assert cut is not None


@awaited
async def test_a_fork_goes_its_own_way_and_outlives_its_parent() -> None:
    store = MemoryStore()
    async with opened(store, model="gpt-5", budget=TIGHT) as session:
        await talk(session, 8, size=60)
        fork = await session.fork(-2, "b")
        whole = await session.fork()
        assert (short(fork)[-1], short(whole)) == ("a5", short(session))
        with pytest.raises(Conflict):
            await session.fork(0, "b")
        await fork.ask("elsewhere")
        expected = wire(await fork.request())
        assert "elsewhere" not in list_texts(session)
    await store.delete(Where("", "a"))
    async with opened(store, "b") as again:
        assert again.parent is not None
        assert again.parent.conversation == "a"
        assert wire(await again.request()) == expected
        await again.rewind(-1)
        await again.rewind(2)
        assert {e.form for e in (await again.ask("then?")).entries} == {Form.FULL}


@example(steps=["regenerate"] * 12)
@given(steps=st.lists(st.sampled_from(["regenerate", "rewind", "nothing"]), min_size=8, max_size=12))
@awaited
async def test_what_is_taken_back_in_a_fork_is_what_its_parent_takes_back(steps: list[str]) -> None:
    store, budget = MemoryStore(), Budget(window=1_500, reserve=0, keep_last=1)
    async with opened(store, model="gpt-5", budget=budget) as session:
        for number, step in enumerate(steps):
            await session.ask(f"question {number}", attach=[file(f"{number}.md", f"line {number}\n" * 40)])
            await session.record(f"answer {number} " + "word " * 40)
            if step == "nothing" or session.turns < 2:
                continue
            fork = await session.fork(name=f"fork-{number}")
            for each in (fork, session):
                await (each.regenerate() if step == "regenerate" else each.rewind(-2))
                await each.ask("And now?")
            assert wire(await fork.request()) == wire(await session.request())
            assert fork.ledger.cuts == session.ledger.cuts
            await session.record("Nothing.")


@awaited
async def test_a_fork_of_everything_continues_the_prefix() -> None:
    async with opened(MemoryStore(), model="gpt-5", budget=TIGHT) as session:
        await talk(session, 8, size=60)
        fork = await session.fork(name="b")
        assert (await fork.ask("next")).prefix == (await session.ask("next")).prefix


@awaited
async def test_the_dialogue_has_no_context_and_no_tags() -> None:
    async with opened(MemoryStore(), **setup_of("anthropic")) as session:
        await session.ask("read <b>it</b>", attach=[file("a.md", "secret")])
        await session.record(answer("anthropic", "reading", call="c1"))
        await session.results({"c1": "contents"})
        await session.record(answer("anthropic", "done"))
        assert list_texts(session) == ["read <b>it</b>", "reading", "done"]


@awaited
async def test_messages_from_elsewhere_may_be_added() -> None:
    async with opened(MemoryStore(), model="gpt-5", persona="You are kind.") as session:
        await session.add(user("old question"))
        await session.record("old answer")
        envelope = await session.ask("new")
        assert [e.segment.kind for e in envelope.sent] == ["persona", "user", "assistant", "user"]
        assert session.turns == 2


def test_segments_of_one_message_are_one_utterance_wherever_it_stands() -> None:
    log = [user("first"), user("second"), user("question"), msgspec.structs.replace(user("more"), joins=True)]
    assert [one.text for one in list_dialogue(log)] == ["first", "second", "question\nmore"]
