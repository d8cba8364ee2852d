"""What a call took, read from the usage of every API and proxy: each token once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.clients import UsageEvent
from lamina.clients.anthropic import MESSAGES_FORMAT
from lamina.clients.events import read_end
from lamina.clients.openai import CHAT_FORMAT
from lamina.dialects import DIALECTS, Usage, read_usage
from lamina.dialects.usage import find_usage

SHAPES: dict[str, tuple[dict[str, Any], Usage]] = {
    "OpenAI chat": (
        {
            "prompt_tokens": 2000,
            "completion_tokens": 30,
            "total_tokens": 2030,
            "prompt_tokens_details": {"cached_tokens": 1920, "audio_tokens": 0},
        },
        Usage(input=2000, cached=1920, output=30),
    ),
    "OpenAI chat, since writes cost": (
        {
            "prompt_tokens": 2000,
            "completion_tokens": 30,
            "prompt_tokens_details": {"cached_tokens": 1500, "cache_write_tokens": 400},
        },
        Usage(input=2000, cached=1500, written=400, output=30),
    ),
    "OpenAI responses": (
        {
            "input_tokens": 2000,
            "output_tokens": 30,
            "total_tokens": 2030,
            "input_tokens_details": {"cached_tokens": 1920, "cache_write_tokens": 0},
        },
        Usage(input=2000, cached=1920, output=30),
    ),
    "OpenAI responses, written for two lifetimes": (
        {
            "input_tokens": 2000,
            "output_tokens": 30,
            "input_tokens_details": {
                "cached_tokens": 1500,
                "cache_write_tokens": 400,
                "cache_write_tokens_details": {"ttl_12h_tokens": 300, "ttl_30m_tokens": 100},
            },
        },
        Usage(input=2000, cached=1500, written=400, written_long=300, output=30),
    ),
    "Model Studio, explicit cache": (
        {
            "prompt_tokens": 2000,
            "completion_tokens": 30,
            "prompt_tokens_details": {
                "cached_tokens": 1500,
                "cache_creation": {"ephemeral_5m_input_tokens": 400},
                "cache_creation_input_tokens": 400,
                "cache_type": "ephemeral",
            },
        },
        Usage(input=2000, cached=1500, written=400, output=30),
    ),
    "responses, without details": ({"input_tokens": 77, "output_tokens": 1}, Usage(input=77, output=1)),
    "Anthropic": (
        {
            "input_tokens": 50,
            "cache_read_input_tokens": 1900,
            "cache_creation_input_tokens": 50,
            "output_tokens": 30,
            "cache_creation": {"ephemeral_5m_input_tokens": 50},
        },
        Usage(input=2000, cached=1900, written=50, output=30),
    ),
    "Anthropic, nothing cached": (
        {
            "input_tokens": 2000,
            "cache_read_input_tokens": 0,
            "cache_creation_input_tokens": None,
            "output_tokens": 30,
        },
        Usage(input=2000, output=30),
    ),
    "LiteLLM in front of Claude": (
        {
            "prompt_tokens": 2000,
            "completion_tokens": 30,
            "total_tokens": 2030,
            "cache_read_input_tokens": 1900,
            "cache_creation_input_tokens": 50,
            "prompt_tokens_details": {"cached_tokens": 1900, "cache_creation_tokens": 50},
        },
        Usage(input=2000, cached=1900, written=50, output=30),
    ),
    "LiteLLM, as its logs count": (
        {
            "prompt_tokens": 12,
            "completion_tokens": 30,
            "prompt_tokens_details": {"cached_tokens": 2495, "cache_creation_tokens": 0},
        },
        Usage(input=2507, cached=2495, output=30),
    ),
    "OpenRouter": (
        {
            "prompt_tokens": 2000,
            "completion_tokens": 30,
            "total_tokens": 2030,
            "cost": 0.017,
            "prompt_tokens_details": {"cached_tokens": 1500, "cache_write_tokens": 100, "video_tokens": 0},
        },
        Usage(input=2000, cached=1500, written=100, output=30),
    ),
    "Bedrock Converse": (
        {
            "inputTokens": 50,
            "outputTokens": 30,
            "totalTokens": 2030,
            "cacheReadInputTokens": 1900,
            "cacheWriteInputTokens": 50,
        },
        Usage(input=2000, cached=1900, written=50, output=30),
    ),
    "Bedrock Converse, a model that counts the cache in": (
        {
            "inputTokens": 2000,
            "outputTokens": 30,
            "totalTokens": 2030,
            "cacheReadInputTokens": 1900,
            "cacheWriteInputTokens": 0,
        },
        Usage(input=2000, cached=1900, output=30),
    ),
    "Gemini, as JSON": (
        {
            "promptTokenCount": 2000,
            "cachedContentTokenCount": 1800,
            "candidatesTokenCount": 20,
            "thoughtsTokenCount": 10,
            "totalTokenCount": 2030,
        },
        Usage(input=2000, cached=1800, output=30),
    ),
    "Gemini, as its SDK has it, with a search of the server": (
        {
            "prompt_token_count": 2000,
            "tool_use_prompt_token_count": 400,
            "candidates_token_count": 30,
            "cached_content_token_count": None,
        },
        Usage(input=2400, output=30),
    ),
    "DeepSeek": (
        {
            "prompt_tokens": 2000,
            "completion_tokens": 30,
            "prompt_cache_hit_tokens": 1920,
            "prompt_cache_miss_tokens": 80,
            "prompt_tokens_details": {"cached_tokens": 1920},
        },
        Usage(input=2000, cached=1920, output=30),
    ),
    "vLLM": (
        {
            "prompt_tokens": 2000,
            "completion_tokens": 30,
            "total_tokens": 2030,
            "prompt_tokens_details": {"cached_tokens": 1984, "created_cache_tokens": 16},
        },
        Usage(input=2000, cached=1984, written=16, output=30),
    ),
    "llama.cpp, as Anthropic": (
        {"input_tokens": 1, "cache_read_input_tokens": 1999, "output_tokens": 30},
        Usage(input=2000, cached=1999, output=30),
    ),
    "llama.cpp, its own": ({"tokens_evaluated": 2000, "tokens_predicted": 30}, Usage(input=2000, output=30)),
    "Ollama": ({"prompt_eval_count": 2000, "eval_count": 30}, Usage(input=2000, output=30)),
    "nothing": ({}, Usage()),
    "not counts": ({"prompt_tokens": "many", "completion_tokens": True, "input_tokens": -4}, Usage()),
}

each_shape = pytest.mark.parametrize("name", SHAPES)


def as_object(value: Any) -> Any:
    """The same as an SDK has it: attributes instead of keys."""
    if not isinstance(value, dict):
        return value
    return SimpleNamespace(**{name: as_object(inner) for name, inner in value.items()})


@each_shape
def test_each_token_counts_once(name: str) -> None:
    usage, read = SHAPES[name]
    assert read_usage(usage) == read
    assert read_usage(as_object(usage)) == read


@each_shape
def test_it_is_found_in_an_answer(name: str) -> None:
    usage, read = SHAPES[name]
    assert find_usage({"id": "1", "usage": usage}) == read
    assert find_usage(SimpleNamespace(usage_metadata=as_object(usage))) == read
    assert find_usage(as_object(usage)) == read


@pytest.mark.parametrize(
    ("answer", "tier"),
    [
        ({"usage": {"input_tokens": 9, "service_tier": "standard", "inference_geo": "global"}}, ""),
        ({"usage": {"input_tokens": 9, "service_tier": "batch", "inference_geo": "us"}}, "batch+us"),
        ({"usage": {"input_tokens": 9, "speed": "fast"}}, "fast"),
        ({"usage": {"prompt_tokens": 9}, "service_tier": "flex"}, "flex"),
        ({"usage": {"prompt_tokens": 9}, "service_tier": "default"}, ""),
        ({"usageMetadata": {"promptTokenCount": 9, "trafficType": "ON_DEMAND_PRIORITY"}}, "priority"),
        ({"usageMetadata": {"promptTokenCount": 9, "trafficType": "ON_DEMAND"}}, ""),
        ({"usage": None, "service_tier": "flex"}, ""),
    ],
)
def test_how_a_call_was_served_is_read_where_it_has_a_price(answer: Any, tier: str) -> None:
    assert find_usage(answer).tier == tier
    assert (find_usage(answer) == Usage()) is (answer.get("usage", 1) is None)


def test_an_answer_that_says_it_twice_is_read_once() -> None:
    answer = {"usage": {"prompt_tokens": 9}, "prompt_eval_count": 9, "usageMetadata": {"promptTokenCount": 9}}
    assert find_usage(answer) == Usage(input=9)


@pytest.mark.parametrize("answer", [None, "text", 7, [], object()])
def test_what_has_no_usage_took_nothing(answer: Any) -> None:
    assert find_usage(answer) == read_usage(answer) == Usage()


ANSWERS: dict[str, dict[str, Any]] = {
    "openai_chat": {"choices": [], "usage": SHAPES["LiteLLM in front of Claude"][0]},
    "anthropic": {"content": [], "usage": SHAPES["Anthropic"][0]},
    "openai_responses": {"output": [], "usage": SHAPES["OpenAI responses"][0]},
    "gemini": {"usageMetadata": SHAPES["Gemini, as JSON"][0]},
    "ollama": {"message": None} | SHAPES["Ollama"][0],
    "text": {"choices": [], "usage": SHAPES["vLLM"][0]},
}


@pytest.mark.parametrize("dialect", ANSWERS)
def test_every_dialect_reads_it_the_same_way(dialect: str) -> None:
    answer = ANSWERS[dialect]
    assert DIALECTS[dialect].answers.absorb(answer).usage == find_usage(answer)


def test_streams_of_clients_read_it_the_same_way() -> None:
    chunk = {"choices": [], "usage": SHAPES["LiteLLM in front of Claude"][0]}
    start = {"type": "message_start", "message": {"usage": SHAPES["Anthropic"][0]}}
    for item, stream_format in ((chunk, CHAT_FORMAT), (start, MESSAGES_FORMAT)):
        used = next(event for event in read_end([item], stream_format) if isinstance(event, UsageEvent))
        assert (used.input, used.cached, used.written) == (2000, 1900, 50)


@given(
    st.dictionaries(
        st.sampled_from(sorted({name for usage, _ in SHAPES.values() for name in usage})),
        st.integers(-5, 5000) | st.none() | st.booleans() | st.dictionaries(st.text(), st.integers()),
    )
)
def test_no_usage_breaks_the_reader(usage: dict[str, Any]) -> None:
    read = read_usage(usage)
    assert read.input >= read.cached >= 0
    assert min(read.input, read.written, read.output) >= 0
