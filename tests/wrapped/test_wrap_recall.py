"""Recalls inside a call of a wrapped client: official SDKs, a scripted model, whole answers and streams."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anthropic
import openai
import pytest

import lamina
from lamina import BadInput, Budget, Policy
from lamina.conversations import recall_loop
from lamina.conversations.recall_answers import NOTICE, fill_stream
from lamina.core.tokens import BYTES4
from lamina.dialects import DIALECTS
from lamina.dialects.usage import find_usage
from lamina.fitting.policy import RecallChoice
from lamina.fitting.recalls import PIECE
from tests.sessions.talking import awaited
from tests.talking import all_of, entered, got
from tests.wrapped.scripted_api import Call, Said, Script, ScriptedApi, estimate_size, scripted_api

BUDGET = Budget(window=3_000, reserve=200, keep_last=1)
HANDLE = re.compile(r'recall[(=]\\*"([a-z0-9-]+)')
FACT = "The harbour opens at 05:41."


class Api(NamedTuple):
    """One SDK's endpoint, sync or async, and how histories are written there."""

    name: str
    is_async: bool

    @property
    def tool(self) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        if self.name == "messages":
            return {"name": "read_file", "input_schema": schema}
        if self.name == "responses":
            return {"type": "function", "name": "read_file", "parameters": schema}
        return {"type": "function", "function": {"name": "read_file", "parameters": schema}}

    def client(self, url: str, *, recall: RecallChoice = "auto", **options: Any) -> Any:
        module: Any = anthropic if self.name == "messages" else openai
        name = ("Async" if self.is_async else "") + ("Anthropic" if self.name == "messages" else "OpenAI")
        address = url if self.name == "messages" else f"{url}/v1"
        client = getattr(module, name)(base_url=address, api_key="none", max_retries=0)
        return lamina.wrap(
            client, budget=BUDGET, policy=Policy(counter=BYTES4, breakpoints="keep", recall=recall), **options
        )

    def request(self, history: list[Any]) -> dict[str, Any]:
        if self.name == "responses":
            return {"model": "gpt-5", "input": history, "tools": [self.tool]}
        limit = {"max_tokens": 100} if self.name == "messages" else {}
        model = "claude-opus-5-5" if self.name == "messages" else "gpt-4o"
        return {"model": model, "messages": history, "tools": [self.tool], **limit}

    def resource(self, client: Any) -> Any:
        return {
            "messages": lambda: client.messages,
            "completions": lambda: client.chat.completions,
            "responses": lambda: client.responses,
        }[self.name]()

    def results(self, ids: list[str], text: str) -> list[Any]:
        """The results of the client's own tools, as its next turns."""
        if self.name == "messages":
            blocks = [{"type": "tool_result", "tool_use_id": id_, "content": text} for id_ in ids]
            return [{"role": "user", "content": blocks}]
        if self.name == "responses":
            return [{"type": "function_call_output", "call_id": id_, "output": text} for id_ in ids]
        return [{"role": "tool", "tool_call_id": id_, "content": text} for id_ in ids]

    def turns(self, request: dict[str, Any]) -> list[Any]:
        turns: list[Any] = request["input" if self.name == "responses" else "messages"]
        return turns


APIS = [
    Api(name, is_async) for name in ("messages", "completions", "responses") for is_async in (False, True)
]


def name_api(api: Api) -> str:
    return f"{api.name}-{'async' if api.is_async else 'sync'}"


each_api = pytest.mark.parametrize("api", [APIS[0], APIS[3], APIS[4]], ids=name_api)
"""Each endpoint once; sync and async take turns."""


async def ask_whole(api: Api, client: Any, history: list[Any]) -> tuple[list[Any], str]:
    """The answer as turns for the history, and its text."""
    answer = await got(api.resource(client).create(**api.request(history)))
    return take_answer(api, answer)


def take_answer(api: Api, answer: Any) -> tuple[list[Any], str]:
    if api.name == "messages":
        text = "".join(block.text for block in answer.content if block.type == "text")
        return [{"role": "assistant", "content": answer.content}], text
    if api.name == "responses":
        return list(answer.output), answer.output_text
    message = answer.choices[0].message
    return [message], message.content or ""


