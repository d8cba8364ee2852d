"""Requests of the Chat Completions API for tests: small builders, and whole conversations from a number."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.core.layout import Layout
from lamina.core.options import Options
from lamina.core.values import Budget
from lamina.dialects.openai_chat import DIALECT

Json = dict[str, Any]
OPTIONS = Options(repairs=DIALECT.wire.repairs, layout=Layout(context="logged"))


def called(id_: str, name: str = "read_file", arguments: str = '{"path": "src/a.py"}') -> Json:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def asks(*calls: Json, **fields: Any) -> Json:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **fields}


def answers(id_: str, content: Any = "x = 1\n" * 40) -> Json:
    return {"role": "tool", "tool_call_id": id_, "content": content}


def request(*messages: Any, **fields: Any) -> Json:
    return {"model": "gpt-5", "messages": list(messages), **fields}


def user(content: Any = "Go on.", **fields: Any) -> Json:
    return {"role": "user", "content": content, **fields}


def fitted(original_request: Json, *, window: int | None = None, **dials: Any) -> Envelope:
    parsed = DIALECT.wire.parse(original_request)
    budget = Budget(window=window, reserve=0, **dials) if window else None
    return build(parsed.log, head=parsed.head, budget=budget, options=OPTIONS)


def sent(original_request: Json, **dials: Any) -> list[Json]:
    """The messages that are sent; the request is valid, and reads back."""
    rendered_request = DIALECT.wire.render(fitted(original_request, **dials))
    assert DIALECT.wire.check(rendered_request) == []
    DIALECT.wire.parse(json.loads(json.dumps(rendered_request)))
    return list(rendered_request["messages"])


def answered(text: str = "Yes.") -> Json:
    return {"role": "assistant", "content": text}


PIXEL = "data:image/png;base64," + "iVBORw0KGgo=" * 300


def conversation(seed: int) -> Json:
    """A valid request of a few turns: text and parts, calls in parallel, results in any order."""
    dice = Random(seed)  # noqa: S311 - a seeded generator is the point
    messages: list[Json] = [{"role": dice.choice(("system", "developer")), "content": "Be brief."}]
    for turn in range(dice.randint(1, 6)):
        text = f"{turn} " + "word " * dice.choice((1, 5, 200))
        picture = {"type": "image_url", "image_url": {"url": PIXEL}}
        messages.append(dice.choice((user(text), user([{"type": "text", "text": text}, picture]), user(""))))
        for step in range(dice.choice((0, 1, 1, 3))):
            ids = [f"c{turn}_{step}_{i}" for i in range(dice.choice((1, 1, 2, 3)))]
            name = dice.choice(("read_file", "bash", "write"))
            arguments = json.dumps({"path": "a.py", "text": "x " * dice.choice((1, 500))})
            extra: Json = dice.choice(({}, {"reasoning_content": "hm " * 100}, {"content": "I look."}))
            messages.append(asks(*(called(id_, name, arguments) for id_ in ids), **extra))
            dice.shuffle(ids)
            messages += [answers(id_, f"{dice.random()} " * dice.choice((1, 20, 400))) for id_ in ids]
        messages.append(answered("reply " * dice.choice((1, 100))))
    if dice.random() < 0.5:
        messages.append(user("And now?"))
    return request(*messages, max_completion_tokens=500)
