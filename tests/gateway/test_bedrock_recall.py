"""Recalls that the gateway answers inside one answer of Bedrock's Converse, asked by AWS's own client."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from itertools import pairwise
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

import botocore.session
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.eventstream import EventStreamBuffer

from lamina import Budget
from lamina.conversations import recall_loop
from lamina.conversations.answer_bodies import splitter_for
from lamina.conversations.recall_answers import NOTICE
from lamina.conversations.stream_filters import filter_for
from lamina.dialects.bedrock_converse import DIALECT
from lamina.dialects.bedrock_converse.event_stream import CONTENT_TYPE, read_events, write_frame
from lamina.relay.config import UpstreamSettings
from tests.dialects.bedrock_requests import MODEL, TOOL, Json, answers, called, frame, refusals, says, user
from tests.gateway.running import RunningGateway, group_policy, settings_for
from tests.gateway.test_sdks import gateway_in_thread
from tests.servers.serving import serve_http

HANDLE = re.compile(r'recall[(=]\\*"([a-z0-9-]+)')
FACT = "The harbour opens at 05:41."
QUESTION = "When opens the harbour?"

Script = Callable[[Json], list[Json]]
"""What the model says to a request, as blocks."""


class Server(NamedTuple):
    url: str
    requests: list[Json]


@contextmanager
def converse_server(
    script: Script, failures: Mapping[type[Exception], tuple[int, Json]] = MappingProxyType({})
) -> Iterator[Server]:
    """A server that answers with what the script says, or with the status and error of what it raises."""
    requests: list[Json] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append(request)
            try:
                said = script(request)
            except tuple(failures) as error:
                status, body = failures[type(error)]
                self.answer(json.dumps(body).encode(), "application/json", status)
                return
            if self.path.endswith("-stream"):
                self.answer(b"".join(map(frame, write_events(said))), CONTENT_TYPE)
            else:
                self.answer(json.dumps(write_whole(said)).encode(), "application/json")

        def answer(self, body: bytes, media_type: str, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with serve_http(Handler) as url:
        yield Server(url, requests)


USAGE = {"inputTokens": 100, "outputTokens": 9, "totalTokens": 109}


def write_whole(said: list[Json]) -> Json:
    return {
        "output": {"message": {"role": "assistant", "content": said}},
        "stopReason": stop_reason(said),
        "usage": USAGE,
        "metrics": {"latencyMs": 5},
    }


def stop_reason(said: list[Json]) -> str:
    return "tool_use" if any("toolUse" in block for block in said) else "end_turn"


def write_events(said: list[Json]) -> list[Json]:
    events: list[Json] = [{"messageStart": {"role": "assistant"}}]
    for index, block in enumerate(said):
        at = {"contentBlockIndex": index}
        if "toolUse" in block:
            start = {key: value for key, value in block["toolUse"].items() if key != "input"}
            events.append({"contentBlockStart": {**at, "start": {"toolUse": start}}})
            tool_input = block["toolUse"]["input"]
            text = tool_input if isinstance(tool_input, str) else json.dumps(tool_input)
            deltas = [{"toolUse": {"input": piece}} for piece in (text[:4], text[4:])]
            events += [{"contentBlockDelta": {**at, "delta": delta}} for delta in deltas]
        elif "reasoningContent" in block:
            thought = block["reasoningContent"]["reasoningText"]
            for name in ("text", "signature"):
                delta = {"reasoningContent": {name: thought[name]}}
                events.append({"contentBlockDelta": {**at, "delta": delta}})
        else:
            events.append({"contentBlockDelta": {**at, "delta": {"text": block["text"]}}})
        events.append({"contentBlockStop": at})
    events.append({"messageStop": {"stopReason": stop_reason(said)}})
    events.append({"metadata": {"usage": USAGE, "metrics": {"latencyMs": 5}}})
    return events


class Reply(NamedTuple):
    content: list[Json]
    stop: str
    usage: Json

    @property
    def text(self) -> str:
        return "".join(block.get("text", "") for block in self.content)


def ask(gateway: RunningGateway, messages: list[Json], *, streams: bool) -> Reply:
    client = botocore.session.get_session().create_client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=gateway.url,
        config=Config(signature_version=UNSIGNED, retries={"max_attempts": 1}),
    )
    arguments: Json = {"modelId": MODEL, "messages": messages, "toolConfig": {"tools": [TOOL]}}
    if not streams:
        answer = client.converse(**arguments)
        return Reply(answer["output"]["message"]["content"], answer["stopReason"], answer["usage"])
    return join_events(list(client.converse_stream(**arguments)["stream"]))


def join_events(events: list[Json]) -> Reply:
    """The answer of a stream, as a client joins it. Its blocks are numbered without gaps."""
    blocks: dict[int, Json] = {}
    stop = ""
    usage: Json = {}
    for event in events:
        [(name, body)] = event.items()
        if name == "contentBlockStart":
            blocks[body["contentBlockIndex"]] = {"toolUse": {**body["start"]["toolUse"], "input": ""}}
        elif name == "contentBlockDelta":
            add_delta(blocks, body["contentBlockIndex"], body["delta"])
        elif name == "messageStop":
            stop = body["stopReason"]
        elif name == "metadata":
            usage = body["usage"]
    assert list(blocks) == list(range(len(blocks)))
    assert [next(iter(event)) for event in events].count("messageStart") == 1
    for block in blocks.values():
        if "toolUse" in block:
            block["toolUse"]["input"] = json.loads(block["toolUse"]["input"])
    return Reply(list(blocks.values()), stop, usage)


def add_delta(blocks: dict[int, Json], index: int, delta: Json) -> None:
    if "toolUse" in delta:
        blocks[index]["toolUse"]["input"] += delta["toolUse"]["input"]
    elif "reasoningContent" in delta:
        block = blocks.setdefault(index, {"reasoningContent": {"reasoningText": {}}})
        block["reasoningContent"]["reasoningText"] |= delta["reasoningContent"]
    else:
        block = blocks.setdefault(index, {"text": ""})
        block["text"] += delta["text"]


@contextmanager
def serve(script: Script, store: Path) -> Iterator[tuple[RunningGateway, Server]]:
    with converse_server(script) as server:
        policy = group_policy({"breakpoints": "keep", "budget": Budget(window=4_000, reserve=300)})
        upstream = UpstreamSettings(url=server.url, profile="bedrock", **policy)
        settings = settings_for(server.url, store, upstreams={"bedrock": upstream})
        with gateway_in_thread(settings) as gateway:
            yield gateway, server


def long_history() -> list[Json]:
    history: list[Json] = []
    for turn in range(9):
        answer = "Go on. " * 240
        if turn == 0:
            answer = f"{FACT} {answer}"
        history += [user({"text": f"Part {turn}?"}), says({"text": answer})]
    return [*history, user({"text": QUESTION})]


def recalls(request: Json, id_: str = "r1", **arguments: Any) -> Json:
    key = HANDLE.findall(json.dumps(request))[0]
    return called(id_, "recall", key=key, find="opens at", **arguments)


def recall_once(request: Json, *before: Json) -> list[Json]:
    last = json.dumps(request["messages"][-1])
    if QUESTION in last:
        return [*before, recalls(request)]
    if FACT in last:
        return [{"text": f"It says: {FACT}"}]
    return [{"text": "Fine."}]


def check_requests(requests: list[Json]) -> None:
    """Every request continues the one before it with the same tools, and AWS's own model takes it."""
    for before, after in pairwise(requests):
        assert after["messages"][: len(before["messages"])] == before["messages"]
        assert after["toolConfig"] == before["toolConfig"]
    for request in requests:
        assert DIALECT.wire.check({"modelId": MODEL, **request}) == []
        assert refusals({"modelId": MODEL, **request}) == ""


