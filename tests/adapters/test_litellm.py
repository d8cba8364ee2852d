"""A loop over litellm.acompletion with a scripted provider, and lamina's callback."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it would ask the network
pytest.importorskip(
    "litellm.integrations.custom_logger", reason="litellm is not installed: run `make adapters` to test it"
)

import litellm
from litellm import CustomLLM

from lamina.adapters.chat_turns import write_call, write_output_format, write_result, write_tool
from lamina.adapters.litellm import LaminaLogger
from lamina.core.values import Budget
from tests.adapters import over_wire
from tests.adapters.long_answer import LongAnswer
from tests.adapters.long_session import (
    BUDGET,
    CALLS,
    SYSTEM,
    TURNS,
    Account,
    Answer,
    Script,
    count_requests,
    read_page,
)
from tests.servers.ports import free_port

TOOLS = [
    write_tool(
        "read_page", "Reads a page.", {"type": "object", "properties": {"number": {"type": "integer"}}}
    )
]


class ScriptedProvider(CustomLLM):
    """Answers as the script says, and records what it gets."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script

    async def acompletion(self, *_: Any, **arguments: Any) -> Any:
        messages = [dict(message) for message in arguments["messages"]]
        answer = self.script.answer(messages, arguments["optional_params"].get("tools") or ())
        return litellm.ModelResponse(
            choices=[{"message": write_answer(answer), "finish_reason": "stop"}],
            usage=litellm.Usage(prompt_tokens=answer.tokens, completion_tokens=9),
        )


def write_answer(answer: Answer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if answer.name:
        message["tool_calls"] = [write_call(answer.call_id, answer.name, answer.arguments)]
    return message


def play(folder: Path, script: Script, turns: Sequence[int], fitted: bool) -> list[Any]:
    """Ask the questions of these turns. What the caller has of the conversation is in the folder."""
    litellm.custom_provider_map = [{"provider": "scripted", "custom_handler": ScriptedProvider(script)}]
    litellm.callbacks = [LaminaLogger(budget=BUDGET)] if fitted else []
    history: list[Any] = [{"role": "system", "content": SYSTEM}]
    for turn in turns:
        history.append({"role": "user", "content": script.begin(turn)})
        asyncio.run(ask(history))
    (folder / "history.json").write_text(json.dumps(history), encoding="utf-8")
    return history


async def ask(history: list[Any]) -> None:
    while True:
        answer = await litellm.acompletion(model="scripted/manual", messages=list(history), tools=TOOLS)
        message = answer.choices[0].message
        calls = [call.model_dump() for call in message.tool_calls or ()]
        turn: dict[str, Any] = {"role": "assistant", "content": message.content}
        if calls:
            turn["tool_calls"] = calls
        history.append(turn)
        if not calls:
            return
        for call in calls:
            number = json.loads(call["function"]["arguments"])["number"]
            history.append(write_result(call["id"], read_page(number)))


@pytest.fixture(autouse=True)
def _restore() -> Any:
    yield
    litellm.callbacks = []
    litellm.custom_provider_map = []


def test_a_long_session(tmp_path: Path) -> None:
    bare = Script()
    play(tmp_path, bare, range(TURNS), False)
    assert count_requests(bare.requests).over > TURNS * CALLS // 2

    script = Script()
    history = play(tmp_path, script, range(TURNS), True)
    account: Account = count_requests(script.requests)
    assert account.invalid == []
    assert account.over == 0
    assert 2 <= account.cuts <= 12
    assert len(script.recalled) >= 3
    assert all("press key" in text for text in script.recalled)
    # The caller sees no recall and no lowered text: its history is what it would be without lamina.
    assert "recall" not in json.dumps(history)
    assert len(history) == 1 + TURNS * (1 + 2 * CALLS + 1)


def test_a_stream_shows_no_handles() -> None:
    logger = LaminaLogger(budget=BUDGET)
    history: list[Any] = [{"role": "user", "content": "Read."}]
    for number in range(60):
        call = write_call(f"c{number}", "read_page", {"number": number})
        history += [{"role": "assistant", "content": None, "tool_calls": [call]}]
        history += [write_result(f"c{number}", read_page(number))]
    arguments = {"model": "gpt-5", "messages": history, "stream": True}
    fitted = asyncio.run(
        logger.async_pre_call_deployment_hook(arguments, litellm.types.utils.CallTypes.acompletion)
    )
    assert fitted is not None
    assert len(json.dumps(fitted["messages"])) < 60_000 < len(json.dumps(history))
    assert "recall" not in json.dumps(fitted["messages"])
    assert "tools" not in fitted


@pytest.mark.parametrize("output", [LongAnswer, write_output_format(LongAnswer)["response_format"]])
def test_a_structured_answer_is_counted(output: Any) -> None:
    """A history that fits is cut if a schema of a thousand tokens comes with it."""
    history: list[Any] = [{"role": "system", "content": SYSTEM}]
    for number in range(9):
        history.append({"role": "user", "content": f"What is on page {number}?"})
        history.append({"role": "assistant", "content": read_page(number)})
    history.append({"role": "user", "content": "Thank you."})
    request = {"model": "gpt-5", "messages": history}
    size = count_requests([request]).sizes[0]
    budget = Budget(window=size + 600, reserve=0, trigger=1.0)

    def fit(**arguments: Any) -> Any:
        kwargs = {**request, **arguments}
        call_type = litellm.types.utils.CallTypes.acompletion
        fitted = asyncio.run(LaminaLogger(budget=budget).async_pre_call_deployment_hook(kwargs, call_type))
        assert fitted is not None
        return fitted["messages"]

    assert fit() == history
    assert fit(response_format=output) != history


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

    recalls = 0 if stream else 1
    way = f"{api}, {'stream' if stream else 'whole'}"
    over_wire.play_over_wire(way, run, record_property, recalls=recalls)


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

    recalls = 0 if stream else 1
    way = f"proxy, {'stream' if stream else 'whole'}"
    over_wire.play_over_wire(way, run, record_property, recalls=recalls)
