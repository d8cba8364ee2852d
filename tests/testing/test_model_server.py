from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from lamina import Budget, Policy, fit_request
from lamina.testing.model_server import (
    COUNTER,
    MODEL,
    PATIENCE,
    ModelServer,
    model_file,
    run_model_server,
    write_model,
)

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Reads lines of a file.",
            "parameters": {
                "type": "object",
                "properties": {
                    "path": {"type": "string"},
                    "lines": {"type": "array", "items": {"type": "integer"}},
                },
                "required": ["path"],
            },
        },
    }
    for name in ("read_file", "read_log")
]


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with run_model_server(window=1024, slots=2) as running:
        yield running


def post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    headers = {"Content-Type": "application/json", "Connection": "close"}
    request = Request(url, json.dumps(body).encode(), headers)  # noqa: S310 - this machine
    with urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310 - as above
        found: dict[str, Any] = json.load(answer)
    return found


def chat(server: ModelServer, messages: list[dict[str, Any]], **parameters: Any) -> dict[str, Any]:
    body = {"model": MODEL, "max_tokens": 8, "messages": messages} | parameters
    return post(f"{server.url}/v1/chat/completions", body)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_it_answers_in_letters_and_says_the_same_again(server: ModelServer) -> None:
    said = [chat(server, [user("How are you?")])["choices"][0]["message"]["content"] for _ in range(2)]
    assert re.fullmatch("[a-z]{8}", said[0])
    assert said[0] == said[1]


def test_each_slot_has_the_whole_window_and_no_more(server: ModelServer) -> None:
    framing = 19
    fits = chat(server, [user("x" * (server.window - framing - 8))])
    assert fits["usage"]["prompt_tokens"] == server.window - 8
    with pytest.raises(HTTPError) as caught:
        chat(server, [user("x" * (server.window - framing))])
    error = json.load(caught.value)["error"]
    caught.value.close()
    assert (error["type"], error["n_ctx"]) == ("exceed_context_size_error", server.window)


def test_it_reports_what_it_had_cached(server: ModelServer) -> None:
    first = chat(server, [user("Tell me about " + "y" * 100)])
    message = first["choices"][0]["message"]
    second = chat(server, [user("Tell me about " + "y" * 100), message, user("Go on")])
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["prompt_tokens"]


def test_it_speaks_the_messages_api_too(server: ModelServer) -> None:
    body = {"model": MODEL, "max_tokens": 8, "system": "Be brief.", "messages": [user("Hello " + "z" * 50)]}
    post(f"{server.url}/v1/messages", body)
    usage = post(f"{server.url}/v1/messages", body)["usage"]
    assert usage["input_tokens"] == 1
    assert usage["cache_read_input_tokens"] > 50


CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "read_file", "arguments": '{"path":"a.py","lines":[1,2,3]}'},
}


@pytest.mark.parametrize("tools", [[], TOOLS[:1], TOOLS], ids=len)
@pytest.mark.parametrize(
    "messages",
    [
        [user("")],
        [user("Grüße, 世界 🌍")],
        [{"role": "system", "content": "Be brief."}, *(user(f"Number {i}") for i in range(20))],
        [
            user("Read"),
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "1\n2\n3\n"},
        ],
    ],
    ids=["empty", "bytes", "many", "calls"],
)
def test_the_counter_bounds_a_prompt(
    server: ModelServer, messages: list[dict[str, Any]], tools: list[dict[str, Any]]
) -> None:
    parameters = {"tools": tools} if tools else {}
    request = {"model": MODEL, "messages": messages, **parameters}
    counted = fit_request(request, budget=Budget(window=4096), policy=Policy(counter=COUNTER)).envelope.tokens
    prompt = chat(server, messages, **parameters)["usage"]["prompt_tokens"]
    assert prompt <= counted <= prompt * 1.5


def test_it_ends_with_its_context_also_after_an_error() -> None:
    with pytest.raises(KeyError), run_model_server(window=256) as running:
        raise KeyError
    with pytest.raises(URLError):
        urlopen(f"{running.url}/health", timeout=PATIENCE)  # noqa: S310 - this machine


def test_two_can_run_at_once(server: ModelServer) -> None:
    with run_model_server(window=256) as other:
        assert other.url != server.url
        assert chat(other, [user("Hi")])["choices"] == chat(server, [user("Hi")])["choices"]


def test_the_model_is_the_same_every_time(tmp_path: Path) -> None:
    again = tmp_path / "again.gguf"
    write_model(again)
    assert again.read_bytes() == model_file().read_bytes()
    assert model_file() is model_file()
