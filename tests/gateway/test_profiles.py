"""What an upstream cannot take is left out of a request, and nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lamina.gateway import GatewaySettings
from lamina.relay.config import UpstreamSettings
from lamina.relay.profiles import PROFILES, Profiled, add_salt, apply_profile
from lamina.relay.refusals import Refusal
from lamina.relay.upstreams import Upstream, Upstreams, request_headers

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


SERVER = UpstreamSettings(url="http://127.0.0.1:9", profile="openai")


def test_a_salt_is_of_the_workspace_unless_the_client_has_one() -> None:
    own: dict[str, Any] = {"model": "m", "cache_salt": "mine"}
    assert add_salt(own, "team") is own
    salted = add_salt({"model": "m"}, "team")
    assert salted["model"] == "m"
    assert len(salted["cache_salt"]) == 32
    assert salted == add_salt({"model": "m"}, "team")
    assert salted != add_salt({"model": "m"}, "other")


def test_headers_after_one_that_is_not_sent_are_sent() -> None:
    headers = [
        (b"accept", b"*/*"),
        (b"host", b"gateway"),
        (b"x-lamina-token", b"open"),
        (b"x-forwarded-for", b"10.0.0.7"),
        (b"user-agent", b"client"),
        (b"authorization", b"Bearer key"),
    ]
    sent = request_headers(headers, Upstream("up", SERVER), environment={})
    assert sent == [headers[0], *headers[-2:]]


def test_a_model_that_no_upstream_serves_is_not_found() -> None:
    only_small = msgspec.structs.replace(SERVER, models=("small-*",))
    upstreams = Upstreams(GatewaySettings(upstreams={"up": only_small}))
    assert upstreams.choose("openai_chat", "small-1").name == "up"
    for dialect, model in (("openai_chat", "large-1"), ("anthropic", "small-1")):
        with pytest.raises(Refusal, match="no upstream serves this model") as refused:
            upstreams.choose(dialect, model)
        assert refused.value.status == 404
