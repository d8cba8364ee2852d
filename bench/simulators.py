"""Simulated caches against what providers reported: recorded sessions with the usage of each model call.

    python bench/simulators.py PATH... [--json FILE]
    python bench/simulators.py --quick [--json FILE]

A path is a JSONL file (also .gz, or .zst where `zstandard` or the `zstd` command is installed), or a folder
of them. Each line is a session: `messages` in the chat format, `meta.model`, `meta.usage` (for the index of
an assistant message: input_tokens, cache_read, cache_write and the time `ts`), and perhaps `meta.events` with
`compact_boundary`. Records lack what stands before the messages, so that head is one block whose tokens are
fitted for each session. Where a cache takes markers, they stand at the end of the head, of the last request
and of this one, with each lifetime, and with the one that fits the session. A session's first call is left
out: what it reads was written by another session.

A miss: less was read than half of what the call before it had sent. Printed for each cache: how many misses
there were, precision and recall of the simulated ones, the mean error of the read share beside that of the
constant predictor (the mean share of that cache), and what the misses that disagree have in common.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import io
import json
import statistics
import subprocess
import sys
from collections import Counter as Tally
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.samples import QUICK_HELP, sample_sessions
from lamina.caches import CacheRules, Stream, StreamBlock, rules_for, simulator
from lamina.core.tokens import estimate_for
from lamina.dialects import DIALECTS
from lamina.errors import BadInput
from lamina.models import model

HALF = 0.5


class Call(NamedTuple):
    """What a provider reported of one call, and its messages: from `first` to before `end`."""

    first: int
    end: int
    read: int
    total: int
    at: float | None


class Judged(NamedTuple):
    """One call, reported and simulated: shares of the prompt that were read, misses, and the idle seconds."""

    share: float
    simulated: float
    missed: bool
    foretold: bool
    idle: float
    why: str


def main() -> int:
    options = _options()
    if not options.quick:
        return judge_all(options)
    with sample_sessions(sessions=2, turns=3) as path:
        options.paths = [path]
        return judge_all(options)


def judge_all(options: argparse.Namespace) -> int:
    found: dict[str, list[Judged]] = {}
    files = [
        p for path in options.paths for p in ([path] if path.is_file() else sorted(path.glob("*.jsonl*")))
    ]
    for done, path in enumerate(files, start=1):
        for row in rows(path):
            for name, rules in contenders(row):
                found.setdefault(name, []).extend(judged(row, rules))
        print(f"\r{done} of {len(files)} files", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    table = {name: summary(calls) for name, calls in sorted(found.items()) if calls}
    _print(table)
    if options.json:
        options.json.write_text(json.dumps(table, indent=1))
    return 0


def contenders(row: dict[str, Any]) -> Iterator[tuple[str, CacheRules]]:
    """The rules for a session; where markers have lifetimes that the records do not tell, each of them."""
    if not row["meta"].get("usage"):
        return
    rules = rules_for(row["meta"].get("model") or "")
    if rules.match == "breakpoints":
        for word in rules.lifetimes:
            yield f"{rules.name}, {word}", msgspec.structs.replace(rules, lifetime=word)
        word = _lifetime(reported(row))
        yield f"{rules.name}, fitted lifetime", msgspec.structs.replace(rules, lifetime=word)
    else:
        yield rules.name, rules


def judged(row: dict[str, Any], rules: CacheRules) -> list[Judged]:
    calls = reported(row)
    if len(calls) < 3:
        return []
    blocks = weighed(row)
    sums = [sum(block.tokens for group in blocks[call.first : call.end] for block in group) for call in calls]
    scale = _slope(sums, [call.total for call in calls])
    head = max(int(statistics.median(c.total - scale * s for c, s in zip(calls, sums, strict=True))), 0)
    cache, result, tail = simulator(rules), [], ""
    before: tuple[Call, int] | None = None
    for call in calls:
        inside = [block for group in blocks[call.first : call.end] for block in group]
        sent = _stream(row["meta"]["model"], inside, rules, head=head, scale=scale, tail=tail)
        tally = cache.send(sent, at=call.at or 0.0)
        tail = sent.blocks[-1].place
        if before is not None:
            last, last_total = before
            idle = (call.at or 0.0) - (last.at or 0.0)
            simulated = tally.read / max(tally.total, 1)
            foretold = tally.read < HALF * min(last_total, tally.total)
            missed = call.read < HALF * min(last.total, call.total)
            why = _common(last, call, head, idle)
            result.append(Judged(call.read / call.total, simulated, missed, foretold, idle, why))
        before = call, tally.total
    return result


def reported(row: dict[str, Any]) -> list[Call]:
    """The calls of a session in order; each begins anew where the client compacted its history."""
    cuts = sorted(
        e.get("index", 0) for e in row["meta"].get("events") or () if "boundary" in e.get("type", "")
    )
    calls = []
    for used in row["meta"]["usage"]:
        end = used["index"]
        total = sum(used.get(field) or 0 for field in ("input_tokens", "cache_read", "cache_write"))
        if total and end:
            first = max((cut for cut in cuts if cut < end), default=0)
            calls.append(Call(first, end, used.get("cache_read") or 0, total, _seconds(used.get("ts"))))
    return calls


def _lifetime(calls: list[Call]) -> str:
    """The lifetime that a session's own idle gaps speak for; the short one where there are none."""
    speaks = Tally[bool]()
    for last, call in pairwise(calls):
        if call.first == last.first and 300 < (call.at or 0.0) - (last.at or 0.0) < 3600:
            speaks[call.read >= HALF * last.total] += 1
    return "1h" if speaks[True] > speaks[False] else "5m"


