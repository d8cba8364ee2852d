"""`lamina diff`: where and why the second of two requests stops being a continuation of the first.

A prefix cache stops there too, so the tokens that are lost are those that are read and paid anew.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from lamina.cli.files import read_request
from lamina.cli.output import emit, progress
from lamina.cli.parser import add_dialect, add_json
from lamina.core.bench import Options
from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.core.part import Parting, part
from lamina.core.wording import described
from lamina.counters import counter_for
from lamina.dialects import DIALECTS, recognise
from lamina.errors import BadInput
from lamina.request import AS_LOGGED, named

_EXAMPLES = """\
A request continues another if everything that was sent stands unchanged before what is new.

examples:
  lamina diff call-1.json call-2.json
  lamina diff call-1.json call-2.json --json | jq '.lost'

exit status: 0 the second continues the first, 1 it does not, 2 input that cannot be used
"""


class _Side(NamedTuple):
    path: str
    dialect: str
    envelope: Envelope


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lamina diff BEFORE AFTER [--dialect NAME] [--json]"
    parser.epilog = _EXAMPLES
    parser.add_argument("before", metavar="BEFORE", help="a request as JSON; - is standard input")
    parser.add_argument("after", metavar="AFTER", help="a request that was sent later")
    add_dialect(parser, " or ".join(DIALECTS))
    add_json(parser, "cause, place and tokens")


def run(arguments: argparse.Namespace) -> int:
    if arguments.before == arguments.after == "-":
        raise BadInput("both requests are standard input", place="diff", hint="give a file for one of them")
    with progress("comparing"):
        before, after = (_side(path, arguments.dialect) for path in (arguments.before, arguments.after))
    found = part(before.envelope, after.envelope)
    if arguments.json:
        emit(_facts(found, before, after))
    else:
        print(_sentence(found, before, after))
    return 0 if found.continues else 1


def _side(path: str, dialect: str | None) -> _Side:
    """A request as it stands, without a budget."""
    request = read_request(path)
    try:
        speaks = named(dialect) if dialect is not None else recognise(request)
        parsed = speaks.parse(request)
        options = Options(repairs=speaks.repairs, layout=AS_LOGGED)
        counter = counter_for(str(request.get("model", "")))
        return _Side(path, speaks.name, build(parsed.log, head=parsed.head, counter=counter, options=options))
    except BadInput as error:
        place = f"{path}: {error.place}" if error.place else path
        raise BadInput(error.problem, place=place, hint=error.hint) from None


def _sentence(found: Parting, before: _Side, after: _Side) -> str:
    tokens = f"{found.kept:,} of {found.kept + found.lost:,} tokens"
    if found.continues:
        new = len(after.envelope.sent) - found.at
        more = (
            f"{new:,} new segment{'s' if new != 1 else ''}, from {_what(found.entry, after)} on"
            if new
            else "nothing new"
        )
        return f"{after.path} continues {before.path}: {tokens} kept, {more}"
    where = f"at segment {found.at + 1:,} ({_what(found.was, before)}), byte {found.byte:,}"
    if found.cause.startswith("tools"):
        where = f"at the tool definitions, byte {found.byte:,}"
    return f"{after.path} parts from {before.path} {where}: {found.cause}; {tokens} kept, {found.lost:,} lost"


def _what(ref: str, side: _Side) -> str:
    return next((described(e.segment) for e in side.envelope.entries if e.ref == ref), "its end")


def _facts(found: Parting, before: _Side, after: _Side) -> dict[str, Any]:
    return {
        "continues": found.continues, "cause": found.cause, "segment": found.at + 1, "byte": found.byte,
        "before": {"ref": found.was, "what": _what(found.was, before), "dialect": before.dialect},
        "after": {"ref": found.entry, "what": _what(found.entry, after), "dialect": after.dialect},
        "kept": found.kept, "lost": found.lost,
    }  # fmt: skip
