"""Events of every client: from scripts in each dialect's words, and from a real server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import anthropic
import anyio
import openai
import pytest

from lamina.clients import (
    Busy,
    CallEvent,
    CallFailed,
    Client,
    Denied,
    Event,
    RequestRefused,
    StopEvent,
    TextEvent,
    ThinkingEvent,
    Unreachable,
    UsageEvent,
    anthropic_messages,
    client_for,
    gemini_content,
    ollama_chat,
    openai_chat,
    openai_responses,
)
from lamina.clients.anthropic import MESSAGES_FORMAT
from lamina.clients.events import SdkClient, StreamFormat, read_end
from lamina.clients.failures import failure, map_error
from lamina.clients.gemini import CONTENT_FORMAT
from lamina.clients.ollama import CHAT_FORMAT as OLLAMA_FORMAT
from lamina.clients.openai import CHAT_FORMAT, RESPONSES_FORMAT
from lamina.core import ToolCall
from lamina.dialects import DIALECTS
from lamina.errors import BadInput, LaminaError
from lamina.testing import ScriptedAnswer, ScriptedClient
from lamina.testing.model_server import MODEL, ModelServer, run_model_server
from tests.sessions.talking import awaited
from tests.talking import refusing

SPOKEN = ("openai_chat", "openai_responses", "anthropic", "gemini", "ollama")
MESSAGES = [{"role": "user", "content": "Say a word"}]


async def heard(client: Client, request: dict[str, Any]) -> tuple[list[Event], list[Any]]:
    async with client.send(request) as reply:
        events = [event async for event in reply]
    return events, reply.raw


def joined(events: list[Event], sort: type[TextEvent | ThinkingEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, sort))


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with run_model_server(window=1024) as running:
        yield running


@pytest.mark.parametrize("dialect", SPOKEN)
@awaited
async def test_events_and_the_raw_answer_say_the_same(dialect: str) -> None:
    calls = (
        CallEvent(id="c1", name="read", arguments='{"path": "a"}'),
        CallEvent(id="c2", name="ls", arguments="{}"),
    )
    used = UsageEvent(input=50, cached=20 if dialect != "ollama" else 0, output=7)
    if dialect == "anthropic":
        used = UsageEvent(input=50, cached=20, written=9, written_long=4, output=7)
    line = ScriptedAnswer(text="Two words.", thinking="Let me see.", calls=calls, used=used)
    events, raw = await heard(ScriptedClient([line], dialect=dialect), {})
    assert joined(events, TextEvent) == "Two words."
    assert joined(events, ThinkingEvent) == "Let me see."
    call_events = [event for event in events if isinstance(event, CallEvent)]
    called = [(event.name, json.loads(event.arguments)) for event in call_events]
    assert called == [("read", {"path": "a"}), ("ls", {})]
    assert events[-2:] == [used, StopEvent(reason="tool", reported=events[-1].reported)]  # type: ignore[union-attr]
    absorbed = DIALECTS[dialect].answers.absorb_stream(raw)
    calls_absorbed = [part for one in absorbed.segments for part in one.parts if isinstance(part, ToolCall)]
    assert [CallEvent(id=part.id, name=part.name, arguments=part.arguments) for part in calls_absorbed] == (
        call_events
    )
    assert (absorbed.usage.input, absorbed.usage.cached, absorbed.usage.output) == (50, used.cached, 7)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("dialect", ["openai_chat", "openai_responses", "anthropic"])
@awaited
async def test_a_real_server_is_heard_word_by_word(dialect: str, own: bool, server: ModelServer) -> None:  # noqa: FBT001
    clients: dict[str, Any] = {
        "openai_chat": openai_chat,
        "openai_responses": openai_responses,
        "anthropic": anthropic_messages,
    }
    url = server.url if dialect == "anthropic" else f"{server.url}/v1"
    sdk: Any = anthropic.AsyncAnthropic if dialect == "anthropic" else openai.AsyncOpenAI
    own_client: Any = sdk(base_url=url, api_key="none", max_retries=0) if own else None
    request: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "max_tokens": 8}
    if dialect == "openai_responses":
        request = {"model": MODEL, "input": "Say a word", "max_output_tokens": 8}
    client: SdkClient = (
        clients[dialect](own_client) if own else clients[dialect](base_url=url, api_key="none")
    )
    async with client:
        events, raw = await heard(client, request | {"cache_prompt": True})
    if own:
        await own_client.close()
    text = joined(events, TextEvent)
    assert len(text) >= 4
    assert len([event for event in events if isinstance(event, TextEvent)]) > 1
    (used,) = [event for event in events if isinstance(event, UsageEvent)]
    assert used.input > 10
    assert used.output >= 4
    assert isinstance(events[-1], StopEvent)
    assert events[-1].reason == ("length" if dialect != "openai_responses" else events[-1].reason)
    assert text in json.dumps(
        [
            part.text
            for one in DIALECTS[dialect].answers.absorb_stream(raw).segments
            for part in one.parts
            if hasattr(part, "text")
        ]
    )


@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic"])
@awaited
async def test_a_real_server_that_refuses_says_why(dialect: str, server: ModelServer) -> None:
    url = server.url if dialect == "anthropic" else f"{server.url}/v1"
    long = [{"role": "user", "content": "word " * 900}]
    async with client_for(dialect, base_url=url, api_key="none") as client:
        with pytest.raises(RequestRefused) as caught:
            await heard(client, {"model": MODEL, "messages": long, "max_tokens": 8})
    from lamina.dialects.overflow import read_overflow  # noqa: PLC0415 - what reads the words of the error

    reported = read_overflow(caught.value.status, caught.value.said)
    assert reported is not None
    assert reported.limit == 1024


@awaited
async def test_a_stream_that_is_left_early_is_closed_and_the_server_answers_the_next_one(
    server: ModelServer,
) -> None:
    async with openai_chat(base_url=f"{server.url}/v1", api_key="none") as client:
        request = {"model": MODEL, "messages": MESSAGES, "max_tokens": 500}
        with anyio.CancelScope() as scope:
            async with client.send(request) as reply:
                async for event in reply:
                    if isinstance(event, TextEvent):
                        scope.cancel()
        assert 0 < len(reply.raw) < 400
        with anyio.fail_after(20):
            events, _ = await heard(client, request | {"max_tokens": 4})
        assert isinstance(events[-1], StopEvent)


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, Denied), (403, Denied), (429, Busy), (529, Busy), (404, RequestRefused), (500, CallFailed)],
)
@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic"])
@awaited
async def test_statuses_of_real_sdks_become_one_tree(
    dialect: str, status: int, error: type[CallFailed]
) -> None:
    with refusing(status, "too bad") as (url, _):
        sdk: Any = anthropic.AsyncAnthropic if dialect == "anthropic" else openai.AsyncOpenAI
        async with sdk(base_url=url, api_key="none", max_retries=0) as own_client:
            with pytest.raises(error, match="too bad") as caught:
                await heard(
                    client_for(dialect, own_client), {"model": "m", "messages": MESSAGES, "max_tokens": 1}
                )
    assert type(caught.value) is error
    assert caught.value.status == status
    assert isinstance(caught.value, LaminaError)
    assert isinstance(caught.value.__cause__, Exception)


@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic", "ollama"])
@awaited
async def test_a_server_that_is_not_there_is_unreachable(dialect: str) -> None:
    sdks: Any = {"openai_chat": openai.AsyncOpenAI, "anthropic": anthropic.AsyncAnthropic}
    url = "http://127.0.0.1:9"
    own_client = sdks[dialect](base_url=url, api_key="none", max_retries=0) if dialect in sdks else None
    client = client_for(dialect, own_client, base_url=url)
    with pytest.raises(Unreachable):
        await heard(
            client, {"model": "m", "messages": MESSAGES} | ({} if dialect == "ollama" else {"max_tokens": 1})
        )
    if own_client is not None:
        await own_client.close()
    await client.aclose()


class Aio:
    """An SDK's async function that notes its arguments and streams these items."""

    def __init__(self, *items: Any) -> None:
        self.items, self.given, self.closed = items, dict[str, Any](), False

    async def __call__(self, **arguments: Any) -> AsyncIterator[Any]:
        self.given = arguments
        return self._flow()

    async def _flow(self) -> AsyncIterator[Any]:
        try:
            for item in self.items:
                await asyncio.sleep(0)
                yield item
        finally:
            self.closed = True


