"""Shows the answer to a recorded request as plain JSON values: text, thinking and calls, status and times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from lamina.conversations.answer_bodies import read_answer_text, read_values, unpack_answer
from lamina.conversations.costs import is_refused
from lamina.conversations.record import RecordedCall
from lamina.core.values import Part, Segment, Text, Thinking, ToolCall
from lamina.errors import BadInput, LaminaError
from lamina.inspector.building import KEEP_ALL, find_call
from lamina.inspector.built_values import BuildSettings, BuiltSession
from lamina.inspector.segment_texts import join_texts
from lamina.inspector.sent_conversations import SentConversation
from lamina.inspector.views import Inspector, Json

LONGEST_ANSWER = 400_000
"""Characters of an answer that the page gets; its raw bytes are an answer of their own."""

_DIAGNOSES = (("diagnostics", "cache_miss_reason"), ("prompt_cache_diagnostics", "cache_miss"))
"""Where the APIs of Anthropic and OpenAI say themselves why a cache missed, if the client asked them to."""


def show_answer(built: BuiltSession, number: int) -> Json | None:
    """What came back for a request that lamina recorded; None if nothing did, or for any other log."""
    if built.sent is None:
        return None
    call = built.sent.calls[number]
    answer = call.answer
    if answer is None:
        return None
    body = built.sent.record.answer_body(call)
    parts: list[Json] = []
    problem = ""
    diagnosis = None
    if body is not None:
        try:
            parts = list(_read_parts(built.sent, call, read_answer_text(body, answer)))
        except LaminaError as error:
            problem = str(error)
        diagnosis = find_diagnosis(read_values(unpack_answer(body, answer.encoding) or b""))
    return {
        "status": answer.status,
        "error": answer.error,
        "id": answer.answer_id,
        "stop": list(answer.stop),
        "first": answer.first,
        "last": answer.last,
        "recalled": answer.recalled,
        "headers": dict(answer.headers),
        "content_type": answer.content_type,
        "size": answer.size,
        "is_kept": body is not None,
        "parts": parts,
        "text": "\n".join(part["text"] for part in parts)[:LONGEST_ANSWER],
        "problem": problem,
        "diagnosis": diagnosis,
    }


def show_raw_answer(inspector: Inspector, session_id: str, number: int, settings: BuildSettings) -> Json:
    """The bytes of an answer as they came, unpacked: the JSON, or the events of the stream."""
    built = inspector.built(session_id, settings)
    find_call(built, number)
    answer = None
    body = None
    if built.session.sent is not None:
        call = built.session.sent.calls[number]
        answer = call.answer
        body = built.session.sent.record.answer_body(call)
    if answer is None or body is None:
        raise BadInput(f"the answer to request {number} is not kept", place="request", hint=KEEP_ALL)
    return {"text": read_answer_text(body, answer), "content_type": answer.content_type}


def _read_parts(sent: SentConversation, call: RecordedCall, raw_text: str) -> Iterator[Json]:
    """What the model said. An error, or an answer that its dialect cannot read, is shown as it came."""
    segments: Sequence[Segment] = ()
    if not is_refused(call):
        segments = sent.read_answer(call)
    if not segments:
        yield {"sort": "raw", "name": "", "text": raw_text[:LONGEST_ANSWER]}
        return
    for segment in segments:
        for part in segment.parts:
            yield _show_part(part)


def _show_part(part: Part) -> Json:
    match part:
        case Text(text=text):
            return {"sort": "text", "name": "", "text": text[:LONGEST_ANSWER]}
        case Thinking(text=text):
            return {"sort": "thinking", "name": "", "text": text[:LONGEST_ANSWER]}
        case ToolCall(name=name, arguments=arguments):
            return {"sort": "call", "name": name, "text": arguments[:LONGEST_ANSWER]}
        case _:
            return {"sort": "other", "name": type(part).__name__.lower(), "text": join_texts((part,))}


def find_diagnosis(values: Sequence[Any]) -> str | None:
    """What the provider itself said of the cache, as JSON; None if it said nothing.

    It stands in the answer, or in the event that begins or ends a stream.
    """
    for value in values:
        if not isinstance(value, dict):
            continue
        for holder in (value, value.get("message"), value.get("response")):
            report = _find_report(holder)
            if report is not None:
                return msgspec.json.encode(report).decode()
    return None


def _find_report(answer: Any) -> dict[str, Any] | None:
    if not isinstance(answer, dict):
        return None
    for field, reason in _DIAGNOSES:
        report = answer.get(field)
        if isinstance(report, dict) and report.get(reason):
            return report
    return None
