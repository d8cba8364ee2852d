"""Adds up the usage that a client sees of an answer with recalls in it.

Its input is that of the last call, which read everything before it: a client that decides by it when to
compact its history must not see the sum. Its output is the sum over all calls, since the client pays for all
of it. The account of a gateway has every call by itself. Events and answers are dicts or objects of an SDK.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lamina.conversations.recall_answers import build_like
from lamina.dialects.anthropic.server import read_cleared
from lamina.dialects.json_values import read_field
from lamina.dialects.usage import Usage, find_usage
from lamina.fitting.recalls import plain_turn

Json = dict[str, Any]
Path = tuple[str, ...]

_SUMMED: tuple[Path, ...] = (
    ("output_tokens",),
    ("outputTokens",),
    ("output_tokens_details", "reasoning_tokens"),
    ("completion_tokens",),
    ("completion_tokens_details", "reasoning_tokens"),
    ("candidatesTokenCount",),
    ("thoughtsTokenCount",),
    ("eval_count",),
)
"""The fields that are summed, in the words of every API."""

_TOTALS: dict[str, tuple[Path, ...]] = {
    "total_tokens": (("output_tokens",), ("completion_tokens",)),
    "totalTokens": (("outputTokens",),),
    "totalTokenCount": (("candidatesTokenCount",), ("thoughtsTokenCount",)),
}
"""Fields that hold input and output together, each with the fields of its output."""

_HOLDERS = ("usage", "usageMetadata")

_REPORTING = (*_HOLDERS, "usage_metadata", "eval_count", "metadata", "message", "response")
"""Fields of the events that may report usage; others are not looked at any closer."""


def read_usage(answer: Any) -> Usage:
    """The tokens that an answer or an event reports, and what its server cleared before."""
    return msgspec.structs.replace(find_usage(answer), cleared=read_cleared(answer))


class UsageSum:
    """The usage of the answers to one request, in the words of their API."""

    def __init__(self) -> None:
        self._earlier: list[Json] = []
        self._opening: Json = {}
        self._current: Json = {}

    def read(self, event: Any) -> None:
        """Read an event, or a whole answer. A later report of the same call replaces an earlier one."""
        if not any(read_field(event, name) is not None for name in _REPORTING):
            return
        plain_event = plain_turn(event)
        message = read_field(plain_event, "message")
        if read_field(plain_event, "type") == "message_start" and isinstance(message, Mapping):
            self._opening = _read_object(message, "usage")
            self._current |= self._opening
            return
        _, usage = find_usage_object(plain_event)
        self._current |= usage

    def next_round(self) -> None:
        """The answer was a recall. Another one follows."""
        self._earlier.append(self._current)
        self._current = {}
        self._opening = {}

    def complete(self, event: Any) -> Any:
        """An event of the last answer as the client sees it; the same object if nothing was recalled.

        Anthropic reports the input when an answer begins. The client has seen the beginning of the first
        answer only, so the input of the last one comes with the end.
        """
        if not self._earlier:
            return event
        plain_event = plain_turn(event)
        path, usage = find_usage_object(plain_event)
        if not usage:
            return event
        if plain_event.get("type") == "message_delta":
            usage = {**self._opening, **usage}
        completed = _replace(plain_event, path, add_output(usage, self._earlier))
        if isinstance(event, dict):
            return completed
        return _rebuild(event, completed, path[:1] or ("eval_count",))


def _rebuild(event: Any, completed: Json, changed: Path) -> Any:
    """An object of an SDK with some of its fields as they are here. An SDK may name a field otherwise."""
    rebuilt = build_like(event, completed)
    fields: Json = {}
    for name, field in type(event).model_fields.items():
        if name in changed or field.alias in changed:
            fields[name] = getattr(rebuilt, name)
    return event.model_copy(update=fields)


def find_usage_object(event: Any) -> tuple[Path, Json]:
    """Where an event has its usage, and the usage. Ollama has it in the event itself."""
    if not isinstance(event, Mapping):
        return (), {}
    response = event.get("response")
    if isinstance(response, Mapping):
        return ("response", "usage"), _read_object(response, "usage")
    for name in _HOLDERS:
        if isinstance(event.get(name), Mapping):
            return (name,), dict(event[name])
    if "eval_count" in event:
        return (), dict(event)
    match event:
        case {"metadata": {"usage": Mapping() as usage}}:  # the last event of Bedrock
            return ("metadata", "usage"), dict(usage)
    return (), {}


def add_output(usage: Json, earlier: Sequence[Json]) -> Json:
    """A usage with what was written in earlier answers added to it."""
    summed = usage
    for path in _SUMMED:
        added = _sum_numbers(earlier, path)
        if added:
            summed = _replace(summed, path, _read_number(usage, path) + added)
    for total, paths in _TOTALS.items():
        if total not in usage:
            continue
        number = _read_number(usage, (total,))
        for path in paths:
            number += _sum_numbers(earlier, path)
        summed = {**summed, total: number}
    return summed


def _sum_numbers(usages: Sequence[Json], path: Path) -> int:
    return sum(_read_number(usage, path) for usage in usages)


def _read_object(holder: Mapping[str, Any], name: str) -> Json:
    value = holder.get(name)
    if not isinstance(value, Mapping):
        return {}
    return dict(value)


def _read_number(usage: Mapping[str, Any], path: Path) -> int:
    value: Any = usage
    for name in path:
        if not isinstance(value, Mapping):
            return 0
        value = value.get(name)
    if isinstance(value, int):
        return value
    return 0


def _replace(holder: Json, path: Path, value: Any) -> Json:
    """An object with another value at this path; with (), the value itself."""
    if not path:
        return dict(value)
    name, *inner_path = path
    if inner_path:
        value = _replace(_read_object(holder, name), tuple(inner_path), value)
    return {**holder, name: value}
