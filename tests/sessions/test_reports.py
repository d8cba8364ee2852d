"""What `report()` says of a request against the one before it, also when another process sent that one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from examples.importers.tagged_context import read_context
from lamina.core import Layout, text_of
from lamina.core.values import Budget, Layer
from lamina.dialects import PlainHead, Tool
from lamina.segments import memory, note
from lamina.sessions import LastN, TurnReport
from lamina.stores import MemoryStore, Where
from lamina.summaries import compact
from tests.sessions.talking import awaited, opened

SEARCH = Tool(name="search", description="Searches.", schema={"type": "object"})


async def reopened(store: MemoryStore, **arguments: Any) -> TurnReport:
    """Open the conversation anew, ask, and give the report of that request."""
    async with opened(store, **arguments) as session:
        await session.ask("Go on.")
        report = session.report()
        await session.record("Done.")
        return report


@awaited
async def test_a_request_is_compared_with_the_one_that_was_sent_before_the_restart() -> None:
    store = MemoryStore()
    first = await reopened(store, model="gpt-5", system="Be brief.")
    assert (first.parting, first.continues) == (None, True)

    same = await reopened(store, model="gpt-5", system="Be brief.")
    assert same.parting is not None
    assert (same.parting.cause, same.continues, same.changed) == ("none", True, ())


@awaited
@pytest.mark.parametrize(
    ("setting", "inferred"),
    [({}, "window, tokens and cache"), ({"budget": Budget(window=9_000)}, "tokens and cache")],
)
async def test_what_was_inferred_of_the_model_is_said(setting: dict[str, Any], inferred: str) -> None:
    async with opened(MemoryStore(), model="claude-opus-6", **setting) as session:
        await session.ask("Go on.")
        await session.build()
        said = f"{inferred} as claude-opus-5-5's, since claude-opus-6 is on no list; prices not known"
        assert [note for note in session.explain().notes if "on no list" in note] == [said]


@awaited
async def test_another_model_tool_or_dialect_after_a_restart_is_reported_as_such() -> None:
    store = MemoryStore()
    await reopened(store, model="gpt-5", system="Be brief.")
    for arguments, cause in (
        ({"model": "gpt-5-mini"}, "model changed"),
        ({"head": PlainHead(tools=(SEARCH,))}, "tool added"),
        ({"head": PlainHead()}, "tool removed"),
        ({"model": "claude-opus-4-6"}, "dialect changed"),
    ):
        report = await reopened(store, system="Be brief.", **arguments)
        assert report.parting is not None
        assert (report.parting.cause, report.continues) == (cause, False)
        assert report.parting.kept == 0
        assert (await reopened(store, system="Be brief.")).continues


@awaited
async def test_a_request_that_was_built_but_not_answered_before_the_restart_is_compared_too() -> None:
    store = MemoryStore()
    async with opened(store, model="gpt-5") as session:
        await session.ask("Hello.")
    async with opened(store, model="gpt-5-mini") as session:
        await session.build()
        assert session.report().parting is not None
        assert not session.report().continues


@awaited
async def test_what_another_writer_sent_meanwhile_is_the_request_before() -> None:
    store = MemoryStore()
    async with opened(store, model="gpt-5") as mine:
        await mine.ask("Hello.")
        await mine.record("Hello.")
        await reopened(store, model="gpt-5-mini")
        await mine.ask("Still here?")
        assert mine.setup.model == "gpt-5"
        parting = mine.report().parting
        assert parting is not None
        assert parting.cause == "model changed"


@awaited
async def test_a_changed_system_text_acts_like_a_section() -> None:
    """It is appended, the prefix stays; at the next cut it takes the place of the old one."""
    store = MemoryStore()
    await reopened(store, model="gpt-5", system="Be brief.")
    async with opened(store, system="Be thorough.") as session:
        envelope = await session.ask("And now?")
        assert [text_of(e.parts) for e in envelope.sent if e.layer is Layer.SYSTEM] == ["Be brief."]
        thorough, question = (text_of(e.parts) for e in envelope.sent[-2:])
        assert (thorough.partition(":\n")[2], question) == ("Be thorough.", "And now?")
        assert session.report().continues
        await session.record("word " * 900)
    async with opened(store, system="Be thorough.", budget=Budget(window=900, reserve=0, keep_last=1)) as s:
        envelope = await s.ask("Short, please.")
        assert [text_of(e.parts) for e in envelope.sent if e.layer is Layer.SYSTEM] == ["Be thorough."]
        assert Layer.SYSTEM in s.report().changed
        assert not s.report().continues


@awaited
async def test_lowered_and_windowed_requests_are_built_again_as_they_were_sent() -> None:
    for arguments in ({"budget": Budget(window=2_000, reserve=0, keep_last=1)}, {"history": LastN(4)}):
        store = MemoryStore()
        for turn in range(8):
            async with opened(store, model="gpt-5", **arguments) as session:
                attach = [note(f"{turn}.md", f"{turn} is here. " * 60)]
                envelope = await session.ask(f"Question {turn}", attach=attach)
                report = session.report()
                assert (report.parting is None) == (turn == 0)
                assert report.continues == (envelope.cut is None)
                await session.record(f"answer {turn} " * 40)


@awaited
async def test_where_the_request_before_cannot_be_built_again_the_recorded_cut_speaks() -> None:
    store = MemoryStore()
    await reopened(store, model="gpt-5")
    async with opened(store) as session:
        await session.rewind(0)
    async with opened(store) as session:
        await session.ask("Another beginning.")
        report = session.report()
        assert (report.parting, report.continues) == (None, False)
        assert report.cut is not None
        assert report.cut.reason == "history edited or rewound"


@awaited
async def test_without_its_ledger_a_conversation_does_not_claim_to_continue() -> None:
    store = MemoryStore()
    await reopened(store, model="gpt-5", system="Be brief.")
    head = (await store.read(Where("", "a"))).head
    await store.append(Where("", "a"), [], expect=head.count, state=b"{")
    async with opened(store, system="Be brief.") as session:
        await session.ask("And now?")
        report = session.report()
        assert (report.parting, report.continues) == (None, False)
        assert report.cut is not None
        assert report.cut.reason == "the ledger could not be read"
        await session.record("Well.")
        await session.ask("And then?")
        assert session.report().continues


@awaited
async def test_a_summary_is_the_cause_of_the_cut_that_it_makes() -> None:
    async def write(_: Any) -> str:
        return "The assistant reported the state of the topics; the owner is Ana, and reports were long."

    store = MemoryStore()
    budget = Budget(window=8_000, reserve=0, keep_last=1)
    async with opened(store, model="gpt-5", budget=budget) as session:
        for turn in range(5):
            await session.ask(f"What of topic {turn}?")
            text = f"The assistant reported topic {turn}. "
            await session.record(text + "The owner is Ana and reports are long. " * 30)
        outcome = await compact(session, write)
        assert outcome.by == "model"
    async with opened(store) as session:
        envelope = await session.ask("Next?")
        assert envelope.cut is not None
        assert envelope.cut.reason == "older messages were summarised"
        parting = session.report().parting
        assert parting is not None
        assert parting.cause == "summarised"
        await session.record("Well.")
        await session.ask("And then?")
        assert session.report().continues


@awaited
async def test_what_an_importer_could_not_parse_is_a_metric() -> None:
    store = MemoryStore()
    parsed = read_context("<weird>lost?</weird> and <note_context>\n<path>b.md</path>\nnever closed")
    async with opened(store, model="gpt-5") as session:
        await session.ask("What is this?", attach=[*parsed.segments, *parsed.unparsed])
        assert session.report().metrics.unparsed == {"weird": 1, "note_context": 1}
        await session.record("Odd.")
    async with opened(store) as session:
        await session.ask("And now?")
        assert session.report().metrics.unparsed == {"weird": 1, "note_context": 1}


HOISTED = Layout(library="hoisted")


@awaited
async def test_an_ordinary_chat_in_the_hoisted_layout_is_never_called_edited() -> None:
    """001, "Phase 4: Cache Optimization", 3: settings, context attach, file change, memory update."""
    first, changed = note("a.md", "fact " * 200), note("a.md", "fact two " * 200)
    causes = []
    async with opened(MemoryStore(), model="gpt-5", layout=HOISTED) as session:
        for attach in ([first], [first], [first], [], [changed], []):
            await session.ask("Go on.", attach=attach)
            report = session.report()
            causes.append(report.parting.cause if report.parting else "")
            assert report.cut is None or "edited" not in report.cut.reason
            await session.record("Done.")
    assert causes == ["", "library changed", "turn over", "turn over", "none", "file changed"]


@awaited
async def test_a_changed_memory_is_called_so() -> None:
    store = MemoryStore()
    await reopened(store, model="gpt-5", layout=HOISTED, context=[memory("The user has a cat.")])
    report = await reopened(store, context=[memory("The user has a dog.")])
    assert report.cut is not None
    assert report.cut.reason == "memory changed"
    assert report.parting is not None
    assert report.parting.cause == "memory changed"


@awaited
async def test_another_layout_is_a_change_of_settings() -> None:
    store = MemoryStore()
    await reopened(store, model="gpt-5")
    async with opened(store) as session:
        await session.ask("And this?", attach=[note("a.md", "fact " * 200)])
        await session.record("Yes.")
    report = await reopened(store, layout=HOISTED)
    assert report.cut is not None
    assert report.cut.reason == "settings changed"
    assert report.parting is not None
    assert report.parting.cause == "settings changed"


@awaited
async def test_one_hash_covers_system_text_and_library() -> None:
    """001, "Phase 4": L1 hash, L2 hash, combined prefix hash."""
    hashes = []
    async with opened(MemoryStore(), model="gpt-5", system="Be brief.", layout=HOISTED) as session:
        for attach in ([note("a.md", "fact " * 200)], [], [], [note("b.md", "more " * 200)], []):
            await session.ask("Go on.", attach=attach)
            hashes.append(session.report().stable)
            await session.record("Done.")
    assert hashes[1] == hashes[2] == hashes[3]
    assert len({hashes[0], hashes[1], hashes[4]}) == 3


@awaited
async def test_library_and_compaction_are_phases_of_their_own() -> None:
    ticks = iter(range(100_000))
    seconds: dict[str, float] = {}
    given: dict[str, Any] = {"layout": Layout(library="hoisted"), "budget": Budget(window=2_000, reserve=0)}
    async with opened(MemoryStore(), model="gpt-5", timer=lambda: float(next(ticks)), **given) as session:
        for number in range(8):
            await session.ask(f"question {number} " * 90)
            await session.request()
            await session.record(f"answer {number} " * 90)
            if session.report().cut is not None:
                seconds = session.report().metrics.seconds
    assert {"gather", "build", "library", "compaction", "render"} <= set(seconds)
    assert seconds["build"] > seconds["library"] + seconds["compaction"]


@awaited
async def test_a_report_counts_by_layer_and_says_what_was_referred_to_and_left_out() -> None:
    text = "At most 20 requests a minute. " * 40
    async with opened(MemoryStore(), model="gpt-5", root=Path(__file__).parent) as session:
        await session.ask("1", attach=[note("spec.md", text)])
        await session.record("one")
        await session.ask("2", attach=[note("spec.md", text), "../nowhere.md"])
        metrics = session.report().metrics
    assert metrics.segments == {Layer.HISTORY: 3, Layer.TURN: 1, Layer.PROMPT: 1}
    assert (metrics.referenced, metrics.left_out) == (0.2, 1)


@awaited
async def test_a_report_counts_what_is_named_in_the_list_of_the_library_as_referred_to() -> None:
    """001, "Runtime Metrics": segment counts per layer and dedup ratio."""
    both = [note("a.md", "alpha " * 50), note("b.md", "beta " * 50)]
    async with opened(MemoryStore(), model="gpt-5", layout=HOISTED) as session:
        for share in (0, 2 / 7, 4 / 11):
            envelope = await session.ask("Go on.", attach=both)
            metrics = session.report().metrics
            assert metrics.segments == dict(Counter(entry.layer for entry in envelope.sent))
            assert metrics.referenced == share
            await session.record("Done.")


@pytest.mark.parametrize("layout", [Layout(), HOISTED, Layout(results="turn")])
@awaited
async def test_what_a_window_took_out_is_the_cause_even_where_a_turn_took_its_own_with_it(
    layout: Layout,
) -> None:
    async with opened(MemoryStore(), model="gpt-5", layout=layout) as session:
        for number in range(3):
            await session.ask(f"question {number}", attach=[note("n.md", "words " * 50)])
            await session.record(f"answer {number}")
        await session.ask("and now?", history=LastN(1, slack=0))
        report = session.report()
    assert report.parting is not None
    assert report.cut is not None
    assert (report.parting.cause, report.cut.reason) == ("cut", "history beyond the last 1 messages")
