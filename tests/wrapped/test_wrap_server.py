"""What a wrapped client does beside fitting: headers, what the server cleared, other shapes of clients."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import anthropic
import pytest

from lamina import BadInput, Budget, Policy
from lamina.conversations import conversations
from lamina.core.tokens import STRICT
from lamina.dialects.anthropic.server import BINDING_BETA
from lamina.fitting.server_reports import with_headers
from lamina.wrapped import wrap
from tests.fitting.test_server_help import CLEARING, SMALL, answer, thinking
from tests.talking import refusing


def sent_headers(endpoint: str, **request: Any) -> str:
    """The betas that the official client sends."""
    seen: list[str] = []
    http = anthropic.DefaultHttpxClient(
        event_hooks={"request": [lambda sent: seen.append(sent.headers.get("anthropic-beta", ""))]}
    )
    with refusing(400, "no") as (url, bodies):
        bare = anthropic.Anthropic(base_url=url, api_key="none", http_client=http, max_retries=0)
        with wrap(bare, budget=SMALL) as client:
            create = client.beta.messages.create if endpoint == "beta" else client.messages.create
            with pytest.raises(anthropic.BadRequestError):
                create(**thinking(40), **request)
    assert b'"prefix_mismatch_behavior":"drop_block"' in bodies[0].replace(b": ", b":")
    return seen[0]


def test_the_beta_that_a_request_needs_is_sent_with_the_callers_own() -> None:
    assert sent_headers("messages") == BINDING_BETA
    extra = {"Anthropic-Beta": "files-api-2025-04-14"}
    assert sent_headers("messages", extra_headers=extra) == f"files-api-2025-04-14,{BINDING_BETA}"
    assert sent_headers("beta") == BINDING_BETA
    assert sent_headers("beta", betas=["one-2026", BINDING_BETA]) == f"one-2026,{BINDING_BETA}"


def test_headers_leave_the_callers_arguments_alone() -> None:
    request = {"extra_headers": {"anthropic-beta": "one"}, "betas": ["two"]}
    ours = {"anthropic-beta": BINDING_BETA}
    assert with_headers(request, {}, beta=True) is request
    assert with_headers(request, ours, beta=True)["extra_headers"] == {
        "anthropic-beta": f"one,{BINDING_BETA}"
    }
    assert request == {"extra_headers": {"anthropic-beta": "one"}, "betas": ["two"]}


def wrap_strictly(client: Any, *, window: int = 9_000) -> Any:
    """The client, wrapped, with a counter that is exact."""
    return wrap(client, budget=Budget(window=window, reserve=0), policy=Policy(counter=STRICT))


def remembered_conversation(wrapped: Any) -> Any:
    """What is remembered of the one conversation."""
    (conversation,) = vars(wrapped)["_conversations"].by_key.values()
    return conversation


def clearing_client(answers: list[Any], **more: Any) -> Any:
    sent: list[dict[str, Any]] = []

    def create(**request: Any) -> Any:
        sent.append(request)
        return answers[len(sent) - 1]

    messages = SimpleNamespace(create=create, **more)
    return SimpleNamespace(beta=SimpleNamespace(messages=messages), sent=sent)


def test_what_the_server_cleared_is_given_to_the_next_call() -> None:
    """An answer that does not say what was cleared leaves that as it was."""
    answers = [answer(uses=12), SimpleNamespace(), answer(uses=12), answer(uses=14)]
    client = clearing_client(answers)
    wrapped = wrap_strictly(client)
    request = thinking(3, model="claude-opus-5") | {"context_management": CLEARING}
    reasons, remembered = [], []
    for _ in answers:
        wrapped.beta.messages.create(**request)
        reasons.append([cut.reason for cut in wrapped.fitted.ledger.cuts])
        remembered.append(
            (
                remembered_conversation(wrapped).usage.input,
                remembered_conversation(wrapped).usage.cleared.tool_uses,
            )
        )
    once = ["the provider cleared 12 tool uses and 1 thinking turn"]
    assert reasons == [[], once, once, once]
    assert remembered == [(500, 12), (0, 12), (500, 12), (500, 14)]
    assert all(sent["context_management"] is CLEARING for sent in client.sent)


def test_a_stream_says_at_its_end_what_was_counted_and_cleared() -> None:
    stream = SimpleNamespace(current_message_snapshot=answer(uses=2))
    wrapped = wrap_strictly(clearing_client([], stream=lambda **_: nullcontext(stream)))
    with wrapped.beta.messages.stream(**thinking(1, model="claude-opus-5")):
        pass
    conversation = remembered_conversation(wrapped)
    assert (conversation.usage.input, conversation.usage.cleared.tool_uses) == (500, 2)


class Refused(Exception):
    """As an SDK says that a request was too long."""

    status_code = 400


TOO_LONG = "request exceeds the available context size: 9000 tokens, the limit is 2000 tokens"


def flowing(seen: list[Any]) -> Any:
    """A method like those that send when their first chunk is asked for; it refuses what is long."""

    def chat(model: str = "", messages: Any = None, *, stream: bool = False, **_: Any) -> Iterator[Any]:
        seen.append((model, stream))
        if len(str(messages)) > 4_000:
            raise Refused(TOO_LONG)
        yield SimpleNamespace(text="a")
        yield SimpleNamespace(text="b", prompt_eval_count=77)

    return chat


def history() -> list[dict[str, str]]:
    messages = [{"role": "assistant", "content": f"Part {i}. " + "and so on, " * 30} for i in range(20)]
    return [m for one in messages for m in ({"role": "user", "content": "Go on."}, one)] + [
        {"role": "user", "content": "And?"}
    ]


def test_a_generator_that_is_refused_is_asked_once_more_for_less() -> None:
    seen: list[Any] = []
    wrapped = wrap_strictly(SimpleNamespace(chat=flowing(seen)), window=50_000)
    chunks = wrapped.chat("a-model", history(), stream=True)
    assert [chunk.text for chunk in chunks] == ["a", "b"]
    assert seen == [("a-model", True)] * 2
    conversation = remembered_conversation(wrapped)
    assert conversation.usage.input == 77
    with pytest.raises(TypeError, match="multiple values"):
        wrapped.chat("a-model", model="another")


def test_the_same_for_an_async_generator() -> None:
    seen: list[Any] = []

    async def chat(**request: Any) -> AsyncIterator[Any]:
        async def chunks() -> AsyncIterator[Any]:
            for chunk in flowing(seen)(request["model"], request["messages"]):
                yield chunk

        return chunks()

    async def talk() -> list[str]:
        wrapped = wrap_strictly(SimpleNamespace(chat=chat), window=50_000)
        return [chunk.text async for chunk in await wrapped.chat(model="a-model", messages=history())]

    assert asyncio.run(talk()) == ["a", "b"]
    assert len(seen) == 2


def test_planned_markers_go_through_a_wrapped_client() -> None:
    sent: list[dict[str, Any]] = []
    bare = SimpleNamespace(messages=SimpleNamespace(create=lambda **request: sent.append(request)))
    wrapped = wrap(bare, policy=Policy(breakpoints="plan"))
    wrapped.messages.create(**thinking(8, model="claude-opus-5"))
    assert str(sent[0]).count("cache_control") == len(wrapped.fitted.plan.places) >= 1


def test_a_proxy_that_reports_what_was_cached_twice_is_read_once() -> None:
    """LiteLLM's `prompt_tokens` hold the tokens that `cache_read_input_tokens` names again."""

    def create(**request: Any) -> Any:
        read = sum(STRICT.count(message["content"]) + 4 for message in request["messages"])
        usage = SimpleNamespace(
            prompt_tokens=read, completion_tokens=1, cache_read_input_tokens=read * 19 // 20
        )
        return SimpleNamespace(usage=usage)

    bare = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))
    wrapped = wrap_strictly(bare, window=90_000)
    for length in range(1, 12, 2):
        wrapped.chat.completions.create(model="claude-sonnet-4-5", messages=history()[:length])
    learnt = wrapped.fitted.ledger.calibration
    assert (learnt.millis, learnt.samples) == (1000, 5)


