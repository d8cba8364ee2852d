"""A memo changes no byte, whatever a client does to the messages that it sent before.

It may change one in place, so that the same object says something else; take some back; go on from an earlier
point; or send equal copies.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import msgspec
import pytest

from lamina import Policy, fit_request
from lamina.conversations.conversations import Conversations
from lamina.conversations.pending_call import PendingCall
from lamina.dialects import DIALECTS
from lamina.errors import LaminaError
from lamina.fitting import RequestMemo

Message = dict[str, Any]
Step = list[Message]

TEXT = "Look at src/parser.py and at lib/lines.ts, and never use tabs. " * 6


def _messages_step(number: int, flag: Any) -> Step:
    call = {"type": "tool_use", "id": f"t{number}", "name": "read", "input": {"deep": flag, "path": "a.py"}}
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": TEXT}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def _chat_step(number: int, flag: Any) -> Step:
    function = {"name": "read", "arguments": json.dumps({"deep": flag, "path": "a.py"})}
    call = {"id": f"c{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call], "seen": flag},
        {"role": "tool", "tool_call_id": f"c{number}", "content": TEXT},
    ]


def _responses_step(number: int, flag: Any) -> Step:
    return [
        {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": f"g{number}"},
        {"type": "function_call", "call_id": f"c{number}", "name": "read", "arguments": "{}", "seen": flag},
        {"type": "function_call_output", "call_id": f"c{number}", "output": TEXT},
    ]


def _gemini_step(_: int, flag: Any) -> Step:
    call = {"functionCall": {"name": "read", "args": {"deep": flag, "path": "a.py"}}}
    result = {"functionResponse": {"name": "read", "response": {"output": TEXT}}}
    return [{"role": "model", "parts": [call]}, {"role": "user", "parts": [result]}]


def _converse_step(number: int, flag: Any) -> Step:
    call = {"toolUse": {"toolUseId": f"t{number}", "name": "read", "input": {"deep": flag, "path": "a.py"}}}
    result = {"toolResult": {"toolUseId": f"t{number}", "content": [{"text": TEXT}]}}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def _ollama_step(_: int, flag: Any) -> Step:
    call = {"function": {"name": "read", "arguments": {"deep": flag, "path": "a.py"}}}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_name": "read", "content": TEXT},
    ]


REQUESTS: dict[str, tuple[dict[str, Any], str, Callable[[int, Any], Step], Message]] = {
    "anthropic": (
        {"model": "claude-sonnet-4-5", "max_tokens": 100},
        "messages",
        _messages_step,
        {"role": "user", "content": "Go on."},
    ),
    "openai_chat": ({"model": "gpt-5"}, "messages", _chat_step, {"role": "user", "content": "Go on."}),
    "openai_responses": (
        {"model": "gpt-5", "store": False},
        "input",
        _responses_step,
        {"role": "user", "content": "Go on."},
    ),
    "gemini": (
        {"model": "gemini-2.5-pro"},
        "contents",
        _gemini_step,
        {"role": "user", "parts": [{"text": "Go on."}]},
    ),
    "bedrock_converse": (
        {"modelId": "anthropic.claude-sonnet-4-5-20250929-v1:0"},
        "messages",
        _converse_step,
        {"role": "user", "content": [{"text": "Go on."}]},
    ),
    "ollama": (
        {"model": "llama3", "options": {"num_ctx": 8_000}},
        "messages",
        _ollama_step,
        {"role": "user", "content": "Go on."},
    ),
}


def change_in_place(message: Message, chance: Random) -> None:
    """Change a flag to the number that Python takes for the same, or the order of keys, or a text."""
    leaves = list(_find_leaves(message))
    holder = chance.choice([message, *(holder for holder, _, _ in leaves)])
    if chance.random() < 0.4 and isinstance(holder, dict):
        fields = list(holder.items())[::-1]
        holder.clear()
        holder.update(fields)
        return
    for holder, name, value in leaves:
        if isinstance(value, bool | int):
            holder[name] = int(value) if isinstance(value, bool) else bool(value)
            return
        if value == TEXT and chance.random() < 0.5:
            holder[name] = f"{TEXT} Changed."
            return


def _find_leaves(holder: Any) -> Any:
    items = list(holder.items()) if isinstance(holder, dict) else list(enumerate(holder))
    for name, value in items:
        if isinstance(value, dict | list):
            yield from _find_leaves(value)
        else:
            yield holder, name, value


def fit(request: dict[str, Any], **arguments: Any) -> tuple[str, Any]:
    try:
        fitted = fit_request(request, **arguments)
    except LaminaError as error:
        return repr(error), arguments["ledger"]
    sent = json.dumps([fitted.request, fitted.ledger.dump(), fitted.envelope.tokens], default=repr)
    return sent, fitted.ledger


def tell_story(dialect: str, seed: int, *, turns: int = 12) -> Iterator[dict[str, Any]]:
    """The requests of a client that goes on, changes what it sent, takes it back, or goes on from before."""
    fields, name, make_step, question = REQUESTS[dialect]
    chance = Random(seed)  # noqa: S311 - a story to repeat
    messages: list[Message] = [copy.deepcopy(question)]
    earlier = [list(messages)]
    for turn in range(turns):
        match chance.choice(("grow", "grow", "change", "take back", "go back", "copy")):
            case "change":
                change_in_place(chance.choice(messages), chance)
            case "take back":
                del messages[chance.randrange(1, len(messages) + 1) :]
            case "go back":
                messages = list(chance.choice(earlier))
            case "copy":
                messages = copy.deepcopy(messages)
        messages += make_step(turn, chance.choice([True, 1, False, 0]))
        messages += make_step(turn + 100, "no")
        messages.append(copy.deepcopy(question))
        earlier.append(list(messages))
        yield {**fields, name: list(messages)}


@pytest.mark.parametrize("window", [900_000, 6_000])
@pytest.mark.parametrize("dialect", REQUESTS)
def test_a_memo_changes_nothing_whatever_a_client_changes(dialect: str, window: int) -> None:
    for seed in range(2):
        memo = RequestMemo()
        ledger = None
        for request in tell_story(dialect, seed):
            with_memo, next_ledger = fit(request, ledger=ledger, budget=window, memo=memo)
            without_memo, _ = fit(request, ledger=ledger, budget=window)
            assert with_memo == without_memo
            ledger = next_ledger


RULES = "Answer in the voice of the harbour master, and name the pier of every ship. " * 60
SYSTEM_TEXT: dict[str, dict[str, Any]] = {
    "anthropic": {"system": RULES},
    "openai_responses": {"instructions": RULES},
    "gemini": {"systemInstruction": {"parts": [{"text": RULES}]}},
    "bedrock_converse": {"system": [{"text": RULES}]},
}
SEEDS = (13, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(12)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dialect", REQUESTS)
def test_the_memos_of_conversations_and_of_their_forks_change_nothing(dialect: str, seed: int) -> None:
    """Two clients begin alike and then go their own ways, in turns, so that many requests are forks."""
    policy = Policy(budget=6_000)
    remembering = Conversations(policy)
    forgetful = Conversations(policy)
    stories = [tell_story(dialect, seed, turns=6), tell_story(dialect, seed + 1, turns=6)]
    for requests in zip(*stories, strict=True):
        for request in requests:
            request.update(SYSTEM_TEXT.get(dialect, {}))
            for key, conversation in forgetful.by_key.items():
                forgetful.by_key[key] = msgspec.structs.replace(conversation, memo=RequestMemo())
            assert call(remembering, dialect, request) == call(forgetful, dialect, request)


def call(conversations: Conversations, dialect: str, request: dict[str, Any]) -> str:
    """What is sent for a request, and what is remembered of it, as JSON."""
    try:
        pending = PendingCall(conversations, DIALECTS[dialect], request)
    except LaminaError as error:
        return repr(error)
    pending.finish()
    fitted = pending.fitted
    return json.dumps(
        [fitted.request, fitted.ledger.dump(), fitted.envelope.tokens], default=repr, sort_keys=True
    )
