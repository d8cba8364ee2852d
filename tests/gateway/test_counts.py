"""Counts, usage, profiles, and the choice of an upstream."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from lamina import Budget
from lamina.core import Counter
from lamina.fitting import Policy
from lamina.gateway import GatewayAccount, GatewaySettings
from lamina.relay.config import UpstreamSettings
from lamina.relay.usage import UsageReader
from tests.cli.running import run
from tests.gateway.client_shapes import SHAPES
from tests.gateway.growing import chat_request, messages_request
from tests.gateway.running import open_client, proxied, run_gateway, settings_for, until
from tests.gateway.test_conversations import post
from tests.gateway.upstream_stub import Fault, SeenRequest, answer_of, answer_with, run_stub

pytestmark = pytest.mark.anyio

COUNT = "/v1/messages/count_tokens"


async def test_counts_are_answered_here_only_where_the_counter_is_exact() -> None:
    async with run_stub() as stub, open_client() as client:
        async with run_gateway(settings_for(stub)) as gateway:
            request = messages_request(1, model="a-model-of-nobody")
            status, body = await post(client, gateway.url, request, COUNT)
            assert (status, json.loads(body)) == (200, {"input_tokens": 1234})
            assert stub.seen[-1].json == request
        counter = Counter(name="letters", count=lambda text: len(text) // 4, exact=True)
        async with run_gateway(settings_for(stub, upstream={"counter": counter})) as gateway:
            before = len(stub.seen)
            sizes: list[int] = []
            for steps in (0, 1, 40):
                status, body = await post(client, gateway.url, messages_request(steps), COUNT)
                sizes.append(json.loads(body)["input_tokens"])
            path = "/v1beta/models/gemini-3-pro:countTokens"
            contents = {"contents": [{"role": "user", "parts": [{"text": "one two three"}]}]}
            status, body = await post(client, gateway.url, contents, path)
            assert 3 <= json.loads(body)["totalTokens"] <= 30
            assert len(stub.seen) == before
            assert 20 < sizes[0] < sizes[1] < sizes[2]
            assert sizes[2] > 20_000  # counted as it is, whatever the window


@pytest.mark.parametrize(
    ("path", "steps", "finds_one"),
    [(COUNT, 1, True), ("/v1/messages", 14, True), ("/v1/messages", 1, False)],
    ids=["count", "cut", "short"],
)
async def test_a_tokenizer_is_loaded_in_a_thread_and_only_if_something_is_counted(
    path: str, steps: int, monkeypatch: pytest.MonkeyPatch, *, finds_one: bool
) -> None:
    threads: list[threading.Thread] = []
    find_counter = Policy.find_counter

    def note_thread(policy: Policy, model: str) -> Counter:
        threads.append(threading.current_thread())
        return find_counter(policy, model)

    monkeypatch.setattr(Policy, "find_counter", note_thread)
    async with proxied(upstream={"budget": 8_000}) as (_, gateway, client):
        status, _ = await post(client, gateway.url, messages_request(steps), path)
        assert status == 200
    assert bool(threads) is finds_one
    assert threading.main_thread() not in threads[:1]  # after the first time it is there


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("size", [3, 1 << 20])
def test_the_usage_of_every_api_is_read(name: str, size: int) -> None:
    request = SHAPES[name](1, 1)
    headers = tuple(request.headers.items())
    content_type, body = answer_of(SeenRequest("POST", request.path, headers, request.body))
    reader = UsageReader(content_type, "")
    for start in range(0, len(body), size):
        reader.feed(body[start : start + size])
    usage = reader.finish()
    assert usage.cached == 1000
    assert usage.input >= 1029
    assert usage.output == 5


async def test_nothing_is_counted_on_the_event_loop(tmp_path: Path) -> None:
    """After a restart the texts that cuts have left out are known by no count, and a fork has all of them."""
    counting_threads: set[int] = set()

    def count(text: str) -> int:
        counting_threads.add(threading.get_ident())
        return len(text) // 3

    counter = Counter(name="thirds", count=count)
    async with run_stub() as stub, open_client() as client:
        upstream = {"counter": counter, "budget": Budget(window=8_000, reserve=500)}
        settings = settings_for(stub, tmp_path / "gateway.db", upstream=upstream)
        for asked in (range(16), range(16, 18)):
            async with run_gateway(settings) as gateway:
                for steps in asked:
                    await post(client, gateway.url, messages_request(steps))
                fork = messages_request(asked.stop)
                fork["messages"].append({"role": "user", "content": "Summarise all of it."})
                await post(client, gateway.url, fork)
                fork["messages"][-1]["content"] += " In one more paragraph."
                await post(client, gateway.url, fork)
                answered = gateway.events("answered")
        assert answered[-1]["full"] > 2 * answered[-1]["input"]
    assert counting_threads
    assert threading.get_ident() not in counting_threads


def test_answers_that_cannot_be_read_say_nothing() -> None:
    for content_type, encoding, body in (
        ("application/json", "", b"<html>"),
        ("text/event-stream", "", b'data: {"usage": \n\ndata: {"usage": {"input_tokens": "x"}}\n\n'),
        ("text/event-stream", "gzip", b"no gzip"),
        ("text/event-stream", "exi", b'data: {"usage": {"input_tokens": 5}}\n\n'),
    ):
        reader = UsageReader(content_type, encoding)
        reader.feed(body)
        assert reader.finish().input == 0


def report_usage(cached: int) -> Fault:
    """An upstream that answers with 6,000 tokens, so many of them read from the cache."""
    usage = {"input_tokens": 6000 - cached, "cache_read_input_tokens": cached, "output_tokens": 1}
    return answer_with({"type": "message", "usage": usage})


async def test_a_miss_is_diagnosed_and_logged() -> None:
    """The third request has another system text, and the upstream reports that nothing was cached."""
    async with proxied() as (stub, gateway, client):
        stub.play(report_usage(0), report_usage(5900), report_usage(0))
        marker = {"type": "ephemeral"}
        for steps, text in ((8, "Be brief."), (9, "Be brief."), (10, "Be thorough.")):
            system = [{"type": "text", "text": text, "cache_control": marker}]
            request = messages_request(steps, system=system)
            request["messages"][-1]["content"][0]["cache_control"] = marker
            await post(client, gateway.url, request)
        assert await until(lambda: len(gateway.events("answered")) == 3)
        answered = [(line["predicted"], line["cached"]) for line in gateway.events("answered")]
        assert answered == [(0, 0), (6000, 5900), (6000, 0)]
        assert await until(lambda: bool(gateway.events("miss")))
        [miss] = gateway.events("miss")
        assert miss["cause"] == "system changed"
        async with client.get(f"{gateway.url}/metrics") as metrics:
            assert 'lamina_misses_total{cause="system changed",upstream="claude"} 1' in await metrics.text()


def test_a_system_text_that_the_client_changes_is_a_miss_and_not_a_cut(tmp_path: Path) -> None:
    """A program that writes the time into its system text loses the cache itself, with or without lamina."""
    store = tmp_path / "kept.db"
    misses: list[dict[str, Any]] = []

    async def main() -> None:
        account = GatewayAccount()
        async with proxied(store, keep="all", upstream={"breakpoints": "auto"}) as (stub, gateway, client):
            stub.play(*(report_usage(0) for _ in range(5)))
            for steps in range(8, 13):
                system = f"Be brief. It is 10:{steps:02}:00."  # no marker: lamina places its own
                await post(client, gateway.url, messages_request(steps, system=system))
                assert await until(lambda least=steps - 8: len(gateway.events("miss")) >= least)  # type: ignore[misc]
            assert gateway.events("cut") == []
            misses.extend(gateway.events("miss"))
            assert {(miss["cause"], miss["by"]) for miss in misses} == {("volatile text", "client")}
            for event in gateway.events("answered"):
                account.read_event(event)
        cuts, _, without = account.write_lines()[:3]
        assert "0 cuts" in cuts
        assert without.endswith("the same: nothing was cut")

    asyncio.run(main())
    listed = json.loads(run("log", "--store", store, "--json").out)["conversations"]
    assert [(talk["requests"], talk["cuts"]) for talk in listed] == [(5, 0)]
    shown = run("log", listed[0]["name"], "--store", store).out
    assert shown.count("system text cha") == 4
    assert "cut 1" not in shown
    sums = json.loads(run("cost", "--store", store, "--json", "-").out)["sums"]
    paid_again = pytest.approx(sum(miss["price"] for miss in misses))
    assert (sums["losses"], sums["lost_dollars"]) == (len(misses), paid_again)
    page = run("inspect", "--store", store, "--html", "-").out
    assert "text that differs at every call stands in the prefix" in page
    assert "lamina made a cut: system text changed" not in page


def test_each_profile_leaves_out_its_list_and_nothing_else() -> None:
    request = SHAPES["claude_code"](7, 1)
    original = json.loads(request.body)
    original["system"][1]["cache_control"] = {"type": "ephemeral", "ttl": "1h"}
    body = json.dumps(original).encode()

    async def send_to(profile: str) -> SeenRequest:
        async with run_stub() as stub, open_client() as client:
            upstream = UpstreamSettings(url=stub.url, profile=profile, policy=Policy(budget=200_000))  # type: ignore[arg-type]
            upstreams = {"one": upstream}
            settings = GatewaySettings(port=0, policy=Policy(keep="nothing"), upstreams=upstreams)
            async with (
                run_gateway(settings) as gateway,
                client.post(gateway.url + request.path, data=body, headers=request.headers) as answer,
            ):
                assert answer.status == 200
            return stub.seen[0]

    def expected(*, billing: bool, rest: bool) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(body)
        if billing:
            del fields["system"][0]
        if rest:
            del fields["system"][-1]["cache_control"]["ttl"]
            del fields["context_management"]
        return fields

    seen = asyncio.run(send_to("anthropic"))
    assert seen.body == body
    assert asyncio.run(send_to("openrouter")).json == expected(billing=True, rest=False)
    for profile in ("llama.cpp", "vllm", "bedrock", "ollama"):
        seen = asyncio.run(send_to(profile))
        assert seen.json == expected(billing=True, rest=True)
        assert "anthropic-beta" not in seen.header_map


async def test_upstreams_are_chosen_by_prefix_then_by_model_then_by_api() -> None:
    async with run_stub() as first, run_stub() as second, run_stub() as third, open_client() as client:
        upstreams = {
            "local": UpstreamSettings(
                url=f"{first.url}/base",
                profile="llama.cpp",
                models=("qwen*", "tiny"),
                policy=Policy(budget=32_000),
            ),
            "openai": UpstreamSettings(url=second.url, profile="openai"),
            "claude": UpstreamSettings(url=third.url, profile="anthropic", prefix="/claude"),
        }
        settings = GatewaySettings(port=0, policy=Policy(keep="nothing"), upstreams=upstreams)
        async with run_gateway(settings) as gateway:
            for model in ("qwen3-coder", "gpt-5"):
                await post(client, gateway.url, chat_request(0, model=model), "/v1/chat/completions")
            await post(client, gateway.url, messages_request(0), "/claude/v1/messages?beta=true")
            async with client.get(f"{gateway.url}/claude") as answer:
                assert answer.status == 200
            status, body = await post(client, gateway.url, {"model": "m", "messages": []}, "/api/chat")
            assert status == 404
            assert "no upstream" in json.loads(body)["error"]
        assert [seen.path for seen in first.seen] == ["/base/v1/chat/completions"]
        assert [seen.path for seen in second.seen] == ["/v1/chat/completions"]
        assert [seen.path for seen in third.seen] == ["/v1/messages?beta=true", "/"]


async def test_markers_are_planned_only_where_the_settings_ask_for_it() -> None:
    async with run_stub() as stub, open_client() as client:
        request = messages_request(6, system="You are thorough. " * 400)
        for breakpoints in ("keep", "plan"):
            async with run_gateway(settings_for(stub, upstream={"breakpoints": breakpoints})) as gateway:
                await post(client, gateway.url, request)
        unmarked, marked = (seen.body.count(b"cache_control") for seen in stub.seen)
        assert unmarked == 0
        assert 1 <= marked <= 4


async def test_claude_codes_large_reserve_does_not_eat_the_window() -> None:
    """128,000 tokens of output in a window of 200,000: half of it is the request's, and 60,000 bytes pass."""
    async with proxied() as (stub, gateway, client):
        request = messages_request(25, max_tokens=128_000)
        status, _ = await post(client, gateway.url, request)
        assert status == 200
        assert stub.seen[0].json == request