class Answer:
    """An answer as SDKs have it: an object of a class."""

    def __init__(self, text: str) -> None:
        self.text = text


def talking(*texts: str) -> Any:
    """A client without a name, and its answer to each of these first messages."""
    completions = SimpleNamespace(create=lambda **request: Answer(request["messages"][0]["content"]))
    bare = SimpleNamespace(chat=SimpleNamespace(completions=completions))
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


def test_several_stay_several_when_they_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "CONVERSATIONS", 1)
    wrapped, answers = talking("mine", "yours")
    with pytest.raises(BadInput, match="more than one conversation"):
        _ = wrapped.fitted
    assert question_in(wrapped.fitted_of(answers[0])) == "mine"


@pytest.mark.parametrize("answer", [None, {"choices": []}, Answer("from elsewhere")])
def test_what_is_no_answer_of_this_client_is_refused(answer: Any) -> None:
    wrapped, _ = talking("mine")
    with pytest.raises(BadInput, match="no answer of this client"):
        wrapped.fitted_of(answer)


def test_an_answer_that_nobody_holds_is_forgotten() -> None:
    wrapped, answers = talking("mine", "yours")
    answer_calls = vars(wrapped)["_conversations"].answers
    assert len(vars(answer_calls)["_calls"]) == 2
    answers.clear()
    gc.collect()
    assert vars(answer_calls)["_calls"] == {}


def test_streams_are_answers_too() -> None:
    seen: list[Any] = []
    wrapped = wrap_strictly(SimpleNamespace(chat=flowing(seen)), window=50_000)
    chunks = wrapped.chat("a-model", history(), stream=True)
    list(chunks)
    assert wrapped.fitted_of(chunks) is wrapped.fitted
    assert wrapped.fitted.ledger.cuts

    wrapped = wrap_strictly(clearing_client([], stream=lambda **_: nullcontext(Answer("a stream"))))
    with wrapped.beta.messages.stream(**thinking(1, model="claude-opus-5")) as stream:
        assert wrapped.fitted_of(stream) is wrapped.fitted
