"""Plain messages of other systems: what cannot be read says where it is and what to give instead."""

from __future__ import annotations

from typing import Any

import pytest

from examples.importers.messages import read_messages
from lamina.errors import BadInput


@pytest.mark.parametrize("part", [5, None, "text", {"type": "text"}, {"type": "audio", "data": "…"}])
def test_a_part_that_cannot_be_read_is_refused_with_its_place(part: Any) -> None:
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, part]},
    ]
    with pytest.raises(BadInput, match=r"messages\[1\]\.content\[1\]") as refused:
        read_messages(messages)
    assert "not a text, image, tool_call or tool_result" in refused.value.problem
    assert "type" in refused.value.hint
