"""What a wrapped client is besides its endpoints: the client that it wraps."""

from __future__ import annotations

import asyncio
import copy
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import anthropic
import httpx2
import openai
import pytest
from openai.lib.streaming.chat import ChatCompletionStream

import lamina
from lamina import BadInput, Budget, BudgetExceeded, Policy
from lamina.testing.model_server import COUNTER, MODEL, ModelServer, run_model_server
from lamina.wrapped import last_fitted
from tests.plain_client import plain_client
from tests.sessions.talking import awaited
from tests.talking import SPEAKERS, Speaker, Wire, entered, got, named
from tests.wrapped.scripted_api import write_message

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

    inner = plain_client(dict, "chat")
    inner.copy = copy_model
    assert lamina.wrap(inner).copy("dum", "dummer") == "dum as dummer"


@pytest.mark.parametrize(
    ("resource", "field"),
    [
        ("chat", "messages"),
        ("messages", "messages"),
        ("chat.completions", "messages"),
        ("responses", "input"),
        ("models", "contents"),
    ],
)
def test_a_request_without_turns_is_sent_as_it_is(resource: str, field: str) -> None:
    """There is nothing to fit, and Ollama loads a model by it. The API says what it thinks of it."""
    sent: list[dict[str, Any]] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        sent.append(request)
        return {"done": True}

    create: Any = lamina.wrap(plain_client(answer, resource))
    for name in resource.split("."):
        create = getattr(create, name)
    if resource != "chat":
        create = create.generate_content if resource == "models" else create.create
    assert create(model="m", **{field: []}).done
    assert create(model="m").done
    assert sent == [{"model": "m", field: []}, {"model": "m"}]


def anthropic_over(answer: Callable[[httpx2.Request], httpx2.Response]) -> anthropic.Anthropic:
    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    return anthropic.Anthropic(api_key="none", http_client=http, max_retries=0)


def test_what_the_sdk_makes_of_its_arguments_is_fitted(tmp_path: Path) -> None:
    """Anthropic's SDK takes a path for a picture."""
    path = tmp_path / "dot.png"
    path.write_bytes(b"dot")
    sent: list[dict[str, Any]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(json.loads(request.content))
        return httpx2.Response(200, json=write_message(["Fine."], 10))

    client = lamina.wrap(anthropic_over(answer), policy=Policy(budget=10_000, breakpoints="keep"))
    source = {"type": "base64", "media_type": "image/png", "data": path}
    message: Any = {"role": "user", "content": [{"type": "image", "source": source}]}
    client.messages.create(model="m", max_tokens=9, messages=[message])
    assert sent[0]["messages"][0]["content"][0]["source"]["data"] == "ZG90"


class SigningClient(anthropic.Anthropic):
    """Signs as clients of AWS do, before the request is sent."""

    def _prepare_request(self, request: httpx2.Request) -> None:
        request.headers["signature"] = str(len(request.read()))


def test_a_request_that_lamina_has_changed_is_signed_anew() -> None:
    signed: list[bool] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        signed.append(request.headers["signature"] == str(len(request.content)))
        return httpx2.Response(200, json=write_message(["Fine."], 10))

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    client = lamina.wrap(SigningClient(api_key="none", http_client=http), budget=Budget(window=WINDOW))
    for steps in (1, 40):
        client.messages.create(model="claude-opus-5", max_tokens=9, messages=ANTHROPIC.past(steps))
    assert last_fitted(client).ledger.cuts  # type: ignore[union-attr]
    assert signed == [True, True]


def test_a_client_whose_requests_lamina_cannot_read_is_refused() -> None:
    bedrock = anthropic.AnthropicBedrock(aws_region="us-east-1", aws_access_key="a", aws_secret_key="b")  # noqa: S106
    with pytest.raises(BadInput, match="AnthropicBedrock names the model in its path"):
        lamina.wrap(bedrock)


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


def test_what_is_no_client_is_refused() -> None:
    with pytest.raises(BadInput, match="SimpleNamespace is not a client"):
        lamina.wrap(SimpleNamespace(messages=[]))
    with pytest.raises(BadInput, match="SimpleNamespace does not send with httpx"):
        lamina.wrap(SimpleNamespace(chat=dict))


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
