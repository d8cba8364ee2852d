"""One record as applications and proxies write them: a session, or one request with or without its answer.

    {messages, tools?, model?, ...}    {request, response}    {custom_id, body}    {input, output, usage}

Read here are Chat Completions, Responses and Messages. Whatever else a record has is left out: a head holds
only what a request of its API may have. Which requests belong together is not known here.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lamina.dialects import DIALECTS, recognise
from lamina.errors import BadInput
from lamina.replay.traces.json_fields import count, field, listed, mapping, seconds, text, used
from lamina.replay.traces.lines import TraceRow, decoded, sort
from lamina.replay.values import RecordedUsage, Trace

FIELDS = {"openai_chat": "messages", "anthropic": "messages", "openai_responses": "input"}
"""The dialects that are read, and the field that their items stand in."""

_FORMATS = {
    "openai-chat": "openai_chat",
    "openai_chat": "openai_chat",
    "chat.completions": "openai_chat",
    "anthropic-messages": "anthropic",
    "anthropic": "anthropic",
    "messages": "anthropic",
    "openai-responses": "openai_responses",
    "openai_responses": "openai_responses",
    "responses": "openai_responses",
}
_HEAD = (
    "system",
    "instructions",
    "tools",
    "functions",
    "tool_choice",
    "function_call",
    "parallel_tool_calls",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "temperature",
    "top_p",
    "stop",
    "stop_sequences",
    "response_format",
    "text",
    "reasoning",
    "reasoning_effort",
    "thinking",
    "output_config",
    "context_management",
    "anthropic_version",
)
_ITEMS = ("messages", "input")
_REQUESTS = ("request", "body", "request_body", "requestBody", "req")
_RESPONSES = ("response", "response_body", "responseBody", "completion", "res")
_IDS = ("id", "session_id", "conversation_id", "custom_id", "trace_id")
_MOMENTS = ("timestamp", "ts", "time", "created_at", "startTime", "start_time")


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One request and its answer. `previous` and `response` are ids by which a request continues another."""

    trace: Trace
    answer: list[dict[str, Any]] = []
    used: RecordedUsage | None = None
    previous: str = ""
    response: str = ""
    size: int = 0


def is_record(row: dict[str, Any]) -> bool:
    return any(name in row for name in (*_ITEMS, *_REQUESTS, *_RESPONSES))


def is_session(row: dict[str, Any]) -> bool:
    """Whether it says itself that it is a whole conversation."""
    meta = mapping(row, "meta")
    whole = isinstance(row.get("format"), str) or "usage" in meta or "events" in meta
    return whole and any(name in row for name in _ITEMS)


def session_of(row: TraceRow) -> Trace:
    """A conversation in one record; `BadInput` says why it is none."""
    trace, meta = _trace(row, row.value), mapping(row.value, "meta")
    reported = {
        place: said
        for each in listed(meta, "usage")
        if (place := _index(each, trace)) is not None
        and (said := used(each, at=seconds(field(each, "ts")), model=text(each, "model"))) is not None
    }
    cuts = (_index(each, trace) for each in listed(meta, "events") if "boundary" in text(each, "type"))
    compacted = tuple(sorted({cut for cut in cuts if cut is not None}))
    name = trace.model or text(meta, "model")
    return msgspec.structs.replace(
        trace, model=name, used=dict(sorted(reported.items())), compacted=compacted
    )


def call_of(row: TraceRow) -> RecordedCall:
    """A request, and its answer where that was kept; `BadInput` says why it is none."""
    request, response = _parted(row.value)
    trace = _trace(row, request)
    moment = seconds(*(row.value.get(name) for name in _MOMENTS), *_answered(response))
    answer, usage = answered(trace.dialect, response)
    name = trace.model or text(response, "model")
    return RecordedCall(
        trace=msgspec.structs.replace(trace, model=name),
        answer=answer,
        used=used(usage or row.value.get("usage"), at=moment, model=name),
        previous=text(request, "previous_response_id"),
        response=text(response, "id"),
        size=len(row.raw),
    )


def _answered(response: Any) -> tuple[Any, Any]:
    return field(response, "created"), field(response, "created_at")


