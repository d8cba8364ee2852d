"""Reads what an answer reports, such as its tokens, beside the stream, which passes unchanged.

The reader sees every piece of an answer, unpacks it for itself and looks only at events that speak of usage.
It stops at `LONGEST` bytes: an answer that long is passed on all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lamina.conversations.encodings import UNPACK_ERRORS, make_unpacker
from lamina.conversations.recall_filter import add_report, read_usage
from lamina.dialects.bedrock_converse.event_stream import CONTENT_TYPE, FrameReader
from lamina.dialects.json_values import list_objects
from lamina.dialects.usage import NO_REPORT, NOTHING_REPORTED, Usage, read_cache_report

LONGEST = 16 << 20
"""Bytes of a whole answer, or of one event, that are held to be read."""

_SIGNS = (
    b'"usage',
    b'"prompt_eval_count"',
    b'"context_management"',
    b'"cache_miss_reason"',
    b'"prompt_cache_diagnostics"',
    b'"finish_reason":"',
    b'"finish_reason": "',
    b'"stopReason"',
)
"""What a line has that says something about usage, in any API, or why OpenAI's model stopped."""


class AnswerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer says of itself: its id, the model that gave it, and why it ended."""

    id: str = ""
    model: str = ""
    finish_reasons: tuple[str, ...] = ()


class UsageReader:
    """Collects the usage of one answer. `usage` and `facts` are what was reported so far.

    `report` is what the provider says about its cache. `request` is the one that is answered: whether it asks
    for that matters.
    """

    def __init__(
        self,
        content_type: str,
        encoding: str,
        *,
        keeps_body: bool = False,
        request: Mapping[str, Any] | None = None,
    ) -> None:
        self._request = request
        self._unpacker = make_unpacker(encoding)
        self.is_stream = content_type.startswith(("text/event-stream", "application/x-ndjson"))
        self.is_plain_event_stream = content_type.startswith("text/event-stream") and not encoding
        self._frames: FrameReader | None = None
        if content_type.startswith(CONTENT_TYPE):
            self._frames = FrameReader()
        self._parts: list[bytes] = []
        self._size = 0
        self._kept: list[bytes] | None = None
        if keeps_body:
            self._kept = []
        self._kept_size = 0
        self._is_finished = False
        self.usage = Usage()
        self.facts = AnswerFacts()
        self.report = NO_REPORT

    def feed(self, piece: bytes) -> None:
        """Read one piece of the answer. A piece that cannot be unpacked ends the reading, not the stream."""
        self._keep(piece)
        if self._unpacker is None:
            return
        try:
            text = self._unpacker(piece)
        except UNPACK_ERRORS:
            self._unpacker = None
            return
        if self._frames is not None:
            for frame in self._frames.feed(text):
                self._read_line(frame.payload)
            if self._frames.is_broken:
                self._unpacker = None
        elif self.is_stream:
            self._read_lines(text)
        else:
            self._hold(text)

    def kept_body(self) -> bytes | None:
        """The answer as it came; None if it was not to be kept, or is too long."""
        if self._kept is None:
            return None
        return b"".join(self._kept)

    @property
    def reported_usage(self) -> Usage | None:
        """The usage so far; None if the upstream has reported nothing, which is not the same as 0."""
        if self.usage == NOTHING_REPORTED:
            return None
        return self.usage

    def _keep(self, piece: bytes) -> None:
        if self._kept is None:
            return
        self._kept_size += len(piece)
        self._kept.append(piece)
        if self._kept_size > LONGEST:
            self._kept = None

    def finish(self) -> Usage:
        """The usage, once the whole answer has been read. It may be asked for again."""
        if self._is_finished:
            return self.usage
        self._is_finished = True
        rest = self._take_parts()
        if self.is_stream:
            self._read_line(rest)
        elif rest:
            self._read_json(rest)
        # Anthropic's API says nothing if nothing differs, so silence is a report where it was asked.
        if self.report is NO_REPORT and self.usage.input:
            self.report = read_cache_report({}, self._request)
        return self.usage

    def _hold(self, text: bytes) -> None:
        """Hold a part of a line, or of the whole answer. What is too long is forgotten."""
        self._size += len(text)
        self._parts.append(text)
        if self._size > LONGEST:
            self._parts.clear()

    def _take_parts(self) -> bytes:
        text = b"".join(self._parts)
        if self._size > LONGEST:
            text = b""
        self._parts = []
        self._size = 0
        return text

    def _read_lines(self, text: bytes) -> None:
        first, newline, rest = text.partition(b"\n")
        self._hold(first)
        if not newline:
            return
        self._read_line(self._take_parts())
        *lines, last = rest.split(b"\n")
        for line in lines:
            self._read_line(line)
        self._hold(last)

    def _read_line(self, line: bytes) -> None:
        if not any(sign in line for sign in _SIGNS):
            return
        self._read_json(line.removeprefix(b"data:").strip(b" \t\r"))

    def _read_json(self, text: bytes) -> None:
        try:
            event = msgspec.json.decode(text)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return
        if isinstance(event, list):  # Gemini without alt=sse sends one list
            for item in event:
                self._read_event(item)
            return
        self._read_event(event)

    def _read_event(self, event: Any) -> None:
        """Take the usage of an event. Anthropic begins it in `message`, OpenAI ends it in `response`."""
        if not isinstance(event, dict):
            return
        for holder in list_objects([event, event.get("message"), event.get("response")]):
            self.usage = add_report(self.usage, read_usage(holder))
            self.facts = _read_facts(holder, self.facts)
            report = read_cache_report(holder)
            if report.cause:
                self.report = report
        delta = event.get("delta")
        if isinstance(delta, dict):  # why the answer ended; its usage stands beside it
            self.facts = _read_facts(delta, self.facts)


def _read_facts(holder: dict[str, Any], last: AnswerFacts) -> AnswerFacts:
    """The facts of an answer with what one of its objects says, in the words of any API."""
    reasons = [_read_reason(holder)]
    for name in ("choices", "candidates"):
        reasons += map(_read_reason, list_objects(holder.get(name)))
    finish_reasons = tuple(filter(None, reasons))
    return AnswerFacts(
        id=_read_text(holder, "id", "responseId") or last.id,
        model=_read_text(holder, "model", "modelVersion") or last.model,
        finish_reasons=finish_reasons or last.finish_reasons,
    )


def _read_reason(holder: dict[str, Any]) -> str:
    """Why an answer ended. The Responses API says so in its status, once the answer is complete."""
    reason = _read_text(holder, "stop_reason", "finish_reason", "finishReason", "done_reason", "stopReason")
    if not reason and holder.get("object") == "response" and holder.get("status") != "in_progress":
        reason = _read_text(holder, "status")
    return reason


def _read_text(holder: dict[str, Any], *names: str) -> str:
    for name in names:
        value = holder.get(name)
        if isinstance(value, str) and value:
            return value
    return ""
