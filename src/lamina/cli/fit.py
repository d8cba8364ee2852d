"""`lamina fit`: a request goes in, one that fits comes out, in the same dialect or another."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from lamina.cli.files import read_ledger, read_request, write_ledger
from lamina.cli.output import emit, progress, tell
from lamina.cli.parser import add_dialect, add_file, add_json, add_tool_rules, window_size
from lamina.core.entries import find_logged
from lamina.core.envelope import Envelope
from lamina.core.explanation import describe_cut, explain
from lamina.core.values import Form
from lamina.dialects import DIALECTS
from lamina.errors import BadInput
from lamina.fitting.policy import load_policy
from lamina.fitting.request import Fitted, fit_request, translate

_EXAMPLES = """\
The fitted request goes to standard output, the account to standard error. With --ledger every
request of a conversation continues the last one: the file is read if it is there, and replaced.

examples:
  lamina fit request.json > fitted.json
  lamina fit request.json --window 32000 --ledger ledger.json > fitted.json
  lamina fit request.json --to gemini --model gemini-3-pro > gemini.json

exit status: 0 fitted, 2 input that cannot be used, 3 no request that small is possible
"""


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "lamina fit FILE [--window N] [--tool NAME=RULE] [--ledger FILE] [--dialect NAME] [--to NAME]\n"
        "           [--model NAME] [--json]"
    )
    parser.epilog = _EXAMPLES
    add_file(parser)
    add_request_options(parser)
    parser.add_argument("--to", metavar="NAME", help="the dialect to write, if it differs")
    parser.add_argument("--model", metavar="NAME", default="", help="the model to use, if it differs")
    add_json(parser, "request, ledger and manifest")


def run(arguments: argparse.Namespace) -> int:
    """Print the request, fitted.

    What was done to it goes to the other stream, so that a pipe gets only JSON.
    """
    fitted = fit_from_arguments(arguments)
    if arguments.ledger is not None:
        write_ledger(arguments.ledger, fitted.ledger)
    if arguments.json:
        result = {
            "request": fitted.request,
            "ledger": fitted.ledger.dump(),
            "left": list(fitted.left),
            "manifest": manifest_json(fitted.envelope),
        }
        emit(result)
        return 0
    for line in fit_summary(fitted.envelope):
        tell(line)
    if fitted.left:
        tell(f"without {', '.join(fitted.left)}: {arguments.to} has no words for that")
    emit(fitted.request)
    return 0


def add_request_options(parser: argparse.ArgumentParser) -> None:
    """The options that decide how a request is fitted."""
    parser.set_defaults(to=None, model="")
    parser.add_argument(
        "--window",
        metavar="N",
        type=window_size,
        help="the context window in tokens; by default, the model's",
    )
    parser.add_argument(
        "--ledger", metavar="FILE", help="what was shortened or left out before in this conversation"
    )
    add_tool_rules(parser)
    add_dialect(parser, " or ".join(DIALECTS))


def fit_from_arguments(arguments: argparse.Namespace) -> Fitted:
    """The request that the arguments name, fitted; nothing is written."""
    request = read_request(arguments.file)
    ledger = read_ledger(arguments.ledger)
    try:
        policy = load_policy({"budget": arguments.window, "tools": dict(arguments.tools or ())})
        with progress(f"fitting {arguments.file}"):
            if arguments.to is not None:
                return translate(
                    request,
                    to=arguments.to,
                    model=arguments.model,
                    dialect=arguments.dialect,
                    ledger=ledger,
                    policy=policy,
                )
            if arguments.model:
                request = {**request, "model": arguments.model}
            return fit_request(request, dialect=arguments.dialect, ledger=ledger, policy=policy)
    except BadInput as error:
        if error.place != "model":
            raise
        raise BadInput(error.problem, place="model", hint="give its context window: --window N") from None


def manifest_json(envelope: Envelope) -> dict[str, Any]:
    """The account as plain values."""
    explanation = explain(envelope)
    fields: dict[str, Any] = msgspec.to_builtins(explanation)
    return {"layers": {layer.value: tokens for layer, tokens in explanation.layers.items()}} | fields


def fit_summary(envelope: Envelope) -> list[str]:
    """What was done, in a line or two.

    The first line has the size and how many segments are in full. A cut and remarks stand below it.
    """
    entries = find_logged(envelope.entries)
    in_full = sum(entry.form is Form.FULL for entry in entries)
    tokens = f"{envelope.tokens:,}"
    if envelope.room is not None:
        tokens += f" of {envelope.room:,}"
    first_line = f"{tokens} tokens ({envelope.account.basis}), {in_full:,} of {len(entries):,} pieces in full"
    lines = [first_line, describe_cut(envelope.cut), *envelope.notes]
    return [line for line in lines if line]
