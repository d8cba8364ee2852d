"""`lamina replay`: what recorded sessions cost, what they would have cost, and where caches were lost.

`lamina.replay` reads, replays and adds up the traces. This module reads the options and prints the account.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Self

import msgspec

from lamina.caches import all_rules
from lamina.cli.files import check_folder, refuse_databases, write_file
from lamina.cli.judged_replay import run_judged_replay
from lamina.cli.learned_replay import run_learned_replay
from lamina.cli.output import ProgressLine, emit, tell
from lamina.cli.parser import read_moment, whole_number
from lamina.cli.replay_progress import ReplayedSessions, ReplaysUntilInterrupted, describe_rest
from lamina.cli.stored import add_store, ask_store, find_gateway_workspace
from lamina.cli.stored_sessions import LogSource
from lamina.dialects.usage import count_noun
from lamina.errors import BadInput
from lamina.replay.account_sums import OWN_WINDOW
from lamina.replay.account_table import account_json, account_text
from lamina.replay.engines import ENGINES, Engine, open_engine
from lamina.replay.figures_folder import FiguresFolder, open_figures
from lamina.replay.groups import GROUPINGS
from lamina.replay.headline import summarise
from lamina.replay.lifetimes import compare_lifetimes, lifetimes_text
from lamina.replay.policies import POLICIES, find_policy
from lamina.replay.promises import calibrate_depths, depth_policies, promise_depths
from lamina.replay.runs import ReplayOptions, TraceReplay, make_account, replay_each
from lamina.replay.shards import replay_files
from lamina.replay.traces import ALWAYS, Period, TraceFile, find_files, read_traces
from lamina.replay.traces.files import select_changed
from lamina.replay.traces.own_answers import select_own
from lamina.replay.traces.recorded_conversations import list_recorded, read_recorded
from lamina.replay.values import ReplayAccount, Trace, UnreadableLine

AUTO = "auto"
"""The window, or the cache rules, of each session's own model."""

DEFAULT_POLICIES = "none,drop_oldest,sliding,lamina"
BAR_WIDTH = 30

