"""Recalls that the gateway answers itself: five APIs, whole answers and streams, what the client keeps."""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import anthropic
import openai
import pytest

from lamina.conversations import recall_loop
from lamina.conversations.recall_answers import NOTICE
from lamina.conversations.recall_loop import RecallExchange, RecallPlace
from lamina.conversations.stream_filters import filter_for
from lamina.core.values import Budget
from lamina.dialects import DIALECTS, Usage
from lamina.dialects.usage import find_usage
from lamina.fitting import Policy, fit_request
from lamina.gateway import GatewayAccount
from lamina.relay import limits
from lamina.relay.answer import RecallRelay
from lamina.relay.calls import OutgoingRequest
from lamina.relay.usage import UsageReader
from tests.conversations import test_truncated_calls as truncated_calls
from tests.gateway.running import RunningGateway, TakenAnswer, settings_for
from tests.gateway.test_sdks import gateway_in_thread
from tests.wrapped.scripted_api import APIS, Call, Said, ScriptedApi, Thought, scripted_api

HANDLE = re.compile(r'recall[(=]\\*"([a-z0-9-]+)')
FACT = "The harbour opens at 05:41."
ANSWER = f"It says: {FACT}"
QUESTION = "When opens the harbour?"
OWN_RESULT = "content of a.txt"
WINDOW = {"budget": Budget(window=4_000, reserve=300)}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}

Script = Callable[["Wire", dict[str, Any]], Said]


class Reply(NamedTuple):
    """An answer as turns for the history, its text, its calls' ids, its usage, and why it stopped."""

    turns: list[Any]
    text: str
    calls: list[str]
    usage: Usage
    stop: str
    id: str = ""


