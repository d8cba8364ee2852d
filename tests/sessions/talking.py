"""Sessions to test: answers in each dialect's words, and a conversation that is played into a session."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import partial, wraps
from typing import Any, ParamSpec

import anyio

from lamina.core.values import Budget
from lamina.dialects import PlainHead, Tool
from lamina.fitting import Policy
from lamina.sessions import RuntimeOptions, Session, SetupOptions
from lamina.settings import Settings
from lamina.stores import MemoryStore, Once, Store, StoredHead, Where
from lamina.testing.conformance import MODELS

P = ParamSpec("P")
SMALL = Budget(window=3_000, reserve=0, keep_last=1)
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
HEAD = PlainHead(tools=(Tool(name="read_file", description="Reads a file.", schema=SCHEMA),), output=500)


def awaited(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test in an event loop of its own."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        anyio.run(partial(test, *args, **kwargs))

    return run


def opened(store: Store, name: str = "a", **arguments: Any) -> AbstractAsyncContextManager[Session]:
    """A session that looks at nothing of the machine it runs on."""
    return Session.open(store, name, settings=Settings(), **group_options({"clock": None} | arguments))


def group_options(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `Session.open`, with those of its three structs put into them by their names."""
    grouped = dict(arguments)
    for name, struct in (("setup", SetupOptions), ("runtime", RuntimeOptions), ("policy", Policy)):
        fields = {field: grouped.pop(field) for field in struct.__struct_fields__ if field in grouped}
        grouped[name] = struct(**fields)
    return grouped


def list_texts(session: Session) -> list[str]:
    return [one.text for one in session.dialogue()]


def wire(request: dict[str, Any]) -> str:
    return json.dumps(request, ensure_ascii=False)


def answer(dialect: str, text: str, *, call: str = "", read: int = 0) -> Any:
    """What a provider answers: some text, perhaps a call of read_file with this id."""
    answers: dict[str, Callable[[], Any]] = {
        "anthropic": lambda: _anthropic(text, call, read),
        "openai_chat": lambda: _chat(text, call, read),
        "openai_responses": lambda: _responses(text, call, read),
        "gemini": lambda: _gemini(text, call, read),
        "ollama": lambda: _ollama(text, call, read),
        "bedrock_converse": lambda: _converse(text, call, read),
        "text": lambda: {"choices": [{"text": text}], "usage": {"prompt_tokens": read}},
    }
    return answers[dialect]()


PATH = {"path": "src/a.py"}


def _anthropic(text: str, call: str, read: int) -> Any:
    content: list[Any] = [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "text", "text": text},
    ]
    content += [{"type": "tool_use", "id": call, "name": "read_file", "input": PATH}] if call else []
    stop = "tool_use" if call else "end_turn"
    usage = {"input_tokens": read, "output_tokens": 5}
    return {"type": "message", "role": "assistant", "content": content, "stop_reason": stop, "usage": usage}


def _chat(text: str, call: str, read: int) -> Any:
    function = {"name": "read_file", "arguments": json.dumps(PATH)}
    calls = {"tool_calls": [{"id": call, "type": "function", "function": function}]} if call else {}
    message = {"role": "assistant", "content": text, "annotations": [], **calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if call else "stop"}
    return {"choices": [choice], "usage": {"prompt_tokens": read, "completion_tokens": 5}}


def _responses(text: str, call: str, read: int) -> Any:
    name = text.replace(" ", "_")
    part = {"type": "output_text", "text": text, "annotations": []}
    spoken = {
        "type": "message",
        "id": f"msg_{name}",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    output: list[Any] = [
        {"type": "reasoning", "id": f"rs_{name}", "summary": [], "encrypted_content": "x"},
        spoken,
    ]
    if call:
        function = {"type": "function_call", "id": f"fc_{call}", "call_id": call, "name": "read_file"}
        output.append(function | {"arguments": json.dumps(PATH), "status": "completed"})
    return {
        "object": "response",
        "status": "completed",
        "output": output,
        "usage": {"input_tokens": read, "output_tokens": 5},
    }


def _gemini(text: str, call: str, read: int) -> Any:
    parts: list[Any] = [{"text": text, "thoughtSignature": "c2ln"}]
    parts += [{"functionCall": {"id": call, "name": "read_file", "args": PATH}}] if call else []
    content = {"role": "model", "parts": parts}
    usage = {"promptTokenCount": read, "candidatesTokenCount": 5}
    return {"candidates": [{"content": content, "finishReason": "STOP"}], "usageMetadata": usage}


def _ollama(text: str, call: str, read: int) -> Any:
    calls = {"tool_calls": [{"function": {"name": "read_file", "arguments": PATH}}]} if call else {}
    message = {"role": "assistant", "content": text, **calls}
    return {"message": message, "done": True, "done_reason": "stop", "prompt_eval_count": read}


def _converse(text: str, call: str, read: int) -> Any:
    thought = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}}
    content: list[Any] = [thought, {"text": text}]
    content += [{"toolUse": {"toolUseId": call, "name": "read_file", "input": PATH}}] if call else []
    stop = "tool_use" if call else "end_turn"
    usage = {"inputTokens": read, "outputTokens": 5, "totalTokens": read + 5}
    return {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": stop,
        "usage": usage,
    }


def setup_of(dialect: str, **more: Any) -> dict[str, Any]:
    """What a conversation in this dialect is opened with for the first time."""
    return {"model": MODELS[dialect], "dialect": dialect, "budget": SMALL, "head": HEAD} | more


class Flaky(MemoryStore):
    """A store whose next append fails, before or after it was done."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = ""

    async def append(
        self,
        where: Where,
        records: Any,
        *,
        expect: int | None = None,
        was: bytes | None = None,
        once: Once | None = None,
        state: bytes | None = None,
    ) -> StoredHead:
        fails, self.fails = self.fails, ""
        if fails == "before":
            raise OSError("the disk is gone")
        head = await super().append(where, records, expect=expect, was=was, once=once, state=state)
        if fails == "after":
            raise OSError("the answer got lost")
        return head
