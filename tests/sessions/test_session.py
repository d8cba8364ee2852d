from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import lamina
from lamina import sessions
from lamina.clients.ollama import ARGUMENTS
from lamina.core import HIGH, Image, Text, ToolCall, ToolResult, text_of
from lamina.core.values import Budget, Form, Layer, Segment
from lamina.dialects import DIALECTS, PlainHead
from lamina.errors import BadInput, BudgetExceeded
from lamina.formats.codec import decode
from lamina.segments import assistant, excerpt, file, memory, note, project, result, user
from lamina.sessions import Persona, Session, Stored
from lamina.settings import Settings
from lamina.stores import MemoryStore, Where
from tests.sessions.talking import HEAD, SMALL, answer, awaited, list_texts, opened, setup_of


@awaited
async def test_the_turn_is_kept_before_the_model_is_called_and_the_answer_after() -> None:
    store = MemoryStore()
    async with opened(store, model="gpt-5") as session:
        await session.ask("hello", attach=[note("spec.md", "# Spec")])
        async with opened(store) as other:
            assert [segment.kind for segment in other.log] == ["note", "user"]
            assert other.pending
        await session.record(answer("openai_chat", "hi"))
        assert not session.pending
    async with opened(store) as other:
        assert list_texts(other) == ["hello", "hi"]


@awaited
async def test_a_failed_call_leaves_a_session_that_goes_on() -> None:
    store = MemoryStore()
    async with opened(store, model="gpt-5") as session:
        await session.ask("hello")
        before = await session.request()
        with pytest.raises(TimeoutError):
            raise TimeoutError  # the model did not answer
        assert await session.request() == before
        await session.record("hi")
        await session.ask("and now?")
        assert list_texts(session) == ["hello", "hi", "and now?"]


@awaited
async def test_history_never_contains_the_current_prompt() -> None:
    async with opened(MemoryStore(), model="gpt-5") as session:
        await session.ask("one")
        await session.record("first")
        envelope = await session.ask("two")
        places = [(e.layer, text_of(e.parts)) for e in envelope.sent]
        assert places == [(Layer.HISTORY, "one"), (Layer.HISTORY, "first"), (Layer.PROMPT, "two")]
        request = await session.request()
        assert [message["content"] for message in request["messages"]] == ["one", "first", "two"]


@awaited
async def test_a_conversation_opened_without_a_word_goes_on_as_it_was() -> None:
    store = MemoryStore()
    async with opened(store, **setup_of("anthropic", agent={"mode": "plan"})) as session:
        await session.ask("hello")
        first = await session.request()
    async with opened(store) as session:
        assert session.setup.model == first["model"]
        assert (session.setup.budget, session.setup.head, session.setup.agent) == (
            SMALL,
            HEAD,
            {"mode": "plan"},
        )
        assert await session.request() == first
    async with opened(store, model="claude-sonnet-4-5") as session:
        await session.record("hi")
    async with opened(store) as session:
        assert session.setup.model == "claude-sonnet-4-5"


@awaited
async def test_settings_say_what_neither_caller_nor_conversation_does() -> None:
    store, usual = MemoryStore(), Settings(model="gpt-5", policy={"budget": 5_000}, workspace="team")
    async with Session.open(store, "a", settings=usual) as session:
        assert (session.setup.model, session.setup.budget) == ("gpt-5", Budget(window=5_000))
        await session.ask("hello")
    assert [each.conversation for each in await store.list("team")] == ["a"]


@pytest.mark.parametrize("dialect", DIALECTS)
@awaited
async def test_answers_of_every_dialect_are_recorded_with_what_they_took(dialect: str) -> None:
    async with opened(MemoryStore(), **setup_of(dialect)) as session:
        await session.ask("hello")
        recorded = await session.record(answer(dialect, "well met", read=41))
        assert (recorded.usage.input, list_texts(session)) == (41, ["hello", "well met"])
        if dialect != "text":
            await session.ask("read it")
            recorded = await session.record(answer(dialect, "reading", call="c1"))
            assert [call.name for call in recorded.calls] == ["read_file"]
            envelope = await session.results({call.id: "contents" for call in recorded.calls})
            assert text_of(envelope.sent[-1].parts) == "contents"
        else:
            await session.ask("once more")
        assert DIALECTS[dialect].wire.check(await session.request()) == []


async def events(*chunks: Any) -> AsyncIterator[Any]:
    for chunk in chunks:
        yield chunk


