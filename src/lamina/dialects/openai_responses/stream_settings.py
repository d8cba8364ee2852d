"""The parameters of a Responses request that a prefix cache may depend on. Only for `stream`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.dialects.json_values import drop_default, drop_nulls, mapping_or_empty
from lamina.dialects.port import Request

_IN_OTHER_PLACES = frozenset(
    "model input instructions tools prompt prompt_cache_key prompt_cache_options reasoning text".split()
)
"""Fields that the stream holds elsewhere, or that are read one by one."""

_SETTINGS = frozenset("tool_choice parallel_tool_calls service_tier image".split())
"""Fields that `read_settings` reads."""

_NOT_IN_THE_PROMPT = frozenset(
    "max_output_tokens max_tool_calls temperature top_p stream stream_options user metadata store include "
    "background safety_identifier top_logprobs truncation moderation prompt_cache_retention access_programs "
    "previous_response_id conversation extra_headers extra_query timeout".split()
)


def read_settings(request: Request) -> dict[str, Any]:
    """The settings of a request, by their names in the rules. Defaults are left out."""
    reasoning = mapping_or_empty(request.get("reasoning"))
    text = mapping_or_empty(request.get("text"))
    image = mapping_or_empty(request.get("image"))
    default_choice = "auto" if request.get("tools") else "none"
    parallel = None
    if request.get("parallel_tool_calls") is False:
        parallel = False
    settings: dict[str, Any] = {
        "tool_choice": drop_default(request.get("tool_choice"), default_choice),
        "parallel": parallel,
        "effort": reasoning.get("effort"),
        "thinking": _select_changed(reasoning, {"context": "auto", "mode": "standard"}) or None,
        "format": drop_default(text.get("format"), {"type": "text"}),
        "verbosity": drop_default(text.get("verbosity"), "medium"),
        "tier": drop_default(request.get("service_tier"), "auto"),
        "images": _select_changed(image, {"context_compression": "auto"}) or None,
        "other": _select_unknown_fields(request) or None,
    }
    return drop_nulls(settings)


def _select_changed(holder: Mapping[str, Any], defaults: Mapping[str, str]) -> dict[str, Any]:
    """The fields named in `defaults` whose value is another one."""
    return {
        name: holder[name] for name, default in defaults.items() if holder.get(name) not in (None, default)
    }


def _select_unknown_fields(request: Request) -> dict[str, Any]:
    """Fields that lamina does not know. They are compared too, since the model may read them."""
    known_fields = _IN_OTHER_PLACES | _SETTINGS | _NOT_IN_THE_PROMPT
    return {name: value for name, value in request.items() if name not in known_fields and value is not None}
