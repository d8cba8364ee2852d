"""Answers that lamina writes in the place of the model: one text, in the words of Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lamina.dialects.json_values import list_or_empty


def write_answer(answer: Mapping[str, Any], text: str) -> dict[str, Any]:
    """A whole answer whose first choice says this text and nothing else."""
    first, *others = list_or_empty(answer.get("choices")) or [{"index": 0}]
    message = {"role": "assistant", **(first.get("message") or {}), "content": text}
    return {**answer, "choices": [{**first, "message": message}, *others]}


def write_closing_events(closing: Sequence[Mapping[str, Any]], text: str, _: int) -> list[dict[str, Any]]:
    """The chunks that end a stream, after one more, which says this text."""
    fields = {name: value for name, value in closing[0].items() if name != "usage"}
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return [{**fields, "choices": [choice]}, *map(dict, closing)]
