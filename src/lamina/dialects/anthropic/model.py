"""What the name of a Claude model says about the rules that it follows: dated data, and lookups.

Names come from many places (dated, with a cloud's prefix, with dots), so only family and version are
read. A name that says nothing gets the rules of the models that ask for least. Read 2026-09-26.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from lamina.core.bound_thinking import Binding

NAME = "anthropic"
"""The name of this dialect."""

Since = Mapping[str, tuple[int, int]]
"""Families of models, each with the version from which something holds."""

BOUND: Since = MappingProxyType({"fable": (5, 1), "opus": (5, 5), "sonnet": (5, 5)})
"""Thinking is bound to everything before it."""

SYSTEM_MESSAGES: Since = MappingProxyType(
    {"fable": (5, 0), "mythos": (5, 0), "opus": (4, 8), "sonnet": (5, 5)}
)
"""Messages may have the role "system". Nobody has verified it for Sonnet 5.5."""

NO_SYSTEM_MESSAGES = (4, 8)
"""Before this version no family takes the role "system" in messages: "Unexpected role"."""

NO_SAMPLING: Since = MappingProxyType(
    {"opus": (4, 7), "sonnet": (5, 0), "haiku": (5, 0), "fable": (5, 0), "mythos": (5, 0)}
)
"""No temperature or top_p. Nobody has verified it for Haiku."""

NO_FORCED_TOOL: Since = MappingProxyType(
    {"fable": (5, 1), "mythos": (5, 1), "opus": (5, 5), "sonnet": (5, 5)}
)
"""The model may not be made to call a tool."""

NO_PREFILL = (4, 6)
"""From this version on, of any family, a conversation may not end with the assistant."""

_FAMILY_FIRST = re.compile(r"claude-([a-z]+)-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)", re.ASCII)
_VERSION_FIRST = re.compile(r"claude-(\d{1,2})(?:[-.](\d{1,2}))?-([a-z]+)", re.ASCII)


def version(model: str) -> tuple[str, tuple[int, int]]:
    """Family and version of a model: `("opus", (5, 5))`; `("", (0, 0))` where the name does not say."""
    if found := _FAMILY_FIRST.search(model):
        return found[1], (int(found[2]), int(found[3] or 0))
    if found := _VERSION_FIRST.search(model):
        return found[3], (int(found[1]), int(found[2] or 0))
    return "", (0, 0)


def binding(model: str) -> Binding:
    """What a changed past does to thinking of this model."""
    return "strict" if _since(model, BOUND) else "none"


def binding_of(request: Mapping[str, Any]) -> Binding:
    """What a changed past does to thinking in this request: what it asks for, else what its model does."""
    match request.get("thinking"):
        case {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}:
            return "drop"
        case {"block_binding": {"prefix_mismatch_behavior": str()}}:
            return "strict"
    return binding(model_of(request))


def takes_system_messages(model: str) -> bool:
    return _since(model, SYSTEM_MESSAGES)


def refuses_system_messages(model: str) -> bool:
    """Whether the model is known to refuse them. Of some it is not known, and clients send them there."""
    family, number = version(model)
    return bool(family) and number < NO_SYSTEM_MESSAGES


def takes_no_sampling(model: str) -> bool:
    return _since(model, NO_SAMPLING)


def forces_no_tool(model: str) -> bool:
    return _since(model, NO_FORCED_TOOL)


def rejects_prefill(model: str) -> bool:
    return version(model)[1] >= NO_PREFILL


def model_of(request: Mapping[str, Any]) -> str:
    model = request.get("model")
    return model if isinstance(model, str) else ""


def _since(model: str, table: Since) -> bool:
    family, number = version(model)
    return family in table and number >= table[family]
