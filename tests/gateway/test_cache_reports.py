"""A provider that says why its cache missed, through the gateway: asked, read, beside lamina's own cause."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from lamina.conversations.store import list_conversations, read_record
from lamina.gateway.account import GatewayAccount
from lamina.stores.address import open_store
from tests.cli.running import run
from tests.gateway.growing import messages_request
from tests.gateway.running import RunningGateway, open_client, run_gateway, settings_for
from tests.gateway.test_conversations import post
from tests.gateway.upstream_stub import SeenRequest, Stub, answer_of, events, response, serve_stub
from tests.servers.cache_comparing import ComparingProvider

Json = dict[str, Any]

ASKS: Json = {"upstream": {"diagnostics": True, "breakpoints": "auto"}}


class ReportingStub(Stub):
    """An upstream that compares requests. `knows_field`: it takes the fields that ask for that."""

    def __init__(self, *, knows_field: bool = True) -> None:
        super().__init__()
        self.provider = ComparingProvider()
        self.knows_field = knows_field
        self.word = ""

    async def _answer(self, request: SeenRequest, writer: asyncio.StreamWriter) -> None:
        body = request.json
        if not self.knows_field and "diagnostics" in body:
            error = {
                "type": "invalid_request_error",
                "message": "diagnostics: Extra inputs are not permitted",
            }
            refusal = json.dumps({"type": "error", "error": error}).encode()
            writer.write(response(400, "application/json", refusal))
            return
        writer.write(response(200, *self._write_answer(request, body)))

    def _write_answer(self, request: SeenRequest, body: Json) -> tuple[str, bytes]:
        content_type, answer = answer_of(request)
        if request.path.endswith("/responses"):
            report: Any = self.provider.compare_responses(body)
            facts = {"id": self.provider.remember(body, prefix="resp"), "prompt_cache_diagnostics": report}
        else:
            report = self.provider.compare_messages(body)
            if self.word and report is not None:
                report = {"cache_miss_reason": {"type": self.word, "cache_missed_input_tokens": 77}}
            facts = {"id": self.provider.remember(body), "diagnostics": report}
        if content_type == "application/json":
            return content_type, json.dumps(json.loads(answer) | facts).encode()
        return content_type, _put_into_events(answer, facts)


def _put_into_events(answer: bytes, facts: Json) -> bytes:
    """The events of a stream, with these fields in the message or response that begins or ends it."""
    values: list[Any] = []
    for line in answer.decode().splitlines():
        if not line.startswith("data: "):
            continue
        value = json.loads(line.removeprefix("data: "))
        for name in ("message", "response"):
            if name in value:
                value[name] |= facts
        values.append(value)
    return events(*values, named=True)


async def converse(
    settings: Any, requests: list[Json], path: str = "/v1/messages", *, reports: int = 0
) -> RunningGateway:
    async with run_gateway(settings) as gateway, open_client() as client:
        for request in requests:
            status, _ = await post(client, gateway.url, request, path)
            assert status == 200
        for _ in range(100):
            if len(gateway.events("cache report")) >= reports:
                break
            await asyncio.sleep(0.02)
        return gateway


def grow(steps: int, **fields: Any) -> Json:
    return messages_request(steps, size=6_000, **fields)


@pytest.mark.parametrize("stream", [False, True])
def test_a_changed_tool_is_reported_by_both_and_recorded(tmp_path: Path, *, stream: bool) -> None:
    requests = [grow(2, stream=stream), grow(3, stream=stream), grow(4, stream=stream)]
    requests[2]["tools"] = [*requests[2]["tools"], {"name": "more", "input_schema": {"type": "object"}}]
    store = tmp_path / "gateway.db"

    async def run_all() -> tuple[ReportingStub, RunningGateway]:
        async with serve_stub(ReportingStub()) as stub:
            settings = settings_for(stub, store, keep="all", **ASKS)
            return stub, await converse(settings, requests, reports=2)

    stub, gateway = asyncio.run(run_all())
    asked = [seen.json["diagnostics"]["previous_message_id"] for seen in stub.seen]
    assert asked == [None, "msg_1", "msg_2"]
    reports = gateway.events("cache report")
    assert [(line["provider"], line["verdict"]) for line in reports] == [
        ("hit", "agrees"),
        ("tools_changed", "agrees"),
    ]
    assert reports[1]["cause"] == "tool added"
    assert reports[1]["missed"] > 1_000
    assert [answer.provider_cause for answer in read_answers(store)] == ["", "hit", "tools_changed"]
    account = GatewayAccount()
    for line in gateway.log.getvalue().splitlines():
        account.read_line(line.encode())
    assert account.write_lines()[-1] == (
        "causes of cache misses: 2 of 2 agree with the provider's own reason (100%)"
    )


def read_answers(store: Path) -> list[Any]:
    async def read() -> list[Any]:
        async with open_store(str(store)) as opened:
            names = [kept.name async for kept in list_conversations(opened, "default")]
            record = await read_record(opened, "default", names[0])
            return [call.answer for call in record.calls]

    return asyncio.run(read())


def test_nobody_is_asked_unless_the_policy_says_so(tmp_path: Path) -> None:
    async def run_all() -> ReportingStub:
        async with serve_stub(ReportingStub()) as stub:
            await converse(settings_for(stub, tmp_path / "gateway.db"), [grow(2)])
            return stub

    stub = asyncio.run(run_all())
    assert "diagnostics" not in stub.seen[0].json


def test_what_a_client_asks_itself_is_read_and_not_changed(tmp_path: Path) -> None:
    requests = [grow(2, diagnostics={"previous_message_id": None})]
    requests.append(grow(3, diagnostics={"previous_message_id": "msg_1"}, system="Be long."))

    async def run_all() -> tuple[ReportingStub, RunningGateway]:
        async with serve_stub(ReportingStub()) as stub:
            settings = settings_for(stub, tmp_path / "gateway.db")
            return stub, await converse(settings, requests)

    stub, gateway = asyncio.run(run_all())
    assert [seen.json for seen in stub.seen] == requests
    assert [line["provider_cause"] for line in gateway.events("answered")] == ["", "system_changed"]


def test_a_finding_names_both_requests_and_the_byte(tmp_path: Path) -> None:
    changed = grow(3)
    changed["messages"][3]["content"][0]["text"] = "Step one."

    async def run_all() -> RunningGateway:
        async with serve_stub(ReportingStub()) as stub:
            stub.word = "weather_changed"
            return await converse(
                settings_for(stub, tmp_path / "gateway.db", **ASKS), [grow(2), changed], reports=1
            )

    gateway = asyncio.run(run_all())
    (finding,) = gateway.events("cache report")
    assert finding["verdict"] == "differs"
    assert finding["provider"] == "weather_changed"
    assert (finding["place"], finding["byte"]) == ("messages[3].content[0]", 14)  # {"text":"Step 1."}
    sent = [line["id"] for line in gateway.events("sent")]
    assert [finding["previous"], finding["id"]] == sent
    journal = tmp_path / "gateway.log"
    journal.write_text(gateway.log.getvalue())
    printed = run("tail", journal, "--once")
    assert "the provider says weather_changed, lamina messages: differs" in printed.out
    assert "0 of 1 agree with the provider's own reason (0%), 1 differ" in printed.err
    store_journal = tmp_path / "gateway.db.requests.jsonl"
    store_journal.write_text(gateway.log.getvalue())
    settings = tmp_path / "gateway.toml"
    settings.write_text(f'store = "{tmp_path / "gateway.db"}"\n')
    checked = run("doctor", "--settings", settings, "--store", tmp_path / "gateway.db")
    assert "remark  cache reports: 0 of 1 agree" in checked.out


def test_an_upstream_that_refuses_the_question_is_not_asked_again(tmp_path: Path) -> None:
    async def run_all() -> tuple[ReportingStub, RunningGateway]:
        async with serve_stub(ReportingStub(knows_field=False)) as stub:
            settings = settings_for(stub, tmp_path / "gateway.db", **ASKS)
            return stub, await converse(settings, [grow(2), grow(3)])

    stub, gateway = asyncio.run(run_all())
    assert ["diagnostics" in seen.json for seen in stub.seen] == [True, False, False]
    assert len(gateway.events("diagnostics refused")) == 1


def test_the_responses_api_is_asked_where_its_models_can_say(tmp_path: Path) -> None:
    text = "What does the parser do? " * 600

    def ask(model: str, **changes: Any) -> Json:
        return {"model": model, "input": [{"role": "user", "content": text}]} | changes

    async def run_all(model: str) -> tuple[ReportingStub, RunningGateway]:
        async with serve_stub(ReportingStub()) as stub:
            settings = settings_for(stub, tmp_path / f"{model}.db", **ASKS)
            requests = [ask(model), ask(model, reasoning={"effort": "high"})]
            return stub, await converse(settings, requests, "/v1/responses", reports=model == "gpt-6-sol")

    stub, gateway = asyncio.run(run_all("gpt-6-sol"))
    asked = [seen.json.get("prompt_cache_options") for seen in stub.seen]
    assert asked == [None, {"comparison_response_id": "resp_1"}]
    (report,) = gateway.events("cache report")
    assert (report["provider"], report["verdict"]) == ("reasoning_effort_changed", "agrees")
    older, _ = asyncio.run(run_all("gpt-5"))
    assert not any("prompt_cache_options" in seen.json for seen in older.seen)
