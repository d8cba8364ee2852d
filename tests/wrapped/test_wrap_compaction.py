"""A wrapped client that has the provider compact a history, where its server cannot clear one."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import openai
import pytest

from lamina import Budget, Policy
from lamina.dialects import DIALECTS
from lamina.wrapped import wrap
from tests.fitting.test_server_compaction import responses_request
from tests.servers.compaction import Refused, check_messages, compact_items, compact_messages
from tests.servers.json_server import serve_json

Json = dict[str, Any]

FIRST = Policy(server="first", breakpoints="keep")


class RefusedCall(Exception):
    """What an SDK raises for a status of 400."""

    status_code = 400


def ask(turn: int) -> Json:
    return {"role": "user", "content": f"Question {turn}: what about parcel {turn}?"}


def talk(turns: int) -> Json:
    """A talk without tools: the server has no results to clear."""
    messages: list[Json] = []
    for turn in range(turns):
        messages.append(ask(turn))
        messages.append({"role": "assistant", "content": f"Answer {turn}. " + "It went its way. " * 60})
    messages.append(ask(turns))
    return {"model": "claude-sonnet-5", "max_tokens": 300, "messages": messages}


class CompactingClient:
    """A client of Anthropic's shape. `compactions` are the calls for one, `bodies` all others."""

    def __init__(self, *, knows_compaction: bool = True) -> None:
        self.compactions: list[Json] = []
        self.bodies: list[Json] = []
        self._knows = knows_compaction
        self.messages = SimpleNamespace(create=self._create)

    def _create(
        self, *, extra_body: Json | None = None, extra_headers: Json | None = None, **request: Any
    ) -> Any:
        body = {**request, **(extra_body or {})}
        if "compaction" in body:
            self.compactions.append(body)
            if not self._knows:
                raise RefusedCall("compaction: Extra inputs are not permitted")
            return compact_messages(body, (extra_headers or {}).get("anthropic-beta", ""))
        check_messages(body)
        assert DIALECTS["anthropic"].wire.check(body) == []
        self.bodies.append(body)
        return {"id": "msg", "content": [{"type": "text", "text": "Yes."}], "usage": {"input_tokens": 50}}


def test_a_talk_is_compacted_once_and_goes_on_behind_the_block() -> None:
    client = CompactingClient()
    wrapped = wrap(client, budget=Budget(window=6_000, reserve=500), policy=FIRST)
    for turns in range(2, 40, 2):
        wrapped.messages.create(**talk(turns))
    assert 1 <= len(client.compactions) < 8
    first = client.bodies[-1]["messages"][0]["content"]
    assert first[0]["type"] == "compaction"
    assert client.bodies[-1]["messages"][-1] == ask(38)
    starts = [body["messages"][0] for body in client.bodies]
    changes = sum(1 for one, other in pairwise(starts) if one != other)
    assert changes == len(client.compactions)


def test_an_api_that_refuses_is_asked_once_and_lamina_cuts() -> None:
    client: Any = CompactingClient(knows_compaction=False)
    wrapped = wrap(client, budget=Budget(window=6_000, reserve=500), policy=FIRST)
    for turns in range(2, 40, 2):
        wrapped.messages.create(**talk(turns))
    assert len(client.compactions) == 1
    assert len(client.bodies) == 19
    assert wrapped.fitted.ledger.folds


@pytest.mark.parametrize("server", ["never", "thinking", "when cheaper"])
def test_nothing_is_compacted_unless_the_policy_says_first(server: Any) -> None:
    client = CompactingClient()
    policy = Policy(server=server, breakpoints="keep")
    wrapped = wrap(client, budget=Budget(window=6_000, reserve=500), policy=policy)
    for turns in range(2, 40, 6):
        wrapped.messages.create(**talk(turns))
    assert client.compactions == []


def test_a_message_that_the_user_took_back_is_in_no_later_request() -> None:
    client = CompactingClient()
    wrapped = wrap(client, budget=Budget(window=6_000, reserve=500), policy=FIRST)
    wrapped.messages.create(**talk(30))
    assert client.compactions
    edited = talk(31)
    del edited["messages"][4:6]
    wrapped.messages.create(**edited)
    blocks = [body["messages"][0]["content"] for body in client.bodies]
    assert blocks[0] != blocks[1]


class CompactingResponses:
    """The endpoint of the Responses API, with the one that compacts beside it."""

    def __init__(self) -> None:
        self.compactions: list[Json] = []
        self.bodies: list[Json] = []

    def create(self, **request: Any) -> Any:
        assert DIALECTS["openai_responses"].wire.check(request) == []
        self.bodies.append(request)
        return {"id": "resp_1", "object": "response", "output": [], "usage": {"input_tokens": 90}}

    def compact(self, **request: Any) -> Any:
        self.compactions.append(request)
        try:
            return compact_items(request)
        except Refused as refusal:
            raise RefusedCall(str(refusal)) from None


def test_the_responses_api_compacts_at_its_own_endpoint() -> None:
    responses = CompactingResponses()
    client = SimpleNamespace(responses=responses)
    wrapped = wrap(client, budget=Budget(window=4_000, reserve=500), policy=FIRST)
    for steps in range(4, 60, 4):
        request = {**responses_request(steps), "stream": False}
        wrapped.responses.create(**request)
    assert responses.compactions
    assert any(item.get("type") == "compaction" for item in responses.bodies[-1]["input"])


def test_the_official_sdk_of_openai_compacts() -> None:
    responses = CompactingResponses()

    def answer(path: str, request: Json, _: Any) -> tuple[int, Any]:
        if path.endswith("/compact"):
            return 200, responses.compact(**request)
        return 200, responses.create(**request)

    with serve_json(answer) as url:
        bare = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        with wrap(bare, budget=Budget(window=4_000, reserve=500), policy=FIRST) as client:
            for steps in (8, 20, 24):
                client.responses.create(**{**responses_request(steps), "stream": False})
    assert len(responses.compactions) == 1
    assert any(item.get("type") == "compaction" for item in responses.bodies[-1]["input"])