_EXAMPLES = """\
PATH is a file, a folder, a glob or a URL such as s3://bucket/logs (extra: remote): requests and answers of
OpenAI and Anthropic as JSON lines, sessions of Claude Code, rollouts of Codex, and what
`lamina conversations export` wrote; also as .gz and .zst. What a line is, its content says. With --store, the
conversations of a store are read: what lamina recorded of the requests that went through it, and its
sessions. Nothing is sent anywhere: caches are simulated by their rules.

With --judge, a model says what each policy loses: how much less likely a recorded answer is after what the
policy would have sent than after the whole conversation. JUDGE is a model.gguf (torch if it is installed,
else llama.cpp: pip install xllamacpp), torch:FOLDER, llama:FILE.gguf, or the address of a server: vLLM, or
llama.cpp's own. LAMINA_JUDGE_KEY has the key of the server, if it wants one. The recorded requests and
answers are sent to that server, and nowhere else. Before it begins, it says how much there is to judge.

examples:
  lamina replay ~/.claude/projects
  lamina replay --store
  lamina replay logs/ --window 32000,64000 --html report.html
  lamina replay logs/ --policy sliding,lamina --window auto,64000 --rules openai
  lamina replay 's3://logs/2026-*/*.zst' --engine dask --parquet out/
  lamina replay ~/.claude/projects --since 7d --by project,model
  lamina replay logs/ --judge http://127.0.0.1:8000
  lamina replay logs/ --judge http://127.0.0.1:8000 --precision 0.05
  lamina replay logs/ --hide-at-most 0.02 --window 32000 --write depths.json
  lamina replay logs/ --learn need.json
  lamina replay ~/.claude/projects --lifetimes
  lamina replay 'runs/*.jsonl.zst' --limit 50 --jobs 4 --json - | jq '.totals'

exit status: 0 done, 1 what --learn found does not help, 2 nothing that can be replayed
"""


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "lamina replay [PATH...] [--store [STORE]] [--window N,...] [--policy P,...] [--rules R,...]\n"
        "                     [--model M]\n"
        "                     [--json FILE] [--html FILE] [--parquet FOLDER]\n"
        "                     [--engine E] [--cluster ADDRESS] [--jobs N] [--limit N]\n"
        "                     [--since DATE] [--until DATE] [--by G,...]\n"
        "                     [--judge JUDGE] [--answers N] [--seconds N] [--precision NATS]\n"
        "                     [--losses FILE] [--plan] [--price DOLLARS] [--hide-at-most SHARE]\n"
        "                     [--write FILE] [--learn FILE] [--lifetimes]"
    )
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add("paths", metavar="PATH", nargs="*", help="files, folders, globs or URLs of recorded sessions")
    add_store(parser, alone=True)
    add(
        "--window",
        metavar="N,...",
        default=AUTO,
        help="context windows in tokens; auto, the default, is that of each session's model",
    )
    add(
        "--policy",
        metavar="P,...",
        default=DEFAULT_POLICIES,
        help=f"how requests are made to fit (default: {DEFAULT_POLICIES})",
    )
    add(
        "--rules",
        metavar="R,...",
        default=AUTO,
        help="whose prefix cache; auto, the default, is that of each session's model",
    )
    add(
        "--model",
        metavar="M",
        default="",
        help="price and count as this model; by default, each session's own",
    )
    add("--json", metavar="FILE", help="write every figure as JSON; - is standard output, without the tables")
    add(
        "--html",
        metavar="FILE",
        help="write a page with drawings that needs no network (extra: report)",
    )
    add(
        "--parquet",
        metavar="FOLDER",
        help="write every figure as Parquet tables while the replay runs; the next time, only files that are "
        "new or have changed are replayed (extra: parquet)",
    )
    add(
        "--engine",
        choices=ENGINES,
        default="local",
        help="what runs the replay: processes (local, the default), dask (extra: dask) or ray (extra: ray)",
    )
    add("--cluster", metavar="ADDRESS", default="", help="a cluster of Dask or Ray; default: one of our own")
    add(
        "--jobs",
        metavar="N",
        type=whole_number,
        default=0,
        help="processes (default: one for each processor)",
    )
    add("--limit", metavar="N", type=whole_number, default=0, help="only the first N sessions")
    add("--since", metavar="DATE", type=read_moment, help="only calls since a date (2026-11-01), or 7d, 12h")
    add("--until", metavar="DATE", type=read_moment, help="only calls before a date, or a time of it")
    add(
        "--by",
        metavar="G,...",
        default="",
        help=f"also what groups of sessions cost: by {', '.join(GROUPINGS[:-1])} or {GROUPINGS[-1]}",
    )
    add("--judge", metavar="JUDGE", default="", help="have a model judge what each policy loses; see below")
    add(
        "--answers",
        metavar="N",
        type=whole_number,
        default=3,
        help="with --judge: answers of each session that are judged, at most (default: 3)",
    )
    add(
        "--seconds",
        metavar="N",
        type=whole_number,
        default=0,
        help="with --judge: judge no further answer after so long, and compare those that are done",
    )
    add(
        "--hide-at-most",
        metavar="SHARE",
        type=_share,
        default=None,
        help="instead of an account: the deepest cuts that hide at most this share of the names that answers "
        "need in 95 %% of sessions, from one half of the sessions, and whether that holds in the other",
    )
    add(
        "--write",
        metavar="FILE",
        default="",
        help="with --hide-at-most: write what was measured of each depth to this file, for policy.depths",
    )
    add(
        "--learn",
        metavar="FILE",
        default="",
        help="instead of an account: learn from one half of the sessions how often results are needed again, "
        "and write it to this file if it keeps more of what the other half needs; policy.need takes the file",
    )
    add(
        "--precision",
        metavar="NATS",
        type=_positive_number,
        default=0.0,
        help="with --judge: stop when the differences are known to so many nats, such as 0.05",
    )
    add(
        "--losses",
        metavar="FILE",
        default="",
        help="with --judge: keep what was judged here, and go on from there the next time",
    )
    add(
        "--lifetimes",
        action="store_true",
        help="instead of an account: what each lifetime of the cache would have cost, from recorded pauses",
    )
    add("--plan", action="store_true", help="with --judge: only say how much there is to judge")
    add(
        "--price",
        metavar="DOLLARS",
        type=_positive_number,
        default=0.0,
        help="with --judge: what the judge takes for a million tokens, to say what it will cost",
    )


