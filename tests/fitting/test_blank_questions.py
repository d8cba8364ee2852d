"""A question that says nothing is refused at the end: without it a model would go on with its last answer."""

from __future__ import annotations

from typing import Any

import pytest

from lamina import Budget, InvalidRequest, fit_request, translate

Json = dict[str, Any]
BUDGET = Budget(window=8_000)
FIELDS = {"openai_responses": "input", "gemini": "contents"}


def turn(dialect: str, role: str, content: Any) -> Json:
    if dialect != "gemini":
        return {"role": role, "content": content}
    if isinstance(content, str):
        content = [{"text": content}]
    return {"role": "model" if role == "assistant" else role, "parts": content}


def talk(dialect: str, *contents: Any, model: str = "m") -> Json:
    """A talk in which the user and the model take turns."""
    roles = ["user", "assistant"] * len(contents)
    turns = [turn(dialect, role, content) for role, content in zip(roles, contents, strict=False)]
    request: Json = {"model": model, FIELDS.get(dialect, "messages"): turns}
    if dialect == "anthropic":
        request["max_tokens"] = 9
    return request


REFUSED = [
    ("anthropic", []),
    ("anthropic", ""),
    ("anthropic", " \n"),
    ("anthropic", [{"type": "text", "text": " "}]),
    ("openai_chat", []),
    ("openai_chat", None),
    ("openai_responses", []),
    ("gemini", []),
    ("gemini", [{"text": ""}]),
]


@pytest.mark.parametrize(("dialect", "content"), REFUSED)
@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-opus-4-6"])
def test_a_blank_question_at_the_end_is_refused_where_it_stands(
    dialect: str, content: Any, model: str
) -> None:
    request = talk(dialect, "Hi", "old answer", content, model=model)
    with pytest.raises(InvalidRequest) as caught:
        fit_request(request, dialect=dialect, budget=BUDGET)
    field = FIELDS.get(dialect, "messages")
    assert caught.value.violations[0].place == f"{field}[2]"
    assert caught.value.violations[0].rule == "ends_with_user"


@pytest.mark.parametrize(("dialect", "content"), REFUSED)
def test_a_blank_question_before_the_end_is_left_out(dialect: str, content: Any) -> None:
    request = talk(dialect, "Hi", "an answer", content, "another", "Go on.")
    fitted = fit_request(request, dialect=dialect, budget=BUDGET)
    turns = fitted.request[FIELDS.get(dialect, "messages")]
    assert turns[-1] == turn(dialect, "user", "Go on.")


@pytest.mark.parametrize(
    ("dialect", "content"),
    [("openai_chat", ""), ("openai_responses", " "), ("gemini", " "), ("ollama", ""), ("ollama", " ")],
)
def test_a_blank_question_that_the_api_takes_is_sent_as_it_came(dialect: str, content: str) -> None:
    request = talk(dialect, "Hi", "an answer", content)
    assert fit_request(request, dialect=dialect, budget=BUDGET).request is request


def test_a_prefill_that_a_client_sent_stays() -> None:
    request = talk("anthropic", "Give JSON.", "{", model="claude-sonnet-4-5")
    assert fit_request(request, budget=BUDGET).request is request


def test_a_blank_message_after_results_leaves_the_results_at_the_end() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
    request = talk("anthropic", "Hi", [call], [result], model="claude-sonnet-4-5")
    request["messages"].append({"role": "user", "content": " "})
    sent = fit_request(request, budget=BUDGET).request["messages"]
    assert sent[-1]["content"] == [result]


CONVERSE = "us.anthropic.claude-sonnet-4-5-v1:0"
TARGETS = {
    "anthropic": "claude-sonnet-4-5",
    "bedrock_converse": CONVERSE,
    "openai_chat": "gpt-4o",
    "openai_responses": "gpt-5",
    "gemini": "gemini-2.5-pro",
}


def converse(*contents: list[Json]) -> Json:
    roles = ["user", "assistant"] * len(contents)
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    return {"modelId": CONVERSE, "messages": messages}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "dialect", ["anthropic", "openai_chat", "openai_responses", "gemini", "bedrock_converse"]
)
def test_a_blank_question_is_refused_by_a_translation_too(dialect: str, target: str) -> None:
    if dialect == target:
        return
    said = ["Hi", "old answer", []]
    if dialect == "bedrock_converse":
        request = converse([{"text": "Hi"}], [{"text": "old answer"}], [])
    else:
        request = talk(dialect, *said)
    with pytest.raises(
        InvalidRequest, match="it says nothing, and without it the request would end"
    ) as caught:
        translate(request, to=target, model=TARGETS[target], dialect=dialect, budget=BUDGET)
    assert caught.value.violations[0].place == f"{FIELDS.get(dialect, 'messages')}[2]"


@pytest.mark.parametrize("content", [[], [{"text": " "}], [{"cachePoint": {"type": "default"}}]])
def test_a_request_of_which_nothing_is_left_is_refused(content: list[Json]) -> None:
    with pytest.raises(InvalidRequest, match="nothing is said in them"):
        fit_request(converse(content), budget=BUDGET)
