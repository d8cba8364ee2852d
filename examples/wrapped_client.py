"""Way in 1: the official OpenAI client, wrapped. Sixty turns in a small window, and no request is too large.

    python examples/wrapped_client.py              # a script plays the model; needs the package openai
    python examples/wrapped_client.py URL MODEL    # a server with Chat Completions, such as llama.cpp

`lamina.wrap` is the only line about lamina in the loop.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

import lamina
from lamina import Budget
from lamina.wrapped import fitted_of

TURNS = 60
BUDGET = Budget(window=4_000, reserve=500)


def main(url: str, model: str = "gpt-4o") -> None:
    with OpenAI(base_url=url, api_key="none") as plain:
        client = lamina.wrap(plain, budget=BUDGET)
        history: list[ChatCompletionMessageParam] = [
            {"role": "system", "content": "You keep a ship's diary."}
        ]
        for day in range(1, TURNS + 1):
            history.append({"role": "user", "content": f"Day {day}: what is there to write down?"})
            completion = client.chat.completions.create(model=model, messages=history, max_tokens=100)
            history.append({"role": "assistant", "content": completion.choices[0].message.content or ""})
            fitted = fitted_of(client, completion)
            cut = fitted.envelope.cut
            if cut:
                print(f"day {day}: a cut, {cut.before:,} to {cut.after:,} tokens")
    print(f"{len(history)} messages in the history, {len(fitted.request['messages'])} in the last request")
    print(f"{fitted.envelope.tokens:,} of {BUDGET.window:,} tokens; {len(fitted.ledger.cuts)} cuts")


class ScriptedModel(BaseHTTPRequestHandler):
    """Plays the model: a few sentences about the day that was asked for."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        day = request["messages"][-1]["content"].partition(":")[0]
        text = f"{day}. " + "The wind stood in the north, and the crew mended sails. " * 8
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        body = {"id": "a", "object": "chat.completion", "created": 0, "model": "gpt-4o", "choices": [choice]}
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing: what matters is printed by `main`."""


@contextmanager
def run_scripted_model() -> Iterator[str]:
    """A server on this machine for as long as the block lasts, and its address."""
    with HTTPServer(("127.0.0.1", 0), ScriptedModel) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(*sys.argv[1:3])
    else:
        with run_scripted_model() as address:
            main(address)
