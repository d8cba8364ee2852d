"""Wrapped clients of the official SDKs against a real server: llama.cpp in this process."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import anthropic
import openai
import pytest

import lamina
from lamina import BadInput, Budget, Fitted, Form
from lamina.core import Counter, text_of
from lamina.testing.model_server import ModelServer, run_model_server
from tests.sessions.talking import awaited
from tests.talking import SPEAKERS, Answer, Speaker, Wire, entered, listing, named, refusing

TURNS = (30, pytest.param(60, marks=pytest.mark.thorough))
WINDOW = 4096
HANDLE = re.compile(r'recall[(=]"([^"]+)"')

each_speaker = pytest.mark.parametrize("speaker", SPEAKERS, ids=named)

SPEAKER_WAYS = [(speaker, (at + turn) % 3) for turn in (0, 1) for at, speaker in enumerate(SPEAKERS)]
"""Each speaker in two of the three ways to ask, so that every SDK is tried in all three."""

each_speaker_and_way = pytest.mark.parametrize(
    ("speaker", "way"), SPEAKER_WAYS, ids=[f"{named(speaker)}-{way}" for speaker, way in SPEAKER_WAYS]
)

QUICK_SPEAKERS = ("anthropic-async", "openai-sync")
"""Each SDK once and each manner of calling once, for what takes a whole session; the nightly run has all."""

each_speaker_in_time = pytest.mark.parametrize(
    "speaker",
    [
        pytest.param(speaker, marks=() if named(speaker) in QUICK_SPEAKERS else pytest.mark.thorough)
        for speaker in SPEAKERS
    ],
    ids=named,
)


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with run_model_server(window=WINDOW) as running:
        yield running


class Turn(NamedTuple):
    answer: Answer
    counted: int
    cuts: int


class Session(NamedTuple):
    turns: list[Turn]
    texts: list[str]
    fitted: Fitted


async def session(speaker: Speaker, client: Any, turns: int, *, about: str = "part") -> Session:
    """An agent that is asked, reads a file, answers; each turn is one request, each in another way."""
    history: list[Any] = []
    texts: list[str] = []
    taken: list[Turn] = []
    for turn in range(turns):
        asks = turn % 2 == 0
        texts.append(f"What does {about} {turn} do?" if asks else listing(f"{about}_{turn}"))
        history.append(
            {"role": "user", "content": texts[-1]} if asks else speaker.result(f"c{turn - 1}", texts[-1])
        )
        answer = await speaker.ask(client, history, way=turn)
        path = f"src/{about}_{turn}.py"
        history.append(speaker.calling(answer.said, f"c{turn}", path) if asks else answer.said)
        taken.append(Turn(answer, client.fitted.envelope.tokens, len(client.fitted.ledger.cuts)))
    return Session(taken, texts, client.fitted)


@pytest.mark.parametrize("turns_taken", TURNS)
@each_speaker_in_time
def test_a_long_session_is_never_refused_and_keeps_the_servers_cache(
    server: ModelServer, speaker: Speaker, turns_taken: int
) -> None:
    wire = Wire()

    async def talk() -> Session:
        async with speaker.wrapped(server.url, wire, budget=Budget(window=WINDOW)) as client:
            # of its own, so that what is cached was sent by this very client
            return await session(speaker, client, turns_taken, about=f"{named(speaker)}_{turns_taken}")

    turns, texts, fitted = asyncio.run(talk())
    assert wire.statuses == [200] * turns_taken
    assert turns[-1].cuts >= turns_taken // 20
    for before, after in pairwise(turns):
        assert after.answer.prompt <= after.counted <= WINDOW
        if before.cuts == after.cuts:
            assert after.answer.cached >= before.answer.prompt
    within_reach = reachable(fitted)
    assert [text for text in texts if text not in within_reach] == []
    lowered = [entry for entry in fitted.envelope.entries if entry.form is not Form.FULL]
    assert [fitted.recall(e.ref) for e in lowered] == [text_of(e.segment.parts) for e in lowered]


@each_speaker_in_time
def test_after_a_restart_the_servers_cache_goes_on(
    server: ModelServer, speaker: Speaker, tmp_path: Path
) -> None:
    """A new client every third turn, with the same store: cached tokens are those of one client."""
    history: list[Any] = []

    async def talk() -> list[Turn]:
        turns: list[Turn] = []
        for start in range(8):
            store = tmp_path / "chats.db"
            async with speaker.wrapped(server.url, budget=Budget(window=WINDOW), store=store) as client:
                for turn in range(3 * start, 3 * start + 3):
                    history.append(prompt(f"{named(speaker)} {turn}: {listing(f'restart_{turn}')}"))
                    answer = await speaker.ask(client, history, way=turn)
                    history.append(answer.said)
                    cuts = len(client.fitted.ledger.cuts)
                    turns.append(Turn(answer, client.fitted.envelope.tokens, cuts))
        return turns

    turns = asyncio.run(talk())
    assert turns[-1].cuts >= 2
    for before, after in pairwise(turns):
        if before.cuts == after.cuts:
            assert after.answer.cached >= before.answer.prompt


def reachable(fitted: Fitted) -> str:
    """What the model sees, and all that it can have again by the handles that it sees."""
    sent = "\n".join(strings(fitted.request["messages"]))
    return "\n".join([sent, *(fitted.recall(handle) for handle in HANDLE.findall(sent))])


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings(inner)
    elif hasattr(value, "model_dump"):
        yield from strings(value.model_dump())


@each_speaker_and_way
def test_after_an_overflow_one_deeper_cut_is_sent_and_the_limit_is_remembered(
    server: ModelServer, speaker: Speaker, way: int
) -> None:
    wire, history = Wire(), speaker.past(12)

    async def talk() -> int:
        async with speaker.wrapped(server.url, wire, budget=Budget(window=4 * WINDOW)) as client:
            first = await speaker.ask(client, history, way=way)
            assert wire.statuses == [400, 200]
            await speaker.ask(client, [*history, first.said, {"role": "user", "content": "And?"}], way=way)
            return len(client.fitted.ledger.cuts)

    assert asyncio.run(talk()) == 1
    assert wire.statuses == [400, 200, 200]
    assert len(wire.bodies[1]) < len(wire.bodies[0])


@each_speaker
def test_a_counter_that_says_too_little_is_held_to_what_the_server_counted(
    server: ModelServer, speaker: Speaker
) -> None:
    wire = Wire()
    third = Counter(name="third", count=lambda text: len(text) // 3)

    async def talk() -> None:
        async with speaker.wrapped(server.url, wire, budget=Budget(window=WINDOW), counter=third) as client:
            await speaker.ask(client, speaker.past(15))

    asyncio.run(talk())
    assert wire.statuses == [400, 200]


@each_speaker_and_way
def test_an_overflow_that_a_deeper_cut_does_not_mend_is_the_servers_error_after_one_retry(
    server: ModelServer, speaker: Speaker, way: int
) -> None:
    wire = Wire()
    history = [*speaker.past(6), {"role": "assistant", "content": "Done."}, prompt("x" * 5000)]

    async def talk() -> None:
        async with speaker.wrapped(server.url, wire, budget=Budget(window=4 * WINDOW)) as client:
            await speaker.ask(client, history, way=way)

    with pytest.raises((openai.BadRequestError, anthropic.BadRequestError), match=r"exceeds the available"):
        asyncio.run(talk())
    assert wire.statuses == [400, 400]


@each_speaker
def test_what_cannot_be_made_smaller_is_not_sent_again(server: ModelServer, speaker: Speaker) -> None:
    wire = Wire()

    async def talk() -> None:
        async with speaker.wrapped(server.url, wire, budget=Budget(window=4 * WINDOW)) as client:
            await speaker.ask(client, [prompt("x" * 5000)])

    with pytest.raises((openai.BadRequestError, anthropic.BadRequestError)):
        asyncio.run(talk())
    assert wire.statuses == [400]


@each_speaker
@pytest.mark.parametrize(
    ("way", "status", "message"),
    [
        (0, 400, "max_tokens is too large: 500000. This model supports at most 16384 completion tokens"),
        (1, 401, "invalid api key"),
        (2, 429, "request exceeds the context tokens that you may send in a minute"),
        (0, 500, "internal error"),
    ],
)
def test_every_other_error_is_the_sdks_own_and_nothing_is_sent_twice(
    speaker: Speaker, way: int, status: int, message: str
) -> None:
    async def talk(client: Any) -> Exception:
        with pytest.raises(Exception, match=re.escape(message)) as caught:
            async with entered(client, speaker):
                await speaker.ask(client, speaker.past(1), way=way)
        return caught.value

    with refusing(status, message) as (url, seen):
        bare = asyncio.run(talk(speaker.client(url)))
        error = asyncio.run(talk(lamina.wrap(speaker.client(url), budget=Budget(window=WINDOW))))
    assert (type(error), str(error)) == (type(bare), str(bare))
    assert len(seen) == 2
    assert seen[0] == seen[1]


@each_speaker
@awaited
async def test_a_server_that_is_not_there_is_the_sdks_own_error(speaker: Speaker) -> None:
    with run_model_server(window=256) as gone:
        url = gone.url
    with pytest.raises((openai.APIConnectionError, anthropic.APIConnectionError)):
        async with speaker.wrapped(url, budget=Budget(window=WINDOW)) as client:
            await speaker.ask(client, speaker.past(1))


@pytest.mark.parametrize("by_name", [False, True], ids=["found", "named"])
@each_speaker_in_time
def test_conversations_over_one_client_do_not_disturb_each_other(
    server: ModelServer, speaker: Speaker, *, by_name: bool
) -> None:
    """Both begin with the same question, and what each sends is what it sends when it is alone."""

    async def talk(order: str) -> dict[str, list[bytes]]:
        wire = Wire()
        sent: dict[str, list[bytes]] = {"a": [], "b": []}
        async with speaker.wrapped(
            server.url, wire, budget=Budget(window=2048), breakpoints="keep"
        ) as client:
            clients = {name: client.conversation(name) if by_name else client for name in "ab"}
            histories = {name: [prompt("What next?")] for name in "ab"}
            for step, name in enumerate(order):
                history = histories[name]
                answer = await speaker.ask(clients[name], history)
                history.append(speaker.calling(answer.said, f"c{len(history)}", f"{name}.py"))
                history.append(speaker.result(f"c{len(history) - 1}", listing(f"{name}_{len(history)}")))
                sent[name].append(wire.bodies[step])
            if by_name:
                assert all(clients[name].fitted.ledger.cuts for name in order)
        assert len(set(order)) == 1 or by_name or not_told_whose(client)
        return sent

    together, alone = asyncio.run(talk("ab" * 8)), asyncio.run(talk("a" * 8))
    assert together["a"] == alone["a"]
    assert together["b"] == asyncio.run(talk("b" * 8))["b"]


def not_told_whose(client: Any) -> bool:
    """Whether a client of several conversations refuses to say which request was the last."""
    with pytest.raises(BadInput, match=r"more than one conversation.*fitted_of"):
        _ = client.fitted
    return True


def test_many_conversations_at_once(server: ModelServer) -> None:
    speaker, wire = Speaker("openai", is_async=True), Wire()

    async def talk() -> list[Session]:
        async with speaker.wrapped(server.url, wire, budget=Budget(window=2048)) as client:
            names = [f"topic{number}" for number in range(6)]
            alone = (session(speaker, client.conversation(name), 10, about=name) for name in names)
            return await asyncio.gather(*alone)

    sessions = asyncio.run(talk())
    assert wire.statuses == [200] * 60
    for number, (_, texts, fitted) in enumerate(sessions):
        assert len(fitted.ledger.cuts) > 0
        within_reach = reachable(fitted)
        assert [text for text in texts if text not in within_reach] == []
        assert set(re.findall(r"topic\d", within_reach)) == {f"topic{number}"}


def prompt(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
