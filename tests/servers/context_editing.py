"""The context editing of Anthropic's Messages API, as its types and page describe it: what the model reads.

`edit` takes a request and returns the prompt after the edits that it asks for, with what the answer reports.
It refuses what the types do not allow. Nobody has compared it with the real server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from lamina.dialects.anthropic.server import EDITING_BETA

Json = dict[str, Any]

CLEARED = "[cleared by the server]"
CHARACTERS = 4
"""Characters for a token."""

_CLEAR_USES = "clear_tool_uses_20250919"
_CLEAR_THINKING = "clear_thinking_20251015"
_FIELDS = {
    _CLEAR_USES: {"type", "trigger", "keep", "clear_at_least", "exclude_tools", "clear_tool_inputs"},
    _CLEAR_THINKING: {"type", "keep"},
    "compact_20260112": {"type", "trigger", "instructions", "pause_after_compaction"},
}


class Refused(Exception):
    """A request that the API answers with a 400."""


class EditedPrompt(NamedTuple):
    """The messages that the model reads, and the field `context_management` of the answer."""

    messages: list[Json]
    report: Json

    @property
    def tokens(self) -> int:
        return len(json.dumps(self.messages)) // CHARACTERS


def edit(request: Mapping[str, Any], betas: str = "") -> EditedPrompt:
    """What the model reads of a request. Raises Refused for what the API would not take."""
    messages = json.loads(json.dumps(request["messages"]))
    management = request.get("context_management")
    if management is None:
        return EditedPrompt(messages, {"applied_edits": []})
    if EDITING_BETA not in betas:
        raise Refused("context_management: Extra inputs are not permitted")
    edits = management["edits"]
    for number, wanted in enumerate(edits):
        unknown = set(wanted) - _FIELDS.get(wanted["type"], set())
        if unknown or wanted["type"] not in _FIELDS:
            raise Refused(f"context_management.edits.{number}: {sorted(unknown) or wanted['type']}")
        if wanted["type"] == _CLEAR_THINKING and number:
            raise Refused("context_management.edits: clear_thinking must be the first edit")
    applied = [_clear_uses(messages, wanted) for wanted in edits if wanted["type"] == _CLEAR_USES]
    return EditedPrompt(messages, {"applied_edits": [report for report in applied if report]})


def _clear_uses(messages: list[Json], wanted: Json) -> Json | None:
    results = [
        block
        for message in messages
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    trigger = wanted.get("trigger") or {"type": "input_tokens", "value": 100_000}
    size = len(results)
    if trigger["type"] == "input_tokens":
        size = len(json.dumps(messages)) // CHARACTERS
    keep = (wanted.get("keep") or {"value": 3})["value"]
    if keep < 0 or size <= trigger["value"]:
        return None
    cleared = results[: max(len(results) - keep, 0)]
    before = len(json.dumps(messages))
    for block in cleared:
        block["content"] = CLEARED
    tokens = (before - len(json.dumps(messages))) // CHARACTERS
    return {"type": _CLEAR_USES, "cleared_tool_uses": len(cleared), "cleared_input_tokens": tokens}
