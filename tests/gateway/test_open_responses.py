"""The compliance cases of Open Responses: a real llama.cpp and a server that keeps every rule, both ways.

The gateway must never make an answer worse. Where it passes an answer on, the bytes are the upstream's. Where
it writes events itself, because the model recalled something, they keep the rules as the upstream's do.
"""

from __future__ import annotations

import gc
import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest

from lamina import Budget
from lamina.conversations import recall_loop
from lamina.conversations.recall_answers import NOTICE
from lamina.fitting import Policy
from lamina.gateway import GatewaySettings
from lamina.relay.config import UpstreamSettings
from lamina.testing.model_server import MODEL, run_model_server
from tests.gateway.open_responses_upstream import (
    CompliantUpstream,
    Damage,
    Script,
    UpstreamFailure,
    answer_case,
    run_compliant_upstream,
)
from tests.gateway.running import settings_for
from tests.gateway.test_sdks import gateway_in_thread
from tests.wrapped.scripted_api import Call, Said, Thought
from tools.clients.recorder import run_recorder
from tools.open_responses.calls import Api, read_stream
from tools.open_responses.cases import CASES, WEATHER_TOOL, assistant, check_stream, find_whole, user
from tools.open_responses.schema import check_event
from tools.open_responses.suite import CaseResult, run_suite

WINDOW = {"budget": Budget(window=4_000, reserve=300)}

Json = dict[str, Any]

HANDLE = re.compile(r'recall[(=]\\*"([a-z0-9-]+)')


def make_history() -> list[Json]:
    """Turns that do not fit the window."""
    history: list[Json] = []
    for turn in range(9):
        history += [user(f"Part {turn}?"), assistant("Go on. " * 240)]
    return history


HISTORY = make_history()
FITTED_CASES = [case for case in CASES if not case.id.startswith("compact-")]
"""The cases whose requests the gateway may change. Compactions are passed on."""


def list_failures(results: list[CaseResult]) -> list[CaseResult]:
    return [result for result in results if result.verdict != "passed"]


def test_a_server_that_keeps_the_rules_passes_every_case() -> None:
    with run_compliant_upstream() as upstream:
        results = run_suite(Api(f"{upstream.url}/v1", MODEL))
    assert list_failures(results) == []
    assert len(results) == len(CASES)
    assert upstream.refused == ["model is missing"]


def change_all(name: str, **changes: Any) -> Damage:
    """Other values in all events of a type, or in all whole answers."""

    def damage(values: list[Json]) -> list[Json]:
        return [{**value, **changes} if value.get("type", "whole") == name else value for value in values]

    return damage


def leave_out(name: str) -> Damage:
    """No event of a type."""
    return lambda values: [value for value in values if value.get("type") != name]


def repeat_numbers(values: list[Json]) -> list[Json]:
    return [{**value, "sequence_number": 3} for value in values]


def swap_items(values: list[Json]) -> list[Json]:
    """Events that speak of another item than the one that began."""
    return [{**value, "output_index": 1} if "item_id" in value else value for value in values]


STREAM = "streaming-response"
CALL = "tool-calling-streaming"

