"""The closing lines of `lamina run` beside `lamina replay` on the same session.

The upstream has a prefix cache of whole messages and reports what it read and wrote. What it saw, with its
answers, is a trace for `lamina replay`. So is the session that the client would have had without a gateway.
"""

from __future__ import annotations

import asyncio
import json
import re
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import run
from tests.gateway.growing import messages_request
from tests.gateway.test_run import Finished, grow
from tests.gateway.upstream_stub import SeenRequest, Stub, response, serve_stub

STEPS = 24
HANDLE = re.compile(r'recall[(=]\\*"([a-z0-9-]+)')


class CachingStub(Stub):
    """An upstream with a prefix cache. Its model recalls something once, as soon as it can."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[dict[str, Any]] = []
        self._sent: list[list[str]] = []

    async def _answer(self, request: SeenRequest, writer: asyncio.StreamWriter) -> None:
        answer = self.answer_request(request.json)
        writer.write(response(200, "application/json", json.dumps(answer).encode()))

    def answer_request(self, request: dict[str, Any]) -> dict[str, Any]:
        handles = HANDLE.findall(json.dumps(request))
        content: dict[str, Any] = {"type": "text", "text": "Go on."}
        if handles and '"name": "recall", "input"' not in json.dumps(request):
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


def replay_calls(calls: list[dict[str, Any]], file: Path) -> dict[str, Any]:
    """The headline of `lamina replay` over requests and their answers."""
    file.write_text("".join(json.dumps(call) + "\n" for call in calls))
    done = run("replay", file, "--policy", "none", "--jobs", "1", "--json", "-")
    assert done.code == 0, done.err
    headline: dict[str, Any] = json.loads(done.out)["headline"]
    return headline


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
    requests, cost, without = done.lines
    assert requests.startswith(f"{STEPS} requests in 1 conversation, ")
    assert ", 2 recalls; " in requests
    assert len(stub.calls) == STEPS + 2
    assert amount_of(cost) == pytest.approx(replayed["before"], abs=0.0001)

    direct = CachingStub()
    for step in range(STEPS):
        direct.answer_request(messages_request(step))
    replayed = replay_calls(direct.calls, tmp_path / "direct.jsonl")
    assert replayed["calls"] == STEPS
    assert amount_of(without) == pytest.approx(replayed["before"], rel=0.02)
