"""Declares the options of `lamina replay`, and reads the names and numbers in them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

from lamina.caches import all_rules
from lamina.cli.parser import read_moment, whole_number
from lamina.cli.stored import add_store
from lamina.errors import BadInput
from lamina.replay.account_sums import OWN_WINDOW
from lamina.replay.engines import ENGINES
from lamina.replay.groups import GROUPINGS
from lamina.replay.policies import POLICIES, find_policy

AUTO = "auto"
"""The window, or the cache rules, of each session's own model."""

NO_WINDOW = -1
"""Stands for a word that names no window. (0 is the window of each session's model.)"""

_OF_SESSION = "(default: as of each session's model)"
_POLICY_HELP = (
    f"send every request again, in a simulation, under each of these: {', '.join(POLICIES)} (all, if only "
    "--window, --model, --rules or --parquet is given), or package.module:attribute"
)
_PARQUET_HELP = (
    "write every figure as Parquet tables while the replay runs; the next time, only files that are new or "
    "have changed are replayed (extra: replay)"
)
_ENGINE_HELP = (
    "what runs the replay: local, dask or ray; one of our own, or a cluster: dask:tcp://HOST:PORT "
    "(default: local; extras: dask, ray)"
)
_EXAMPLES = """\
PATH is a file, a folder, a glob or a URL such as s3://bucket/logs (extra: replay): requests and answers of
OpenAI and Anthropic as JSON lines, sessions of Claude Code, rollouts of Codex, and what
`lamina conversations export` wrote; also as .gz and .zst. The format is recognised by the content of each
line. With --store, the conversations of a store are read: what lamina recorded of the requests that went
through it, and its sessions. Nothing is sent anywhere. Without options it takes seconds: it adds up what was
recorded, and simulates what lamina run would have saved from sizes and pauses. With --policy, --window,
--model, --rules or --parquet every request is made anew, which takes minutes, and shows what answers find.

examples:
  lamina replay ~/.claude/projects ~/.codex/sessions
  lamina replay --store
  lamina replay logs/ --window 32000,64000
  lamina replay logs/ --policy sliding,lamina --window auto,64000 --rules openai
  lamina replay 's3://logs/2026-*/*.zst' --engine dask --parquet out/
  lamina replay ~/.claude/projects --since 7d --by project,model
  lamina replay 'runs/*.jsonl.zst' --jobs 4 --json - | jq '.totals'

exit status: 0 done, 2 there is nothing to replay
"""


class ReplayChoices(NamedTuple):
    """What is multiplied in a replay, and the groups of sessions that are summed.

    Without options that ask for a replay there is no policy.
    """

    policies: list[str]
    windows: list[int]
    rules: list[str]
    groups: list[str]


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "lamina replay [PATH...] [--store [STORE]] [--window N,...] [--policy P,...] [--model M]\n"
        "                     [--rules R,...] [--json FILE] [--parquet FOLDER] [--engine E] [--jobs N]\n"
        "                     [--since DATE] [--by G,...]"
    )
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add("paths", metavar="PATH", nargs="*", help="files, folders, globs or URLs of recorded sessions")
    add_store(parser, alone=True)
    add("--window", metavar="N,...", default="", help=f"context windows in tokens {_OF_SESSION}")
    add("--policy", metavar="P,...", default="", help=_POLICY_HELP)
    add("--model", metavar="M", default="", help=f"price and count as this model {_OF_SESSION}")
    add("--rules", metavar="R,...", default="", help=f"whose prefix cache {_OF_SESSION}")
    add("--json", metavar="FILE", help="write every figure as JSON; - is standard output, without the tables")
    add("--parquet", metavar="FOLDER", help=_PARQUET_HELP)
    add("--engine", metavar="E", default="local", help=_ENGINE_HELP)
    add("--jobs", metavar="N", type=whole_number, default=0, help="processes (default: one a processor)")
    add("--since", metavar="DATE", type=read_moment, help="only calls since a date (2026-11-01), or 7d, 12h")
    add("--by", metavar="G,...", default="", help=f"also what groups cost: {', '.join(GROUPINGS)}")


def read_choices(arguments: argparse.Namespace) -> ReplayChoices:
    """The policies, windows, rules and groups that the options name. Raises BadInput for any other name."""
    _read_names("--engine", arguments.engine.partition(":")[0], ENGINES)
    groups: list[str] = []
    if arguments.by:
        groups = _read_names("--by", arguments.by, GROUPINGS)
    policies: list[str] = []
    if arguments.policy:
        policies = _read_policies(arguments.policy)
    elif arguments.window or arguments.rules or arguments.model or arguments.parquet:
        policies = list(POLICIES)
    return ReplayChoices(
        policies=policies,
        windows=_read_windows(arguments.window or AUTO),
        rules=_read_names("--rules", arguments.rules or AUTO, [AUTO, *sorted(all_rules())]),
        groups=groups,
    )


def _read_policies(names: str) -> list[str]:
    """Policies by name; one with a colon is imported now, so that a mistake is reported before the replay."""
    imported = [name for name in _split_names(names) if ":" in name]
    for name in imported:
        find_policy(name)
    return _read_names("--policy", names, [*POLICIES, *imported])


def _read_names(option: str, text: str, choices: Sequence[str]) -> list[str]:
    """The names between the commas of an option, each of which must be one of the choices."""
    names = _split_names(text)
    hint = f"it is one of {', '.join(choices)}, or several with commas"
    if not names:
        raise BadInput(repr(text), place=option, hint=hint)
    for name in names:
        if name not in choices:
            raise BadInput(repr(name), place=option, hint=hint)
    return names


def _split_names(text: str) -> list[str]:
    """Names between commas, each once."""
    names = dict.fromkeys(name.strip() for name in text.split(","))
    names.pop("", None)
    return list(names)


def _read_windows(text: str) -> list[int]:
    """The windows that `--window` names, such as `auto,64000`. Raises BadInput for any other word."""
    windows = [_read_window(word) for word in _split_names(text)]
    if not windows or NO_WINDOW in windows:
        hint = f"give {AUTO}, or whole numbers of tokens above 0, with commas: {AUTO},64000"
        raise BadInput(repr(text), place="--window", hint=hint)
    return windows


def _read_window(word: str) -> int:
    if word == AUTO:
        return OWN_WINDOW
    try:
        return whole_number(word) or NO_WINDOW
    except argparse.ArgumentTypeError:
        return NO_WINDOW