class Wire(NamedTuple):
    """One API, asked for whole answers or for streams: by its SDK where that is quick, else by JSON."""

    name: str
    streams: bool

    @property
    def dialect(self) -> Any:
        return DIALECTS[self.name]

    @property
    def field(self) -> str:
        return {"openai_responses": "input", "gemini": "contents"}.get(self.name, "messages")

    def request(self, history: list[Any]) -> dict[str, Any]:
        """The arguments of a call, with one tool of the client."""
        if self.name == "gemini":
            declaration = {"name": "read_file", "parameters": SCHEMA}
            return {"contents": history, "tools": [{"functionDeclarations": [declaration]}]}
        function = {"name": "read_file", "parameters": SCHEMA}
        fields: dict[str, dict[str, Any]] = {
            "anthropic": {
                "model": "claude-opus-5-5",
                "max_tokens": 100,
                "tools": [{"name": "read_file", "input_schema": SCHEMA}],
            },
            "openai_chat": {"model": "gpt-4o", "tools": [{"type": "function", "function": function}]},
            "openai_responses": {"model": "gpt-5", "tools": [{"type": "function", **function}]},
            "ollama": {"model": "llama3.2", "tools": [{"type": "function", "function": function}]},
        }
        return {**fields[self.name], self.field: history}

    def user(self, text: str) -> Any:
        if self.name == "gemini":
            return {"role": "user", "parts": [{"text": text}]}
        return {"role": "user", "content": text}

    def says(self, text: str) -> Any:
        if self.name == "gemini":
            return {"role": "model", "parts": [{"text": text}]}
        return {"role": "assistant", "content": text}

    def results(self, calls: list[str]) -> list[Any]:
        """The results of the client's own calls."""
        if self.name == "anthropic":
            blocks = [{"type": "tool_result", "tool_use_id": call, "content": OWN_RESULT} for call in calls]
            return [{"role": "user", "content": blocks}]
        if self.name == "openai_responses":
            return [{"type": "function_call_output", "call_id": call, "output": OWN_RESULT} for call in calls]
        if self.name == "openai_chat":
            return [{"role": "tool", "tool_call_id": call, "content": OWN_RESULT} for call in calls]
        if self.name == "ollama":
            return [{"role": "tool", "tool_name": "read_file", "content": OWN_RESULT} for _ in calls]
        response = {"name": "read_file", "response": {"output": OWN_RESULT}}
        parts = [{"functionResponse": {"id": call, **response}} for call in calls]
        return [{"role": "user", "parts": parts}]

    def turns(self, request: dict[str, Any]) -> list[Any]:
        turns: list[Any] = request[self.field]
        return turns

    def ask(self, url: str, history: list[Any]) -> Reply:
        asking: dict[str, Callable[[str, list[Any]], Reply]] = {
            "anthropic": self._ask_messages,
            "openai_chat": self._ask_chat,
            "openai_responses": self._ask_responses,
            "gemini": self._ask_gemini,
            "ollama": self._ask_ollama,
        }
        return asking[self.name](url, history)

    def _ask_messages(self, url: str, history: list[Any]) -> Reply:
        with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
            if self.streams:
                with client.messages.stream(**self.request(history)) as stream:
                    events = list(stream)
                    message: Any = stream.get_final_message()
                starts = [event.index for event in events if event.type == "content_block_start"]
                assert starts == list(range(len(message.content)))
                assert [event.type for event in events].count("message_start") == 1
            else:
                message = client.messages.create(**self.request(history))
        content = [block.model_dump(mode="json", exclude_unset=True) for block in message.content]
        for block in content:
            block.pop("parsed_output", None)
        text = "".join(block.text for block in message.content if block.type == "text")
        calls = [block.id for block in message.content if block.type == "tool_use"]
        turns = [{"role": "assistant", "content": content}]
        return Reply(turns, text, calls, find_usage(message), message.stop_reason)

    def _ask_chat(self, url: str, history: list[Any]) -> Reply:
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            if self.streams:
                with client.chat.completions.stream(**self.request(history)) as stream:
                    completion: Any = stream.get_final_completion()
            else:
                completion = client.chat.completions.create(**self.request(history))
        message = completion.choices[0].message
        plain = {"role": "assistant", "content": message.content}
        calls = message.tool_calls or []
        if calls:
            functions = [{"name": call.function.name, "arguments": call.function.arguments} for call in calls]
            plain["tool_calls"] = [
                {"id": call.id, "type": "function", "function": function}
                for call, function in zip(calls, functions, strict=True)
            ]
        call_ids = [call.id for call in calls]
        stop = completion.choices[0].finish_reason
        return Reply([plain], message.content or "", call_ids, find_usage(completion), stop)

    def _ask_responses(self, url: str, history: list[Any], **fields: Any) -> Reply:
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            if self.streams:
                with client.responses.stream(**self.request(history), **fields) as stream:
                    numbers = [event.sequence_number for event in stream]
                    response: Any = stream.get_final_response()
                assert numbers == list(range(len(numbers)))
            else:
                response = client.responses.create(**self.request(history), **fields)
        items = [item.model_dump(mode="json", exclude_unset=True) for item in response.output]
        for item in items:
            item.pop("parsed_arguments", None)
            for part in item.get("content") or []:
                part.pop("parsed", None)
        calls = [item.call_id for item in response.output if item.type == "function_call"]
        usage = find_usage(response)
        return Reply(items, response.output_text, calls, usage, response.status, response.id)

    def _ask_gemini(self, url: str, history: list[Any]) -> Reply:
        verb = "streamGenerateContent?alt=sse" if self.streams else "generateContent"
        answer = post(f"{url}/v1beta/models/gemini-2.5-flash:{verb}", self.request(history))
        chunks = read_events(answer) if self.streams else [json.loads(answer)]
        parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
        text = "".join(part.get("text", "") for part in parts)
        calls = [part["functionCall"]["id"] for part in parts if "functionCall" in part]
        stop = chunks[-1]["candidates"][0]["finishReason"]
        return Reply([{"role": "model", "parts": parts}], text, calls, find_usage(chunks[-1]), stop)

    def _ask_ollama(self, url: str, history: list[Any]) -> Reply:
        answer = post(f"{url}/api/chat", {**self.request(history), "stream": self.streams})
        chunks = [json.loads(line) for line in answer.split("\n") if line]
        messages = [chunk["message"] for chunk in chunks]
        text = "".join(message["content"] for message in messages)
        message: dict[str, Any] = {"role": "assistant", "content": text}
        calls = [call for one in messages for call in one.get("tool_calls") or []]
        if calls:
            message["tool_calls"] = calls
        names = [call["function"]["name"] for call in calls]
        return Reply([message], text, names, find_usage(chunks[-1]), str(chunks[-1]["done"]))


