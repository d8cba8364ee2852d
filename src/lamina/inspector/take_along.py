"""A session, or a span of it, as a file: one page, Markdown, HAR, or JSON; on wish without what was said.

A HAR file opens in the network view of any browser. It has the body that was sent and the answer, where
lamina recorded them; the requests of other logs are built again, and their answers are not in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import msgspec

from lamina.core.values import Entry, Form
from lamina.core.wording import describe_segment
from lamina.errors import BadInput
from lamina.inspector.answer_views import show_answer, show_raw_answer
from lamina.inspector.built_values import BuiltCall, BuiltSession
from lamina.inspector.exports import find_endpoint
from lamina.inspector.one_file import write_page
from lamina.inspector.page_files import Download, encode_json
from lamina.inspector.progress import report_steps
from lamina.inspector.redaction import Redaction
from lamina.inspector.segment_texts import join_texts
from lamina.inspector.settings import BuildSettings
from lamina.inspector.spans import RequestSpan, read_span
from lamina.inspector.views import Inspector, Json, sum_calls

_FENCE = "```"
_MILLISECONDS = 1000


def save_session(
    inspector: Inspector, session_id: str, format_name: str, query: Mapping[str, str], settings: BuildSettings
) -> Download:
    """A session as a file: `html`, `md`, `har` or `json`.

    The words `from` and `to` choose requests, and `redact` leaves out what was said.
    """
    span = read_span(query)
    redaction = None
    if query.get("redact"):
        redaction = Redaction()
    built = inspector.built(session_id, settings)
    calls = span.select(built.calls)
    writers = {
        "html": ("text/html", _write_html),
        "md": ("text/markdown", _write_markdown),
        "har": ("application/json", _write_har),
        "json": ("application/json", _write_json),
    }
    if format_name not in writers:
        raise BadInput(
            f"there is no format {format_name!r}", place="format", hint=f"use one of {', '.join(writers)}"
        )
    media_type, write = writers[format_name]
    body = write(_Taken(inspector, built, calls, span, redaction))
    return Download(
        name=f"session-{session_id[:40]}.{format_name}", media_type=f"{media_type}; charset=utf-8", body=body
    )


class _Taken:
    """What is taken along: a session, some of its requests, and marks for its texts if it is redacted."""

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


def _write_html(taken: _Taken) -> bytes:
    page = write_page(
        taken.inspector, session=taken.built.session.summary.id, span=taken.span, redaction=taken.redaction
    )
    return page.encode("utf-8", "backslashreplace")


def _write_json(taken: _Taken) -> bytes:
    """Every request with its usage and what lamina did, as `archive` has them."""
    entries = []
    for call in report_steps(taken.calls, "writing requests"):
        if call.error:
            continue
        entries.append(
            {
                "number": call.number,
                "at": _moment(call.at),
                "request": taken.body(taken.request(call)),
                "answer": _read_answer(taken, call),
                "usage": _usage(call),
                "lamina": _remarks(call),
            }
        )
    summary = taken.built.session.summary
    session = {"name": summary.name, "model": summary.model, "first_words": taken.words(summary.first_words)}
    return encode_json({"session": session, "totals": sum_calls(taken.calls), "requests": entries})


def _read_answer(taken: _Taken, call: BuiltCall) -> Any:
    """What came back, in words; the text that a log has of it for a session that lamina did not record."""
    answer = show_answer(taken.built, call.number)
    if answer is not None:
        parts = [{**part, "text": taken.words(part["text"])} for part in answer["parts"]]
        return {"status": answer["status"], "error": taken.words(answer["error"]), "parts": parts}
    if taken.built.is_sent:
        return None
    return {"parts": [{"sort": "text", "name": "", "text": taken.words(call.call.answer)}]}


def _write_har(taken: _Taken) -> bytes:
    entries = [
        _har_entry(taken, call) for call in report_steps(taken.calls, "writing requests") if not call.error
    ]
    creator = {"name": "lamina", "version": "1"}
    return encode_json({"log": {"version": "1.2", "creator": creator, "entries": entries}})


def _har_entry(taken: _Taken, call: BuiltCall) -> Json:
    """One request in the words of HAR 1.2. Times that are not known are -1, as HAR has it."""
    endpoint = find_endpoint(taken.built)
    text = msgspec.json.encode(taken.body(taken.request(call))).decode()
    wait = -1
    if call.first:
        wait = round(call.first * _MILLISECONDS)
    receive = -1
    if call.last:
        receive = max(round((call.last - call.first) * _MILLISECONDS), 0)
    return {
        "startedDateTime": _moment(call.at) or "1970-01-01T00:00:00+00:00",
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
        "response": _har_response(taken, call),
        "cache": {},
        "timings": {"send": 0, "wait": wait, "receive": receive},
        "_usage": _usage(call),
        "_lamina": _remarks(call),
    }


def _har_response(taken: _Taken, call: BuiltCall) -> Json:
    answer = show_answer(taken.built, call.number)
    status = 0
    headers: list[Json] = []
    media_type = "x-unknown"
    text = ""
    if answer is not None:
        status = answer["status"]
        media_type = answer["content_type"] or media_type
        if taken.redaction is None:
            headers = [{"name": name, "value": value} for name, value in answer["headers"].items()]
        if answer["is_kept"]:
            raw = show_raw_answer(
                taken.inspector, taken.built.session.summary.id, call.number, taken.built.settings
            )
            text = taken.words(raw["text"])
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


def _remarks(call: BuiltCall) -> Json:
    return {
        "cut": call.cut,
        "continues": call.continues,
        "status": call.status,
        "follows": call.follows,
        "why": call.why,
        "recalled": call.recalled,
    }


def _write_markdown(taken: _Taken) -> bytes:
    return "\n".join(_markdown_lines(taken)).encode("utf-8", "backslashreplace")


def _markdown_lines(taken: _Taken) -> Iterator[str]:
    """The session as a page to read: of each request, what is new in it, and what the last answer was."""
    summary = taken.built.session.summary
    totals = sum_calls(taken.calls)
    yield f"# {_one_line(taken.words(summary.first_words or summary.name))}"
    yield ""
    facts = [summary.source, summary.model or "model not recorded", f"{len(taken.calls):,} requests"]
    if totals["dollars"] is not None:
        facts.append(f"${totals['dollars']:.4f}")
    yield " · ".join(facts)
    earlier: set[str] = set()
    last: BuiltCall | None = None
    for call in report_steps(taken.calls, "writing requests"):
        yield ""
        yield f"## Request {call.number + 1}{_describe_call(call)}"
        if call.error:
            yield f"\nIt could not be sent: {_one_line(call.error)}"
            continue
        entries = taken.inspector.builder.build_call(taken.built, call.number).envelope.entries
        for entry in entries:
            ref = f"{entry.ref} {entry.form.value}"
            if ref not in earlier:
                yield from _entry_lines(taken, entry)
        earlier = {f"{entry.ref} {entry.form.value}" for entry in entries}
        last = call
    if last is not None:
        yield from _answer_lines(taken, last)
    yield ""


def _entry_lines(taken: _Taken, entry: Entry) -> Iterator[str]:
    """One entry that a request has and the one before it had not, or had in another form."""
    what = describe_segment(entry.segment)
    if taken.redaction is not None:
        what = entry.segment.kind
    yield ""
    yield f"**{_one_line(what)}**{_describe_form(entry)}"
    text = join_texts(entry.parts)
    if text and entry.form is not Form.OMITTED:
        yield from _fenced(taken.words(text))


def _describe_form(entry: Entry) -> str:
    if entry.form is Form.FULL:
        return ""
    return f" ({entry.form.value.lower()}: {_one_line(entry.why)})"


def _answer_lines(taken: _Taken, call: BuiltCall) -> Iterator[str]:
    """The answer to the last request, which no later request repeats."""
    answer = _read_answer(taken, call)
    if answer is None:
        return
    yield ""
    yield f"## Answer to request {call.number + 1}"
    for part in answer["parts"]:
        yield from _fenced(part["text"])


def _fenced(text: str) -> Iterator[str]:
    """A text as it is. The fence is longer than any in the text, so that none can end it."""
    fence = _FENCE
    while fence in text:
        fence += "`"
    yield ""
    yield f"{fence}text"
    yield text
    yield fence


def _describe_call(call: BuiltCall) -> str:
    facts = []
    if call.at is not None:
        facts.append(f"{datetime.fromtimestamp(call.at, UTC):%Y-%m-%d %H:%M:%S} UTC")
    facts.append(f"{call.tokens:,} tokens, {call.read:,} read from the cache")
    if call.dollars is not None:
        facts.append(f"${call.dollars:.4f}")
        if call.simulated:
            facts.append("simulated")
    if call.cut:
        facts.append(f"cut: {call.cut}")
    return "".join(f" · {fact}" for fact in facts)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _moment(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat()
