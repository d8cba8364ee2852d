from __future__ import annotations

from typing import Any

import pytest

from lamina.dialects.openai_chat import DIALECT
from tests.dialects.openai_chat_requests import fitted


@pytest.mark.parametrize("role", ["system", "user", "assistant"])
@pytest.mark.parametrize("calls", [None, []])
def test_a_message_that_says_it_has_no_calls_is_sent_without_the_field(role: str, calls: Any) -> None:
    """So an SDK's object looks when it is dumped with its unset fields."""
    message = {"role": role, "content": "Hello.", "tool_calls": calls}
    original_request = {"model": "gpt-4o", "messages": [message, {"role": "user", "content": "Go."}]}
    rendered_request = DIALECT.wire.render(fitted(original_request))
    assert rendered_request["messages"][0] == {"role": role, "content": "Hello."}
    assert DIALECT.wire.check(rendered_request) == []
