"""Changes to a request's list of messages and to its cache markers, for the catalogue of faults.

Messages move as applications move them: a window slides, steps go, summaries come. What is changed is the
later request of a pair; the number that comes back is the first message that differs, None where the session
has nothing to move in this way.
"""

from __future__ import annotations

import hashlib
from itertools import pairwise
from random import Random
from typing import Any

from lamina.testing.damages import Json, Pair, in_blocks, is_claude, spots

MARKERS = ("cache_control", "prompt_cache_breakpoint")


def _history(request: Json) -> int:
    """The first message that is not system text."""
    return next((i for i, m in enumerate(request["messages"]) if m["role"] not in ("system", "developer")), 0)


def _starts(request: Json, last: int) -> list[int]:
    """Messages before `last` with which a step begins: an assistant's, or a user's that is no result."""
    found = []
    for i, message in enumerate(request["messages"][:last]):
        blocks = message.get("content") or ()
        answers = message["role"] == "tool" or any(block.get("type") == "tool_result" for block in blocks)
        if message["role"] in ("user", "assistant") and not answers:
            found.append(i)
    return found


def _shared(pair: Pair) -> int:
    return len(pair.before["messages"])


def slide(pair: Pair, rng: Random) -> int | None:
    first = _history(pair.after)
    return _drop(pair, rng, first)


def slide_after_first(pair: Pair, rng: Random) -> int | None:
    return _drop(pair, rng, _history(pair.after) + 1)


def _drop(pair: Pair, rng: Random, first: int) -> int | None:
    ends = [at for at in _starts(pair.after, _shared(pair) - 4) if at >= first + 2]
    if not ends:
        return None
    end = rng.choice(ends)
    del pair.after["messages"][first:end]
    return first


def remove_step(pair: Pair, rng: Random) -> int | None:
    """One assistant message and its results, in the middle."""
    starts = _starts(pair.after, _shared(pair) - 1)
    messages = pair.after["messages"]
    steps = [
        (one, other)
        for one, other in pairwise(starts)
        if messages[one]["role"] == "assistant" and one > _history(pair.after) + 6
    ]
    if not steps:
        return None
    start, end = rng.choice(steps)
    del messages[start:end]
    return start


def insert(pair: Pair, rng: Random) -> int | None:
    at = rng.choice(_starts(pair.after, _shared(pair)) or [0])
    note = {"role": "user", "content": [{"type": "text", "text": "Remember: keep the tests green."}]}
    if pair.after["messages"][at]["role"] == "user":
        pair.after["messages"][at]["content"].insert(0, note["content"][0])
    else:
        pair.after["messages"].insert(at, note)
    return at


def reminder(pair: Pair, rng: Random) -> int | None:
    """A text that was added to the latest message, and is not there later."""
    del rng
    at = _shared(pair) - 1
    if not pair.before["messages"][at]["content"]:
        return None
    text = {"type": "text", "text": "<reminder>Answer in English.</reminder>"}
    pair.before["messages"][at]["content"].append(text)
    return at if len(pair.after["messages"]) > at + 1 else None


def swap(pair: Pair, rng: Random) -> int | None:
    """Two steps in the other order."""
    starts = _starts(pair.after, _shared(pair))
    messages = pair.after["messages"]
    triples = [
        (a, b, c)
        for a, b, c in zip(starts, starts[1:], starts[2:], strict=False)
        if messages[a]["role"] == messages[b]["role"] == "assistant"
    ]
    if not triples:
        return None
    a, b, c = rng.choice(triples)
    messages[a:c] = [*messages[b:c], *messages[a:b]]
    return a


def split(pair: Pair, rng: Random) -> int | None:
    """The parts of one message in two."""
    wide = [
        i
        for i, message in enumerate(pair.before["messages"])
        if message["role"] == "user" and len(message["content"]) > 1
    ]
    if not wide:
        return None
    at = rng.choice(wide)
    first, *rest = pair.after["messages"][at]["content"]
    pair.after["messages"][at : at + 1] = [
        {"role": "user", "content": [first]},
        {"role": "user", "content": rest},
    ]
    return at


def rewind(pair: Pair, rng: Random) -> int | None:
    starts = [at for at in _starts(pair.after, _shared(pair)) if at > _history(pair.after)]
    if not starts:
        return None
    at = rng.choice(starts)
    del pair.after["messages"][at:]
    return at


def branch(pair: Pair, rng: Random) -> int | None:
    at = rewind(pair, rng)
    if at is not None:
        asked = {"role": "user", "content": [{"type": "text", "text": "Let us try it another way."}]}
        pair.after["messages"].append(asked)
    return at


