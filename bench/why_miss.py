"""How often `part` names the right cause, on faults injected into recorded sessions, and how long it takes.

    python -m bench.why_miss PATH... [--each N] [--seed N] [--json FILE]
    python -m bench.why_miss --quick [--json FILE]

A path is a JSONL file of sessions, as for replay.py. Each fault of `tests.fixtures.faults` is injected at a
random place of a random session, N times for each dialect that the sessions are in, without the rules of a
cache and with them; each harmless change must report no loss. The time is CPU time of one comparison for a
megabyte of the later request, on requests of one to ten megabytes made of the same sessions.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.samples import QUICK_HELP, sample_sessions
from bench.simulators import rows
from lamina.caches import rules_for
from lamina.core.hashing import canonical_json
from lamina.diagnose import diff
from tests.fixtures.faults import FAULTS, Fault, damaged
from tests.fixtures.harmless import HARMLESS, Harmless, changed
from tests.fixtures.moves import mark

MODELS = {"anthropic": "claude-opus-5", "openai_chat": "gpt-6-sol"}
FORMATS = {"anthropic-messages": "anthropic", "openai-chat": "openai_chat"}
LEAST = 12  # messages: in a shorter session there is little to damage
TRIES = 40
SIZES = (1_000_000, 3_000_000, 10_000_000)

Json = dict[str, Any]


class Row(NamedTuple):
    name: str
    tried: int
    placed: int
    right: int
    wrong: dict[str, int]


def sessions(paths: Sequence[str]) -> dict[str, list[Json]]:
    """Requests by dialect, each a whole session."""
    found: dict[str, list[Json]] = {"anthropic": [], "openai_chat": []}
    for path in paths:
        for row in rows(Path(path)):
            dialect = FORMATS.get(row.get("format", "openai-chat"))
            if dialect and len(row.get("messages") or ()) >= LEAST:
                found[dialect].append(_request(row, dialect))
    return found


def _request(row: Json, dialect: str) -> Json:
    request = {"model": MODELS[dialect], "messages": row["messages"]}
    if dialect == "anthropic":
        request |= {"max_tokens": 1_000, "system": row.get("system") or "You work with care on one project."}
    tools = row.get("tools") or _tools(dialect)
    return {**request, "tools": tools}


def _tools(dialect: str) -> list[Json]:
    shape = {"type": "object", "properties": {"path": {"type": "string"}}}
    names = ("read_file", "write_file", "shell")
    if dialect == "anthropic":
        return [{"name": name, "input_schema": shape} for name in names]
    return [{"type": "function", "function": {"name": name, "parameters": shape}} for name in names]


def two_calls(request: Json, rng: Random) -> tuple[Json, Json] | None:
    """The request of one call of a session and that of the next, marked as applications do."""
    messages = request["messages"]
    roles = [message["role"] for message in messages]
    ends = [i for i in range(LEAST, len(messages)) if roles[i] == "assistant" and roles[i - 1] != "assistant"]
    if len(ends) < 2:
        return None
    at = rng.randrange(len(ends) - 1)
    copies = json.loads(json.dumps([{**request, "messages": messages[:end]} for end in ends[at : at + 2]]))
    for copy in copies:
        mark(copy)
    return copies[0], copies[1]


def faulty(fault: Fault, found: dict[str, list[Json]], each: int, seed: int) -> Row:
    """How often a fault is named, with its place and cause."""
    tried = placed = right = 0
    wrong: dict[str, int] = {}
    for dialect in fault.dialects:
        rng, done = Random(f"{seed} {fault.name} {dialect}"), 0  # noqa: S311 - the same places each time
        for _ in range(TRIES * each if found[dialect] else 0):
            calls = two_calls(rng.choice(found[dialect]), rng)
            pair = damaged(fault, *calls, rng) if calls else None
            if pair is None:
                continue
            rules = rules_for(MODELS[dialect], dialect=dialect)
            for one in (rules,) if fault.cached else (None, rules):
                parting = diff(pair.before, pair.after, rules=one, gap=pair.gap)
                there = parting.was.startswith(pair.place) or parting.entry.startswith(pair.place)
                tried, placed, right = tried + 1, placed + there, right + (parting.cause in fault.causes)
                if parting.cause not in fault.causes:
                    wrong[parting.cause] = wrong.get(parting.cause, 0) + 1
            done += 1
            if done == each:
                break
    return Row(fault.name, tried, placed, right, wrong)


def unharmed(harmless: Harmless, found: dict[str, list[Json]], each: int, seed: int) -> Row:
    """How often a harmless change is called a loss."""
    tried = right = 0
    wrong: dict[str, int] = {}
    for dialect in harmless.dialects:
        rng = Random(f"{seed} {harmless.name} {dialect}")  # noqa: S311 - the same places each time
        for _ in range(each if found[dialect] else 0):
            calls = two_calls(rng.choice(found[dialect]), rng)
            if calls is None:
                continue
            pair = changed(harmless, *calls, rng)
            rules = rules_for(MODELS[dialect], dialect=dialect)
            for one in (None, rules) if harmless.cached else (None,):
                parting = diff(pair.before, pair.after, rules=one)
                tried, right = tried + 1, right + parting.continues
                if not parting.continues:
                    wrong[parting.cause] = wrong.get(parting.cause, 0) + 1
    return Row(harmless.name, tried, right, right, wrong)


def timed(found: dict[str, list[Json]], sizes: Sequence[int]) -> list[tuple[str, float, float, float, float]]:
    """Dialect, megabytes, and milliseconds a megabyte: without and with rules, and of one JSON dump."""
    lines = []
    for dialect, requests in found.items():
        for size in sizes if requests else ():
            before, after = _large(requests, size)
            megabytes = len(canonical_json(after)) / 1e6
            rules = rules_for(MODELS[dialect], dialect=dialect)
            works: list[Callable[[], Any]] = [
                partial(diff, before, after),
                partial(diff, before, after, rules=rules),
                partial(json.dumps, after),
            ]
            plain, ruled, dump = (_best(work) / megabytes for work in works)
            lines.append((dialect, megabytes, plain, ruled, dump))
    return lines


def _large(requests: list[Json], size: int) -> tuple[Json, Json]:
    """Two requests of this size; the later one is changed in the middle and read anew, as after a restart."""
    messages: list[Json] = []
    total, at = 0, 0
    while total < size:
        more = requests[at % len(requests)]["messages"]
        messages += more
        total, at = total + len(canonical_json(more)), at + 1
    before = {**requests[0], "messages": messages}
    after = json.loads(json.dumps(before))
    after["messages"][len(messages) // 2] = {"role": "user", "content": "Something else."}
    return before, after


def _best(work: Callable[[], Any]) -> float:
    best = float("inf")
    for _ in range(5):
        gc.collect()
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best * 1000


def shown(title: str, lines: list[Row]) -> None:
    tried = sum(row.tried for row in lines)
    placed, right = (sum(getattr(row, name) for row in lines) for name in ("placed", "right"))
    print(f"{title:<42} {'tried':>6} {'place':>7} {'cause':>7}  named otherwise")
    for row in lines:
        if row.tried:
            wrong = ", ".join(f"{cause} {count}" for cause, count in row.wrong.items())
            shares = f"{row.placed / row.tried:>7.1%} {row.right / row.tried:>7.1%}"
            print(f"{row.name:<42} {row.tried:>6} {shares}  {wrong}".rstrip())
        else:
            print(f"{row.name:<42} {0:>6}")
    print(f"{'all':<42} {tried:>6} {placed / tried:>7.2%} {right / tried:>7.2%}\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--each", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    arguments = parser.parse_args()
    if arguments.quick:
        with sample_sessions(sessions=1, turns=4) as path:
            return judge(sessions([str(path)]), arguments, each=1, sizes=(50_000,))
    if not arguments.paths:
        parser.error("name recorded sessions, or say --quick")
    return judge(sessions(arguments.paths), arguments, each=arguments.each, sizes=SIZES)


def judge(
    found: dict[str, list[Json]], arguments: argparse.Namespace, *, each: int, sizes: Sequence[int]
) -> int:
    print(", ".join(f"{len(requests)} sessions of {dialect}" for dialect, requests in found.items()), "\n")
    faults = [faulty(fault, found, each, arguments.seed) for fault in FAULTS]
    shown("fault", faults)
    harmless = [unharmed(change, found, each, arguments.seed) for change in HARMLESS]
    shown("harmless change", harmless)
    times = timed(found, sizes)
    print(f"{'dialect':<14} {'MB':>6} {'ms/MB':>7} {'with rules':>11} {'json.dumps':>11}")
    for dialect, megabytes, plain, ruled, dump in times:
        print(f"{dialect:<14} {megabytes:>6.1f} {plain:>7.1f} {ruled:>11.1f} {dump:>11.1f}")
    if arguments.json:
        figures = {
            "faults": [row._asdict() for row in faults],
            "harmless": [row._asdict() for row in harmless],
            "times": times,
        }
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
