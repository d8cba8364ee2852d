"""The parameters of a Messages request that a prefix cache may depend on. Only for `stream`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lamina.caches.stream import StreamBlock
from lamina.dialects.anthropic.markers import FIELD
from lamina.dialects.json_values import drop_default, drop_nulls, mapping_or_empty
from lamina.dialects.port import Request

_IN_OTHER_PLACES = frozenset(("model", "messages", "system", "tools", FIELD))
"""Fields that the stream holds elsewhere."""

_SETTINGS = frozenset(
    ("tool_choice", "thinking", "output_config", "output_format", "speed", "service_tier", "inference_geo")
)
"""Fields that `read_settings` reads."""

_NOT_IN_THE_PROMPT = frozenset(
    "max_tokens metadata stop_sequences stream temperature top_p top_k diagnostics user_profile_id "
    "workspace_id anthropic_version anthropic_beta betas extra_headers extra_query timeout".split()
)


def read_settings(request: Request, blocks: Sequence[StreamBlock]) -> dict[str, Any]:
    """The settings of a request, by their names in the rules. Defaults are left out."""
    output_config = mapping_or_empty(request.get("output_config"))
    tool_choice = request.get("tool_choice")
    settings: dict[str, Any] = {
        "tool_choice": _normalise_choice(tool_choice),
        "parallel": _read_parallel_switch(tool_choice),
        "thinking": _normalise_thinking(request.get("thinking")),
        "effort": drop_default(output_config.get("effort"), "high"),
        "format": output_config.get("format") or request.get("output_format"),
        "task_budget": output_config.get("task_budget"),
        "speed": drop_default(request.get("speed"), "standard"),
        "tier": drop_default(request.get("service_tier"), "auto"),
        "geo": request.get("inference_geo"),
        "web_search": any(_is_web_search(block) for block in blocks) or None,
        "citations": any(_has_citations(block) for block in blocks) or None,
        "images": any(_has_image(block) for block in blocks) or None,
        "other": _select_unknown_fields(request) or None,
    }
    return drop_nulls(settings)


def _normalise_choice(choice: Any) -> Any:
    """The tool choice without its switch for parallel calls; None if it is the default."""
    if not isinstance(choice, Mapping):
        return choice
    rest = {name: value for name, value in choice.items() if name != "disable_parallel_tool_use"}
    if rest == {"type": "auto"}:
        return None
    return rest


def _read_parallel_switch(choice: Any) -> bool | None:
    """False if parallel calls are switched off, None by default."""
    if isinstance(choice, Mapping) and choice.get("disable_parallel_tool_use") is True:
        return False
    return None


def _normalise_thinking(config: Any) -> Any:
    """How the model thinks, without how thinking is displayed and what happens to blocks that do not fit."""
    if not isinstance(config, Mapping):
        return config
    if config.get("type") == "disabled":
        return None
    return {name: value for name, value in config.items() if name not in ("display", "block_binding")}


def _is_web_search(block: StreamBlock) -> bool:
    return block.sort == "tool" and b'"type":"web_search_' in block.data


def _has_citations(block: StreamBlock) -> bool:
    return block.sort == "document" and b'"citations":{"enabled":true' in block.data


def _has_image(block: StreamBlock) -> bool:
    if block.sort == "image":
        return True
    return block.sort == "result" and b'"type":"image"' in block.data


def _select_unknown_fields(request: Request) -> dict[str, Any]:
    """Fields that lamina does not know. They are compared too, since the model may read them."""
    known_fields = _IN_OTHER_PLACES | _SETTINGS | _NOT_IN_THE_PROMPT
    return {name: value for name, value in request.items() if name not in known_fields and value is not None}
