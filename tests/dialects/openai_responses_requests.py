"""Requests of the Responses API for tests: small builders, and whole conversations from a number."""

from __future__ import annotations

import json
from functools import partial
from random import Random
from typing import Any

from tests.dialects.sending import fit, send

Json = dict[str, Any]

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


fitted = partial(fit, "openai_responses")


def sent(body: Json, **dials: Any) -> list[Json]:
    return list(send("openai_responses", body, **dials)["input"])


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


MARK = {"prompt_cache_breakpoint": {"mode": "explicit"}}


FUNCTION = {"type": "function", "name": "f", "parameters": {}}


def message_of(sort: str, role: str = "user", **fields: Any) -> Json:
    return {"role": role, "content": [{"type": sort, "text": "Hi", **fields}]}


BREAKING: dict[str, list[Json]] = {
    "something_is_asked": [
        {"model": "m"},
        {"input": []},
        {"input": ""},
        {"input": 7},
        {"input": "x", "instructions": 7},
    ],
    "fields_are_whole": [
        request(user(), {}),
        request(7),
        request({"type": 5, "role": "user"}),
        request(user(), {"type": "item_reference"}),
        request({"type": "compaction", "id": "cmp_1"}, user()),
        request(user(), calls("c", arguments={}), answers("c")),  # type: ignore[arg-type]
        request(user(), {"type": "custom_tool_call", "call_id": "c", "name": "n"}, answers("c")),
        request(user(), calls("c"), answers("c", None)),
        request(user(), tools=[{"type": "function", "function": {"name": "f"}}]),
        request(user(), tools=[{"name": "f"}]),
        request(user([{"text": "x"}])),
        request(user([{"type": "input_text", "text": None}])),
        request(user(), calls("c"), answers("c", [7])),
    ],
    "roles_are_known": [
        request(user(), {"role": "narrator", "content": "x"}),
    ],
    "calls_and_results_pair": [
        request(user(), answers("c")),
        request(user(), answers("c"), calls("d"), answers("d")),
        request(user(), calls("c"), answers("c"), answers("c")),
        request({"type": "custom_tool_call_output", "call_id": "c", "output": "x"}),
        request(user(), calls("c")),
        request(user(), calls("c"), user()),
        request(user(), calls("c"), user(), says(), user()),
        request(user(), calls("c"), calls("d"), answers("d")),
        request(user(), {"type": "shell_call", "call_id": "c", "action": {"commands": []}}),
    ],
    "reasoning_is_followed": [
        request(user(), thinks(1)),
        request(user(), thinks(1), user()),
        request(user(), thinks(1), says(content=None), user()) | {},
        request(user(), calls("c"), thinks(1), answers("c")),
    ],
    "reasoning_can_be_read_again": [
        request(user(), thinks(1, encrypted_content=None), says(), store=False),
    ],
    "phases_are_known": [
        request(user(), says(phase="epilogue")),
        request(user(phase="commentary")),
    ],
    "a_trigger_stands_last": [
        request(user(), {"type": "compaction_trigger"}, user()),
    ],
    "one_past_is_continued": [
        request(user(), previous_response_id="r", conversation="c"),
    ],
    "truncation_is_known": [
        request(user(), truncation="middle"),
    ],
    "names_and_ids_fit": [
        request(user(), calls("c" * 65), answers("c" * 65)),
        request(user(), calls(""), user()),
        request(user(), calls(5), user()),  # type: ignore[arg-type]
        request(user(), calls("c", "fs.read"), answers("c")),
        request(user(), calls("c", "f" * 65), answers("c")),
        request(user(), tools=[FUNCTION | {"name": "fs.read"}]),
    ],
    "ids_are_unique": [
        request(user(), calls("c"), answers("c"), calls("c"), answers("d")),
    ],
    "item_ids_are_unique": [
        request(user(), says(n=1), user(), says(n=1)),
    ],
    "item_ids_fit_their_type": [
        request(user(), calls("c", id="call_1"), answers("c")),
        request(user(), says(id="rs_1")),
        request(user(), calls("c"), {**answers("c"), "id": "ctco_1"}),
        request(user(), {"type": "web_search_call", "id": "call_1", "status": "completed"}, user()),
        request(user(), says(id="msg 1")),
        request(user(), says(id="")),
    ],
    "nothing_is_empty": [
        request(user(None)),
        request(user([])),
    ],
    "parts_fit_their_role": [
        request(message_of("output_text")),
        request(message_of("text")),
        request(user(), message_of("input_text", "assistant")),
        request(user(), calls("c"), answers("c", [{"type": "output_text", "text": "x"}])),
    ],
    "markers_stand_on_parts": [
        request(user(**MARK)),
        request(user(), message_of("output_text", "assistant", **MARK)),
        request(user(), tools=[FUNCTION | MARK]),
        request(user(), calls("c") | MARK, answers("c")),
    ],
    "cache_options_are_known": [
        request(user(), prompt_cache_options={"mode": "eager"}),
        request(user(), prompt_cache_options={"ttl": "5m"}),
        request(user(), prompt_cache_retention="1h"),
    ],
}

TWO_PARTS = [{"type": "input_text", "text": "x"}, {"type": "output_text", "text": "x"}]
BROKEN = [
    *((rule, "", broken) for rule, requests in BREAKING.items() for broken in requests),
    ("parts_fit_their_role", "input[2].content[1]", request(user(), says(), user(TWO_PARTS))),
]

VALID_REQUESTS: list[Json] = [
    {"input": "Hello"},
    request(user(), calls("c"), user("Hurry."), answers("c"), user()),
    request(user(), thinks(1), calls("c"), thinks(2), calls("d"), answers("d"), answers("c")),
    request(user(), {"type": "reasoning", "summary": [], "content": None}, says()),
    request(answers("c"), previous_response_id="r"),
    request({"type": "item_reference", "id": "fc_1"}, answers("c")),
    request(user(), thinks(1), says(), store=False),
    request(user(), calls("c"), answers("c", "")),
    request(user(), {"type": "compaction_trigger"}),
    request(user(), message_of("input_text", "developer", **MARK)),
]
