"""A catalogue of ways to lose a prefix cache, for requests of the Messages and Chat Completions APIs.

Each fault takes two requests of one session, the later one a continuation of the earlier, and damages them
as applications do; it says which causes may be named for it, and where. `harmless` has the changes that cost
nothing. Nothing here compares requests, or knows how `part` does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

import msgspec

from lamina.testing import damages as d
from lamina.testing import moves as m
from lamina.testing.damages import Json, Pair


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """`inject` gives the damaged pair, None where the session has nothing to damage in this way.

    `causes` are the right answers, `cached` that it takes the rules of a cache to see it; `dialects` are
    those in which it can happen.
    """

    name: str
    inject: Callable[[Pair, Random], Pair | None]
    causes: tuple[str, ...]
    cached: bool = False
    dialects: tuple[str, ...] = ("anthropic", "openai_chat")


def damaged(fault: Fault, before: Json, after: Json, rng: Random) -> Pair | None:
    """The fault in a copy of two requests, whose contents are lists of blocks."""
    return fault.inject(Pair(d.in_blocks(deepcopy(before)), d.in_blocks(deepcopy(after))), rng)


def _both(pair: Pair, one: str, other: str, put: Callable[[Json, str], str]) -> Pair:
    """The same text put into both requests, with a part that differs."""
    put(pair.before, one)
    return pair._replace(place=put(pair.after, other))


def _in_system(one: str, other: str) -> Callable[[Pair, Random], Pair | None]:
    def inject(pair: Pair, rng: Random) -> Pair | None:
        first = rng.random() < 0.5
        return _both(pair, one, other, lambda request, text: d.add_to_system(request, text, first=first))

    return inject


def _in_first_user(one: str, other: str) -> Callable[[Pair, Random], Pair | None]:
    return lambda pair, _: _both(pair, one, other, d.add_to_first_user)


def _in_tool(one: str, other: str) -> Callable[[Pair, Random], Pair | None]:
    def inject(pair: Pair, rng: Random) -> Pair | None:
        at = rng.randrange(len(d.definitions(pair.after)))
        return _both(pair, one, other, lambda request, text: d.add_to_tool(request, at, text))

    return inject


def _with(name: str, value: Any, was: Any = None) -> Callable[[Pair, Random], Pair | None]:
    """A parameter that one request has and the other has not, or has otherwise."""

    def inject(pair: Pair, _: Random) -> Pair | None:
        before = {**pair.before, name: was} if was is not None else pair.before
        return pair._replace(before=before, after={**pair.after, name: value})

    return inject


def _on(
    wanted: Callable[[Json, Json], bool], change: Callable[[Json, Random], None]
) -> Callable[[Pair, Random], Pair | None]:
    """A change of one block of the later request that was in the earlier one too."""

    def inject(pair: Pair, rng: Random) -> Pair | None:
        found = d.pick(pair.before, pair.after, rng, wanted)
        if found is None:
            return None
        place, block = found
        change(block, rng)
        return pair._replace(place=place)

    return inject


def _respelled(change: Callable[[str], str], start: str = "") -> Callable[[Pair, Random], Pair | None]:
    """A text with `start` before it in both, spelled otherwise in the later one."""

    def inject(pair: Pair, rng: Random) -> Pair | None:
        found = d.pick_pair(pair.before, pair.after, rng, d.is_text)
        if found is None:
            return None
        place, was, now = found
        was["text"] = start + was["text"]
        now["text"] = change(start + now["text"])
        return pair._replace(place=place) if was["text"] != now["text"] else None

    return inject


def _moved(change: Callable[[Pair, Random], int | None]) -> Callable[[Pair, Random], Pair | None]:
    """A change of the later request's list of messages; it gives the first message that differs."""

    def inject(pair: Pair, rng: Random) -> Pair | None:
        at = change(pair, rng)
        return None if at is None else pair._replace(place=f"messages[{at}]")

    return inject


def _marked(pair: Pair) -> Pair:
    for request in (pair.before, pair.after):
        m.mark(request)
    return pair


def _expired(pair: Pair, rng: Random) -> Pair:
    return _marked(pair)._replace(gap=rng.choice([90_000.0, 200_000.0]))


def _unmarked(pair: Pair, _: Random) -> Pair:
    m.mark(pair.before)
    m.unmark(pair.after)
    return pair


def _never_marked(pair: Pair, _: Random) -> Pair:
    m.unmark(pair.before)
    m.unmark(pair.after)
    return pair


