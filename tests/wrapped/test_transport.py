"""`lamina.transport()`: what an SDK sends over it, sync and async, of httpx and of httpx2."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest

import lamina
from lamina import BadInput, Budget, Policy
from lamina.core.tokens import BYTES4
from lamina.wrapped import CutEvent
from tests.wrapped.scripted_api import Call, Said, scripted_api

BUDGET = Budget(window=3_000, reserve=200, keep_last=1)
POLICY = Policy(budget=BUDGET, counter=BYTES4, breakpoints="keep")
FACT = "The harbour opens at 05:41."

each_httpx = pytest.mark.parametrize("http", [httpx, httpx2], ids=["httpx", "httpx2"])
each_way = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])

Answer = Callable[[Any], Any]


def completion(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    whole = {"id": "1", "object": "chat.completion", "created": 0, "model": "gpt-4o"}
    return {**whole, "choices": [choice], "usage": usage}


class Client:
    """A client of httpx over the transport, before a server that answers every request alike."""

    def __init__(self, http: Any, *, is_async: bool, answer: Answer | None = None, **options: Any) -> None:
        self.sent: list[Any] = []
        self._is_async = is_async
        self._module = http
        self._answer = answer or (lambda _: http.Response(200, json=completion("Part of the story. " * 60)))
        inner = http.MockTransport(self._note_later if is_async else self._note)
        kind = http.AsyncClient if is_async else http.Client
        options = {"policy": POLICY} | options
        self.http = kind(transport=lamina.transport(inner, **options), base_url="https://api.example")

    def _note(self, request: Any) -> Any:
        self.sent.append(request)
        return self._answer(request)

    async def _note_later(self, request: Any) -> Any:
        return self._note(request)

    def talk(self, *bodies: Any, path: str = "/v1/chat/completions", **headers: str) -> list[Any]:
        """The answers to these requests, one after the other."""
        if not self._is_async:
            return [self.http.post(path, json=body, headers=headers) for body in bodies]

        async def talk() -> list[Any]:
            return [await self.http.post(path, json=body, headers=headers) for body in bodies]

        return asyncio.run(talk())

    @property
    def bodies(self) -> list[bytes]:
        return [request.content for request in self.sent]


def story(steps: int) -> Iterator[dict[str, Any]]:
    history: list[Any] = [{"role": "user", "content": "Tell me a story."}]
    for step in range(steps):
        yield {"model": "gpt-4o", "messages": list(history)}
        history.append({"role": "assistant", "content": "Part of the story. " * 60})
        history.append({"role": "user", "content": f"And then? This is part {step}."})


@each_httpx
@each_way
def test_a_growing_conversation_is_cut_and_its_beginning_stays(http: Any, *, is_async: bool) -> None:
    client = Client(http, is_async=is_async)
    requests = list(story(14))
    answers = client.talk(*requests)
    assert [answer.status_code for answer in answers] == [200] * 14
    assert client.bodies[:3] == [
        json.dumps(request, separators=(",", ":")).encode() for request in requests[:3]
    ]
    assert max(map(len, client.bodies)) <= 4 * 2_800
    messages = [json.loads(body)["messages"] for body in client.bodies]
    grown = [after[: len(before)] == before for before, after in pairwise(messages)]
    assert grown.count(False) <= 2  # the cuts


@each_httpx
def test_sync_and_async_clients_of_the_same_story_send_the_same_bytes(http: Any) -> None:
    requests = list(story(14))
    clients = [Client(http, is_async=is_async) for is_async in (False, True)]
    for client in clients:
        client.talk(*requests)
    assert clients[0].bodies == clients[1].bodies


@each_way
def test_a_request_that_cannot_fit_is_the_sdks_own_error_and_is_tried_once(*, is_async: bool) -> None:
    client = Client(httpx2, is_async=is_async)
    kind: Any = openai.AsyncOpenAI if is_async else openai.OpenAI
    sdk = kind(api_key="none", http_client=client.http)
    request = {"model": "gpt-4o", "messages": [{"role": "user", "content": "x" * 90_000}]}

    async def ask() -> None:
        answer = sdk.chat.completions.create(**request)
        await answer if is_async else None

    with pytest.raises(openai.BadRequestError, match="lamina: the smallest possible request"):
        asyncio.run(ask())
    assert client.sent == []


@each_way
def test_an_error_of_the_network_is_the_clients_own(*, is_async: bool) -> None:
    def refuse(request: Any) -> Any:
        raise httpx.ConnectError("nobody listens", request=request)

    client = Client(httpx, is_async=is_async, answer=refuse)
    with pytest.raises(httpx.ConnectError, match="nobody listens"):
        client.talk(*story(1))
    assert len(client.sent) == 1


@each_way
def test_what_is_no_call_of_a_model_passes_as_the_same_object(*, is_async: bool) -> None:
    client = Client(httpx, is_async=is_async)
    client.talk({"input": "x"}, path="/v1/embeddings")
    long = {"model": "gpt-4o", "messages": [{"role": "user", "content": "x" * 90_000}]}
    client.talk(long, **{"x-lamina": "off"})
    assert [request.url.path for request in client.sent] == ["/v1/embeddings", "/v1/chat/completions"]
    assert json.loads(client.bodies[1]) == long


@each_way
def test_with_a_store_the_next_process_sends_the_same_bytes(tmp_path: Path, *, is_async: bool) -> None:
    requests = list(story(14))
    store = str(tmp_path / "chats.db")
    before = Client(httpx, is_async=is_async, store=store)
    before.talk(*requests)
    after = Client(httpx, is_async=is_async, store=store)
    after.talk(requests[-1])
    assert after.bodies == before.bodies[-1:]
    alone = Client(httpx, is_async=is_async)
    alone.talk(requests[-1])
    assert alone.bodies != before.bodies[-1:]


def test_a_header_names_the_conversation_and_never_leaves() -> None:
    client = Client(httpx, is_async=False)
    client.talk(*story(2), **{"x-lamina-conversation": "support-42"})
    assert [name for request in client.sent for name in request.headers if name.startswith("x-lamina")] == []


def test_a_callback_hears_of_a_cut() -> None:
    cuts: list[CutEvent] = []
    client = Client(httpx, is_async=False, on_cut=cuts.append)
    requests = [request | {"user": "ada"} for request in story(14)]
    client.talk(*requests, **{"x-lamina-conversation": "support-42"})
    assert cuts
    assert {cut.conversation for cut in cuts} == {"support-42"}


@each_way
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
def test_a_recall_is_answered_inside_the_call(*, streams: bool, is_async: bool) -> None:
    def say(request: dict[str, Any]) -> Said:
        text = json.dumps(request)
        if FACT in text or "recall(" not in text:
            return [f"It is said: {FACT}" if FACT in text else "Noted."]
        handle = text.partition('recall(\\"')[2].partition('\\"')[0]
        return [Call("recall", {"key": handle}, "r1")]

    history: list[Any] = [{"role": "user", "content": f"Remember: {FACT} " + "words " * 1_500}]
    for step in range(8):
        history.append({"role": "assistant", "content": f"Step {step}. " + "text " * 200})
        history.append({"role": "user", "content": f"Go on with {step}."})
    request = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": history}

    async def ask(url: str) -> str:
        transport = lamina.transport(policy=POLICY)
        if is_async:
            client: Any = anthropic.AsyncAnthropic(
                api_key="none", base_url=url, http_client=httpx2.AsyncClient(transport=transport)
            )
        else:
            client = anthropic.Anthropic(
                api_key="none", base_url=url, http_client=httpx2.Client(transport=transport)
            )
        answer = client.messages.create(**request, stream=streams)
        if is_async:
            answer = await answer
        if not streams:
            return "".join(block.text for block in answer.content)
        events = [event async for event in answer] if is_async else list(answer)
        return "".join(getattr(getattr(event, "delta", None), "text", "") or "" for event in events)

    with scripted_api(say) as served:
        said = asyncio.run(ask(served.url))
    assert "recall" not in said
    assert len(served.requests) >= 1


@each_way
def test_a_stream_that_is_left_early_ends_its_request(*, is_async: bool) -> None:
    with scripted_api(lambda _: ["one", "two"]) as served:
        transport = lamina.transport(policy=POLICY)

        async def leave() -> None:
            request = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello"}], "stream": True}
            if is_async:
                client = openai.AsyncOpenAI(
                    api_key="none",
                    base_url=f"{served.url}/v1",
                    http_client=httpx2.AsyncClient(transport=transport),
                )
                async with await client.chat.completions.create(**request) as stream:
                    await anext(aiter(stream))
                await client.chat.completions.create(**{**request, "stream": False})
                await client.close()
                return
            with openai.OpenAI(
                api_key="none", base_url=f"{served.url}/v1", http_client=httpx2.Client(transport=transport)
            ) as sync_client:
                with sync_client.chat.completions.create(**request) as sync_stream:
                    next(iter(sync_stream))
                sync_client.chat.completions.create(**{**request, "stream": False})

        asyncio.run(leave())
    assert len(served.requests) == 2


def test_one_transport_serves_a_sync_and_an_async_client() -> None:
    """Haystack makes both with the same arguments."""
    transport = lamina.transport(policy=POLICY)
    request = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello"}]}

    async def ask_later(url: str) -> str:
        async with httpx2.AsyncClient(transport=transport) as client:
            return (await client.post(f"{url}/chat/completions", json=request)).text

    with scripted_api(lambda _: ["Fine."]) as served:
        with httpx2.Client(transport=transport) as client:
            assert "Fine." in client.post(f"{served.url}/chat/completions", json=request).text
        assert "Fine." in asyncio.run(ask_later(served.url))


def test_a_response_that_nobody_holds_ends_its_call() -> None:
    events = b'data: {"choices": []}\n\n' * 3
    client = Client(
        httpx2,
        is_async=False,
        answer=lambda _: httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=events),
    ).http
    request = client.build_request("POST", "/v1/chat/completions", json=next(story(1)) | {"stream": True})
    response = client.send(request, stream=True)
    body = response.stream._stream  # noqa: SLF001 - httpx has one of its own around it
    task = body._driver._task  # noqa: SLF001
    assert not task.done()
    del response, body
    gc.collect()
    assert task.cancelled()


def test_what_is_no_transport_is_refused() -> None:
    with pytest.raises(BadInput, match="is no transport"):
        lamina.transport("https://api.example")
    with pytest.raises(BadInput, match="a key without a store"):
        lamina.transport(key="secret")


def test_it_needs_no_package_of_the_gateway() -> None:
    """The base install has none of them."""
    code = "import sys, lamina; lamina.transport(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    foreign = {"uvicorn", "starlette", "prometheus_client", "httptools", "httpx"}
    assert foreign & set(done.stdout.split()) == set()
