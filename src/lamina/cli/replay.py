"""`lamina replay`: what recorded sessions cost, what they would have cost, and where caches were lost.

Traces are read, replayed and added up by `lamina.replay`; here they are only asked for and told.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from lamina.caches import all_rules
from lamina.cli.output import emit, tell
from lamina.cli.parser import tokens
from lamina.errors import BadInput
from lamina.replay.account_table import account_json, account_text
from lamina.replay.html import render_page
from lamina.replay.policies import POLICIES, find_policy
from lamina.replay.runs import replay
from lamina.replay.traces import read_traces
from lamina.replay.values import ReplayAccount, Trace, UnreadableLine

WINDOWS, PICKED, RULES = "64000,200000", "none,drop_oldest,sliding,lamina", "anthropic"
BAR, OFTEN = 30, 0.1
"""The width of the bar of progress, and seconds between two drawings of it."""

_EXAMPLES = """\
PATH is a file, a folder or a glob: requests and answers of OpenAI and Anthropic as JSON lines, sessions of
Claude Code, rollouts of Codex, and what `lamina sessions export` wrote; also as .gz and .zst. What a line
is, its content says. Nothing is sent anywhere: caches are simulated by their rules.

examples:
  lamina replay ~/.claude/projects
  lamina replay logs/ --window 32000,64000 --html report.html
  lamina replay logs/ --policy sliding,lamina --rules anthropic,openai --json account.json
  lamina replay 'runs/*.jsonl.zst' --limit 50 --jobs 4 --json - | jq '.totals'

exit status: 0 done, 2 nothing that can be replayed
"""


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "lamina replay PATH... [--window N,...] [--policy P,...] [--rules R,...] [--model M]\n"
        "                     [--json FILE] [--html FILE] [--jobs N] [--limit N]"
    )
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add("paths", metavar="PATH", nargs="+", help="files, folders or globs of recorded sessions")
    add("--window", metavar="N,...", default=WINDOWS, help=f"context windows in tokens (default: {WINDOWS})")
    add("--policy", metavar="P,...", default=PICKED, help=f"how requests are made to fit (default: {PICKED})")
    add("--rules", metavar="R,...", default=RULES, help=f"whose prefix cache (default: {RULES})")
    add(
        "--model",
        metavar="M",
        default="",
        help="price and count as this model; by default, each session's own",
    )
    add("--json", metavar="FILE", help="write every figure as JSON; - is standard output, without the tables")
    add("--html", metavar="FILE", help="write a page with drawings that needs no network")
    add("--jobs", metavar="N", type=tokens, default=0, help="processes (default: one for each processor)")
    add("--limit", metavar="N", type=tokens, default=0, help="only the first N sessions")


def run(arguments: argparse.Namespace) -> int:
    policies = _chosen_policies(arguments.policy)
    rules = _chosen("--rules", arguments.rules, sorted(all_rules()))
    windows = _windows(arguments.window)
    for path in (arguments.json, arguments.html):
        _check_folder(path)
    with _Bar() as bar:
        account = replay(
            bar.count(_limited(read_traces(arguments.paths, progress=bar.read), arguments.limit)),
            policies=policies,
            windows=windows,
            rules=rules,
            model=arguments.model,
            jobs=arguments.jobs or _processors(),
            points=bool(arguments.html),
        )
    _refuse_nothing(account, arguments.paths)
    tell_account(account, json_file=arguments.json, html_file=arguments.html)
    return 0


def tell_account(account: ReplayAccount, *, json_file: str | None, html_file: str | None) -> None:
    """Print an account, and write it to the files that are named."""
    if html_file:
        write(html_file, render_page(account))
    if json_file == "-":
        emit(account_json(account))
        return
    print(account_text(account))
    if json_file:
        write(json_file, json.dumps(account_json(account), allow_nan=False) + "\n")
    for path in filter(None, (json_file, html_file)):
        tell(f"wrote {path}")


def _chosen_policies(names: str) -> list[str]:
    """Policies by name; one with a colon is imported now, so that a mistake is reported before the replay."""
    imported = [name for name in _listed(names) if ":" in name]
    for name in imported:
        find_policy(name)
    return _chosen("--policy", names, [*POLICIES, *imported])


def _chosen(option: str, given: str, known: Sequence[str]) -> list[str]:
    names = _listed(given)
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        hint = f"it is one of {', '.join(known)}, or several with commas"
        raise BadInput(repr(unknown[0] if unknown else given), place=option, hint=hint)
    return names


def _listed(names: str) -> list[str]:
    """Names between commas, each once."""
    stripped = (name.strip() for name in names.split(","))
    return list(dict.fromkeys(name for name in stripped if name))


def _windows(given: str) -> list[int]:
    try:
        found = [int(each) for each in given.split(",")]
    except ValueError:
        found = []
    if not found or min(found) <= 0:
        hint = "give whole numbers of tokens above 0, with commas: 64000,200000"
        raise BadInput(repr(given), place="--window", hint=hint)
    return list(dict.fromkeys(found))


def _check_folder(path: str | None) -> None:
    """Said before the replay, not after it."""
    if path and path != "-" and not Path(path).absolute().parent.is_dir():
        raise BadInput("its folder is not there", place=path, hint="make the folder, or name another file")


def _limited(found: Iterable[Trace | UnreadableLine], limit: int) -> Iterator[Trace | UnreadableLine]:
    count = 0
    for each in found:
        yield each
        count += isinstance(each, Trace)
        if limit and count >= limit:
            return


def _refuse_nothing(account: ReplayAccount, paths: Sequence[str]) -> None:
    if account.outcomes or account.reported:
        return
    what = f"{len(account.damaged):,} damaged records" if account.damaged else "no records"
    first = (
        f"; the first is {account.damaged[0].place}: {account.damaged[0].reason}" if account.damaged else ""
    )
    hint = "see lamina replay --help for what can be read"
    raise BadInput(f"there is no session in it, but {what}{first}", place=", ".join(paths), hint=hint)


def write(path: str, content: str) -> None:
    """A file with this content; what prevents it is the caller's input."""
    try:
        Path(path).write_text(content, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        hint = "check folder and rights"
        raise BadInput(f"it cannot be written: {error.strerror}", place=path, hint=hint) from None


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Bar:
    """How far a replay is, on a terminal: the share of bytes read, sessions, seconds."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._began = self._last = time.monotonic()
        self._share, self._sessions = 0.0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def read(self, done: int, total: int) -> None:
        self._share = done / total if total else 1.0
        self._draw()

    def count(self, found: Iterable[Trace | UnreadableLine]) -> Iterator[Trace | UnreadableLine]:
        for each in found:
            self._sessions += isinstance(each, Trace)
            self._draw()
            yield each

    def _draw(self) -> None:
        now = time.monotonic()
        if not self._shown or now - self._last < OFTEN:
            return
        self._last = now
        full = round(BAR * self._share)
        drawn = f"[{'#' * full}{'.' * (BAR - full)}] {100 * self._share:.0f} %"
        sys.stderr.write(f"\r\x1b[K{drawn}, {self._sessions:,} sessions, {now - self._began:.0f} s")
        sys.stderr.flush()
