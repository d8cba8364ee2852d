"""Answers that lamina writes in the place of the model: one text, in the words of Gemini's API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lamina.dialects.json_values import list_or_empty


def write_answer(answer: Mapping[str, Any], text: str) -> dict[str, Any]:
    """A whole answer, or a chunk of one, whose first candidate says this text and nothing else."""
    first, *others = list_or_empty(answer.get("candidates")) or [{"index": 0}]
    content = {"role": "model", **(first.get("content") or {}), "parts": [{"text": text}]}
    return {**answer, "candidates": [{**first, "content": content}, *others]}


def write_closing_events(closing: Sequence[Mapping[str, Any]], text: str, _: int) -> list[dict[str, Any]]:
    """The chunks that end a stream. The last of them says this text."""
    return [*map(dict, closing[:-1]), write_answer(closing[-1], text)]