async def ask_events(api: Api, client: Any, history: list[Any]) -> tuple[list[Any], str]:
    """The same with the events of a stream, of which only the text is used."""
    stream = await got(api.resource(client).create(**api.request(history), stream=True))
    events = await all_of(stream)
    if api.name == "messages":
        assert [event.type for event in events].count("message_start") == 1
        assert events[-1].type == "message_stop"
        deltas = [event.delta for event in events if event.type == "content_block_delta"]
        text = "".join(delta.text for delta in deltas if delta.type == "text_delta")
        return [{"role": "assistant", "content": text}], text
    if api.name == "responses":
        assert [event.type for event in events].count("response.created") == 1
        assert [event.sequence_number for event in events] == list(range(len(events)))
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        return [{"role": "assistant", "content": text}], text
    chunks = [event for event in events if event.choices]
    assert [chunk.choices[0].finish_reason for chunk in chunks].count("stop") == 1
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    return [{"role": "assistant", "content": text}], text


async def ask_helper(api: Api, client: Any, history: list[Any]) -> tuple[list[Any], str]:
    """The same with the SDK's helper, which puts the answer together."""

    class Speaker(NamedTuple):
        is_async: bool

    context = api.resource(client).stream(**api.request(history))
    async with entered(context, Speaker(api.is_async)) as stream:  # type: ignore[arg-type]
        if api.name == "messages":
            return take_answer(api, await got(stream.get_final_message()))
        if api.name == "responses":
            return take_answer(api, await got(stream.get_final_response()))
        return take_answer(api, await got(stream.get_final_completion()))


each_api_and_way = pytest.mark.parametrize(
    ("api", "ask"),
    [
        (Api(name, is_async=(row + column) % 2 == 1), ask)
        for row, name in enumerate(("messages", "completions", "responses"))
        for column, ask in enumerate((ask_whole, ask_events, ask_helper))
    ],
)
"""Each endpoint in each way; sync and async take turns."""


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def flatten(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)


def ends_with_recalled(api: Api, request: dict[str, Any]) -> bool:
    """Whether the last turn brings the secret back."""
    last = flatten(api.turns(request)[-1])
    return FACT in last and "harbour?" not in last


def remembering(api: Api, before: str = "") -> Callable[[dict[str, Any]], Said]:
    """A model that recalls the first handle that it sees when it is asked about the harbour."""
    calls = iter(range(1000))

    def script(request: dict[str, Any]) -> Said:
        last = flatten(api.turns(request)[-1])
        if "harbour?" in last:
            handles = HANDLE.findall(flatten(request))
            said: Said = [Call("recall", {"key": handles[0], "find": "opens at"}, f"r{next(calls)}")]
            return [before, *said] if before else said
        if ends_with_recalled(api, request):
            return [f"It says: {FACT}"]
        return [long_answer(last)]

    return script


def long_answer(last: str) -> str:
    """What the model says otherwise. Its first answer holds the fact."""
    if "Part 0?" in last:
        return f"{FACT} " + "Go on. " * 240
    if "art " not in last:
        return "Fine."
    return "Go on. " * 240


@asynccontextmanager
async def recalling(
    api: Api, script: Script, *, ask: Any = None, **options: Any
) -> AsyncIterator[tuple[ScriptedApi, Any, list[Any]]]:
    """What was served, a client, and a history of which a cut has lowered the first answer."""
    with scripted_api(script) as served:
        client = api.client(served.url, **options)
        history: list[Any] = []
        await fill(api, ask or ask_whole, client, history, 9)
        yield served, client, history
        await close(client)


async def fill(api: Api, ask: Any, client: Any, history: list[Any], turns: int) -> None:
    """Talk until the first answer has been lowered. Only the first and the last turn are asked for."""
    for turn in range(turns):
        history.append(user(f"Part {turn}?"))
        if 0 < turn < turns - 1:
            history.append({"role": "assistant", "content": long_answer(f"Part {turn}?")})
            continue
        answer, _ = await ask(api, client, history)
        history += answer


def prefixes_hold(api: Api, requests: list[dict[str, Any]], start: int) -> None:
    """Every request from `start` on continues the one before it, unless a cut came between."""
    for before, after in zip(requests[start:], requests[start + 1 :], strict=False):
        turns, later = api.turns(before), api.turns(after)
        assert later[: len(turns)] == turns
        assert before["tools"] == after["tools"]