def _too_far(pair: Pair, _: Random) -> Pair | None:
    """So many new blocks that the marker at the end does not reach back to the last entry."""
    for request in (pair.before, pair.after):
        m.unmark(request)
    place = m.mark_last(pair.before)
    more = [
        {"role": role, "content": [{"type": "text", "text": f"Note {number} of {role}."}]}
        for number in range(15)
        for role in ("assistant", "user")
    ]
    pair.after["messages"] = [*deepcopy(pair.before["messages"]), *more]
    m.unmark(pair.after)
    m.mark_last(pair.after)
    return pair._replace(place=place)


def _too_many(pair: Pair, _: Random) -> Pair | None:
    m.mark(pair.before)
    return pair if m.mark_first(pair.after, 6) else None


def _below(pair: Pair, _: Random) -> Pair:
    for request in (pair.before, pair.after):
        request.pop("tools", None)
        m.unmark(request)
        m.shorten(request)
        m.mark(request)
    return pair


_CHAT, _CLAUDE = ("openai_chat",), ("anthropic",)

_Inject = Callable[[Pair, Random], Pair | None]


def _f(
    name: str, inject: _Inject, *causes: str, cached: bool = False, on: tuple[str, ...] = (*_CLAUDE, *_CHAT)
) -> Fault:
    return Fault(name=name, inject=inject, causes=causes, cached=cached, dialects=on)


