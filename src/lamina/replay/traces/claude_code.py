"""Sessions as Claude Code keeps them: a line for each block of an answer, each result and each event.

    {type: "user" | "assistant" | "system" | ..., uuid, parentUuid, sessionId, message: {...}, timestamp}

Lines with one message id are one answer, whose usage counts once. Side chains (sub-agents) are traces of
their own. What the client left out or summarised stays, with the place of each compaction. System text and
tools are not recorded there, so that these traces have no head.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lamina.replay.traces.json_fields import field, listed, mapping, seconds, text, used
from lamina.replay.traces.lines import TraceRow
from lamina.replay.values import RecordedUsage, Trace

SESSIONS = 4
"""Sessions of one file that are held at a time."""

_IDS = ("uuid", "sessionId", "leafUuid", "messageId")
_BESIDE = frozenset("summary system attachment file-history-snapshot queue-operation progress".split())
_MADE_UP = "<synthetic>"


def is_claude_code(row: dict[str, Any]) -> bool:
    """Whether it is a line of a session: one that is said, or any that belongs to one."""
    sort = text(row, "type")
    spoken = sort in ("user", "assistant") and bool(mapping(row, "message"))
    return spoken or sort in _BESIDE or bool(sort and text(row, *_IDS))


class ClaudeCode:
    """State: the chains of the sessions that were seen last, and the chain of each line."""

    def __init__(self) -> None:
        self.sessions: dict[str, dict[str, _Chain]] = {}
        self.chains: dict[str, _Chain] = {}

    def take(self, row: TraceRow) -> Iterator[Trace]:
        value, uuid = row.value, text(row.value, "uuid")
        if uuid in self.chains or not (mapping(value, "message") or _is_boundary(value)):
            return  # a line that was copied, or one that no model saw
        chain = self._chain(row)
        if uuid:
            self.chains[uuid] = chain
        chain.take(value)
        while len(self.sessions) > SESSIONS:
            oldest = self.sessions.pop(next(iter(self.sessions)))
            self.chains = {name: c for name, c in self.chains.items() if c.session in self.sessions}
            yield from _traces(oldest)

    def end(self) -> Iterator[Trace]:
        for session in self.sessions.values():
            yield from _traces(session)
        self.sessions.clear()
        self.chains.clear()

    def _chain(self, row: TraceRow) -> _Chain:
        """That of the line before it, else that of its agent or session; a side chain may begin anywhere."""
        value, session = row.value, text(row.value, "sessionId")
        side = value.get("isSidechain") is True
        before = self.chains.get(text(value, "parentUuid"))
        if before is not None and before.side == side:
            return before
        chains = self.sessions.setdefault(session, {})
        name = (text(value, "agentId", "uuid") or row.place) if side else ""
        if name not in chains:
            chains[name] = _Chain(row.place, session, name, side=side)
        return chains[name]


class _Chain:
    """One conversation as it goes on."""

    def __init__(self, place: str, session: str, name: str, *, side: bool) -> None:
        self.place, self.session, self.name, self.side = place, session, name, side
        self.items: list[dict[str, Any]] = []
        self.answers: dict[str, int] = {}
        self.used: dict[int, RecordedUsage] = {}
        self.compacted: list[int] = []
        self.model = ""

    def take(self, value: dict[str, Any]) -> None:
        message = mapping(value, "message")
        if _is_boundary(value):
            self.compacted.append(len(self.items))
            self.answers.clear()
        elif value["type"] == "assistant" and text(message, "model") != _MADE_UP:
            self._answer(message, seconds(value.get("timestamp")))
        elif value["type"] == "user":
            self._said(message.get("content"))

    def _answer(self, message: dict[str, Any], at: float | None) -> None:
        """A piece of an answer; results may stand between the pieces of one."""
        blocks, name = _blocks(message.get("content")), text(message, "id")
        if not blocks:
            return
        place = self.answers.setdefault(name, len(self.items)) if name else len(self.items)
        if place == len(self.items):
            self.items.append({"role": "assistant", "content": []})
        self.items[place]["content"] += blocks
        self.model = text(message, "model") or self.model
        before = self.used.get(place)
        said = used(message.get("usage"), at=at if before is None else before.at, model=self.model)
        if said is not None and (before is None or said.output >= before.output):
            self.used[place] = said

    def _said(self, content: Any) -> None:
        """A message of the user; the results of one answer stand in one message."""
        if isinstance(content, str) and content:
            self.items.append({"role": "user", "content": content})
        elif blocks := _blocks(content):
            if _results(blocks) and self.items and _results(_blocks(self.items[-1].get("content"))):
                self.items[-1]["content"] += blocks
            else:
                self.items.append({"role": "user", "content": blocks})

    def trace(self) -> Trace:
        session = self.session or self.place
        return Trace(
            id=f"{session}/{self.name}" if self.name else session,
            place=self.place,
            dialect="anthropic",
            items=self.items,
            source="claude-code",
            model=self.model,
            used=dict(sorted(self.used.items())),
            compacted=tuple(dict.fromkeys(self.compacted)),
        )


def _traces(chains: dict[str, _Chain]) -> Iterator[Trace]:
    yield from (chain.trace() for chain in chains.values() if chain.items)


def _is_boundary(value: dict[str, Any]) -> bool:
    return value.get("type") == "system" and value.get("subtype") == "compact_boundary"


def _blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    given = listed({"content": content}, "content")
    return [block for block in given if isinstance(block, dict) and text(block, "type")]


def _results(blocks: list[dict[str, Any]]) -> bool:
    return bool(blocks) and all(field(block, "type") == "tool_result" for block in blocks)
