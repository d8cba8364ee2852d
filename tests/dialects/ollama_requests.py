"""Requests of Ollama's chat API for tests: small builders, and whole conversations from a number."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from tests.dialects.broken import Change, list_broken
from tests.dialects.sending import fit, send

Json = dict[str, Any]

PIXEL = "iVBORw0KGgoA" * 300
TOOL = {
    "type": "function",
    "function": {"name": "read_file", "parameters": {"type": "object", "properties": {}}},
}


def called(name: str = "read_file", arguments: Any = None, **fields: Any) -> Json:
    call_arguments = {"path": "src/a.py"} if arguments is None else arguments
    return {"function": {"name": name, "arguments": call_arguments}, **fields}


def asks(*calls: Any, **fields: Any) -> Json:
    return {"role": "assistant", "content": "", "tool_calls": list(calls), **fields}


def answers(content: str = "x = 1\n" * 40, name: str = "read_file", **fields: Any) -> Json:
    return {"role": "tool", "content": content, "tool_name": name, **fields}


def user(content: Any = "Go on.", **fields: Any) -> Json:
    return {"role": "user", "content": content, **fields}


def answered(text: str = "Yes.", **fields: Any) -> Json:
    return {"role": "assistant", "content": text, **fields}


def request(*messages: Any, **fields: Any) -> Json:
    return {"model": "qwen3", "messages": list(messages), **fields}


fitted = partial(fit, "ollama")


def sent(original_request: Json, **dials: Any) -> list[Json]:
    return list(send("ollama", original_request, **dials)["messages"])


def conversation(seed: int) -> Json:
    """A valid request of a few turns: text, pictures, reasoning, calls in parallel, results named or not."""
    dice = Random(seed)  # noqa: S311 - a seeded generator is the point
    messages: list[Json] = [{"role": "system", "content": "Be brief."}]
    for turn in range(dice.randint(1, 6)):
        text = f"{turn} " + "word " * dice.choice((1, 5, 200))
        messages.append(dice.choice((user(text), user(text, images=[PIXEL, PIXEL]), user(""))))
        for _ in range(dice.choice((0, 1, 1, 3))):
            names = [dice.choice(("read_file", "bash", "write")) for _ in range(dice.choice((1, 1, 2, 3)))]
            calls = [called(name, {"path": "a.py", "text": "x " * dice.choice((1, 500))}) for name in names]
            extra: Json = dice.choice(({}, {"thinking": "hm " * 100}, {"content": "I look."}))
            messages.append(asks(*calls, **extra))
            results = [answers(f"{dice.random()} " * dice.choice((1, 20, 400)), name) for name in names]
            if dice.random() < 0.3:
                results = [{"role": "tool", "content": result["content"]} for result in results]
            elif dice.random() < 0.5:
                dice.shuffle(results)
            messages += results
        messages.append(answered("reply " * dice.choice((1, 100))))
    if dice.random() < 0.5:
        messages.append(user("And now?"))
    return request(*messages, options={"num_ctx": 8192}, tools=[TOOL])


VALID = request(
    {"role": "system", "content": "Be brief."},
    user("Read it.", images=["AAAA"]),
    asks(called(), called("now", {})),
    answers("noon", "now"),
    answers(),
    answered("Done.", thinking="It is noon."),
    user(""),
    tools=[TOOL],
    options={"num_ctx": 4096, "num_predict": -1},
    truncate=False,
    think="low",
    format={"type": "object"},
)


BREAKS: dict[str, list[Change]] = {
    "roles_are_known": [
        lambda r: r["messages"].append("hello"),
        lambda r: r["messages"].append({"role": "narrator", "content": "x"}),
        lambda r: r["messages"].append({"role": ["user"], "content": "x"}),
        lambda r: r["messages"].append({"content": "x"}),
    ],
    "fields_are_whole": [
        lambda r: r["messages"][1].update(content=["x"]),
        lambda r: r["messages"][5].update(thinking={"text": "x"}),
        lambda r: r["messages"][4].update(tool_name=5),
        lambda r: r["messages"][2]["tool_calls"][0]["function"].update(name=""),
        lambda r: r["messages"][2]["tool_calls"][0]["function"].update(arguments='{"path": "a"}'),
        lambda r: r["messages"][2]["tool_calls"][0]["function"].pop("arguments"),
    ],
    "images_are_base64": [
        lambda r: r["messages"][1].update(images=["data:image/png;base64,AAAA"]),
        lambda r: r["messages"][1].update(images=["https://example.org/a.png"]),
        lambda r: r["messages"][1].update(images=["AAA"]),
        lambda r: r["messages"][1].update(images=["not base64"]),
        lambda r: r["messages"][1].update(images="AAAA"),
        lambda r: r["messages"][1].update(images=[{"url": "AAAA"}]),
    ],
    "calls_are_an_assistants": [
        lambda r: r["messages"][1].update(tool_calls=[called()]),
        lambda r: r["messages"][5].update(tool_calls={"function": {}}),
    ],
    "fields_are_whole at messages[2].tool_calls[1].function.name": [
        lambda r: r["messages"][2]["tool_calls"][1]["function"].update(name=""),
    ],
    "calls_and_results_pair": [
        lambda r: r["messages"].append(asks(called())),
        lambda r: r["messages"].pop(3),
        lambda r: r["messages"].pop(4),
        lambda r: r["messages"].append(answers()),
        lambda r: r["messages"].insert(5, answers()),
        lambda r: r["messages"].insert(0, {"role": "tool", "content": "x"}),
    ],
    "results_name_their_call": [
        lambda r: r["messages"][3].update(tool_name="later"),
        lambda r: r["messages"][3].update(tool_name="read_file"),
    ],
    "nothing_is_empty": [
        lambda r: r.update(messages=[]),
        lambda r: r.update(messages="hello"),
        lambda r: r["messages"].append(answered("")),
        lambda r: r["messages"].append({"role": "assistant"}),
        lambda r: r["messages"].append(answered("\n", thinking=" ")),
    ],
    "tools_are_definitions": [
        lambda r: r.update(tools={}),
        lambda r: r.update(tools=[{"name": "read_file"}]),
        lambda r: r["tools"][0]["function"].update(name=""),
    ],
    "parameters_are_of_their_type": [
        lambda r: r.update(model=""),
        lambda r: r.update(options=["num_ctx"]),
        lambda r: r.update(format="yaml"),
        lambda r: r.update(think=3),
    ],
    "numbers_are_possible": [
        lambda r: r["options"].update(num_ctx=0),
        lambda r: r["options"].update(num_ctx="8k"),
        lambda r: r["options"].update(num_predict=-3),
    ],
}


BROKEN = list_broken(VALID, BREAKS)