def _share(text: str) -> float:
    """A share between 0 and 1, such as 0.02."""
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share between 0 and 1, such as 0.02")
    return share


def _positive_number(text: str) -> float:
    """A number above 0, as an option has it."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return number


def run(arguments: argparse.Namespace) -> int:
    policies = _chosen_policies(arguments.policy)
    if arguments.hide_at_most is not None:
        policies = depth_policies()
    rules = _chosen("--rules", arguments.rules, [AUTO, *sorted(all_rules())])
    windows = _windows(arguments.window)
    by: list[str] = []
    if arguments.by:
        by = _chosen("--by", arguments.by, GROUPINGS)
    _check_arguments(arguments)
    if arguments.lifetimes:
        return _print_lifetimes(arguments)
    if arguments.learn or arguments.judge:
        return _run_without_account(arguments, policies=policies, windows=windows, rules=rules)
    if arguments.html:
        page_writer()  # a missing package is reported before the replay
    options = ReplayOptions(
        policies=tuple(policies),
        windows=tuple(windows),
        rules=tuple(rules),
        model=arguments.model,
        points=bool(arguments.html),
        fill_head=True,
        pressed=arguments.hide_at_most is not None,
        findings=bool(arguments.parquet),
    )
    replays = ReplaysUntilInterrupted()
    account = _make_account(arguments, options, replays)
    if replays.was_interrupted:
        _print_interrupted(account, arguments, by)
        raise KeyboardInterrupt
    if arguments.hide_at_most is not None:
        _print_promises(account, arguments)
        return 0
    places = [*arguments.paths]
    if arguments.store is not None:
        places.append(arguments.store or "your store")
    _refuse_empty(account, places, period=_period(arguments))
    print_account(account, json_file=arguments.json, html_file=arguments.html, by=by)
    if arguments.parquet:
        tell(f"wrote {arguments.parquet}")
    return 0


def _print_interrupted(account: ReplayAccount, arguments: argparse.Namespace, by: Sequence[str]) -> None:
    """Print what was replayed until Ctrl-C. No file is written, and no JSON: they would look whole."""
    if arguments.json == "-" or arguments.hide_at_most is not None:
        return
    print(account_text(account, by=by))
    tell(f"stopped by Ctrl-C: this is of {count_noun(len(account.reported), 'session')}, not of all of them")


def _check_arguments(arguments: argparse.Namespace) -> None:
    """Raise BadInput for what cannot be replayed or written, before the work and not after it."""
    refuse_databases(arguments.paths, hint="a store is read with --store")
    if not arguments.paths and arguments.store is None:
        hint = "name files or folders with recorded sessions, or a store with --store"
        raise BadInput("there is nothing to replay", place="PATH", hint=hint)
    if arguments.parquet and arguments.limit:
        hint = "leave one of them out: tables are added to, file by file"
        raise BadInput("it does not go with --limit", place="--parquet", hint=hint)
    for path in (arguments.json, arguments.html, arguments.learn, arguments.write):
        check_folder(path)


def _print_lifetimes(arguments: argparse.Namespace) -> int:
    """Print what each lifetime of the cache would have cost. With `-`, JSON is all that is printed."""
    with ProgressLine() as line:
        traces = _read_chosen(arguments, _Bar(line))
        rows = compare_lifetimes(trace for trace in traces if isinstance(trace, Trace))
    text = lifetimes_text(rows)
    if arguments.json == "-":
        emit(msgspec.to_builtins(rows))
        return 0
    print(text)
    if arguments.json:
        write_file(arguments.json, json.dumps(msgspec.to_builtins(rows), allow_nan=False) + "\n")
        tell(f"wrote {arguments.json}")
    return 0


def _make_account(
    arguments: argparse.Namespace, options: ReplayOptions, replays: ReplaysUntilInterrupted
) -> ReplayAccount:
    """Replay what the command names, on the engine that it names, into the folder that it names."""
    jobs = arguments.jobs or _processors()
    with contextlib.ExitStack() as stack:
        bar = _Bar(stack.enter_context(ProgressLine()))
        stack.enter_context(bar)
        figures = None
        if arguments.parquet:
            figures = stack.enter_context(
                open_figures(arguments.parquet, options=options, period=_period(arguments))
            )
        engine = _open_chosen_engine(stack, arguments, jobs)
        chosen = _ChosenReplay(arguments, options, bar, figures=figures, engine=engine, jobs=jobs)
        return make_account(replays.take(chosen.run()))


class _ChosenReplay:
    """The replay of everything that a command names: files, a store, and what a folder of figures has."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        options: ReplayOptions,
        bar: _Bar,
        *,
        figures: FiguresFolder | None,
        engine: Engine | None,
        jobs: int,
    ) -> None:
        self._arguments = arguments
        self._options = options
        self._bar = bar
        self._figures = figures
        self._engine = engine
        self._jobs = jobs
        self._sessions = ReplayedSessions(bar.count_one)

    def run(self) -> Iterator[TraceReplay]:
        """Every session. What a folder of figures has already comes first."""
        arguments = self._arguments
        if arguments.limit:
            traces = _read_chosen(arguments, self._bar)
            for trace_replay in self._replay(traces):
                self._sessions.add(trace_replay)
                yield trace_replay
            return
        files = select_changed(find_files(arguments.paths), arguments.since)
        if self._figures is not None:
            files = self._figures.select_new(files)
            yield from self._figures.read()
        yield from self._replay_files(files)
        if arguments.store is not None:
            yield from self._replay_store()

    def _replay_files(self, files: Sequence[TraceFile]) -> Iterator[TraceReplay]:
        seen = None
        if self._figures is not None:
            seen = self._figures.seen()
        for file_replay in replay_files(
            files,
            self._options,
            jobs=self._jobs,
            engine=self._engine,
            period=_period(self._arguments),
            seen=seen,
            progress=self._bar.read,
            count=self._sessions.add,
        ):
            if self._figures is not None:
                self._figures.add(file_replay)
            yield from file_replay.replays

    def _replay_store(self) -> Iterator[TraceReplay]:
        replays = []
        for trace_replay in self._replay(
            read_stored_traces(self._arguments, period=_period(self._arguments))
        ):
            self._sessions.add(trace_replay)
            replays.append(trace_replay)
        if self._figures is not None:
            self._figures.add_stored(self._arguments.store, replays)
        yield from replays

    def _replay(self, traces: Iterable[Trace | UnreadableLine]) -> Iterator[TraceReplay]:
        return replay_each(traces, self._options, engine=self._engine, jobs=self._jobs)


