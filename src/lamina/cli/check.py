"""`lamina check`: which rules of its API a request breaks, before the API says so."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import msgspec

from lamina.cli.files import find_request_dialect, read_request
from lamina.cli.output import emit, show, tell
from lamina.cli.parser import add_dialect, add_file, add_json
from lamina.dialects import DIALECTS
from lamina.dialects.port import Violation

_EXAMPLES = """\
One line for each rule that is broken: its name, the place, what is wrong.

examples:
  lamina check request.json
  lamina fit request.json | lamina check -

exit status: 0 no rule is broken, 1 at least one is, 2 input that cannot be used
"""


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lamina check FILE [--dialect NAME] [--json]"
    parser.epilog = _EXAMPLES
    add_file(parser)
    add_dialect(parser, " or ".join(DIALECTS))
    add_json(parser, "dialect and violations")


def run(arguments: argparse.Namespace) -> int:
    """Print which rules the request breaks. The exit code is 1 if it breaks any."""
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
