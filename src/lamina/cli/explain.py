"""`lamina explain`: every segment of a request with layer, form, tokens and reason; the layers; the price."""

from __future__ import annotations

import argparse
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

BAR_WIDTH = 30
_PARTS = ("tools", "answer", *(layer.value for layer in Layer), "framing", "free")
"""What fills a window, in the order of a request."""

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
    """Print each segment with its form and reason, a bar for each layer, and what the input costs."""
    fitted = fit_from_arguments(arguments)
    envelope = fitted.envelope
    name = find_model(fitted.request)
    if arguments.json:
        emit(manifest_json(envelope) | {"price": input_price(name, envelope.tokens)})
        return 0
    show(*str(explain(envelope)).split("\n"), "", *layer_lines(envelope))
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


def layer_lines(envelope: Envelope) -> list[str]:
    """A bar for each layer that has tokens, with its share of the window."""
    amounts = _count_by_layer(envelope)
    total = sum(amounts.values()) or 1
    lines = []
    for name, tokens in amounts.items():
        filled = max(tokens * BAR_WIDTH // total, 1)
        bar = "█" * filled + "·" * (BAR_WIDTH - filled)
        lines.append(f"{name:<8} {bar} {tokens:>9,}  {tokens / total:>4.0%}")
    return lines


def _count_by_layer(envelope: Envelope) -> dict[str, int]:
    """Tokens by layer, with what stands around the messages, and what is free. An amount of 0 is left out."""
    account = envelope.account
    amounts = dict.fromkeys(_PARTS, 0)
    amounts["tools"] = account.tools
    amounts["answer"] = account.answer
    amounts["framing"] = account.parameters + account.request + account.margin
    for entry in envelope.entries:
        amounts[Layer(entry.layer).value] += entry.tokens
    amounts["free"] = max((envelope.room or 0) - envelope.tokens, 0)
    return {name: tokens for name, tokens in amounts.items() if tokens > 0}
