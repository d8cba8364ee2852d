"""Answers that lamina writes in the place of the model: one text, in the words of Ollama's API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def write_answer(answer: Mapping[str, Any], text: str) -> dict[str, Any]:
    """A whole answer, or a chunk of one, that says this text and nothing else."""
    message = {"role": "assistant", **(answer.get("message") or {}), "content": text}
    return {**answer, "message": message}


def write_closing_events(closing: Sequence[Mapping[str, Any]], text: str, _: int) -> list[dict[str, Any]]:
    """The chunks that end a stream. The last of them says this text."""
    return [*map(dict, closing[:-1]), write_answer(closing[-1], text)]
