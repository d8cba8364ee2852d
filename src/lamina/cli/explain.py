"""`lamina explain`: every segment of a request with layer, form, tokens and reason; the layers; the price."""

from __future__ import annotations

import argparse
from typing import Any

from lamina.cli.fit import add_request_options, fit_from_arguments, manifest_json
from lamina.cli.output import draw_bar, draw_legend, emit, show, tokens_by_layer
from lamina.cli.parser import add_file, add_json
from lamina.core.explanation import explain
from lamina.dialects.model_names import find_model
from lamina.errors import BadInput
from lamina.models.facts import AS_OF, model, price_of

WIDTH = 80

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
    uncached = prices.cost(uncached=tokens)
    if uncached is None:
        return None
    return {"uncached": uncached, "read": prices.cost(read=tokens), "as_of": AS_OF}
