"""Shows the body that was sent, and what came back: its text, thinking and calls, with status and times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lamina.conversations.answer_bodies import read_answer_text
from lamina.conversations.costs import is_refused
from lamina.conversations.record import RecordedCall
from lamina.core.values import Part, Segment, Text, Thinking, ToolCall
from lamina.errors import BadInput, LaminaError
from lamina.inspector.segment_texts import join_texts
from lamina.inspector.sent_conversations import SentConversation
from lamina.inspector.sent_sessions import SentSession
from lamina.inspector.views import Inspector, Json, find_call

LONGEST_ANSWER = 400_000
"""Characters of an answer that the page gets; its raw bytes are an answer of their own."""

KEEP_ALL = 'with policy.keep = "all", requests and answers are stored as they went'
"""What to do if a store does not have the texts."""


def show_body(inspector: Inspector, session_id: str, number: int) -> Json:
    """The body that was sent, as text.

    `client` is the size of the body that the client wrote. It is None if lamina changed nothing, or if the
    client's body was not recorded.
    """
    opened = inspector.open(session_id)
    find_call(opened, number)
    call = opened.sent.calls[number]
    text = opened.sent.record.sent_body(call)
    if text is None:
        raise BadInput(f"the body of request {number + 1} is not kept", place="request", hint=KEEP_ALL)
    client_size = None
    if call.came_pieces != call.sent_pieces:
        client_size = len(opened.sent.record.came_body(call) or b"")
    return {
        "dialect": opened.sent.dialect,
        "is_sent": not opened.sent.is_log,
        "size": len(text),
        "client": client_size,
        "text": text.decode("utf-8", "replace"),
    }


def show_answer(opened: SentSession, number: int) -> Json | None:
    """What came back for a request; None if nothing did."""
    sent = opened.sent
    call = sent.calls[number]
    answer = call.answer
    if answer is None:
        return None
    body = sent.record.answer_body(call)
    parts: list[Json] = []
    problem = ""
    if body is not None:
        try:
            parts = list(_read_parts(sent, call, read_answer_text(body, answer)))
        except LaminaError as error:
            problem = str(error)
    return {
        "status": opened.calls[number].status,
        "error": answer.error,
        "id": answer.answer_id,
        "stop": list(answer.stop),
        "first": answer.first,
        "last": answer.last,
        "headers": dict(answer.headers),
        "is_kept": body is not None,
        "parts": parts,
        "problem": problem,
        "diagnosis": answer.provider_cause,
    }


def show_raw_answer(inspector: Inspector, session_id: str, number: int) -> Json:
    """The bytes of an answer as they came, unpacked: the JSON, or the events of the stream."""
    opened = inspector.open(session_id)
    find_call(opened, number)
    call = opened.sent.calls[number]
    answer = call.answer
    body = opened.sent.record.answer_body(call)
    if answer is None or body is None:
        raise BadInput(f"the answer to request {number + 1} is not kept", place="request", hint=KEEP_ALL)
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
