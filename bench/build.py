"""What a build costs, as ratios to one JSON dump of the same messages and to LangChain's `trim_messages`.

    python bench/build.py              the table
    python bench/build.py --json FILE  the same figures, to a file as well
    python bench/build.py --quick      a run of a second or two, to see that it works

The conversation is made up (`lamina.replay.generated_sessions`). All times are CPU time of this process,
the best of several runs, in the same process as what they are compared with: the ratios are the result, the
milliseconds only say what they are ratios of. A next-turn build gets the memo and the ledger of the build
before it; both are made anew for each run, so that nothing is counted as known that would not be.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import orjson

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.samples import QUICK_HELP
from lamina.core.build import build
from lamina.core.cut_target import BALANCED
from lamina.core.envelope import Envelope
from lamina.core.memo import BuildMemo
from lamina.core.tokens import ESTIMATE, Counter
from lamina.core.values import Budget, Role, Segment, Text, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.models.counters.openai import o200k
from lamina.replay.generated_sessions import generate_session, split_calls

SEED = 3
HUGE = 100_000_000


class Extent(NamedTuple):
    """How much is measured. `turns` are enough for the largest of `sizes`; `narrow` is a window."""

    messages: int = 2_004
    turns: int = 490
    sizes: tuple[int, ...] = (250, 500, 1_000, 2_000, 4_000, 8_000)
    narrow: int = 128_000


QUICK = Extent(messages=120, turns=16, sizes=(60, 120), narrow=16_000)

Log = tuple[Segment, ...]


class Row(NamedTuple):
    """One line of the table. `trim` is the ratio to `trim_messages` with the like counter and window."""

    what: str
    counter: str
    seconds: float
    dump: float
    trim: float | None = None


class Growth(NamedTuple):
    """Builds of one size, with the ratios to half that size; `long` is the next build in one long turn."""

    messages: int
    first: float
    next: float
    long: float
    ratios: tuple[float, float, float] | None = None


class Figures(msgspec.Struct):
    """Everything measured, in seconds. `counting` is o200k alone: on words it has not seen, and again."""

    messages: int
    segments: int
    tokens: int
    bytes: int
    dump: float
    counting: tuple[float, float]
    runs: int
    rows: list[Row]
    growth: list[Growth]
    session: list[dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Time builds against a JSON dump and against trim_messages.")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there as well")
    parser.add_argument("--runs", type=int, default=7, help="take the best of this many runs (default: 7)")
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    arguments = parser.parse_args()
    extent = QUICK if arguments.quick else Extent()
    runs = 1 if arguments.quick else max(arguments.runs, 1)
    figures = measure(runs, extent)
    print(written(figures))
    if arguments.json:
        arguments.json.write_text(json.dumps(msgspec.to_builtins(figures), indent=1) + "\n", encoding="utf-8")


def measure(runs: int, extent: Extent) -> Figures:
    whole = generate_session(SEED, turns=extent.turns)
    log = first_messages(whole, extent.messages)
    o200k().count("")  # loads the vocabulary
    messages = as_openai(log)
    counting = timed(lambda: counted(log, o200k())), timed(lambda: counted(log, o200k()))
    dump = best(lambda: orjson.dumps(messages), runs=5 * runs)
    rows = [row for counter in (o200k(), ESTIMATE) for row in builds(log, counter, dump, runs)]
    return Figures(
        messages=len(messages),
        segments=len(log),
        tokens=build(log, counter=o200k()).tokens,
        bytes=len(orjson.dumps(messages)),
        dump=dump,
        counting=counting,
        runs=runs,
        rows=rows,
        growth=list(growth(whole, runs, extent.sizes)),
        session=[whole_session(log, counter, extent.narrow) for counter in (o200k(), ESTIMATE)],
    )


def counted(log: Log, counter: Counter) -> int:
    return sum(counter.count(text_of(segment.parts)) for segment in log)


def builds(log: Log, counter: Counter, dump: float, runs: int) -> Iterator[Row]:
    """First and next builds: with room for everything, at the cut, after it; and LangChain beside them."""
    note(f"builds, {counter.name}")
    steps, prompts = ends(log, Role.TOOL), ends(log, Role.USER)
    wide, narrow = Budget(window=HUGE), crossing(steps, counter)
    first = {budget.window: partial(build, log, budget=budget, counter=counter) for budget in (wide, narrow)}
    yield from rows_of(
        {
            "room for all: first build": partial(best, first[wide.window], runs),
            "room for all: next step": lambda: next_build(steps, wide, counter, runs),
            "room for all: next prompt": lambda: next_build(prompts, wide, counter, runs),
        },
        counter, dump, trim(log, counter, wide, runs),
    )  # fmt: skip
    yield from rows_of(
        {
            "cut: first build": partial(best, first[narrow.window], runs),
            "cut: the build that cuts": lambda: next_build(steps[:-1], narrow, counter, runs, cuts=True),
            "cut: next step after it": lambda: next_build(steps, narrow, counter, runs),
        },
        counter, dump, trim(log, counter, narrow, runs),
    )  # fmt: skip


def rows_of(
    work: dict[str, Callable[[], float]], counter: Counter, dump: float, trimmed: float | None
) -> Iterator[Row]:
    for what, measured in work.items():
        seconds = measured()
        yield Row(what, counter.name, seconds, seconds / dump, seconds / trimmed if trimmed else None)
    if trimmed:
        yield Row("trim_messages", counter.name, trimmed, trimmed / dump, 1)


def ends(log: Log, role: Role) -> list[Log]:
    """The last four calls of the model of which the last one came after a message of `role`."""
    found = list(split_calls(log))
    while found[-1][-1].role is not role:
        found.pop()
    return found[-4:]


def crossing(steps: Sequence[Log], counter: Counter) -> Budget:
    """A budget whose trigger lies between the last call but two and the last but one."""
    before, after = (build(log, counter=counter).tokens for log in steps[1:3])
    trigger = Budget(window=HUGE).trigger
    window = int((before + after) / 2 / trigger)
    return Budget(window=window, reserve=0)


def next_build(
    logs: Sequence[Log], budget: Budget, counter: Counter, runs: int, *, cuts: bool = False
) -> float:
    """The last of these builds, each with what the one before it left."""
    return min(last_build(logs, budget, counter, cuts=cuts) for _ in range(runs))


def last_build(logs: Sequence[Log], budget: Budget, counter: Counter, *, cuts: bool) -> float:
    memo = BuildMemo()
    envelope = build(logs[0], budget=budget, counter=counter, memo=memo)
    for log in logs[1:-1]:
        envelope = build(log, budget=budget, counter=counter, memo=memo, ledger=envelope.ledger)
    gc.collect()
    begun = time.process_time()
    envelope = build(logs[-1], budget=budget, counter=counter, memo=memo, ledger=envelope.ledger)
    taken = time.process_time() - begun
    if (envelope.cut is not None) != cuts:
        sys.exit(f"expected {'a' if cuts else 'no'} cut, got {envelope.cut!r}")
    return taken


def best(work: Callable[[], object], runs: int) -> float:
    return min(timed(work) for _ in range(runs))


def timed(work: Callable[[], object]) -> float:
    gc.collect()
    begun = time.process_time()
    work()
    return time.process_time() - begun


def growth(whole: Log, runs: int, sizes: Sequence[int]) -> Iterator[Growth]:
    """Build of longer and longer logs: linear where twice the messages take twice the time."""
    wide, counter = Budget(window=HUGE), o200k()
    single = one_turn(whole)
    last: Growth | None = None
    for size in sizes:
        note(f"growth, {size:,} messages")
        steps = ends(first_messages(whole, size), Role.TOOL)
        now = Growth(
            messages=size,
            first=best(partial(build, steps[-1], budget=wide, counter=counter), runs),
            next=next_build(steps, wide, counter, runs),
            long=next_build(ends(first_messages(single, size), Role.TOOL), wide, counter, runs),
        )
        if last:
            ratios = (now.first / last.first, now.next / last.next, now.long / last.long)
            now = now._replace(ratios=ratios)
        yield now
        last = now


def one_turn(log: Log) -> Log:
    """The same work, asked for once: without the later prompts and the replies before them."""
    spoken = [s for s, after in zip(log, (*log[1:], None), strict=True) if not ends_turn(s, after)]
    prompt = next(i for i, s in enumerate(spoken) if s.role is Role.ASSISTANT)
    return tuple(spoken[:prompt] + [s for s in spoken[prompt:] if s.role is not Role.USER])


def ends_turn(segment: Segment, after: Segment | None) -> bool:
    return segment.role is Role.ASSISTANT and (after is None or after.role is Role.USER)


def whole_session(log: Log, counter: Counter, window: int) -> dict[str, Any]:
    """Every call of the session in a narrow window, one build after the other."""
    note(f"a whole session, {counter.name}")
    memo, budget = BuildMemo(), Budget(window=window)
    envelope: Envelope | None = None
    logs, times = list(split_calls(log)), []
    for prefix in logs:
        begun = time.process_time()
        envelope = following(prefix, envelope, budget, counter, memo)
        times.append(time.process_time() - begun)
    cuts = len(envelope.ledger.cuts) if envelope else 0
    ordered = sorted(times)
    return {
        "counter": counter.name,
        "window": window,
        "calls": len(logs),
        "cuts": cuts,
        "seconds": sum(times),
        "median": ordered[len(ordered) // 2],
        "longest": ordered[-1],
    }


def following(log: Log, last: Envelope | None, budget: Budget, counter: Counter, memo: BuildMemo) -> Envelope:
    if last is None:
        return build(log, budget=budget, counter=counter, memo=memo)
    return build(log, budget=budget, counter=counter, memo=memo, ledger=last.ledger)


def first_messages(log: Log, count: int) -> Log:
    """The longest beginning with at most `count` messages that ends where the model is called."""
    opened = end = 0
    for i, (segment, after) in enumerate(pairwise(log), 1):
        opened += not segment.joins
        if opened > count:
            return log[:end]
        if after.role is Role.ASSISTANT and segment.role is not Role.ASSISTANT:
            end = i
    sys.exit(f"the session has {opened:,} messages, {count:,} are wanted: raise Extent.turns")


def as_openai(log: Log) -> list[dict[str, Any]]:
    """The log as the list of messages that goes to a chat completions endpoint."""
    messages: list[dict[str, Any]] = []
    for segment in log:
        match segment.parts[0]:
            case ToolCall(id=name) as call:
                if not segment.joins:
                    messages.append({"role": "assistant", "content": ""})
                function = {"name": call.name, "arguments": call.arguments}
                calls_made = messages[-1].setdefault("tool_calls", [])
                calls_made.append({"id": name, "type": "function", "function": function})
            case ToolResult() as result:
                text = text_of(result.content)
                messages.append({"role": "tool", "tool_call_id": result.id, "content": text})
            case Text(text=text):
                messages.append({"role": segment.role.value, "content": text})
    return messages


def trim(log: Log, counter: Counter, budget: Budget, runs: int) -> float | None:
    """LangChain's `trim_messages` on the same log and window, with its own count beside our estimate."""
    theirs = langchain()
    if theirs is None:
        return None
    messages = theirs.convert_to_messages(as_openai(log))

    def exactly(some: list[Any]) -> int:
        return sum(counter.count(message.text) + counter.count(called(message)) for message in some)

    count = exactly if counter.exact else theirs.utils.count_tokens_approximately
    left = int(budget.window * BALANCED.highest // 100)  # what a cut of ours leaves standing
    options = {"token_counter": count, "max_tokens": left, "include_system": True, "start_on": "human"}
    theirs.trim_messages(messages, **options)  # what it imports when first called is not what it costs
    return best(lambda: theirs.trim_messages(messages, **options), runs)


@cache
def langchain() -> Any:
    """LangChain's messages, or None where it is not installed."""
    try:
        return importlib.import_module("langchain_core.messages")
    except ImportError:
        note("langchain-core is not installed: no comparison with it (make deps installs it)")
        return None


def called(message: Any) -> str:
    return "".join(f"{call['name']}{call['args']}" for call in getattr(message, "tool_calls", ()))


def note(text: str) -> None:
    """Say on the side what goes on: the whole takes a while."""
    print(text, file=sys.stderr, flush=True)


def written(figures: Figures) -> str:
    f, (cold, warm) = figures, figures.counting
    lines = [
        f"{f.messages:,} messages, {f.segments:,} segments, {f.tokens:,} tokens (o200k), {f.bytes:,} bytes",
        f"one orjson.dumps of the messages: {f.dump * 1e3:.2f} ms; CPU time, best of {f.runs} runs",
        f"counting alone, o200k: {cold * 1e3:.0f} ms at first, {warm * 1e3:.0f} ms once its words are cached",
        "",
        f"{'counter':<15} {'':<28} {'ms':>8} {'x dump':>8} {'x trim_messages':>16}",
    ]
    for r in f.rows:
        trimmed = f"{r.trim:.3f}" if r.trim is not None else "-"
        lines.append(f"{r.counter:<15} {r.what:<28} {r.seconds * 1e3:8.2f} {r.dump:8.2f} {trimmed:>16}")
    return "\n".join([*lines, "", *written_growth(f.growth), "", *map(written_session, f.session)])


def written_growth(rows: Sequence[Growth]) -> Iterator[str]:
    yield "growth (o200k, room for all), in ms, and the ratio to half the messages"
    yield f"{'messages':>8} {'first build':>18} {'next step':>18} {'next, one turn':>18}"
    for row in rows:
        times = (row.first, row.next, row.long)
        ratios = [f"{ratio:.2f}" for ratio in row.ratios] if row.ratios else ["", "", ""]
        cells = (f"{seconds * 1e3:12.2f} {ratio:>5}" for seconds, ratio in zip(times, ratios, strict=True))
        yield f"{row.messages:>8,} " + " ".join(cells)


def written_session(run: dict[str, Any]) -> str:
    return (
        f"all {run['calls']:,} calls in a window of {run['window']:,}, {run['counter']}: {run['cuts']} cuts, "
        f"{run['seconds']:.2f} s in all, {run['median'] * 1e3:.2f} ms a build (median), "
        f"{run['longest'] * 1e3:.0f} ms the longest"
    )


if __name__ == "__main__":
    main()