@awaited
async def test_gemini_is_read_from_the_sdks_own_objects() -> None:
    from google.genai import types  # noqa: PLC0415 - slow to import, and for this test only

    def chunk(*parts: types.Part, stop: Any = None, usage: Any = None) -> Any:
        content = types.Content(role="model", parts=list(parts))
        candidate = types.Candidate(content=content, finish_reason=stop)
        return types.GenerateContentResponse(candidates=[candidate], usage_metadata=usage)

    usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=9, candidates_token_count=3)
    call = types.FunctionCall(id="c", name="read", args={"path": "ä"})
    flow = Aio(
        chunk(types.Part(text="Hm.", thought=True)),
        chunk(types.Part(text="Yes")),
        chunk(types.Part(function_call=call), stop=types.FinishReason.STOP, usage=usage),
    )
    models = SimpleNamespace(generate_content_stream=flow)
    client = gemini_content(SimpleNamespace(aio=SimpleNamespace(models=models)))
    request = {"model": "gemini-3-pro", "contents": [], "config": {}}
    events, raw = await heard(client, request)
    assert flow.given == request
    assert events == [
        ThinkingEvent("Hm."),
        TextEvent("Yes"),
        CallEvent(id="c", name="read", arguments='{"path":"ä"}'),
        UsageEvent(input=9, output=3),
        StopEvent(reason="tool", reported="STOP"),
    ]
    assert DIALECTS["gemini"].answers.absorb_stream(raw).stop == "STOP"


