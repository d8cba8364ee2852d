"""What an upstream cannot take is left out of a request, and nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lamina.gateway.profiles import PROFILES, Profiled, apply_profile

MARKED = {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
REQUEST: dict[str, Any] = {
    "model": "claude-opus-5",
    "max_tokens": 9,
    "context_management": {"edits": []},
    "system": [MARKED],
    "messages": [{"role": "user", "content": [MARKED]}],
}


def leave_out(name: str, request: dict[str, Any]) -> Profiled:
    return apply_profile(PROFILES[name], request, msgspec.json.encode(request))


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_leaves_out_what_it_names_and_keeps_the_rest(name: str) -> None:
    profiled = leave_out(name, REQUEST)
    kept = dict(REQUEST)
    if "context_management" in profiled.left_out:
        del kept["context_management"]
    assert profiled.request.keys() == kept.keys()
    assert (profiled.request is REQUEST) is (profiled.left_out == ())
    assert [message["role"] for message in profiled.request["messages"]] == ["user"]


def test_some_profile_leaves_out_context_management() -> None:
    """Else the test above would show nothing of it."""
    names = [name for name in PROFILES if "context_management" in leave_out(name, REQUEST).left_out]
    assert names
    for name in names:
        without = {field: value for field, value in REQUEST.items() if field != "context_management"}
        assert "context_management" not in leave_out(name, without).left_out


def test_messages_are_looked_through_only_if_the_text_of_the_request_has_the_name_of_a_lifetime() -> None:
    assert leave_out("vllm", REQUEST).left_out == ("lifetimes of cache markers", "context_management")
    assert apply_profile(PROFILES["vllm"], REQUEST, b'{"messages":[]}') == Profiled(REQUEST)
