"""Explicit caches through the real google-genai client, against a server that keeps them as Gemini does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from google import genai
from google.genai import errors, types

from examples.gemini_cache import CachedHead
from tests.servers.serving import serve_http

MODEL = "gemini-3.8-flash"
HANDBOOK = "Section 1. " * 50


_GONE_MESSAGE = "CachedContent not found (or permission denied)"
GONE = (403, {"error": {"code": 403, "message": _GONE_MESSAGE, "status": "PERMISSION_DENIED"}})


class Gemini:
    """The caches that there are, and everything that was asked for. `broken` refuses whatever comes next."""

    def __init__(self) -> None:
        self.caches: dict[str, Any] = {}
        self.asked: list[str] = []
        self.bodies: list[Any] = []
        self.broken = False
        self.url = ""
        self.implicit = {"promptTokenCount": 2_000, "cachedContentTokenCount": 0}

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        name = path.split("/", 2)[2]  # after the version
        self.asked.append(f"{method} {name}")
        self.bodies.append(body)
        if self.broken:
            return 500, {"error": {"code": 500, "message": "internal", "status": "INTERNAL"}}
        if method == "POST" and name == "cachedContents":
            new_name = f"cachedContents/{len(self.asked)}"
            self.caches[new_name] = body
            return 200, {"name": new_name, "usageMetadata": {"totalTokenCount": 2_000}}
        if method == "POST":
            return self.generate(body)
        return self.change(method, name)

    def generate(self, body: Any) -> tuple[int, Any]:
        """Answer a request to the model. One that names a cache must not repeat what the cache has."""
        cache_name = body.get("cachedContent", "")
        if not cache_name:
            return 200, {"candidates": [], "usageMetadata": self.implicit}
        if any(field in body for field in ("systemInstruction", "tools", "toolConfig")):
            message = "CachedContent can not be used with GenerateContent request setting system_instruction"
            return 400, {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}
        if cache_name not in self.caches:
            return GONE
        content = {"role": "model", "parts": [{"text": f"from {cache_name}"}]}
        return 200, {"candidates": [{"content": content}]}

    def change(self, method: str, name: str) -> tuple[int, Any]:
        """Renew or delete a cache."""
        if name not in self.caches:
            return GONE
        if method == "DELETE":
            del self.caches[name]
            return 200, {}
        return 200, {"name": name}


@pytest.fixture
def gemini() -> Iterator[Gemini]:
    api = Gemini()

    class Answering(BaseHTTPRequestHandler):
        def _do(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            path = self.path.partition("?")[0]
            status, body = api.answer(self.command, path, json.loads(self.rfile.read(size) or b"{}"))
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_PATCH = do_DELETE = _do  # noqa: N815 - the names that the server asks for

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with serve_http(Answering) as url:
        api.url = url
        yield api


class Clock:
    """Seconds, as the test says."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def client(gemini: Gemini) -> Any:
    return genai.Client(api_key="none", http_options=types.HttpOptions(base_url=gemini.url))


def head(gemini: Gemini, clock: Clock, **more: Any) -> CachedHead:
    return CachedHead(client(gemini), model=MODEL, system_instruction=HANDBOOK, clock=clock, **more)


def test_a_cache_is_made_once_and_used_by_every_request(gemini: Gemini) -> None:
    clock = Clock()
    with head(gemini, clock) as cached:
        answers = [cached.generate_content(contents=f"What is in {i}?").text for i in range(3)]
        assert gemini.asked[0] == "POST cachedContents"
        assert gemini.bodies[0]["ttl"] == "3600s"
        assert HANDBOOK in json.dumps(gemini.bodies[0]["systemInstruction"])
        assert answers == [f"from {cached.name()}"] * 3
        assert HANDBOOK not in json.dumps(gemini.bodies[1:])
    assert gemini.caches == {}
    assert len(gemini.asked) == 5


def test_a_cache_is_renewed_before_it_expires(gemini: Gemini) -> None:
    clock = Clock()
    cached = head(gemini, clock, lifetime=100)
    name = cached.name()
    clock.now += 74
    assert cached.name() == name
    clock.now += 2
    assert cached.name() == name
    clock.now += 74
    assert cached.name() == name
    assert [call.split()[0] for call in gemini.asked] == ["POST", "PATCH"]


@pytest.mark.parametrize("passed", [76, 101])
def test_a_cache_that_is_gone_is_made_anew(gemini: Gemini, passed: float) -> None:
    """Whether that is seen when it should be renewed, or known from the clock."""
    clock = Clock()
    cached = head(gemini, clock, lifetime=100)
    name = cached.name()
    gemini.caches.clear()
    clock.now += passed
    assert cached.name() != name
    assert cached.name() in gemini.caches


def test_a_request_whose_cache_is_gone_is_sent_again_with_a_new_one(gemini: Gemini) -> None:
    cached = head(gemini, Clock())
    name = cached.name()
    gemini.caches.clear()
    assert cached.generate_content(contents="Hello").text != f"from {name}"
    assert [call.split()[1].split("/")[-1] for call in gemini.asked] == [
        "cachedContents",
        f"{MODEL}:generateContent",
        "cachedContents",
        f"{MODEL}:generateContent",
    ]


def test_another_error_is_the_sdks_own_and_nothing_is_sent_again(gemini: Gemini) -> None:
    cached = head(gemini, Clock())
    cached.name()
    gemini.broken = True
    sent = len(gemini.asked)
    with pytest.raises(errors.ServerError):
        cached.generate_content(contents="Hello")
    assert len(gemini.asked) == sent + 1
    with pytest.raises(errors.ServerError):
        cached.delete()


def test_deleting_what_is_gone_is_no_error_and_nothing_is_deleted_twice(gemini: Gemini) -> None:
    cached = head(gemini, Clock())
    cached.delete()
    assert gemini.asked == []
    cached.name()
    gemini.caches.clear()
    cached.delete()
    cached.delete()
    assert [call.split()[0] for call in gemini.asked] == ["POST", "DELETE"]
