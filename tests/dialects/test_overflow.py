from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.dialects.overflow import LONGEST, Overflow, read_overflow

NUMBERED = [
    "request (12019 tokens) exceeds the available context size (4096 tokens), try increasing it",
    "prompt is too long: 12019 tokens > 4096 maximum",
    "input length and `max_tokens` exceed context limit: 12019 + 21333 > 4096, decrease input length",
    "This model's maximum context length is 4096 tokens. However, your messages resulted in 12019 tokens.",
    "This model's maximum prompt length is 4096 but the request contains 12019 tokens.",
    "Input tokens exceed the configured limit of 4096 tokens. Your messages resulted in 12019 tokens.",
    "Prompt contains 12019 tokens, too large for model with 4096 maximum context length",
    "The prompt (total length 12019) is too long to fit into the model (context length 4096).",
    "The decoder prompt (length 12019) is longer than the maximum model length of 4096.",
    "The input (12019 tokens) is longer than the model's context length (4096 tokens).",
    "The input token count (12019) exceeds the maximum number of tokens allowed (4096).",
    "Invalid request: Your request exceeded model token limit: 4096 (requested: 12019)",
    "prompt token count of 12019 exceeds the limit of 4096",
    "Trying to keep the first 12019 tokens. The model is loaded with context length of only 4096 tokens.",
    "The number of tokens to keep is greater than the context length (n_keep: 12019>= n_ctx: 4096).",
]
PLAIN = [
    "Your input exceeds the context window of this model. context_length_exceeded",
    "Input is too long for requested model.",
    "`inputs` tokens + `max_new_tokens` must be <= 4097",
    "Request exceeds the maximum size request_too_large",
    "invalid params, context window exceeds limit (2013)",
    "Please reduce the length of the messages or completion.",
    "Range of input length should be [1, 129024]",
    "prompt too long; exceeded max context length by 10000 tokens",
]
OTHERS = [
    "max_tokens is too large: 500000. This model supports at most 16384 completion tokens",
    "messages.0.content: text content blocks must be non-empty",
    "invalid api key",
    "Unsupported parameter: 'max_tokens' is not supported with this model.",
    "string too long. Expected a string with maximum length 64",
    "",
]


@pytest.mark.parametrize("message", NUMBERED)
def test_numbers_are_read(message: str) -> None:
    assert read_overflow(400, message) == Overflow(asked=12019, limit=4096)


@pytest.mark.parametrize("message", PLAIN)
def test_an_overflow_may_come_without_numbers(message: str) -> None:
    assert read_overflow(413, message) == Overflow()


@pytest.mark.parametrize("message", OTHERS)
def test_other_errors_are_none(message: str) -> None:
    assert read_overflow(400, message) is None


@pytest.mark.parametrize("status", [None, 200, 401, 403, 429, 500, 529])
def test_with_another_status_it_is_something_else(status: int | None) -> None:
    assert read_overflow(status, NUMBERED[0]) is None


@given(
    st.builds(Overflow, asked=st.none() | st.integers(1, 10**6), limit=st.none() | st.integers(1, 10**6)),
    st.integers(2, 10**6),
)
def test_the_next_window_is_smaller_than_what_was_refused(refusal: Overflow, counted: int) -> None:
    assert refusal.window(counted, otherwise=0.75) < counted


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10**6))
def test_what_fits_the_next_window_fits_the_limit_as_the_api_counts(
    request_tokens: int, limit: int, counted: int
) -> None:
    window = Overflow(asked=request_tokens, limit=limit).window(counted, otherwise=0.75)
    if request_tokens > limit:
        assert window * request_tokens <= limit * counted or request_tokens < counted


def test_a_long_message_is_read_at_its_beginning_only() -> None:
    assert read_overflow(400, "x" * 10 * LONGEST + NUMBERED[0]) is None
    assert read_overflow(400, "(1 tokens)" * 10**6) is None
