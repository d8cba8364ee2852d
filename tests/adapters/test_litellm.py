"""A loop over litellm.acompletion with a scripted provider, and lamina's callback."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it would ask the network
pytest.importorskip(
    "litellm.integrations.custom_logger", reason="litellm is not installed: run `make adapters` to test it"
)

import litellm

from lamina.adapters.chat_turns import write_result, write_tool
from lamina.adapters.litellm import LaminaLogger
from tests.adapters import over_wire
from tests.adapters.long_session import (
    SYSTEM,
    Script,
    read_page,
)
from tests.servers.ports import free_port

TOOLS = [
    write_tool(
        "read_page", "Reads a page.", {"type": "object", "properties": {"number": {"type": "integer"}}}
    )
]


@pytest.fixture(autouse=True)
def _restore() -> Any:
    yield
    litellm.callbacks = []


PAGE = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}


class ChatLoop:
    """A caller's loop over `acompletion`, which keeps its history in the words of Chat Completions."""

    def __init__(self, url: str, send: Any = litellm.acompletion) -> None:
        self._send = send
        self._access = {"api_base": f"{url}/v1", "api_key": "none", "max_retries": 0}
        self.history: list[Any] = [{"role": "system", "content": SYSTEM}]

    def say(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})

    async def step(self, *, stream: bool) -> bool:
        """Call the model once, and the tools that it asks for. False if it asked for none."""
        model = f"openai/{over_wire.OPENAI}"
        answer = await self._send(
            model=model, messages=list(self.history), tools=TOOLS, stream=stream, **self._access
        )
        if stream:
            answer = litellm.stream_chunk_builder([piece async for piece in answer])
        message = answer.choices[0].message
        calls = [call.model_dump() for call in message.tool_calls or ()]
        self.history.append(
            {"role": "assistant", "content": message.content, **({"tool_calls": calls} if calls else {})}
        )
        for call in calls:
            number = json.loads(call["function"]["arguments"])["number"]
            self.history.append(write_result(call["id"], read_page(number)))
        return bool(calls)


class ResponsesLoop(ChatLoop):
    """The same over `aresponses`."""

    async def step(self, *, stream: bool) -> bool:
        tools = [{"type": "function", "name": "read_page", "description": "", "parameters": PAGE}]
        answer = await litellm.aresponses(
            model=f"openai/{over_wire.OPENAI}",
            input=list(self.history),
            tools=tools,
            stream=stream,
            **self._access,
        )
        if stream:
            async for event in answer:
                last_event = event
            answer = last_event.response
        items = [item.model_dump(exclude_none=True) for item in answer.output]
        self.history += items
        calls = [item for item in items if item["type"] == "function_call"]
        for call in calls:
            output = read_page(json.loads(call["arguments"])["number"])
            self.history.append(
                {"type": "function_call_output", "call_id": call["call_id"], "output": output}
            )
        return bool(calls)


class MessagesLoop(ChatLoop):
    """The same over `anthropic.messages.acreate`."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._access["api_base"] = url
        self.history = []

    async def step(self, *, stream: bool) -> bool:
        answer: Any = await litellm.anthropic.messages.acreate(
            model=f"anthropic/{over_wire.ANTHROPIC}",
            messages=list(self.history),
            tools=[{"name": "read_page", "description": "", "input_schema": PAGE}],
            system=SYSTEM,
            max_tokens=900,
            stream=stream,
            **self._access,
        )
        content = answer["content"] if not stream else await read_blocks(answer)
        self.history.append({"role": "assistant", "content": content})
        calls = [block for block in content if block["type"] == "tool_use"]
        if calls:
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": call["id"],
                    "content": read_page(call["input"]["number"]),
                }
                for call in calls
            ]
            self.history.append({"role": "user", "content": results})
        return bool(calls)


async def read_blocks(stream: Any) -> list[Any]:
    """The blocks of a streamed message."""
    text = ""
    async for piece in stream:
        text += piece.decode()
    blocks: dict[int, Any] = {}
    for line in text.split("\n"):
        if not line.startswith("data: "):
            continue
        event = json.loads(line.removeprefix("data: "))
        if event["type"] == "content_block_start":
            blocks[event["index"]] = event["content_block"]
        elif event["type"] == "content_block_delta":
            block = blocks[event["index"]]
            if event["delta"]["type"] == "text_delta":
                block["text"] += event["delta"]["text"]
            else:
                block["input"] = json.loads(event["delta"]["partial_json"])
    return list(blocks.values())


def open_router(url: str) -> Any:
    access = {"model": f"openai/{over_wire.OPENAI}", "api_base": f"{url}/v1", "api_key": "none"}
    name = f"openai/{over_wire.OPENAI}"
    router = litellm.Router(model_list=[{"model_name": name, "litellm_params": access}])
    return ChatLoop(url, router.acompletion)


LOOPS = {
    "acompletion": ChatLoop,
    "Router.acompletion": open_router,
    "aresponses": ResponsesLoop,
    "messages.acreate": MessagesLoop,
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", list(LOOPS))
def test_over_the_wire(api: str, stream: bool, record_property: Any) -> None:
    def run(server: over_wire.StrictServer) -> None:
        litellm.callbacks = [LaminaLogger(budget=over_wire.BUDGET)]
        loop = LOOPS[api](server.url)
        asyncio.run(ask_over_wire(loop, server.script, stream=stream))
        assert "recall" not in json.dumps(loop.history)

    way = f"{api}, {'stream' if stream else 'whole'}"
    over_wire.play_over_wire(way, run, record_property, recalls=1)


async def ask_over_wire(loop: Any, script: Script, *, stream: bool) -> None:
    for turn in range(over_wire.TURNS):
        loop.say(script.begin(turn))
        while await loop.step(stream=stream):
            pass


@contextmanager
def run_proxy(folder: Path, url: str) -> Iterator[str]:
    """LiteLLM's proxy in a process of its own, with lamina's callback, in front of this API."""
    pytest.importorskip("fastapi", reason="litellm[proxy] is not installed")
    (folder / "fitted.py").write_text(FITTED, encoding="utf-8")
    config = {
        "model_list": [
            {
                "model_name": over_wire.OPENAI,
                "litellm_params": {
                    "model": f"openai/{over_wire.OPENAI}",
                    "api_base": f"{url}/v1",
                    "api_key": "none",
                },
            }
        ],
        "litellm_settings": {"callbacks": "fitted.logger", "num_retries": 0},
        "general_settings": {"dangerously_permit_weak_or_unset_master_key": True},
    }
    (folder / "config.yaml").write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    port = free_port()
    program = str(Path(sys.executable).parent / "litellm")
    command = [program, "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        while not is_listening(port):
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


FITTED = f"""
from lamina.adapters.litellm import LaminaLogger
from lamina.core.values import Budget

logger = LaminaLogger(budget=Budget(window={over_wire.BUDGET.window}, reserve={over_wire.BUDGET.reserve}))
"""


def is_listening(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("stream", [False, True])
def test_the_proxy_over_the_wire(stream: bool, tmp_path: Path, record_property: Any) -> None:
    def run(server: over_wire.StrictServer) -> None:
        with run_proxy(tmp_path, server.url) as url:
            loop = ChatLoop(url)
            asyncio.run(ask_over_wire(loop, server.script, stream=stream))
            assert "recall" not in json.dumps(loop.history)

    way = f"proxy, {'stream' if stream else 'whole'}"
    over_wire.play_over_wire(way, run, record_property, recalls=1)
