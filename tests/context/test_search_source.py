"""Search as a source and as a tool: excerpts, within their room, without what stands there already."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.request import Request

import pytest

from lamina import build
from lamina.context.search import (
    Chunk,
    Index,
    SearchLimits,
    answer_search_call,
    embedders,
    open_index,
    search,
    search_tool,
    server_embedder,
)
from lamina.core import Text
from lamina.core.values import Segment
from lamina.errors import BadInput
from lamina.segments import file, user

pytestmark = pytest.mark.anyio
LINES = [f"retry rule {number}: " + "retry " * (20 - number) + "pause " * number for number in range(20)]


@pytest.fixture
async def index() -> AsyncIterator[Index]:
    async with open_index() as index:
        await index.replace(
            "rules.txt", [Chunk(text=line, place=f"lines {n}-{n}") for n, line in enumerate(LINES)]
        )
        yield index


def texts(segments: Any) -> list[str]:
    return [part.text for one in segments for part in one.parts if isinstance(part, Text)]


async def test_excerpts_have_place_and_score_and_the_most_relevant_is_last(index: Index) -> None:
    segments = list(await search(index)("retry", None))
    scores = [float(one.attrs["score"]) for one in segments]
    assert scores == sorted(scores)
    assert segments[-1].attrs == {"source": "rules.txt", "place": "lines 0-0", "score": "1.00"}
    assert {one.kind for one in segments} == {"excerpt"}


@pytest.mark.parametrize("room", [0, 100, 1_000, 10_000])
async def test_excerpts_stay_within_their_share_of_the_room(index: Index, room: int) -> None:
    segments = await search(index, limits=SearchLimits(share=0.5))("retry", room)
    envelope = build([*segments, user("retry")])
    assert sum(entry.tokens for entry in envelope.entries[:-1]) <= room // 2
    assert bool(segments) == (room >= 1_000)


async def test_what_stands_in_the_request_is_not_found_again(index: Index) -> None:
    there = [file("rules.txt", "\n".join(LINES[:3]))]
    for sent in (there, build([*there, user("hi")]).entries):
        segments = texts(await search(index, already_sent=lambda now=sent: now)("retry", None))  # type: ignore[misc]
        assert not set(LINES[:3]) & set(segments)
        assert LINES[3] in segments


async def test_what_was_lowered_is_found_again(index: Index) -> None:
    sent: list[Segment] = [file("rules.txt", "outline only")]
    assert LINES[0] in texts(await search(index, already_sent=lambda: sent)("retry", None))


async def test_neighbouring_turns_are_one_excerpt_in_their_order() -> None:
    lines = [("Ana", "Which pet do you have?"), ("Ben", "A hamster.")]
    chunks = [Chunk(text=t, speaker=who, at="2024-05-06T07", sort="turn", place=t[:2]) for who, t in lines]
    async with open_index() as index:
        await index.add("log", chunks)
        (one,) = await search(index)("pet", None)
    assert texts([one]) == ["Ana, 2024-05-06: Which pet do you have?\nBen, 2024-05-06: A hamster."]
    assert one.attrs["place"] == "Wh to A "


async def test_equal_texts_are_found_once() -> None:
    async with open_index() as index:
        for source in ("a", "b"):
            await index.replace(source, [Chunk(text="the same retry rule")])
        assert len(list(await search(index)("retry", None))) == 1


async def test_the_tool_answers_its_own_definition(index: Index) -> None:
    schema = search_tool()["parameters"]
    assert set(schema["properties"]) == {"query", "most"}
    segments = await answer_search_call(index, json.dumps({"query": "retry", "most": 2}))
    assert texts(segments) == [LINES[1], LINES[0]]
    assert texts(await answer_search_call(index, {"query": "retry", "most": 10**9}))


@pytest.mark.parametrize("arguments", ["", "[]", "{}", '{"query": 1}', {"most": 3}])
async def test_arguments_that_cannot_be_used_are_refused(index: Index, arguments: Any) -> None:
    with pytest.raises(BadInput, match="query"):
        await answer_search_call(index, arguments)


@pytest.mark.parametrize("limits", [{"share": 0}, {"share": 2}, {"tokens": 0}, {"most": 0}, {"least": -1}])
def test_limits_that_make_no_sense_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="limits"):
        SearchLimits(**limits)


async def test_a_server_is_asked_in_batches_and_answers_in_any_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedders, "SERVER_BATCH", 2)
    queries: list[list[str]] = []

    def post(request: Request, patience: float) -> bytes:
        assert request.full_url == "http://here/v1/embeddings"
        assert isinstance(request.data, bytes)
        queries.append(json.loads(request.data)["input"])
        items = [{"index": at, "embedding": [len(text)]} for at, text in enumerate(queries[-1])]
        return json.dumps({"data": items[::-1], "patience": patience}).encode()

    embed = server_embedder("http://here/v1/", model="m", post=post)
    assert await embed(["a", "bb", "ccc"]) == [[1], [2], [3]]
    assert queries == [["a", "bb"], ["ccc"]]


async def test_a_server_that_answers_something_else_is_named() -> None:
    embed = server_embedder("http://here/v1", model="m", post=lambda *_: b"{}")
    with pytest.raises(BadInput, match="no vectors from http://here/v1"):
        await embed(["a"])
    with pytest.raises(BadInput, match="begins with http"):
        server_embedder("file:///etc/passwd", model="m")