@awaited
async def test_ollama_is_read_from_the_sdks_own_objects_and_told_the_window() -> None:
    import ollama  # noqa: PLC0415 - for this test only

    call = ollama.Message.ToolCall(
        function=ollama.Message.ToolCall.Function(name="read", arguments={"path": "a"})
    )
    message = ollama.Message(role="assistant", content="Yes", thinking="Hm.", tool_calls=[call])
    flow = Aio(
        ollama.ChatResponse(message=message),
        {"message": {"content": ""}, "done": True, "done_reason": "stop"}
        | {"prompt_eval_count": 9, "eval_count": 3},
    )
    client = ollama_chat(SimpleNamespace(chat=flow), window=9_000)
    request = {"model": "m", "messages": MESSAGES, "truncate": False, "stream": False, "options": {"seed": 1}}
    events, raw = await heard(client, request)
    assert flow.given == {
        "model": "m",
        "messages": MESSAGES,
        "options": {"num_ctx": 9_000, "seed": 1},
        "stream": True,
    }
    assert events[-2:] == [UsageEvent(input=9, output=3), StopEvent(reason="tool", reported="stop")]
    assert events[:3] == [
        ThinkingEvent("Hm."),
        TextEvent("Yes"),
        CallEvent(id="call_0_read", name="read", arguments='{"path":"a"}'),
    ]
    assert DIALECTS["ollama"].answers.absorb_stream(raw).usage.input == 9


@pytest.mark.parametrize("dialect", ["gemini", "openai_chat"])
@awaited
async def test_leaving_a_reply_closes_the_sdks_stream(dialect: str) -> None:
    flow = Aio({"choices": [{"delta": {"content": "a"}}]}, {"candidates": []}, {}, {})
    spaces: dict[str, Any] = {
        "gemini": SimpleNamespace(models=SimpleNamespace(generate_content_stream=flow)),
        "openai_chat": SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=flow))),
    }
    async with client_for(dialect, spaces[dialect]).send({}) as reply:
        async for _ in reply:
            break
    assert flow.closed


def chat_chunk(*calls: dict[str, Any], stop: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"tool_calls": list(calls)}, "finish_reason": stop}]}


def piece(index: int | None, id_: str | None, name: str | None, arguments: str) -> dict[str, Any]:
    return {"index": index, "id": id_, "function": {"name": name, "arguments": arguments}}


def more(index: int | None, arguments: str) -> dict[str, Any]:
    return piece(index, None, None, arguments)