FAULTS: dict[str, tuple[Damage, str]] = {
    "a field of the answer is missing": (lambda values: [{"id": "r"} for _ in values], "basic-response"),
    "the answer is not complete": (change_all("whole", status="incomplete"), "basic-response"),
    "the answer is empty": (change_all("whole", output=[]), "multi-turn"),
    "a number is a text": (change_all("whole", created_at="1"), "system-prompt"),
    "there is no call": (change_all("whole", output=[]), "tool-calling"),
    "nothing was compacted": (change_all("whole", output=[]), "compact-response"),
    "numbers do not rise": (repeat_numbers, STREAM),
    "an event is unknown": (change_all("response.in_progress", type="response.begun"), STREAM),
    "a list is null": (change_all("response.output_text.delta", logprobs=None), STREAM),
    "a delta is lost": (change_all("response.output_text.delta", delta=""), STREAM),
    "an item does not end": (leave_out("response.output_item.done"), STREAM),
    "an item does not begin": (leave_out("response.output_item.added"), STREAM),
    "events are about another item": (swap_items, STREAM),
    "the answer does not begin": (leave_out("response.created"), STREAM),
    "the answer does not end": (leave_out("response.completed"), STREAM),
    "a call has no deltas": (leave_out("response.function_call_arguments.delta"), CALL),
    "the arguments of a call do not end": (leave_out("response.function_call_arguments.done"), CALL),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_suite_finds_planted_faults(fault: str) -> None:
    damage, case_id = FAULTS[fault]
    [case] = [case for case in CASES if case.id == case_id]
    with run_compliant_upstream() as upstream:
        upstream.damage = damage
        [result] = run_suite(Api(f"{upstream.url}/v1", MODEL), cases=[case])
    assert result.verdict == "failed"


def test_a_server_that_keeps_the_rules_passes_every_case_through_the_gateway(tmp_path: Path) -> None:
    with run_compliant_upstream() as upstream:
        settings = settings_for(upstream.url, tmp_path / "gateway.db")
        with gateway_in_thread(settings) as gateway:
            api = Api(f"{gateway.url}/v1", MODEL)
            results = run_suite(api)
    assert list_failures(results) == []
    assert [answer.body for answer in api.answers] == upstream.answers


def test_a_recorder_closes_the_connections_of_clients_that_say_nothing() -> None:
    with run_recorder() as recorder:
        address = urlsplit(recorder.url)
        client = socket.create_connection((address.hostname, address.port), timeout=10)
    with client:
        assert client.recv(1) == b""
    gc.collect()


def test_llama_cpp_has_the_same_results_and_bytes_through_the_gateway(tmp_path: Path) -> None:
    with run_model_server() as server, run_recorder() as recorder:
        directly = run_suite(Api(f"{server.url}/v1", MODEL, max_output_tokens=16))
        recorder.target = server.url
        upstream = UpstreamSettings(
            url=recorder.url, profile="llama.cpp", policy=Policy(budget=server.window)
        )
        store = str(tmp_path / "gateway.db")
        settings = GatewaySettings(port=0, store=store, upstreams={"local": upstream})
        with gateway_in_thread(settings) as gateway:
            api = Api(f"{gateway.url}/v1", MODEL, max_output_tokens=16)
            through = run_suite(api)
    assert through == directly
    sent = [recorded.answer.partition(b"\r\n\r\n")[2] for recorded in recorder.recorded]
    assert [answer.status for answer in api.answers] == [recorded.status for recorded in recorder.recorded]
    for answer, body in zip(api.answers, sent, strict=True):
        assert answer.body == read_chunks(body) or answer.body == body


def read_chunks(body: bytes) -> bytes:
    """The content of a body that was sent in chunks; b"" if it was not."""
    content = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        try:
            length = int(size, 16)
        except ValueError:
            return b""
        content += rest[:length]
        body = rest[length + 2 :]
    return content


@contextmanager
def through_gateway(upstream: CompliantUpstream, folder: Path) -> Iterator[Api]:
    """An API behind a gateway with a small window, after a long history."""
    settings = settings_for(upstream.url, folder / "gateway.db", upstream=WINDOW)
    with gateway_in_thread(settings) as gateway:
        yield Api(f"{gateway.url}/v1", MODEL, history=HISTORY)


def run_fitted_cases(upstream: CompliantUpstream, folder: Path) -> Api:
    """The cases after a long history, through a gateway with a small window. All of them must pass."""
    with through_gateway(upstream, folder) as api:
        results = run_suite(api, cases=FITTED_CASES)
    assert list_failures(results) == []
    assert upstream.refused == []
    return api


def test_every_case_passes_after_a_cut(tmp_path: Path) -> None:
    """The requests that the gateway writes keep the rules, too: the upstream refuses those that do not."""
    with run_compliant_upstream() as upstream:
        api = run_fitted_cases(upstream, tmp_path)
    changes = [answer.change for answer in api.answers]
    assert changes.count("") == 2  # they continue an answer by its id
    assert [answer.body for answer in api.answers] == upstream.answers


def last_asked(request: Json) -> int:
    """The index of the last item that the client sent: not a recall, nor what the model said beside it."""
    recalls = {item.get("call_id") for item in request["input"] if item.get("name") == "recall"}
    asked = 0
    for index, item in enumerate(request["input"]):
        is_result = item.get("type") == "function_call_output" and item["call_id"] not in recalls
        if item.get("role") == "user" or is_result:
            asked = index
    return asked


def count_recalls(request: Json) -> int:
    """How often the model has recalled something since it was asked."""
    items = request["input"][last_asked(request) :]
    return sum(item.get("name") == "recall" for item in items)


NUMBERS = count()


def call_recall(request: Json) -> Call:
    key = HANDLE.findall(json.dumps(request, ensure_ascii=False))[0]
    return Call("recall", {"key": key, "find": "Go on"}, f"recall_{next(NUMBERS)}")


def recall_before(*rounds: Callable[[Json], Said], then: Said) -> Script:
    """A model that recalls something in each of these rounds before it answers a case."""

    def script(request: Json) -> Said:
        if "recall" not in [tool["name"] for tool in request.get("tools") or []]:
            return answer_case(request)
        done = count_recalls(request)
        for number, round_ in enumerate(rounds):
            if done == number:
                return round_(request)
        asked = {**request, "input": request["input"][: last_asked(request) + 1]}
        return [*then, *answer_case(asked)]

    return script


LOOK = "Let me look."
WHERE = Thought("Where was it?")
SO = Thought("So that is it.")

ROUNDS: dict[str, Script] = {
    "alone": recall_before(lambda request: [call_recall(request)], then=[]),
    "after words": recall_before(lambda request: [LOOK, call_recall(request)], then=[]),
    "after reasoning": recall_before(lambda request: [WHERE, call_recall(request)], then=[SO]),
    "after reasoning and words": recall_before(
        lambda request: [WHERE, LOOK, call_recall(request)], then=[SO]
    ),
    "before words": recall_before(lambda request: [call_recall(request), LOOK], then=[SO]),
    "twice": recall_before(
        lambda request: [LOOK, call_recall(request)], lambda request: [SO, call_recall(request)], then=[]
    ),
    "words between": recall_before(
        lambda request: [LOOK, call_recall(request)],
        lambda request: [LOOK, call_recall(request)],
        then=[WHERE],
    ),
}


QUICK_ROUNDS = ("after reasoning and words", "twice")
"""What the others do, in two of them."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK_ROUNDS else pytest.mark.thorough) for name in ROUNDS],
)
def test_every_case_passes_after_a_recall(name: str, tmp_path: Path) -> None:
    with run_compliant_upstream(ROUNDS[name]) as upstream:
        api = run_fitted_cases(upstream, tmp_path)
    assert len(upstream.requests) > len(api.answers)
    for answer in api.answers:
        assert b'"name": "recall", "arguments"' not in answer.body
        assert b'"name":"recall","arguments"' not in answer.body


@pytest.mark.parametrize("recalls_first", [True, False])
def test_the_cases_of_tools_pass_with_a_recall_beside_the_call(recalls_first: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter of the test
    """The client sees its own call alone. The upstream refuses to go on without the result of the recall."""

    def script(request: Json) -> Said:
        said = answer_case(request)
        if not isinstance(said[0], Call):
            return said
        if recalls_first:
            return [WHERE, call_recall(request), *said]
        return [*said, call_recall(request)]

    with run_compliant_upstream(script) as upstream, through_gateway(upstream, tmp_path) as api:
        cases = [case for case in FITTED_CASES if "call" in case.id]
        results = run_suite(api, cases=cases)
    assert [result.id for result in results] == [
        "tool-calling",
        "tool-calling-streaming",
        "function-call-roundtrip",
    ]
    assert list_failures(results) == []
    assert upstream.refused == []


@pytest.mark.parametrize("says", [(), (LOOK,), (WHERE,)])
def test_a_model_that_recalls_without_end_keeps_the_rules(
    says: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recall_loop, "ROUNDS", 2)
    with (
        run_compliant_upstream(lambda request: [*says, call_recall(request)]) as upstream,
        through_gateway(upstream, tmp_path) as api,
    ):
        stream = read_stream(api.create(user("Go on."), stream=True))
        whole = api.create(user("Go on without a stream."))
    assert check_stream(stream) == []
    ids = [answer["output"][-1]["id"] for answer in (find_whole(stream), whole.json)]
    assert len(set(ids)) == 2  # both may be in the history of one conversation
    for answer in (find_whole(stream), whole.json):
        texts = [part["text"] for item in answer["output"] for part in item.get("content", [])]
        assert set(texts) in ({NOTICE}, {LOOK})


@pytest.mark.parametrize("first_number", [0, 1, 7])
def test_a_stream_without_a_recall_keeps_its_bytes(first_number: int, tmp_path: Path) -> None:
    """Also when the gateway had to look for recalls in it, and the upstream counts from another number."""
    with run_compliant_upstream() as upstream:
        upstream.first_number = first_number
        with through_gateway(upstream, tmp_path) as api:
            answer = api.create(user("Go on."), stream=True)
    assert answer.change == "cut"
    assert answer.body == upstream.answers[0]


def write_like_llama_cpp(events: list[Json]) -> list[Json]:
    """The events as llama.cpp writes them: unnumbered, items named by their ids alone, calls by `call_id`.

    It says nothing of an answer that begins but its id, and does not send the arguments of a call once more.
    """
    call_ids: dict[str, str] = {}
    written: list[Json] = []
    for event in events:
        fields = {**event}
        for name in ("sequence_number", "output_index", "content_index"):
            fields.pop(name, None)
        item = fields.get("item")
        if item is not None and item["type"] == "function_call":
            call_ids[item["id"]] = item["call_id"]
            fields["item"] = {name: value for name, value in item.items() if name != "id"}
        if "item_id" in fields:
            fields["item_id"] = call_ids.get(fields["item_id"], fields["item_id"])
        if "response" in fields:
            fields["response"] = shorten_like_llama_cpp(fields["response"])
        if fields["type"] != "response.function_call_arguments.done":
            written.append(fields)
    return written


def shorten_like_llama_cpp(response: Json) -> Json:
    names = ["id", "object", "status"]
    if response["status"] == "completed":
        names += ["model", "usage", "output"]
    shortened = {name: response[name] for name in names}
    for item in shortened.get("output", []):
        if item["type"] == "function_call":
            item.pop("id", None)
    return shortened


@pytest.mark.parametrize("name", ROUNDS)
def test_a_recall_stays_hidden_in_a_stream_that_numbers_nothing(name: str, tmp_path: Path) -> None:
    """llama.cpp gives its events no numbers. The call of the recall tool is known by its id."""
    with run_compliant_upstream(ROUNDS[name]) as upstream:
        upstream.damage = write_like_llama_cpp
        with through_gateway(upstream, tmp_path) as api:
            for tools, shown_item in (([], "message"), ([WEATHER_TOOL], "function_call")):
                answer = api.create(user("Go on."), stream=True, tools=tools)
                stream = read_stream(answer)
                assert b"recall" not in answer.body
                assert stream.problems == []
                output = find_whole(stream)["output"]
                assert output[-1]["type"] == shown_item
                ended = [event["item"] for event in stream.events if event["type"].endswith("item.done")]
                assert ended == output
                begun = [
                    event["item"]["type"] for event in stream.events if event["type"].endswith("item.added")
                ]
                assert begun == [item["type"] for item in output]


def fail_after_recall(request: Json) -> Said:
    if count_recalls(request):
        raise UpstreamFailure
    return [LOOK, call_recall(request)]


def test_the_error_that_ends_a_stream_is_an_event_of_the_api(tmp_path: Path) -> None:
    with (
        run_compliant_upstream(fail_after_recall) as upstream,
        through_gateway(upstream, tmp_path) as api,
    ):
        stream = read_stream(api.create(user("Go on."), stream=True))
    events = stream.events
    assert events[-1]["type"] == "error"
    assert [problem for event in events for problem in check_event(event)] == []
    numbers = [event["sequence_number"] for event in events]
    assert numbers == list(range(len(numbers)))
    assert openai.types.responses.ResponseErrorEvent.model_validate(events[-1]).message