def weighed(row: dict[str, Any]) -> list[list[StreamBlock]]:
    """The blocks of each message, with estimated tokens."""
    request = {"model": row["meta"].get("model") or "", "messages": row["messages"]}
    try:
        count = estimate_for(model(request["model"]).family).count
    except BadInput:
        count = estimate_for("o200k").count
    stream = DIALECTS["openai_chat"].cache.stream(request)
    groups: list[list[StreamBlock]] = [[] for _ in row["messages"]]
    for block in stream.blocks:
        number = int(block.place.split("[", 1)[1].split("]", 1)[0])
        tokens = count(block.data.decode("utf-8", "replace"))
        groups[number].append(msgspec.structs.replace(block, tokens=tokens))
    return groups


def _stream(
    name: str, blocks: list[StreamBlock], rules: CacheRules, *, head: int, scale: float, tail: str
) -> Stream:
    """A request: the head that the records lack, then these blocks, marked where the cache takes markers."""
    marks = {tail, blocks[-1].place} if rules.match == "breakpoints" else set()
    first = StreamBlock(sort="system", role="system", data=b"head", place="head", opens=True, tokens=head)
    if rules.match == "breakpoints":
        first = msgspec.structs.replace(first, marker=rules.lifetime)
    sized = (
        msgspec.structs.replace(
            block, tokens=int(block.tokens * scale), marker=rules.lifetime if block.place in marks else ""
        )
        for block in blocks
    )
    return Stream(dialect="openai_chat", model=name, blocks=(first, *sized))


def _slope(counted: list[int], totals: list[int]) -> float:
    """Reported tokens for a counted one, within the calls of one session."""
    if len(set(counted)) < 3:
        return 1.0
    return min(max(statistics.linear_regression(counted, totals).slope, 0.5), 2.0)


def _common(last: Call, call: Call, head: int, idle: float) -> str:
    """What is known of a call beside what was read: a candidate for why it missed."""
    known = (
        (call.first != last.first, "the client compacted its history"),
        (call.total < 0.9 * last.total, "the client sent less than before"),
        (idle > 3600, "idle for over an hour"),
        (idle > 300, "idle for 5 to 60 minutes"),
        (call.total < 4096, "under 4,096 tokens"),
        (call.read == 0, "nothing was read"),
        (call.read <= head * 1.1, "the head was read, and no message"),
        (True, "a part of the messages was read"),
    )
    return next(why for holds, why in known if holds)


def summary(calls: list[Judged]) -> dict[str, Any]:
    missed, foretold = sum(c.missed for c in calls), sum(c.foretold for c in calls)
    both = sum(c.missed and c.foretold for c in calls)
    mean = statistics.fmean(c.share for c in calls)
    return {
        "calls": len(calls),
        "read share": mean,
        "misses": missed,
        "precision": both / foretold if foretold else None,
        "recall": both / missed if missed else None,
        "error": statistics.fmean(abs(c.share - c.simulated) for c in calls),
        "error of the constant": statistics.fmean(abs(c.share - mean) for c in calls),
        "median error": statistics.median(abs(c.share - c.simulated) for c in calls),
        "misses not foretold": dict(Tally(c.why for c in calls if c.missed and not c.foretold).most_common()),
        "foretold, but read": dict(Tally(c.why for c in calls if c.foretold and not c.missed).most_common()),
        "misses foretold": dict(Tally(c.why for c in calls if c.foretold and c.missed).most_common()),
    }


def rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as raw:
        stream: Any = raw
        if path.suffix == ".gz":
            stream = gzip.open(raw)  # noqa: SIM115 - it reads from `raw`, which is closed
        elif path.suffix == ".zst":
            stream = _unpacked(raw)
        for line in io.TextIOWrapper(stream, "utf-8"):
            yield json.loads(line)


def _unpacked(raw: Any) -> Any:
    try:
        zstandard: Any = importlib.import_module("zstandard")  # only where a file needs it
    except ImportError:
        unpacked = subprocess.run(["zstd", "-dc", "--long=27"], stdin=raw, capture_output=True, check=True)  # noqa: S607
        return io.BytesIO(unpacked.stdout)
    return zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(raw)


def _seconds(moment: str | None) -> float | None:
    return datetime.fromisoformat(moment).timestamp() if moment else None


def _print(table: dict[str, dict[str, Any]]) -> None:
    columns = ("calls", "read share", "misses", "precision", "recall", "error", "error of the constant")
    print("| cache |" + "".join(f" {column} |" for column in columns))
    print("|---|" + "--:|" * len(columns))
    for name, row in table.items():
        print(f"| {name} |" + "".join(f" {_shown(row[column])} |" for column in columns))
    for name, row in table.items():
        for kind in ("misses not foretold", "foretold, but read", "misses foretold"):
            print(f"{name}, {kind}: " + (", ".join(f"{why} {n}" for why, n in row[kind].items()) or "none"))


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:.1%}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Simulated caches against what providers reported.")
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--json", type=Path, help="write the table to this file, too")
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    options = parser.parse_args()
    if not options.paths and not options.quick:
        parser.error("name recorded sessions, or say --quick")
    return options


if __name__ == "__main__":
    sys.exit(main())
