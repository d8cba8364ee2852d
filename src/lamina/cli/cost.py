"""`lamina cost`: what sessions cost, what `lamina run` would have saved, and where caches were lost.

Readers of logs and of a store fill one table of requests; everything that is printed is a query of it
(`lamina.costs`).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec

from lamina.cli.files import check_folder, print_with_json, refuse_databases
from lamina.cli.output import ProgressLine, show, tell
from lamina.cli.parser import read_moment, whole_number
from lamina.cli.stored import add_store, ask_store, find_gateway_workspace
from lamina.core.text.characters import make_printable
from lamina.costs.logs import TraceFile, file_size, find_files
from lamina.costs.logs.files import select_changed
from lamina.costs.logs.logged_requests import PricedFile, give_up_file, price_file
from lamina.costs.logs.own_answers import WITHOUT_TIMES
from lamina.costs.logs.recorded_conversations import list_recorded
from lamina.costs.logs.stored_requests import price_stored
from lamina.costs.logs.values import UnreadableLine
from lamina.costs.mapped_files import ENGINES, map_files
from lamina.costs.report import GROUPINGS, cost_lines, costs_as_json
from lamina.costs.table import RequestTable
from lamina.dialects.usage import count_noun
from lamina.errors import BadInput

__all__ = ["describe", "run"]

MOST_LISTED = 8
"""Damaged places that the terminal shows. The JSON has all."""

BAR_WIDTH = 30

_FORMER = {
    "--policy": "the lab simulates them: bench/policies.py in a checkout",
    "--window": "the lab simulates them: bench/policies.py in a checkout",
    "--model": "what was recorded is priced as the model that answered",
    "--rules": "what was recorded is priced by the rules of the provider that answered",
    "--parquet": "use --table FILE.parquet",
}
"""Options that `lamina replay` had, each with what to do instead."""

_EXAMPLES = """\
PATH is a file, a folder, a glob or a URL such as s3://bucket/logs (extra: cost): requests and answers of
OpenAI and Anthropic as JSON lines, sessions of Claude Code, rollouts of Codex, and what
`lamina store export` wrote; also as .gz and .zst. The format is recognised by the content of each
line. With --store, the conversations of a store are read: what lamina recorded of the requests that went
through it. Nothing is sent anywhere, and no model is asked.

examples:
  lamina cost ~/.claude/projects ~/.codex/sessions
  lamina cost --store
  lamina cost ~/.claude/projects --since 7d --by project,model
  lamina cost logs/ --table requests.db
  lamina cost 's3://logs/*.zst' --engine dask --address tcp://10.0.0.5:8786

exit status: 0 done, 2 there is nothing to read
"""


def describe(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add("paths", metavar="PATH", nargs="*", help="files, folders, globs or URLs of recorded sessions")
    add_store(parser, alone=True)
    add("--since", metavar="DATE", type=read_moment, help="only calls since a date (2026-11-01), or 7d, 12h")
    add("--by", metavar="G,...", default="", help=f"also what groups cost: {', '.join(GROUPINGS)}")
    add("--json", metavar="FILE", help="write every figure as JSON; - is standard output, without the text")
    add(
        "--table",
        metavar="FILE",
        help="write the table of requests: SQLite, or Parquet if its name ends so (extra: cost)",
    )
    add("--engine", choices=ENGINES, default="local", help="who reads the files (extras: dask, ray)")
    add("--address", metavar="A", default="", help="the cluster; without one, workers of this machine")
    add("--jobs", metavar="N", type=whole_number, default=0, help="processes (default: one a processor)")
    for option, advice in _FORMER.items():
        add(option, help=argparse.SUPPRESS, type=partial(_refuse_former, advice=advice))


def _refuse_former(_value: str, *, advice: str) -> NoReturn:
    raise argparse.ArgumentTypeError(f"there is no such option any more: {advice}")


def run(arguments: argparse.Namespace) -> int:
    groups = _read_groups(arguments.by)
    refuse_databases(arguments.paths, hint="a store is read with --store")
    if not arguments.paths and arguments.store is None:
        hint = "name files or folders with recorded sessions, or a store with --store"
        raise BadInput("there is nothing to read", place="PATH", hint=hint)
    check_folder(arguments.json)
    check_folder(arguments.table)
    table = RequestTable()
    skipped: list[UnreadableLine] = []
    try:
        _fill(table, skipped, arguments)
    except KeyboardInterrupt:
        _print_interrupted(table, arguments, groups)
        raise
    _refuse_empty(table, skipped, arguments)
    lines = [*cost_lines(table, groups), *_list_skipped(skipped)]
    facts = costs_as_json(table, groups)
    facts["damaged"] = msgspec.to_builtins([line for line in skipped if not line.foreign])
    facts["foreign"] = msgspec.to_builtins([line for line in skipped if line.foreign])
    print_with_json("\n".join(lines).rstrip("\n"), facts, arguments.json)
    if arguments.table:
        table.save(Path(arguments.table))
        tell(f"wrote {arguments.table}")
    return 0


def _read_groups(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in GROUPINGS:
            hint = f"it is one of {', '.join(GROUPINGS)}, or several with commas"
            raise BadInput(repr(name), place="--by", hint=hint)
    return names


def _fill(table: RequestTable, skipped: list[UnreadableLine], arguments: argparse.Namespace) -> None:
    """Read what the command names. A conversation in the store is not read again from its client's log."""
    if arguments.store is not None:
        _fill_from_store(table, skipped, arguments)
    files = select_changed(find_files(arguments.paths), arguments.since)
    for priced in _read_files(files, arguments):
        table.add(priced.requests)
        skipped += priced.skipped
    table.drop_recorded()


