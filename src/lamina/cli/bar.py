"""A request as one line of characters, so many for each layer as it has tokens; and what they stand for."""

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
"""One for each amount; letters and marks, so that no colour is needed."""


def amounts(envelope: Envelope) -> dict[str, int]:
    """Tokens by layer, with what stands around the messages, and what is free."""
    account = envelope.account
    found = dict.fromkeys(SIGNS, 0)
    found["tools"] = account.tools
    found["answer"] = account.answer
    found["framing"] = account.parameters + account.request + account.margin
    for entry in envelope.entries:
        found[Layer(entry.layer).value] += entry.tokens
    found["free"] = max((envelope.room or 0) - envelope.tokens, 0)
    return {name: tokens for name, tokens in found.items() if tokens > 0}


def bar(parts: Mapping[str, int], *, width: int) -> str:
    """Characters in proportion to tokens; what there is shows, however small it is."""
    total = sum(parts.values())
    if not total:
        return f"[{' ' * width}]"
    shares = {name: max(tokens * width // total, 1) for name, tokens in parts.items()}
    by_rest = sorted(parts, key=lambda name: (-(parts[name] * width % total), name))
    for name in by_rest[: max(width - sum(shares.values()), 0)]:
        shares[name] += 1
    while sum(shares.values()) > width and max(shares.values()) > 1:
        shares[max(shares, key=lambda name: shares[name])] -= 1
    return f"[{''.join(SIGNS[name] * count for name, count in shares.items())}]"


def legend(parts: Mapping[str, int]) -> str:
    return ", ".join(f"{SIGNS[name]} {name} {tokens:,}" for name, tokens in parts.items())