NAMES = ("anthropic", "openai_chat", "openai_responses", "gemini", "ollama")
WIRES = [Wire(name, streams) for name in NAMES for streams in (False, True)]
each_wire = pytest.mark.parametrize(
    "wire", WIRES, ids=lambda wire: f"{wire.name}-{'stream' if wire.streams else 'whole'}"
)
each_dialect = pytest.mark.parametrize(
    "wire", [Wire(name, number % 2 == 0) for number, name in enumerate(NAMES)], ids=lambda wire: wire.name
)
"""Each once: streams and whole answers take turns."""


def post(url: str, request: dict[str, Any]) -> str:
    data = json.dumps(request).encode()
    headers = {"content-type": "application/json"}
    with urlopen(Request(url, data=data, headers=headers)) as answer:  # noqa: S310 - on this machine
        text: str = answer.read().decode()
    return text


def read_events(text: str) -> list[Any]:
    return [
        json.loads(line.removeprefix("data: ")) for line in text.split("\n") if line.startswith("data: {")
    ]


def flatten(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def long_history(wire: Wire) -> list[Any]:
    """A history that does not fit the window. Its first answer holds the fact."""
    history: list[Any] = []
    for turn in range(9):
        answer = "Go on. " * 240
        if turn == 0:
            answer = f"{FACT} {answer}"
        history += [wire.user(f"Part {turn}?"), wire.says(answer)]
    return history


def first_handle(request: dict[str, Any]) -> str:
    found: str = HANDLE.findall(flatten(request))[0]
    return found


def recall_once(wire: Wire, request: dict[str, Any], *before: str | Thought) -> Said:
    """A model that recalls the first handle that it sees when it is asked about the harbour."""
    last = flatten(wire.turns(request)[-1])
    if QUESTION in last:
        return [*before, Call("recall", {"key": first_handle(request), "find": "opens at"}, "r1")]
    if FACT in last:
        return [ANSWER]
    return ["Fine."]


def recall_and_read(wire: Wire, request: dict[str, Any]) -> Said:
    """A model that recalls something and reads a file in one answer."""
    last = flatten(wire.turns(request)[-1])
    if QUESTION in last:
        recall = Call("recall", {"key": first_handle(request), "find": "opens at"}, "r1")
        return ["Both.", recall, Call("read_file", {"path": "a.txt"}, "c1")]
    if OWN_RESULT in last:
        return ["Yes." if FACT in flatten(wire.turns(request)[-2:]) else "No."]
    return ["Fine."]


class Served(NamedTuple):
    """A gateway in front of a scripted model."""

    gateway: RunningGateway
    api: ScriptedApi


@contextmanager
def serve(wire: Wire, script: Script, store: Path | str = "", **settings: Any) -> Iterator[Served]:
    with scripted_api(lambda request: script(wire, request)) as api:
        changed = settings_for(api.url, store, upstream=WINDOW, **settings)
        with gateway_in_thread(changed) as gateway:
            yield Served(gateway, api)


def check_prefixes(wire: Wire, requests: list[dict[str, Any]]) -> None:
    """Every request continues the one before it, has the same tools, and keeps the rules of its API."""
    for before, after in pairwise(requests):
        assert wire.turns(after)[: len(wire.turns(before))] == wire.turns(before)
        assert after["tools"] == before["tools"]
    for request in requests:
        assert wire.dialect.wire.check(request) == []


def check_directly(wire: Wire, history: list[Any]) -> None:
    """The client's own history is valid without the gateway, and knows nothing of recalls."""
    assert wire.dialect.wire.check(wire.request(history)) == []
    assert '"recall"' not in flatten(history)


@each_wire
def test_a_recall_is_answered_inside_one_answer_and_stays_in_its_place(wire: Wire, tmp_path: Path) -> None:
    """Also after a restart: the second gateway has nothing but the store of the first."""
    history = [*long_history(wire), wire.user(QUESTION)]
    with scripted_api(lambda request: recall_once(wire, request, "Let me look.")) as api:
        settings = settings_for(api.url, tmp_path / "gateway.db", upstream=WINDOW)
        with gateway_in_thread(settings) as gateway:
            reply = wire.ask(gateway.url, history)
            recalled = [event for event in gateway.events("answered") if event["recalled"]]
        assert reply.text.endswith(ANSWER)
        assert reply.calls == []
        assert len(api.requests) == 2
        assert flatten(api.requests[0]["tools"][-1]).count('"recall"') == 1
        if wire.name != "openai_chat" or not wire.streams:  # the SDK did not ask for usage
            assert reply.usage.output == 18
            assert reply.usage.input > recalled[0]["input"]
        history += [*reply.turns, wire.user("Thanks.")]
        check_directly(wire, history)
        with gateway_in_thread(settings) as gateway:
            reply = wire.ask(gateway.url, history)
            history += [*reply.turns, wire.user("And?")]
            wire.ask(gateway.url, history)
        check_prefixes(wire, api.requests)
        assert flatten(api.requests[-1]).count("Let me look.") == 1


STOPS = {"anthropic": "end_turn", "openai_chat": "stop", "openai_responses": "completed", "gemini": "STOP"}
"""What an answer says at its end if it waits for nothing."""


@pytest.mark.parametrize("says", ["", "Let me look."])
def test_a_model_that_recalls_without_end_gets_an_end(
    says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's answer waits for no tool, is not empty, and can be part of the history."""
    monkeypatch.setattr(recall_loop, "ROUNDS", 2)
    numbers = count()

    def script(request: dict[str, Any]) -> Said:
        if "Thanks." in flatten(request):
            return ["Fine."]
        call = Call("recall", {"key": first_handle(request), "find": "opens"}, f"r{next(numbers)}")
        return [says, call] if says else [call]

    with scripted_api(script) as api:
        settings = settings_for(api.url, tmp_path / "gateway.db", upstream=WINDOW)
        with gateway_in_thread(settings) as gateway:
            for wire in WIRES:
                if says and not wire.streams:
                    continue  # what was said before a recall is not in a whole answer
                api.requests.clear()
                history = [*long_history(wire), wire.user(f"Go on, streaming: {wire.streams}")]
                reply = wire.ask(gateway.url, history)
                assert reply.calls == []
                assert reply.stop == STOPS.get(wire.name, "True")
                assert reply.text == (says * 4 or NOTICE)
                assert len(api.requests) == 4
                assert "recall was called 2 times in a row" in flatten(api.requests[-1])
                history += [*reply.turns, wire.user("Thanks.")]
                check_directly(wire, history)
                assert wire.ask(gateway.url, history).text == "Fine."
                check_prefixes(wire, api.requests)


def test_a_client_goes_on_by_id_after_a_recall(tmp_path: Path) -> None:
    """The upstream keeps the answers. It refuses to continue one that has a call without a result."""
    for streams in (True, False):
        wire = Wire("openai_responses", streams)
        for script, own_calls in ((recall_once, 0), (recall_and_read, 1)):
            with serve(wire, script, tmp_path / f"{script.__name__}-{streams}.db") as served:
                url = served.gateway.url
                reply = wire.ask(url, [*long_history(wire), wire.user(QUESTION)])
                assert len(reply.calls) == own_calls
                items = [*wire.results(reply.calls), wire.user("Thanks.")]
                wire._ask_responses(url, items, previous_response_id=reply.id)  # noqa: SLF001
            request = served.api.requests[-1]
            sent_items = request["input"][-len(items) :]
            recalled = request["input"][: -len(items)]
            assert sent_items == items
            assert [item["call_id"] for item in recalled] == ["r1"] * own_calls
            assert FACT in flatten(recalled) or not own_calls
            if streams and not own_calls:
                assert request["previous_response_id"] != reply.id
            assert f'"{request["previous_response_id"]}"' in served.api.answers[-2]


def test_a_client_that_goes_another_way_after_a_recall_keeps_it(tmp_path: Path) -> None:
    """A fork has the recalls of the common part, and their lines of the ledger."""
    wire = Wire("anthropic", streams=True)
    history = [*long_history(wire), wire.user(QUESTION)]
    with serve(wire, recall_once, tmp_path / "gateway.db") as served:
        history += wire.ask(served.gateway.url, history).turns
        for word in ("Thanks.", "Wrong."):
            wire.ask(served.gateway.url, [*history, wire.user(word)])
    [_, asked, first, second] = served.api.requests
    common = len(wire.turns(asked)) + 1
    assert wire.turns(first)[:common] == wire.turns(second)[:common]
    assert FACT in flatten(wire.turns(second)[common - 2])
    assert first["tools"] == second["tools"]


@pytest.mark.parametrize(
    "wire",
    [wire for wire in WIRES if wire.streams or wire.name == "anthropic"],
    ids=lambda wire: f"{wire.name}-{'stream' if wire.streams else 'whole'}",
)
def test_a_recall_beside_a_call_of_the_client_waits_for_its_result(wire: Wire, tmp_path: Path) -> None:
    history = [*long_history(wire), wire.user(QUESTION)]
    with serve(wire, recall_and_read, tmp_path / "gateway.db") as served:
        reply = wire.ask(served.gateway.url, history)
        assert len(reply.calls) == 1
        assert len(served.api.requests) == 1
        history += [*reply.turns, *wire.results(reply.calls)]
        check_directly(wire, history)
        reply = wire.ask(served.gateway.url, history)
        assert reply.text == "Yes."
        history += [*reply.turns, wire.user("Thanks.")]
        wire.ask(served.gateway.url, history)
        check_prefixes(wire, served.api.requests)


def test_several_recalls_and_their_account() -> None:
    """Two in one answer, then a third. The account has every call, the client the last one."""
    wire = Wire("anthropic", streams=True)
    rounds = iter(range(9))

    def script(_: Wire, request: dict[str, Any]) -> Said:
        number = next(rounds)
        call = {"key": first_handle(request), "start": number}
        if number == 0:
            return [Call("recall", call, "r1"), Call("recall", {"key": "unknown"}, "r2")]
        if number == 1:
            return [Call("recall", call, "r3")]
        return [ANSWER]

    with serve(wire, script) as served:
        reply = wire.ask(served.gateway.url, [*long_history(wire), wire.user(QUESTION)])
        assert reply.text == ANSWER
    account = GatewayAccount()
    for line in served.gateway.events("answered"):  # the last one may be written after the answer
        account.read_event(line)
    results = [block for turn in wire.turns(served.api.requests[-1]) for block in turn["content"]]
    problems = [block.get("is_error", False) for block in results if "tool_use_id" in block]
    assert problems == [False, True, False]
    sizes = [len(json.dumps(request)) // 4 for request in served.api.requests]
    assert (account.calls, account.recalls) == (1, 2)
    assert account.table.sum("sum(tokens)") == sum(sizes)
    assert account.table.sum("sum(output)") == 27
    assert reply.usage == Usage(input=sizes[-1], output=27)
    assert ", 2 recalls;" in account.write_lines()[0]


@pytest.mark.parametrize(("recall", "shows_handles"), [("off", False), ("handles", True)])
def test_without_the_tool_handles_are_shown_only_to_a_client_that_has_one(
    recall: str,
    shows_handles: bool,  # noqa: FBT001 - a parameter of the test
    tmp_path: Path,
) -> None:
    wire = Wire("anthropic", streams=False)
    with serve(wire, lambda *_: ["Fine."], tmp_path / "gateway.db", recall=recall) as served:
        wire.ask(served.gateway.url, [*long_history(wire), wire.user("Thanks.")])
        assert len(served.gateway.events("cut")) == 1
    [request] = served.api.requests
    assert bool(HANDLE.search(flatten(request))) is shows_handles
    assert [tool["name"] for tool in request["tools"]] == ["read_file"]


def test_a_local_model_without_tools_gets_none() -> None:
    wire = Wire("ollama", streams=False)
    request = wire.request([*long_history(wire), wire.user("Thanks.")]) | {"stream": False}
    del request["tools"]
    with serve(wire, lambda *_: ["Fine."]) as served:
        post(f"{served.gateway.url}/api/chat", request)
        assert len(served.gateway.events("cut")) == 1
    assert "tools" not in served.api.requests[0]
    assert HANDLE.search(flatten(served.api.requests)) is None


def test_a_client_that_streams_hears_something_while_the_model_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KEEP_ALIVE_SECONDS", 0.05)
    wire = Wire("anthropic", streams=True)

    def script(wire: Wire, request: dict[str, Any]) -> Said:
        said = recall_once(wire, request)
        if said == [ANSWER]:
            time.sleep(0.5)
        return said

    request = wire.request([*long_history(wire), wire.user(QUESTION)]) | {"stream": True}
    with scripted_api(lambda request: script(wire, request)) as api:
        settings = settings_for(api.url, upstream=WINDOW)
        with gateway_in_thread(settings) as gateway:
            answer = post(f"{gateway.url}/v1/messages", request)
    started, _, rest = answer.partition("event: content_block_start")
    assert ": keepalive\n\n" in started
    assert "message_start" in started
    assert rest.rstrip("\n").endswith('{"type": "message_stop"}')


def test_an_upstream_that_fails_after_a_recall_is_told_to_the_client_which_may_ask_again() -> None:
    """A whole answer has the status of the error. The retry finds the conversation as it was."""
    wire = Wire("anthropic", streams=False)
    failures = iter([True, True])  # it is asked once more by itself

    def script(wire: Wire, request: dict[str, Any]) -> Said:
        said = recall_once(wire, request)
        if said == [ANSWER] and next(failures, False):
            raise ConnectionAbortedError
        return said

    history = [*long_history(wire), wire.user(QUESTION)]
    with serve(wire, script) as served:
        with pytest.raises(HTTPError) as failed:
            post(f"{served.gateway.url}/v1/messages", wire.request(history))
        assert failed.value.code == 502
        failed.value.close()
        assert wire.ask(served.gateway.url, history).text == ANSWER
        first, second, repeated, again, answered = served.api.requests
        assert (first, second, second) == (again, answered, repeated)


@pytest.mark.parametrize("name", ["anthropic", "openai_responses"])
def test_the_client_sees_the_reasoning_of_one_round_and_none_that_led_to_a_recall(name: str) -> None:
    """Reasoning without what it led to is refused by some APIs, and signatures bind what came before."""
    wire = Wire(name, streams=True)
    for before, visible in (
        ([Thought("a")], ["b"]),
        ([Thought("a"), "Let me look."], ["a"]),
        (["Let me look."], ["b"]),
    ):

        def script(wire: Wire, request: dict[str, Any], before: Said = before) -> Said:  # type: ignore[assignment]
            said = recall_once(wire, request, *before)  # type: ignore[arg-type]
            return [Thought("b"), ANSWER] if said == [ANSWER] else said

        history = [*long_history(wire), wire.user(QUESTION)]
        with serve(wire, script) as served:
            reply = wire.ask(served.gateway.url, history)
            seen = re.findall(r'(?:signed|sealed)-(.)"', flatten(reply.turns))
            assert seen in ([*visible], [*visible, *visible])  # the helper has it in two fields
            history += [*reply.turns, wire.user("Thanks.")]
            check_directly(wire, history)
            wire.ask(served.gateway.url, history)
            check_prefixes(wire, served.api.requests)
            assert '-b"' in flatten(served.api.requests[-1])
            assert ('-a"' in flatten(served.api.requests[-1])) is (Thought("a") in before)


class _Answer:
    """An upstream's answer in pieces, as far as the relay reads it."""

    status = 200

    def __init__(self, pieces: list[bytes], content_type: str) -> None:
        self._pieces = pieces
        self.headers = {"content-type": content_type}

    is_at_hand = True

    async def read(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


class _Fitter:
    """Remembers what it is given."""

    def __init__(self) -> None:
        self.exchanges: list[RecallExchange | None] = []

    async def add_turns(self, sent: OutgoingRequest, *_: object) -> OutgoingRequest:
        return sent

    async def record_exchange(self, *arguments: Any) -> None:
        self.exchanges.append(arguments[2])


async def relay_answers(
    dialect: Any, outgoing: OutgoingRequest | None, bodies: list[list[bytes]], content_type: str
) -> tuple[bytes, list[RecallExchange | None], OutgoingRequest | None]:
    """What the client gets of these answers, what is remembered of them, and what would be sent next."""
    taken = TakenAnswer()
    assert outgoing is not None
    fitter: Any = _Fitter()
    relay = RecallRelay(fitter, taken.writer, dialect, outgoing.own_names)
    for pieces in bodies:
        assert outgoing is not None
        answer: Any = _Answer(pieces, content_type)
        outgoing = await relay.relay(outgoing, answer, [], UsageReader(content_type.lower(), ""))
    return b"".join(taken.pieces), fitter.exchanges, outgoing


PLACE = RecallPlace(turns=1, segments=1, link=b"x")

SOUNDS: list[Said] = [
    [Thought("a"), "Let me look. ✓", Call("recall", {"key": "k1"}, "r1")],
    [Call("recall", {"key": "k2"}, "r2"), Call("recall", {"key": "k3"}, "r3")],
    ["Here é it is.", Call("read_file", {"path": "a"}, "c1"), Call("recall", {"key": "k4"}, "r4")],
]


@pytest.mark.parametrize("name", NAMES)
def test_answers_are_the_same_however_their_bytes_are_split(name: str) -> None:
    """Three rounds in random pieces: the client's bytes and what is remembered do not depend on them."""
    wire = Wire(name, streams=True)
    verb = {
        "anthropic": "messages",
        "openai_chat": "completions",
        "openai_responses": "responses",
        "gemini": "streamGenerateContent",
        "ollama": "chat",
    }[name]
    thoughts = name in ("anthropic", "openai_responses")
    sounds = [[one for one in said if thoughts or not isinstance(one, Thought)] for said in SOUNDS]
    bodies = ["".join(APIS[verb][1](said, 10)).encode() for said in sounds]
    request = wire.request([*long_history(wire), wire.user(QUESTION)]) | {"model": "m"}
    fitted = fit_request(
        request, dialect=name, budget=Budget(window=4_000, reserve=300), policy=Policy(recall="tool")
    )
    media_type = "application/x-ndjson" if name == "ollama" else "text/event-stream"
    outgoing = OutgoingRequest(fitted=fitted, place=PLACE)

    def relay(split: Callable[[bytes], list[bytes]], content_type: str = media_type) -> tuple[bytes, Any]:
        pieces = list(map(split, bodies))
        written, exchanges, following = asyncio.run(
            relay_answers(wire.dialect, outgoing, pieces, content_type)
        )
        assert following is None
        return written, exchanges

    chance = random.Random(name)  # noqa: S311 - for a test

    def split_anywhere(body: bytes) -> list[bytes]:
        places = sorted(chance.sample(range(1, len(body)), chance.choice((1, 5, 40))))
        return [body[start:end] for start, end in zip([0, *places], [*places, len(body)], strict=True)]

    expected = relay(lambda body: [body])
    assert b'"recall"' not in expected[0]
    assert "é".encode() in expected[0] or rb"\u00e9" in expected[0]
    assert relay(split_anywhere, f"{media_type.title()}; charset=UTF-8") == expected
    for _ in range(12):
        assert relay(split_anywhere) == expected


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_call_that_was_cut_off_beside_a_recall_ends_the_answer(name: str, *, streams: bool) -> None:
    """The upstream is not asked again, and the client sees its call and why the model stopped."""
    said: Said = ["See: ", truncated_calls.RECALL, truncated_calls.OWN]
    if streams:
        events = truncated_calls.list_events(name, said)
        truncated_calls.shorten_arguments(events, truncated_calls.OWN, 9)
    else:
        write, _ = APIS[truncated_calls.APIS_OF_DIALECTS[name]]
        events = [write(said, 10)]
    truncated_calls.set_stop_reason(events)
    texts = [json.dumps(event) for event in events]
    media_type = "application/json"
    body = texts[0]
    if streams:
        media_type = "application/x-ndjson" if name == "ollama" else "text/event-stream"
        frame = "{}\n" if name == "ollama" else "data: {}\n\n"
        body = "".join(map(frame.format, texts))
    outgoing = OutgoingRequest(fitted=truncated_calls.fit(name), place=PLACE)
    relaying = relay_answers(DIALECTS[name], outgoing, [[body.encode()]], media_type)
    written, _, following = asyncio.run(relaying)
    assert following is None
    shown = [json.loads(line.removeprefix("data: ")) for line in written.decode().split("\n") if line]
    assert truncated_calls.names_call(shown, truncated_calls.OWN)
    assert not truncated_calls.names_call(shown, truncated_calls.RECALL)
    assert truncated_calls.list_stops(shown) == truncated_calls.list_stops(events)


def test_a_filter_shows_text_that_came_with_the_end_of_a_round() -> None:
    """Some servers put the end of an answer into the chunk with its last text."""
    chat = filter_for(DIALECTS["openai_chat"], {"recall"})
    choice = {"index": 0, "delta": {"content": "Look."}, "finish_reason": "tool_calls"}
    assert chat.take({"id": "c", "choices": [choice]}) == []
    assert chat.next_round() == [{"id": "c", "choices": [choice | {"finish_reason": None}]}]


@pytest.mark.parametrize("index", [0, None])
def test_calls_of_a_server_that_does_not_number_them_are_told_apart_by_their_ids(index: int | None) -> None:
    def chunk(call_id: str, name: str) -> dict[str, Any]:
        call: dict[str, Any] = {"id": call_id, "function": {"name": name, "arguments": "{}"}}
        if index is not None:
            call["index"] = index
        return {"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}

    chat = filter_for(DIALECTS["openai_chat"], {"recall"})
    chunks = [
        chunk("r1", "recall"),
        chunk("c1", "read_file"),
        chunk("r2", "recall"),
        chunk("c2", "read_file"),
    ]
    shown_chunks = [shown for each in chunks for shown in chat.take(each)]
    calls = [each["choices"][0]["delta"]["tool_calls"][0] for each in shown_chunks]
    assert [call["id"] for call in calls] == ["c1", "c2"]
    if index is not None:
        assert [call["index"] for call in calls] == [0, 1]
    end = {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    assert chat.take(end) == []
    assert chat.closing[0]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("fields", "is_noted"), [({}, True), ({"store": True}, True), ({"store": False}, False)]
)
def test_only_an_answer_that_the_provider_stores_can_be_continued_by_its_id(
    fields: dict[str, Any], *, is_noted: bool
) -> None:
    wire = Wire("openai_responses", streams=True)
    request = wire.request([*long_history(wire), wire.user(QUESTION)]) | {"model": "m"}
    fitted = fit_request(
        request,
        dialect=wire.dialect.name,
        budget=Budget(window=4_000, reserve=300),
        policy=Policy(recall="tool"),
    )
    sounds: list[Said] = [[Call("recall", {"key": "k1"}, "r1")], ["Here it is."]]

    outgoing = OutgoingRequest(request=fields, fitted=fitted, place=PLACE)
    bodies = [["".join(APIS["responses"][1](said, 10)).encode()] for said in sounds]
    relaying = relay_answers(wire.dialect, outgoing, bodies, "text/event-stream")
    _, [exchange], _ = asyncio.run(relaying)
    assert exchange is not None
    assert bool(exchange.last_id) is is_noted
    assert bool(exchange.shown_id) is is_noted
