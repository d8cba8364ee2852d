"""What an upstream cannot take is left out of a request, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from lamina.gateway.profiles import PROFILES, apply_profile

MARKED = {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
REQUEST: dict[str, Any] = {
    "model": "claude-opus-5",
    "max_tokens": 9,
    "context_management": {"edits": []},
    "system": [MARKED],
    "messages": [{"role": "user", "content": [MARKED]}],
}


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_leaves_out_what_it_names_and_keeps_the_rest(name: str) -> None:
    profiled = apply_profile(PROFILES[name], REQUEST)
    kept = dict(REQUEST)
    if "context_management" in profiled.left_out:
        del kept["context_management"]
    assert profiled.request.keys() == kept.keys()
    assert (profiled.request is REQUEST) is (profiled.left_out == ())
    assert [message["role"] for message in profiled.request["messages"]] == ["user"]


def test_some_profile_leaves_out_context_management() -> None:
    """Else the test above would show nothing of it."""
    names = [
        name for name in PROFILES if "context_management" in apply_profile(PROFILES[name], REQUEST).left_out
    ]
    assert names
    for name in names:
        without = {field: value for field, value in REQUEST.items() if field != "context_management"}
        assert "context_management" not in apply_profile(PROFILES[name], without).left_out
