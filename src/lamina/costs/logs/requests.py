"""Reads one record of an application or proxy: a session, or one request with or without its answer.

    {messages, tools?, model?, ...}    {request, response}    {custom_id, body}    {input, output, usage}

Chat Completions, Responses and Messages are read. Whatever else a record has is left out: a head holds only
what a request of its API may have. `growing_requests` decides which requests belong together.

Whose session it is, a record or the path of its file may say. Providers have a field for the end user of a
request, and Claude Code writes JSON into it. Folders of collected logs are often named in the manner of Hive:
`logs/user=ada/project=parser/2026-11-01.jsonl`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from lamina.costs.logs.json_fields import (
    json_field,
    list_field,
    object_field,
    parse_moment,
    parse_usage,
    text_field,
)
from lamina.costs.logs.lines import TraceRow, decode_json, describe_type
from lamina.costs.logs.values import RecordedUsage, Trace
from lamina.dialects import DIALECTS, recognise
from lamina.dialects.json_values import list_or_empty, mapping_or_empty
from lamina.dialects.origins import read_origin
from lamina.errors import BadInput

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
_HEAD_FIELDS = (
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
_ITEM_FIELDS = ("messages", "input")
"""Of a request. If it has both, the messages are its items."""

_REQUEST_FIELDS = ("request", "body", "request_body", "requestBody", "req")
_RESPONSE_FIELDS = ("response", "response_body", "responseBody", "completion", "res")
_ID_FIELDS = ("id", "session_id", "conversation_id", "custom_id", "trace_id")
_TIME_FIELDS = ("timestamp", "ts", "time", "created_at", "startTime", "start_time")
_RECORD_FIELDS = frozenset((*_ITEM_FIELDS, *_REQUEST_FIELDS, *_RESPONSE_FIELDS))
_ANSWER_FIELDS = frozenset(("choices", "output"))
"""Of a response that stands in the record itself."""

_CONTENT_TYPES = (str, list, type(None))
"""A tuple: a union would be rebuilt for each item of a log."""

Answer = tuple[list[dict[str, Any]], Any]
"""The items of an answer, and the usage in the provider's own words."""

_OF_RECORDS = ("user", "user_id", "email")
_OF_REQUESTS = ("safety_identifier", "user")
_IN_CLAUDE_CODE = ("account_uuid", "device_id")

_IN_PATHS = re.compile(r"(?:^|/)(user|project|client)=([^/=]+)(?=/)")
# user_2f1c…_account_8d2e…_session_77aa…, as Claude Code wrote it before it wrote JSON
_SESSION_ENDING = re.compile(r"_session_[0-9a-f-]+$")


class LoggedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One request and its answer. `previous` and `response` are ids by which a request continues another."""

    trace: Trace
    answer: list[dict[str, Any]] = []
    used: RecordedUsage | None = None
    previous: str = ""
    response: str = ""
    size: int = 0


def is_record(row: dict[str, Any]) -> bool:
    """Whether it may be a request or a session: it has a field that one of them has."""
    return not _RECORD_FIELDS.isdisjoint(row)


def is_session(row: dict[str, Any]) -> bool:
    """Whether it says itself that it is a whole conversation.

    `{"format": "openai-chat", "messages": […]}` does. `{"messages": […]}` alone may be one request of many.
    """
    if not _has_items(row):
        return False
    meta = object_field(row, "meta")
    return isinstance(row.get("format"), str) or "usage" in meta or "events" in meta


def read_session(row: TraceRow) -> Trace:
    """A conversation in one record; if it is none, a `BadInput` says why."""
    trace = _read_trace(row, row.value)
    meta = object_field(row.value, "meta")
    return msgspec.structs.replace(
        trace,
        model=trace.model or text_field(meta, "model"),
        used=_session_usages(meta, trace),
        compacted=_session_compactions(meta, trace),
    )


def _session_usages(meta: dict[str, Any], trace: Trace) -> dict[int, RecordedUsage]:
    """What `meta.usage` reports, by the item that each answer begins with.

    `{"index": 4, "input_tokens": 90, "ts": "…"}` is about the answer that begins with the fifth item.
    """
    usages: dict[int, RecordedUsage] = {}
    for line in list_field(meta, "usage"):
        place = _index_of_item(line, trace)
        usage = parse_usage(line, at=parse_moment(json_field(line, "ts")), model=text_field(line, "model"))
        if place is not None and usage is not None:
            usages[place] = usage
    return dict(sorted(usages.items()))


def _session_compactions(meta: dict[str, Any], trace: Trace) -> tuple[int, ...]:
    """The items before which the client replaced its history, as `meta.events` has them.

    `{"index": 9, "type": "compact_boundary"}` says that the items before the tenth were replaced.
    """
    places = set()
    for event in list_field(meta, "events"):
        place = _index_of_item(event, trace)
        if "boundary" in text_field(event, "type") and place is not None:
            places.add(place)
    return tuple(sorted(places))


def _index_of_item(line: Any, trace: Trace) -> int | None:
    """The item that a line of meta is about, if there is one. It may be the end of all items."""
    index = json_field(line, "index")
    if type(index) is int and 0 <= index <= len(trace.items):
        return index
    return None


def read_call(row: TraceRow) -> LoggedCall:
    """A request, and its answer if the record has it; if it is no request, a `BadInput` says why.

    Usage may stand in the response, or beside it in the record.
    """
    request, response = _split_record(row.value)
    trace = _read_trace(row, request)
    model = trace.model or text_field(response, "model")
    answer, usage = read_answer(trace.dialect, response)
    return LoggedCall(
        trace=msgspec.structs.replace(trace, model=model),
        answer=answer,
        used=parse_usage(usage or row.value.get("usage"), at=_moment(row.value, response), model=model),
        previous=text_field(request, "previous_response_id"),
        response=text_field(response, "id"),
        size=len(row.raw),
    )


def _moment(record: dict[str, Any], response: Any) -> float | None:
    """When the request was sent, or else answered."""
    moments = [record.get(name) for name in _TIME_FIELDS]
    moments += [json_field(response, "created"), json_field(response, "created_at")]
    return parse_moment(*moments)


def _split_record(record: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """The request and the response of a record, wherever it keeps them.

    `{"request": {…}, "response": {…}}` has both in fields. `{"messages": […], "choices": […]}` is both at
    once.
    """
    request = _unwrap(_first_of(record, _REQUEST_FIELDS))
    if not _has_items(request):
        request = record
    response = _first_of(record, _RESPONSE_FIELDS)
    if response is None and not _ANSWER_FIELDS.isdisjoint(record):
        response = record
    if not _has_items(request):
        problem = "no messages in it" if response is None else "an answer, and no request"
        raise BadInput(problem)
    return request, _unwrap(response)


def _first_of(record: dict[str, Any], names: tuple[str, ...]) -> Any:
    for name in names:
        if record.get(name):
            return record[name]
    return None


def _has_items(request: Any) -> bool:
    """Whether it is an object with the field of messages or of input items."""
    return not set(_ITEM_FIELDS).isdisjoint(mapping_or_empty(request))


def _unwrap(value: Any) -> Any:
    r"""A body out of its wrapping: JSON as text, or an HTTP message with a body, or both.

    `{"body": "{\"messages\": []}"}` becomes `{"messages": []}`.
    """
    for _ in range(2):
        if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
            value = decode_json(value.encode("utf-8", "replace"))
        if isinstance(value, dict) and "body" in value:
            value = value["body"]
    return value


def _read_trace(row: TraceRow, request: dict[str, Any]) -> Trace:
    """The request of a record as a trace of one request.

    The dialect is the one that the record names in `format`, if the request has its field, else the one that
    the request looks like.
    """
    head = {name: request[name] for name in _HEAD_FIELDS if request.get(name) is not None}
    model = text_field(request, "model") or text_field(row.value, "model")
    items_name = next(name for name in _ITEM_FIELDS if name in request)
    items = _read_items(request[items_name], items_name)
    dialect = _FORMATS.get(text_field(row.value, "format").lower(), "")
    if FIELDS.get(dialect) not in request:  # the record names none, or another than its request is of
        dialect = recognise({**head, "model": model, items_name: items}).name
    if dialect not in FIELDS:
        raise BadInput(f"a request of {dialect}, which is not read")
    _check_head(head)
    return Trace(
        id=text_field(row.value, *_ID_FIELDS) or row.place,
        place=row.place,
        dialect=dialect,
        items=items,
        head=head,
        source=text_field(row.value, "source", "agent") or "requests",
        model=model,
        user=find_user(row.value, request),
        project=text_field(row.value, "project"),
    )


def _read_items(value: Any, name: str) -> list[dict[str, Any]]:
    """The items as a list. An input that is text is a message of the user."""
    if isinstance(value, str) and name == "input" and value:
        return [{"type": "message", "role": "user", "content": value}]
    if not isinstance(value, list):
        raise BadInput(f"{name} is {describe_type(value)}")
    if not value:
        raise BadInput(f"{name} is an empty list")
    # only what a reader of any dialect could not bear is refused
    for at, item in enumerate(value):
        place = f"{name}[{at}]"
        if not isinstance(item, dict):
            raise BadInput(f"{place} is {describe_type(item)}, not an object")
        if not isinstance(item.get("role", item.get("type")), str):
            raise BadInput(f"{place} has no role")
        if not isinstance(item.get("content"), _CONTENT_TYPES):
            raise BadInput(f"{place}.content is {describe_type(item['content'])}")
    return value


def _check_head(head: dict[str, Any]) -> None:
    """Raise BadInput for tools that are not a list of objects.

    A reader of any dialect looks into each tool, so each has to be an object.
    """
    for name in ("tools", "functions"):
        tools = head.get(name, [])
        types = {type(tool) for tool in list_or_empty(tools)}
        if not isinstance(tools, list) or not types <= {dict}:
            raise BadInput(f"{name} is {describe_type(tools)}, not a list of objects")


def read_answer(dialect: str, response: Any) -> Answer:
    """The answer as items to send back, and the usage; of a stream, put together from its events."""
    events = _find_events(response)
    if events is not None:
        return _absorb_events(dialect, events)
    return _answer_items(dialect, response), json_field(response, "usage")


def _answer_items(dialect: str, response: Any) -> list[dict[str, Any]]:
    """The items of a whole response: its output, its content, or the message of its first choice.

    `{"choices": [{"message": {"content": "Hi"}}]}` has one item, a message of the assistant.
    """
    match dialect, response:
        case "openai_responses", {"output": [*items]}:
            return [item for item in items if isinstance(item, dict)]
        case "anthropic", {"content": [_, *_] as content}:
            return [{"role": "assistant", "content": content}]
        case "openai_chat", {"choices": [{"message": dict() as message}, *_]} if message:
            return [{"role": "assistant", **message}]
        case _:
            return []


def _find_events(response: Any) -> list[Any] | None:
    """The events of a streamed answer: a list of them, or the text of the stream; None if it is whole.

    `data: {"type": "message_stop"}` is an event, and a line `event: message_stop` is not.
    """
    events = response
    if isinstance(response, str):
        events = [_decode_event(line) for line in response.splitlines()]
    if not isinstance(events, list):
        return None
    return [event for event in events if isinstance(event, dict)]


def _decode_event(line: str) -> Any:
    """The event in a line of a stream; None for `[DONE]` and for what is not JSON.

    `data: {"type": "message_stop"}` is an event. Lines of other fields, such as `event:`, are none.
    """
    field, _, value = line.partition(":")
    data = value.strip()
    if field != "data" or not data.startswith("{"):
        return None
    try:
        return decode_json(data.encode("utf-8", "replace"))
    except BadInput:
        return None


def _absorb_events(dialect: str, events: list[Any]) -> Answer:
    """The items and the usage of a stream, as its dialect reads it; nothing if it cannot be read.

    The usage is written in the names that `parse_usage` reads.
    """
    try:
        absorbed = DIALECTS[dialect].answers.absorb_stream(events)
    except BadInput:
        return [], None
    items = []
    for segment in absorbed.segments:
        origin = read_origin(segment)
        if origin is not None and origin.is_first and isinstance(origin.message, dict):
            items.append(origin.message)
    return items, absorbed.usage


def find_user(record: Mapping[str, Any], request: Mapping[str, Any]) -> str:
    """The user that a log names for one call; "" if it names nobody.

    `{"metadata": {"user_id": "ada"}}` names `ada`, and so does a field `user` beside the request.
    """
    beside = text_field(record, *_OF_RECORDS)
    if beside:
        return beside
    named = text_field(request, *_OF_REQUESTS)
    if named:
        return named
    return _read_user_id(text_field(object_field(request, "metadata"), "user_id"))


def _read_user_id(user_id: str) -> str:
    """A user without the session that Claude Code writes beside it."""
    if user_id.startswith("{"):
        try:
            return text_field(msgspec.json.decode(user_id), *_IN_CLAUDE_CODE)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return ""
    return _SESSION_ENDING.sub("", user_id)


def name_by_path(trace: Trace, path: str) -> Trace:
    """The trace with the user, the project and the client that its path names, where it has none."""
    named = dict(_IN_PATHS.findall(path.replace("\\", "/")))
    missing = {name: value for name, value in named.items() if not getattr(trace, name)}
    if not missing:
        return trace
    return msgspec.structs.replace(trace, **missing)
