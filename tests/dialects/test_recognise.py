"""Which dialects take a request for theirs, by its shape. Routers take Chat Completions with any model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lamina import BadInput, Budget, LaminaError, fit_request
from lamina.dialects import DIALECTS, recognise
from lamina.fitting import RequestMemo
from tests.fixtures.wire_samples import REQUESTS

Json = dict[str, Any]
USER: Json = {"role": "user", "content": "Hi"}
SYSTEM: Json = {"role": "system", "content": "Be brief."}
FUNCTION: Json = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
CLAUDE = "claude-sonnet-4-5"
CONVERSE: Json = {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]}
CONTENT: Json = {"role": "user", "parts": [{"text": "Hi"}]}


def chat(*messages: Json, model: str = "m", **fields: Any) -> Json:
    return {"model": model, "messages": list(messages), **fields}


def says(**fields: Any) -> Json:
    return {"role": "assistant", "content": "", **fields}


def asks(*blocks: Json) -> Json:
    return {"role": "user", "content": list(blocks)}


RECOGNISED: dict[str, list[Json]] = {
    "anthropic": [
        chat(USER, model="claude-opus-5-5", system=[{"type": "text", "text": "Be brief."}], max_tokens=9),
        chat(USER, system="Be brief.", max_tokens=9),
        chat(USER, system="Be brief.", think=True),
        chat(asks({"type": "image", "source": {}})),
        chat(asks({"type": "tool_result", "tool_use_id": "t", "content": "x"}), max_tokens=9),
        chat(USER, says(content=[{"type": "tool_use", "id": "t"}]), max_tokens=9),
        chat(USER, tools=[{"name": "f", "input_schema": {"type": "object"}}], max_tokens=9),
        chat(USER, model=f"{CLAUDE}@20250929", anthropic_version="vertex-2023-10-16"),
        chat(USER, model=f"anthropic/{CLAUDE}", system="Be brief.", max_tokens=9),
    ],
    "anthropic openai_chat": [  # both could be meant: the model decides
        chat(USER, model=CLAUDE),
        chat(USER, model=CLAUDE, max_tokens=9),
        chat(USER, model=f"us.anthropic.{CLAUDE}-v1:0", max_tokens=9),
        chat(USER, model=f"arn:aws:bedrock:eu:1:inference-profile/eu.anthropic.{CLAUDE}"),
    ],
    "openai_chat": [
        {  # Mistral's thoughts are lists
            "messages": [
                {
                    "role": "assistant",
                    "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "x"}]}],
                }
            ]
        },
        {"messages": [USER]},
        {"messages": []},
        {"messages": [], "prompt": "x"},
        chat(USER, model="qwen3"),
        chat({"role": "developer", "content": "x"}, USER),
        chat(USER, says(tool_calls=[{"id": "c", **FUNCTION}]), model="qwen3"),
        chat(asks({"type": "text", "text": "x"}), max_tokens=5),
        chat(SYSTEM, USER, model=f"anthropic/{CLAUDE}"),
        chat(USER, model=f"anthropic/{CLAUDE}"),
        chat(USER, model=f"bedrock/anthropic.{CLAUDE}-v1:0", max_tokens=9),
        chat(USER, model=f"openrouter/anthropic/{CLAUDE}"),
        chat(SYSTEM, USER, model=CLAUDE),
        chat(USER, model=CLAUDE, max_completion_tokens=9),
        chat(USER, model=CLAUDE, response_format={"type": "json_object"}),
        chat(USER, model=CLAUDE, stop=["x"], n=1),
        chat(USER, model=CLAUDE, tools=[FUNCTION]),
        chat(model=CLAUDE, tools=[FUNCTION]),
        chat({"role": "tool", "content": "s", "tool_call_id": "x"}, model=CLAUDE),
        chat(says(content=None, tool_calls=[]), model=CLAUDE),
        chat(asks({"type": "image_url"}), model=CLAUDE),
    ],
    "openai_responses": [
        {"input": "Hi"},
        {"model": CLAUDE, "input": "Hi"},
        {"prompt": {"id": "p"}, "input": "Hi"},
        {"model": "m", "prompt": {"id": "p"}},
        {"previous_response_id": "r", "input": []},
    ],
    "gemini": [
        {"contents": "Hi"},
        {"contents": []},
        {"model": "gemini-3-pro", "contents": [CONTENT]},
        {"contents": [CONTENT], "generationConfig": {}},
        {"contents": [CONTENT], "config": {}},
    ],
    "ollama": [
        chat(USER, options={"num_ctx": 1}),
        chat(USER, keep_alive="5m"),
        chat(USER, think=True),
        chat(USER, format="json"),
        chat({**USER, "images": ["AAAA"]}),
        chat(USER, says(thinking="x")),
        chat(USER, says(tool_calls=[{"function": {"name": "f", "arguments": {}}}])),
        chat(USER, says(tool_calls=[]), {"role": "tool", "content": "x", "tool_name": "f"}),
    ],
    "bedrock_converse": [
        CONVERSE,
        {**CONVERSE, "system": [{"text": "Be brief."}]},
        {**CONVERSE, "toolConfig": {"tools": [{"toolSpec": {"name": "f"}}]}},
        {**CONVERSE, "modelId": f"us.anthropic.{CLAUDE}-v1:0"},
    ],
    "text": [
        {"model": "m", "prompt": "Once upon"},
        {"prompt": "User: hi\nAssistant:", "max_tokens": 50, "stop": ["\nUser:"]},
        {"prompt": "x", "options": {}},
    ],
    "": [
        {},
        {"model": "gemini-3-pro"},
        {"messages": [], "contents": []},
        {"messages": [], "input": "x"},
        {"messages": "Hi"},
        {"messages": "Hi", "options": {}},
        {"model": "m", "input": ["embed", "these"]},
        {"prompt": ["x"]},
        chat(asks({"type": "text", "text": "x"}), format="json"),
    ],
}
ROWS = [
    pytest.param(names.split(), request, id=f"{names or 'nobody'}-{number}")
    for names, requests in RECOGNISED.items()
    for number, request in enumerate([*requests, *([REQUESTS[names]] if names in REQUESTS else [])])
]


@pytest.mark.parametrize(("names", "request_"), ROWS)
def test_a_request_is_taken_by_the_dialects_that_it_may_be_of(names: list[str], request_: Json) -> None:
    assert [name for name, dialect in DIALECTS.items() if dialect.recognises(request_)] == names
    if names:
        assert recognise(request_).name == names[0]
        return
    with pytest.raises(BadInput):
        recognise(request_)


def test_a_request_of_chat_completions_for_claude_is_fitted() -> None:
    request = chat(SYSTEM, USER, model=CLAUDE)
    assert fit_request(request).request == request


MESSAGES = [
    message for requests in RECOGNISED.values() for each in requests for message in each.get("messages", ())
]
CALLS = says(content=[{"type": "tool_use", "id": "t", "name": "f", "input": {}}])


@example(model="m", steps=[(0, [USER]), (1, CONVERSE["messages"])])
@example(model="m", steps=[(0, [USER]), (1, [CALLS])])
@example(model=CLAUDE, steps=[(0, [USER, says(tool_calls=[{"id": "c", **FUNCTION}])]), (1, [])])
@given(
    model=st.sampled_from(["m", CLAUDE]),
    steps=st.lists(
        st.tuples(st.integers(0, 5), st.lists(st.sampled_from(MESSAGES), max_size=3)), min_size=2, max_size=5
    ),
)
def test_a_memo_changes_nothing_when_a_request_turns_out_to_be_of_another_dialect(
    model: str, steps: list[tuple[int, list[Json]]]
) -> None:
    """Because of a new message, or because the one that told its dialect was taken back."""
    memo = RequestMemo()
    messages: list[Json] = []
    for count, more in steps:
        messages = [*messages[:count], *more]
        request_ = chat(*messages, model=model, max_tokens=9)
        assert fit(request_, memo) == fit(request_, RequestMemo())


def fit(request_: Json, memo: RequestMemo) -> tuple[str, Any]:
    """The dialect of a request and how it is sent, or why it cannot be."""
    try:
        fitted = fit_request(request_, budget=Budget(window=9_000), memo=memo)
    except LaminaError as error:
        return "", repr(error)
    assert fitted.dialect is not None
    return fitted.dialect.name, fitted.request
