"""Cuts that a gateway leaves to the server of its upstream."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.gateway.growing import messages_request
from tests.gateway.running import RunningGateway, open_client, run_gateway, settings_for
from tests.gateway.test_conversations import post, states
from tests.gateway.upstream_stub import SeenRequest, Stub, response, serve_stub
from tests.servers.context_editing import EditedPrompt, Refused, edit

Json = dict[str, Any]

FIRST: Json = {"upstream": {"budget": 9_000, "reserve": 500, "server": "first"}}


class EditingStub(Stub):
    """An upstream that clears old results. `prompts` are what its model read."""

    def __init__(self, *, knows_editing: bool = True) -> None:
        super().__init__()
        self.knows_editing = knows_editing
        self.prompts: list[EditedPrompt] = []

    async def _answer(self, request: SeenRequest, writer: asyncio.StreamWriter) -> None:
        betas = request.header_map.get("anthropic-beta", "") if self.knows_editing else ""
        try:
            prompt = edit(request.json, betas)
        except Refused as refusal:
            error = {"type": "error", "error": {"type": "invalid_request_error", "message": str(refusal)}}
            writer.write(response(400, "application/json", json.dumps(error).encode()))
            return
        self.prompts.append(prompt)
        answer = {
            "id": f"msg_{len(self.prompts)}",
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": "Yes."}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": prompt.tokens, "output_tokens": 1},
            "context_management": prompt.report,
        }
        writer.write(response(200, "application/json", json.dumps(answer).encode()))


def run_loop(stub: EditingStub, store: Path) -> RunningGateway:
    async def run_all() -> RunningGateway:
        async with serve_stub(stub):
            settings = settings_for(stub, store, **FIRST)
            async with open_client() as client:
                for first, last in ((1, 12), (12, 26)):  # the gateway starts anew in between
                    async with run_gateway(settings) as gateway:
                        for steps in range(first, last):
                            status, _ = await post(client, gateway.url, messages_request(steps))
                            assert status == 200
            return gateway

    return asyncio.run(run_all())


def test_the_model_reads_a_prompt_that_only_grows_between_two_cuts(tmp_path: Path) -> None:
    stub = EditingStub()
    run_loop(stub, tmp_path / "gateway.db")
    (state,) = states(tmp_path / "gateway.db").values()
    assert all(cut.reason.startswith("the provider clears") for cut in state.ledger.cuts)
    assert 1 <= len(state.ledger.cuts) <= 6
    changes = 0
    for before, after in pairwise(stub.prompts):
        read = before.messages
        changes += after.messages[: len(read)] != read
    assert changes == len(state.ledger.cuts)
    assert max(prompt.tokens for prompt in stub.prompts) < 9_000


def test_an_upstream_that_does_not_clear_gets_cuts_of_the_gateway(tmp_path: Path) -> None:
    stub = EditingStub(knows_editing=False)
    gateway = run_loop(stub, tmp_path / "gateway.db")
    assert len(stub.prompts) == 25
    (state,) = states(tmp_path / "gateway.db").values()
    assert not any(cut.reason.startswith("the provider") for cut in state.ledger.cuts)
    assert len(gateway.events("clearing refused")) <= 1
