"""What a wrapped client is besides its endpoints: the client that it wraps."""

from __future__ import annotations

import asyncio
import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import anthropic
import openai
import pytest
from openai.lib.streaming.chat import ChatCompletionStream

import lamina
from lamina import BadInput, Budget, BudgetExceeded, Policy
from lamina.core.tokens import BYTES4
from lamina.testing.model_server import COUNTER, MODEL, ModelServer, run_model_server
from tests.sessions.talking import awaited
from tests.talking import SPEAKERS, Speaker, Wire, entered, got, named

WINDOW = 2048
OPENAI, ANTHROPIC = Speaker("openai", is_async=False), Speaker("anthropic", is_async=False)

each_speaker = pytest.mark.parametrize("speaker", SPEAKERS, ids=named)


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with run_model_server(window=WINDOW) as running:
        yield running


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def client(server: ModelServer, wire: Wire) -> Iterator[Any]:
    with lamina.wrap(
        OPENAI.client(server.url, wire), budget=Budget(window=8192), policy=Policy(counter=COUNTER)
    ) as wrapped:
        yield wrapped


def too_long() -> dict[str, Any]:
    """A request that only fits the server after a deeper cut."""
    return {"model": MODEL, "max_tokens": 4, "messages": OPENAI.past(8)}


@each_speaker
@awaited
async def test_it_is_an_instance_of_what_it_wraps(server: ModelServer, speaker: Speaker) -> None:
    bare = speaker.client(server.url)
    async with speaker.wrapped(server.url, budget=Budget(window=WINDOW)) as client:
        assert isinstance(client, type(bare))
        assert repr(client).startswith("lamina.wrap(<")
    async with entered(bare, speaker):
        assert not bare.is_closed()
    assert client.is_closed()


def test_attributes_that_are_no_endpoints_are_the_clients_own(client: Any) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert type(client.chat.completions.with_raw_response.list).__module__ != "lamina.wrapped.client"
    client.api_key = "another"
    assert client.with_options().api_key == "another"
    with patch.object(client, "get", "mocked"):
        assert client.get == "mocked"
    assert client.get != "mocked"
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = client.no_such_thing


@pytest.mark.parametrize("method", ["with_options", "copy"])
def test_a_client_with_other_options_is_wrapped_and_shares_its_conversations(
    client: Any, wire: Wire, method: str
) -> None:
    other = getattr(client, method)(timeout=60)
    assert other.timeout == 60
    other.chat.completions.create(**too_long())
    assert wire.statuses == [400, 200]
    client.chat.completions.create(**too_long())
    assert wire.statuses == [400, 200, 200]


def test_a_copy_of_the_object_is_wrapped_too(client: Any, wire: Wire) -> None:
    copy.copy(client).chat.completions.create(**too_long())
    assert wire.statuses == [400, 200]


def test_a_copy_that_is_no_client_is_the_clients_own() -> None:
    """`ollama.Client.copy` copies a model. Both arguments are positional there."""

    def copy_model(source: str, destination: str) -> str:
        return f"{source} as {destination}"

    client = lamina.wrap(SimpleNamespace(chat=dict, copy=copy_model))
    assert client.copy("dum", "dummer") == "dum as dummer"


@pytest.mark.parametrize(
    ("path", "request_field"),
    [
        ("chat", "messages"),
        ("converse", "messages"),
        ("messages.create", "messages"),
        ("messages.stream", "messages"),
        ("responses.create", "input"),
        ("models.generate_content", "contents"),
    ],
)
def test_a_request_without_turns_is_sent_as_it_is(path: str, request_field: str) -> None:
    """There is nothing to fit, and Ollama loads a model by it. The API says what it thinks of it."""
    sent: list[dict[str, Any]] = []
    *parents, name = path.split(".")
    endpoint = SimpleNamespace(**{name: lambda **request: sent.append(request)})
    client: Any = endpoint
    for parent in parents:
        client = SimpleNamespace(**{parent: client})
    wrapped = lamina.wrap(client, budget=10_000)
    for parent in parents:
        wrapped = getattr(wrapped, parent)
    getattr(wrapped, name)(model="m", **{request_field: []})
    getattr(wrapped, name)(model="m")
    assert sent == [{"model": "m", request_field: []}, {"model": "m"}]


def test_a_tool_that_describes_itself_is_sent_as_its_definition() -> None:
    """Anthropic's `@beta_tool` makes such an object of a function."""
    sent: list[dict[str, Any]] = []
    messages = SimpleNamespace(create=lambda **request: sent.append(request))
    schema = {"type": "object", "properties": {}}
    described = {"name": "read", "input_schema": schema}
    plain = {"name": "write", "input_schema": schema}
    tools = [SimpleNamespace(to_dict=lambda: described), plain]
    client = lamina.wrap(SimpleNamespace(messages=messages), budget=10_000)
    question = [{"role": "user", "content": "Hello"}]
    client.messages.create(model="m", max_tokens=9, messages=question, tools=tools)
    assert sent[0]["tools"] == [described, plain]


