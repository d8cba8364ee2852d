"""`lamina explain`: every segment of a request with layer, form, tokens and reason; the layers; the price."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from lamina.cli.fit import add_request_options, fit_from_arguments, manifest_json
from lamina.cli.output import emit, show
from lamina.cli.parser import add_file, add_json
from lamina.core.envelope import Envelope
from lamina.core.explanation import explain
from lamina.core.values import Layer
from lamina.dialects.json_values import find_model
from lamina.errors import BadInput
from lamina.models.facts import AS_OF, model, price_of

WIDTH = 80

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

_EXAMPLES = """\
Shows what `lamina fit` would do; nothing is written.

examples:
  lamina explain request.json
  lamina explain request.json --window 32000 --ledger chat.ledger.json
  lamina explain request.json --json | jq '.layers'

exit status: 0 explained, 2 input that cannot be used, 3 no request that small is possible
"""


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "lamina explain FILE [--window N] [--tool NAME=RULE] [--ledger FILE] [--dialect NAME] [--json]"
    )
    parser.epilog = _EXAMPLES
    add_file(parser)
    add_request_options(parser)
    add_json(parser, "the manifest")


def run(arguments: argparse.Namespace) -> int:
    """Print each segment with its form and reason, a bar of the window, and what the input costs."""
    fitted = fit_from_arguments(arguments)
    envelope = fitted.envelope
    name = find_model(fitted.request)
    if arguments.json:
        emit(manifest_json(envelope) | {"price": input_price(name, envelope.tokens)})
        return 0
    parts = tokens_by_layer(envelope)
    show(*str(explain(envelope)).split("\n"), "", draw_bar(parts, width=WIDTH), draw_legend(parts))
    cost = input_price(name, envelope.tokens)
    if cost:
        show(f"input: ${cost['uncached']:.4f} uncached, ${cost['read']:.4f} from the cache ({cost['as_of']})")
    return 0


def input_price(name: str, tokens: int) -> dict[str, Any] | None:
    """What so much input costs before it is sent, with nothing and with all of it cached; None if unknown."""
    try:
        prices = price_of(model(name), tokens=tokens)
    except BadInput:
        return None
    if prices.input is None:
        return None
    read_price = prices.read
    if read_price is None:
        read_price = prices.input
    millions = tokens / 1_000_000
    return {"uncached": millions * prices.input, "read": millions * read_price, "as_of": AS_OF}


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
    """Characters in proportion to tokens; every amount above 0 shows, however small it is."""
    shown_amounts = {name: tokens for name, tokens in amounts.items() if tokens}
    total = sum(shown_amounts.values())
    if not total:
        return f"[{' ' * width}]"
    widths = _share_out_width(shown_amounts, total, width)
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
