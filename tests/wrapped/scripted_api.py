"""A server that speaks five APIs and answers from a script, whole or in pieces, for tests of recalls.

A script is a function from a request, as JSON, to what the model says: texts and calls, in order.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from itertools import count
from typing import Any, NamedTuple

from tests.servers.serving import serve_http

NUMBERS = count(1)
"""For ids that are never the same."""

Said = list["str | Call | Thought"]
Script = Callable[[dict[str, Any]], Said]


class Call(NamedTuple):
    """A call of a tool. Gemini does not always give ids: there, "" is none."""

    name: str
    arguments: dict[str, Any] | str
    id: str


class Thought(NamedTuple):
    """Reasoning, which only some APIs have. Without a signature it gets one that is made of its text."""

    text: str
    signature: str = ""


class ApiFailure(Exception):
    """Raised by a script: the API answers with this status. With 0 it breaks off the answer `half_said`."""

    def __init__(self, status: int, half_said: Said | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.half_said = half_said or []


class ScriptedApi(NamedTuple):
    """Where the server is, every request that it had, and its answers."""

    url: str
    requests: list[dict[str, Any]]
    answers: list[str]


def estimate_size(request: dict[str, Any]) -> int:
    """About as many tokens as a request has."""
    return len(json.dumps(request)) // 4


@contextmanager
def scripted_api(
    script: Script, *, count_tokens: Callable[[dict[str, Any]], int] = estimate_size
) -> Iterator[ScriptedApi]:
    """A server that answers with what the script says, and reports what it counts."""
    requests: list[dict[str, Any]] = []
    answers: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append(request)
            name = self.path.partition("?")[0].rsplit("/", 1)[1].rpartition(":")[2]
            if name in ("input_tokens", "count_tokens"):  # a client that counts
                counted = {"input_tokens": count_tokens(request)}
                self.answer(json.dumps(counted).encode(), "application/json")
                return
            write, stream = APIS[name]
            try:
                said = script(request)
            except ApiFailure as failure:
                self.fail(failure, "".join(stream(failure.half_said, estimate_size(request))).encode())
                return
            size = count_tokens(request)
            if name == "chat" and request.get("stream") is not False:
                self.answer("".join(stream(said, size)).encode(), "application/x-ndjson")
            elif request.get("stream") or name.startswith("stream"):
                pieces = add_usage(stream(said, size), request, size)
                self.answer("".join(pieces).encode(), "text/event-stream")
            else:
                self.answer(json.dumps(write(said, size)).encode(), "application/json")

        def answer(self, body: bytes, media_type: str) -> None:
            answers.append(body.decode())
            self.send_response(200)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def fail(self, failure: ApiFailure, body: bytes) -> None:
            if failure.status:
                self.send_error(failure.status)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", str(2 * len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2])
            time.sleep(0.2)  # so that this half arrives before the end does
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with serve_http(Handler) as url:
        yield ScriptedApi(url, requests, answers)


def write_message(said: Said, size: int) -> dict[str, Any]:
    return {
        "id": f"msg_{next(NUMBERS)}",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-5-5",
        "content": [message_block(one) for one in said],
        "stop_reason": "tool_use" if has_calls(said) else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": size, "output_tokens": 9},
    }


def stream_message(said: Said, size: int) -> Iterator[str]:
    message = write_message(said, size)
    stop = message["stop_reason"]
    yield event("message_start", message={**message, "content": [], "stop_reason": None})
    for index, one in enumerate(said):
        block = message_block(one)
        if isinstance(one, str):
            start, deltas = {**block, "text": ""}, [{"type": "text_delta", "text": one}]
        elif isinstance(one, Thought):
            start = {**block, "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": one.text}]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        else:
            start = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": write_arguments(one)}]
        yield event("content_block_start", index=index, content_block=start)
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    yield event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage=message["usage"])
    yield event("message_stop")


def write_arguments(call: Call) -> str:
    """The arguments of a call as a stream has them. A string is written as it is, JSON or not."""
    if isinstance(call.arguments, str):
        return call.arguments
    return json.dumps(call.arguments)


def message_block(one: str | Call | Thought) -> dict[str, Any]:
    if isinstance(one, Thought):
        signature = one.signature or f"signed-{one.text}"
        return {"type": "thinking", "thinking": one.text, "signature": signature}
    if isinstance(one, str):
        return {"type": "text", "text": one}
    return {"type": "tool_use", "id": one.id, "name": one.name, "input": one.arguments}


def write_completion(said: Said, size: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts(said)) or None}
    if has_calls(said):
        message["tool_calls"] = [chat_call(one) for one in said if isinstance(one, Call)]
    finish = "tool_calls" if has_calls(said) else "stop"
    return {
        "id": f"chatcmpl-{next(NUMBERS)}",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": size, "completion_tokens": 9, "total_tokens": size + 9},
    }


def stream_completion(said: Said, _: int) -> Iterator[str]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        whole = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
        return f"data: {json.dumps({**whole, 'choices': [choice]})}\n\n"

    yield chunk({"role": "assistant", "content": ""})
    for text in texts(said):
        yield chunk({"content": text})
    calls = [one for one in said if isinstance(one, Call)]
    for index, one in enumerate(calls):
        call = chat_call(one)
        arguments = call["function"].pop("arguments")
        yield chunk({"tool_calls": [{"index": index, **call}]})
        yield chunk({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})
    yield chunk({}, "tool_calls" if calls else "stop")
    yield "data: [DONE]\n\n"


def add_usage(pieces: Iterator[str], request: dict[str, Any], size: int) -> Iterator[str]:
    """The pieces of an answer. A streamed completion has its usage before the end, if the client asks."""
    asks_for_usage = (request.get("stream_options") or {}).get("include_usage")
    for piece in pieces:
        if asks_for_usage and "[DONE]" in piece:
            usage = {"prompt_tokens": size, "completion_tokens": 9, "total_tokens": size + 9}
            chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
            yield f"data: {json.dumps({**chunk, 'choices': [], 'usage': usage})}\n\n"
        yield piece


def chat_call(one: Call) -> dict[str, Any]:
    function = {"name": one.name, "arguments": json.dumps(one.arguments)}
    return {"id": one.id, "type": "function", "function": function}


def write_response(said: Said, size: int) -> dict[str, Any]:
    return {
        "id": f"resp_{next(NUMBERS)}",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5",
        "status": "completed",
        "output": [response_item(one) for one in said],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": size,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 9,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": size + 9,
        },
    }


def stream_response(said: Said, size: int) -> Iterator[str]:
    response = write_response(said, size)
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**response, "output": [], "status": "in_progress"}}
    ]
    for index, one in enumerate(said):
        item = response["output"][index]
        place = {"output_index": index, "item_id": item["id"]}
        if isinstance(one, str):
            part = item["content"][0]
            inner = {**place, "content_index": 0}
            events += [
                {
                    "type": "response.output_item.added",
                    "output_index": index,
                    "item": {**item, "content": []},
                },
                {"type": "response.content_part.added", **inner, "part": {**part, "text": ""}},
                {"type": "response.output_text.delta", **inner, "delta": one, "logprobs": []},
                {"type": "response.output_text.done", **inner, "text": one, "logprobs": []},
                {"type": "response.content_part.done", **inner, "part": part},
            ]
        elif isinstance(one, Thought):
            events.append({"type": "response.output_item.added", "output_index": index, "item": item})
        else:
            arguments = item["arguments"]
            events += [
                {
                    "type": "response.output_item.added",
                    "output_index": index,
                    "item": {**item, "arguments": ""},
                },
                {"type": "response.function_call_arguments.delta", **place, "delta": arguments},
                {"type": "response.function_call_arguments.done", **place, "arguments": arguments},
            ]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": "response.completed", "response": response})
    for number, one_event in enumerate(events):
        yield event(one_event.pop("type"), **one_event, sequence_number=number)


def response_item(one: str | Call | Thought) -> dict[str, Any]:
    if isinstance(one, Thought):
        summary = [{"type": "summary_text", "text": one.text}]
        reasoning = {"type": "reasoning", "id": f"rs_{next(NUMBERS)}", "summary": summary}
        return {**reasoning, "encrypted_content": f"sealed-{one.text}"}
    if isinstance(one, str):
        part = {"type": "output_text", "text": one, "annotations": []}
        id_ = f"msg_{next(NUMBERS)}"
        return {"type": "message", "id": id_, "role": "assistant", "status": "completed", "content": [part]}
    return {
        "type": "function_call",
        "id": f"fc_{one.id}",
        "call_id": one.id,
        "name": one.name,
        "arguments": json.dumps(one.arguments),
        "status": "completed",
    }


def write_content(said: Said, size: int) -> dict[str, Any]:
    """An answer of Gemini's API."""
    parts: list[dict[str, Any]] = [{"text": text} for text in texts(said)]
    calls = [one for one in said if isinstance(one, Call)]
    for call in calls:
        function_call = {"name": call.name, "args": call.arguments}
        if call.id:
            function_call["id"] = call.id
        parts.append({"functionCall": function_call})
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": size, "candidatesTokenCount": 9, "totalTokenCount": size + 9}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": "r"}


