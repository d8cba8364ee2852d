from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.dialects.openai_chat import DIALECT
from lamina.errors import BadInput
from tests.dialects.openai_chat_requests import fitted

NAMES = (
    "role content tool_calls tool_call_id function_call function custom name arguments input id type text "
    "image_url url file input_audio refusal audio reasoning_content prompt_cache_breakpoint x"
).split()
WORDS = ("user", "assistant", "tool", "function", "text", "image_url", "function_call", "read.it")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=10,
)
ROLES = st.sampled_from(("system", "developer", "user", "assistant", "assistant", "tool", "tool", "function"))
MESSAGES = st.builds(
    lambda role, rest: {"role": role, **rest},
    ROLES,
    st.dictionaries(st.sampled_from(NAMES[1:]), JSON, max_size=4),
)


NOT_MENDED = ("markers_stand_on_parts", "calls_are_whole")
"""Rules that a request may break after rendering, and is refused for: a message of the user that has calls is
not mended, for one."""


@given(st.lists(MESSAGES | JSON, max_size=4), JSON)
def test_any_json_is_a_request_or_bad_input(messages: list[Any], tools: Any) -> None:
    original_request = {"messages": messages, "tools": tools}
    DIALECT.wire.check(original_request)
    DIALECT.recognises(original_request)
    with suppress(BadInput):
        rendered_request = DIALECT.wire.render(fitted(original_request))
        broken = DIALECT.wire.check(rendered_request)
        assert [v for v in broken if not v.place.startswith("tools") and v.rule not in NOT_MENDED] == []


@pytest.mark.parametrize("role", ["system", "user", "assistant"])
@pytest.mark.parametrize("calls", [None, []])
def test_a_message_that_says_it_has_no_calls_is_sent_without_the_field(role: str, calls: Any) -> None:
    """So an SDK's object looks when it is dumped with its unset fields."""
    message = {"role": role, "content": "Hello.", "tool_calls": calls}
    original_request = {"model": "gpt-4o", "messages": [message, {"role": "user", "content": "Go."}]}
    rendered_request = DIALECT.wire.render(fitted(original_request))
    assert rendered_request["messages"][0] == {"role": role, "content": "Hello."}
    assert DIALECT.wire.check(rendered_request) == []
