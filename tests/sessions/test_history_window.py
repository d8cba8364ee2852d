"""A session that sends the last messages of its history, and a source that would send them again."""

from __future__ import annotations

from typing import Any

import pytest

from lamina.context.last_n import last_n
from lamina.core.hashing import handle
from lamina.core.values import Budget, Form, Layer
from lamina.errors import BadInput, BudgetExceeded
from lamina.segments import note
from lamina.sessions import LastN, Session
from lamina.settings import Settings
from lamina.stores import MemoryStore
from lamina.testing.conformance import MODELS
from tests.sessions.talking import awaited, opened

WORDS = "words that take some room in a message of a chat " * 3


async def talked(session: Session, turns: int, *, first: int = 0) -> None:
    for number in range(first, first + turns):
        await session.ask(f"question {number}: {WORDS}")
        await session.record(f"answer {number}: {WORDS}")


def sent(request: dict[str, Any]) -> list[str]:
    """How each message begins; digests, which stand before all others, are left out."""
    texts = [_text(message["content"]) for message in request["messages"]]
    return [text.split(":")[0] for text in texts if "<digest" not in text]


def _text(content: Any) -> str:
    """Content as a text, or as one block of text, which a cache marker makes of it."""
    return content if isinstance(content, str) else str(content[0]["text"])


@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic"])
@awaited
async def test_the_last_messages_are_sent_and_the_rest_is_recalled(dialect: str) -> None:
    store = MemoryStore()
    async with opened(
        store, model=MODELS[dialect], dialect=dialect, recall="tool", history=LastN(4, 0)
    ) as session:
        await talked(session, 8)
        await session.ask("What was first?")
        request = await session.request()
        assert sent(request) == ["question 6", "answer 6", "question 7", "answer 7", "What was first?"]
        folds = [fold.key for fold in session.ledger.folds]
        assert all(key in str(request["messages"]) for key in folds)
        brought = "".join(session.recall(key).text for key in folds)
        assert [f"question {n}:" in brought for n in range(8)] == [True] * 6 + [False] * 2
        assert len(session.log) == 17
        gone = [row for row in session.explain().rows if row.form is Form.OMITTED]
        assert len(gone) == 12
        assert all(row.why for row in gone)


@awaited
async def test_the_window_is_kept_with_the_conversation_until_it_is_said_otherwise() -> None:
    store = MemoryStore()
    async with opened(store, model="gpt-5", history=LastN(4, 0)) as session:
        await talked(session, 4)
        assert session.setup.history == LastN(4, 0)
    async with opened(store) as session:
        await talked(session, 1, first=4)
        await session.ask("And now?")
        assert sent(await session.request()) == [
            "question 3",
            "answer 3",
            "question 4",
            "answer 4",
            "And now?",
        ]
        await session.record("Yes.")
    async with opened(store, history="all") as session:
        assert session.setup.history is None
        await talked(session, 3, first=5)
        await session.ask("And later?")
        assert sent(await session.request())[:3] == ["question 0", "answer 0", "question 1"]
    with pytest.raises(BadInput, match="history"):
        async with opened(store, history="some"):
            pass


@awaited
async def test_the_window_can_be_changed_at_any_turn_and_is_kept_with_it() -> None:
    """A narrower one takes more out at the next request; a wider one brings history back."""
    store = MemoryStore()
    async with opened(store, model="gpt-5", history=LastN(6, 0)) as session:
        await talked(session, 5)
        session.set_history(LastN(2, 0))
        await session.ask("Narrow?")
        assert sent(await session.request()) == ["question 4", "answer 4", "Narrow?"]
        await session.record(f"Yes: {WORDS}")
        session.set_history("all")
        await talked(session, 2, first=5)
        await session.ask("Wide?")
        assert sent(await session.request())[:3] == ["question 0", "answer 0", "question 1"]
    async with opened(store) as session:
        assert session.setup.history is None


@awaited
async def test_with_slack_most_requests_continue_the_one_before() -> None:
    async with opened(MemoryStore(), model="gpt-5", history=LastN(10)) as session:
        moved = []
        for number in range(40):
            await talked(session, 1, first=number)
            moved.append(not session.report().continues)
    assert sum(moved) == 5
    assert len(session.ledger.cuts) == 5


@awaited
async def test_a_source_does_not_say_again_what_the_conversation_has() -> None:
    """The first thing that somebody writes who knows Last-N from elsewhere."""
    box: list[Session] = []
    own = last_n(lambda: box[0].log if box else (), 6)
    async with opened(MemoryStore(), model="gpt-5", sources=[own]) as session:
        box.append(session)
        await talked(session, 5)
        assert len(session.log) == 10
        await session.ask("And now?")
        request = await session.request()
    assert len(request["messages"]) == 11
    assert session.notes[-1] == (
        "6 messages that a source found stand in this conversation already, and were left out; "
        "to send only the last ones, open it with policy=Policy(history=LastN(6))"
    )


