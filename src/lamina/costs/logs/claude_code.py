"""Reads sessions of Claude Code: a line for each block of an answer, each result and each event.

    {type: "user" | "assistant" | "system" | ..., uuid, parentUuid, sessionId, message: {...}, timestamp}

Lines with one message id are one answer, whose usage counts once. Its message and request id name the answer,
also where a resumed session begins with a copy of it. Side chains (sub-agents) are traces of their own. What
the client left out or summarised stays, with the place of each compaction.

Newer releases (2.1.325, not 2.1.197) write lines for what was sent besides the messages. Older sessions have
no head.

    {type: "api-request-shape", sessionId, agentId, shape: {system: [...], tools: [...]}}
    {type: "api-request-blob", sessionId, agentId, message: {...}}    a message that was sent with more text
    {type: "attachment", rendered: [{content: "..."}], renderedRole: "system" | "user"}
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, Literal

from lamina.costs.logs.json_fields import (
    list_field,
    object_field,
    parse_moment,
    parse_usage,
    text_field,
)
from lamina.costs.logs.lines import TraceRow
from lamina.costs.logs.values import RecordedUsage, Trace
from lamina.dialects.json_values import list_or_empty

SESSIONS = 4
"""Sessions of one file that are held at a time."""

_IDS = ("uuid", "sessionId", "leafUuid", "messageId")
_EVENT_TYPES = frozenset("summary system attachment file-history-snapshot queue-operation progress".split())
_MADE_UP = "<synthetic>"
_SHAPE = "api-request-shape"
_BLOB = "api-request-blob"
_HEAD_FIELDS = ("system", "tools")

_Addition = Literal["compaction", "answer", "user message", "reminder"]
"""What a line adds to a conversation."""


def is_claude_code(row: dict[str, Any]) -> bool:
    """Whether it is a line of a session: a message, or an event that belongs to one.

    `{"type": "summary", "leafUuid": "…"}` is one. An event of a new type is known by its ids.
    """
    line_type = text_field(row, "type")
    if line_type in _EVENT_TYPES:
        return True
    if line_type in ("user", "assistant") and object_field(row, "message"):
        return True
    return bool(line_type and text_field(row, *_IDS))


class ClaudeCode:
    """State: the chains of the sessions that were seen last, and the chain of each line."""

    def __init__(self) -> None:
        self.sessions: dict[str, dict[str, _Chain]] = {}
        self.chains: dict[str, _Chain] = {}

    def take(self, row: TraceRow) -> Iterator[Trace]:
        """Take in a line that is no copy; give the traces of sessions that are held no longer.

        A line with a `uuid` that was seen before is a copy.
        """
        if row.value.get("type") in (_SHAPE, _BLOB):
            self._take_request(row.value)
            return
        uuid = text_field(row.value, "uuid")
        addition = _find_addition(row.value)
        if addition is None or uuid in self.chains:
            return
        chain = self._find_chain(row)
        if uuid:
            self.chains[uuid] = chain
        chain.take(row.value, addition)
        while len(self.sessions) > SESSIONS:
            yield from self._end_oldest_session()

    def end(self) -> Iterator[Trace]:
        """All sessions that are still held, as traces."""
        for session in self.sessions.values():
            yield from _session_traces(session)
        self.sessions.clear()
        self.chains.clear()

    def _take_request(self, line: dict[str, Any]) -> None:
        """What the next request has besides the lines of the conversation, which stand before this one.

        The shape of a request has the system text and the tools. A blob has a message as it was sent.
        """
        chains = self.sessions.get(text_field(line, "sessionId"), {})
        chain = chains.get(text_field(line, "agentId"))
        if chain is None:
            return
        shape = object_field(line, "shape")
        if shape:
            chain.head = {name: shape[name] for name in _HEAD_FIELDS if list_field(shape, name)}
        message = object_field(line, "message")
        if text_field(message, "role") == "user":
            chain.complete_prompt(_content_blocks(message.get("content")))

    def _end_oldest_session(self) -> Iterator[Trace]:
        """Give the traces of the session that began first, and forget its lines.

        That bounds the memory for a file with many sessions.
        """
        oldest = self.sessions.pop(next(iter(self.sessions)))
        self.chains = {uuid: chain for uuid, chain in self.chains.items() if chain.session in self.sessions}
        yield from _session_traces(oldest)

    def _find_chain(self, row: TraceRow) -> _Chain:
        """That of the line before it, else that of its agent or session; a side chain may begin anywhere.

        A side chain is what a sub-agent did. It has the name of its agent, and the main chain has none.
        """
        is_side = row.value.get("isSidechain") is True
        parent_chain = self.chains.get(text_field(row.value, "parentUuid"))
        if parent_chain is not None and parent_chain.is_side == is_side:
            return parent_chain
        session = text_field(row.value, "sessionId")
        name = ""
        if is_side:
            name = text_field(row.value, "agentId", "uuid") or row.place
        chains = self.sessions.setdefault(session, {})
        if name not in chains:
            chains[name] = _Chain(row.place, session, name, is_side=is_side)
        return chains[name]


class _Chain:
    """One conversation as it goes on."""

    def __init__(self, place: str, session: str, name: str, *, is_side: bool) -> None:
        self.place = place
        self.session = session
        self.name = name
        self.is_side = is_side
        self.head: dict[str, Any] = {}
        self.items: list[dict[str, Any]] = []
        self.answers: dict[str, int] = {}
        self.used: dict[int, RecordedUsage] = {}
        self.compacted: list[int] = []
        self.call_ids: dict[int, str] = {}
        self.model = ""
        self.project = ""
        self.began: float | None = None

    def take(self, line: dict[str, Any], addition: _Addition) -> None:
        """Take in a line: a compaction, a piece of an answer, or a message of the user.

        The project and the beginning of a session are those of its first line that has them.
        """
        message = object_field(line, "message")
        if not self.project:
            self.project = PurePath(text_field(line, "cwd")).name
        if self.began is None:
            self.began = parse_moment(line.get("timestamp"))
        match addition:
            case "compaction":
                self.compacted.append(len(self.items))
                self.answers.clear()
            case "answer" if text_field(message, "model") != _MADE_UP:
                self._add_answer(message, line)
            case "user message":
                self._add_user_message(message.get("content"))
            case "reminder":
                self._add_reminder(_rendered_text(line))

    def _add_answer(self, message: dict[str, Any], line: dict[str, Any]) -> None:
        """A piece of an answer; results may stand between the pieces of one."""
        blocks = _content_blocks(message.get("content"))
        if not blocks:
            return
        # a text and two calls of one answer are three lines with one message id; results may stand between
        # them
        place = len(self.items)
        message_id = text_field(message, "id")
        if message_id:
            place = self.answers.setdefault(message_id, place)
            self.call_ids.setdefault(place, f"{message_id} {text_field(line, 'requestId')}")
        if place == len(self.items):
            self.items.append({"role": "assistant", "content": []})
        self.items[place]["content"] += blocks
        self.model = text_field(message, "model") or self.model
        self._add_usage(place, message.get("usage"), parse_moment(line.get("timestamp")))

    def _add_usage(self, place: int, usage: Any, at: float | None) -> None:
        """Each piece repeats the usage of its answer; the one with the most output is the last."""
        earlier = self.used.get(place)
        if earlier is not None:
            at = earlier.at
        parsed = parse_usage(usage, at=at, model=self.model)
        if parsed is None:
            return
        # the output grows while an answer is written, so a later line knows better
        if earlier is None or parsed.output >= earlier.output:
            self.used[place] = parsed

    def _add_user_message(self, content: Any) -> None:
        """A message of the user; the results of one answer stand in one message."""
        blocks = _content_blocks(content)
        if not blocks:
            return
        if isinstance(content, str):
            self.items.append({"role": "user", "content": content})
        # two results of one answer come as two lines, and were sent as one message
        elif _are_results(blocks) and self._ends_with_results():
            self.items[-1]["content"] += blocks
        else:
            self.items.append({"role": "user", "content": blocks})

    def _ends_with_results(self) -> bool:
        """Whether the last message holds results of calls, and nothing else."""
        return bool(self.items) and _are_results(_content_blocks(self.items[-1]["content"]))

    def _add_reminder(self, text: str) -> None:
        """A system message of the client; several in a row are sent as one.

        Their texts are joined with a blank line between them.
        """
        if self.items and self.items[-1]["role"] == "system":
            text = f"{self.items.pop()['content'][0]['text']}\n\n{text}"
        self.items.append({"role": "system", "content": _content_blocks(text)})

    def complete_prompt(self, sent_blocks: list[dict[str, Any]]) -> None:
        """Put a prompt as it was sent in place of the last one, if it is that one with more around it."""
        sent_text = _join_texts(sent_blocks)
        for item in reversed(self.items):
            # a prompt before the last answer was sent already
            if item["role"] == "assistant":
                return
            if item["role"] == "user":
                prompt = _join_texts(_content_blocks(item["content"]))
                if prompt and prompt in sent_text:
                    item["content"] = sent_blocks
                return

    def trace(self) -> Trace:
        """The chain so far as a trace. A side chain is named after its session and its agent.

        Each compaction counts once.
        """
        trace_id = self.session or self.place
        if self.name:
            trace_id = f"{trace_id}/{self.name}"
        return Trace(
            id=trace_id,
            place=self.place,
            dialect="anthropic",
            items=self.items,
            head=self.head,
            source="claude-code",
            model=self.model,
            used=dict(sorted(self.used.items())),
            compacted=tuple(dict.fromkeys(self.compacted)),
            call_ids=self.call_ids,
            project=self.project,
            began=self.began,
            client_session=f"claude-code:{trace_id.replace('/', ':')}",
        )


def _session_traces(chains: dict[str, _Chain]) -> Iterator[Trace]:
    """The chains of a session that have items, as traces.

    A session has one chain for its own conversation, and one for each sub-agent.
    """
    for chain in chains.values():
        if chain.items:
            yield chain.trace()


def _find_addition(line: dict[str, Any]) -> _Addition | None:
    """What a line adds to its conversation, None for nothing.

    A compaction is where the client put a summary in place of its history. A reminder is an attachment that
    the model read in a system message.
    """
    has_message = bool(object_field(line, "message"))
    match line.get("type"):
        case "system" if line.get("subtype") == "compact_boundary":
            return "compaction"
        case "assistant" if has_message:
            return "answer"
        case "user" if has_message:
            return "user message"
        case "attachment" if line.get("renderedRole") == "system":
            return "reminder" if _rendered_text(line) else None
    return None


def _rendered_text(line: dict[str, Any]) -> str:
    """The text of an attachment, as the model read it."""
    texts = [text_field(piece, "content") for piece in list_field(line, "rendered")]
    return "\n\n".join(filter(None, texts))


def _content_blocks(content: Any) -> list[dict[str, Any]]:
    """The blocks of a content. Text is one block, and what has no type is left out.

    `"Hi"` is `[{"type": "text", "text": "Hi"}]`.
    """
    if content and isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in list_or_empty(content) if text_field(block, "type")]


def _join_texts(blocks: list[dict[str, Any]]) -> str:
    """The texts of these blocks, one on each line. A block without text is an empty line."""
    return "\n".join(text_field(block, "text") for block in blocks)


def _are_results(blocks: list[dict[str, Any]]) -> bool:
    return {block["type"] for block in blocks} == {"tool_result"}
