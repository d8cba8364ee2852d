"""Clients of the other SDKs, known by their shape: what they send is fitted, what they report is used."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import ollama
import openai
import pytest
from google import genai
from google.genai import types

from lamina import Budget, Policy
from lamina.core.tokens import BYTES4
from lamina.wrapped import wrap
from tests.servers.serving import serve_http

READ = 77
"""What each answer says that it read, in tokens."""

BUDGET = Budget(window=2_000, reserve=0)
TEXTS = [f"Part {i}. " + "and so on, " * 60 for i in range(20)]


def answer(path: str) -> str:
    """A body as the API at this path gives it: JSON, lines of JSON, or events."""
    if path.endswith("/responses"):
        usage = {"input_tokens": READ, "output_tokens": 1, "total_tokens": READ + 1}
        return json.dumps({"id": "r", "object": "response", "output": [], "usage": usage})
    if path.endswith("/api/chat"):
        message = {"role": "assistant", "content": "ok"}
        first = {"model": "m", "message": message, "done": False}
        return "\n".join(map(json.dumps, (first, first | {"done": True, "prompt_eval_count": READ})))
    content = {"role": "model", "parts": [{"text": "ok"}]}
    whole = json.dumps({"candidates": [{"content": content}], "usageMetadata": {"promptTokenCount": READ}})
    return f"data: {whole}\n\n" if "stream" in path else whole


@pytest.fixture
def server() -> Iterator[tuple[str, list[bytes]]]:
    seen: list[bytes] = []

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.rfile.read(int(self.headers["Content-Length"])))
            text_said = answer(self.path.partition("?")[0])
            if b'"stream": false' in seen[-1] or b'"stream":false' in seen[-1]:
                text_said = text_said.splitlines()[-1]
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text_said)))
            self.end_headers()
            self.wfile.write(text_said.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with serve_http(Answering) as url:
        yield url, seen


def text_said(assistant: str) -> list[dict[str, str]]:
    both = ([{"role": "user", "content": "Go on."}, {"role": assistant, "content": text}] for text in TEXTS)
    return [*[message for pair in both for message in pair], {"role": "user", "content": "And?"}]


def contents() -> list[Any]:
    return [
        types.Content(role=message["role"], parts=[types.Part(text=message["content"])])
        for message in text_said("model")
    ]


def responses(url: str, *, later: bool) -> Any:
    client = (openai.AsyncOpenAI if later else openai.OpenAI)(base_url=f"{url}/v1", api_key="none")
    return wrap(client, budget=BUDGET, policy=Policy(counter=BYTES4))


def gemini(url: str) -> Any:
    client = genai.Client(api_key="none", http_options=types.HttpOptions(base_url=url))
    return wrap(client, budget=BUDGET, policy=Policy(counter=BYTES4))


Way = Callable[[str], Any]
"""Sends a long history twice; gives the wrapped client."""


def by_responses(url: str) -> Any:
    client = responses(url, later=False)
    for _ in range(2):
        client.responses.create(model="gpt-5", input=text_said("assistant"))
    return client


def by_responses_later(url: str) -> Any:
    client = responses(url, later=True)

    async def talk() -> None:
        async with client:
            for _ in range(2):
                await client.responses.create(model="gpt-5", input=text_said("assistant"))

    asyncio.run(talk())
    return client


def by_gemini(url: str) -> Any:
    client = gemini(url)
    for _ in range(2):
        assert client.models.generate_content(model="gemini-3.8-flash", contents=contents()).text == "ok"
    return client


def by_gemini_stream(url: str) -> Any:
    client = gemini(url)
    for _ in range(2):
        chunks = client.models.generate_content_stream(model="gemini-3.8-flash", contents=contents())
        assert [chunk.text for chunk in chunks] == ["ok"]
    return client


def by_gemini_later(url: str) -> Any:
    client = gemini(url)

    async def talk() -> None:
        for _ in range(2):
            await client.aio.models.generate_content(model="gemini-3.8-flash", contents=contents())
        stream = await client.aio.models.generate_content_stream(
            model="gemini-3.8-flash", contents=contents()
        )
        assert [chunk.text async for chunk in stream] == ["ok"]

    asyncio.run(talk())
    return client


def by_ollama(url: str) -> Any:
    client = wrap(ollama.Client(host=url), budget=BUDGET, policy=Policy(counter=BYTES4))
    client.chat("llama3.1", text_said("assistant"))
    assert client.chat(model="llama3.1", messages=text_said("assistant")).message.content == "ok"
    return client


def by_ollama_stream(url: str) -> Any:
    client = wrap(ollama.Client(host=url), budget=BUDGET, policy=Policy(counter=BYTES4))
    for _ in range(2):
        assert len(list(client.chat(model="llama3.1", messages=text_said("assistant"), stream=True))) == 2
    return client


def by_ollama_later(url: str) -> Any:
    client = wrap(ollama.AsyncClient(host=url), budget=BUDGET, policy=Policy(counter=BYTES4))

    async def talk() -> None:
        await client.chat(model="llama3.1", messages=text_said("assistant"))
        stream = await client.chat(model="llama3.1", messages=text_said("assistant"), stream=True)
        assert len([chunk async for chunk in stream]) == 2

    asyncio.run(talk())
    return client


@pytest.mark.parametrize(
    "way",
    [
        by_responses,
        by_responses_later,
        by_gemini,
        by_gemini_stream,
        by_gemini_later,
        by_ollama,
        by_ollama_stream,
        by_ollama_later,
    ],
)
def test_what_is_sent_is_fitted_and_what_is_reported_is_learnt(
    server: tuple[str, list[bytes]], way: Way
) -> None:
    url, seen = server
    client = way(url)
    whole = sum(map(len, TEXTS))
    assert len(seen) >= 2
    assert all(len(body) < whole for body in seen)
    assert client.fitted.ledger.cuts
    (conversation,) = vars(client)["_conversations"].by_key.values()
    assert conversation.usage.input == READ
    assert client.fitted.ledger.calibration is not None


def test_a_chat_that_is_no_method_is_the_way_to_its_completions(server: tuple[str, list[bytes]]) -> None:
    client = responses(server[0], later=False)
    assert isinstance(client.chat, openai.resources.Chat)
    assert not callable(client.chat.completions)
