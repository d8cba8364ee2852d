"""A wrapped client asks why the cache missed, where its policy says so, and tells its listener."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lamina import Policy
from lamina.conversations.events import MissEvent
from lamina.wrapped import wrap
from tests.gateway.growing import messages_request
from tests.servers.cache_comparing import ComparingProvider

Json = dict[str, Any]


class RefusedField(Exception):
    """What an SDK raises for a status of 400."""

    status_code = 400


def comparing_client(*, knows_field: bool = True) -> Any:
    """A client of Anthropic's shape whose API compares requests. `bodies` are those that it got."""
    provider = ComparingProvider()
    bodies: list[Json] = []

    def create(*, extra_body: Json | None = None, **request: Any) -> Any:
        body = {**request, **(extra_body or {})}
        bodies.append(body)
        if not knows_field and "diagnostics" in body:
            raise RefusedField("diagnostics: Extra inputs are not permitted")
        report = provider.compare_messages(body)
        usage = {"input_tokens": 9_000, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 8_000}
        return SimpleNamespace(
            id=provider.remember(body),
            type="message",
            role="assistant",
            content=[{"type": "text", "text": "Yes."}],
            stop_reason="end_turn",
            usage=usage,
            diagnostics=report,
        )

    return SimpleNamespace(messages=SimpleNamespace(create=create), bodies=bodies)


def test_the_provider_is_asked_and_its_word_is_in_the_event() -> None:
    client = comparing_client()
    misses: list[MissEvent] = []
    wrapped = wrap(client, policy=Policy(diagnostics=True), on_miss=misses.append)
    wrapped.messages.create(**messages_request(6))
    wrapped.messages.create(**messages_request(7, system="Be long."))
    asked = [body["diagnostics"]["previous_message_id"] for body in client.bodies]
    assert asked == [None, "msg_1"]
    (miss,) = misses
    assert (miss.cause, miss.provider, miss.agreement) == ("system changed", "system_changed", "agrees")
    assert "(the provider says system_changed: agrees)" in str(miss)


def test_without_the_policy_nothing_is_asked() -> None:
    client = comparing_client()
    wrap(client).messages.create(**messages_request(3))
    assert "diagnostics" not in client.bodies[0]


def test_an_api_that_refuses_the_question_is_asked_once() -> None:
    client = comparing_client(knows_field=False)
    wrapped = wrap(client, policy=Policy(diagnostics=True))
    for steps in (3, 4):
        wrapped.messages.create(**messages_request(steps))
    assert ["diagnostics" in body for body in client.bodies] == [True, False, False]


def test_the_callers_own_question_and_body_stay() -> None:
    client = comparing_client()
    wrapped = wrap(client, policy=Policy(diagnostics=True))
    own = {"previous_message_id": "msg_7"}
    wrapped.messages.create(**messages_request(3, diagnostics=own), extra_body={"seed": 1})
    assert client.bodies[0]["diagnostics"] == own
    assert client.bodies[0]["seed"] == 1


@pytest.mark.parametrize("model", ["gpt-5", "llama3"])
def test_a_model_without_reports_is_not_asked(model: str) -> None:
    bodies: list[Json] = []

    def create(*, extra_body: Json | None = None, **request: Any) -> Any:
        bodies.append({**request, **(extra_body or {})})
        return {"id": "resp_1", "object": "response", "output": [], "usage": {"input_tokens": 20}}

    client = SimpleNamespace(responses=SimpleNamespace(create=create))
    wrapped = wrap(client, policy=Policy(diagnostics=True, budget=50_000))
    for text in ("One.", "Two."):
        wrapped.responses.create(model=model, input=text)
    assert not any("prompt_cache_options" in body for body in bodies)
