"""The twin run through a real gateway: what it finds, what it sends, and what it may spend."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from functools import wraps
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lamina.core.values import Budget
from lamina.errors import BadInput
from lamina.gateway.config import GatewaySettings, TwinTable, load_gateway_settings
from tests.cli.running import run as run_command
from tests.gateway.growing import HEADERS, chat_request, dump, messages_request
from tests.gateway.running import RunningGateway, open_client, run_gateway, settings_for
from tests.gateway.test_faults import until
from tests.gateway.upstream_stub import SeenRequest, Stub, events, response, serve_stub

WORD = "the code word is quartz"
STEPS = 14
SLIPS = 0.03
TASK = re.compile(r"Task \d+\.")


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own."""

    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))  # type: ignore[arg-type]

    return run


class Chooser(Stub):
    """A model that calls `write`. What it writes depends on what it sees, or on chance once in a while.

    `forgets`: the share of tasks in which it needs what was read at the beginning, so that a policy that
    hides that makes it choose otherwise.
    """

    def __init__(self, *, forgets: float = 0.0) -> None:
        super().__init__()
        self.forgets = forgets

    async def _answer(self, request: SeenRequest, writer: asyncio.StreamWriter) -> None:
        fields = request.json
        text = request.body.decode()
        path = "last"
        task = TASK.search(text)
        if task is not None and happens(self.forgets, task[0].encode()):
            path = "quartz" if "quartz" in text else "nobody knows"
        elif happens(SLIPS, request.body):
            path = "slip"
        arguments = json.dumps({"path": path})
        if request.path.endswith("/messages"):
            content_type, body = _write_message(arguments, len(text) // 4, streams=bool(fields.get("stream")))
        else:
            content_type, body = "application/json", _write_completion(arguments, len(text) // 4)
        writer.write(response(200, content_type, body, packed=self.packs))


def happens(share: float, seed: bytes) -> bool:
    """Whether chance has it so, in this share of cases; always the same with the same seed."""
    return int(sha256(seed).hexdigest()[:8], 16) < share * 2**32


def _write_completion(arguments: str, tokens: int) -> bytes:
    call = {"id": "c", "type": "function", "function": {"name": "write", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    usage = {"prompt_tokens": tokens, "completion_tokens": 20, "total_tokens": tokens + 20}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()


def _write_message(arguments: str, tokens: int, *, streams: bool) -> tuple[str, bytes]:
    usage = {"input_tokens": tokens, "output_tokens": 20}
    message: dict[str, Any] = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "usage": usage,
    }
    block: dict[str, Any] = {"type": "tool_use", "id": "t", "name": "write"}
    if not streams:
        whole = message | {"content": [block | {"input": json.loads(arguments)}], "stop_reason": "tool_use"}
        return "application/json", json.dumps(whole).encode()
    delta = {"type": "input_json_delta", "partial_json": arguments}
    return "text/event-stream", events(
        {"type": "message_start", "message": message | {"content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": block | {"input": {}}},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 20}},
        {"type": "message_stop"},
        named=True,
    )


def twin_settings(stub: Stub, store: Path | str = "", *, recall: str = "off", **twin: Any) -> GatewaySettings:
    table = TwinTable(**({"share": 1.0, "spend": 1_000.0} | twin))
    return settings_for(
        stub, store, twin=table, upstream={"budget": Budget(window=2_500, reserve=300), "recall": recall}
    )


def long_request(task: int, *, messages: bool = False, **fields: Any) -> bytes:
    """A request that does not fit. What the model needs stands in its first result."""
    make: Any = messages_request if messages else chat_request
    request = make(STEPS, task=f"Task {task}.", size=600)
    if messages:
        request["messages"][2]["content"][0]["content"] = WORD
    else:
        request["messages"][3]["content"] = WORD
    return dump(request | fields)


async def ask(gateway: RunningGateway, body: bytes, path: str = "/v1/chat/completions") -> None:
    async with open_client() as client, client.post(gateway.url + path, data=body, headers=HEADERS) as answer:
        assert answer.status == 200, await answer.read()
        await answer.read()


async def wait_for_pairs(gateway: RunningGateway, count: int) -> list[dict[str, Any]]:
    for _ in range(1_000):
        lines = gateway.events("twin")
        if len(lines) >= count:
            return lines
        await asyncio.sleep(0.005)
    raise AssertionError(f"{len(gateway.events('twin'))} of {count} second calls were compared")


async def ask_until_decided(gateway: RunningGateway, most: int, *, first: int = 0) -> dict[str, Any]:
    """Send calls one after the other, as an agent does, until the test has decided or `most` are sent."""
    for number in range(most):
        await ask(gateway, long_request(first + number))
        lines = await wait_for_pairs(gateway, number + 1)
        if "not decided" not in lines[-1]["decision"]:
            break
    return gateway.events("twin")[-1]


@in_loop
async def test_a_policy_that_hides_what_is_needed_is_found_within_200_calls() -> None:
    async with serve_stub(Chooser(forgets=1.0)) as stub, run_gateway(twin_settings(stub)) as gateway:
        found = await ask_until_decided(gateway, 200)
        calls = found["compared"]
        assert found["decision"] == "below the bar"
        assert calls < 200
        sent = len(stub.seen)
        await ask(gateway, long_request(1_000))  # the question is answered: nothing is sent twice any more
        await asyncio.sleep(0.05)
        assert len(stub.seen) == sent + 1


@in_loop
async def test_a_good_policy_is_not_accused_although_the_model_slips() -> None:
    async with serve_stub(Chooser()) as stub, run_gateway(twin_settings(stub)) as gateway:
        found = await ask_until_decided(gateway, 40)
        assert found["decision"] != "below the bar"
        assert found["compared"] == 40
        assert found["same"] < 40  # it did slip


@in_loop
async def test_the_second_call_is_the_clients_own_request_and_its_answer_reaches_nobody() -> None:
    async with serve_stub(Chooser(forgets=1.0)) as stub, run_gateway(twin_settings(stub)) as gateway:
        body = long_request(1)
        async with open_client() as client:
            headers = HEADERS | {"authorization": "Bearer k"}
            async with client.post(
                f"{gateway.url}/v1/chat/completions", data=body, headers=headers
            ) as answer:
                assert b"nobody knows" in await answer.read()
        (line,) = await wait_for_pairs(gateway, 1)
        fitted, own = stub.seen
        assert own.body == body
        assert len(fitted.body) < len(body)
        assert own.header_map["authorization"] == "Bearer k"
        assert own.path == fitted.path
        assert line["verdict"] == "other arguments"
        assert "quartz" not in gateway.log.getvalue()


@pytest.mark.parametrize("recall", ["off", "auto"])
@pytest.mark.parametrize("packs", ["", "gzip"])
@pytest.mark.parametrize("streams", [False, True])
@in_loop
async def test_streams_packed_answers_and_answers_that_may_recall_are_compared_too(
    packs: str, recall: str, *, streams: bool
) -> None:
    async with serve_stub(Chooser()) as stub, run_gateway(twin_settings(stub, recall=recall)) as gateway:
        stub.packs = packs
        await ask(gateway, long_request(1, messages=True, stream=streams), "/v1/messages")
        (line,) = await wait_for_pairs(gateway, 1)
        assert line["compared"] == 1
        assert line["upstream"] == "claude"


@in_loop
async def test_no_more_is_spent_than_the_limit_and_the_tally_outlives_the_gateway(tmp_path: Path) -> None:
    async with serve_stub(Chooser()) as stub:
        settings = twin_settings(stub, tmp_path / "chats.db", spend=0.02, alpha=1e-9)
        async with run_gateway(settings) as gateway:
            await ask(gateway, long_request(0, messages=True), "/v1/messages")
            (line,) = await wait_for_pairs(gateway, 1)
            first = line["spent"]
            assert 0 < first < 0.02
        async with run_gateway(settings) as gateway:
            for number in range(1, 30):
                before = len(stub.seen)
                await ask(gateway, long_request(number, messages=True), "/v1/messages")
                await asyncio.sleep(0.02)
                if len(stub.seen) == before + 1:
                    break
            last = gateway.events("twin")[-1]
            assert last["compared"] > 2
            assert first < last["spent"] <= 0.02
            scraped = await _scrape(gateway)
            assert 'lamina_twin_calls_total{upstream="claude",verdict="same"}' in scraped
            assert 'lamina_twin_dollars_total{upstream="claude"}' in scraped


async def _scrape(gateway: RunningGateway) -> str:
    async with open_client() as client, client.get(f"{gateway.url}/metrics") as answer:
        return (await answer.read()).decode()


@in_loop
async def test_a_refused_second_call_is_counted_as_failed_and_harms_nobody() -> None:
    async with serve_stub(Chooser()) as stub, run_gateway(twin_settings(stub)) as gateway:

        async def refuse(request: SeenRequest, writer: asyncio.StreamWriter) -> None:
            del request
            writer.write(response(400, "application/json", b'{"error":{"message":"too long"}}'))

        async def answer(request: SeenRequest, writer: asyncio.StreamWriter) -> None:
            await stub._answer(request, writer)  # noqa: SLF001 - the usual one, before the fault

        stub.play(answer, refuse)
        await ask(gateway, long_request(1))
        (line,) = await wait_for_pairs(gateway, 1)
        assert (line["verdict"], line["compared"], line["failed"], line["spent"]) == ("failed", 0, 1, 0)


@in_loop
async def test_only_calls_with_tools_that_lamina_changed_are_sent_twice_and_none_by_default() -> None:
    async with serve_stub(Chooser()) as stub:
        async with run_gateway(twin_settings(stub)) as gateway:
            await ask(gateway, dump(chat_request(1)))
            request = json.loads(long_request(2))
            del request["tools"]
            await ask(gateway, dump(request))
            await asyncio.sleep(0.05)
            assert len(stub.seen) == 2
        settings = msgspec.structs.replace(twin_settings(stub), twin=TwinTable())
        async with run_gateway(settings) as gateway:
            await ask(gateway, long_request(3))
            await asyncio.sleep(0.05)
            assert len(stub.seen) == 3


@in_loop
async def test_a_gateway_that_stops_does_not_wait_for_second_calls() -> None:
    release = asyncio.Event()
    async with serve_stub(Chooser()) as stub:
        async with run_gateway(twin_settings(stub)) as gateway:

            async def answer(request: SeenRequest, writer: asyncio.StreamWriter) -> None:
                await stub._answer(request, writer)  # noqa: SLF001 - the usual one, before the fault

            async def hang(request: SeenRequest, writer: asyncio.StreamWriter) -> None:
                del request, writer
                await release.wait()

            stub.play(answer, hang)
            await ask(gateway, long_request(1))
            await until(lambda: len(stub.seen) == 2)
        assert not release.is_set()  # the gateway has ended, and the second call had not
        release.set()


def test_wrong_settings_are_refused_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text("[twin]\nshare = 2\n")
    with pytest.raises(BadInput, match=r"gateway\.toml:2"):
        load_gateway_settings(path, {})
    path.write_text("[twin]\nshare = 0.05\nspend = 5.0\n")
    assert load_gateway_settings(path, {}).twin == TwinTable(share=0.05, spend=5.0)


def test_tail_and_doctor_say_what_the_run_has_found(tmp_path: Path) -> None:
    journal = tmp_path / "lines.jsonl"
    report = "same call in 40.0 ± 30.0 % of 20 calls (below the bar of 90 %); $0.10 of $5.00 spent"
    line = {"at": 1.0, "event": "twin", "upstream": "claude", "verdict": "other tool", "report": report}
    journal.write_text(json.dumps(line | {"decision": "below the bar"}) + "\n")
    assert f"twin at claude: other tool; {report}" in run_command("tail", journal, "--once").out
    settings = tmp_path / "gateway.toml"
    settings.write_text(
        f'journal = "{journal}"\n[twin]\nshare = 0.05\n'
        '[upstreams.claude]\nurl = "http://127.0.0.1:9"\nprofile = "anthropic"\n'
        '[upstreams.other]\nurl = "http://127.0.0.1:9"\nprofile = "openai"\n'
    )
    printed = run_command("doctor", "--settings", settings, "--store", tmp_path / "g.db").out
    assert f"remark  twin at claude: {report}" in printed
    assert "then set another twin.salt" in printed
    assert "ok      twin at other: no call was compared yet; 5 % of those that lamina changes are" in printed
