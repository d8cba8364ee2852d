"""`lamina replay`: what recorded sessions cost, what `lamina run` would have saved, where caches were lost.

`lamina.replay` reads, replays and adds up the traces. This module runs the command and prints the
account; `replay_progress` has the bar.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from lamina.caches import all_rules
from lamina.cli.files import check_folder, print_with_json, refuse_databases
from lamina.cli.output import ProgressLine, show, tell
from lamina.cli.parser import read_moment, whole_number
from lamina.cli.replay_progress import ReplayBar, ReplaysUntilInterrupted
from lamina.cli.stored import add_store
from lamina.cli.stored_sessions import read_stored_traces
from lamina.dialects.usage import count_noun
from lamina.errors import BadInput
from lamina.replay.account_sums import OWN_WINDOW
from lamina.replay.account_table import account_json, account_text
from lamina.replay.engines import ENGINES, Engine, open_engine
from lamina.replay.headline import GROUPINGS, summarise
from lamina.replay.parquet import ParquetTables, open_tables
from lamina.replay.policies import POLICIES, find_policy
from lamina.replay.runs import ReplayOptions, TraceReplay, make_account, replay_each
from lamina.replay.shards import replay_files
from lamina.replay.traces import TraceFile, find_files
from lamina.replay.traces.files import select_changed
from lamina.replay.values import ReplayAccount, Trace, UnreadableLine

__all__ = ["describe", "run"]

AUTO = "auto"
"""The window, or the cache rules, of each session's own model."""

NO_WINDOW = -1
"""Stands for a word that names no window. (0 is the window of each session's model.)"""

_OF_SESSION = "(default: as of each session's model)"
_POLICY_HELP = (
    f"send every request again, in a simulation, under each of these: {', '.join(POLICIES)} (all, if only "
    "--window, --model, --rules or --parquet is given), or package.module:attribute"
)
_PARQUET_HELP = "write every figure as Parquet tables, in this folder (extra: replay)"
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