both = pytest.mark.parametrize("streams", [False, True])


@both
def test_a_recall_is_answered_inside_one_answer_and_stays_in_its_place(
    tmp_path: Path, *, streams: bool
) -> None:
    history = long_history()
    before = {"text": "Let me look. "}
    with serve(lambda request: recall_once(request, before), tmp_path / "gateway.db") as (gateway, server):
        reply = ask(gateway, history, streams=streams)
        assert reply.text.endswith(f"It says: {FACT}")
        assert reply.stop == "end_turn"
        assert (reply.usage["outputTokens"], reply.usage["totalTokens"]) == (18, 118)
        assert "recall" not in json.dumps(reply.content)
        assert len(server.requests) == 2
        assert server.requests[0]["toolConfig"]["tools"][-1]["toolSpec"]["name"] == "recall"
        history += [says(*reply.content), user({"text": "Thanks."})]
        reply = ask(gateway, history, streams=streams)
        history += [says(*reply.content), user({"text": "And?"})]
        ask(gateway, history, streams=streams)
    check_requests(server.requests)
    assert json.dumps(server.requests[-1]).count("Let me look.") == 1
    assert DIALECT.wire.check({"modelId": MODEL, "messages": history, "toolConfig": {"tools": [TOOL]}}) == []


@both
@pytest.mark.parametrize("ids", [("r1", "c1"), ("same", "same")])
def test_a_recall_beside_a_call_of_the_client_waits_for_its_result(
    ids: tuple[str, str], tmp_path: Path, *, streams: bool
) -> None:
    def script(request: Json) -> list[Json]:
        last = json.dumps(request["messages"][-1])
        if QUESTION in last:
            return [{"text": "Both."}, recalls(request, ids[0]), called(ids[1], path="a.txt")]
        if "content of a.txt" in last:
            return [{"text": "Yes." if FACT in last else "No."}]
        return [{"text": "Fine."}]

    history = long_history()
    with serve(script, tmp_path / "gateway.db") as (gateway, server):
        reply = ask(gateway, history, streams=streams)
        assert reply.stop == "tool_use"
        assert reply.content == [{"text": "Both."}, called(ids[1], path="a.txt")]
        assert len(server.requests) == 1
        history += [says(*reply.content), user(answers(ids[1], {"text": "content of a.txt"}))]
        reply = ask(gateway, history, streams=streams)
        assert reply.text == "Yes."
        history += [says(*reply.content), user({"text": "Thanks."})]
        ask(gateway, history, streams=streams)
    check_requests(server.requests)