def chunk(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


@awaited
async def test_an_answer_may_be_a_stream_a_list_of_events_or_text() -> None:
    async with opened(MemoryStore(), model="gpt-5") as session:
        for results in (
            events(chunk(role="assistant", content="he"), chunk(content="llo")),
            [chunk(role="assistant", content="he"), chunk(content="llo")],
            iter([chunk(role="assistant", content="he"), chunk(content="llo")]),
            "hello",
        ):
            await session.ask("hi")
            await session.record(results)
        assert list_texts(session)[1::2] == ["hello"] * 4


@awaited
async def test_an_empty_answer_is_not_kept() -> None:
    async with opened(MemoryStore(), model="gpt-5") as session:
        await session.ask("hi")
        recorded = await session.record("")
        assert (recorded.segments, session.pending) == ((), True)


@awaited
async def test_results_stand_in_the_order_of_their_calls() -> None:
    async with opened(MemoryStore(), model="gpt-5", head=HEAD) as session:
        await session.ask("read both")
        await session.add(
            *[
                Segment(
                    role=s.role, kind="tool_call", parts=(ToolCall(id=i, name="read_file"),), joins=i == "b"
                )
                for i, s in (("a", assistant("")), ("b", assistant("")))
            ]
        )
        assert [call.id for call in session.calls] == ["a", "b"]
        await session.results({"b": "two"}, ToolResult(id="a", content=(Text("one"),), error=True))
        results = [part for s in session.log for part in s.parts if isinstance(part, ToolResult)]
        assert [(each.id, each.name, each.error) for each in results] == [
            ("a", "read_file", True),
            ("b", "read_file", False),
        ]
        assert session.calls == ()


@awaited
async def test_attachments_come_from_paths_segments_and_with_a_priority(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print('a')")
    (tmp_path / "dot.png").write_bytes(b"png")
    (tmp_path / "b.bin").write_bytes(b"\xff\xfe\x00")
    async with opened(MemoryStore(), model="gpt-5", root=tmp_path) as session:
        pinned = file("b.md", "text", pinned=True)
        envelope = await session.ask("look", attach=["a.py", Path("dot.png"), (pinned, HIGH)])
        assert [s.key for s in session.log] == ["a.py", "b.md", "", "dot.png"]
        assert session.log[1].pinned
        assert session.log[1].priority == HIGH
        assert isinstance(envelope.entry("dot.png").parts[0], Image)
        for bad in ("b.bin", "nowhere.md"):
            with pytest.raises(BadInput, match=bad):
                await session.ask("look", attach=[bad])
        assert session.turns == 1


@awaited
async def test_what_belongs_to_another_workspace_is_left_out_and_reported(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "secret.md").write_text("secret")
    theirs = file("theirs.md", "Hello World", meta={"workspace": "them"})
    mine = file("mine.md", "Hello World", meta={"workspace": "us"})

    async def source(prompt: str, room: int | None) -> list[Segment]:
        assert (prompt, room is None) == ("look", False)
        return [theirs, excerpt("found", source="wiki")]

    store = MemoryStore()
    async with opened(
        store, workspace="us", model="gpt-5", root=tmp_path / "mine", sources=[source]
    ) as session:
        envelope = await session.ask("look", attach=[theirs, mine, "../secret.md", "../nothing.md"])
        assert [e.segment.kind for e in envelope.sent] == ["excerpt", "file", "user"]
        assert len(session.notes) == 4
        assert session.report().metrics.left_out == 4
    assert [each.conversation for each in await store.list("them")] == []


@awaited
async def test_what_was_typed_and_what_was_sent_are_both_kept() -> None:
    store = MemoryStore()
    async with opened(store, model="gpt-5", template="Answer in French: {prompt}") as session:
        envelope = await session.ask("hello")
        assert text_of(envelope.sent[-1].parts) == "Answer in French: hello"
        await session.record("bonjour")
        await session.ask("bye", template=str.upper)
    async with opened(store) as session:
        assert list_texts(session) == ["hello", "bonjour", "bye"]
        assert [one.sent for one in session.dialogue()] == ["Answer in French: hello", "", "BYE"]
        with pytest.raises(BadInput, match="prompt"):
            await session.ask("x", template="no place")


@awaited
async def test_hints_stand_before_the_prompt() -> None:
    async with opened(MemoryStore(), model="gpt-5") as session:
        envelope = await session.ask("hello", hints={"locale": "fr", "tone": "kind"})
        assert [e.layer for e in envelope.sent] == [Layer.TURN, Layer.PROMPT]
        assert "locale: fr\ntone: kind" in text_of(envelope.sent[0].parts)


@awaited
async def test_what_does_not_fit_is_not_kept_and_the_error_names_the_layer() -> None:
    store = MemoryStore()
    rules = project("rule of the house " * 40_000)
    async with opened(store, model="gpt-5", budget=Budget(window=128_000), context=[rules]) as session:
        with pytest.raises(BudgetExceeded, match="mostly the system layer") as caught:
            await session.ask("hello")
        assert caught.value.segments[0][0] == "project"
        assert session.log == ()
    assert await store.list("") == []


@awaited
async def test_a_history_that_is_too_long_is_cut_and_fits() -> None:
    async with opened(MemoryStore(), model="gpt-5", budget=Budget(window=8_000, reserve=0)) as session:
        for turn in range(12):
            await session.ask(f"question {turn} " + "words " * 600)
            await session.record("answer " * 600)
        assert session.explain().tokens <= 8_000
        assert session.ledger.cuts


@awaited
async def test_results_are_kept_though_no_request_is_possible_with_them() -> None:
    store, budget = MemoryStore(), Budget(window=300, reserve=0)
    async with opened(store, model="gpt-5", head=HEAD, budget=budget) as session:
        await session.ask("read")
        recorded = await session.record(answer("openai_chat", "reading", call="c1"))
        with pytest.raises(BudgetExceeded):
            await session.results(result("word " * 900, id=recorded.calls[0].id, pinned=True))
    async with opened(store) as session:
        assert session.log[-1].kind == "tool_result"


@awaited
async def test_persona_sections_stand_in_order_from_code_file_and_store(tmp_path: Path) -> None:
    store = MemoryStore()
    (tmp_path / "persona.md").write_text("You work for the team.")
    async with opened(store, "profile", workspace="w") as profile:
        await profile.add(user("Old wish."), user("Call me Ada."))
    who = Persona(default="You are a coworker.", workspace=tmp_path / "persona.md", user=Stored("profile"))
    context = [memory("Likes tea."), project("Parcels.")]
    async with opened(
        store, workspace="w", model="gpt-5", system="Be honest.", persona=who, context=context
    ) as session:
        envelope = await session.ask("hello")
        system = [e for e in envelope.sent if e.layer is Layer.SYSTEM]
        assert [e.segment.key for e in system] == [
            "contract",
            "persona:default",
            "persona:workspace",
            "persona:user",
            "project",
            "memory",
        ]
        assert "Call me Ada." in text_of(system[3].parts)


@awaited
async def test_results_that_are_none_begin_no_conversation() -> None:
    store = MemoryStore()
    async with opened(store, model="gpt-5", persona="You are Ada.") as session:
        await session.results()
        assert "You are Ada." in str(await session.request())
        assert await store.list("") == []
        fork = await session.fork(name="b")
        assert await fork.request() == await session.request()


@awaited
async def test_an_empty_chat_has_a_persona_and_nothing_else() -> None:
    async with opened(MemoryStore(), model="gpt-5", persona="You are a coworker.") as session:
        assert (session.log, session.turns, session.pending) == ((), 0, False)
        assert [e.layer for e in (await session.ask("hi")).sent] == [Layer.SYSTEM, Layer.PROMPT]


@awaited
async def test_a_changed_section_is_appended_and_the_prefix_stays() -> None:
    store = MemoryStore()
    async with opened(store, model="gpt-5", persona="You are calm.") as session:
        await session.ask("one")
        await session.record("first")
    async with opened(store, persona="You are bold.") as session:
        await session.build()
        envelope = await session.ask("two")
        assert [text_of(e.segment.parts) for e in envelope.sent] == [
            "You are calm.",
            "one",
            "first",
            "You are bold.",
            "two",
        ]
        assert session.report().continues
        await session.record("second")
        await session.ask("three")
        assert [s.kind for s in session.log].count("persona") == 2


@awaited
async def test_the_report_says_what_changed_and_why() -> None:
    times = iter(range(100))
    async with opened(MemoryStore(), model="gpt-5", timer=lambda: float(next(times))) as session:
        spec = note("spec.md", "text " * 200)
        await session.ask("one", attach=[spec])
        assert session.report().parting is None
        await session.record("first")
        await session.ask("two", attach=[spec])
        report = session.report()
        assert (report.continues, report.changed) == (True, ())
        assert report.metrics.seconds == {"gather": 1.0, "build": 1.0, "store": 1.0}
        assert report.metrics.segments == {Layer.HISTORY: 3, Layer.TURN: 1, Layer.PROMPT: 1}
        assert (report.metrics.referenced, report.metrics.lowered) == (0.2, 0.0)
        before = report.layers
        await session.rewind(0)
        await session.ask("other")
        report = session.report()
        assert (report.continues, report.changed) == (False, (Layer.HISTORY, Layer.TURN, Layer.PROMPT))
        assert report.layers[Layer.PROMPT] != before[Layer.PROMPT]


@awaited
async def test_times_come_from_the_clock_that_was_given_and_are_not_sent() -> None:
    store, noon = MemoryStore(), datetime(2031, 5, 1, 12, tzinfo=UTC)
    async with opened(store, model="gpt-5", clock=lambda: noon) as session:
        envelope = await session.ask("hello")
        assert session.dialogue()[0].at == noon.isoformat()
    async with opened(MemoryStore(), model="gpt-5", clock=None) as session:
        assert (await session.ask("hello")).prefix == envelope.prefix


@awaited
async def test_equal_attachments_are_sent_once_and_changed_ones_anew() -> None:
    async with opened(MemoryStore(), model="gpt-5") as session:
        for text in ("same " * 100, "same " * 100, "changed " * 100):
            envelope = await session.ask("look", attach=[file("a.md", text)])
            await session.record("seen")
        assert [e.form for e in envelope.sent if e.segment.kind == "file"] == [
            Form.FULL,
            Form.STUB,
            Form.FULL,
        ]


@awaited
async def test_a_model_is_needed_for_a_request_only() -> None:
    async with opened(MemoryStore(), head=PlainHead(output=10)) as session:
        await session.ask("hello")
        with pytest.raises(BadInput, match="no model"):
            await session.request()


@awaited
async def test_the_user_keeps_no_store_of_another_name() -> None:
    store = MemoryStore()
    async with opened(store, "a", workspace="one", model="gpt-5") as session:
        await session.ask("mine")
    async with opened(store, "a", workspace="two", model="gpt-5") as session:
        assert session.log == ()
    assert (await store.read(Where("two", "a"))).head.count == 0


@awaited
async def test_the_tail_is_the_last_segments_whatever_else_the_log_holds() -> None:
    store = MemoryStore()
    async with Session.open(store, "kitchen", model="gpt-5") as session:
        await session.ask("When is the boiler lit?")
        await session.record("At six.")
    async with Session.open(store, "kitchen", model="gpt-5-mini") as session:
        await session.ask("And tomorrow?")
        texts = [[text_of(segment.parts) for segment in session.tail(count)] for count in (-1, 0, 2, 99)]
        page = await store.read(Where("", "kitchen"), last=99)
    assert texts == [
        [],
        [],
        ["At six.", "And tomorrow?"],
        ["When is the boiler lit?", "At six.", "And tomorrow?"],
    ]
    with pytest.raises(BadInput, match=r"a setting of the session.*tail"):
        decode(record.body for record in page.records)


def test_every_name_in_a_signature_of_a_session_can_be_imported_from_its_room() -> None:
    exported = {*lamina.__all__, *sessions.__all__, "PathLike", "Iterable", "Sequence", "Mapping", "Literal"}
    exported |= {"Any", "None", "AsyncIterator", "Answer", "Results", "Fork", "Manifest", "ToolCall"}
    unknown: dict[str, set[str]] = {}
    for name in ("open", "ask", "set_history", "tail", "report", "dialogue", "recall", "limit"):
        annotations = " ".join(map(str, getattr(Session, name).__annotations__.values()))
        names = set(re.findall(r"\b[A-Z]\w+", annotations))
        if names - exported:
            unknown[name] = names - exported
    assert unknown == {}


@awaited
async def test_the_request_for_ollama_is_what_its_sdk_takes() -> None:
    """The SDK has no argument against a server that drops the first messages, so the window is asked for."""
    budget = Budget(window=8_000)
    async with opened(MemoryStore(), model="qwen3", dialect="ollama", budget=budget) as session:
        await session.ask("hi")
        request = await session.request()
    assert set(request) <= ARGUMENTS
    assert request["options"]["num_ctx"] == 8_000