def read_options(arguments: argparse.Namespace) -> ReplayOptions:
    """What is multiplied in a replay. Without options that ask for a replay there is no policy.

    Raises BadInput for a name that nobody knows.
    """
    _read_names("--engine", arguments.engine.partition(":")[0], ENGINES)
    policies: list[str] = []
    if arguments.policy:
        policies = _read_policies(arguments.policy)
    elif arguments.window or arguments.rules or arguments.model or arguments.parquet:
        policies = list(POLICIES)
    return ReplayOptions(
        policies=tuple(policies),
        windows=tuple(_read_windows(arguments.window or AUTO)),
        rules=tuple(_read_names("--rules", arguments.rules or AUTO, [AUTO, *sorted(all_rules())])),
        model=arguments.model,
        fill_head=True,
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


def run(arguments: argparse.Namespace) -> int:
    options = read_options(arguments)
    groups: list[str] = []
    if arguments.by:
        groups = _read_names("--by", arguments.by, GROUPINGS)
    _check_arguments(arguments)
    replays = ReplaysUntilInterrupted()
    account = _make_account(arguments, options, replays)
    if not options.policies and not any(report.dollars for report in account.reported):
        # No record says what was paid, so it has to be simulated.
        options = msgspec.structs.replace(options, policies=tuple(POLICIES))
        account = _make_account(arguments, options, replays)
    if replays.was_interrupted:
        _print_interrupted(account, arguments, groups)
        raise KeyboardInterrupt
    _refuse_empty(account, arguments)
    print_with_json(account_text(account, by=groups), account_json(account, by=groups), arguments.json)
    if arguments.parquet:
        tell(f"wrote {arguments.parquet}")
    return 0


def _print_interrupted(account: ReplayAccount, arguments: argparse.Namespace, by: Sequence[str]) -> None:
    """Print what was replayed until Ctrl-C. No file is written, and no JSON: they would look whole."""
    if arguments.json == "-":
        return
    show(*account_text(account, by=by).split("\n"))
    tell(f"stopped by Ctrl-C: this is of {count_noun(len(account.reported), 'session')}, not of all of them")


def _check_arguments(arguments: argparse.Namespace) -> None:
    """Raise BadInput for what cannot be replayed or written, before the work and not after it."""
    refuse_databases(arguments.paths, hint="a store is read with --store")
    if not arguments.paths and arguments.store is None:
        hint = "name files or folders with recorded sessions, or a store with --store"
        raise BadInput("there is nothing to replay", place="PATH", hint=hint)
    check_folder(arguments.json)


def _make_account(
    arguments: argparse.Namespace, options: ReplayOptions, replays: ReplaysUntilInterrupted
) -> ReplayAccount:
    """Replay what the command names, on the engine that it names, into the folder that it names."""
    jobs = arguments.jobs or _count_processors()
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(ReplayBar(stack.enter_context(ProgressLine())))
        tables = None
        if arguments.parquet:
            tables = stack.enter_context(open_tables(arguments.parquet))
        engine = _open_chosen_engine(stack, arguments, jobs)
        chosen = _ChosenReplay(arguments, options, bar, tables=tables, engine=engine, jobs=jobs)
        account = make_account(replays.take(chosen.run()))
        if tables is not None and not replays.was_interrupted:
            tables.finish()
        return account


class _ChosenReplay:
    """The replay of everything that a command names: files and a store."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        options: ReplayOptions,
        bar: ReplayBar,
        *,
        tables: ParquetTables | None,
        engine: Engine | None,
        jobs: int,
    ) -> None:
        self._arguments = arguments
        self._options = options
        self._bar = bar
        self._tables = tables
        self._engine = engine
        self._jobs = jobs
        self._recorded_calls: Counter[str] = Counter()

    def run(self) -> Iterator[TraceReplay]:
        """Every session."""
        arguments = self._arguments
        if arguments.store is not None:
            yield from self._replay_store()
        yield from self._replay_files(select_changed(find_files(arguments.paths), arguments.since))

    def _replay_files(self, files: Sequence[TraceFile]) -> Iterator[TraceReplay]:
        for file_replay in replay_files(
            files,
            self._options,
            jobs=self._jobs,
            engine=self._engine,
            since=self._arguments.since,
            progress=self._bar.read,
            count=self._bar.count_one,
        ):
            if self._tables is not None:
                self._tables.add(str(file_replay.file), file_replay.replays)
            for trace_replay in file_replay.replays:
                if not self._is_recorded(trace_replay):
                    yield trace_replay

    def _replay_store(self) -> Iterator[TraceReplay]:
        replays = []
        traces = read_stored_traces(self._arguments, since=self._arguments.since)
        for trace_replay in self._replay(traces):
            self._bar.count_one(trace_replay)
            replays.append(trace_replay)
            reported = trace_replay.reported
            if reported is not None and reported.client_session:
                self._recorded_calls[reported.client_session] += reported.calls
        if self._tables is not None:
            self._tables.add(f"store:{self._arguments.store}", replays)
        yield from replays

    def _is_recorded(self, trace_replay: TraceReplay) -> bool:
        """Whether this is a client's log of a session that the store has as lamina sent it."""
        reported = trace_replay.reported
        if reported is None or reported.client_session not in self._recorded_calls:
            return False
        return reported.calls <= self._recorded_calls[reported.client_session]

    def _replay(self, traces: Iterable[Trace | UnreadableLine]) -> Iterator[TraceReplay]:
        return replay_each(traces, self._options, engine=self._engine, jobs=self._jobs)


def _open_chosen_engine(
    stack: contextlib.ExitStack, arguments: argparse.Namespace, jobs: int
) -> Engine | None:
    """The engine that is named; None for the processes of this machine, which the replay starts itself."""
    if arguments.engine == "local":
        return None
    return stack.enter_context(open_engine(arguments.engine, jobs=jobs))


def _refuse_empty(account: ReplayAccount, arguments: argparse.Namespace) -> None:
    """Raise BadInput if there is nothing to compare, with what was found instead of sessions."""
    if summarise(account).calls:
        return
    places = list(arguments.paths)
    if arguments.store is not None:
        places.append(arguments.store or "your store")
    place = ", ".join(places)
    if arguments.since is not None and not account.damaged:
        raise BadInput("none of its calls is so new", place=place, hint="give an earlier day with --since")
    if account.outcomes or account.reported:
        hint = "lamina explain and lamina inspect show what a request holds"
        raise BadInput("no model has answered in it, so there is no cost to compare", place=place, hint=hint)
    problem = "there is no session in it"
    if account.damaged:
        first = account.damaged[0]
        count = count_noun(len(account.damaged), "damaged record")
        problem += f", but {count}; the first is {first.place}: {first.reason}"
    elif account.foreign:
        problem += f", but {count_noun(len(account.foreign), 'file')} of other things"
    raise BadInput(problem, place=place, hint="see lamina replay --help for what can be read")


def _count_processors() -> int:
    """How many processors this program may use, which may be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