@both
def test_a_model_that_only_recalls_gets_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, streams: bool
) -> None:
    monkeypatch.setattr(recall_loop, "ROUNDS", 2)
    number = iter(range(99))

    def script(request: Json) -> list[Json]:
        return [recalls(request, f"r{next(number)}")]

    with serve(script, tmp_path / "gateway.db") as (gateway, server):
        reply = ask(gateway, long_history(), streams=streams)
    assert (reply.text, reply.stop) == (NOTICE, "end_turn")
    assert len(server.requests) == 4
    check_requests(server.requests)


def test_a_recall_whose_arguments_are_not_json_is_answered_with_the_problem(tmp_path: Path) -> None:
    def script(request: Json) -> list[Json]:
        if len(request["messages"]) > 1 and "toolResult" in json.dumps(request["messages"][-1]):
            return [{"text": "I see."}]
        return [{"toolUse": {"toolUseId": "r1", "name": "recall", "input": '{"key": "k'}}]

    with serve(script, tmp_path / "gateway.db") as (gateway, server):
        assert ask(gateway, long_history(), streams=True).text == "I see."
    assert server.requests[-1]["messages"][-1]["content"][0]["toolResult"]["status"] == "error"
    check_requests(server.requests)


def test_the_client_sees_no_reasoning_that_led_to_a_recall(tmp_path: Path) -> None:
    def thought(text: str) -> Json:
        return {"reasoningContent": {"reasoningText": {"text": text, "signature": f"signed {text}"}}}

    def script(request: Json) -> list[Json]:
        if QUESTION in json.dumps(request["messages"][-1]):
            return [thought("first"), recalls(request)]
        return [thought("second"), {"text": FACT}]

    with serve(script, tmp_path / "gateway.db") as (gateway, server):
        reply = ask(gateway, long_history(), streams=True)
    assert reply.content == [thought("second"), {"text": FACT}]
    check_requests(server.requests)


def test_a_model_gets_the_tool_only_beside_tools_of_the_client(tmp_path: Path) -> None:
    """Some models of Bedrock refuse every request that defines a tool."""
    with serve(lambda _: [{"text": "Fine."}], tmp_path / "gateway.db") as (gateway, server):
        client = botocore.session.get_session().create_client(
            "bedrock-runtime",
            region_name="us-east-1",
            endpoint_url=gateway.url,
            config=Config(signature_version=UNSIGNED),
        )
        client.converse(modelId=MODEL, messages=long_history())
    assert "toolConfig" not in server.requests[0]
    assert HANDLE.findall(json.dumps(server.requests[0])) == []


EVENTS = write_events([{"text": "é ✓"}, called("r1", "recall", key="k"), called("c1"), {"text": "Yes."}])


def test_a_stream_is_the_same_however_its_bytes_are_split() -> None:
    body = b"".join(map(frame, EVENTS))
    chance = Random(3)  # noqa: S311 - for a test

    def relay(pieces: list[bytes]) -> bytes:
        splitter = splitter_for(CONTENT_TYPE)
        stream_filter = filter_for(DIALECT, {"recall"})
        shown: list[Any] = []
        for piece in pieces:
            for event in splitter.take(piece):
                shown += stream_filter.take(event.value)
        assert splitter.finish() == []
        return b"".join(splitter.write(value, b"") for value in [*shown, *stream_filter.closing])

    expected = relay([body])
    kept = [{"text": "é ✓"}, called("c1"), {"text": "Yes."}]
    assert read_events(expected) == write_events(kept)
    for _ in range(20):
        places = sorted(chance.sample(range(1, len(body)), chance.choice((1, 5, 40))))
        pieces = [body[start:end] for start, end in zip([0, *places], [*places, len(body)], strict=True)]
        assert relay(pieces) == expected


def test_bytes_that_are_no_frame_are_passed_on() -> None:
    splitter = splitter_for(CONTENT_TYPE)
    first = frame(EVENTS[0])
    broken = b"\xff" * 40
    passed = [event.source for piece in (first + broken, b"more") for event in splitter.take(piece)]
    passed += [event.source for event in splitter.finish()]
    assert b"".join(passed) == first + broken + b"more"


def test_a_frame_that_is_written_here_is_what_aws_reads() -> None:
    buffer = EventStreamBuffer()
    buffer.add_data(write_frame("messageStop", b'{"stopReason": "end_turn"}'))
    message = next(iter(buffer))  # checks both checksums
    assert message.headers[":event-type"] == "messageStop"
    assert json.loads(message.payload) == {"stopReason": "end_turn"}
