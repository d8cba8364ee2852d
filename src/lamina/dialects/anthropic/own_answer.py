"""Answers that lamina writes in the place of the model: one text, in the words of the Messages API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def write_answer(answer: Mapping[str, Any], text: str) -> dict[str, Any]:
    """A whole answer that says this text and nothing else."""
    return {**answer, "content": [_write_block(text)]}


def write_closing_events(closing: Sequence[Mapping[str, Any]], text: str, index: int) -> list[dict[str, Any]]:
    """The events that end a stream, after those of one more block, which says this text."""
    return [
        {"type": "content_block_start", "index": index, "content_block": _write_block("")},
        {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": index},
        *map(dict, closing),
    ]


def _write_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
