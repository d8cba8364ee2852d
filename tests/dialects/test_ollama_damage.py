from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core.build import build
from lamina.dialects.anthropic import DIALECT as ANTHROPIC
from lamina.dialects.ollama import DIALECT
from lamina.dialects.openai_chat import DIALECT as OPENAI_CHAT
from lamina.errors import BudgetExceeded
from tests.dialects import openai_chat_requests as chat
from tests.dialects.ollama_requests import (
    PIXEL,
    Json,
    answered,
    answers,
    asks,
    called,
    converted,
    fitted,
    request,
    user,
)
from tests.dialects.test_ollama import validated

SEEDS = st.integers(0, 10_000)


def test_calls_that_are_none_are_left_out_whoever_speaks() -> None:
    messages = [{"role": "system", "content": "hi", "tool_calls": {}}, user()]
    assert DIALECT.wire.check(DIALECT.wire.render(fitted(request(*messages)))) == []


CALLS = st.lists(st.sampled_from(("f", "g")), min_size=1, max_size=3)
STEPS = st.tuples(
    CALLS,
    st.lists(st.sampled_from(("f", "g", "h", "")), max_size=4),
    st.booleans(),
)


@given(st.lists(STEPS, min_size=1, max_size=3))
def test_results_in_any_number_and_order_are_sent_valid(
    steps: list[tuple[list[str], list[str], bool]],
) -> None:
    messages = [user()]
    for names, results, speaks in steps:
        messages.append(asks(*(called(name, {"n": i}) for i, name in enumerate(names))))
        messages += [answers(f"{i}", name) for i, name in enumerate(results)]
        messages += [answered()] if speaks else []
    rendered_request = DIALECT.wire.render(fitted(request(*messages)))
    assert DIALECT.wire.check(rendered_request) == []
    if DIALECT.wire.check(request(*messages)) == []:
        assert all(a is b for a, b in zip(rendered_request["messages"], messages, strict=True))


@given(SEEDS, st.sampled_from((None, 3000)))
def test_requests_of_openai_chat_are_valid_here(seed: int, window: int | None) -> None:
    with suppress(BudgetExceeded):
        rendered_request = converted(chat.conversation(seed), OPENAI_CHAT, DIALECT, window=window)
        assert DIALECT.wire.check(rendered_request) == []
        validated(rendered_request)
        assert rendered_request["truncate"] is False


def _anthropic() -> Json:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    calls = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "a", "name": "read_file", "input": {"path": "a.py"}},
        {"type": "tool_use", "id": "b", "name": "read_file", "input": {"path": "b.py"}},
        {"type": "tool_use", "id": "c", "name": "shot", "input": {}},
    ]
    results = [
        {"type": "tool_result", "tool_use_id": "b", "content": "in b", "is_error": True},
        {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "a shot"}, picture]},
        {"type": "tool_result", "tool_use_id": "a", "content": "in a"},
        {"type": "text", "text": "Go on."},
    ]
    paper = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PIXEL}}
    words = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "the spec"}}
    search_blocks = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "text", "text": "Found."},
    ]
    return {
        "model": "claude-sonnet-5",
        "max_tokens": 100,
        "system": [{"type": "text", "text": "Be brief."}],
        "tools": [{"name": "read_file", "description": "reads", "input_schema": {"type": "object"}}],
        "messages": [
            user([{"type": "text", "text": "See."}, picture, paper, words]),
            {"role": "assistant", "content": calls},
            user(results),
            {"role": "assistant", "content": search_blocks},
            user("And?"),
        ],
    }


def test_a_request_of_anthropic_is_said_here() -> None:
    rendered_request = converted(_anthropic(), ANTHROPIC, DIALECT)
    assert DIALECT.wire.check(rendered_request) == []
    validated(rendered_request)
    roles = [message["role"] for message in rendered_request["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "tool", "user", "assistant", "user"]
    assert rendered_request["tools"][0]["function"]["parameters"] == {"type": "object"}
    assert rendered_request["options"] == {"num_predict": 100}


def test_results_that_would_be_read_wrongly_stand_in_the_order_of_their_calls() -> None:
    rendered_request = converted(_anthropic(), ANTHROPIC, DIALECT)
    results = [message for message in rendered_request["messages"] if message["role"] == "tool"]
    assert [(r["tool_name"], r["content"]) for r in results] == [
        ("read_file", "in a"), ("read_file", "in b"), ("shot", "a shot"),
    ]  # fmt: skip
    assert results[2]["images"] == [PIXEL]


def test_what_another_provider_alone_can_read_is_named_and_its_reasoning_left_out() -> None:
    rendered_request = converted(_anthropic(), ANTHROPIC, DIALECT)
    question, called_, spoken = (rendered_request["messages"][i] for i in (1, 2, 7))
    assert question["images"] == [PIXEL]
    assert "the spec" in question["content"]
    assert "[trimmed: document" in question["content"]
    assert "thinking" not in called_
    assert spoken["content"].endswith("Found.")


@pytest.mark.parametrize("role", ["system", "user"])
@pytest.mark.parametrize("name", ["thinking", "tool_name"])
def test_a_text_that_is_none_is_left_out_whoever_speaks(role: str, name: str) -> None:
    messages = [{"role": role, "content": "hi", name: []}, {"role": "user", "content": "and?"}]
    parsed = DIALECT.wire.parse({"model": "m", "messages": messages})
    assert DIALECT.wire.check(DIALECT.wire.render(build(parsed.log, head=parsed.head))) == []
