"""`lamina replay --learn`: learns how often results are needed again, and writes a file for `policy.need`.

`lamina.replay.need_learning` learns and checks. This module reads the sessions and writes the file.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

import msgspec

from lamina.cli.files import write_file
from lamina.cli.output import tell
from lamina.errors import BadInput, LaminaError
from lamina.replay.need_learning import NeedCase, gather_cases, learn_need
from lamina.replay.values import Trace, UnreadableLine


def run_learned_replay(arguments: argparse.Namespace, traces: Iterable[Trace | UnreadableLine]) -> int:
    """Learn from the sessions, say what came of it, and write the file if it helps; 1 if it does not."""
    cases: list[NeedCase] = []
    sessions = 0
    for trace in traces:
        if isinstance(trace, UnreadableLine):
            continue
        sessions += 1
        try:
            cases += gather_cases(trace, count_as=arguments.model)
        except (LaminaError, RecursionError) as error:
            tell(f"left out: {trace.place or trace.id}: {error}")
    if not sessions:
        hint = "see lamina replay --help for what can be read"
        raise BadInput("there is no session in it", place=", ".join(arguments.paths), hint=hint)
    learned = learn_need(cases)
    for line in learned.lines():
        print(line)
    if learned.table is None:
        return 1
    plain = msgspec.json.format(msgspec.json.encode(learned.table), indent=1).decode()
    write_file(arguments.learn, plain + "\n")
    tell(f"wrote {arguments.learn}: give it as policy.need, or Policy(need={arguments.learn!r})")
    return 0
