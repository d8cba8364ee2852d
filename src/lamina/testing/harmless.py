"""Changes of a request that no prefix cache sees, for the tests of whoever says why one missed.

Each takes two requests of one session, the later one a continuation of the earlier, and changes the later
one. Whoever reports a loss for it raises a false alarm.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

import msgspec

from lamina.caches.stream import OWN_JSON
from lamina.testing import moves as m
from lamina.testing.damages import Json, Pair, in_blocks, is_claude, spots


class Harmless(msgspec.Struct, frozen=True, kw_only=True):
    """`cached`: it is harmless under the rules of a cache too, not only in what is sent."""

    name: str
    change: Callable[[Pair, Random], None]
    dialects: tuple[str, ...] = ("anthropic", "openai_chat")
    cached: bool = True


def changed(harmless: Harmless, before: Json, after: Json, rng: Random) -> Pair:
    """The change in a copy of two requests."""
    pair = Pair(deepcopy(before), deepcopy(after))
    harmless.change(pair, rng)
    return pair


def _set(**fields: Any) -> Callable[[Pair, Random], None]:
    return lambda pair, _: pair.after.update(fields)


def _nothing(pair: Pair, _: Random) -> None:
    pair.after.clear()
    pair.after.update(deepcopy(pair.before))


def _appended(pair: Pair, _: Random) -> None:
    pair.after["messages"] += [
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "Thank you. What is next?"},
    ]


def _blocks(pair: Pair, _: Random) -> None:
    in_blocks(pair.after)


def _keys(pair: Pair, _: Random) -> None:
    turned = _turned(pair.after)
    pair.after.clear()
    pair.after.update(turned)


def _turned(value: Any) -> Any:
    """Every object of the API with its keys in the other order; JSON of the application stays as it is."""
    if isinstance(value, list):
        return [_turned(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return {name: inner if name in OWN_JSON else _turned(inner) for name, inner in reversed(value.items())}


def _markers_moved(pair: Pair, rng: Random) -> None:
    """The marker of the earlier request goes, one more comes nearby."""
    m.mark(in_blocks(pair.before))
    m.mark(in_blocks(pair.after))
    marker = "cache_control" if is_claude(pair.after) else "prompt_cache_breakpoint"
    value = {"type": "ephemeral"} if is_claude(pair.after) else {"mode": "explicit"}
    shared = len(pair.before["messages"])
    text = [b for place, b in spots(pair.after) if b.get("type") == "text" and int(_number(place)) < shared]
    rng.choice(text[-3:])[marker] = value


def _number(place: str) -> str:
    return place[len("messages[") : place.index("]")]


def _markers_gone(pair: Pair, _: Random) -> None:
    m.mark(in_blocks(pair.before))
    m.unmark(in_blocks(pair.after))


def _longer_lifetime(pair: Pair, _: Random) -> None:
    m.mark(in_blocks(pair.before))
    m.mark(in_blocks(pair.after))
    for _place, block in spots(pair.after):
        if "cache_control" in block:
            block["cache_control"] = {"type": "ephemeral", "ttl": "5m"}


def _nulls(pair: Pair, _: Random) -> None:
    """Fields that an SDK writes out although they are empty."""
    for message in pair.after["messages"]:
        if not is_claude(pair.after) and message["role"] == "assistant":
            message |= {"refusal": None, "audio": None, "annotations": [], "function_call": None}
    for _place, block in spots(in_blocks(pair.after)):
        if block.get("type") == "text" and is_claude(pair.after) and "cache_control" not in block:
            block |= {"citations": None, "cache_control": None}


def _split(pair: Pair, _: Random) -> None:
    """A message in two of one role, which the API reads as one."""
    for i, message in enumerate(in_blocks(pair.after)["messages"]):
        if len(message["content"]) > 1:
            first, *rest = message["content"]
            role = message["role"]
            both = [{"role": role, "content": [first]}, {"role": role, "content": rest}]
            pair.after["messages"][i : i + 1] = both
            return


def _results(pair: Pair, _: Random) -> None:
    for _place, block in spots(in_blocks(pair.after)):
        if block.get("type") == "tool_result":
            content = block.get("content")
            if isinstance(content, str) and content:
                block["content"] = [{"type": "text", "text": content}]
            block.setdefault("is_error", False)


def _tool_defaults(pair: Pair, _: Random) -> None:
    for tool in pair.after.get("tools") or ():
        if "function" in tool:
            tool["function"]["strict"] = False
        else:
            tool |= {"type": "custom", "cache_control": None}


def _call_index(pair: Pair, _: Random) -> None:
    for message in pair.after["messages"]:
        for i, call in enumerate(message.get("tool_calls") or ()):
            call["index"] = i


def _tuples(pair: Pair, _: Random) -> None:
    pair.after["messages"] = tuple(pair.after["messages"])


def _detail(pair: Pair, _: Random) -> None:
    for _place, block in spots(in_blocks(pair.after)):
        if block.get("type") == "image_url":
            block["image_url"] = {**block["image_url"], "detail": "auto"}


_CHAT, _CLAUDE = ("openai_chat",), ("anthropic",)


_BOTH = (*_CLAUDE, *_CHAT)


def _h(
    name: str, change: Callable[[Pair, Random], None], *, on: tuple[str, ...] = _BOTH, cached: bool = True
) -> Harmless:
    return Harmless(name=name, change=change, dialects=on, cached=cached)


HARMLESS: tuple[Harmless, ...] = (
    _h("the same request again", _nothing),
    _h("one more turn", _appended),
    _h("strings as blocks", _blocks),
    _h("order of the fields of the API", _keys),
    _h("markers moved", _markers_moved),
    _h("markers gone", _markers_gone, cached=False),
    _h("the default lifetime said", _longer_lifetime, on=_CLAUDE),
    _h("a marker for the whole request", _set(cache_control={"type": "ephemeral"}), on=_CLAUDE),
    _h("max_tokens", _set(max_tokens=77)),
    _h("max_completion_tokens", _set(max_completion_tokens=77), on=_CHAT),
    _h("temperature", _set(temperature=0.3)),
    _h("top_p", _set(top_p=0.9)),
    _h("top_k", _set(top_k=40), on=_CLAUDE),
    _h("metadata", _set(metadata={"user_id": "u-77"})),
    _h("stream", _set(stream=True)),
    _h("stream options", _set(stream=True, stream_options={"include_usage": True}), on=_CHAT),
    _h("user", _set(user="u-77"), on=_CHAT),
    _h("safety identifier", _set(safety_identifier="u-77"), on=_CHAT),
    _h("stop sequences", _set(stop_sequences=["END"]), on=_CLAUDE),
    _h("stop", _set(stop=["END"]), on=_CHAT),
    _h("seed", _set(seed=7), on=_CHAT),
    _h("number of answers", _set(n=1, logprobs=False), on=_CHAT),
    _h("store", _set(store=False), on=_CHAT),
    _h("retention", _set(prompt_cache_retention="24h"), on=_CHAT),
    _h("diagnostics", _set(diagnostics={"previous_message_id": None}), on=_CLAUDE),
    _h("tool choice by default", _set(tool_choice={"type": "auto"}), on=_CLAUDE),
    _h("tool choice auto", _set(tool_choice="auto", parallel_tool_calls=True), on=_CHAT),
    _h("effort by default", _set(output_config={"effort": "high"}), on=_CLAUDE),
    _h("speed by default", _set(speed="standard", service_tier="auto"), on=_CLAUDE),
    _h("text format", _set(response_format={"type": "text"}, verbosity="medium"), on=_CHAT),
    _h("tier by default", _set(service_tier="auto"), on=_CHAT),
    _h("nulls", _nulls),
    _h("a message in two", _split, on=_CLAUDE),
    _h("results in blocks", _results, on=_CLAUDE),
    _h("defaults of tools", _tool_defaults),
    _h("index of calls", _call_index, on=_CHAT),
    _h("detail of images", _detail, on=_CHAT),
    _h("tuples", _tuples),
)
"""The changes that cost nothing."""
