"""Wrapped clients of the official SDKs against a real server: llama.cpp in this process."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import openai
import pytest

from lamina import Budget, Counter, Fitted, Form
from lamina.core.wording import text_of
from lamina.testing.upstream import Upstream, upstream
from tests.talking import SPEAKERS, Answer, Speaker, Wire, named

TURNS = 60
WINDOW = 4096
HANDLE = re.compile(r'recall[(=]"([^"]+)"')

each_speaker = pytest.mark.parametrize("speaker", SPEAKERS, ids=named)
each_way = pytest.mark.parametrize("way", range(3))


@pytest.fixture(scope="module")
def server() -> Iterator[Upstream]:
    with upstream(window=WINDOW) as running:
        yield running


class Turn(NamedTuple):
    answer: Answer
    counted: int
    cuts: int


class Session(NamedTuple):
    turns: list[Turn]
    said: list[str]
    fitted: Fitted


async def session(speaker: Speaker, client: Any, turns: int, *, about: str = "part") -> Session:
    """An agent that is asked, reads a file, answers; each turn is one request, each in another way."""
    history: list[Any] = []
    said: list[str] = []
    taken: list[Turn] = []
    for turn in range(turns):
        asks = turn % 2 == 0
        said.append(f"What does {about} {turn} do?" if asks else listing(f"{about}_{turn}"))
        history.append(
            {"role": "user", "content": said[-1]} if asks else speaker.result(f"c{turn - 1}", said[-1])
        )
        answer = await speaker.ask(client, history, way=turn)
        path = f"src/{about}_{turn}.py"
        history.append(speaker.calling(answer.said, f"c{turn}", path) if asks else answer.said)
        taken.append(Turn(answer, client.fitted.envelope.tokens, len(client.fitted.ledger.cuts)))
    return Session(taken, said, client.fitted)


def listing(name: str) -> str:
    return "".join(f"def {name}_{line}(): return {line * line}\n" for line in range(14))


@each_speaker
def test_a_long_session_is_never_refused_and_keeps_the_servers_cache(
    server: Upstream, speaker: Speaker
) -> None:
    wire = Wire()

    async def talk() -> Session:
        async with speaker.wrapped(server.url, wire, budget=Budget(window=WINDOW)) as client:
            return await session(speaker, client, TURNS)

    turns, said, fitted = asyncio.run(talk())
    assert wire.statuses == [200] * TURNS
    assert turns[-1].cuts >= 3
    for before, after in pairwise(turns):
        assert after.answer.prompt <= after.counted <= WINDOW
        if before.cuts == after.cuts:
            assert after.answer.cached >= before.answer.prompt
    within_reach = reachable(fitted)
    assert [text for text in said if text not in within_reach] == []
    lowered = [entry for entry in fitted.envelope.entries if entry.form is not Form.FULL]
    assert [fitted.recall(e.ref) for e in lowered] == [text_of(e.segment.parts) for e in lowered]


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
