"""`lamina diff`: where and why the second of two requests stops being a continuation of the first.

A prefix cache stops there too, so the tokens that are lost are those that are read and paid anew. With the
rules of a cache it also says what that cache would do: markers, lifetimes, minimum, settings, and the price.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import msgspec

from lamina.caches import CacheRules, all_rules, load_rules, rules_for
from lamina.caches.stream import Stream
from lamina.cli.files import find_request_dialect, read_request
from lamina.cli.output import emit, progress, show
from lamina.cli.parser import add_dialect, add_json, float_or_nan
from lamina.diagnose.differences import diff
from lamina.diagnose.values import Difference
from lamina.dialects import DIALECTS
from lamina.dialects.usage import count_noun
from lamina.errors import BadInput
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
    parser.epilog = _EXAMPLES
    parser.add_argument("before", metavar="BEFORE", help="a request as JSON; - is standard input")
    parser.add_argument("after", metavar="AFTER", help="a request that was sent later")
    parser.add_argument(
        "--rules", metavar="R", help="the cache: auto, the name of a rule set, or a file of your own"
    )
    parser.add_argument(
        "--gap", metavar="SECONDS", type=_seconds, default=0.0, help="the time between the two (default: 0)"
    )
    add_dialect(parser, " or ".join(DIALECTS))
    add_json(parser, "cause, place, tokens, price and advice")


def run(arguments: argparse.Namespace) -> int:
    """Print where and why the second request parts from the first. The exit code is 1 if it does."""
    if arguments.before == arguments.after == "-":
        raise BadInput("both requests are standard input", place="diff", hint="give a file for one of them")
    with progress("comparing"):
        before = _read_stream(arguments.before, arguments.dialect)
        after = _read_stream(arguments.after, arguments.dialect)
        rules = None
        if arguments.rules:
            rules = _find_rules(arguments.rules, after)
        counter = counter_for(before.model)
        difference = diff(before, after, rules=rules, gap=arguments.gap, counter=counter)
    if arguments.json:
        emit(_difference_json(difference, before, after, rules))
    elif difference.continues:
        show(*_continuing_lines(difference, arguments, after, rules))
    else:
        show(*_parting_lines(difference, arguments, rules))
    return int(not difference.continues)


def _seconds(text: str) -> float:
    """A number of seconds, 0 or more, from the command line."""
    seconds = float_or_nan(text)
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0 or more")
    return seconds


def _read_stream(path: str, dialect_name: str | None) -> Stream:
    """The request in a file as a stream of blocks. An error names the file before the place in it."""
    request = read_request(path)
    try:
        dialect = find_request_dialect(request, dialect_name)
        dialect.wire.parse(request)  # refuses what is no request, and says where
        return dialect.cache.stream(request)
    except BadInput as error:
        place = path
        if error.place:
            place = f"{path}: {error.place}"
        raise BadInput(error.problem, place=place, hint=error.hint) from None


def _find_rules(name: str, after: Stream) -> CacheRules:
    """The rules of a cache: those of the model, those of this name, or those in a file."""
    if name == AUTO:
        return rules_for(after.model, dialect=after.dialect)
    rules_by_name = all_rules()
    if name in rules_by_name:
        return rules_by_name[name]
    if Path(name).is_file():
        return load_rules(name)
    hint = f"use auto, a TOML file, or one of {', '.join(rules_by_name)}"
    raise BadInput(f"unknown rules {name!r}", place="--rules", hint=hint)


def _continuing_lines(
    difference: Difference, arguments: argparse.Namespace, after: Stream, rules: CacheRules | None
) -> list[str]:
    """What is printed if the second request continues the first: what is kept, and what is new."""
    tool_blocks = sum(block.sort == "tool" for block in after.blocks)
    new_blocks = len(after.blocks) - tool_blocks - difference.at
    news = "nothing new"
    if new_blocks:
        news = f"{count_noun(new_blocks, 'new block')}, from {difference.entry} on"
    verb = "read" if rules else "kept"
    tokens = f"{difference.kept:,} tokens {verb}"
    lines = [f"{arguments.after} continues {arguments.before}: {tokens}, {news}"]
    if difference.settings:  # said although nothing is lost, so that nobody looks for them elsewhere
        lines.append(f"also differing: {', '.join(difference.settings)}")
    return [*lines, *_rules_line(rules)]


def _parting_lines(
    difference: Difference, arguments: argparse.Namespace, rules: CacheRules | None
) -> list[str]:
    """What is printed if the two part: where, why, how much that loses, and what to do."""
    place = difference.place or "its beginning"
    if difference.name:
        place += f" ({difference.name})"
    return [
        f"{arguments.after} parts from {arguments.before} at {place}, byte {difference.byte:,}",
        f"cause:  {difference.cause}: {difference.sentence}",
        f"tokens: {_describe_tokens(difference)}",
        f"advice: {difference.advice}",
        *_rules_line(rules),
    ]


def _describe_tokens(difference: Difference) -> str:
    """What was kept and lost; under the rules of a cache, of what it held, with the price."""
    if difference.cached is None:
        total = difference.kept + difference.lost
        return f"{difference.kept:,} of {total:,} kept, {difference.lost:,} lost"
    if not difference.cached:
        return "the cache held nothing of it, so nothing was lost"
    read = f"{difference.kept:,} of the {difference.cached:,} that the cache held are read"
    paid_again = f"{read}, {difference.lost:,} are sent and paid again"
    if difference.price is None:
        return paid_again
    return f"{paid_again}, ${difference.price:.4f} more than reading them (prices of {AS_OF})"


def _rules_line(rules: CacheRules | None) -> list[str]:
    if rules is None:
        return []
    return [f"rules:  {rules.title}, {rules.as_of}"]


def _difference_json(
    difference: Difference, before: Stream, after: Stream, rules: CacheRules | None
) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(difference)
    return {
        "continues": difference.continues,
        **fields,
        "dialects": [before.dialect, after.dialect],
        "rules": {"name": rules.name, "as_of": rules.as_of} if rules else None,
    }
