"""Bedrock's Converse through the gateway, asked by AWS's own client.

The client signs nothing: a signature is for one host and one body. The gateway has the key.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore import UNSIGNED
from botocore.config import Config

from lamina.relay.config import UpstreamSettings
from lamina.relay.routes import PASS, RouteMatch, match_route
from tests.dialects.bedrock_requests import TOOL, Json, answers, called, frame, refusals, says, user
from tests.gateway.running import group_policy, open_client, run_gateway, settings_for
from tests.gateway.test_conversations import post
from tests.gateway.upstream_stub import Fault, answer_with, run_stub

pytestmark = pytest.mark.anyio

MODEL = "us.anthropic.claude-sonnet-4-5-v1:0"
USAGE = {
    "inputTokens": 10,
    "outputTokens": 7,
    "totalTokens": 117,
    "cacheReadInputTokens": 80,
    "cacheWriteInputTokens": 20,
}
ANSWER = {
    "output": {"message": {"role": "assistant", "content": [{"text": "Yes."}]}},
    "stopReason": "end_turn",
    "usage": USAGE,
    "metrics": {"latencyMs": 5},
}
EVENTS: list[Json] = [
    {"messageStart": {"role": "assistant"}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "Yes."}}},
    {"contentBlockStop": {"contentBlockIndex": 0}},
    {"messageStop": {"stopReason": "end_turn"}},
    {"metadata": {"usage": USAGE, "metrics": {"latencyMs": 5}}},
]


WHOLE = answer_with(ANSWER)
STREAM = answer_with(b"".join(map(frame, EVENTS)), content_type="application/vnd.amazon.eventstream")


def growing(steps: int) -> list[Json]:
    messages: list[Json] = [user({"text": "Read all files."})]
    for step in range(steps):
        messages.append(says(called(f"t{step}")))
        messages.append(user(answers(f"t{step}", {"text": f"line {step}\n" * 400})))
    return messages


def ask(url: str, messages: list[Json], *, streams: bool = False) -> Json:
    """Ask with AWS's own client, and return what the caller reads, with the events of a stream."""
    client = botocore.session.get_session().create_client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=url,
        config=Config(signature_version=UNSIGNED, retries={"max_attempts": 1}),
    )
    arguments: Json = {"modelId": MODEL, "messages": messages, "toolConfig": {"tools": [TOOL]}}
    if not streams:
        return dict(client.converse(**arguments))
    answer = client.converse_stream(**arguments)
    return {"events": list(answer["stream"])}


def run(fault_: Fault, steps: list[int], *, streams: bool, store: Any = "") -> Any:
    """What the client read, what the upstream saw, and the log, for requests that grow."""

    async def main() -> Any:
        async with run_stub() as stub:
            policy = group_policy({"breakpoints": "keep", "budget": 6_000})
            upstream = UpstreamSettings(url=stub.url, profile="bedrock", key_env="BEDROCK_KEY", **policy)
            settings = settings_for(stub, store, upstreams={"bedrock": upstream})
            async with run_gateway(settings, {"BEDROCK_KEY": "a-key"}) as gateway:
                read: list[Json] = []
                for count in steps:
                    stub.play(fault_)
                    read.append(await asyncio.to_thread(ask, gateway.url, growing(count), streams=streams))
                return read, stub.seen, gateway.events("answered")

    return asyncio.run(main())


def test_a_request_that_fits_passes_byte_for_byte() -> None:
    read, seen, answered = run(WHOLE, [1], streams=False)
    assert read[0]["output"] == ANSWER["output"]
    assert seen[0].path == f"/model/{MODEL.replace(':', '%3A')}/converse"
    assert seen[0].header_map["authorization"] == "Bearer a-key"
    assert seen[0].json == {"messages": growing(1), "toolConfig": {"tools": [TOOL]}}
    assert answered[0]["cached"] == 80


@pytest.mark.parametrize("streams", [False, True])
def test_a_conversation_that_grows_is_cut_and_stays_valid(tmp_path: Path, *, streams: bool) -> None:
    fault_ = STREAM if streams else WHOLE
    read, seen, answered = run(fault_, [2, 5, 9], streams=streams, store=tmp_path / "store")
    assert [event["cached"] for event in answered] == [80, 80, 80]
    assert len(seen[-1].body) < len(json.dumps(growing(9)))
    assert "modelId" not in seen[-1].json
    assert refusals({"modelId": MODEL, **seen[-1].json}) == ""
    if streams:
        assert read[-1]["events"] == EVENTS
    tools = [tool["toolSpec"]["name"] for tool in seen[-1].json["toolConfig"]["tools"]]
    assert tools == ["read_file", "recall"]


async def test_an_error_of_the_gateway_reads_like_one_of_the_service() -> None:
    async with run_stub() as stub, open_client() as client:
        upstream = UpstreamSettings(url=stub.url, profile="bedrock")
        async with run_gateway(settings_for(stub, upstreams={"bedrock": upstream})) as gateway:
            path = f"/model/{MODEL}/converse"
            status, body = await post(client, gateway.url, {"messages": [5]}, path)
            assert status == 400
            assert json.loads(body)["__type"] == "ValidationException"


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/model/m/converse", RouteMatch("generate", "bedrock_converse", "m")),
        ("/v1/model/m/converse-stream", RouteMatch("generate", "bedrock_converse", "m", streams=True)),
        (
            "/model/arn:aws:bedrock:us-east-1:1:inference-profile/us.m/converse",
            RouteMatch("generate", "bedrock_converse", "arn:aws:bedrock:us-east-1:1:inference-profile/us.m"),
        ),
        ("/model/m/invoke", PASS),
        ("/model//converse", PASS),
    ],
)
def test_paths_of_converse(path: str, route: RouteMatch) -> None:
    assert match_route("POST", path) == route
