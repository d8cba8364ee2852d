"""Messages that no careful client would send, for every dialect: each alone plausible, together mostly wrong.

A conversation is drawn as numbers of messages in a pool, so that a failing one shrinks by dropping messages.
The pools are made once, from fixed seeds: ids that repeat, dangle or are odd, names that an API refuses,
blank texts, results before, after and without their calls, unsigned thinking, markers anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any, NamedTuple

from hypothesis import strategies as st

Json = dict[str, Any]

SIZE = 160
"""Messages in a pool."""

TEXTS = ("hi", "Read a.py.", "", " ", "\n", "a longer text with words " * 8, "[trimmed]")
NAMES = ("read", "write", "srv.read", "a b", "", "x" * 70, "read/é", "9go")
IDS = ("a", "b", "c", "t.1", "", "x" * 130, "é")


class Hostile(NamedTuple):
    """A conversation that grows message by message."""

    dialect: str
    field: str
    head: Json
    messages: list[Json]

    def request(self, count: int) -> Json:
        """The first so many messages, as objects of their own: a client may send copies."""
        return {**deepcopy(self.head), self.field: deepcopy(self.messages[:count])}


class _Dice:
    """Draws the pieces of messages."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311 - nothing here is secret

    def one_of(self, *values: Any, weights: tuple[float, ...] | None = None) -> Any:
        return self.random.choices(values, weights)[0]

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def text(self) -> str:
        text: str = self.one_of(*TEXTS, weights=(8, 6, 2, 2, 1, 3, 1))
        return text

    def name(self) -> str:
        name: str = self.one_of(*NAMES, weights=(12, 6, 2, 1, 1, 1, 1, 1))
        return name

    def id(self) -> str:
        id_: str = self.one_of(*IDS, weights=(8, 8, 6, 2, 1, 1, 1))
        return id_

    def some(self, make: Callable[[], Json], *, least: int = 1, most: int = 3) -> list[Json]:
        return [make() for _ in range(self.random.randint(least, most))]


def _anthropic(dice: _Dice) -> Json:
    role = dice.one_of("user", "assistant", "system", weights=(5, 5, 1.2))
    blocks = {"user": _asked_block, "assistant": _spoken_block, "system": _text_block}[role]
    content = dice.one_of(dice.text(), [], dice.some(lambda: blocks(dice)), weights=(3, 0.6, 6))
    directive = {"output_config": {"effort": "medium"}} if role == "system" and dice.chance(0.3) else {}
    return {"role": role, "content": content, **directive}


def _marker(dice: _Dice) -> Json:
    if not dice.chance(0.12):
        return {}
    return {"cache_control": {"type": "ephemeral", **dice.one_of({}, {"ttl": "5m"}, {"ttl": "1h"})}}


def _text_block(dice: _Dice) -> Json:
    return {"type": "text", "text": dice.text(), **_marker(dice)}


def _asked_block(dice: _Dice) -> Json:
    content = dice.one_of(
        {"content": dice.text()},
        {"content": [{"type": "text", "text": dice.text()}]},
        {},
        {"content": []},
        {"content": "x", "is_error": True},
    )
    result = {"type": "tool_result", "tool_use_id": dice.id(), **content, **_marker(dice)}
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    search_result = {
        "type": "search_result",
        "source": "x",
        "title": "t",
        "content": [{"type": "text", "text": "y"}],
    }
    block: Json = dice.one_of(result, _text_block(dice), picture, search_result, weights=(9, 8, 2, 1))
    return block


def _spoken_block(dice: _Dice) -> Json:
    use = {"type": "tool_use", "id": dice.id(), "name": dice.name(), "input": {"path": "a"}, **_marker(dice)}
    thought = {"type": "thinking", "thinking": "hm", "signature": dice.one_of("sig", "sig2", "")}
    marked = _marker(dice) if dice.chance(0.2) else {}
    block: Json = dice.one_of(
        use,
        _text_block(dice),
        thought | marked,
        {"type": "redacted_thinking", "data": "zz"},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
        weights=(8, 6, 2.4, 1, 1.4, 1.2),
    )
    return block


