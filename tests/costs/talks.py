"""Conversations whose figures can be added up by hand: a word is a token, and a message is four more."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from bench.lab.port import PolicyRequest, ReplayPolicy, Setting
from lamina.caches import CacheRules, all_rules
from lamina.core import Counter
from lamina.costs import RecordedUsage, Trace
from lamina.costs.logs.message_sizes import MessageSizes
from lamina.costs.logs.model_calls import RecordedConversation, read_conversation

Json = dict[str, Any]

WORDS = Counter(name="words", count=lambda text: len(text.split()), exact=True)
LEAST = msgspec.structs.replace(all_rules()["anthropic"], minimum=0)
"""Anthropic's cache, for requests of any size: 0.1 to read, 1.25 to write."""


def system(text: str) -> Json:
    return {"role": "system", "content": text}


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def says(text: str | None, **arguments: Any) -> Json:
    """An answer; with arguments, also a call of `read`, whose id is made of them."""
    if not arguments:
        return {"role": "assistant", "content": text}
    function = {"name": "read", "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [{"id": id_of(arguments), "type": "function", "function": function}],
    }


def result(text: str, **arguments: Any) -> Json:
    return {"role": "tool", "tool_call_id": id_of(arguments), "content": text}


def id_of(arguments: Json) -> str:
    return "c" + "_".join(str(value) for value in arguments.values())


def trace(*messages: Json, name: str = "t", used: dict[int, RecordedUsage] | None = None) -> Trace:
    return Trace(id=name, place=f"{name}:1", dialect="openai_chat", items=list(messages), used=used or {})


def talk(*messages: Json, **fields: Any) -> RecordedConversation:
    return read_conversation(trace(*messages, **fields))


def setting(
    talk: RecordedConversation,
    *,
    window: int = 1_000,
    trigger: int = 80,
    target: int = 50,
    rules: CacheRules = LEAST,
) -> Setting:
    """A room as large as the window."""
    message_sizes = MessageSizes(WORDS, talk.tools)
    return Setting(
        window=window, room=window, trigger=trigger, target=target, message_sizes=message_sizes, rules=rules
    )


def scripted(*requests: list[Json] | Exception, recalls: bool = False) -> ReplayPolicy:
    """A policy that sends these, call by call; an exception is raised."""

    def start(_: Setting) -> Any:
        left = iter(requests)

        def run(_request: Json, _idle: float) -> PolicyRequest:
            made = next(left)
            if isinstance(made, Exception):
                raise made
            return PolicyRequest(messages=made)

        return run

    return ReplayPolicy(name="scripted", title="scripted", start=start, recalls=recalls)


def session(steps: int, *, words: int = 10) -> list[Json]:
    """System text, a question, and steps of a call with its result, each result of so many words."""
    messages = [system("Be brief."), user("Mend the parser in src/parse_1.py please.")]
    for step in range(steps):
        text = f"value_{step} " + "word " * (words - 1)
        messages += [says(None, path=f"src/file_{step}.py"), result(text.strip(), path=f"src/file_{step}.py")]
    return [*messages, says("Done: see value_0 and src/parse_1.py.")]