@each_api_and_way
@awaited
async def test_the_model_gets_the_text_and_the_client_only_the_answer(api: Api, ask: Any) -> None:
    async with recalling(api, remembering(api), ask=ask) as (served, client, history):
        assert all(HANDLE.search(flatten(r)) is None for r in served.requests if len(r["tools"]) == 1)
        start = len(served.requests)
        history.append(user("When opens the harbour?"))
        answer, text = await ask(api, client, history)
        assert text == f"It says: {FACT}"
        assert len(served.requests) == start + 2
        history += [*answer, user("Thanks.")]
        await ask(api, client, history)
        assert len(served.requests) == start + 3
        prefixes_hold(api, served.requests, start)
        tools = [flatten(request["tools"][-1]) for request in served.requests]
        first = next(index for index, tool in enumerate(tools) if '"recall"' in tool)
        assert 0 < first < start
        assert all('"recall"' in tool for tool in tools[first:])
        assert '"recall"' not in flatten(history)


async def close(client: Any) -> None:
    await got(client.close())


@each_api
@awaited
async def test_the_client_sees_what_was_written_in_all_rounds_since_it_pays_for_all(api: Api) -> None:
    """Its input is that of the last round, by which a client decides when to compact its history."""
    async with recalling(api, remembering(api)) as (served, client, history):
        before = len(served.requests)
        history.append(user("When opens the harbour?"))
        answer = await got(api.resource(client).create(**api.request(history)))
        assert len(served.requests) == before + 2
        usage = find_usage(answer)
        assert usage.output == 2 * 9
        assert usage.input == estimate_size(served.requests[-1])


@each_api_and_way
@awaited
async def test_what_the_model_says_before_a_recall_is_put_back_in_its_place(api: Api, ask: Any) -> None:
    async with recalling(api, remembering(api, "Let me look."), ask=ask) as (served, client, history):
        start = len(served.requests)
        history.append(user("When opens the harbour?"))
        answer, text = await ask(api, client, history)
        assert text.endswith(f"It says: {FACT}")
        history += [*answer, user("Thanks.")]
        await ask(api, client, history)
        prefixes_hold(api, served.requests, start)
        assert flatten(served.requests[-1]).count("Let me look.") == 1


@pytest.mark.parametrize("named", [True, False])
@awaited
async def test_a_recall_is_put_back_only_under_its_own_system_text(named: bool) -> None:  # noqa: FBT001
    """Whoever goes on under the first system text has it still."""
    api = APIS[0]
    with scripted_api(remembering(api)) as served:
        client = api.client(served.url)
        if named:
            client = client.conversation("harbour")
        history: list[Any] = []
        await fill(api, ask_whole, client, history, 9)
        history.append(user("When opens the harbour?"))
        answer, _ = await ask_whole(api, client, history)
        history += [*answer, user("Thanks.")]
        client.messages.create(**api.request(history), system="It is noon.")
        assert '"name": "recall"' not in flatten(api.turns(served.requests[-1]))
        client.messages.create(**api.request(history))
        assert '"name": "recall"' in flatten(api.turns(served.requests[-1]))


def mixed(api: Api) -> Callable[[dict[str, Any]], Said]:
    """A model that recalls something and reads a file in one answer."""

    def script(request: dict[str, Any]) -> Said:
        last = flatten(api.turns(request)[-1])
        if "harbour?" in last:
            handles = HANDLE.findall(flatten(request))
            return [
                Call("recall", {"key": handles[0], "find": "opens at"}, "r1"),
                Call("read_file", {"path": "a.txt"}, "c1"),
            ]
        if "content of a.txt" in last:
            return ["Both: " + ("yes" if FACT in flatten(api.turns(request)[-3:]) else "no")]
        return [long_answer(flatten(api.turns(request)[-1]))]

    return script


@pytest.mark.parametrize("ask", [ask_whole, ask_helper])
@each_api
@awaited
async def test_a_recall_beside_a_call_of_the_client_is_answered_with_the_clients_result(
    api: Api, ask: Any
) -> None:
    async with recalling(api, mixed(api), ask=ask) as (served, client, history):
        start = len(served.requests)
        history.append(user("When opens the harbour?"))
        answer, _ = await ask(api, client, history)
        assert len(served.requests) == start + 1
        shown = flatten([a if isinstance(a, dict) else a.model_dump(mode="json") for a in plain(answer)])
        assert "read_file" in shown
        assert '"recall"' not in shown
        history += [*answer, *api.results(["c1"], "content of a.txt")]
        answer, text = await ask(api, client, history)
        assert text == "Both: yes"
        history += [*answer, user("Thanks.")]
        await ask(api, client, history)
        prefixes_hold(api, served.requests, start)


def plain(turns: list[Any]) -> Iterator[Any]:
    for turn in turns:
        if isinstance(turn, dict):
            content = turn["content"]
            if not isinstance(content, str):
                content = [block.model_dump(mode="json") for block in content]
            yield {**turn, "content": content}
        else:
            yield turn


