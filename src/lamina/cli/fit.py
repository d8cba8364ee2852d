"""`lamina fit`: a request goes in, one that fits comes out, in the same dialect or another.

With --explain it prints what would be done, with --check which rules of its API the request breaks.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import msgspec

from lamina.cli.files import find_request_dialect, read_ledger, read_request, write_ledger
from lamina.cli.output import emit, progress, show, tell
from lamina.cli.parser import add_dialect, add_file, add_json, add_tool_rules, window_size
from lamina.core.entries import find_logged
from lamina.core.envelope import Envelope
from lamina.core.explanation import describe_cut, explain
from lamina.core.values import Form, Layer
from lamina.dialects import DIALECTS
from lamina.dialects.json_values import find_model
from lamina.dialects.port import Violation
from lamina.errors import BadInput
from lamina.fitting.policy import load_policy
from lamina.fitting.request import Fitted, fit_request, translate
from lamina.models.facts import AS_OF, model, price_of

BAR_WIDTH = 30
_PARTS = ("tools", "answer", *(layer.value for layer in Layer), "framing", "free")
"""What fills a window, in the order of a request."""

_EXAMPLES = """\
The fitted request goes to standard output, the account to standard error. With --ledger every
request of a conversation continues the last one: the file is read if it is there, and replaced. With
--explain nothing is written: it prints each part, with its form, its tokens and why, and a bar for each
layer. With --check it prints one line for each rule of its API that the request breaks.

examples:
  lamina fit request.json > fitted.json
  lamina fit request.json --window 32000 --ledger ledger.json > fitted.json
  lamina fit request.json --to gemini --model gemini-3-pro > gemini.json
  lamina fit request.json --explain --window 32000
  lamina fit request.json | lamina fit - --check

exit status: 0 done, 1 --check found something, 2 input that cannot be used, 3 no request that small is
possible
"""


def describe(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    add_file(parser)
    add_request_options(parser)
    parser.add_argument("--to", metavar="NAME", help="the dialect to write, if it differs")
    parser.add_argument("--model", metavar="NAME", default="", help="the model to use, if it differs")
    show_only = parser.add_mutually_exclusive_group()
    show_only.add_argument(
        "--explain", action="store_true", help="print each part and why it is sent as it is, and no request"
    )
    show_only.add_argument(
        "--check", action="store_true", help="print which rules of its API the request breaks, as it is"
    )
    add_json(parser, "request, ledger and manifest; or what --explain or --check found")


def run(arguments: argparse.Namespace) -> int:
    """Print the request, fitted.

    What was done to it goes to the other stream, so that a pipe gets only JSON.
    """
    if arguments.check:
        return check_request(arguments)
    fitted = fit_from_arguments(arguments)
    if arguments.explain:
        return explain_fit(fitted, as_json=arguments.json)
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


def check_request(arguments: argparse.Namespace) -> int:
    """Print which rules a request breaks. The exit code is 1 if it breaks any."""
    request = read_request(arguments.file)
    dialect = find_request_dialect(request, arguments.dialect)
    violations = dialect.wire.check(request)
    if arguments.json:
        emit({"dialect": dialect.name, "violations": msgspec.to_builtins(violations)})
    elif violations:
        show(*_violation_lines(violations))
    else:
        tell(f"no rule of {dialect.name} is broken")
    return int(bool(violations))


def _violation_lines(violations: Sequence[Violation]) -> list[str]:
    """A table of the rules that are broken, with the place of each. A message stands on one line."""
    rule_width = max(len(violation.rule) for violation in violations)
    place_width = max(len(violation.place) for violation in violations)
    lines = []
    for violation in violations:
        message = " ".join(violation.message.split())
        lines.append(f"{violation.rule:<{rule_width}}  {violation.place:<{place_width}}  {message}")
    return lines


def explain_fit(fitted: Fitted, *, as_json: bool) -> int:
    """Print each segment with its form and reason, a bar for each layer, and what the input costs."""
    envelope = fitted.envelope
    name = find_model(fitted.request)
    if as_json:
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