def _fill_from_store(
    table: RequestTable, skipped: list[UnreadableLine], arguments: argparse.Namespace
) -> None:
    """The store is opened for each conversation, so that whoever writes to it does not wait."""
    workspace = find_gateway_workspace(arguments)
    since = arguments.since or 0.0
    for name in ask_store(arguments, partial(list_recorded, workspace=workspace)):
        requests = ask_store(arguments, partial(price_stored, workspace=workspace, name=name))
        if isinstance(requests, UnreadableLine):
            skipped.append(requests)
            continue
        table.add(request for request in requests if (request.at or since) >= since)


def _read_files(files: Sequence[TraceFile], arguments: argparse.Namespace) -> Iterator[PricedFile]:
    """Every file in order, with a bar on a terminal."""
    sizes = [file_size(file) for file in files]
    done = 0
    priced_files = map_files(
        partial(price_file, since=arguments.since),
        files,
        give_up_file,
        engine=arguments.engine,
        address=arguments.address,
        jobs=arguments.jobs or _count_processors(),
    )
    with ProgressLine() as line:
        for size, priced in zip(sizes, priced_files, strict=True):
            done += size
            share = done / max(sum(sizes), 1)
            full = round(BAR_WIDTH * share)
            line.draw(f"[{'#' * full}{'.' * (BAR_WIDTH - full)}] {100 * share:.0f} %, {priced.file}")
            yield priced


def _count_processors() -> int:
    """How many processors this program may use, which may be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _print_interrupted(table: RequestTable, arguments: argparse.Namespace, groups: Sequence[str]) -> None:
    """Print what was read until Ctrl-C. No file is written, and no JSON: they would look whole."""
    conversations = table.sum("count(distinct file || ' ' || root)")
    if arguments.json == "-" or not conversations:
        return
    show(*cost_lines(table, groups))
    tell(f"stopped by Ctrl-C: this is of {count_noun(conversations, 'conversation')}, not of all of them")


def _refuse_empty(
    table: RequestTable, skipped: Sequence[UnreadableLine], arguments: argparse.Namespace
) -> None:
    """Raise BadInput if there is no request, with what was found instead."""
    if table.sum("count(*)"):
        return
    places = list(arguments.paths)
    if arguments.store is not None:
        places.append(arguments.store or "your store")
    place = ", ".join(places)
    damaged = [line for line in skipped if not line.foreign]
    if arguments.since is not None and not damaged:
        raise BadInput("none of its calls is so new", place=place, hint="give an earlier day with --since")
    problem = "there is no call of a model in it"
    if damaged:
        count = count_noun(len(damaged), "damaged record")
        problem += f", but {count}; the first is {damaged[0].place}: {damaged[0].reason}"
    elif skipped:
        problem += f", but {count_noun(len(skipped), 'file')} of other things"
    raise BadInput(problem, place=place, hint="see lamina cost --help for what can be read")


def _list_skipped(skipped: Sequence[UnreadableLine]) -> list[str]:
    """What could not be read, each with its place and the reason, and what was passed over."""
    lines: list[str] = []
    damaged = [line for line in skipped if not line.foreign]
    if damaged:
        lines.append(f"{len(damaged):,} damaged, and skipped")
        lines += [make_printable(f"  {line.place}: {line.reason}") for line in damaged[:MOST_LISTED]]
    if len(damaged) > MOST_LISTED:
        lines.append(f"  and {len(damaged) - MOST_LISTED:,} more places; the JSON file has all")
    untimed = sum(line.reason == WITHOUT_TIMES for line in skipped)
    foreign = len(skipped) - len(damaged) - untimed
    if foreign:
        lines.append(f"passed over, since they hold no session: {count_noun(foreign, 'file')}")
    if untimed:
        lines.append(f"left out, since they have no times: {count_noun(untimed, 'session')}")
    return lines
