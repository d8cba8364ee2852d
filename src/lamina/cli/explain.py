"""`lamina explain`: every segment of a request with layer, form, tokens and reason; a bar of the layers."""

from __future__ import annotations

import argparse

from lamina.cli.bar import amounts, bar, legend
from lamina.cli.fit import add_request_options, fitted_from, manifest
from lamina.cli.output import emit
from lamina.cli.parser import add_file, add_json
from lamina.core.explain import explain
from lamina.report import table

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
    parser.usage = "lamina explain FILE [--window N] [--reserve N] [--ledger FILE] [--dialect NAME] [--json]"
    parser.epilog = _EXAMPLES
    add_file(parser)
    add_request_options(parser)
    add_json(parser, "the manifest")


def run(arguments: argparse.Namespace) -> int:
    envelope = fitted_from(arguments).envelope
    if arguments.json:
        emit(manifest(envelope))
        return 0
    parts = amounts(envelope)
    print(f"{table(explain(envelope))}\n\n{bar(parts, width=WIDTH)}\n{legend(parts)}")
    return 0