def _period(arguments: argparse.Namespace) -> Period:
    return Period(arguments.since, arguments.until)


def _run_without_account(
    arguments: argparse.Namespace, *, policies: list[str], windows: list[int], rules: list[str]
) -> int:
    """Learn from the sessions, or have a model judge them, as the options ask."""
    with ProgressLine() as line:
        traces = _read_chosen(arguments, _Bar(line))
        if arguments.learn:
            return run_learned_replay(arguments, traces)
        return run_judged_replay(arguments, traces, policies=policies, windows=windows, rules=rules)


def _print_promises(account: ReplayAccount, arguments: argparse.Namespace) -> None:
    """Print what can be promised for each source and window. With `-`, JSON is all that is printed."""
    promises = promise_depths(account.outcomes, limit=arguments.hide_at_most)
    if not promises:
        raise BadInput(
            "no session fills the window, so no cut hides anything",
            place=", ".join(arguments.paths),
            hint="give a smaller --window",
        )
    if arguments.write:
        table = calibrate_depths(account.outcomes)
        write_file(arguments.write, msgspec.json.format(msgspec.json.encode(table), indent=1).decode() + "\n")
        tell(f"wrote {arguments.write}")
    if arguments.json == "-":
        emit(msgspec.to_builtins(promises))
        return
    for promise in promises:
        print(promise.line())
    if arguments.json:
        write_file(arguments.json, json.dumps(msgspec.to_builtins(promises), allow_nan=False) + "\n")
        tell(f"wrote {arguments.json}")


