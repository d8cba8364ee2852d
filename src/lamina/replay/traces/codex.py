"""Rollouts as Codex keeps them: what was sent and answered, item by item, with events between.

    {timestamp, type: "session_meta" | "response_item" | "event_msg" | "turn_context" | "compacted", payload}

Items are those of the Responses API. A `token_count` belongs to the answer before it, once. What a
compaction put in place of the history stands behind the place of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lamina.replay.traces.growing_requests import is_answer
from lamina.replay.traces.json_fields import listed, mapping, seconds, text, used
from lamina.replay.traces.lines import TraceRow
from lamina.replay.values import RecordedUsage, Trace

_TYPES = frozenset("session_meta response_item event_msg turn_context compacted".split())
_UNSENT = frozenset(("ghost_snapshot", "other"))


def is_codex(row: dict[str, Any]) -> bool:
    """Whether it is a line of a rollout, of a type that is known or of a later one."""
    known = text(row, "type") in _TYPES or (text(row, "type") and text(row, "timestamp"))
    return bool(known) and isinstance(row.get("payload"), dict)


class Codex:
    """State: one rollout. Where files were put together, the next begins with its `session_meta`."""

    def __init__(self) -> None:
        self.rollout: _Rollout | None = None

    def take(self, row: TraceRow) -> Iterator[Trace]:
        opens = row.value["type"] == "session_meta"
        if opens and self.rollout is not None and self.rollout.items:
            yield from self.end()
        self.rollout = self.rollout or _Rollout(row.place)
        self.rollout.take(row.value)

    def end(self) -> Iterator[Trace]:
        if self.rollout is not None and self.rollout.items:
            yield self.rollout.trace()
        self.rollout = None


class _Rollout:
    def __init__(self, place: str) -> None:
        self.place = place
        self.id = self.model = self.instructions = ""
        self.items: list[dict[str, Any]] = []
        self.used: dict[int, RecordedUsage] = {}
        self.compacted: list[int] = []
        self.answer: int | None = None
        self.counted: Any = None

    def take(self, row: dict[str, Any]) -> None:
        payload = row["payload"]
        match row["type"]:
            case "session_meta":
                self.id = self.id or text(payload, "id", "session_id")
                stated = text(payload, "instructions") or text(payload.get("base_instructions"), "text")
                self.instructions = self.instructions or stated
            case "turn_context":
                self.model = text(payload, "model") or self.model
            case "response_item":
                self._item(payload)
            case "compacted":
                self._compact(payload)
            case "event_msg" if payload.get("type") == "token_count":
                self._count(mapping(payload, "info"), seconds(row.get("timestamp")))

    def _item(self, item: dict[str, Any]) -> None:
        if not text(item, "type", "role") or text(item, "type") in _UNSENT:
            return
        begins = not self.items or not is_answer(self.items[-1]) or self.answer is None
        if is_answer(item) and begins:
            self.answer = len(self.items)
        self.items.append(item)

    def _count(self, info: dict[str, Any], at: float | None) -> None:
        """The usage of the answer before it; the same total once more is only news about limits."""
        total = info.get("total_token_usage")
        if self.answer is None or (total is not None and total == self.counted):
            return
        said = used(info.get("last_token_usage"), at=at, model=self.model)
        if said is not None:
            self.used[self.answer] = said
            self.answer, self.counted = None, total

    def _compact(self, payload: dict[str, Any]) -> None:
        self.compacted.append(len(self.items))
        self.answer = None
        summary = text(payload, "message")
        kept = [item for item in listed(payload, "replacement_history") if text(item, "type", "role")]
        if not kept and summary:
            content = [{"type": "input_text", "text": summary}]
            kept = [{"type": "message", "role": "user", "content": content}]
        self.items += [item for item in kept if text(item, "type") not in _UNSENT]

    def trace(self) -> Trace:
        return Trace(
            id=self.id or self.place,
            place=self.place,
            dialect="openai_responses",
            items=self.items,
            head={"instructions": self.instructions} if self.instructions else {},
            source="codex",
            model=self.model,
            used=self.used,
            compacted=tuple(dict.fromkeys(self.compacted)),
        )
