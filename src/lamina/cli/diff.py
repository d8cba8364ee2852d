"""`lamina diff`: where and why the second of two requests stops being a continuation of the first.

A prefix cache stops there too, so the tokens that are lost are those that are read and paid anew. With the
rules of a cache it also says what that cache would do: markers, lifetimes, minimum, settings, and the price.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec

from lamina.caches import CacheRules, all_rules, load_rules, rules_for
from lamina.caches.stream import Stream
from lamina.cli.files import read_request
from lamina.cli.output import emit, progress
from lamina.cli.parser import add_dialect, add_json
from lamina.diagnose.differences import Difference, diff
from lamina.dialects import DIALECTS, recognise
from lamina.dialects.port import Dialect
from lamina.errors import BadInput
from lamina.fitting.request import named
from lamina.models.counters import counter_for
from lamina.models.facts import AS_OF

AUTO = "auto"

_EXAMPLES = """\
A request continues another if everything that was sent stands unchanged before what is new. With --rules the
answer is about one provider's cache: auto takes the rules of the model that is asked.

examples:
  lamina diff call-1.json call-2.json
  lamina diff call-1.json call-2.json --rules auto --gap 400
  lamina diff call-1.json call-2.json --json | jq '.lost'

exit status: 0 the second continues the first, 1 it does not, 2 input that cannot be used
"""


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lamina diff BEFORE AFTER [--rules R] [--gap SECONDS] [--dialect NAME] [--json]"
    parser.epilog = _EXAMPLES
    parser.add_argument("before", metavar="BEFORE", help="a request as JSON; - is standard input")
    parser.add_argument("after", metavar="AFTER", help="a request that was sent later")
    parser.add_argument(
        "--rules", metavar="R", help="the cache: auto, the name of a rule set, or a file of one's own"
    )
    parser.add_argument(
        "--gap", metavar="SECONDS", type=_seconds, default=0.0, help="the time between the two (default: 0)"
    )
    add_dialect(parser, " or ".join(DIALECTS))
    add_json(parser, "cause, place, tokens, price and advice")


def run(arguments: argparse.Namespace) -> int:
    if arguments.before == arguments.after == "-":
        raise BadInput("both requests are standard input", place="diff", hint="give a file for one of them")
    with progress("comparing"):
        before, after = (_stream(path, arguments.dialect) for path in (arguments.before, arguments.after))
        rules = _rules(arguments.rules, after) if arguments.rules else None
        found = diff(before, after, rules=rules, gap=arguments.gap, counter=counter_for(before.model))
    if arguments.json:
        emit(_facts(found, before, after, rules))
    else:
        print("\n".join(_lines(found, arguments, after, rules)))
    return 0 if found.continues else 1


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1
    if not 0 <= found < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds, 0 or more")
    return found


def _stream(path: str, dialect: str | None) -> Stream:
    request = read_request(path)
    try:
        speaks: Dialect = named(dialect) if dialect is not None else recognise(request)
        speaks.parse(request)  # what is no request is refused, with its place
        return speaks.stream(request)
    except BadInput as error:
        place = f"{path}: {error.place}" if error.place else path
        raise BadInput(error.problem, place=place, hint=error.hint) from None


def _rules(name: str, after: Stream) -> CacheRules:
    if name == AUTO:
        return rules_for(after.model, dialect=after.dialect)
    if name in all_rules():
        return all_rules()[name]
    if Path(name).is_file():
        return load_rules(name)
    known = ", ".join(all_rules())
    raise BadInput(
        f"unknown rules {name!r}", place="--rules", hint=f"use auto, a TOML file, or one of {known}"
    )


def _lines(
    found: Difference, arguments: argparse.Namespace, after: Stream, rules: CacheRules | None
) -> list[str]:
    old, new = arguments.before, arguments.after
    if found.continues:
        count = len(after.blocks) - sum(block.sort == "tool" for block in after.blocks) - found.at
        more = f"{count:,} new block{'s' * (count != 1)}, from {found.entry} on" if count else "nothing new"
        read = f"{found.kept:,} tokens {'read' if rules else 'kept'}"
        return [f"{new} continues {old}: {read}, {more}", *_differing(found), *_under(rules)]
    named_ = f" ({found.name})" if found.name else ""
    return [
        f"{new} parts from {old} at {found.place or 'its beginning'}{named_}, byte {found.byte:,}",
        f"cause:  {found.cause}: {found.sentence}",
        f"tokens: {_tokens(found)}",
        f"advice: {found.advice}",
        *_under(rules),
    ]


def _tokens(found: Difference) -> str:
    """What was kept and lost; under the rules of a cache of what it held, with the price."""
    if found.cached is None:
        return f"{found.kept:,} of {found.kept + found.lost:,} kept, {found.lost:,} lost"
    if not found.cached:
        return "the cache held nothing of it, so nothing was lost"
    read = f"{found.kept:,} of the {found.cached:,} that the cache held are read"
    return f"{read}, {found.lost:,} are sent and paid again{_price(found)}"


def _price(found: Difference) -> str:
    return "" if found.price is None else f", ${found.price:.4f} more than reading them (prices of {AS_OF})"


def _differing(found: Difference) -> list[str]:
    """Parameters that differ without a loss, so that nobody looks for them elsewhere."""
    return [f"also differing: {', '.join(found.settings)}"] if found.settings else []


def _under(rules: CacheRules | None) -> list[str]:
    return [f"rules:  {rules.title}, {rules.as_of}"] if rules else []


def _facts(found: Difference, before: Stream, after: Stream, rules: CacheRules | None) -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.to_builtins(found)
    return {
        "continues": found.continues,
        **facts,
        "dialects": [before.dialect, after.dialect],
        "rules": {"name": rules.name, "as_of": rules.as_of} if rules else None,
    }
