"""The official SDKs through the gateway: to a real llama.cpp, and to a server that applies an API's rules."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest

from lamina import Budget
from lamina.fitting import Policy
from lamina.gateway import GatewaySettings
from lamina.relay.config import UpstreamSettings
from lamina.testing.model_server import run_model_server
from tests.gateway.running import RunningGateway, run_gateway, settings_for
from tests.gateway.test_conversations import states
from tests.servers.checking import checking

WINDOW = 4_096
TURNS = (18, pytest.param(60, marks=pytest.mark.thorough))


class Reported(NamedTuple):
    """What a server reported for one request, in tokens."""

    prompt: int
    cached: int


Ask = Callable[[str, int], Reported]
"""Asks a server at an address, after so many tool calls."""


@contextmanager
def gateway_in_thread(settings: GatewaySettings) -> Iterator[RunningGateway]:
    """A gateway in a thread of its own, for clients that block."""
    started: list[RunningGateway] = []
    ready = threading.Event()
    stopping: list[Callable[[], object]] = []

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        stopping.append(lambda: loop.call_soon_threadsafe(stop.set))
        async with run_gateway(settings) as gateway:
            started.append(gateway)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield started[0]
    finally:
        stopping[0]()
        thread.join()


def byte_tokenizer(folder: Path) -> str:
    """A tokenizer.json in which every byte is one token, as in the model of the test server."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415 - for tests only

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return str(path)


def output(step: int) -> str:
    return f"row {step}: " + "value " * 24


CLIENTS: list[Any] = []
"""What must be closed after a test: an open socket that is found later is an error."""


@cache
def openai_client(url: str) -> Any:
    from openai import OpenAI  # noqa: PLC0415

    client = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    CLIENTS.append(client)
    return client


@cache
def anthropic_client(url: str) -> Any:
    from anthropic import Anthropic  # noqa: PLC0415

    client = Anthropic(base_url=url, api_key="none", max_retries=0)
    CLIENTS.append(client)
    return client


@pytest.fixture(autouse=True)
def close_clients() -> Iterator[None]:
    yield
    while CLIENTS:
        CLIENTS.pop().close()
    openai_client.cache_clear()
    anthropic_client.cache_clear()


def ask_chat(url: str, steps: int) -> Reported:
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Do it."}]
    for step in range(steps):
        function = {"name": "read", "arguments": json.dumps({"path": f"f{step}"})}
        call = {"id": f"call_{step}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{step}", "content": output(step)})
    client = openai_client(url)
    answer = client.chat.completions.create(model="tiny-letters", max_tokens=2, messages=messages)
    assert answer.usage
    details = answer.usage.prompt_tokens_details
    return Reported(answer.usage.prompt_tokens, (details.cached_tokens or 0) if details else 0)


def ask_responses(url: str, steps: int) -> Reported:
    items: list[Any] = [{"role": "user", "content": "Do it."}]
    for step in range(steps):
        arguments = json.dumps({"path": f"f{step}"})
        call_id = f"call_{step}"
        items.append({"type": "function_call", "call_id": call_id, "name": "read", "arguments": arguments})
        items.append({"type": "function_call_output", "call_id": call_id, "output": output(step)})
    answer = openai_client(url).responses.create(model="tiny-letters", max_output_tokens=2, input=items)
    assert answer.usage
    return Reported(answer.usage.input_tokens, answer.usage.input_tokens_details.cached_tokens)


def ask_messages(url: str, steps: int) -> Reported:
    messages: list[Any] = [{"role": "user", "content": "Do it."}]
    for step in range(steps):
        call = {"type": "tool_use", "id": f"toolu_{step}", "name": "read", "input": {"path": f"f{step}"}}
        messages.append({"role": "assistant", "content": [call]})
        result = {"type": "tool_result", "tool_use_id": f"toolu_{step}", "content": output(step)}
        messages.append({"role": "user", "content": [result]})
    client = anthropic_client(url)
    answer = client.messages.create(model="tiny-letters", max_tokens=2, system="Be brief.", messages=messages)
    cached = answer.usage.cache_read_input_tokens or 0
    return Reported(answer.usage.input_tokens + cached, cached)


