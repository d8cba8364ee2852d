"""LiteLLM in a small window: a loop of 40 tool calls. The caller keeps its whole history.

    pip install 'lamina-context[litellm]'
    python examples/adapters/litellm.py

The model is scripted, so no key is needed. Put yours in its place: `acompletion(model="openai/gpt-5", …)`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

if sys.path[0] == str(Path(__file__).resolve().parent):
    del sys.path[0]  # this folder has files with the names of frameworks
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it would ask the network for prices

import litellm

from lamina.adapters.litellm import LaminaLogger

PARAMETERS = {"type": "object", "properties": {"number": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": "read_part", "parameters": PARAMETERS}}]


class ScriptedModel(BaseHTTPRequestHandler):
    """Reads 40 parts, and then answers."""

    steps = count(1)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        step = next(self.steps)
        message: dict[str, Any] = {"role": "assistant", "content": None}
        if step > 40:
            message["content"] = f"Read. The last request had {len(request['messages'])} messages."
        else:
            function = {"name": "read_part", "arguments": f'{{"number": {step}}}'}
            message["tool_calls"] = [{"id": f"call_{step}", "type": "function", "function": function}]
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        answer = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


async def main() -> None:
    server = HTTPServer(("127.0.0.1", 0), ScriptedModel)
    Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/v1"
    ask = partial(litellm.acompletion, model="openai/manual", api_base=address, api_key="any", tools=TOOLS)
    litellm.callbacks = [LaminaLogger(budget=16_000)]
    history: list[Any] = [{"role": "user", "content": "Read every part of the manual."}]
    while True:
        answer = await ask(messages=list(history))
        message = answer.choices[0].message
        history.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            break
        call = message.tool_calls[0]
        text = f"{call.function.arguments}: press the key, wait for the lamp, release the key.\n" * 40
        history.append({"role": "tool", "tool_call_id": call.id, "content": text})
    print(message.content)
    print(f"{len(history)} messages are kept")


if __name__ == "__main__":
    asyncio.run(main())
