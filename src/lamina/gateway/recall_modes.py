"""How the model of a request can have again what was left out, and where nothing can be put back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.conversations.recall_answers import CALL_LISTS
from lamina.dialects.json_values import read_field
from lamina.fitting.policy import RecallMode
from lamina.gateway.calls import IncomingRequest

SERVER_STATE = ("previous_response_id", "conversation")
"""Fields of a request whose history the upstream has. Nothing can be put back into a history there."""

LOCAL_PROFILES = frozenset(("llama.cpp", "vllm", "ollama"))
"""Servers of models that may not know tools. They get the recall tool only beside tools of the client."""


def choose_recall_mode(incoming: IncomingRequest) -> RecallMode:
    """How the model can have again what was lowered. Where nothing answers, no handle is shown.

    With "handles", a tool of the client's own answers, such as that of `lamina mcp`.
    """
    mode = incoming.upstream.settings.policy.recall_mode("tool")
    if mode == "tool" and not _takes_recall_tool(incoming):
        return "off"
    return mode


def find_server_conversation(incoming: IncomingRequest) -> str:
    """The field by which a request continues what only the server has; "" if it has none.

    Such a request has the new items only. Nobody here knows how long the whole is, and a cut could take away
    what the server's part refers to. So it passes as it came.
    """
    if incoming.dialect.name != "openai_responses":
        return ""
    return _find_server_state(incoming.request)


def _find_server_state(request: Mapping[str, Any]) -> str:
    for field in SERVER_STATE:
        if request.get(field):
            return field
    return ""


def _takes_recall_tool(incoming: IncomingRequest) -> bool:
    """Whether a request may get a tool of the gateway's own. `HeadShape.takes_tool` has the API's rules."""
    request = incoming.request
    if _find_server_state(request) or incoming.dialect.name not in CALL_LISTS:
        return False
    if request.get("tools") or read_field(request.get("toolConfig"), "tools"):
        return True
    if incoming.dialect.name == "bedrock_converse":
        return False  # some of its models refuse every request that defines a tool
    return incoming.upstream.settings.profile not in LOCAL_PROFILES