@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("ask", [ask_chat, ask_responses, ask_messages])
def test_many_tool_turns_through_llama_cpp(ask: Ask, turns: int, tmp_path: Path) -> None:
    store = tmp_path / "gateway.db"
    with run_model_server(window=WINDOW) as direct, run_model_server(window=WINDOW) as server:
        upstream = UpstreamSettings(
            url=server.url,
            profile="llama.cpp",
            policy=Policy(
                # llama.cpp's template adds words around each call
                budget=Budget(window=WINDOW - 1_000, reserve=64),
                counter=byte_tokenizer(tmp_path),
            ),
        )
        settings = GatewaySettings(port=0, store=str(store), upstreams={"local": upstream})
        with gateway_in_thread(settings) as gateway:
            through = [ask(gateway.url, steps) for steps in range(turns)]
            with urlopen(f"{gateway.url}/metrics") as metrics:  # noqa: S310 - on this machine
                assert 'status="4xx"' not in metrics.read().decode()
            cut_count = len(gateway.events("cut"))
        first_cut = next(at for at in range(1, turns) if through[at].prompt < through[at - 1].prompt)
        before_cut = [ask(direct.url, steps) for steps in range(first_cut)]
    assert through[:first_cut] == before_cut
    breaks = 0
    for before, after in pairwise(through):
        if after.cached < before.prompt - 32:  # a few tokens at the end belong to the answer
            breaks += 1
    assert breaks <= cut_count
    assert 1 <= cut_count <= turns // 6
    [state] = asyncio.run(states(store)).values()
    assert state.requests == turns


def test_gemini_and_ollama_send_valid_requests_after_cuts(tmp_path: Path) -> None:
    store = tmp_path / "gateway.db"
    with checking() as server:
        upstream = {"budget": Budget(window=4_000, reserve=200)}
        settings = settings_for(server.url, store, upstream=upstream)
        with gateway_in_thread(settings) as gateway:
            for steps in range(0, 30, 6):
                ask_gemini(gateway.url, steps)
                ask_ollama(gateway.url, steps)
            assert len(gateway.events("cut")) >= 2
        assert server.refused == []
        assert {name for name, _ in server.valid} == {"gemini", "ollama"}
    assert sorted((state.dialect, state.requests) for state in asyncio.run(states(store)).values()) == [
        ("gemini", 5),
        ("ollama", 5),
    ]


def ask_gemini(url: str, steps: int) -> None:
    from google import genai  # noqa: PLC0415
    from google.genai import types  # noqa: PLC0415

    contents: list[Any] = [{"role": "user", "parts": [{"text": "Do it."}]}]
    for step in range(steps):
        call = {"name": "read", "args": {"path": f"f{step}"}}
        contents.append({"role": "model", "parts": [{"function_call": call}]})
        response = {"name": "read", "response": {"output": output(step) * 9}}
        contents.append({"role": "user", "parts": [{"function_response": response}]})
    client = genai.Client(api_key="none", http_options=types.HttpOptions(base_url=url))
    answer = client.models.generate_content(model="gemini-2.5-flash", contents=contents)
    assert answer.text == "Valid."
    client.close()


def ask_ollama(url: str, steps: int) -> None:
    from ollama import Client  # noqa: PLC0415

    messages: list[Any] = [{"role": "user", "content": "Do it."}]
    for step in range(steps):
        call = {"function": {"name": "read", "arguments": {"path": f"f{step}"}}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "content": output(step) * 9, "tool_name": "read"})
    client = Client(host=url)
    answer = client.chat(model="llama3.2", messages=messages)
    assert answer.message.content == "Valid."
    client._client.close()  # noqa: SLF001 - it has no door of its own