def stream_content(said: Said, size: int) -> Iterator[str]:
    """A chunk for each part. The last one ends the answer too, as it may in Gemini's API."""
    whole = write_content(said, size)
    *parts, last = whole["candidates"][0]["content"]["parts"]
    for part in parts:
        candidate = {"content": {"role": "model", "parts": [part]}, "index": 0}
        yield f"data: {json.dumps({'candidates': [candidate]})}\n\n"
    whole["candidates"][0]["content"]["parts"] = [last]
    yield f"data: {json.dumps(whole)}\n\n"


def write_chat(said: Said, size: int) -> dict[str, Any]:
    """An answer of Ollama's API."""
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts(said))}
    calls = [
        {"function": {"name": one.name, "arguments": one.arguments}} for one in said if isinstance(one, Call)
    ]
    if calls:
        message["tool_calls"] = calls
    counts = {"prompt_eval_count": size, "eval_count": 9}
    return {
        "model": "m",
        "created_at": "now",
        "message": message,
        "done": True,
        "done_reason": "stop",
        **counts,
    }


def stream_chat(said: Said, size: int) -> Iterator[str]:
    whole = write_chat(said, size)
    message = whole["message"]
    yield json.dumps({"model": "m", "created_at": "now", "message": message, "done": False}) + "\n"
    yield json.dumps({**whole, "message": {"role": "assistant", "content": ""}}) + "\n"


def event(name: str, **fields: Any) -> str:
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n"


def texts(said: Said) -> list[str]:
    return [one for one in said if isinstance(one, str)]


def has_calls(said: Said) -> bool:
    return any(isinstance(one, Call) for one in said)


APIS: dict[str, tuple[Callable[[Said, int], dict[str, Any]], Callable[[Said, int], Iterator[str]]]] = {
    "messages": (write_message, stream_message),
    "completions": (write_completion, stream_completion),
    "responses": (write_response, stream_response),
    "generateContent": (write_content, stream_content),
    "streamGenerateContent": (write_content, stream_content),
    "chat": (write_chat, stream_chat),
}