def _anthropic_head(dice: _Dice) -> Json:
    models = ("claude-opus-4-8", "claude-sonnet-4-5", "claude-opus-5-5", "claude-sonnet-5", "claude-3-opus")
    head: Json = {"model": dice.one_of(*models), "max_tokens": 100}
    if dice.chance(0.3):
        text = {"type": "text", "text": "Be brief.", **_marker(dice)}
        head["system"] = dice.one_of("Be brief.", [text], [{"type": "text", "text": " "}])
    if dice.chance(0.3):
        name = dice.one_of("read", "srv.read", weights=(5, 1))
        head["tools"] = [{"name": name, "input_schema": {"type": "object"}, **_marker(dice)}]
    return head


def _openai_chat(dice: _Dice) -> Json:
    role = dice.one_of(
        "user", "assistant", "tool", "system", "developer", "function", weights=(4, 5, 4, 0.7, 0.3, 0.3)
    )
    breakpoint_ = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    part = {"type": "text", "text": dice.text()} | (breakpoint_ if dice.chance(0.1) else {})
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    content = dice.one_of(dice.text(), [part], None, [], [picture, part], weights=(6, 3, 1, 0.7, 1))
    message: Json = {"role": role, "content": content}
    if role == "assistant":
        if dice.chance(0.5):
            message["tool_calls"] = dice.some(lambda: _chat_call(dice), least=0)
        extra = {"refusal": "no", "reasoning_content": "hm", **breakpoint_}
        extra["function_call"] = {"name": dice.name(), "arguments": "{}"}
        message |= {name: value for name, value in extra.items() if dice.chance(0.08)}
    named = {"tool": {"tool_call_id": dice.id()}, "function": {"name": dice.name()}}
    return message | named.get(role, {})


def _chat_call(dice: _Dice) -> Json:
    return {"id": dice.id(), "type": "function", "function": {"name": dice.name(), "arguments": "{}"}}


def _openai_responses(dice: _Dice) -> Json:
    def named(prefix: str) -> Json:
        return {"id": f"{prefix}_{dice.one_of('1', '2', '3')}"} if dice.chance(0.4) else {}

    part = {"type": "input_text", "text": dice.text()}
    spoken = {"type": "output_text", "text": dice.text(), "annotations": []}
    shared: tuple[tuple[float, Json], ...] = (
        (25, {"role": "user", "content": dice.one_of(dice.text(), [part], []), **named("msg")}),
        (13, {"role": "assistant", "content": dice.one_of(dice.text(), [spoken], [part]), **named("msg")}),
        (4, {"role": dice.one_of("system", "developer"), "content": dice.text()}),
        (18, {"type": "function_call", "call_id": dice.id(), "name": dice.name(), "arguments": "{}"}),
        (16, {"type": "function_call_output", "call_id": dice.id(), "output": dice.one_of("x", [part], [])}),
        (10, {"type": "reasoning", "summary": [], **named("rs"), **_sealed(dice)}),
        (2, {"type": "compaction_trigger"}),
        (2, {"type": "item_reference", "id": dice.one_of("msg_9", "fc_9", "")}),
        (2, {"type": "compaction", "id": "cmp_1", "encrypted_content": dice.one_of("zz", "")}),
        (2, {"type": "custom_tool_call", "call_id": dice.id(), "name": dice.name(), "input": "x"}),
        (2, {"type": "custom_tool_call_output", "call_id": dice.id(), "output": "x"}),
        (1, {"type": "web_search_call", "id": "ws_1", "status": "completed"}),
        (1, {"type": "configuration_update", "reasoning": {"effort": "low"}}),
        (1, {"type": "local_shell_call", "call_id": dice.id(), "id": "lsh_1", "action": {"type": "exec"}}),
        (1, {"type": "local_shell_call_output", "id": dice.id(), "output": "x"}),
    )
    item: Json = dice.one_of(*(one for _, one in shared), weights=tuple(weight for weight, _ in shared))
    misplaced = {"prompt_cache_breakpoint": {"mode": "explicit"}} if dice.chance(0.03) else {}
    return item | misplaced