@pytest.mark.parametrize("name", ["messages", "completions", "responses"])
@pytest.mark.parametrize(("ask", "is_async"), [(ask_whole, False), (ask_events, True), (ask_helper, False)])
@awaited
async def test_a_model_that_only_recalls_is_stopped_and_its_client_reads_why(
    name: str,
    ask: Any,
    is_async: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer waits for no tool, is not empty, and can be part of the history."""
    api = Api(name, is_async)
    monkeypatch.setattr(recall_loop, "ROUNDS", 2)
    numbers = iter(range(1000))

    def script(request: dict[str, Any]) -> Said:
        handles = HANDLE.findall(flatten(request))
        if "harbour?" in flatten(request) and "Thanks." not in flatten(request):
            return [Call("recall", {"key": handles[0], "find": "opens at"}, f"r{next(numbers)}")]
        return [long_answer(flatten(api.turns(request)[-1]))]

    async with recalling(api, script, ask=ask) as (served, client, history):
        start = len(served.requests)
        history.append(user("When opens the harbour?"))
        answer, text = await ask(api, client, history)
        assert text == NOTICE
        assert len(served.requests) == start + 4
        assert "times in a row" in flatten(served.requests[-1])
        history += [*answer, user("Thanks.")]
        await ask(api, client, history)
        prefixes_hold(api, served.requests, start)
        assert NOTICE in flatten(served.requests[-1])


def test_the_notice_in_a_stream_does_not_repeat_its_usage() -> None:
    fields: dict[str, Any] = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    end = {**fields, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    last = {**fields, "choices": [], "usage": usage}
    chunks = fill_stream([end, last], DIALECTS["openai_chat"], index=0)
    assert ["usage" in chunk for chunk in chunks] == [False, False, True]
    assert chunks[0]["choices"][0]["delta"]["content"] == NOTICE
    assert chunks[1:] == [end, last]


@each_api
@awaited
async def test_a_raw_response_has_no_recall_in_what_it_parses(api: Api) -> None:
    """Other libraries call `with_raw_response`, to have the headers beside the answer."""
    async with recalling(api, mixed(api)) as (_served, client, history):
        history.append(user("When opens the harbour?"))
        raw_resource = api.resource(client).with_raw_response
        whole = await got(raw_resource.create(**api.request(history)))
        assert whole.headers["content-type"] == "application/json"
        answers = [whole.parse()]
        stream = await got(raw_resource.create(**api.request(history), stream=True))
        answers += await all_of(stream.parse())
        shown = flatten([answer.model_dump(mode="json") for answer in answers])
        assert shown.count('"read_file"') >= 2
        assert '"recall"' not in shown


@pytest.mark.parametrize("name", ["messages", "completions", "responses"])
@awaited
async def test_a_raw_response_is_that_of_the_last_answer(name: str) -> None:
    api = Api(name, is_async=False)

    async with recalling(api, remembering(api)) as (_served, client, history):
        history.append(user("When opens the harbour?"))
        raw_resource = api.resource(client).with_raw_response
        _, text = take_answer(api, raw_resource.create(**api.request(history)).parse())
        assert text == f"It says: {FACT}"
        events = list(raw_resource.create(**api.request(history), stream=True).parse())
        shown = flatten([event.model_dump(mode="json") for event in events])
        assert "It says: " in shown
        assert '"recall"' not in shown


@awaited
async def test_a_caller_who_reads_the_bytes_of_an_answer_gets_no_recall_in_them() -> None:
    api = Api("completions", is_async=False)

    async with recalling(api, remembering(api)) as (served, client, history):
        history.append(user("When opens the harbour?"))
        with api.resource(client).with_streaming_response.create(**api.request(history)) as response:
            message = response.json()["choices"][0]["message"]
        assert message == {"role": "assistant", "content": f"It says: {FACT}"}
        assert FACT in flatten(served.requests[-1])


@pytest.mark.parametrize("api", [Api("responses", is_async=is_async) for is_async in (False, True)])
@awaited
async def test_after_a_stream_that_recalled_a_client_goes_on_from_the_last_answer(api: Api) -> None:
    async with recalling(api, remembering(api)) as (served, client, history):
        history.append(user("When opens the harbour?"))
        events = await all_of(await got(client.responses.create(**api.request(history), stream=True)))
        shown_id = events[-1].response.id
        assert {event.response.id for event in events if hasattr(event, "response")} == {shown_id}
        request = api.request([user("Thanks.")])
        await got(client.responses.create(**request, previous_response_id=shown_id))
        number = int(shown_id.removeprefix("resp_"))
        assert served.requests[-1]["previous_response_id"] not in (shown_id, f"resp_{number - 1}")


async def each(stream: Any) -> AsyncIterator[Any]:
    """The events of a stream, of a sync client or an async one."""
    if hasattr(stream, "__aiter__"):
        async for event in stream:
            yield event
        return
    for event in stream:
        yield event


@pytest.mark.parametrize("streams", [False, True])
@awaited
async def test_a_client_goes_on_by_id_after_a_recall_beside_its_own_call(streams: bool) -> None:  # noqa: FBT001
    """The API waits for the result of the recall as well, and the client knows nothing of it."""
    api = Api("responses", is_async=False)

    def script(request: dict[str, Any]) -> Said:
        last = flatten(api.turns(request)[-1])
        if "harbour?" not in last:
            return [long_answer(last)]
        recall = Call("recall", {"key": HANDLE.findall(flatten(request))[0], "find": "opens at"}, "r1")
        return [recall, Call("read_file", {"path": "a.txt"}, "c1")]

    async with recalling(api, script) as (served, client, history):
        request = api.request([*history, user("When opens the harbour?")])
        if streams:
            answer = list(client.responses.create(**request, stream=True))[-1].response
        else:
            answer = client.responses.create(**request)
        [call] = answer.output
        results = api.results([call.call_id], "text")
        client.responses.create(**api.request(results), previous_response_id=answer.id)
        recalled, own_result = served.requests[-1]["input"]
        assert (recalled["call_id"], own_result["call_id"]) == ("r1", "c1")
        assert FACT in recalled["output"]


@awaited
async def test_with_recall_off_no_handle_is_shown_and_no_tool_is_added() -> None:
    api = Api("completions", is_async=False)

    async with recalling(api, lambda _: ["Go on. " * 240], recall="off") as (served, client, _history):
        assert client.fitted.ledger.cuts
        assert all(len(request["tools"]) == 1 for request in served.requests)
        assert HANDLE.search(flatten(served.requests)) is None
        assert "[shortened]" in flatten(served.requests) or "<digest covers" in flatten(served.requests)


def test_a_clients_own_recall_tool_is_left_alone() -> None:
    request = {
        "model": "gpt-4o",
        "messages": [user("Hi"), *([{"role": "assistant", "content": "x " * 900}, user("And?")] * 5)],
        "tools": [{"type": "function", "function": {"name": "recall", "parameters": {"type": "object"}}}],
    }
    fitted = lamina.fit_request(
        request,
        budget=Budget(window=1_500, reserve=100, keep_last=1),
        policy=Policy(counter=BYTES4, recall="tool"),
    )
    assert fitted.ledger.cuts
    assert not fitted.has_recall
    assert fitted.recall_tool is None
    assert HANDLE.search(flatten(fitted.request)) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"config": {"candidate_count": 2}},
        {"generationConfig": {"candidateCount": 2}},
        {"tools": [{"google_search": {}}]},
        {"cachedContent": "cachedContents/1"},
    ],
    ids=str,
)
def test_gemini_gets_no_recall_tool_that_it_would_refuse_or_that_nobody_could_answer(
    fields: dict[str, Any],
) -> None:
    def turn(role: str, text: str) -> dict[str, Any]:
        return {"role": role, "parts": [{"text": text}]}

    contents = [turn("user", "Hi"), *[turn("model", "x " * 900), turn("user", "And?")] * 9]
    request = {"model": "gemini-3.8-flash", "contents": contents}
    with_tool = lamina.fit_request(request, budget=BUDGET, policy=Policy(counter=BYTES4, recall="tool"))
    assert with_tool.has_recall
    fitted = lamina.fit_request(
        request | fields, budget=BUDGET, policy=Policy(counter=BYTES4, recall="tool"), ledger=with_tool.ledger
    )
    assert fitted.ledger.cuts
    assert not fitted.has_recall
    assert HANDLE.search(flatten(fitted.request)) is None


READ = {"name": "read", "parametersJsonSchema": {"type": "object"}}
SEARCH: dict[str, Any] = {"googleSearch": {}}


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"tools": [{"functionDeclarations": [READ]}]}, (0, "functionDeclarations", 1)),
        ({"tools": [{"function_declarations": [READ]}]}, (0, "function_declarations", 1)),
        ({"tools": [{"functionDeclarations": [READ]}, SEARCH]}, (0, "functionDeclarations", 1)),
        ({"config": {"tools": [{"functionDeclarations": [READ]}]}}, (0, "functionDeclarations", 1)),
        ({"generationConfig": {"temperature": 0}}, (0, "functionDeclarations", 0)),
        ({"config": {"temperature": 0}}, (0, "function_declarations", 0)),
    ],
)
def test_gemini_gets_the_recall_tool_among_the_clients_functions_and_in_their_spelling(
    fields: dict[str, Any], place: tuple[int, str, int]
) -> None:
    """Vertex refuses a second object with functions, and some proxies read one spelling only."""
    contents: list[Any] = [{"role": "user", "parts": [{"text": "Go."}]}]
    for step in range(12):
        call = {"functionCall": {"name": "read", "args": {"part": step}}}
        result = {"functionResponse": {"name": "read", "response": {"output": f"line {step} " * 600}}}
        contents += [{"role": "model", "parts": [call]}, {"role": "user", "parts": [result]}]
    request = {"model": "gemini-3.1-pro-preview", "contents": contents} | fields
    policy = Policy(budget=Budget(window=12_000, reserve=1_000), recall="tool")
    fitted = lamina.fit_request(request, policy=policy)
    holder = fitted.request.get("config", fitted.request)
    index, name, position = place
    assert len(holder["tools"]) == max(len(fields.get("tools", ())), 1)
    declaration = holder["tools"][index][name][position]
    assert declaration["name"] == "recall"
    schema = "parametersJsonSchema" if name == "functionDeclarations" else "parameters_json_schema"
    assert schema in declaration
    assert fitted.recall_tool is not None
    assert lamina.fit_request(request, ledger=fitted.ledger, policy=policy).request == fitted.request


def test_a_request_for_several_choices_has_no_recall_tool() -> None:
    """One choice could recall something while another one has answered."""
    messages = [user("Hi"), *([{"role": "assistant", "content": "x " * 900}, user("And?")] * 9)]
    request = {"model": "gpt-4o", "messages": messages}
    one = lamina.fit_request(request | {"n": 1}, budget=BUDGET, policy=Policy(counter=BYTES4, recall="tool"))
    several = lamina.fit_request(
        request | {"n": 2}, budget=BUDGET, policy=Policy(counter=BYTES4, recall="tool")
    )
    assert (one.has_recall, several.has_recall) == (True, False)
    assert HANDLE.search(flatten(several.request)) is None


def test_a_word_that_is_no_mode_of_recall_is_refused() -> None:
    with pytest.raises(BadInput, match="recall is 'yes'"):
        lamina.fit_request({"model": "gpt-4o", "messages": [user("Hi")]}, policy=Policy(recall="yes"))  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="use one of 'auto', 'handles', 'tool', 'off'"):
        lamina.wrap(openai.OpenAI(api_key="none"), policy=Policy(recall=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("api", [a for a in APIS if not a.is_async], ids=lambda api: api.name)
def test_fit_request_gives_the_tool_and_answers_its_calls(api: Api) -> None:
    history = [user("Hi"), {"role": "assistant", "content": FACT}, user("And?")]
    for turn in range(12):
        history += [{"role": "assistant", "content": "Go on. " * 240}, user(f"Part {turn}?")]
    request = api.request(history)
    fitted = lamina.fit_request(request, budget=BUDGET, policy=Policy(counter=BYTES4))
    key = HANDLE.findall(flatten(fitted.request))[0]
    assert fitted.recall_tool is not None
    assert '"recall"' in flatten(fitted.recall_tool)
    calls: dict[str, dict[str, Any]] = {
        "messages": {"type": "tool_use", "id": "r1", "name": "recall", "input": {"key": key}},
        "completions": {"id": "r1", "function": {"name": "recall", "arguments": json.dumps({"key": key})}},
        "responses": {"call_id": "r1", "name": "recall", "arguments": json.dumps({"key": key})},
    }
    answer = fitted.answer(calls[api.name])
    recalled = fitted.recall(key)
    assert FACT in recalled
    assert any(text.endswith(recalled[:PIECE]) for text in texts_in(answer))
    unknown = fitted.answer({"id": "r2", "name": "recall", "input": {"key": "nosuch"}})
    assert "nosuch" in flatten(unknown)
    short = lamina.fit_request(api.request([user("Hi")]), budget=BUDGET, policy=Policy(counter=BYTES4))
    assert short.recall_tool is None


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from texts_in(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from texts_in(one)
