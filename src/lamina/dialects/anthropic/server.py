"""What Anthropic's server does with a request's history: it is asked here, and its report is read here.

The server does two things. It drops thinking that no longer fits what comes before it; lamina asks for that.
And it clears old tool uses and thinking, if the client asks for it in `context_management`. Shapes:
anthropic 2.8 (beta types). This module changes no message and sends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from lamina.core.text.characters import WHITE_SPACE
from lamina.dialects.json_values import list_or_empty, mapping_or_empty, read_field, to_count, to_same_dict
from lamina.dialects.usage import NOTHING_CLEARED, Cleared

BETAS = "anthropic-beta"
"""The header that names the betas of a request, with commas between them."""

BINDING_BETA = "thinking-binding-controls-2026-08-01"

_BAD_REQUEST = 400

_MISMATCH = "bound to a different conversation"
"""What the API says of thinking whose past has changed."""

_SWITCH_NAMES = (BINDING_BETA, "block_binding", "prefix_mismatch_behavior")

_TYPES_WITH_BINDING = ("enabled", "adaptive")
"""Configurations of thinking that may have a `block_binding`."""

_DEFAULT_THINKING = MappingProxyType({"type": "adaptive"})
"""How a model that binds thinking thinks if a request does not say."""


def ask_to_drop_thinking(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request, asking the server to drop thinking that no longer fits.

    A request that chooses another behaviour keeps it. So does a request that turns thinking off: the field
    belongs to the configuration of thinking. Models that bind thinking think adaptively if the request does
    not say anything about it, so to say that changes nothing else.
    """
    configured = request.get("thinking")
    if configured is None:
        configured = _DEFAULT_THINKING
    thinking = mapping_or_empty(configured)
    binding = mapping_or_empty(thinking.get("block_binding"))
    chooses_itself = binding.get("prefix_mismatch_behavior") is not None
    if chooses_itself or thinking.get("type") not in _TYPES_WITH_BINDING:
        return to_same_dict(request)
    new_binding = {**binding, "prefix_mismatch_behavior": "drop_block"}
    return {**request, "thinking": {**thinking, "block_binding": new_binding}}


def refuses_binding_switch(status: int | None, message: str) -> bool:
    """Whether a server refused a request because it does not know the switch for bound thinking.

    It then names the field or the beta as unknown. A server that knows the switch names the field as well,
    as the remedy for a block that is bound to a different conversation.
    """
    if status != _BAD_REQUEST or _MISMATCH in message:
        return False
    return any(name in message for name in _SWITCH_NAMES)


def refuses_thinking(status: int | None, message: str) -> bool:
    """Whether a server refused a request for thinking that was given after another past."""
    return status == _BAD_REQUEST and _MISMATCH in message


def read_cleared(answer: Any) -> Cleared:
    """What an answer (a dict, or an object of the SDK) reports as cleared from its prompt.

    `{"context_management": {"applied_edits": [{"cleared_tool_uses": 3, "cleared_input_tokens": 900}]}}`
    reports three tool uses of 900 tokens.
    """
    management = read_field(answer, "context_management")
    if management is None:
        return NOTHING_CLEARED
    edits = list_or_empty(read_field(management, "applied_edits"))  # one for each kind of edit

    def add_counts(name: str) -> int:
        return sum(to_count(read_field(edit, name)) for edit in edits)

    return Cleared(
        tokens=add_counts("cleared_input_tokens"),
        tool_uses=add_counts("cleared_tool_uses"),
        thinking_turns=add_counts("cleared_thinking_turns"),
    )


def merge_betas(*headers: str) -> str:
    """Several values of the header as one: each beta once, in the order of its first mention.

    `"a, b"` and `"b,c"` become `"a,b,c"`.
    """
    names = ",".join(headers).split(",")
    betas = dict.fromkeys(name.strip(WHITE_SPACE) for name in names)
    return ",".join(filter(None, betas))