def test_a_picture_in_a_file_is_sent_as_its_content(tmp_path: Path) -> None:
    """Anthropic's SDK takes a path or an open file, also in the content of a result."""
    path = tmp_path / "dot.png"
    path.write_bytes(b"dot")

    def show(data: Any) -> dict[str, Any]:
        source = {"type": "base64", "media_type": "image/png", "data": data}
        return {"type": "image", "source": source}

    def ask(picture: Any, result_picture: Any) -> list[dict[str, Any]]:
        result = {"type": "tool_result", "tool_use_id": "c1", "content": [show(result_picture)]}
        call = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
        return [
            {"role": "user", "content": [show(picture), {"type": "text", "text": "Look."}]},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]

    sent: list[dict[str, Any]] = []
    messages = SimpleNamespace(create=lambda **request: sent.append(request))
    policy = Policy(budget=10_000, breakpoints="keep")
    client = lamina.wrap(SimpleNamespace(messages=messages), policy=policy)
    with path.open("rb") as file:
        client.messages.create(model="m", max_tokens=9, messages=ask(path, file))
    assert sent[0]["messages"] == ask("ZG90", "ZG90")


def test_streams_are_the_sdks_own(client: Any) -> None:
    request = {"model": MODEL, "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]}
    with client.chat.completions.create(**request, stream=True) as stream:
        assert type(stream) is openai.Stream
    with client.chat.completions.stream(**request) as events:
        assert type(events) is ChatCompletionStream


@each_speaker
def test_raw_and_streamed_responses_are_of_fitted_requests(server: ModelServer, speaker: Speaker) -> None:
    wire = Wire()

    async def talk() -> None:
        async with speaker.wrapped(server.url, wire, budget=Budget(window=8192)) as client:
            resource = client.chat.completions if speaker.sdk == "openai" else client.messages
            request = too_long() | {"messages": speaker.past(8)}
            raw = await got(resource.with_raw_response.create(**request))
            assert raw.headers["content-type"].startswith("application/json")
            assert (await got(raw.parse())).model == MODEL
            another = {**request, "messages": speaker.past(9, about="other")}
            async with entered(resource.with_streaming_response.create(**another), speaker) as response:
                assert json.loads(await got(response.read()))["model"] == MODEL

    asyncio.run(talk())
    assert wire.statuses == [400, 200, 400, 200]


def test_messages_may_come_from_an_iterator(client: Any, wire: Wire) -> None:
    request = too_long()
    client.chat.completions.create(**request | {"messages": iter(request["messages"])})
    assert wire.statuses == [400, 200]


def test_what_the_api_counted_calibrates_an_estimate(server: ModelServer) -> None:
    request = {"model": MODEL, "max_tokens": 4, "messages": [{"role": "user", "content": "Hello " * 40}]}
    with lamina.wrap(
        ANTHROPIC.client(server.url), budget=Budget(window=8192), policy=Policy(counter=BYTES4)
    ) as client:
        learnt = []
        for _ in range(3):
            client.messages.create(**request)
            learnt.append(client.fitted.ledger.calibration)
    assert learnt[0] is None
    assert learnt[2].millis > 3500


def test_a_named_conversation_goes_on_in_another_process(
    client: Any, server: ModelServer, wire: Wire
) -> None:
    first, request = client.conversation("support-42"), too_long()
    first.chat.completions.create(**request)
    saved = json.loads(json.dumps(first.fitted.ledger.dump()))
    request["messages"] += [{"role": "assistant", "content": "So."}, {"role": "user", "content": "And?"}]
    first.chat.completions.create(**request)
    with lamina.wrap(
        OPENAI.client(server.url, wire), budget=Budget(window=8192), policy=Policy(counter=COUNTER)
    ) as later:
        later.conversation("support-42", ledger=lamina.Ledger.load(saved)).chat.completions.create(**request)
    assert wire.statuses == [400, 200, 200, 200]
    assert wire.bodies[2] == wire.bodies[3]


def test_a_named_conversation_is_one_whatever_is_told_first(client: Any, wire: Wire) -> None:
    support = client.conversation("support-42")
    for clock in ("09:00", "09:01"):
        request = too_long()
        request["messages"][0] = {"role": "user", "content": f"It is {clock}. Explain every part."}
        support.chat.completions.create(**request)
    assert wire.statuses == [400, 200, 200]


def test_what_cannot_fit_the_budget_is_said_before_anything_is_sent(client: Any, wire: Wire) -> None:
    with pytest.raises(BudgetExceeded):
        client.chat.completions.create(
            model=MODEL, max_tokens=4, messages=[{"role": "user", "content": "x" * 9000}]
        )
    assert wire.statuses == []


def test_a_request_with_nothing_to_do_is_sent_as_the_same_objects() -> None:
    sent: list[dict[str, Any]] = []
    block = {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}
    messages = [{"role": "user", "content": [block]}]
    bare = SimpleNamespace(messages=SimpleNamespace(create=lambda **request: sent.append(request)))
    timeout = object()
    lamina.wrap(bare, budget=Budget(window=WINDOW)).messages.create(
        model="claude-sonnet-4-5", max_tokens=9, messages=messages, timeout=timeout, tools=anthropic.NOT_GIVEN
    )
    assert sent[0]["messages"] is messages
    assert sent[0]["timeout"] is timeout
    assert sent[0]["tools"] is anthropic.NOT_GIVEN


def test_what_is_no_client_is_refused() -> None:
    with pytest.raises(BadInput, match="SimpleNamespace is not a client"):
        lamina.wrap(SimpleNamespace(messages=[]))


def test_no_sdk_is_imported() -> None:
    code = "import lamina, sys; sys.exit(not {'openai', 'anthropic', 'httpx2'}.isdisjoint(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_client_is_wrapped_without_the_modules_of_its_beta_endpoints() -> None:
    """They are hundreds, and were most of the time that the first `wrap` of a process took."""
    code = (
        "import sys, lamina, openai; lamina.wrap(openai.OpenAI(api_key='none')); "
        "sys.exit('openai.resources.beta.beta' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
