"""Reads rollouts of Codex: what was sent and answered, item by item, with events between.

    {timestamp, type: "session_meta" | "response_item" | "event_msg" | "turn_context" | "compacted", payload}

Items are those of the Responses API. A `token_count` belongs to the answer before it, once. What a
compaction put in place of the history stands behind the place of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from lamina.costs.logs.growing_requests import is_answer
from lamina.costs.logs.json_fields import list_field, object_field, parse_moment, parse_usage, text_field
from lamina.costs.logs.lines import TraceRow
from lamina.costs.logs.values import RecordedUsage, Trace

_TYPES = frozenset("session_meta response_item event_msg turn_context compacted".split())
_UNSENT = frozenset(("ghost_snapshot", "other"))
_NOT_SENT = "internal_chat_message_metadata_passthrough"
"""A field that Codex adds to the items in its own files."""


def is_codex(row: dict[str, Any]) -> bool:
    """Whether it is a line of a rollout, of one of these types or of one that a later version adds.

    `{"timestamp": "…", "type": "response_item", "payload": {…}}`, for example.
    """
    if not isinstance(row.get("payload"), dict):
        return False
    line_type = text_field(row, "type")
    return line_type in _TYPES or bool(line_type and text_field(row, "timestamp"))


class Codex:
    """State: one rollout. Where files were put together, the next begins with its `session_meta`."""

    def __init__(self) -> None:
        self.rollout: _Rollout | None = None

    def take(self, row: TraceRow) -> Iterator[Trace]:
        """Take in a line; give the rollout before it, if the line begins another.

        A file may hold several rollouts, one after the other.
        """
        rollout = self.rollout or _Rollout(row.place)
        if row.value["type"] == "session_meta" and rollout.items:
            yield from self.end()
            rollout = _Rollout(row.place)
        self.rollout = rollout
        rollout.take(row.value)

    def end(self) -> Iterator[Trace]:
        """The rollout, if it has items."""
        if self.rollout is not None and self.rollout.items:
            yield self.rollout.trace()
        self.rollout = None


class _Rollout:
    """One conversation as it goes on. `answer` is where the last answer began, until its usage is read."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.id = ""
        self.model = ""
        self.instructions = ""
        self.items: list[dict[str, Any]] = []
        self.used: dict[int, RecordedUsage] = {}
        self.compacted: list[int] = []
        self.call_ids: dict[int, str] = {}
        self.project = ""
        self.began: float | None = None
        self.answer: int | None = None
        self.counted_total: Any = None

    def take(self, row: dict[str, Any]) -> None:
        """Take in a line by its type. Lines of other types say nothing about what was sent.

        Usage comes in an event of its own, after the answer that it belongs to.
        """
        payload = row["payload"]
        if self.began is None:
            self.began = parse_moment(row.get("timestamp"))
        match row["type"]:
            case "session_meta":
                self._read_meta(payload)
            case "turn_context":
                self.model = text_field(payload, "model") or self.model
            case "response_item":
                self._add_item(payload)
            case "compacted":
                self._compact(payload)
            case "event_msg" if payload.get("type") == "token_count":
                self._add_usage(object_field(payload, "info"), parse_moment(row.get("timestamp")))

    def _read_meta(self, payload: dict[str, Any]) -> None:
        """What the first line of a rollout says. A later one, of a resumed session, changes nothing."""
        if not self.id:
            self.id = text_field(payload, "id", "session_id")
        if not self.project:
            self.project = PurePath(text_field(payload, "cwd")).name
        if not self.instructions:
            base = text_field(payload.get("base_instructions"), "text")
            self.instructions = text_field(payload, "instructions") or base

    def _add_item(self, item: dict[str, Any]) -> None:
        """Add an item. The first one of an answer is where its usage will belong."""
        if not text_field(item, "type", "role") or text_field(item, "type") in _UNSENT:
            return
        if is_answer(item):
            # reasoning, a message and a call in a row are one answer, named by the first id in it
            goes_on = any(map(is_answer, self.items[-1:]))
            if self.answer is None or not goes_on:
                self.answer = len(self.items)
            item_id = text_field(item, "id", "call_id")
            if item_id:
                self.call_ids.setdefault(self.answer, item_id)
        sent_item = dict(item)
        sent_item.pop(_NOT_SENT, None)
        self.items.append(sent_item)

    def _add_usage(self, info: dict[str, Any], at: float | None) -> None:
        """The usage of the answer before it. The same total once more is only news about limits."""
        total = info.get("total_token_usage")
        # some events repeat the usage of the answer before, to say how much of a limit is left
        is_counted = total is not None and total == self.counted_total
        if self.answer is None or is_counted:
            return
        usage = parse_usage(info.get("last_token_usage"), at=at, model=self.model)
        if usage is not None:
            self.used[self.answer] = usage
            self.answer = None
            self.counted_total = total

    def _compact(self, payload: dict[str, Any]) -> None:
        """What stands in place of the history: new items, or a summary as a message of the user."""
        self.compacted.append(len(self.items))
        self.answer = None
        history = list_field(payload, "replacement_history")
        replacement = [item for item in history if text_field(item, "type", "role")]
        summary = text_field(payload, "message")
        # the summary counts only where the line has no new history
        if not replacement and summary:
            content = [{"type": "input_text", "text": summary}]
            replacement = [{"type": "message", "role": "user", "content": content}]
        self.items += [item for item in replacement if text_field(item, "type") not in _UNSENT]

    def trace(self) -> Trace:
        """The rollout so far as a trace."""
        head: dict[str, Any] = {}
        if self.instructions:
            head["instructions"] = self.instructions
        return Trace(
            id=self.id or self.place,
            place=self.place,
            dialect="openai_responses",
            items=self.items,
            head=head,
            source="codex",
            model=self.model,
            used=self.used,
            compacted=tuple(dict.fromkeys(self.compacted)),
            call_ids=self.call_ids,
            project=self.project,
            began=self.began,
            client_session=f"thread:{self.id or self.place}",
        )
