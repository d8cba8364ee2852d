"""Against a real server whose model has random weights: its words must be refused, and the digest used."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import Request, urlopen

from anyio import to_thread

from lamina.core import text_of
from lamina.core.values import Budget, Form
from lamina.dialects.openai_chat import render
from lamina.segments import note
from lamina.stores import MemoryStore
from lamina.summaries import Bounds, Condense, Question, compact
from lamina.testing.model_server import COUNTER, MODEL, ModelServer, run_model_server
from tests.sessions.talking import awaited, opened
from tests.summaries.test_session import played


class Letters:
    """Asks the server, and remembers what it answered and how much of each prompt it had cached."""

    def __init__(self, server: ModelServer) -> None:
        self.url = f"{server.url}/v1/chat/completions"
        self.answers: list[str] = []
        self.cached: list[int] = []

    async def __call__(self, question: Question) -> str:
        body = render(question.envelope) | {"max_tokens": 40}
        answer = await to_thread.run_sync(self.post, body)
        self.answers.append(answer["choices"][0]["message"]["content"])
        return self.answers[-1]

    def post(self, body: dict[str, Any]) -> Any:
        sent = Request(self.url, json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310
        with urlopen(sent, timeout=60) as reply:  # noqa: S310 - an address of this machine
            answer = json.load(reply)
        self.cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
        return answer


@awaited
async def test_random_words_are_refused_and_the_digest_is_recorded() -> None:
    budget = Budget(window=16_384, reserve=0, keep_last=1)
    options: dict[str, Any] = {"model": MODEL, "dialect": "openai_chat", "budget": budget, "counter": COUNTER}
    with run_model_server(window=16_384) as server:
        async with opened(MemoryStore(), **options) as session:
            write = Letters(server)
            talked = await played(session, 12)
            before = await session.build()
            await to_thread.run_sync(write.post, (await session.request()) | {"max_tokens": 1})
            outcome = await compact(talked, write)
            assert all(answer.isalpha() for answer in write.answers)
            assert (outcome.by, outcome.questions, len(write.answers)) == ("digest", 2, 2)
            assert outcome.notes == ("the model's summary was not used: it speaks of something else",)
            assert write.cached[1] >= before.tokens * 0.9  # the question continues the last request
            assert write.answers[0] not in text_of(session.log[-1].parts)
            await session.ask("Go on.")
            await to_thread.run_sync(write.post, (await session.request()) | {"max_tokens": 1})


@awaited
async def test_random_words_about_a_turns_attachments_are_refused_and_the_turn_goes_on() -> None:
    """Two long notes are read in parts, several at a time; what is written about them is noise."""
    budget = Budget(window=16_384, reserve=0, keep_last=1)
    options: dict[str, Any] = {"model": MODEL, "dialect": "openai_chat", "budget": budget, "counter": COUNTER}
    notes = [note(f"{name}.md", f"Note {name} says that lamps are lit at dusk.\n" * 250) for name in "ab"]
    with run_model_server(window=16_384) as server:
        async with opened(MemoryStore(), **options) as session:
            write = Letters(server)
            condense = Condense(write=write, limit=2_000, bounds=Bounds(window=8_192, at_once=2))
            envelope = await session.ask("When are lamps lit?", attach=notes, condense=condense)
            assert len(write.answers) >= 2
            assert all(answer.isalpha() for answer in write.answers)
            assert "cannot be used: it speaks of something else" in session.notes[-1]
            assert not any(one.covers for one in session.log)
            forms = [entry.form for entry in envelope.sent if entry.segment.kind == "note"]
            assert all(form < Form.FULL for form in forms)  # as without a model
            await to_thread.run_sync(write.post, (await session.request()) | {"max_tokens": 1})
            assert session.recall("b.md").total == len("Note b says that lamps are lit at dusk.\n" * 250)


@awaited
async def test_the_words_of_a_model_that_are_good_enough_reach_the_server_in_place_of_the_attachments() -> (
    None
):
    """The server answers each question, and counts it; the words that are used are a script's."""
    budget = Budget(window=16_384, reserve=0, keep_last=1)
    options: dict[str, Any] = {"model": MODEL, "dialect": "openai_chat", "budget": budget, "counter": COUNTER}
    notes = [note(f"{name}.md", f"Note {name} says that lamps are lit at dusk.\n" * 250) for name in "ab"]
    with run_model_server(window=16_384) as server:
        letters = Letters(server)

        async def write(question: Question) -> str:
            await letters(question)
            return "a.md and b.md: the note says that lamps are lit at dusk."

        async with opened(MemoryStore(), **options) as session:
            condense = Condense(write=write, limit=2_000, bounds=Bounds(window=8_192, at_once=2))
            envelope = await session.ask("When are lamps lit?", attach=notes, condense=condense)
            assert session.notes == ()
            assert len(letters.answers) == len([one for one in letters.cached if one >= 0]) > 2
            answer = await to_thread.run_sync(letters.post, (await session.request()) | {"max_tokens": 1})
            assert answer["usage"]["prompt_tokens"] <= envelope.tokens < 1_000
