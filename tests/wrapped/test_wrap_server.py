"""What a wrapped client does beside fitting: headers, markers, whose answer it was."""

from __future__ import annotations

from typing import Any

import anthropic
import anyio
import httpx2
import pytest

from lamina import BadInput, Budget, Policy
from lamina.conversations.store import WORKSPACE, list_conversations
from lamina.core.tokens import STRICT
from lamina.dialects.anthropic.server import BINDING_BETA
from lamina.stores import MemoryStore
from lamina.wrapped import sdk_calls, wrap
from tests.fitting.test_server_help import SMALL, thinking
from tests.plain_client import Answer, Json, plain_client


def sent_headers(endpoint: str, **request: Any) -> str:
    """The betas that the official client sends."""
    seen: list[httpx2.Request] = []

    def refuse(sent: httpx2.Request) -> httpx2.Response:
        seen.append(sent)
        return httpx2.Response(400, json={"type": "error", "error": {"type": "error", "message": "no"}})

    http = httpx2.Client(transport=httpx2.MockTransport(refuse))
    with wrap(anthropic.Anthropic(api_key="none", http_client=http), budget=SMALL) as client:
        create = client.beta.messages.create if endpoint == "beta" else client.messages.create
        with pytest.raises(anthropic.BadRequestError):
            create(**thinking(40), **request)
    assert b'"prefix_mismatch_behavior":"drop_block"' in seen[0].content
    return str(seen[0].headers.get("anthropic-beta", ""))


def test_the_beta_that_a_request_needs_is_sent_with_the_callers_own() -> None:
    assert sent_headers("messages") == BINDING_BETA
    extra = {"Anthropic-Beta": "files-api-2025-04-14"}
    assert sent_headers("messages", extra_headers=extra) == f"files-api-2025-04-14,{BINDING_BETA}"
    assert sent_headers("beta") == BINDING_BETA
    assert sent_headers("beta", betas=["one-2026", BINDING_BETA]) == f"one-2026,{BINDING_BETA}"


def wrap_strictly(client: Any) -> Any:
    """The client, wrapped, with a counter that is exact."""
    return wrap(client, budget=Budget(window=9_000, reserve=0), policy=Policy(counter=STRICT))


def test_planned_markers_go_through_a_wrapped_client() -> None:
    sent: list[Json] = []

    def reply(request: Json) -> Json:
        sent.append(request)
        return {}

    wrapped = wrap(plain_client(reply), policy=Policy(breakpoints="plan"))
    wrapped.messages.create(**thinking(8, model="claude-opus-5"))
    assert str(sent[0]).count("cache_control") == len(wrapped.fitted.plan.places) >= 1


def talking(*texts: str) -> Any:
    """A client without a name, and its answer to each of these first messages."""
    bare = plain_client(lambda request: {"said": request["messages"][0]["content"]}, "chat.completions")
    wrapped = wrap_strictly(bare)
    answers = [
        wrapped.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
        for text in texts
    ]
    return wrapped, answers


def question_in(fitted: Any) -> str:
    return str(fitted.request["messages"][0]["content"])


def test_a_client_of_one_conversation_says_what_was_sent_last() -> None:
    wrapped, (answer,) = talking("mine")
    assert question_in(wrapped.fitted) == "mine"
    assert wrapped.fitted_of(answer) is wrapped.fitted
    assert wrapped.conversation("another").fitted is None


def test_a_client_of_several_conversations_says_only_whose_answer_is_asked_for() -> None:
    """In a server, the last request may be another user's: its log must not be recalled from."""
    wrapped, answers = talking("mine", "yours", "theirs")
    with pytest.raises(BadInput, match=r"more than one conversation.*fitted_of\(answer\)"):
        _ = wrapped.fitted
    assert [question_in(wrapped.fitted_of(answer)) for answer in answers] == ["mine", "yours", "theirs"]
    named = wrapped.conversation("support-42")
    assert named.fitted is None
    messages = [{"role": "user", "content": "named"}]
    answer = named.chat.completions.create(model="m", messages=messages)
    assert question_in(named.fitted) == question_in(wrapped.fitted_of(answer)) == "named"


def test_a_name_may_be_any_text_and_the_oldest_of_many_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk_calls, "NAMES", 2)
    store = MemoryStore()
    wrapped = wrap(plain_client(lambda _: {}, "chat.completions"), store=store)
    names = ["Käse & 芝士", "a" * 300, "a" * 300 + "b"]
    for name in names:
        named = wrapped.conversation(name)
        named.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "Hi"}])
    assert [wrapped.conversation(name).fitted is None for name in names] == [True, False, False]

    async def list_groups() -> list[str]:
        return sorted([kept.state.group async for kept in list_conversations(store, WORKSPACE)])

    assert anyio.run(list_groups) == sorted(f"name:{name}" for name in names)


@pytest.mark.parametrize("answer", [None, {"choices": []}, Answer(said="elsewhere")])
def test_what_is_no_answer_of_this_client_is_refused(answer: Any) -> None:
    wrapped, _ = talking("mine")
    with pytest.raises(BadInput, match="no answer of this client"):
        wrapped.fitted_of(answer)
