"""Which client asks, and whether one of its sub-agents does: by headers, and by what the body says."""

from __future__ import annotations

from typing import Any

import pytest

from lamina.relay.identity import ClientIdentity, identify_client, read_header_identity

SESSION = (b"x-claude-code-session-id", b"s1")


def billing(words: str) -> dict[str, Any]:
    text = f"x-anthropic-billing-header: cc_version=2.1.325.0dc; cc_entrypoint=sdk-cli;{words}"
    return {"system": [{"type": "text", "text": text}, {"type": "text", "text": "You are helpful."}]}


@pytest.mark.parametrize(
    ("headers", "request_body", "identity"),
    [
        ([SESSION], {}, ClientIdentity("claude-code:s1")),
        (
            [SESSION, (b"x-claude-code-agent-id", b"a1")],
            {},
            ClientIdentity("claude-code:s1:a1", "claude-code:s1"),
        ),
        (
            [SESSION, (b"x-claude-code-agent-id", b"a2"), (b"x-claude-code-parent-agent-id", b"a1")],
            {},
            ClientIdentity("claude-code:s1:a2", "claude-code:s1:a1"),
        ),
        ([SESSION], billing(" cc_is_subagent=true;"), ClientIdentity("claude-code:s1", "claude-code:s1")),
        ([SESSION], billing(" cc_is_subagent=false;"), ClientIdentity("claude-code:s1")),
        ([SESSION], billing(""), ClientIdentity("claude-code:s1")),
        ([(b"thread-id", b"t1"), (b"session-id", b"t1")], {}, ClientIdentity("thread:t1")),
        (
            [
                (b"session-id", b"t1"),
                (b"thread-id", b"t2"),
                (b"x-codex-parent-thread-id", b"t1"),
                (b"x-openai-subagent", b"collab_spawn"),
            ],
            {},
            ClientIdentity("thread:t2", "thread:t1"),
        ),
        (
            [(b"session-id", b"t1"), (b"thread-id", b"t3"), (b"x-openai-subagent", b"review")],
            {},
            ClientIdentity("thread:t3", "thread:t1"),
        ),
        (
            [(b"session-id", b"t1"), (b"thread-id", b"t1"), (b"x-openai-subagent", b"compact")],
            {},
            ClientIdentity("thread:t1"),
        ),
        ([(b"x-session-id", b"ses_1")], billing(" cc_is_subagent=true;"), ClientIdentity("session:ses_1")),
        ([], {"system": ["cc_is_subagent=true"]}, ClientIdentity()),
    ],
)
def test_a_request_names_its_conversation_and_that_of_its_parent(
    headers: list[tuple[bytes, bytes]], request_body: dict[str, Any], identity: ClientIdentity
) -> None:
    assert identify_client(read_header_identity(headers), request_body) == identity
