"""Shows the body of a request in the provider's own form: its exact text, and an outline to read.

    {"model": …, "system": […], "tools": […], "messages": [{"role": "user", "content": […]}]}

becomes one section for each field and for each message. A section has its path (`messages[3]`), its role, and
its blocks under the names that the provider gives them (`tool_use`, `functionCall`). The answer to a recorded
request is shown as its text, thinking and calls, with its status and times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from lamina.conversations.answer_bodies import read_answer_text, read_values, unpack_answer
from lamina.conversations.costs import is_refused
from lamina.conversations.record import RecordedCall
from lamina.core.values import Part, Segment, Text, Thinking, ToolCall
from lamina.errors import BadInput, LaminaError
from lamina.fitting.recalls import TURN_FIELDS
from lamina.inspector.building import KEEP_ALL, find_call
from lamina.inspector.built_values import BuiltSession
from lamina.inspector.segment_texts import join_texts
from lamina.inspector.sent_conversations import SentConversation
from lamina.inspector.views import Inspector, Json

LONGEST_BLOCK = 200_000
"""Characters of one block that the page gets. The exact text of the body has all of it."""

_SYSTEM_FIELDS = frozenset(("system", "instructions", "systemInstruction", "system_instruction"))

_CONTENT_FIELDS = ("reasoning_content", "content", "parts", "tool_calls", "images")
"""Fields of a message that hold its blocks."""

_WRAPPERS = (
    "function",
    "functionCall",
    "functionResponse",
    "toolUse",
    "toolResult",
    "toolSpec",
    "reasoningContent",
    "reasoningText",
)
"""Fields that hold the call, the result or the tool itself: OpenAI chat, Gemini and Converse wrap them.

In Converse, `reasoningContent` holds `reasoningText`.
"""

_READABLE_FIELDS = (
    "text",
    "thinking",
    "refusal",
    "output_text",
    "input",
    "arguments",
    "args",
    "response",
    "content",
    "output",
)
"""Fields of a block that a person reads. A block that has several is shown by the first."""

_NAME_FIELDS = ("name", "tool_use_id", "call_id", "toolUseId")
_RESULT_NAME_FIELDS = ("tool_call_id", "tool_name", "name")

LONGEST_ANSWER = 400_000
"""Characters of an answer that the page gets; its raw bytes are an answer of their own."""

_DIAGNOSES = (("diagnostics", "cache_miss_reason"), ("prompt_cache_diagnostics", "cache_miss"))
"""Where the APIs of Anthropic and OpenAI say themselves why a cache missed, if the client asked them to."""


def show_body(inspector: Inspector, session_id: str, number: int) -> Json:
    """The body that was sent, or would be: as text, and in sections.

    `client` is the size of the body that the client wrote. It is None if lamina changed nothing, or if the
    client's body was not recorded.
    """
    built = inspector.built(session_id)
    request = inspector.builder.build_with_body(built, number).request
    text = read_body(built, number) or msgspec.json.encode(request)
    client_size = None
    sent = built.sent
    if sent is not None:
        call = sent.calls[number]
        if call.came_pieces != call.sent_pieces:
            client_size = len(sent.record.came_body(call) or b"")
    return {
        "dialect": built.dialect,
        "is_sent": built.is_sent,
        "size": len(text),
        "client": client_size,
        "sections": list(outline_request(request)),
        "text": text.decode("utf-8", "replace"),
    }


def read_body(built: BuiltSession, number: int) -> bytes | None:
    """The bytes that left; None if lamina did not record them."""
    if built.sent is None:
        return None
    return built.sent.record.sent_body(built.sent.calls[number])


def outline_request(request: Mapping[str, Any]) -> Iterator[Json]:
    """The sections of a body, in its own order. Small settings stand together at the end."""
    settings: dict[str, Any] = {}
    for field, value in request.items():
        match value:
            case list() if field in TURN_FIELDS:
                for at, turn in enumerate(value):
                    yield _outline_turn(turn, f"{field}[{at}]")
            case _ if field in _SYSTEM_FIELDS:
                yield _section(field, "system", list(_outline_content(value, field)))
            case list() if field == "tools":
                yield _outline_tools(value, field)
            case {"tools": list(tools), **others} if field == "toolConfig":  # Converse has its tools here
                yield _outline_tools(tools, "toolConfig.tools")
                settings[field] = others
            case _:
                settings[field] = value
    if settings:
        block = _block(_write(settings), "", sort="json")
        yield {"title": "settings", "role": "settings", "place": "", "blocks": [block]}


def _section(place: str, role: str, blocks: list[Json]) -> Json:
    return {"title": place, "role": role, "place": place, "blocks": blocks}


def _block(text: str, place: str, *, sort: str = "", name: str = "", marker: str = "") -> Json:
    return {"sort": sort, "name": name, "text": text[:LONGEST_BLOCK], "place": place, "marker": marker}


def _outline_tools(tools: list[Any], place: str) -> Json:
    """The tools, each under its name. A tool that the provider runs may have a type and no name."""
    blocks: list[Json] = []
    for at, tool in enumerate(tools):
        sort = ""
        if isinstance(tool, dict):
            sort = _find_word(_unwrap(tool), _NAME_FIELDS) or _find_sort(tool)
        blocks.append(_block(_write(tool), f"{place}[{at}]", sort=sort))
    return _section(place, "tools", blocks)


def _outline_turn(turn: Any, place: str) -> Json:
    """One message or item. Items of the Responses API have a type and no role."""
    if not isinstance(turn, dict):
        return _section(place, "", [_block(_write(turn), place)])
    if "role" not in turn:
        return _section(place, str(turn.get("type", "")), [_outline_block(turn, place)])
    role = str(turn["role"])
    blocks: list[Json] = []
    for field in _CONTENT_FIELDS:
        if turn.get(field) is not None:
            blocks += _outline_content(turn[field], f"{place}.{field}")
    if role == "tool":  # the message is the result itself, so its blocks have no names of their own
        name = _find_word(turn, _RESULT_NAME_FIELDS)
        blocks = [block | {"sort": "tool", "name": name} for block in blocks]
    return _section(place, role, blocks)


def _outline_content(value: Any, place: str) -> Iterator[Json]:
    """The blocks of a content: a text, a list of blocks, or Gemini's object with parts."""
    match value:
        case str():
            yield _block(value, place, sort="text")
        case list():
            for at, block in enumerate(value):
                yield _outline_block(block, f"{place}[{at}]")
        case {"parts": list(parts)}:
            yield from _outline_content(parts, f"{place}.parts")
        case _:
            yield _block(_write(value), place)