def test_calls_in_pieces_are_told_apart_even_where_a_server_gives_one_index_to_all() -> None:
    flows = (
        [piece(0, "a", "read", '{"x"'), piece(1, "b", "ls", "{"), more(0, ": 1}"), more(1, "}")],
        [piece(0, "a", "read", '{"x": 1}'), piece(0, "b", "ls", "{}")],
        [piece(None, "a", "read", '{"x"'), more(None, ": 1}"), piece(None, "b", "ls", "{}")],
    )
    for flow in flows:
        chunks = [chat_chunk(one) for one in flow]
        for chunk in chunks:
            assert list(CHAT_FORMAT.read_pieces(chunk)) == []
        calls = [event for event in read_end(chunks, CHAT_FORMAT) if isinstance(event, CallEvent)]
        assert [(call.id, call.name, call.arguments) for call in calls] == [
            ("a", "read", '{"x": 1}'),
            ("b", "ls", "{}"),
        ]


@pytest.mark.parametrize(
    ("stream_format", "said"), [(CHAT_FORMAT, ""), (RESPONSES_FORMAT, ""), (MESSAGES_FORMAT, "error")]
)
def test_a_stream_that_ends_without_a_word_did_not_end_well(stream_format: StreamFormat, said: str) -> None:
    assert read_end([], stream_format) == [StopEvent(reason="error", reported=said)]


def test_a_blocked_prompt_is_refused_and_a_stop_without_a_word_is_an_end() -> None:
    blocked = {"promptFeedback": {"blockReason": "OTHER"}, "usageMetadata": {"promptTokenCount": 9}}
    assert read_end([blocked], CONTENT_FORMAT) == [
        UsageEvent(input=9),
        StopEvent(reason="refused", reported="SAFETY"),
    ]
    silent = {"message": {"role": "assistant", "content": "Yes"}, "done": True}
    assert read_end([silent], OLLAMA_FORMAT) == [StopEvent(reason="end", reported="stop")]


@pytest.mark.parametrize(
    ("stream_format", "item", "error"),
    [
        (CHAT_FORMAT, {"error": {"code": 429, "message": "slow down"}}, Busy),
        (
            MESSAGES_FORMAT,
            {"type": "error", "error": {"type": "overloaded_error", "message": "slow down"}},
            Busy,
        ),
        (RESPONSES_FORMAT, {"type": "error", "code": "rate_limit_exceeded", "message": "slow down"}, Busy),
        (
            RESPONSES_FORMAT,
            {
                "type": "response.failed",
                "response": {
                    "status": "failed",
                    "error": {"code": "context_length_exceeded", "message": "slow down"},
                },
            },
            RequestRefused,
        ),
    ],
)
def test_an_error_inside_a_stream_is_raised(
    stream_format: StreamFormat, item: Any, error: type[CallFailed]
) -> None:
    with pytest.raises(error, match="slow down"):
        list(stream_format.read_pieces(item))


def test_errors_that_are_not_about_a_call_stay_what_they_are() -> None:
    assert map_error(KeyError("x")) is None
    busy = failure(429, "wait", wait=3.0)
    assert map_error(busy) is busy
    assert (busy.wait, busy.status) == (3.0, 429)


def test_a_sync_client_and_an_unknown_dialect_are_refused() -> None:
    with pytest.raises(BadInput, match="not async"):
        anyio.run(
            heard,
            openai_chat(
                SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=lambda **_: [])))
            ),
            {},
        )
    with pytest.raises(BadInput, match="no client speaks"):
        client_for("latin")
    with pytest.raises(BadInput, match="no script"):
        ScriptedClient([], dialect="latin")


def test_no_sdk_is_imported_before_it_is_used() -> None:
    code = (
        "import sys, lamina.agent, lamina.clients.known, lamina.testing._scripted as s\n"
        "from lamina.clients.known import client_for\n"
        "for name in 'openai_chat openai_responses anthropic gemini ollama'.split(): client_for(name)\n"
        "sdks = 'openai anthropic google.genai ollama httpx'.split()\n"
        "print([name for name in sdks if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_server_that_does_not_answer_is_said_with_what_to_do() -> None:
    error = map_error(ConnectionRefusedError("Connection error."))
    assert isinstance(error, Unreachable)
    assert error.said == "Connection error."
    problem = "the model's API did not answer, or broke off: Connection error"
    assert str(error) == f"{problem}; check its address and the network"
