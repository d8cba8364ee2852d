"""What Anthropic's server can do to a request's history, and what an answer says that it did.

Two things only: dropping thinking that no longer fits what stands before it, where it is asked for, and
clearing old tool uses and thinking, which the caller asks for in `context_management`. Shapes: anthropic 2.8
(beta types). It changes no message, and sends nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lamina.core.text.characters import WHITE_SPACE
from lamina.dialects.port import Cleared

BETAS = "anthropic-beta"
"""The header that names the betas of a request, with commas between them."""

BINDING_BETA = "thinking-binding-controls-2026-08-01"

_TAKES_BINDING = ("enabled", "adaptive")


def with_drop_block(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request, asking that thinking which no longer fits is dropped; what it says itself of that stays.

    The field belongs to the configuration of thinking, so a request without one is left as it is.
    """
    thinking = request.get("thinking")
    given = thinking if isinstance(thinking, Mapping) else {}
    binding = given.get("block_binding")
    binding = binding if isinstance(binding, Mapping) else {}
    if given.get("type") not in _TAKES_BINDING or binding.get("prefix_mismatch_behavior") is not None:
        return request if isinstance(request, dict) else dict(request)
    asked = {**given, "block_binding": {**binding, "prefix_mismatch_behavior": "drop_block"}}
    return {**request, "thinking": asked}


def asks_to_clear(request: Mapping[str, Any]) -> bool:
    """Whether the caller asked the server to leave out what is old."""
    management = request.get("context_management")
    return isinstance(management, Mapping) and bool(management.get("edits"))


def cleared(answer: Any) -> Cleared:
    """What an answer (a dict, or an object of the SDK) says was cleared from its prompt."""
    edits = list(_edits(answer))
    return Cleared(
        tokens=sum(_count(edit, "cleared_input_tokens") for edit in edits),
        tool_uses=sum(_count(edit, "cleared_tool_uses") for edit in edits),
        thinking_turns=sum(_count(edit, "cleared_thinking_turns") for edit in edits),
    )


def merged_betas(*headers: str) -> str:
    """Several values of the header as one, each beta once, in the order of their first mention."""
    names = (name.strip(WHITE_SPACE) for header in headers for name in header.split(","))
    return ",".join(dict.fromkeys(name for name in names if name))


def _edits(answer: Any) -> Iterator[Any]:
    applied = _field(_field(answer, "context_management"), "applied_edits")
    if isinstance(applied, list | tuple):
        yield from applied


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _count(edit: Any, name: str) -> int:
    count = _field(edit, name)
    return count if isinstance(count, int) and count > 0 else 0
