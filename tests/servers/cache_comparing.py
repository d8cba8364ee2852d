"""A provider that says why its cache missed, as the pages of Anthropic and OpenAI describe it.

It remembers each request under the id of its answer. A request that names such an id is compared with it, by
plain equality of JSON values. What it says was read from the types of the SDKs (anthropic 2.8, openai 3.49);
nobody has compared it with the real servers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from typing import Any

Json = dict[str, Any]

_MARKERS = ("cache_control", "prompt_cache_breakpoint")
_ANTHROPIC_SETTINGS = ("thinking", "tool_choice", "output_config", "citations")
"""Parameters for which the page says "unavailable"."""

_OPENAI_FIELDS = (
    ("model", "model_changed"),
    ("service_tier", "service_tier_changed"),
    ("prompt_cache_key", "prompt_cache_key_changed"),
    ("tools", "tools_changed"),
    ("text.format", "text_format_changed"),
    ("reasoning.effort", "reasoning_effort_changed"),
    ("text.verbosity", "verbosity_changed"),
    ("instructions", "input_changed"),
)


class ComparingProvider:
    """Remembers requests by the ids of their answers, and compares."""

    def __init__(self) -> None:
        self._requests: dict[str, Json] = {}
        self._numbers = count(1)

    def remember(self, request: Mapping[str, Any], *, prefix: str = "msg") -> str:
        """Remember a request, and return the id of its answer."""
        answer_id = f"{prefix}_{next(self._numbers)}"
        self._requests[answer_id] = json.loads(json.dumps(request))
        return answer_id

    def compare_messages(self, request: Mapping[str, Any]) -> Json | None:
        """The field `diagnostics` of an answer of the Messages API."""
        asked = request.get("diagnostics")
        if not asked or asked.get("previous_message_id") is None:
            return None
        before = self._requests.get(asked["previous_message_id"])
        if before is None:
            return {"cache_miss_reason": {"type": "previous_message_not_found"}}
        reason = _find_messages_reason(before, request)
        if not reason:
            return None
        miss: Json = {"type": reason}
        if reason != "unavailable":
            miss["cache_missed_input_tokens"] = len(json.dumps(before)) // 4
        return {"cache_miss_reason": miss}

    def compare_responses(self, request: Mapping[str, Any]) -> Json | None:
        """The field `prompt_cache_diagnostics` of an answer of the Responses API."""
        asked = (request.get("prompt_cache_options") or {}).get("comparison_response_id")
        if asked is None:
            return None
        before = self._requests.get(asked)
        if before is None:
            return {"type": "comparison_response_not_found"}
        for path, reason in _OPENAI_FIELDS:
            if _read_path(before, path) != _read_path(request, path):
                return _write_miss(reason, before)
        old = _without_markers(before.get("input"))
        new = _without_markers(request.get("input"))
        if _is_beginning(old, new):
            return {"type": "cache_hit"}
        return _write_miss("input_changed", before)


def _find_messages_reason(before: Json, after: Mapping[str, Any]) -> str:
    if (before.get("model"), before.get("speed")) != (after.get("model"), after.get("speed")):
        return "model_changed"
    for name, reason in (("tools", "tools_changed"), ("system", "system_changed")):
        if _write(before.get(name)) != _write(after.get(name)):
            return reason
    if any(before.get(name) != after.get(name) for name in _ANTHROPIC_SETTINGS):
        return "unavailable"
    if not _is_beginning(_without_markers(before["messages"]), _without_markers(after["messages"])):
        return "messages_changed"
    return ""


def _write(value: Any) -> str:
    """What is compared: the value as it was written, keys in their order, without markers."""
    return json.dumps(_without_markers(value))


def _is_beginning(old: Any, new: Any) -> bool:
    if not isinstance(old, list) or not isinstance(new, list):
        return bool(old == new)
    if len(new) < len(old):
        return False
    return json.dumps(new[: len(old)]) == json.dumps(old)


def _without_markers(value: Any) -> Any:
    """Content as blocks, without cache markers; everything else as it is."""
    if isinstance(value, list):
        return [_without_markers(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    plain = {name: _without_markers(inner) for name, inner in value.items() if name not in _MARKERS}
    if "role" in plain and isinstance(plain.get("content"), str):
        plain["content"] = [{"type": "text", "text": plain["content"]}]
    return plain


def _read_path(request: Mapping[str, Any], path: str) -> Any:
    value: Any = request
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _write_miss(reason: str, before: Json) -> Json:
    return {"type": "cache_miss", "reason": reason, "cache_missed_tokens": len(json.dumps(before)) // 4}
