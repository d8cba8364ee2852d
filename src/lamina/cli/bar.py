"""Draws a request as one line of characters, as many for each layer as it has tokens, and a legend for it."""

from __future__ import annotations

from collections.abc import Mapping

from lamina.core.envelope import Envelope
from lamina.core.values import Layer

SIGNS = {
    "tools": "#",
    "answer": "A",
    "system": "S",
    "library": "L",
    "history": "H",
    "turn": "T",
    "prompt": "P",
    "steps": "s",
    "framing": "~",
    "free": ".",
}
"""One for each layer; letters and marks, so that no colour is needed."""


def tokens_by_layer(envelope: Envelope) -> dict[str, int]:
    """Tokens by layer, with what stands around the messages, and what is free.

    An amount of 0 is left out, so that it takes no room in the bar.
    """
    account = envelope.account
    amounts = dict.fromkeys(SIGNS, 0)
    amounts["tools"] = account.tools
    amounts["answer"] = account.answer
    amounts["framing"] = account.parameters + account.request + account.margin
    for entry in envelope.entries:
        amounts[Layer(entry.layer).value] += entry.tokens
    amounts["free"] = max((envelope.room or 0) - envelope.tokens, 0)
    return {name: tokens for name, tokens in amounts.items() if tokens > 0}


def draw_bar(amounts: Mapping[str, int], *, width: int) -> str:
    """Characters in proportion to tokens; every amount shows, however small it is."""
    total = sum(amounts.values())
    if not total:
        return f"[{' ' * width}]"
    widths = _share_out_width(amounts, total, width)
    characters = "".join(SIGNS[name] * count for name, count in widths.items())
    return f"[{characters}]"


def _share_out_width(amounts: Mapping[str, int], total: int, width: int) -> dict[str, int]:
    """Whole characters for each amount, at least one; what is left goes to the largest remainders.

    Of 10 characters, amounts of 98, 1 and 1 get 8, 1 and 1: a small amount stays in sight.
    """
    widths = {name: max(tokens * width // total, 1) for name, tokens in amounts.items()}
    by_remainder = sorted(amounts, key=lambda name: (-(amounts[name] * width % total), name))
    characters_left = max(width - sum(widths.values()), 0)
    for name in by_remainder[:characters_left]:
        widths[name] += 1
    while sum(widths.values()) > width and max(widths.values()) > 1:
        widest = max(widths, key=lambda name: widths[name])
        widths[widest] -= 1
    return widths


def draw_legend(amounts: Mapping[str, int]) -> str:
    """What each sign of a bar stands for, with its tokens."""
    return ", ".join(f"{SIGNS[name]} {name} {tokens:,}" for name, tokens in amounts.items())
