"""Requests of the Responses API for tests: small builders, and whole conversations from a number."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.core.layout import Layout
from lamina.core.values import Budget
from lamina.dialects.openai_responses import DIALECT
from lamina.dialects.translate import choose_options

Json = dict[str, Any]
AS_LOGGED = Layout(context="logged")

PIXEL = "data:image/png;base64," + "iVBORw0KGgo=" * 300


def user(content: Any = "Go on.", **fields: Any) -> Json:
    return {"type": "message", "role": "user", "content": content, **fields}


def says(text: str = "Yes.", *, n: int | None = None, **fields: Any) -> Json:
    """What the assistant says; with a number, as the API gave it."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    named = {} if n is None else {"id": f"msg_{n}", "status": "completed"}
    return {"type": "message", "role": "assistant", "content": content, **named, **fields}


def thinks(n: int, **fields: Any) -> Json:
    return {"type": "reasoning", "id": f"rs_{n}", "summary": [], "encrypted_content": f"sealed {n}", **fields}


def calls(id_: str, name: str = "read_file", arguments: str = '{"path": "src/a.py"}', **fields: Any) -> Json:
    return {"type": "function_call", "call_id": id_, "name": name, "arguments": arguments, **fields}


def answers(id_: str, output: Any = "x = 1\n" * 40, **fields: Any) -> Json:
    return {"type": "function_call_output", "call_id": id_, "output": output, **fields}


def request(*items: Any, **fields: Any) -> Json:
    return {"model": "gpt-5.6-sol", "input": list(items), **fields}


def fitted(body: Json, *, window: int | None = None, **dials: Any) -> Envelope:
    parsed = DIALECT.wire.parse(body)
    budget = Budget(window=window, reserve=0, **dials) if window else None
    return build(
        parsed.log,
        head=parsed.head,
        budget=budget,
        options=choose_options(DIALECT, parsed.head, layout=AS_LOGGED),
    )


def sent(body: Json, **dials: Any) -> list[Json]:
    """The items that are sent; the request is valid, and reads back."""
    rendered = DIALECT.wire.render(fitted(body, **dials))
    assert DIALECT.wire.check(rendered) == []
    DIALECT.wire.parse(json.loads(json.dumps(rendered)))
    return list(rendered["input"])


def conversation(seed: int) -> Json:
    """A valid request of a few turns: text and parts, reasoning, calls in parallel, outputs in any order."""
    dice = Random(seed)  # noqa: S311 - a seeded generator is the point
    items: list[Json] = [{"role": dice.choice(("system", "developer")), "content": "Be brief."}]
    ids = iter(range(1, 1000))
    for turn in range(dice.randint(1, 6)):
        words = f"{turn} " + "word " * dice.choice((1, 5, 200))
        picture = {"type": "input_image", "image_url": PIXEL, "detail": "auto"}
        items.append(
            dice.choice((user(words), user([{"type": "input_text", "text": words}, picture]), user("")))
        )
        for step in range(dice.choice((0, 1, 1, 3))):
            items += _step(dice, f"{turn}_{step}", next(ids))
        items += [thinks(next(ids))] * dice.choice((0, 1))
        items.append(says("reply " * dice.choice((1, 100)), n=next(ids), phase="final_answer"))
    items += [user("And now?")] * dice.choice((0, 1))
    return request(*items, instructions="You review code.", max_output_tokens=500)


def _step(dice: Random, name: str, n: int) -> list[Json]:
    thought = [thinks(n, summary=[{"type": "summary_text", "text": "hm " * dice.choice((1, 100))}])]
    items = thought * dice.choice((0, 1))
    items += [says("I look.", n=n, phase="commentary")] * dice.choice((0, 1))
    arguments = json.dumps({"path": "a.py", "text": "x " * dice.choice((1, 500))})
    call_items = [_call(dice, f"c{name}_{i}", arguments) for i in range(dice.choice((1, 1, 2, 3)))]
    items += [call for call, _ in call_items]
    outputs = [output for _, output in call_items]
    dice.shuffle(outputs)
    return items + outputs


def _call(dice: Random, id_: str, arguments: str) -> tuple[Json, Json]:
    text = f"{dice.random()} " * dice.choice((1, 20, 400))
    match dice.choice(("function", "function", "custom", "computer", "shell")):
        case "custom":
            call = {"type": "custom_tool_call", "call_id": id_, "name": "patch", "input": arguments}
            return call, {"type": "custom_tool_call_output", "call_id": id_, "output": text}
        case "computer":
            return screen(id_)
        case "shell":
            action = {"commands": ["ls"]}
            printed = {"stdout": text, "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
            return (
                {"type": "shell_call", "call_id": id_, "action": action},
                {"type": "shell_call_output", "call_id": id_, "output": [printed]},
            )
    name = dice.choice(("read_file", "bash", "write"))
    return calls(id_, name, arguments, id=f"fc_{id_}"), answers(id_, text)


def screen(id_: str) -> tuple[Json, Json]:
    """A call of the computer, and what it shows."""
    call = {
        "type": "computer_call",
        "id": f"cu_{id_}",
        "call_id": id_,
        "status": "completed",
        "pending_safety_checks": [],
        "action": {"type": "screenshot"},
    }
    shot = {"type": "computer_screenshot", "image_url": PIXEL}
    return call, {"type": "computer_call_output", "call_id": id_, "output": shot}