def _read_chosen(arguments: argparse.Namespace, bar: _Bar) -> Iterator[Trace | UnreadableLine]:
    """The sessions of the paths and of the store, up to the limit, drawn on the bar as they are read."""
    traces: list[Iterable[Trace | UnreadableLine]] = []
    if arguments.paths:
        traces.append(read_traces(arguments.paths, progress=bar.read, period=_period(arguments)))
    if arguments.store is not None:
        traces.append(read_stored_traces(arguments, period=_period(arguments)))
    return _limit_traces(chain.from_iterable(traces), arguments.limit)


def read_stored_traces(
    arguments: argparse.Namespace, *, period: Period = ALWAYS
) -> Iterator[Trace | UnreadableLine]:
    """What lamina recorded in a store, and the sessions in it, one after the other, with what counts of each.

    The store is opened for each, so that whoever writes to it does not wait for the replay.
    """
    workspace = find_gateway_workspace(arguments)
    for name in ask_store(arguments, partial(list_recorded, workspace=workspace)):
        stored = ask_store(arguments, partial(read_recorded, workspace=workspace, name=name))
        yield from _select_period([stored], period)
    yield from _select_period(LogSource(arguments).read(), period)


def _select_period(
    traces: Iterable[Trace | UnreadableLine], period: Period
) -> Iterator[Trace | UnreadableLine]:
    for trace in traces:
        if isinstance(trace, UnreadableLine) or period == ALWAYS:
            yield trace
            continue
        own_part = select_own(trace, frozenset(), period)
        if own_part is not None:
            yield own_part


def _open_chosen_engine(
    stack: contextlib.ExitStack, arguments: argparse.Namespace, jobs: int
) -> Engine | None:
    """The engine that is named; None for the processes of this machine, which the replay starts itself."""
    if arguments.engine == "local" and not arguments.cluster:
        return None
    return stack.enter_context(open_engine(arguments.engine, jobs=jobs, cluster=arguments.cluster))


def print_account(
    account: ReplayAccount, *, json_file: str | None, html_file: str | None, by: Sequence[str] = ()
) -> None:
    """Print an account, and write it to the files that are named.

    With `-` as the JSON file, JSON is all that is printed.
    """
    if html_file:
        write_file(html_file, page_writer()(account))
    if json_file == "-":
        emit(account_json(account, by=by))
        return
    print(account_text(account, by=by))
    if json_file:
        write_file(json_file, json.dumps(account_json(account, by=by), allow_nan=False) + "\n")
    for path in filter(None, (json_file, html_file)):
        tell(f"wrote {path}")


def page_writer() -> Callable[..., str]:
    """The function that writes the page. It needs a package that the default install does not have."""
    try:
        from lamina.replay.html import render_page  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise BadInput(str(error), place="--html", hint="or leave --html out") from None
    return render_page


def _chosen_policies(names: str) -> list[str]:
    """Policies by name; one with a colon is imported now, so that a mistake is reported before the replay."""
    imported = [name for name in _listed(names) if ":" in name]
    for name in imported:
        find_policy(name)
    return _chosen("--policy", names, [*POLICIES, *imported])


