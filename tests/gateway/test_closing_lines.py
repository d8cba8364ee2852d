"""The closing lines of `lamina run` beside `lamina cost` on the same session.

The upstream has a prefix cache of whole messages and reports what it read and wrote. What it saw, with its
answers, is a log for `lamina cost`. So is the session that the client would have had without a gateway.
"""

from __future__ import annotations

import asyncio
import json
import re
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lamina import Budget
from lamina.caches import rules_for
from lamina.caches.prices import fill_prices
from lamina.conversations.store import WORKSPACE
from lamina.core.text.clipping import count_units
from lamina.gateway import GatewayAccount
from lamina.inspector.views import show_session
from lamina.models import model as facts_of
from lamina.models import price_of
from lamina.relay.journal import read_journal
from tests.cli.running import run
from tests.conversations.recorded_talk import StoreAsker
from tests.conversations.truth import drop_markers, open_inspector
from tests.gateway.growing import HEADERS, dump, messages_request
from tests.gateway.running import open_client, proxied, run_gateway, settings_for, until
from tests.gateway.test_run import Finished, grow
from tests.gateway.upstream_stub import SeenRequest, Stub, response, serve_stub

STEPS = 24
HANDLE = re.compile(r'recall[(=]\\*"([a-z0-9-]+)')


