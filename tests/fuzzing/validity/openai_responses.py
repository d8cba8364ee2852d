"""The rules of the Responses API, for requests that continue nothing on the server.

A request that refers to items which the server keeps (`item_reference`) is judged by what it shows. R7 and R8
are about parameters that no client here sends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.fuzzing.validity.breach import Breach, Json, repeated

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_OF_MODEL = ("function_call", "reasoning")


def breaches(request: Json, came: Json) -> Iterator[Breach]:
    items = _items(request)
    if not items:
        yield Breach("R0", "input", "empty")
    yield from _outputs_have_calls(items)
    yield from _calls_have_outputs(items)
    yield from _reasoning(items, _items(came))
    yield from _kept(request, items, _items(came))
    yield from _names(request, items)


def _items(request: Json) -> list[Json]:
    given = request["input"]
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given)


def _sort(item: Json) -> str:
    return str(item.get("type", "message"))


def _by_model(item: Json) -> bool:
    return _sort(item) in _OF_MODEL or (_sort(item) == "message" and item["role"] == "assistant")


def _outputs_have_calls(items: list[Json]) -> Iterator[Breach]:
    """R1: an output answers a call that stands before it, once."""
    waiting: list[str] = []
    for i, item in enumerate(items):
        if _sort(item) == "function_call":
            waiting.append(item["call_id"])
        elif _sort(item) == "function_call_output":
            if item["call_id"] in waiting:
                waiting.remove(item["call_id"])
            else:
                yield Breach("R1", f"input[{i}]", f"no call waits for output {item['call_id']!r}")
    ids = [item["call_id"] for item in items if _sort(item) == "function_call"]
    for id_ in repeated(ids):
        yield Breach("R1", "input", f"two calls have the id {id_!r}")


def _calls_have_outputs(items: list[Json]) -> Iterator[Breach]:
    """R2: a call is answered before the model's next turn, and before the end."""
    waiting: list[str] = []
    turn_is_the_models = False
    for i, item in enumerate(items):
        if _by_model(item) and not turn_is_the_models:
            for id_ in waiting:
                yield Breach("R2", f"input[{i}]", f"the model goes on and {id_!r} has no output")
            waiting = []
        if _by_model(item):
            turn_is_the_models = True
        elif _sort(item) in ("message", "function_call_output"):
            turn_is_the_models = False
        if _sort(item) == "function_call":
            waiting.append(item["call_id"])
        elif _sort(item) == "function_call_output" and item["call_id"] in waiting:
            waiting.remove(item["call_id"])
    for id_ in waiting:
        yield Breach("R2", "input", f"no output for {id_!r}")


def _reasoning(items: list[Json], came: list[Json]) -> Iterator[Breach]:
    """R3: reasoning is followed by the item that it led to, and that item keeps its reasoning.

    R4: where nothing is stored, reasoning carries its encrypted content.
    """
    led_to = dict(_led(came))
    for i, item in enumerate(items):
        if _sort(item) != "reasoning":
            continue
        if not item.get("encrypted_content"):
            yield Breach("R4", f"input[{i}]", "reasoning without encrypted_content")
        after = next((later for later in items[i + 1 :] if _sort(later) != "reasoning"), None)
        if after is None or not _by_model(after):
            yield Breach("R3", f"input[{i}]", "reasoning without the item that it led to")
    here = dict(_led(items))
    for i, item in enumerate(items):
        id_ = item.get("id")
        if id_ in led_to and item in came and here.get(id_) != led_to[id_]:
            yield Breach("R3", f"input[{i}]", f"{id_!r} without the reasoning that led to it")


def _led(items: list[Json]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Ids of items of the model, with the ids of the reasoning right before them."""
    before: list[str] = []
    for item in items:
        if _sort(item) == "reasoning":
            before.append(item["id"])
            continue
        if before and _by_model(item) and item.get("id"):
            yield item["id"], tuple(before)
        before = []


def _kept(request: Json, items: list[Json], came: list[Json]) -> Iterator[Breach]:
    """R5: phases stay. R6: a compaction trigger is last. R9: a compaction goes back as it came."""
    del request
    phases = {item["id"]: item["phase"] for item in came if item.get("id") and item.get("phase")}
    for i, item in enumerate(items):
        if item.get("id") in phases and item.get("phase") != phases[item["id"]]:
            yield Breach("R5", f"input[{i}]", "the phase of a message is not what it was")
        if _sort(item) == "compaction_trigger" and i < len(items) - 1:
            yield Breach("R6", f"input[{i}]", "items stand after the trigger of a compaction")
        if _sort(item) == "compaction" and item not in came:
            yield Breach("R9", f"input[{i}]", "a compaction that the client did not send")
    for item in came:
        if _sort(item) == "compaction" and item not in items:
            yield Breach("R9", "input", "the client's compaction is gone")


def _names(request: Json, items: list[Json]) -> Iterator[Breach]:
    named = [*(request.get("tools") or ()), *(i for i in items if _sort(i) == "function_call")]
    for one in named:
        if one.get("type") in ("function", "function_call") and not _NAME.fullmatch(one["name"]):
            yield Breach("C4", "tools", f"name {one['name']!r}")
