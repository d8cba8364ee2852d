"""Clients of the other SDKs, known by their shape: what they send is fitted, what they report is used."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
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
from tests.sessions.talking import awaited
from tests.talking import all_of, got

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
            media_type = "application/x-ndjson" if "\n{" in text_said else "application/json"
            if text_said.startswith("data:"):
                media_type = "text/event-stream"
            self.send_response(200)
            self.send_header("Content-Type", media_type)
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


def gemini(url: str) -> Any:
    return genai.Client(api_key="none", http_options=types.HttpOptions(base_url=url))


MODEL: dict[str, Any] = {"model": "gemini-3.8-flash"}
OPENAI = {
    "responses": lambda url: openai.OpenAI(base_url=f"{url}/v1", api_key="none"),
    "responses async": lambda url: openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none"),
}


def chat(client: Any, **options: Any) -> Any:
    return client.chat("llama3.1", text_said("assistant"), **options)


WAYS: dict[str, tuple[Callable[[str], Any], Callable[[Any], Any]]] = {
    **{
        name: (make, lambda client: client.responses.create(model="gpt-5", input=text_said("assistant")))
        for name, make in OPENAI.items()
    },
    "gemini": (gemini, lambda client: client.models.generate_content(**MODEL, contents=contents())),
    "gemini stream": (
        gemini,
        lambda client: client.models.generate_content_stream(**MODEL, contents=contents()),
    ),
    "gemini async": (gemini, lambda client: client.aio.models.generate_content(**MODEL, contents=contents())),
    "gemini async stream": (
        gemini,
        lambda client: client.aio.models.generate_content_stream(**MODEL, contents=contents()),
    ),
    "ollama": (ollama.Client, chat),
    "ollama named": (
        ollama.Client,
        lambda client: client.chat(model="llama3.1", messages=text_said("assistant")),
    ),
    "ollama stream": (ollama.Client, partial(chat, stream=True)),
    "ollama async": (ollama.AsyncClient, chat),
    "ollama async stream": (ollama.AsyncClient, partial(chat, stream=True)),
}
"""Makes a client of an SDK, and sends a long history with it."""


@pytest.mark.parametrize("way", WAYS)
@awaited
async def test_what_is_sent_is_fitted_and_what_is_reported_is_learnt(
    server: tuple[str, list[bytes]], way: str
) -> None:
    url, seen = server
    make, send = WAYS[way]
    client = wrap(make(url), budget=BUDGET, policy=Policy(counter=BYTES4))
    for _ in range(2):
        answer = await got(send(client))
        if "stream" in way:
            assert len(await all_of(answer)) == (2 if "ollama" in way else 1)
        elif "responses" not in way:
            assert "ok" in (answer.text if "gemini" in way else answer.message.content)
    whole = sum(map(len, TEXTS))
    assert len(seen) == 2
    assert all(len(body) < whole for body in seen)
    assert client.fitted.ledger.cuts
    assert client.fitted.ledger.calibration is not None
    if "responses" in way:
        await got(client.close())


def test_a_chat_that_is_no_method_is_the_way_to_its_completions(server: tuple[str, list[bytes]]) -> None:
    client = wrap(openai.OpenAI(base_url=server[0], api_key="none"))
    assert isinstance(client.chat, openai.resources.Chat)
    assert not callable(client.chat.completions)