class CachingStub(Stub):
    """An upstream with a prefix cache. If its model `recalls`, it does so once, as soon as it can."""

    def __init__(self, *, recalls: bool = True) -> None:
        super().__init__()
        self.calls: list[dict[str, Any]] = []
        self._recalls = recalls
        self._sent: list[list[str]] = []

    async def _answer(self, request: SeenRequest, writer: asyncio.StreamWriter) -> None:
        answer = self.answer_request(request.json)
        writer.write(response(200, "application/json", json.dumps(answer).encode()))

    def answer_request(self, request: dict[str, Any]) -> dict[str, Any]:
        handles = HANDLE.findall(json.dumps(request))
        content: dict[str, Any] = {"type": "text", "text": "Go on."}
        if self._recalls and handles and '"name": "recall", "input"' not in json.dumps(request):
            content = {"type": "tool_use", "id": "r1", "name": "recall", "input": {"key": handles[0]}}
        answer = {
            "id": f"msg_{len(self.calls)}",
            "type": "message",
            "role": "assistant",
            "model": request["model"],
            "content": [content],
            "stop_reason": "end_turn" if content["type"] == "text" else "tool_use",
            "usage": self._report(request),
        }
        self.calls.append({"request": request, "response": answer})
        return answer

    def _report(self, request: dict[str, Any]) -> dict[str, Any]:
        """What was read is the longest beginning that an earlier request had. A part is written for long."""
        head = json.dumps([request["tools"], request["system"]])
        texts = [head, *map(json.dumps, request["messages"])]
        read = 0
        for sent_texts in self._sent:
            pairs = takewhile(lambda pair: pair[0] == pair[1], zip(texts, sent_texts, strict=False))
            read = max(read, sum(len(text) for text, _ in pairs) // 4)
        self._sent.append(texts)
        written = sum(map(len, texts)) // 4 - read
        long = written // 3
        return {
            "input_tokens": 3,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written,
            "cache_creation": {
                "ephemeral_1h_input_tokens": long,
                "ephemeral_5m_input_tokens": written - long,
            },
            "output_tokens": 7,
        }


class MarkedStub(CachingStub):
    """An upstream that caches as Anthropic does: only what a request marks."""

    def _report(self, request: dict[str, Any]) -> dict[str, Any]:
        usage = super()._report(drop_markers(request))
        if "cache_control" in json.dumps(request):
            return usage
        self._sent.pop()
        tokens = usage["input_tokens"] + usage["cache_read_input_tokens"]
        tokens += usage["cache_creation_input_tokens"]
        nothing = {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0}
        return usage | {
            "input_tokens": tokens,
            "cache_read_input_tokens": 0,
            "cache_creation_input_tokens": 0,
            "cache_creation": nothing,
        }


def replay_calls(calls: list[dict[str, Any]], file: Path) -> dict[str, Any]:
    """The sums of `lamina cost` over requests and their answers."""
    file.write_text("".join(json.dumps(call) + "\n" for call in calls))
    done = run("cost", file, "--jobs", "1", "--json", "-")
    assert done.code == 0, done.err
    sums: dict[str, Any] = json.loads(done.out)["sums"]
    return sums


def amount_of(line: str) -> float:
    found = re.search(r"\$([0-9.]+)", line)
    assert found is not None, line
    return float(found[1])


def test_the_closing_lines_are_the_account_of_replay(tmp_path: Path) -> None:
    async def converse() -> tuple[CachingStub, Finished]:
        async with serve_stub(CachingStub()) as stub:
            return stub, await grow(tmp_path / "session", stub, steps=STEPS)

    stub, done = asyncio.run(converse())
    replayed = replay_calls(stub.calls, tmp_path / "upstream.jsonl")
    requests, cost, without, *_ = done.lines
    assert requests.startswith(f"{STEPS} calls in 1 conversation, ")
    recalls = len(stub.calls) - STEPS
    assert recalls > 0
    assert f", {count_units(recalls, 'recalls')}; " in requests
    assert amount_of(cost) == pytest.approx(replayed["dollars"], abs=0.0001)

    direct = CachingStub()
    for step in range(STEPS):
        direct.answer_request(messages_request(step))
    replayed = replay_calls(direct.calls, tmp_path / "direct.jsonl")
    assert replayed["calls"] == STEPS
    assert amount_of(without) == pytest.approx(replayed["dollars"], rel=0.02)


class PlayedRun(NamedTuple):
    """Requests that went through one gateway: its account, and what its upstream saw of them."""

    account: GatewayAccount
    calls: list[dict[str, Any]]


async def play_run(
    stub: CachingStub, store: Path, steps: range, *, size: int = 2_000, **policy: Any
) -> PlayedRun:
    """Play the requests of these steps through a gateway of their own, which ends after them."""
    seen_before = len(stub.calls)
    journal = store.with_suffix(".jsonl")
    upstream = {"budget": Budget(window=8_000, reserve=500), **policy}
    settings = settings_for(stub, store, upstream=upstream, keep="all")
    async with run_gateway(settings, journal_path=journal) as gateway, open_client() as client:
        for step in steps:
            body = dump(messages_request(step, size=size))
            async with client.post(f"{gateway.url}/v1/messages", data=body, headers=HEADERS) as answer:
                assert answer.status == 200, await answer.text()
        answered = len(stub.calls) - seen_before
        await until(lambda: len(gateway.events("answered")) == answered)
        lines = gateway.log.getvalue().splitlines()
    account = GatewayAccount(lambda: read_journal(journal))
    for line in lines:
        account.read_event(json.loads(line))
    return PlayedRun(account, stub.calls[seen_before:])


def list_direct_calls(
    steps: range, *, size: int = 2_000, stub: CachingStub | None = None
) -> list[dict[str, Any]]:
    """The same requests of a client that talks to the upstream itself."""
    direct = stub or CachingStub()
    for step in range(steps.stop):
        direct.answer_request(messages_request(step, size=size))
    return direct.calls[steps.start :]


def price_calls(calls: list[dict[str, Any]]) -> float:
    """What an upstream would bill for these calls."""
    model = facts_of("claude-sonnet-5")
    prices = fill_prices(price_of(model), model.name, rules_for(model.name))
    millionths = 0.0
    for call in calls:
        usage = call["response"]["usage"]
        written = usage["cache_creation"]
        millionths += usage["input_tokens"] * (prices.input or 0)
        millionths += usage["cache_read_input_tokens"] * (prices.read or 0)
        millionths += written["ephemeral_5m_input_tokens"] * (prices.write or 0)
        millionths += written["ephemeral_1h_input_tokens"] * (prices.write_1h or 0)
        millionths += usage["output_tokens"] * (prices.output or 0)
    return millionths / 1_000_000


@pytest.mark.parametrize(
    ("path", "limits"),
    [
        ("/v1/messages", {"max_tokens": 3_000}),
        ("/v1beta/models/gemini-3-pro:generateContent", {"generationConfig": {"maxOutputTokens": 3_000}}),
    ],
)
@pytest.mark.anyio
async def test_the_log_says_what_of_the_window_is_left_for_the_answer(path: str, limits: Any) -> None:
    request = messages_request(20) | limits
    if "gemini" in path:
        said = json.dumps(request["messages"])
        request = {"contents": [{"role": "user", "parts": [{"text": said[:5_000]}]}], **limits}
    async with proxied(upstream={"budget": 8_000}) as (_, gateway, client):
        async with client.post(gateway.url + path, data=dump(request), headers=HEADERS) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()
        assert await until(lambda: bool(gateway.events("answered")))
        [line] = gateway.events("answered")
    assert (line["window"], line["reserve"]) == (8_000, 3_000)


@pytest.mark.parametrize(("recalls", "size"), [(False, 2_000), (True, 2_000), (False, 9_000)])
def test_a_fresh_run_and_a_resumed_one_agree_with_their_upstream(
    tmp_path: Path, *, recalls: bool, size: int
) -> None:
    """Results of 9,000 bytes are a third of the room, so that every second request is cut."""
    last = 44_000 // size + 10
    half = last * 2 // 3

    async def play() -> tuple[PlayedRun, PlayedRun]:
        async with serve_stub(CachingStub(recalls=recalls)) as stub:
            fresh = await play_run(stub, tmp_path / "g.db", range(half), size=size)
            return fresh, await play_run(stub, tmp_path / "g.db", range(half, last), size=size)

    fresh, resumed = asyncio.run(play())
    assert fresh.account.cuts
    assert bool(fresh.account.recalls) is recalls
    for played, steps in [(fresh, range(half)), (resumed, range(half, last))]:
        direct_calls = list_direct_calls(steps, size=size)
        assert played.account.cost == pytest.approx(price_calls(played.calls), rel=0.001)
        assert played.account.cost_without == pytest.approx(price_calls(direct_calls), rel=0.02)
    if recalls:  # one of the three is enough to compare with `lamina cost`
        replayed = replay_calls(resumed.calls, tmp_path / "resumed.jsonl")
        assert resumed.account.cost == pytest.approx(replayed["dollars"], rel=0.001)


@pytest.mark.parametrize("steps", [8, 32])
def test_without_lamina_a_client_that_marks_nothing_pays_what_it_pays_without_lamina(
    tmp_path: Path, steps: int
) -> None:
    """In the short session nothing is cut: the markers that the gateway places save all that is saved."""

    async def play() -> PlayedRun:
        async with serve_stub(MarkedStub(recalls=False)) as stub:
            return await play_run(stub, tmp_path / "g.db", range(steps), breakpoints="auto")

    played = asyncio.run(play())
    direct_calls = list_direct_calls(range(steps), stub=MarkedStub(recalls=False))
    assert bool(played.account.cuts) is (steps == 32)
    assert played.account.cost == pytest.approx(price_calls(played.calls), rel=0.001)
    assert played.account.cost_without == pytest.approx(price_calls(direct_calls), rel=0.02)
    assert "cache breakpoints that lamina placed saved $" in played.account.write_lines()[2]


@pytest.mark.parametrize(("stub", "breakpoints"), [(CachingStub, "keep"), (MarkedStub, "auto")])
def test_what_cuts_saved_is_one_figure(stub: type[CachingStub], breakpoints: str, tmp_path: Path) -> None:
    """In the closing lines, in `lamina cost`, and on the page of the session."""
    store = tmp_path / "g.db"

    async def play() -> PlayedRun:
        async with serve_stub(stub()) as upstream:
            return await play_run(upstream, store, range(32), breakpoints=breakpoints)

    account = asyncio.run(play()).account
    assert account.cuts
    assert account.recalls
    assert account.saved_by_cuts is not None
    done = run("cost", "--store", store, "--json", "-")
    assert done.code == 0, done.err
    sums = json.loads(done.out)["sums"]
    assert sums["dollars_uncut"] - sums["dollars"] == pytest.approx(account.saved_by_cuts)
    assert sums["dollars_without"] == pytest.approx(account.cost_without)
    assert account.write_lines()[2] in run("cost", "--store", store).out.splitlines()
    inspector = open_inspector(StoreAsker(store), WORKSPACE)
    [summary] = inspector.sessions.summaries()
    losses = [call["loss"] for call in show_session(inspector, summary.id)["calls"] if call["cut"]]
    saved = sum(loss["saved"] - loss["dollars"] for loss in losses)
    assert saved == pytest.approx(account.saved_by_cuts)
