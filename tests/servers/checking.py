"""A local server that answers like the providers do and refuses what breaks a rule, for tests of clients.

    with checking() as server:
        OpenAI(base_url=f"{server.url}/v1", api_key="none").chat.completions.create(...)
    assert server.refused == []

It knows each API by its path, asks the dialect's `check`, and says the same few words to whatever is valid.
It runs on the loopback address, for as long as its context lasts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote

from lamina.dialects import DIALECTS, Violation
from lamina.errors import BadInput
from tests.servers.serving import serve_http
from tests.wrapped.scripted_api import (
    write_chat,
    write_completion,
    write_content,
    write_message,
    write_response,
)

SAID = "Valid."
"""What the server answers."""


class Checking:
    """What was asked of a server: the requests that were valid, and the violations of those that were not."""

    def __init__(self) -> None:
        self.url = ""
        self.valid: list[tuple[str, dict[str, Any]]] = []
        self.refused: list[Violation] = []

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The status and the body for a request at a path."""
        name, body = _dialect_at(path, body)
        if not name:
            return 404, {"error": {"message": f"nothing is served at {path}", "type": "not_found_error"}}
        dialect = DIALECTS[name]
        try:
            found = dialect.wire.check(body)
            if not found:
                dialect.wire.parse(body)
        except BadInput as error:
            found = [Violation(rule="parses", place=error.place, message=str(error))]
        if found:
            self.refused += found
            told = "; ".join(f"{v.rule} at {v.place}: {v.message}" for v in found)
            return 400, {"error": {"message": told, "type": "invalid_request_error", "code": 400}}
        self.valid.append((name, body))
        return 200, _ANSWERS[name]


@contextmanager
def checking() -> Iterator[Checking]:
    """A server for as long as the context lasts."""

    class Asked(_Asked):
        seen = Checking()

    with serve_http(Asked) as url:
        Asked.seen.url = url
        yield Asked.seen


class _Asked(BaseHTTPRequestHandler):
    seen: Checking

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        status, answer = self.seen.answer(self.path.partition("?")[0], body)
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing: a test says what it wants to know."""


def _dialect_at(path: str, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    for ending, name in _PATHS.items():
        if path.endswith(ending):
            return name, body
    converse = re.search(r"/model/([^/]+)/converse$", path)
    if converse is not None:
        return "bedrock_converse", {"modelId": unquote(converse[1]), **body}
    model, _, verb = path.rpartition("/")[2].partition(":")
    return ("gemini", {"model": model, **body}) if verb == "generateContent" else ("", body)


_PATHS = {
    "/v1/messages": "anthropic",
    "/chat/completions": "openai_chat",
    "/responses": "openai_responses",
    "/api/chat": "ollama",
    "/completions": "text",
}

_ANSWERS: dict[str, dict[str, Any]] = {
    "anthropic": write_message([SAID], 1),
    "openai_chat": write_completion([SAID], 1),
    "openai_responses": write_response([SAID], 1),
    "gemini": write_content([SAID], 1),
    "ollama": write_chat([SAID], 1),
    "bedrock_converse": {
        "output": {"message": {"role": "assistant", "content": [{"text": SAID}]}},
        "stopReason": "end_turn",
        "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
        "metrics": {"latencyMs": 1},
    },
    "text": {
        "id": "t",
        "object": "text_completion",
        "created": 0,
        "model": "m",
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        "choices": [{"index": 0, "text": SAID, "finish_reason": "stop", "logprobs": None}],
    },
}
