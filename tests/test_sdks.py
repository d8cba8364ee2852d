"""The official SDKs take what lamina renders: their types accept it, and their clients send it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, get_args

import botocore.session
import pytest
from anthropic import Anthropic, BadRequestError
from anthropic.types import ModelParam
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from botocore import UNSIGNED
from botocore.config import Config
from google import genai
from google.genai import types as gemini
from ollama import Client as Ollama
from ollama._types import ChatRequest
from openai import OpenAI
from openai.types import ChatModel
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.completion_create_params import (
    CompletionCreateParamsNonStreaming as TextCreateParamsNonStreaming,
)
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import TypeAdapter

from lamina.caches import rules_for
from lamina.core.build import build
from lamina.core.values import Budget, Ledger
from lamina.dialects import DIALECTS
from lamina.dialects.bedrock_converse import to_sdk_arguments
from lamina.dialects.translate import choose_options
from lamina.models import Prices, model
from lamina.testing import generate_session, split_calls
from lamina.testing.conformance import MODELS, plain_head
from tests.dialects.bedrock_requests import refusals
from tests.fixtures.golden import requests, sessions
from tests.servers.checking import SAID, Checking, checking

Json = dict[str, Any]


@cache
def rendered(name: str) -> list[Json]:
    """The requests of all golden sessions, and of generated ones in a small window."""
    dialect = DIALECTS[name]
    golden = [request for one in sessions() for request in requests(one, dialect)]
    return [*golden, *(request for seed in (11, 12) for request in fitted(name, seed))]


def fitted(name: str, seed: int) -> Iterator[Json]:
    dialect, ledger = DIALECTS[name], Ledger()
    head = dialect.head.write(plain_head(MODELS[name])).head
    for log in list(split_calls(generate_session(seed, turns=3, steps=4)))[::4]:
        budget = Budget(window=5_000, reserve=0)
        envelope = build(log, head=head, budget=budget, ledger=ledger, options=choose_options(dialect, head))
        ledger = envelope.ledger
        yield dialect.wire.render(envelope)


def _gemini_types(request: Json) -> None:
    for content in request["contents"]:
        gemini.Content.model_validate(content)
    gemini.GenerateContentConfig.model_validate(request.get("config", {}))


def _converse_types(request: Json) -> None:
    assert refusals(request) == ""


TYPES: dict[str, Callable[[Json], object]] = {
    "anthropic": TypeAdapter(MessageCreateParamsNonStreaming).validate_python,
    "openai_chat": TypeAdapter(CompletionCreateParamsNonStreaming).validate_python,
    "openai_responses": TypeAdapter(ResponseCreateParamsNonStreaming).validate_python,
    "gemini": _gemini_types,
    "ollama": ChatRequest.model_validate,
    "bedrock_converse": _converse_types,
    "text": TypeAdapter(TextCreateParamsNonStreaming).validate_python,
}


@cache
def _anthropic(url: str) -> Any:
    return Anthropic(base_url=url, api_key="none", max_retries=0)


@cache
def _openai(url: str) -> Any:
    return OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


@cache
def _gemini(url: str) -> Any:
    return genai.Client(api_key="none", http_options={"base_url": url})


@cache
def _ollama(url: str) -> Any:
    return Ollama(host=url)


@cache
def _bedrock(url: str) -> Any:
    config = Config(signature_version=UNSIGNED)
    session = botocore.session.get_session()
    return session.create_client("bedrock-runtime", region_name="us-east-1", endpoint_url=url, config=config)


def _known(request: Json) -> Json:
    """Without the fields of the API that the SDK's method has no argument for."""
    return {name: value for name, value in request.items() if name not in ("truncate", "shift")}


CLIENTS: dict[str, Callable[[str, Json], str | None]] = {
    "anthropic": lambda url, request: _anthropic(url).messages.create(**request).content[0].text,
    "openai_chat": lambda url, request: (
        _openai(url).chat.completions.create(**request).choices[0].message.content
    ),
    "openai_responses": lambda url, request: _openai(url).responses.create(**request).output_text,
    "gemini": lambda url, request: _gemini(url).models.generate_content(**request).text,
    "bedrock_converse": lambda url, request: _bedrock(url).converse(**to_sdk_arguments(request))["output"][
        "message"
    ]["content"][0]["text"],
    "ollama": lambda url, request: _ollama(url).chat(**_known(request)).message.content,
    "text": lambda url, request: _openai(url).completions.create(**request).choices[0].text,
}


@pytest.fixture(scope="module")
def server() -> Iterator[Checking]:
    with checking() as running:
        yield running
        for client in (_anthropic, _openai, _gemini, _bedrock):
            client(running.url).close()
        _ollama(running.url)._client.close()  # noqa: SLF001 - it has no other way


@pytest.mark.parametrize("name", [*get_args(get_args(ModelParam)[0]), *get_args(ChatModel)])
def test_every_model_that_an_sdk_names_is_served_and_nothing_that_was_inferred_has_a_price(name: str) -> None:
    found = model(name)
    assert found.window >= 4_096
    assert (found.prices == Prices()) is found.inferred
    if found.inferred:
        assert found.like == model(found.like).name
        assert rules_for(name) == rules_for(found.like)


@pytest.mark.parametrize("name", DIALECTS)
def test_the_types_of_the_sdk_accept_every_request(name: str) -> None:
    for request in rendered(name):
        TYPES[name](request)


@pytest.mark.parametrize("name", DIALECTS)
def test_the_client_of_the_sdk_sends_every_request_and_the_server_takes_it(
    name: str, server: Checking
) -> None:
    before = len(server.valid)
    for request in rendered(name):
        assert CLIENTS[name](server.url, request) == SAID
    assert len(server.valid) - before == len(rendered(name)) > 10
    assert {dialect for dialect, _ in server.valid[before:]} == {name}


def test_the_server_refuses_what_breaks_a_rule(server: Checking) -> None:
    orphan = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "?"}]}
    with pytest.raises(BadRequestError, match="calls_and_results_pair"):
        _anthropic(server.url).messages.create(model="claude-opus-4-6", max_tokens=9, messages=[orphan])
    assert server.refused.pop().place