def _chosen(option: str, text: str, choices: Sequence[str]) -> list[str]:
    """The names between the commas of an option, each of which must be one of the choices."""
    names = _listed(text)
    hint = f"it is one of {', '.join(choices)}, or several with commas"
    if not names:
        raise BadInput(repr(text), place=option, hint=hint)
    for name in names:
        if name not in choices:
            raise BadInput(repr(name), place=option, hint=hint)
    return names


def _listed(names: str) -> list[str]:
    """Names between commas, each once."""
    stripped = (name.strip() for name in names.split(","))
    return list(dict.fromkeys(name for name in stripped if name))


def _windows(text: str) -> list[int]:
    """The windows that `--window` names, such as `auto,64000`. Raises BadInput for any other word."""
    windows = []
    for word in _listed(text):
        if word == AUTO:
            windows.append(OWN_WINDOW)
        elif word.isdecimal() and int(word) > 0:
            windows.append(int(word))
        else:
            windows.clear()
            break
    if not windows:
        hint = f"give {AUTO}, or whole numbers of tokens above 0, with commas: {AUTO},64000"
        raise BadInput(repr(text), place="--window", hint=hint)
    return windows


def _limit_traces(traces: Iterable[Trace | UnreadableLine], limit: int) -> Iterator[Trace | UnreadableLine]:
    """The first traces, and the lines between them that cannot be read; all of them if the limit is 0."""
    count = 0
    for trace in traces:
        yield trace
        if isinstance(trace, Trace):
            count += 1
        if limit and count >= limit:
            return


def _refuse_empty(account: ReplayAccount, paths: Sequence[str], *, period: Period) -> None:
    """Raise BadInput if there is nothing to compare, with what was found instead of sessions."""
    place = ", ".join(paths)
    if summarise(account).calls:
        return
    if period != ALWAYS and not account.damaged:
        hint = "give other days with --since and --until"
        raise BadInput("no call of it is in the period", place=place, hint=hint)
    if account.outcomes or account.reported:
        hint = "lamina explain and lamina inspect show what a request holds"
        raise BadInput("no model has answered in it, so there is no cost to compare", place=place, hint=hint)
    problem = "there is no session in it"
    if account.foreign:
        problem += f", but {count_noun(len(account.foreign), 'file')} of other things"
    if account.damaged:
        first = account.damaged[0]
        count = count_noun(len(account.damaged), "damaged record")
        problem = f"there is no session in it, but {count}; the first is {first.place}: {first.reason}"
    raise BadInput(problem, place=place, hint="see lamina replay --help for what can be read")


def _processors() -> int:
    """How many processors this program may use, which may be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Bar:
    """How far a replay is, on a terminal: the share of bytes read, sessions, and the time that is left.

    As a context it is drawn again each second: a long session gives no other sign of life.
    """

    def __init__(self, line: ProgressLine) -> None:
        self._line = line
        self._began = time.monotonic()
        self._share = 0.0
        self._sessions = 0
        self._done = threading.Event()
        self._clock = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Self:
        self._clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._clock.join()

    def read(self, done: int, total: int) -> None:
        self._share = 1.0
        if total:
            self._share = done / total
        self._draw()

    def count_one(self, trace_replay: TraceReplay) -> None:
        """One more session was replayed."""
        self._sessions += trace_replay.reported is not None
        self._draw()

    def _tick(self) -> None:
        while not self._done.wait(1.0):
            self._draw()

    def _draw(self) -> None:
        """Draw the bar over the last one."""
        full = round(BAR_WIDTH * self._share)
        drawn = f"[{'#' * full}{'.' * (BAR_WIDTH - full)}] {100 * self._share:.0f} %"
        seconds = time.monotonic() - self._began
        rest = describe_rest(seconds, self._share)
        self._line.draw(f"{drawn}, {count_noun(self._sessions, 'session')}, {seconds:.0f} s{rest}")
