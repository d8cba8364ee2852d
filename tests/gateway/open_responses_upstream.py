"""An upstream that keeps every rule of Open Responses, and answers from a script.

It refuses requests that the schema does not allow, keeps its answers for `previous_response_id`, and writes
every field of an answer and every event of a stream. So whatever a client finds wrong came in on the way.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from itertools import count
from typing import Any

from tests.servers.serving import serve_http
from tests.wrapped.scripted_api import Call, Said, Thought
from tools.open_responses.schema import check_request

Json = dict[str, Any]
Script = Callable[[Json], Said]
Damage = Callable[[list[Json]], list[Json]]

ANSWER = "Certainly, here it is."


class UpstreamFailure(Exception):
    """Raised by a script: the upstream answers with the status 500."""


def answer_case(request: Json) -> Said:
    """A model that calls the client's tool when it is asked, and says a sentence otherwise."""
    last = request["input"][-1]
    names = [tool["name"] for tool in request.get("tools") or []]
    if last.get("role") == "user" and "get_weather" in names:
        return [Call("get_weather", {"town": "Bergen"}, f"call_{len(request['input'])}")]
    return [ANSWER]


class CompliantUpstream:
    """What the upstream was asked, what it refused, and the bytes of its answers.

    `damage` changes the values of an answer before they are written: a whole answer, or the events.
    """

    def __init__(self, script: Script) -> None:
        self.url = ""
        self.script = script
        self.requests: list[Json] = []
        self.refused: list[str] = []
        self.answers: list[bytes] = []
        self.damage: Damage = list
        self.first_number = 0
        self.breaks_off = False
        self._numbers = count(1)
        self._open_calls: dict[str, set[str]] = {}

    def answer(self, path: str, request: Json) -> tuple[int, str, bytes]:
        """The status, the type and the bytes of the answer to a request."""
        problem = self._find_problem(path, request)
        if problem:
            self.refused.append(problem)
            return self._fail(400, problem)
        if path.endswith("/compact"):
            return self._write_json(self._compact())
        self.requests.append(request)
        try:
            whole = self._write_response(request, self.script(request))
        except UpstreamFailure:
            return self._fail(500, "the model is not well")
        calls = {item["call_id"] for item in whole["output"] if item["type"] == "function_call"}
        self._open_calls[whole["id"]] = calls
        if request.get("stream"):
            return self._write_events(write_events(whole, self.first_number))
        return self._write_json(whole)

    def _find_problem(self, path: str, request: Json) -> str:
        """Why a request is refused; "" if it is not."""
        if path.endswith("/compact") and "model" not in request:
            return "model is missing"
        for problem in check_request(request):
            return problem
        previous = request.get("previous_response_id")
        if not previous:
            return ""
        if previous not in self._open_calls:
            return f"{previous} is not kept here"
        results = {item.get("call_id") for item in request["input"]}
        if self._open_calls[previous] - results:
            return f"{previous} has a call without a result"
        return ""

    def _fail(self, status: int, message: str) -> tuple[int, str, bytes]:
        error = {"type": "invalid_request_error", "code": None, "message": message, "param": None}
        body = json.dumps({"error": error}).encode()
        self.answers.append(body)
        return status, "application/json", body

    def _write_json(self, whole: Json) -> tuple[int, str, bytes]:
        body = json.dumps(self.damage([whole])[0]).encode()
        self.answers.append(body)
        return 200, "application/json", body

    def _write_events(self, events: list[Json]) -> tuple[int, str, bytes]:
        lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in self.damage(events)]
        body = "".join(lines).encode()
        self.answers.append(body)
        return 200, "text/event-stream", body

    def _compact(self) -> Json:
        item = {"type": "compaction", "id": f"cmp_{next(self._numbers)}", "encrypted_content": "sealed"}
        usage = write_usage(20, 4)
        whole = {"id": f"resp_{next(self._numbers)}", "object": "response.compaction", "created_at": 1}
        return {**whole, "output": [item], "usage": usage}

    def _write_response(self, request: Json, said: Said) -> Json:
        return {
            "id": f"resp_{next(self._numbers)}",
            "object": "response",
            "created_at": 1_700_000_000,
            "completed_at": 1_700_000_001,
            "status": "completed",
            "incomplete_details": None,
            "model": request["model"],
            "previous_response_id": request.get("previous_response_id"),
            "instructions": request.get("instructions"),
            "output": [self._write_item(one) for one in said],
            "error": None,
            "tools": [write_tool(tool) for tool in request.get("tools") or []],
            "tool_choice": request.get("tool_choice", "auto"),
            "truncation": "disabled",
            "parallel_tool_calls": True,
            "text": {"format": {"type": "text"}},
            "top_p": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "top_logprobs": 0,
            "temperature": 1.0,
            "reasoning": None,
            "usage": write_usage(len(json.dumps(request)) // 4, 9),
            "max_output_tokens": request.get("max_output_tokens"),
            "max_tool_calls": None,
            "store": request.get("store", True),
            "background": False,
            "service_tier": "default",
            "metadata": {},
            "safety_identifier": None,
            "prompt_cache_key": request.get("prompt_cache_key"),
        }

    def _write_item(self, one: str | Call | Thought) -> Json:
        number = next(self._numbers)
        if isinstance(one, Thought):
            summary = [{"type": "summary_text", "text": one.text}]
            return {"type": "reasoning", "id": f"rs_{number}", "summary": summary}
        if isinstance(one, str):
            part = {"type": "output_text", "text": one, "annotations": [], "logprobs": []}
            message = {"type": "message", "id": f"msg_{number}", "status": "completed", "role": "assistant"}
            return {**message, "content": [part]}
        return {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": one.id,
            "name": one.name,
            "arguments": json.dumps(one.arguments),
            "status": "completed",
        }


def write_usage(read: int, written: int) -> Json:
    return {
        "input_tokens": read,
        "output_tokens": written,
        "total_tokens": read + written,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }


def write_tool(tool: Json) -> Json:
    """A tool of a request, with every field that an answer must have."""
    fields: Json = dict.fromkeys(("description", "parameters", "strict"))
    return {**fields, **tool}


def write_events(whole: Json, first_number: int) -> list[Json]:
    """The events that bring a whole answer."""
    begun = {**whole, "status": "in_progress", "completed_at": None, "output": [], "usage": None}
    events: list[Json] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(whole["output"]):
        place = {"item_id": item["id"], "output_index": index}
        empty = {**item, **_EMPTY[item["type"]]}
        added = {"type": "response.output_item.added", "output_index": index, "item": empty}
        done = {"type": "response.output_item.done", "output_index": index, "item": item}
        events += [added, *_INNER_EVENTS[item["type"]](item, place), done]
    events.append({"type": "response.completed", "response": whole})
    return [{**event, "sequence_number": number} for number, event in enumerate(events, first_number)]


def _write_message_events(item: Json, place: Json) -> list[Json]:
    [part] = item["content"]
    inner = {**place, "content_index": 0}
    deltas = [{"delta": half, "logprobs": []} for half in _halve(part["text"])]
    return [
        {"type": "response.content_part.added", **inner, "part": {**part, "text": ""}},
        *({"type": "response.output_text.delta", **inner, **delta} for delta in deltas),
        {"type": "response.output_text.done", **inner, "text": part["text"], "logprobs": []},
        {"type": "response.content_part.done", **inner, "part": part},
    ]


def _write_reasoning_events(item: Json, place: Json) -> list[Json]:
    [part] = item["summary"]
    inner = {**place, "summary_index": 0}
    return [
        {"type": "response.reasoning_summary_part.added", **inner, "part": {**part, "text": ""}},
        *(
            {"type": "response.reasoning_summary_text.delta", **inner, "delta": half}
            for half in _halve(part["text"])
        ),
        {"type": "response.reasoning_summary_text.done", **inner, "text": part["text"]},
        {"type": "response.reasoning_summary_part.done", **inner, "part": part},
    ]


def _write_call_events(item: Json, place: Json) -> list[Json]:
    arguments = item["arguments"]
    return [
        *(
            {"type": "response.function_call_arguments.delta", **place, "delta": half}
            for half in _halve(arguments)
        ),
        {"type": "response.function_call_arguments.done", **place, "arguments": arguments},
    ]


_EMPTY: dict[str, Json] = {
    "message": {"content": [], "status": "in_progress"},
    "reasoning": {"summary": []},
    "function_call": {"arguments": "", "status": "in_progress"},
}
"""What differs in an item that has only begun."""

_INNER_EVENTS: dict[str, Callable[[Json, Json], list[Json]]] = {
    "message": _write_message_events,
    "reasoning": _write_reasoning_events,
    "function_call": _write_call_events,
}


def _halve(text: str) -> list[str]:
    middle = len(text) // 2
    return [text[:middle], text[middle:]]


@contextmanager
def run_compliant_upstream(script: Script = answer_case) -> Iterator[CompliantUpstream]:
    """The upstream on a free port, until the context ends."""
    upstream = CompliantUpstream(script)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, content_type, body = upstream.answer(self.path, request)
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            if content_type == "text/event-stream":
                self.stream(body)
                return
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def stream(self, body: bytes) -> None:
            """Write events as one chunk."""
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))
            if not upstream.breaks_off:
                self.wfile.write(b"0\r\n\r\n")
                return
            self.wfile.flush()
            time.sleep(0.2)  # so that the events arrive before the end does
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with serve_http(Handler) as url:
        upstream.url = url
        yield upstream
