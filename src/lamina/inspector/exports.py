"""Writes a session, or a span of it, into a file: one page, HAR or JSON, redacted if asked to.

A HAR file opens in the network view of any browser. It has the body that was sent and the answer, where
lamina recorded them. The requests of other logs are built again, and their answers are not in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import msgspec

from lamina.errors import BadInput
from lamina.inspector.body_views import read_body, show_answer, show_raw_answer
from lamina.inspector.built_values import BuiltCall, BuiltSession, RequestSpan, read_span
from lamina.inspector.one_file import Download, encode_json, write_page
from lamina.inspector.progress import report_steps
from lamina.inspector.redaction import Redaction
from lamina.inspector.views import Inspector, Json, sum_calls
from lamina.replay.model_calls import CHAT

_MILLISECONDS = 1000

_ENDPOINTS = {
    CHAT: "https://api.openai.com/v1/chat/completions",
    "openai_responses": "https://api.openai.com/v1/responses",
    "anthropic": "https://api.anthropic.com/v1/messages",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/models/{model}:generateContent",
    "bedrock_converse": "https://bedrock-runtime.us-east-1.amazonaws.com/model/{model}/converse",
    "ollama": "http://127.0.0.1:11434/api/chat",
}
"""Where requests of a dialect go. A record does not say where a request went."""


def export_request(inspector: Inspector, session_id: str, number: int) -> Json:
    """The request as it was sent, as JSON."""
    built = inspector.built(session_id)
    return inspector.builder.build_with_body(built, number).request


def save_session(
    inspector: Inspector, session_id: str, format_name: str, query: Mapping[str, str]
) -> Download:
    """A session as a file: `html`, `har` or `json`.

    The words `from` and `to` choose requests, and `redact` leaves out what was said.
    """
    span = read_span(query)
    redaction = None
    if query.get("redact"):
        redaction = Redaction()
    built = inspector.built(session_id)
    calls = span.select(built.calls)
    if format_name not in _WRITERS:
        raise BadInput(
            f"there is no format {format_name!r}", place="format", hint=f"use one of {', '.join(_WRITERS)}"
        )
    media_type, write = _WRITERS[format_name]
    body = write(_SessionExport(inspector, built, calls, span, redaction))
    return Download(
        name=f"session-{session_id[:40]}.{format_name}", media_type=f"{media_type}; charset=utf-8", body=body
    )


class _SessionExport:
    """What a file is written from: a session, some of its requests, and a redaction if it was asked for."""

    def __init__(
        self,
        inspector: Inspector,
        built: BuiltSession,
        calls: list[BuiltCall],
        span: RequestSpan,
        redaction: Redaction | None,
    ) -> None:
        self.inspector = inspector
        self.built = built
        self.calls = calls
        self.span = span
        self.redaction = redaction

    def words(self, text: str) -> str:
        """A text, or its mark."""
        if self.redaction is None:
            return text
        return self.redaction.mark(text)

    def body(self, value: Any) -> Any:
        """A request or an answer, with marks for its texts if it is redacted."""
        if self.redaction is None:
            return value
        return self.redaction.redact_body(value)

    def request(self, call: BuiltCall) -> Json:
        return self.inspector.builder.build_call(self.built, call.number).request

    def request_text(self, call: BuiltCall) -> str:
        """The body as it left, with its own spaces; written anew if it is redacted or was not recorded."""
        text = None
        if self.redaction is None:
            text = read_body(self.built, call.number)
        if text is None:
            text = msgspec.json.encode(self.body(self.request(call)))
        return text.decode("utf-8", "replace")


def _write_html(export: _SessionExport) -> bytes:
    page = write_page(
        export.inspector,
        session=export.built.session.summary.id,
        span=export.span,
        redaction=export.redaction,
    )
    return page.encode("utf-8", "backslashreplace")


def _write_json(export: _SessionExport) -> bytes:
    """Every request with its usage and what lamina did."""
    entries = [
        {
            "number": call.number,
            "at": _write_moment(call.at),
            "request": export.body(export.request(call)),
            "answer": _read_answer(export, call),
            "usage": _usage(call),
            "lamina": _remarks(call),
        }
        for call in report_steps(export.calls, "writing requests")
    ]
    summary = export.built.session.summary
    session = {"name": summary.name, "model": summary.model, "first_words": export.words(summary.first_words)}
    return encode_json({"session": session, "totals": sum_calls(export.calls), "requests": entries})


def _read_answer(export: _SessionExport, call: BuiltCall) -> Any:
    """What came back, in words; the text that a log has of it for a session that lamina did not record."""
    answer = show_answer(export.built, call.number)
    if answer is not None:
        parts = [{**part, "text": export.words(part["text"])} for part in answer["parts"]]
        return {"status": answer["status"], "error": export.words(answer["error"]), "parts": parts}
    if export.built.is_sent:
        return None
    text = export.built.session.conversation.calls[call.number].answer
    return {"parts": [{"sort": "text", "name": "", "text": export.words(text)}]}


def _write_har(export: _SessionExport) -> bytes:
    entries = [_har_entry(export, call) for call in report_steps(export.calls, "writing requests")]
    creator = {"name": "lamina", "version": "1"}
    return encode_json({"log": {"version": "1.2", "creator": creator, "entries": entries}})


def _har_entry(export: _SessionExport, call: BuiltCall) -> Json:
    """One request in the words of HAR 1.2. Times that are not known are -1, as HAR has it."""
    endpoint = _find_endpoint(export.built)
    text = export.request_text(call)
    wait = -1
    if call.first:
        wait = round(call.first * _MILLISECONDS)
    receive = -1
    if call.last:
        receive = max(round((call.last - call.first) * _MILLISECONDS), 0)
    return {
        "startedDateTime": _write_moment(call.at) or "1970-01-01T00:00:00+00:00",
        "time": max(round(call.last * _MILLISECONDS), 0),
        "request": {
            "method": "POST",
            "url": endpoint,
            "httpVersion": "HTTP/1.1",
            "headers": [{"name": "content-type", "value": "application/json"}],
            "queryString": [],
            "cookies": [],
            "headersSize": -1,
            "bodySize": len(text.encode()),
            "postData": {"mimeType": "application/json", "text": text},
        },
        "response": _har_response(export, call),
        "cache": {},
        "timings": {"send": 0, "wait": wait, "receive": receive},
        "_usage": _usage(call),
        "_lamina": _remarks(call),
    }


def _har_response(export: _SessionExport, call: BuiltCall) -> Json:
    answer = show_answer(export.built, call.number)
    status = 0
    headers: list[Json] = []
    media_type = "x-unknown"
    text = ""
    if answer is not None:
        status = answer["status"]
        media_type = answer["content_type"] or media_type
        if export.redaction is None:  # headers have request ids and the names of organisations
            headers = [{"name": name, "value": value} for name, value in answer["headers"].items()]
        if answer["is_kept"]:
            raw = show_raw_answer(export.inspector, export.built.session.summary.id, call.number)
            text = export.words(raw["text"])
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return {
        "status": status,
        "statusText": phrase,
        "httpVersion": "HTTP/1.1",
        "headers": headers,
        "cookies": [],
        "content": {"size": len(text.encode()), "mimeType": media_type, "text": text},
        "redirectURL": "",
        "headersSize": -1,
        "bodySize": -1,
    }


def _usage(call: BuiltCall) -> Json:
    return {
        "input": call.tokens,
        "read": call.read,
        "written": call.written,
        "output": call.output,
        "dollars": call.dollars,
        "simulated": call.simulated,
    }


def _find_endpoint(built: BuiltSession) -> str:
    """The address that requests of a session go to, at their provider."""
    address = _ENDPOINTS.get(built.dialect, _ENDPOINTS[CHAT])
    return address.format(model=quote(built.session.summary.model, safe=""))


def _remarks(call: BuiltCall) -> Json:
    """What lamina did with a request, and what became of it."""
    return {
        "cut": call.cut,
        "continues": call.continues,
        "status": call.status,
        "follows": call.follows,
        "why": call.why,
        "recalled": call.recalled,
    }


def _write_moment(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat()


_WRITERS: dict[str, tuple[str, Callable[[_SessionExport], bytes]]] = {
    "html": ("text/html", _write_html),
    "har": ("application/json", _write_har),
    "json": ("application/json", _write_json),
}
"""The media type and the writer of each format."""
