"""Requests of the Chat Completions API for tests: small builders, and whole conversations from a number."""

from __future__ import annotations

import json
from functools import partial
from random import Random
from typing import Any

from tests.dialects.broken import Change, list_broken
from tests.dialects.sending import fit, send

Json = dict[str, Any]


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


fitted = partial(fit, "openai_chat")


def sent(original_request: Json, **dials: Any) -> list[Json]:
    return list(send("openai_chat", original_request, **dials)["messages"])


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


VALID = request(
    {"role": "developer", "content": "Be brief."},
    user([{"type": "text", "text": "Read it.", "prompt_cache_breakpoint": {"mode": "explicit"}}]),
    asks(called("c1"), called("c2")),
    answers("c2"),
    answers("c1"),
    answered(),
    {"role": "assistant", "content": None, "function_call": {"name": "now", "arguments": "{}"}},
    {"role": "function", "name": "now", "content": "noon"},
    {"role": "assistant", "content": None, "refusal": "No."},
    user(""),
    tools=[{"type": "function", "function": {"name": "read_file"}}],
)


BREAKS: dict[str, list[Change]] = {
    "roles_are_known": [
        lambda r: r["messages"].append("hello"),
        lambda r: r["messages"].append({"role": "narrator", "content": "x"}),
        lambda r: r["messages"].append({"role": ["user"], "content": "x"}),
    ],
    "calls_and_results_pair": [
        lambda r: r["messages"].append(asks(called("c3"))),
        lambda r: r["messages"].pop(3),
        lambda r: r["messages"].pop(7),
        lambda r: r["messages"].append(answers("c1")),
        lambda r: r["messages"].insert(5, answers("c1")),
        lambda r: r["messages"].append({"role": "function", "name": "now", "content": "noon"}),
    ],
    "names_and_ids_fit": [
        lambda r: r["messages"].append({"role": "tool", "content": "x"}),
        lambda r: r["messages"].append(
            asks({"type": "function", "function": {"name": "f", "arguments": ""}})
        ),
        lambda r: r["messages"][2]["tool_calls"][0]["function"].update(name="functions.read:0"),
        lambda r: r["messages"][6]["function_call"].update(name="n" * 65),
        lambda r: r["tools"][0]["function"].update(name=""),
    ],
    "fields_are_whole": [
        lambda r: r["messages"][7].pop("name"),
        lambda r: r["messages"][2]["tool_calls"][0]["function"].update(arguments={"path": "a"}),
        lambda r: r["messages"][2]["tool_calls"][0]["function"].pop("name"),
        lambda r: r["messages"][6]["function_call"].update(arguments=None),
        lambda r: r["messages"][1]["content"].append("x"),
        lambda r: r["messages"][1]["content"].append({"text": "x"}),
        lambda r: r["messages"][1]["content"].append({"type": "text", "text": None}),
    ],
    "assistants_list_their_calls": [
        lambda r: r["messages"][5].update(tool_calls=[]),
        lambda r: r["messages"][5].update(tool_calls=None),
        lambda r: r["messages"][1].update(tool_calls=[called("c9")]),
    ],
    "ids_are_unique": [
        lambda r: r["messages"][2]["tool_calls"].append(called("c1")),
    ],
    "nothing_is_empty": [
        lambda r: r.update(messages=[]),
        lambda r: r.update(messages="hello"),
        lambda r: r.pop("messages"),
        lambda r: r["messages"][5].update(content=None),
        lambda r: r["messages"][0].pop("content"),
        lambda r: r["messages"][1].update(content=[]),
        lambda r: r["messages"][3].update(content=None),
        lambda r: r["messages"][2].update(content=[]),
        lambda r: r["messages"][1].update(content=7),
        lambda r: r["messages"].append(answered("")),
        lambda r: r["messages"][5].update(content="\n"),
    ],
    "names_and_ids_fit at messages[2].tool_calls[1].function.name": [
        lambda r: r["messages"][2]["tool_calls"][1]["function"].update(name="a b"),
    ],
    "markers_stand_on_parts": [
        lambda r: r["messages"][0].update(prompt_cache_breakpoint={}),
        lambda r: r["tools"][0].update(prompt_cache_breakpoint={}),
        lambda r: r["messages"][2]["tool_calls"][0].update(prompt_cache_breakpoint={}),
        lambda r: r["messages"][1]["content"].append({"type": "hologram", "prompt_cache_breakpoint": {}}),
    ],
}


BROKEN = list_broken(VALID, BREAKS)
