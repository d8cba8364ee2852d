"""A wrapped client that leaves cuts to the server, with the official SDK against a server that clears."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import pytest

from lamina import Budget, Policy
from lamina.wrapped import wrap
from tests.gateway.growing import messages_request
from tests.servers.compaction import check_messages, compact_messages
from tests.servers.context_editing import Refused, edit
from tests.servers.json_server import serve_json
from tests.wrapped.test_wrap_compaction import talk

SMALL = Budget(window=9_000, reserve=500)


class EditingApi:
    """What was asked of the server. `knows_editing`: it clears old results if a request asks for that."""

    def __init__(self, *, knows_editing: bool = True) -> None:
        self.url = ""
        self.knows_editing = knows_editing
        self.requests: list[dict[str, Any]] = []
        self.refused = 0
        self.compactions = 0

    def answer(self, request: dict[str, Any], betas: str) -> tuple[int, Any]:
        if "compaction" in request:
            self.compactions += 1
            return 200, compact_messages(request, betas)
        check_messages(request)
        self.requests.append(request)
        try:
            prompt = edit(request, betas if self.knows_editing else "")
        except Refused as refusal:
            self.refused += 1
            error = {"type": "invalid_request_error", "message": str(refusal)}
            return 400, {"type": "error", "error": error}
        return 200, {
            "id": f"msg_{len(self.requests)}",
            "type": "message",
            "role": "assistant",
            "model": request["model"],
            "content": [{"type": "text", "text": "Yes."}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": prompt.tokens, "output_tokens": 1},
            "context_management": prompt.report,
        }


@contextmanager
def editing_api(**options: Any) -> Iterator[EditingApi]:
    api = EditingApi(**options)
    with serve_json(
        lambda _, request, headers: api.answer(request, headers.get("anthropic-beta", ""))
    ) as url:
        api.url = url
        yield api


@pytest.mark.parametrize("endpoint", ["messages", "beta"])
def test_a_loop_longer_than_the_window_is_cleared_by_the_server(endpoint: str) -> None:
    whole = messages_request(24)
    with editing_api() as api:
        bare: Any = anthropic.Anthropic(base_url=api.url, api_key="none", max_retries=0)
        with wrap(bare, budget=SMALL, policy=Policy(server="first", breakpoints="keep")) as client:
            create = client.beta.messages.create if endpoint == "beta" else client.messages.create
            for steps in range(2, 25, 2):
                create(**{**whole, "messages": whole["messages"][: 2 * steps + 1]})
            cuts = client.fitted.ledger.cuts
    assert api.refused == 0
    asked = [request for request in api.requests if "context_management" in request]
    assert len(asked) > 3
    assert all(cut.reason.startswith("the provider clears") for cut in cuts)
    assert api.requests[-1]["messages"] == whole["messages"][:49]


def test_a_server_without_editing_gets_a_cut_of_laminas_instead() -> None:
    whole = messages_request(24)
    with editing_api(knows_editing=False) as api:
        bare: Any = anthropic.Anthropic(base_url=api.url, api_key="none", max_retries=0)
        with wrap(bare, budget=SMALL, policy=Policy(server="first", breakpoints="keep")) as client:
            for steps in range(2, 25, 2):
                client.messages.create(**{**whole, "messages": whole["messages"][: 2 * steps + 1]})
            cuts = client.fitted.ledger.cuts
    assert api.refused == 1
    assert cuts
    assert not any(cut.reason.startswith("the provider") for cut in cuts)


@pytest.mark.parametrize("endpoint", ["messages", "beta"])
def test_a_talk_is_compacted_through_the_official_sdk(endpoint: str) -> None:
    with editing_api() as api:
        bare: Any = anthropic.Anthropic(base_url=api.url, api_key="none", max_retries=0)
        budget = Budget(window=6_000, reserve=500)
        with wrap(bare, budget=budget, policy=Policy(server="first", breakpoints="keep")) as client:
            create = client.beta.messages.create if endpoint == "beta" else client.messages.create
            for turns in (10, 20, 24):
                create(**talk(turns))
    assert api.compactions == 1
    assert api.requests[-1]["messages"][0]["content"][0]["type"] == "compaction"
    assert len(api.requests) == 3
