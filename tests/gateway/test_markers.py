"""Cache markers on their way through a gateway: a client's own stay, and a request without any gets some."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lamina.conversations.store import WORKSPACE, list_conversations
from lamina.core.tokens import Counter
from lamina.fitting.markers import Breakpoints
from lamina.fitting.policy import Policy
from lamina.gateway.config import UpstreamSettings
from lamina.stores.address import open_store
from tests.gateway.growing import HEADERS, dump, messages_request
from tests.gateway.running import open_client, run_gateway, settings_for
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

    monkeypatch.setattr("lamina.gateway.saving.SAVE_PAUSE", 3_600.0)
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