FAULTS: tuple[Fault, ...] = (
    _f("another model", d.other_model, "model changed"),
    # tools
    _f("tool described otherwise", d.describe, "tools changed"),
    _f("tool with another schema", d.schema, "tools changed"),
    _f("tool added", d.tool_added, "tool added"),
    _f("tool removed", d.tool_removed, "tool removed"),
    _f("tools in another order", d.tools_shuffled, "tools reordered"),
    _f("date in a tool", _in_tool("As of 2026-11-14.", "As of 2026-11-15."), "volatile text"),
    # system text
    _f("word of the system text", d.system_word, "system changed"),
    _f("more system text", d.system_more, "system changed"),
    _f("less system text", d.system_less, "system changed"),
    _f("system block added", d.system_block, "system changed"),
    _f("time", _in_system("Now: 2026-11-15T09:59:07Z", "Now: 2026-11-15T10:00:11Z"), "volatile text"),
    _f("clock", _in_system("It is 9:59 am.", "It is 10:00 am."), "volatile text"),
    _f(
        "date in words",
        _in_system("Today is Saturday, 14 November 2026.", "Today is Sunday, 15 November 2026."),
        "volatile text",
    ),
    _f("American date", _in_system("Date: November 14, 2026", "Date: December 1, 2026"), "volatile text"),
    _f(
        "UUID",
        _in_system("Run 3f0c1d52-9b1e-4c7a-8f63-0a2b9d7e1c44", "Run b7e0a911-27d3-4e0f-9a55-6d1f0c3b8e72"),
        "volatile text",
    ),
    _f("random id", _in_system("Session sess_9f31c07be2", "Session sess_41bb8d02fa"), "volatile text"),
    _f("seconds since 1970", _in_system("ts=1794700747", "ts=1794700811"), "volatile text"),
    _f(
        "counter",
        _in_system("This is turn 11 of the session.", "This is turn 12 of the session."),
        "volatile text",
    ),
    _f(
        "tokens left",
        _in_system("You have 81,204 tokens left.", "You have 79,933 tokens left."),
        "volatile text",
    ),
    _f("time in the first message", _in_first_user("[09:59] ", "[10:00] "), "volatile text"),
    _f("system text in another role", d.developer, "role changed", on=_CHAT),
    # spelling
    _f("space at the end", _respelled(lambda text: f"{text} \n"), "re-encoded"),
    _f("line ends", _respelled(lambda text: text.replace("\n", "\r\n"), "One.\nTwo.\n"), "re-encoded"),
    _f("Unicode form", _respelled(lambda text: text.replace("é", "e\u0301"), "Café. "), "re-encoded"),
    _f("byte order mark", _respelled(lambda text: f"\ufeff{text}"), "re-encoded"),
    _f(
        "arguments written with spaces",
        _on(d.is_chat_call, d.arguments_with(json.dumps, indent=1)),
        "re-encoded",
        on=_CHAT,
    ),
    _f("arguments in another order", _on(d.is_wide_call, d.arguments_reversed), "keys reordered", on=_CHAT),
    _f("input in another order", _on(d.is_wide_input, d.input_reversed), "keys reordered", on=_CLAUDE),
    _f("schema of a tool in another order", d.schema_reversed, "keys reordered"),
    _f("arguments escaped", d.escaped, "re-encoded", on=_CHAT),
    # history, changed in place
    _f("user text", _on(d.is_user_text, d.edit), "edited", "attachment changed"),
    _f("assistant text", _on(d.is_assistant_text, d.edit), "edited"),
    _f("result", _on(d.is_result, d.edit_result), "result changed"),
    _f("result cut short", _on(d.is_long_result, d.halve_result), "result changed"),
    _f("call", _on(d.is_call, d.edit_call), "call changed"),
    _f("new ids", m.new_ids, "ids changed"),
    _f("image encoded anew", _on(d.is_image, d.reencode), "image changed"),
    _f("document", _on(d.is_document, d.reencode), "attachment changed"),
    _f("attached file", d.attachment, "attachment changed"),
    _f("signature of thinking", _on(d.is_thinking, d.resign), "thinking changed", on=_CLAUDE),
    _f("thinking left out", m.thoughtless, "thinking dropped", on=_CLAUDE),
    _f("trimmed by lamina", _on(d.is_long_result, d.stub_result), "cut"),
    _f("folded by lamina", _moved(m.fold), "cut"),
    _f("summary", _moved(m.summarise), "summarised"),
    # history, moved
    _f("sliding window", _moved(m.slide), "truncated"),
    _f("sliding window after the first message", _moved(m.slide_after_first), "truncated"),
    _f("step removed", _moved(m.remove_step), "removed"),
    _f("message inserted", _moved(m.insert), "inserted"),
    _f("reminder taken back", _moved(m.reminder), "removed"),
    _f("messages swapped", _moved(m.swap), "reordered"),
    _f("message split", _moved(m.split), "regrouped", on=_CHAT),
    _f("rewound", _moved(m.rewind), "rewound"),
    _f("rewound and asked otherwise", _moved(m.branch), "rewound", "edited"),
    _f("user text as assistant", _moved(m.other_role), "role changed"),
    # keys
    _f("cache key", _with("prompt_cache_key", "two", "one"), "key changed", on=_CHAT),
    _f("salt", _with("cache_salt", "two", "one"), "tenant changed", on=_CHAT),
    # settings
    _f("tool choice", _with("tool_choice", {"type": "any"}), "tool choice changed", cached=True, on=_CLAUDE),
    _f(
        "parallel calls",
        _with("tool_choice", {"type": "auto", "disable_parallel_tool_use": True}),
        "parallel calls changed",
        cached=True,
        on=_CLAUDE,
    ),
    _f(
        "thinking budget",
        _with(
            "thinking", {"type": "enabled", "budget_tokens": 4000}, {"type": "enabled", "budget_tokens": 2000}
        ),
        "thinking setting changed",
        cached=True,
        on=_CLAUDE,
    ),
    _f("effort", _with("output_config", {"effort": "low"}), "effort changed", cached=True, on=_CLAUDE),
    _f(
        "format",
        _with("output_config", {"format": {"type": "json_schema", "schema": {"type": "object"}}}),
        "format changed",
        cached=True,
        on=_CLAUDE,
    ),
    _f("speed", _with("speed", "fast"), "speed changed", cached=True, on=_CLAUDE),
    _f("web search", d.web_search, "web search changed", on=_CLAUDE),
    _f("citations", m.cite, "citations changed", cached=True, on=_CLAUDE),
    _f("first image", m.first_image, "images setting changed", cached=True, on=_CLAUDE),
    _f("reasoning effort", _with("reasoning_effort", "high", "low"), "effort changed", cached=True, on=_CHAT),
    _f("verbosity", _with("verbosity", "low"), "verbosity changed", cached=True, on=_CHAT),
    _f(
        "response format",
        _with("response_format", {"type": "json_object"}),
        "format changed",
        cached=True,
        on=_CHAT,
    ),
    _f("service tier", _with("service_tier", "flex"), "tier changed", cached=True, on=_CHAT),
    # the cache itself
    _f("too late", _expired, "expired", cached=True),
    _f("markers left out", _unmarked, "breakpoint removed", cached=True, on=_CLAUDE),
    _f("no markers", _never_marked, "no breakpoint", cached=True, on=_CLAUDE),
    _f("marker too far away", _too_far, "out of look-back", cached=True, on=_CLAUDE),
    _f("too many markers", _too_many, "too many breakpoints", cached=True, on=_CLAUDE),
    _f("too short", _below, "below the minimum", cached=True),
)
"""The ways to lose a cache."""
