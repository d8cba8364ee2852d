"""Cache markers on their way through a gateway: a client's own stay, and a request without any gets some."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lamina.conversations.store import WORKSPACE, list_conversations
from lamina.core import Counter, Cut
from lamina.dialects import DIALECTS, Usage
from lamina.fitting import Breakpoints, Policy
from lamina.relay.calls import IncomingRequest, OutgoingRequest, call_upstream
from lamina.relay.config import UpstreamSettings
from lamina.relay.identity import ClientIdentity
from lamina.relay.policies import plans_markers
from lamina.relay.request_bodies import decode_body
from lamina.relay.turn_memory import TurnMemory
from lamina.relay.upstreams import Upstream
from lamina.stores import open_store
from tests.gateway.growing import HEADERS, chat_request, dump, messages_request
from tests.gateway.running import make_conversation, open_client, run_gateway, settings_for, until
from tests.gateway.upstream_stub import run_stub

pytestmark = pytest.mark.anyio

MARKER = {"type": "ephemeral"}


def send(
    request: dict[str, Any], *, breakpoints: Breakpoints = "auto", profile: str = "anthropic"
) -> tuple[bytes, Any]:
    """The body as the client sends it, and as the upstream sees it."""
    body = dump(request)

    async def main() -> Any:
        async with run_stub() as stub:
            settings = settings_for(stub)
            upstream: Any = {"url": stub.url, "profile": profile, "policy": Policy(breakpoints=breakpoints)}
            settings.upstreams.clear()
            settings.upstreams["only"] = UpstreamSettings(**upstream)
            async with run_gateway(settings) as gateway, open_client() as client:
                url = f"{gateway.url}/v1/messages"
                async with client.post(url, data=body, headers=HEADERS) as answer:
                    assert answer.status == 200, await answer.text()
            return stub.seen[-1]  # a local server was asked for its window before

    return body, asyncio.run(main())


def test_a_request_without_markers_gets_lamina_s() -> None:
    _, seen = send(messages_request(6))
    assert 2 <= str(seen.json).count("cache_control") <= 4
    assert seen.json["messages"][-1]["content"][-1]["cache_control"] == MARKER


def test_a_field_of_that_name_in_the_arguments_of_a_call_is_no_marker() -> None:
    request = messages_request(6)
    request["messages"][1]["content"][1]["input"]["cache_control"] = "no-store"
    _, seen = send(request)
    assert seen.json["messages"][-1]["content"][-1]["cache_control"] == MARKER


@pytest.mark.parametrize("place", ["request", "system", "tool", "message", "result"])
def test_a_request_with_a_marker_of_its_own_passes_byte_for_byte(place: str) -> None:
    request = messages_request(6)
    result = request["messages"][-1]["content"][0]
    if place == "request":
        request["cache_control"] = MARKER
    elif place == "system":
        request["system"] = [{"type": "text", "text": "Be brief.", "cache_control": MARKER}]
    elif place == "tool":
        request["tools"][0]["cache_control"] = MARKER
    elif place == "message":
        result["cache_control"] = MARKER
    else:
        result["content"] = [{"type": "text", "text": result["content"], "cache_control": MARKER}]
    body, seen = send(request)
    assert seen.body == body


@pytest.mark.parametrize(
    ("breakpoints", "profile", "steps"),
    [("keep", "anthropic", 6), ("auto", "vllm", 6), ("auto", "anthropic", 0)],
    ids=["asked not to", "a server that reads no markers", "too short to be cached"],
)
def test_nothing_is_marked(breakpoints: Breakpoints, profile: str, steps: int) -> None:
    body, seen = send(messages_request(steps), breakpoints=breakpoints, profile=profile)
    assert seen.body == body


async def test_a_request_that_is_only_marked_is_not_counted_and_leaves_before_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    monkeypatch.setattr("lamina.relay.saving.SAVE_PAUSE", 3_600.0)
    request = messages_request(4, size=20_000)
    bodies = [dump(request | {"messages": request["messages"][:length]}) for length in (3, 5, 7, 9)]
    async with run_stub() as stub:
        settings = settings_for(stub, tmp_path / "store.db")
        policy = Policy(counter=Counter(name="slow", count=count))
        settings.upstreams["claude"] = UpstreamSettings(url=stub.url, profile="anthropic", policy=policy)
        async with run_gateway(settings) as gateway, open_client() as client:
            for body in bodies:
                url = f"{gateway.url}/v1/messages"
                async with client.post(url, data=body, headers=HEADERS) as answer:
                    assert answer.status == 200, await answer.text()
            async with open_store(settings.store) as store:
                assert [name async for name in list_conversations(store, WORKSPACE)] == []
        seen = stub.seen
    assert not counted
    assert all(each.json["messages"][-1]["content"][-1]["cache_control"] == MARKER for each in seen)


Json = dict[str, Any]


def make_incoming(
    request: Json, dialect: str = "anthropic", profile: Any = "anthropic", **policy: Any
) -> IncomingRequest:
    body = decode_body(json.dumps(request).encode(), TurnMemory())
    settings = UpstreamSettings(url="http://127.0.0.1:9", profile=profile, policy=Policy(**policy))
    return IncomingRequest(
        workspace="default",
        identity=ClientIdentity(),
        dialect=DIALECTS[dialect],
        upstream=Upstream("up", settings),
        body=body,
        request=body.request,
        model=body.model,
    )


def test_a_read_is_predicted_from_the_last_report_unless_something_was_cut() -> None:
    previous: Json = {"model": "m"}
    sent = OutgoingRequest(previous=previous, previous_usage=Usage(input=70))
    assert sent.predicted_read == 70
    assert OutgoingRequest(previous=None, previous_usage=Usage(input=70)).predicted_read == 0
    cut = Cut(number=1, reason="over the trigger", lowered=2)
    assert msgspec.structs.replace(sent, new_cuts=(cut,)).predicted_read == 0


def test_before_the_first_report_nothing_is_predicted() -> None:
    call = call_upstream(make_incoming(messages_request(1)), salted=False)
    conversation = make_conversation()
    conversation.note_answered(call.request, sent_at=0.0, cuts=0)
    outgoing = call.passed(conversation, call.request, 2)
    assert outgoing.previous is call.request
    assert outgoing.predicted_read == 0
    assert outgoing.conversation_name == "name"
    assert call.unchanged().conversation_name == ""


def pad_request(size: int) -> Json:
    """A request of exactly so many bytes."""
    request: Json = {"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": ""}]}
    request["messages"][0]["content"] = "x" * (size - len(json.dumps(request)))
    return request


@pytest.mark.parametrize(("size", "plans"), [(1_023, False), (1_024, True)])
def test_a_request_gets_markers_as_soon_as_its_bytes_could_be_enough_tokens(
    size: int, *, plans: bool
) -> None:
    incoming = make_incoming(pad_request(size), breakpoints="auto")
    assert len(incoming.body.text) == size
    assert plans_markers(incoming) is plans


@pytest.mark.parametrize(
    ("dialect", "profile", "request_body"),
    [
        ("openai_chat", "openrouter", chat_request(3, model="gpt-5.6")),  # it keeps the end of each turn
        ("openai_chat", "openai", chat_request(3, model="gpt-5")),
        ("anthropic", "anthropic", messages_request(3, model="deepseek-chat")),
        ("anthropic", "vllm", messages_request(3)),  # it reads no markers
    ],
)
def test_a_cache_that_keeps_everything_gets_no_markers(
    dialect: str, profile: str, request_body: Json
) -> None:
    assert not plans_markers(make_incoming(request_body, dialect, profile, breakpoints="auto"))


@pytest.mark.parametrize(
    ("fields", "breakpoints", "unmarked"),
    [
        ({}, "auto", True),
        ({}, "plan", True),
        ({}, "keep", False),  # what the cache gave is what it gives without lamina
        ({"cache_control": MARKER}, "auto", False),
        ({"system": [{"type": "text", "text": "Be brief.", "cache_control": MARKER}]}, "auto", False),
        ({"system": [{"type": "text", "text": "Be brief.", "cache_control": MARKER}]}, "plan", False),
    ],
)
async def test_the_log_says_whether_all_markers_are_lamina_s(
    fields: dict[str, Any], breakpoints: Breakpoints, *, unmarked: bool
) -> None:
    """Without lamina such a client pays for every token."""
    async with run_stub() as stub:
        settings = settings_for(stub, upstream={"breakpoints": breakpoints})
        async with run_gateway(settings) as gateway, open_client() as client:
            url = f"{gateway.url}/v1/messages"
            async with client.post(url, data=dump(messages_request(6) | fields), headers=HEADERS) as answer:
                assert answer.status == 200, await answer.text()
                await answer.read()
            assert await until(lambda: bool(gateway.events("answered")))
            [line] = gateway.events("answered")
    assert line["unmarked"] is unmarked