def _sealed(dice: _Dice) -> Json:
    return {"encrypted_content": "zz"} if dice.chance(0.7) else {}


def _gemini(dice: _Dice) -> Json:
    role = dice.one_of("user", "model", "function", weights=(5, 5, 0.4))
    part = _model_part if role == "model" else _user_part
    return {"role": role, "parts": dice.some(lambda: part(dice), least=0 if dice.chance(0.1) else 1)}


def _model_part(dice: _Dice) -> Json:
    signed = {"thoughtSignature": "c2ln"} if dice.chance(0.5) else {}
    call = {"functionCall": {"name": dice.name(), "args": {"path": "a"}, **_gemini_id(dice)}, **signed}
    thought = {"text": dice.text(), "thought": True}
    code = {"executableCode": {"language": "PYTHON", "code": "1"}}
    part: Json = dice.one_of(call, {"text": dice.text()}, thought, code, weights=(9, 7, 2, 2))
    return part


def _user_part(dice: _Dice) -> Json:
    response = {"name": dice.name(), "response": {"output": "x"}, **_gemini_id(dice)}
    picture = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    text_part = {"text": dice.text()}
    part: Json = dice.one_of({"functionResponse": response}, text_part, picture, weights=(9, 9, 2))
    return part


def _gemini_id(dice: _Dice) -> Json:
    return {"id": dice.id()} if dice.chance(0.4) else {}


def _ollama(dice: _Dice) -> Json:
    role = dice.one_of("user", "assistant", "tool", "system", weights=(4, 5, 4, 0.7))
    message: Json = {"role": role, "content": dice.text()}
    if role == "assistant":
        if dice.chance(0.5):
            message["tool_calls"] = dice.some(lambda: _ollama_call(dice), least=0)
        if dice.chance(0.15):
            message["thinking"] = dice.text()
    if role == "tool":
        if dice.chance(0.7):
            message["tool_name"] = dice.name()
        if dice.chance(0.3):
            message["tool_call_id"] = dice.id()
    return message | ({"images": ["AAAA"]} if dice.chance(0.05) else {})


def _ollama_call(dice: _Dice) -> Json:
    named = {"id": dice.id()} if dice.chance(0.3) else {}
    return {"function": {"name": dice.name(), "arguments": {}}, **named}


class _Pool(NamedTuple):
    field: str
    make: Callable[[_Dice], Json]
    head: Callable[[_Dice], Json]


def _responses_head(dice: _Dice) -> Json:
    chains: tuple[Json, ...] = ({}, {"store": False}, {"previous_response_id": "resp_1"})
    return {"model": "gpt-5", **dice.one_of(*chains, weights=(5, 3, 1))}


def _gemini_head(dice: _Dice) -> Json:
    return {"model": dice.one_of("gemini-3-pro", "gemini-2.5-pro")}


_POOLS: dict[str, _Pool] = {
    "anthropic": _Pool("messages", _anthropic, _anthropic_head),
    "openai_chat": _Pool("messages", _openai_chat, lambda _: {"model": "gpt-4o"}),
    "openai_responses": _Pool("input", _openai_responses, _responses_head),
    "gemini": _Pool("contents", _gemini, _gemini_head),
    "ollama": _Pool("messages", _ollama, lambda _: {"model": "qwen3", "options": {}}),
}

DIALECTS_WITH_MESSAGES = tuple(_POOLS)

_MESSAGES = {name: [pool.make(_Dice(seed)) for seed in range(SIZE)] for name, pool in _POOLS.items()}


@st.composite
def conversations(draw: st.DrawFn, dialect: str, *, most: int = 9) -> Hostile:
    """A hostile conversation of one dialect."""
    pool = _POOLS[dialect]
    head = pool.head(_Dice(draw(st.integers(0, 30))))
    numbers = draw(st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=most))
    return Hostile(dialect, pool.field, head, [_MESSAGES[dialect][number] for number in numbers])