def _parted(row: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """The request and the response of a record, wherever it keeps them."""
    request: Any = next((row[name] for name in _REQUESTS if row.get(name)), None)
    request = _opened(request)
    if not isinstance(request, dict) or not any(name in request for name in _ITEMS):
        request = row
    response = next((row[name] for name in _RESPONSES if row.get(name)), None)
    if response is None and any(name in row for name in ("choices", "output")):
        response = row
    if not any(name in request for name in _ITEMS):
        raise BadInput("an answer, and no request" if response is not None else "no messages in it")
    return request, _opened(response)


def _opened(value: Any) -> Any:
    """A body out of its wrapping: JSON as text, or an HTTP message with a body."""
    for _ in range(2):
        if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
            value = decoded(value.encode("utf-8", "replace"))
        if isinstance(value, dict) and "body" in value:
            value = value["body"]
    return value


def _trace(row: TraceRow, request: dict[str, Any]) -> Trace:
    head = {name: request[name] for name in _HEAD if request.get(name) is not None}
    name = text(request, "model") or text(row.value, "model")
    items = _items(request)
    return Trace(
        id=text(row.value, *_IDS) or row.place,
        place=row.place,
        dialect=_dialect(row.value, {**head, "model": name}, items, request),
        items=items,
        head=_head(head),
        source=text(row.value, "source", "agent") or "requests",
        model=name,
    )


def _items(request: dict[str, Any]) -> list[dict[str, Any]]:
    name = next(name for name in _ITEMS if name in request)
    given = request[name]
    if isinstance(given, str) and name == "input" and given:
        return [{"type": "message", "role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        found = "an empty list" if isinstance(given, list) else sort(given)
        raise BadInput(f"{name} is {found}")
    for at, item in enumerate(given):
        _checked(item, f"{name}[{at}]")
    return given


def _checked(item: Any, place: str) -> None:
    """Only what a reader of any dialect takes for granted."""
    if not isinstance(item, dict):
        raise BadInput(f"{place} is {sort(item)}, not an object")
    kind = item.get("role", item.get("type"))
    if not isinstance(kind, str):
        raise BadInput(f"{place} has no role")
    if not isinstance(item.get("content"), str | list | None):
        raise BadInput(f"{place}.content is {sort(item['content'])}")


def _head(head: dict[str, Any]) -> dict[str, Any]:
    for name in ("tools", "functions"):
        if name in head and not (
            isinstance(head[name], list) and all(isinstance(t, dict) for t in head[name])
        ):
            raise BadInput(f"{name} is {sort(head[name])}, not a list of objects")
    return head


def _dialect(
    row: dict[str, Any], head: dict[str, Any], items: list[dict[str, Any]], request: dict[str, Any]
) -> str:
    said = _FORMATS.get(text(row, "format").lower())
    if said and FIELDS[said] in request:
        return said
    found = recognise({**head, next(name for name in _ITEMS if name in request): items}).name
    if found not in FIELDS:
        raise BadInput(f"a request of {found}, which is not read")
    return found


def _index(each: Any, trace: Trace) -> int | None:
    """The item that a line of meta is about, if there is one."""
    if field(each, "index") == 0:
        return 0
    index = count(each, "index")
    return index if 0 < index <= len(trace.items) else None


def answered(dialect: str, response: Any) -> tuple[list[dict[str, Any]], Any]:
    """The answer as items to send back, and the usage; of a stream, put together from its events."""
    events = _events(response)
    if events is not None:
        return _streamed(dialect, events)
    if dialect == "openai_responses":
        return [item for item in listed(response, "output") if isinstance(item, dict)], field(
            response, "usage"
        )
    if dialect == "anthropic":
        content = listed(response, "content")
        answer = [{"role": "assistant", "content": content}] if content else []
        return answer, field(response, "usage")
    choice = next(iter(listed(response, "choices")), None)
    message = mapping(choice, "message")
    return ([{"role": "assistant", **message}] if message else []), field(response, "usage")


def _events(response: Any) -> list[Any] | None:
    """The events of a streamed answer: a list of them, or the text of the stream."""
    if isinstance(response, list):
        return [event for event in response if isinstance(event, dict)]
    if not isinstance(response, str):
        return None
    data = (line[5:].strip() for line in response.splitlines() if line.startswith("data:"))
    return [event for each in data if each.startswith("{") and isinstance(event := _event(each), dict)]


def _event(data: str) -> Any:
    try:
        return decoded(data.encode("utf-8", "replace"))
    except BadInput:
        return None


def _streamed(dialect: str, events: list[Any]) -> tuple[list[dict[str, Any]], Any]:
    try:
        absorbed = DIALECTS[dialect].absorb_stream(events)
    except BadInput:
        return [], None
    notes = (segment.meta.get("wire", {}) for segment in absorbed.segments)
    answer = [note["message"] for note in notes if isinstance(note.get("message"), dict)]
    usage = absorbed.usage
    return answer, {
        "prompt_tokens": usage.input,
        "cached_input_tokens": usage.cached,
        "cache_write": usage.written,
        "completion_tokens": usage.output,
    }
