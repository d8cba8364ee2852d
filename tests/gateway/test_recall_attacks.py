"""Recalls in bad company: clients that leave, upstreams that fail, calls without sense, requests at once.

All tests share one gateway and one upstream. Each has a conversation of its own, told by its question.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.gateway.running import RunningGateway, settings_for
from tests.gateway.test_recall import (
    ANSWER,
    FACT,
    OWN_RESULT,
    WINDOW,
    Wire,
    check_directly,
    first_handle,
    flatten,
    long_history,
    read_events,
)
from tests.gateway.test_sdks import gateway_in_thread
from tests.wrapped.scripted_api import ApiFailure, Call, Said, scripted_api

WIRE = Wire("anthropic", streams=True)

Script = Callable[[dict[str, Any]], Said]


class Bench(NamedTuple):
    """A gateway, the requests that its upstream had, and the script of each question."""

    gateway: RunningGateway
    requests: list[dict[str, Any]]
    scripts: dict[str, Script]

    def begin(self, question: str, script: Script) -> list[Any]:
        """Begin a conversation that is cut at once. The upstream follows the script in it."""
        self.scripts[question] = script
        self.requests.clear()
        first, *rest = long_history(WIRE)
        return [WIRE.user(f"{first['content']} {question}"), *rest, WIRE.user(question)]

    def of(self, question: str) -> list[dict[str, Any]]:
        return [request for request in self.requests if question in flatten(request)]

    def stream(self, history: list[Any], **headers: str) -> str:
        """The bytes of a streamed answer, to the end of the connection."""
        connection = self.send(history, **headers)
        try:
            return connection.getresponse().read().decode()
        except http.client.IncompleteRead as broken_off:
            return broken_off.partial.decode()
        finally:
            connection.close()

    def send(self, history: list[Any], **headers: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(urlsplit(self.gateway.url).netloc, timeout=30)
        body = json.dumps(WIRE.request(history) | {"stream": True})
        fields = {"content-type": "application/json", **headers}
        connection.request("POST", "/v1/messages", body, fields)
        return connection


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    scripts: dict[str, Script] = {}

    def speak(request: dict[str, Any]) -> Said:
        text = flatten(request)
        for question, script in scripts.items():
            if question in text:
                return script(request)
        return ["Fine."]

    with (
        scripted_api(speak) as api,
        gateway_in_thread(settings_for(api.url, upstream=WINDOW)) as gateway,
    ):
        yield Bench(gateway, api.requests, scripts)


def recall_first(request: dict[str, Any]) -> Call:
    return Call("recall", {"key": first_handle(request), "find": "opens at"}, "r1")


def has_result(request: dict[str, Any]) -> bool:
    """Whether the request ends with the results of calls."""
    return "tool_use_id" in flatten(WIRE.turns(request)[-1])


@pytest.mark.parametrize(
    "failure", [ApiFailure(500), ApiFailure(429), ApiFailure(0, ["Half an answer. " * 60])]
)
def test_an_upstream_that_fails_after_the_first_part_was_shown_is_told_and_may_be_asked_again(
    bench: Bench, failure: ApiFailure
) -> None:
    """The stream has begun, so an error is its last event, or it breaks off as the upstream's did.

    What the client has is no whole answer.

    What the upstream reported for the second request says nothing about the first, which is sent again.
    """
    failures = iter([failure])

    def script(request: dict[str, Any]) -> Said:
        if not has_result(request):
            return ["Let me look.", Call("recall", {"key": first_handle(request)}, "r1")]
        for one in failures:
            raise one
        return [ANSWER]

    history = bench.begin(f"Fail with {failure.status}?", script)
    broken = bench.stream(history)
    events = read_events(broken)
    assert "Let me look." in broken
    assert (events[-1]["type"] == "error") is (failure.status > 0)
    assert "message_stop" not in broken
    whole = bench.stream(history)
    assert FACT in whole
    first, second, again, answered = bench.of(f"Fail with {failure.status}?")
    assert (first, second) == (again, answered)


def test_a_client_that_leaves_during_a_recall_ends_it_and_finds_its_conversation_again(bench: Bench) -> None:
    question = "Leave early?"
    waits = threading.Event()

    def script(request: dict[str, Any]) -> Said:
        if not has_result(request):
            return ["Let me look.", recall_first(request)]
        if not waits.is_set():
            waits.wait(10)
        return [ANSWER]

    history = bench.begin(question, script)
    connection = bench.send(history)
    answer = connection.getresponse()
    assert b"message_start" in answer.readline() + answer.readline()
    while len(bench.of(question)) < 2:
        time.sleep(0.01)
    answer.close()
    connection.close()
    deadline = time.monotonic() + 10
    while not bench.gateway.events("client gone") and time.monotonic() < deadline:
        time.sleep(0.01)
    waits.set()
    assert bench.gateway.events("client gone")
    assert ANSWER in bench.stream(history)
    first, second, again, answered = bench.of(question)
    assert (first, second) == (again, answered)


def test_a_handle_of_another_conversation_brings_nothing_back(bench: Bench) -> None:
    foreign: list[str] = []

    def remember(request: dict[str, Any]) -> Said:
        foreign.append(first_handle(request))
        return ["Fine."]

    def steal(request: dict[str, Any]) -> Said:
        if has_result(request):
            return ["Nothing."]
        return [Call("recall", {"key": foreign[0]}, "r1")]

    bench.stream(bench.begin("Whose secret?", remember))
    history = bench.begin("Steal it?", steal)
    assert "Nothing." in bench.stream(history)
    [result] = WIRE.turns(bench.of("Steal it?")[-1])[-1]["content"]
    assert result["is_error"] is True
    assert "secret" not in flatten(result)


def test_two_recalls_and_a_call_of_the_client_in_one_message(bench: Bench) -> None:
    question = "All three?"

    def script(request: dict[str, Any]) -> Said:
        if has_result(request):
            return ["Done."]
        other = Call("recall", {"key": first_handle(request), "find": "Go on"}, "r2")
        return [recall_first(request), Call("read_file", {"path": "a.txt"}, "c1"), other]

    history = bench.begin(question, script)
    reply = WIRE.ask(bench.gateway.url, history)
    assert (reply.calls, reply.stop) == (["c1"], "tool_use")
    history += [*reply.turns, *WIRE.results(reply.calls)]
    check_directly(WIRE, history)
    assert WIRE.ask(bench.gateway.url, history).text == "Done."
    request = bench.of(question)[-1]
    assert WIRE.dialect.wire.check(request) == []
    *_, calls, results = WIRE.turns(request)
    assert [block["id"] for block in calls["content"]] == ["r1", "c1", "r2"]
    assert sorted(block["tool_use_id"] for block in results["content"]) == ["c1", "r1", "r2"]
    assert FACT in flatten(results)
    assert OWN_RESULT in flatten(results)


@pytest.mark.parametrize("arguments", ['{"key": "k1', "[]", '{"key": 7}'])
def test_a_recall_that_makes_no_sense_is_a_problem_for_the_model_only(bench: Bench, arguments: str) -> None:
    """The arguments of a stream are text, and nobody promises that they are JSON."""
    question = f"Nonsense {arguments.encode().hex()}?"

    def script(request: dict[str, Any]) -> Said:
        if has_result(request):
            return ["Sorry."]
        return [Call("recall", arguments, "r1")]

    history = bench.begin(question, script)
    reply = WIRE.ask(bench.gateway.url, history)
    assert (reply.text, reply.calls, reply.stop) == ("Sorry.", [], "end_turn")
    request = bench.of(question)[-1]
    assert WIRE.dialect.wire.check(request) == []
    [result] = WIRE.turns(request)[-1]["content"]
    assert result["is_error"] is True
    history += [*reply.turns, WIRE.user("Thanks.")]
    check_directly(WIRE, history)
    WIRE.ask(bench.gateway.url, history)
    assert WIRE.dialect.wire.check(bench.of(question)[-1]) == []


def test_requests_of_one_conversation_at_once_while_one_recalls(bench: Bench) -> None:
    """A title call and a retry, in the middle of a recall: each gets its answer, and the recall is kept."""
    question = "At once?"
    recalling = threading.Event()
    done = threading.Event()

    def script(request: dict[str, Any]) -> Said:
        last = flatten(WIRE.turns(request)[-1])
        if "aside" in last:
            return ["Aside."]
        if "Thanks." in last:
            return ["Fine."]
        if not has_result(request):
            return ["Let me look.", recall_first(request)]
        recalling.set()
        done.wait(10)
        return [ANSWER]

    history = bench.begin(question, script)
    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(bench.stream(history)))
    thread.start()
    assert recalling.wait(10)
    aside = [*history[:-1], WIRE.user(f"aside {question}")]
    longer = [*history, WIRE.says("No."), WIRE.user(f"aside again {question}")]
    assert "Aside." in bench.stream(aside)
    assert "Aside." in bench.stream(longer)
    done.set()
    thread.join()
    assert ANSWER in answers[0]
    history += [WIRE.says(f"Let me look.{ANSWER}"), WIRE.user("Thanks.")]
    assert "Fine." in bench.stream(history)
    request = bench.of("Thanks.")[-1]
    assert WIRE.dialect.wire.check(request) == []
    assert FACT in flatten(WIRE.turns(request)[-4:-1])
    for one in bench.of(question):
        assert WIRE.dialect.wire.check(one) == []


def test_a_conversation_with_recalls_goes_on_without_lamina_and_back(bench: Bench) -> None:
    question = "Off and on?"

    def script(request: dict[str, Any]) -> Said:
        last = flatten(WIRE.turns(request)[-1])
        if "Thanks." in last or "And?" in last:
            return ["Fine."]
        if has_result(request):
            return [ANSWER]
        return [recall_first(request)]

    history = bench.begin(question, script)
    history += [*WIRE.ask(bench.gateway.url, history).turns, WIRE.user("Thanks.")]
    with_recall = bench.of(question)[-1]
    assert "Fine." in bench.stream(history, **{"x-lamina": "off"})
    assert bench.of(question)[-1] == WIRE.request(history) | {"stream": True}
    history += [WIRE.says("Fine."), WIRE.user("And?")]
    assert "Fine." in bench.stream(history)
    back = bench.of(question)[-1]
    assert WIRE.dialect.wire.check(back) == []
    kept = WIRE.turns(with_recall)
    assert WIRE.turns(back)[: len(kept)] == kept