def other_role(pair: Pair, rng: Random) -> int | None:
    """A text of the user in the voice of the assistant."""
    found = [
        at
        for at in _starts(pair.after, _shared(pair))
        if pair.after["messages"][at]["role"] == "user" and at > _history(pair.after)
    ]
    if not found:
        return None
    at = rng.choice(found)
    pair.after["messages"][at]["role"] = "assistant"
    return at


def summarise(pair: Pair, rng: Random) -> int | None:
    return _replaced(pair, rng, "Summary of the conversation so far: files were read and tests were run.")


def fold(pair: Pair, rng: Random) -> int | None:
    return _replaced(pair, rng, '<digest covers="12">\nread_file src/order.py\n</digest>')


def _replaced(pair: Pair, rng: Random, text: str) -> int | None:
    """The oldest messages become one text."""
    first = _history(pair.after)
    ends = [at for at in _starts(pair.after, _shared(pair) - 4) if at >= first + 3]
    if not ends:
        return None
    end = rng.choice(ends)
    pair.after["messages"][first:end] = [{"role": "user", "content": [{"type": "text", "text": text}]}]
    return first


def new_ids(pair: Pair, rng: Random) -> Pair | None:
    """Every call and result with an id made anew."""
    salt, first = f"{rng.getrandbits(64):016x}", ""
    shared = {place for place, _ in spots(pair.before)}
    for place, block in spots(pair.after):
        for name in ("id", "tool_use_id"):
            if name in block:
                block[name] = _other(block[name], salt)
                first = first or (place if place in shared else "")
    for message in pair.after["messages"]:
        if "tool_call_id" in message:
            message["tool_call_id"] = _other(message["tool_call_id"], salt)
    return pair._replace(place=first) if first else None


def _other(id_: str, salt: str) -> str:
    return f"call_{hashlib.sha256((salt + id_).encode()).hexdigest()[:12]}"


def thoughtless(pair: Pair, rng: Random) -> Pair | None:
    del rng
    first = next((place for place, block in spots(pair.before) if block.get("type") == "thinking"), None)
    if first is None:
        return None
    for message in pair.after["messages"]:
        content = message.get("content") or []
        message["content"] = [block for block in content if block.get("type") != "thinking"]
    return pair._replace(place=first)


def cite(pair: Pair, rng: Random) -> Pair | None:
    del rng
    found = [block for place, block in spots(pair.after) if block.get("type") == "document"]
    if not found:
        return None
    found[0]["citations"] = {"enabled": True}
    return pair._replace(place="system" if pair.after.get("system") else "messages")


def first_image(pair: Pair, rng: Random) -> Pair | None:
    del rng
    for request in (pair.before, pair.after):
        for message in request["messages"]:
            content = message.get("content") or []
            message["content"] = [block for block in content if block.get("type") != "image"]
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    pair.after["messages"][-1]["content"].append({"type": "image", "source": source})
    return pair._replace(place="messages[") if len(pair.after["messages"]) > _shared(pair) else None


# markers


def unmark(request: Json) -> None:
    in_blocks(request)
    places: list[Json] = [request, *(request.get("tools") or ()), *(request.get("system") or ())]
    for block in (*places, *(block for _, block in spots(request))):
        for name in MARKERS:
            block.pop(name, None)


def mark(request: Json) -> None:
    """A marker at the end of the system text and on the latest message, as most applications do."""
    unmark(request)
    if request.get("system") and is_claude(request):
        request["system"][-1]["cache_control"] = {"type": "ephemeral"}
    mark_last(request)


def mark_last(request: Json) -> str:
    place, block = [spot for spot in spots(request) if _takes(spot[1])][-1]
    block[MARKERS[0] if is_claude(request) else MARKERS[1]] = _marker(request)
    return place


def mark_first(request: Json, count: int) -> bool:
    found = [block for _, block in spots(request) if _takes(block)][:count]
    for block in found:
        block[MARKERS[0]] = _marker(request)
    return len(found) == count


def _takes(block: Json) -> bool:
    return block.get("type") not in ("thinking", "redacted_thinking", "function", None)


def _marker(request: Json) -> dict[str, Any]:
    return {"type": "ephemeral"} if is_claude(request) else {"mode": "explicit"}


def shorten(request: Json) -> None:
    """So little that nothing of it is cached."""
    if is_claude(request):
        request["system"] = [{"type": "text", "text": "Be brief."}]
    request["messages"] = [{"role": "user", "content": [{"type": "text", "text": "Hello."}]}]