def _outline_block(block: Any, place: str) -> Json:
    """One block under the provider's own name for it, with the text that a person reads of it."""
    if not isinstance(block, dict):
        return _block(_write(block), place)
    content = _unwrap(block)
    text = _write(block)
    for field in _READABLE_FIELDS:
        if content.get(field) is not None:
            text = _read_text(content[field])
            break
    marker = ""
    if isinstance(block.get("cache_control"), dict):
        marker = _find_word(block["cache_control"], ("ttl", "type")) or "marked"
    return _block(text, place, sort=_find_sort(block), name=_find_word(content, _NAME_FIELDS), marker=marker)


def _unwrap(block: dict[str, Any]) -> dict[str, Any]:
    """The call, the result or the tool inside of a block, or the block itself."""
    for field in _WRAPPERS:
        if isinstance(block.get(field), dict):
            block = block[field]
    return block


def _find_sort(block: dict[str, Any]) -> str:
    """What a block is. Those of Gemini and Converse have no type: their only field says it."""
    return str(block.get("type") or next(iter(block), ""))


def _find_word(value: Mapping[str, Any], fields: tuple[str, ...]) -> str:
    """The first of these fields that is there and not empty."""
    for field in fields:
        if value.get(field):
            return str(value[field])
    return ""


def _read_text(value: Any) -> str:
    """A text, the texts of a list of blocks that are all texts, or JSON."""
    if isinstance(value, str):
        return value
    if not value or not isinstance(value, list):
        return _write(value)
    texts: list[str] = []
    for block in value:
        match block:
            case {"text": str(text)}:
                texts.append(text)
            case _:
                return _write(value)
    return "\n".join(texts)


def _write(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


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


def show_raw_answer(inspector: Inspector, session_id: str, number: int) -> Json:
    """The bytes of an answer as they came, unpacked: the JSON, or the events of the stream."""
    built = inspector.built(session_id)
    find_call(built, number)
    answer = None
    body = None
    if built.session.sent is not None:
        call = built.session.sent.calls[number]
        answer = call.answer
        body = built.session.sent.record.answer_body(call)
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