@awaited
async def test_messages_of_another_conversation_are_new() -> None:
    async with opened(MemoryStore(), "other", model="gpt-5") as other:
        await talked(other, 2)
        log = other.log
    async with opened(MemoryStore(), model="gpt-5", sources=[last_n(lambda: log, 2)]) as session:
        await session.ask("And here?")
        assert [segment.kind for segment in session.log] == ["user", "assistant", "user"]
        await session.record("Yes.")
        await session.ask("And again?")
        assert len(session.log) == 5  # they stand here now


SHORT_TURNS = ("hi", "yes", "no", "ok")


@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic", "ollama", "gemini", "openai_responses"])
@awaited
async def test_the_window_is_chosen_at_each_call_and_may_be_wider_again(dialect: str) -> None:
    """003, "Prompt Construction (Phase 4)": the last N are read at call time."""
    store = MemoryStore()
    async with opened(store, model=MODELS[dialect], dialect=dialect) as session:
        await talked(session, 6)
        for messages, expected in ((2, 2), (8, 8), (4, 4), (6, 6)):
            await session.ask(f"last {messages}", history=LastN(messages, slack=0, digest=None))
            assert session.envelope is not None
            history = [entry for entry in session.envelope.sent if entry.layer is Layer.HISTORY]
            assert len(history) == expected
            await session.record("noted")
        await session.ask("all", history="all")
        assert session.envelope is not None
        assert all(entry.form is Form.FULL for entry in session.envelope.entries)
        cut = session.ledger.cuts[-1]
        assert cut.reason == "the whole history is sent again"
        await session.record("noted")
    async with opened(store) as session:
        await session.ask("after a restart")
        assert session.report().continues


@pytest.mark.parametrize("digest", [None, 0, 800])
@awaited
async def test_an_exact_window_is_exact_however_short_the_messages_are(digest: int | None) -> None:
    async with opened(MemoryStore(), model="gpt-5", history=LastN(3, slack=0, digest=digest)) as session:
        for turn in range(12):
            await session.ask(SHORT_TURNS[turn % 4])
            request = await session.request()
            assert len(sent(request)) <= 4
            assert digest is not None or "digest" not in str(request["messages"])
            await session.record(SHORT_TURNS[(turn + 1) % 4])
        assert len(session.log) == 24
        assert session.recall(session.log[0].key or handle_of(session, 0)).text == "hi"


def handle_of(session: Session, position: int) -> str:
    assert session.envelope is not None
    return handle(session.envelope.entries[position].content)


@awaited
async def test_the_settings_file_may_limit_history() -> None:
    settings = Settings(policy={"history": 2})
    async with Session.open(MemoryStore(), "a", model="gpt-5", settings=settings) as session:
        assert session.setup.history == LastN(2)
        await talked(session, 6)
        await session.ask("last")
        assert len(sent(await session.request())) <= 5


@awaited
async def test_a_turn_that_is_refused_leaves_the_window_as_it_was() -> None:
    async with opened(MemoryStore(), model="gpt-5", budget=Budget(window=3_000, reserve=0)) as session:
        await talked(session, 3)
        with pytest.raises(BudgetExceeded):
            await session.ask("too much " * 5_000, history=LastN(2, 0))
        await session.ask("And now?")
        assert session.setup.history is None
        assert sent(await session.request())[0] == "question 0"


@awaited
async def test_a_number_is_a_window_as_in_a_policy() -> None:
    async with opened(MemoryStore(), model="gpt-5") as session:
        await talked(session, 6)
        await session.ask("and now?", history=4)
        assert session.setup.history == LastN(4)
        session.set_history(2)
        assert session.setup.history == LastN(2)
        for wrong in (True, "4", -1):
            with pytest.raises(BadInput):
                await session.ask("and now?", history=wrong)  # type: ignore[arg-type]
        assert session.setup.history == LastN(2)


@awaited
async def test_a_digest_that_is_written_anew_is_a_cut_and_no_changed_attachment() -> None:
    async with opened(MemoryStore(), model="gpt-5", history=LastN(2, slack=0)) as session:
        causes = []
        for number in range(6):
            attached = [note("a.md", "fact " * 300)] if number == 0 else []
            await session.ask(f"question {number}", attach=attached)
            parting = session.report().parting
            causes.append(parting and parting.cause)
            await session.record(f"answer {number}")
        assert causes == [None, "none", "cut", "cut", "cut", "cut"]
