from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar

import anthropic
import openai
import pytest

from lamina.core.tokens import estimate_for
from lamina.errors import BadInput, CountFailed
from lamina.models.counters import remote
from lamina.models.counters.remote import Remote
from lamina.testing.model_server import run_model_server

FRAME = 7
"""What the server adds for a message; each word is a token."""


class Endpoints(BaseHTTPRequestHandler):
    """The counting endpoints of three providers and of vLLM, as their clients ask for them."""

    asked: ClassVar[list[tuple[str, dict[str, Any]]]]
    status: ClassVar[int] = 200

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, body))
        tokens = FRAME + len(json.dumps(body).split())
        if "countTokens" in self.path:
            answer: dict[str, Any] = {"totalTokens": tokens}
        elif self.path == "/tokenize":
            answer = {"count": len(json.dumps(body.get("prompt") or body["messages"]).split())}
        else:
            answer = {"input_tokens": tokens, "object": "response.input_tokens"}
        data = json.dumps(answer).encode()
        self.send_response(self.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Server:
    def __init__(self) -> None:
        class Fresh(Endpoints):
            asked: ClassVar[list[tuple[str, dict[str, Any]]]] = []

        self.endpoints = Fresh
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self.endpoints)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def asked(self) -> list[tuple[str, dict[str, Any]]]:
        return self.endpoints.asked

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@pytest.fixture(params=["anthropic", "openai", "gemini"])
def asked(request: pytest.FixtureRequest, server: Server) -> Iterator[Remote]:
    """One provider's endpoint, through its official client."""
    if request.param == "anthropic":
        with anthropic.Anthropic(api_key="none", base_url=server.url, max_retries=0) as client:
            yield remote.anthropic(client, model="claude-opus-5")
    elif request.param == "openai":
        with openai.OpenAI(api_key="none", base_url=server.url, max_retries=0) as other:
            yield remote.openai(other, model="gpt-5.5")
    else:
        genai = pytest.importorskip("google.genai")
        google = genai.Client(api_key="none", http_options={"base_url": server.url})
        yield remote.gemini(google, model="gemini-3-pro")
        google.close()


def test_text_is_counted_without_its_message_and_asked_for_once(asked: Remote, server: Server) -> None:
    count = asked.counter.count
    assert [count("one"), count("one two three"), count("one"), count("")] == [1, 3, 1, 0]
    assert len(server.asked) == 3  # the frame, and two texts
    assert asked.failures == 0


def test_white_space_is_not_asked_for_alone(asked: Remote, server: Server) -> None:
    asked.counter.count(" \n ")
    assert all("a" in json.dumps(body) for _, body in server.asked)


def test_what_a_counter_rests_on_is_said(asked: Remote) -> None:
    assert asked.counter.basis == ("measured" if "claude" in asked.name else "exact")


def test_a_failure_is_raised_with_what_to_do(asked: Remote, server: Server) -> None:
    server.endpoints.status = 500
    with pytest.raises(CountFailed, match="otherwise=") as caught:
        asked.counter.count("one")
    assert caught.value.asked == asked.name
    assert asked.failures == 1
    server.endpoints.status = 200
    assert asked.counter.count("one") == 1


def test_an_endpoint_with_an_otherwise_is_not_called_exact() -> None:
    asked = remote.openai(None, model="gpt-5.5", otherwise=estimate_for("o200k"))
    assert asked.counter.basis == "estimated"


def test_otherwise_counts_where_the_endpoint_fails_and_nothing_exact_is_claimed(server: Server) -> None:
    server.endpoints.status = 503
    other = estimate_for("claude")
    with anthropic.Anthropic(api_key="none", base_url=server.url, max_retries=0) as client:
        asked = remote.anthropic(client, model="claude-opus-5", otherwise=other)
        assert asked.counter.count("one two") == other.count("one two")
    assert (asked.failures, asked.counter.basis) == (1, "estimated")
    assert "503" in asked.last_failure
    assert asked.counter.name == "remote:claude-opus-5, else estimate:claude"


def test_a_whole_request_is_asked_for_without_what_the_endpoint_does_not_take(server: Server) -> None:
    request = {"model": "claude-opus-5", "max_tokens": 9, "stream": True, "system": "Be brief.",
               "messages": [{"role": "user", "content": "hi"}]}  # fmt: skip
    with anthropic.Anthropic(api_key="none", base_url=server.url, max_retries=0) as client:
        asked = remote.anthropic(client, model="claude-opus-5")
        assert asked.request(request) == asked.request(request) > FRAME
    ((path, body),) = server.asked
    assert path == "/v1/messages/count_tokens"
    assert sorted(body) == ["messages", "model", "system"]


def test_a_whole_response_request_keeps_its_tools_and_instructions(server: Server) -> None:
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": None}
    request = {"input": "hi", "instructions": "Be brief.", "tools": [tool], "store": False}
    with openai.OpenAI(api_key="none", base_url=server.url, max_retries=0) as client:
        assert remote.openai(client, model="gpt-5.5").request(request) > FRAME
    ((path, body),) = server.asked
    assert path == "/responses/input_tokens"
    assert body == {"model": "gpt-5.5", "input": "hi", "instructions": "Be brief.", "tools": [tool]}


def test_geminis_instructions_are_counted_as_text_where_the_api_takes_contents_only(server: Server) -> None:
    genai = pytest.importorskip("google.genai")
    client = genai.Client(api_key="none", http_options={"base_url": server.url})
    request = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}],
               "config": {"system_instruction": "Be brief and kind."}}  # fmt: skip
    assert remote.gemini(client, model="gemini-3-pro").request(request) > FRAME
    client.close()
    assert "Be brief and kind." in json.dumps(server.asked)


def test_an_asynchronous_client_is_refused() -> None:
    client = anthropic.AsyncAnthropic(api_key="none")
    with pytest.raises(BadInput, match="synchronous"):
        remote.anthropic(client, model="claude-opus-5").counter.count("one")


def test_vllm_is_asked_for_text_and_for_whole_requests(server: Server) -> None:
    asked = remote.vllm(f"{server.url}/v1", model="some")
    assert asked.counter.count("one two three") == 3
    assert asked.request({"model": "x", "messages": [{"role": "user", "content": "hi"}], "top_p": 1}) > 0
    (_, text), (_, whole) = server.asked
    assert text == {"model": "some", "prompt": "one two three", "add_special_tokens": False}
    assert sorted(whole) == ["add_generation_prompt", "messages", "model"]


@pytest.mark.parametrize("answer", [b"[]", b"{}", b"no"])
def test_a_strange_answer_is_a_failure(answer: bytes) -> None:
    with pytest.raises(CountFailed):
        remote.vllm("http://localhost", model="m", post=lambda *_: answer).counter.count("one")


def test_an_address_is_an_address() -> None:
    with pytest.raises(BadInput, match="http://"):
        remote.llama_cpp("file:///etc/passwd")


def test_a_real_llama_cpp_counts_as_it_reports_usage() -> None:
    with run_model_server(window=1024) as running:
        asked = remote.llama_cpp(running.url)
        assert [asked.counter.count(text) for text in ("", "abc", "é <s>", "\ud800")] == [0, 3, 6, 3]
        request: dict[str, Any] = {
            "model": "any",
            "messages": [{"role": "user", "content": "How are you? <s>"}],
        }
        with openai.OpenAI(api_key="none", base_url=f"{running.url}/v1") as client:
            answer = client.chat.completions.create(**request, max_tokens=1)
        assert answer.usage is not None
        assert asked.request(request) == answer.usage.prompt_tokens
    with pytest.raises(CountFailed):
        asked.counter.count("not asked before")
