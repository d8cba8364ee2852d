"""Judges behind an address: a server with the log-probabilities of a prompt, and servers without."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from lamina.errors import BadInput
from lamina.replay.loss import server_judge
from lamina.replay.loss.rows import ChatText, LossRow, find_spans
from lamina.replay.loss.server_judge import KEY_VARIABLE, connect_judge

ANSWER = "see parse_config"


class Completions(BaseHTTPRequestHandler):
    """Speaks as vLLM does: one token for each character, all equally likely, 500 of them at most."""

    window = 500
    with_logprobs = True
    key = "Bearer secret"

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._answer(200, {"data": [{"id": "letters", "max_model_len": self.window}]})
        else:
            self._answer(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != self.key:
            self._answer(401, {"error": "no key"})
            return
        prompt = body["prompt"]
        if len(prompt) > self.window:
            message = f"This model's maximum context length is {self.window} tokens."
            self._answer(400, {"error": {"message": message}})
            return
        choice: dict[str, Any] = {"text": "x"}
        if self.with_logprobs:
            tokens = [{str(ord(sign)): {"logprob": -0.5, "decoded_token": sign}} for sign in prompt[1:]]
            choice["prompt_logprobs"] = [None, *tokens]
        self._answer(200, {"choices": [choice]})

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self, status: int, value: dict[str, Any]) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "secret")


@contextmanager
def serve(handler: type[Completions]) -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def make_row(question: str) -> LossRow:
    messages = (ChatText("user", question),)
    needed = find_spans(ANSWER, ["parse_config"])
    return LossRow(
        session="s", call=0, policy="lamina", window=400, messages=messages, answer=ANSWER, needed=needed
    )


def test_the_log_probabilities_of_a_prompt_are_those_of_its_answer() -> None:
    with serve(Completions) as address:
        judge = connect_judge(f"{address}/v1/")
        (loss,) = judge([make_row("x" * 600), make_row("Where is it?")])
    assert judge.window == Completions.window
    assert (loss.tokens, loss.loss) == (len(ANSWER), 0.5 * len(ANSWER))
    assert (loss.needed, loss.needed_loss) == (12, 6.0)
    assert loss.prompt == len("<|im_start|>user\nWhere is it?<|im_end|>\n<|im_start|>assistant\n")


def test_a_server_without_them_is_refused_before_anything_is_judged() -> None:
    class Plain(Completions):
        with_logprobs = False

    with (
        serve(Plain) as address,
        pytest.raises(BadInput, match=r"no log-probabilities of a prompt; use vLLM"),
    ):
        connect_judge(address)


def test_a_refusal_that_is_not_about_the_length_is_reported_with_the_words_of_the_server() -> None:
    class Strict(Completions):
        def do_POST(self) -> None:
            self._answer(422, {"detail": "unknown field prompt_logprobs"})

    with serve(Strict) as address, pytest.raises(BadInput, match=r"422: .*unknown field prompt_logprobs"):
        connect_judge(address)


def test_a_server_that_takes_too_long_is_not_taken_for_one_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Slow(Completions):
        def do_GET(self) -> None:
            time.sleep(0.3)

    monkeypatch.setattr(server_judge, "PATIENCE", 0.1)
    with serve(Slow) as address, pytest.raises(BadInput, match="did not answer within"):
        connect_judge(address)


def test_an_address_without_a_server_is_refused() -> None:
    with pytest.raises(BadInput, match="no server answers"):
        connect_judge("http://127.0.0.1:9")
