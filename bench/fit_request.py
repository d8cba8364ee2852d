"""What `fit_request` costs at each size of a conversation, as ratios to one JSON round trip of its request.

    python bench/fit_request.py [--sizes N,N] [--dialects A,B] [--runs N] [--proxy] [--quick]
                                [--json FILE] [--history FILE]
    python bench/fit_request.py --guard       what CI runs, in less than 20 seconds

CPU time of this process, the best of several runs, in one run with what it is compared with. The conversation
is made up: a question, a call, its result, an answer, and so on. Columns, per dialect and number of messages:

    json        one round trip of the request, in milliseconds
    count       counting all its text once with the exact counter of OpenAI's models
    first       a call without a memo and without a ledger, as after a restart
    next        a turn later, with the memo and the ledger of the call before; the median of some turns
    frozen      the same with `RequestMemo(frozen=True)`: nobody changes a message in place
    next ms     the same in milliseconds, which should not grow with the conversation
    cut         a call that has to make a cut, in a window of two thirds of the request
    after       the next turn after it
    trim        LangChain's `trim_messages` with the same counter, if it is installed

With `--proxy`, the CPU of the gateway for a request is printed as well, as a ratio to that of a plain proxy
(`gateway.py`). `--history` is a file to which the ratios of each run are added, a line for each. A ratio that
differs by more than a fifth from its median in the last runs is named; nothing fails, since the machine may
be the cause. `--guard` keeps its history in build/ratios.jsonl.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.arguments import split_numbers
from bench.samples import QUICK_HELP
from lamina.core.build import build
from lamina.core.values import Ledger, RequestHead, Segment
from lamina.dialects import DIALECTS
from lamina.errors import BadInput
from lamina.fitting import Policy, RequestMemo, fit_request
from lamina.models.counters.openai import o200k
from lamina.segments import assistant, call, result, system, user

HUGE = 100_000_000
SIZES = "100,1000,10000,50000"
LARGEST_CUT = 10_000
"""Messages above which no cut is measured, unless told otherwise: it takes a minute."""

CHANGED = 0.2
"""A change of a ratio by more than this share is named. Less may be the machine."""

REMEMBERED = 5
"""Runs of the history with whose median a ratio is compared."""

TURNS = 5
"""Turns of which the median is what the next turn takes."""

GUARD = {
    "sizes": (100, 1_000, 10_000),
    "dialects": "openai_chat,anthropic",
    "runs": 1,
    "largest_cut": 1_000,
    "proxy": True,
    "history": Path("build/ratios.jsonl"),
}
"""What `--guard` measures."""

FIELDS: dict[str, tuple[str, dict[str, Any]]] = {
    "anthropic": ("messages", {"model": "claude-sonnet-4-5", "max_tokens": 4_000}),
    "openai_chat": ("messages", {"model": "gpt-5"}),
    "openai_responses": ("input", {"model": "gpt-5"}),
    "gemini": ("contents", {"model": "gemini-2.5-pro"}),
    "bedrock_converse": ("messages", {"modelId": "anthropic.claude-sonnet-4-5-20250929-v1:0"}),
    "ollama": ("messages", {"model": "llama3.1"}),
    "text": ("prompt", {"model": "davinci-002"}),
}
"""Where each dialect has its messages, and what else its requests need."""

Request = dict[str, Any]


def make_log(messages: int) -> list[Segment]:
    """A made-up session of a coding agent with about so many messages."""
    log = [system("You are a coding agent. Answer briefly.")]
    for number in range(messages // 4):
        path = f"src/part_{number % 97}/module_{number}.py"
        body = "".join(f"def step_{number}_{line}(value): return value + {line}\n" for line in range(6))
        log += [
            user(f"Why does {path} fail since build {number}? Look at it before you answer."),
            call("read_file", {"path": path}, id=f"call_{number}"),
            result(body, id=f"call_{number}", name="read_file"),
            assistant(f"In {path} the function step_{number}_3 adds {number % 7} too much."),
        ]
    return log


def make_requests(dialect: str, messages: int, turns: int) -> list[Request]:
    """The request of this size and those of some turns before it, each ending with a question."""
    field, others = FIELDS[dialect]
    log = make_log(messages + 4)[: messages + 2]

    def write(end: int) -> Request:
        envelope = build(log[:end], head=RequestHead(parameters=dict(others)))
        return {**DIALECTS[dialect].wire.render(envelope), **others}

    whole = write(len(log))
    if not isinstance(whole[field], list):
        return [write(len(log) - 4 * turn) for turn in range(turns, 0, -1)] + [whole]
    # A client that keeps its list of messages sends the same objects again. Each turn has four of them.
    end = len(whole[field])
    return [{**whole, field: whole[field][: end - 4 * turn]} for turn in range(turns, -1, -1)]


def measure(work: Callable[[], Any], runs: int) -> float:
    return min(_time(work) for _ in range(runs))


def _time(work: Callable[[], Any]) -> float:
    gc.collect()
    started = time.process_time()
    work()
    return time.process_time() - started


def fit(request: Request, dialect: str, **arguments: Any) -> Any:
    return fit_request(request, dialect=dialect, policy=Policy(counter=o200k()), **arguments)


def next_turn(requests: list[Request], dialect: str, window: int, *, frozen: bool = False) -> float:
    """A turn after the first ones: the median of the later requests."""
    memo = RequestMemo(frozen=frozen)
    ledger = Ledger()
    times: list[float] = []
    for request in requests:
        started = time.process_time()
        ledger = fit(request, dialect, budget=window, ledger=ledger, memo=memo).ledger
        times.append(time.process_time() - started)
    return statistics.median(times[2:])


def measure_row(dialect: str, messages: int, runs: int, largest_cut: int) -> dict[str, float]:
    """Seconds of everything, for one dialect and one number of messages."""
    requests = make_requests(dialect, messages, turns=TURNS)
    whole = requests[-1]
    started = time.process_time()
    fitted = fit(whole, dialect, budget=HUGE)
    first = time.process_time() - started
    texts = [repr(segment.parts) for segment in fitted.log]
    count = o200k().count
    row = {
        "json": measure(lambda: orjson.loads(orjson.dumps(whole)), runs * 3),
        "count": measure(lambda: list(map(count, texts)), runs),
        "first": min([first, *(_time(lambda: fit(whole, dialect, budget=HUGE)) for _ in range(runs - 1))]),
        "next": next_turn(requests, dialect, HUGE),
        "frozen": next_turn(requests, dialect, HUGE, frozen=True),
    }
    if messages <= largest_cut:
        window = fitted.envelope.tokens * 2 // 3
        row["cut"] = measure(lambda: fit(whole, dialect, budget=window), 1)
        row["after"] = next_turn(requests, dialect, window)
    if dialect == "openai_chat" and messages <= LARGEST_CUT:
        row |= _measure_trim(whole, runs)
    return row


def _measure_trim(whole: Request, runs: int) -> dict[str, float]:
    """LangChain's `trim_messages` on the same messages; nothing where it is not installed."""
    try:
        theirs = importlib.import_module("langchain_core.messages")
    except ImportError:
        return {}
    messages = theirs.convert_to_messages(whole["messages"])
    count = o200k().count

    def count_all(some: list[Any]) -> int:
        return sum(count(message.text) for message in some)

    most = count_all(messages) * 2 // 3
    options = {"token_counter": count_all, "max_tokens": most, "include_system": True, "start_on": "human"}
    theirs.trim_messages(messages, **options)  # what it imports when first called is not what it costs
    return {"trim": measure(lambda: theirs.trim_messages(messages, **options), runs)}


def measure_proxy(kinds: str, requests: int) -> dict[str, float]:
    """The CPU of the gateway for a request of each kind, as a ratio to that of a plain proxy."""
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        script = Path(__file__).with_name("gateway.py")
        arguments = ["--kinds", kinds, "--sizes", "5k", "--connections", "1", "--requests", str(requests)]
        command = [sys.executable, str(script), *arguments, "--json", str(figures)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        rows = json.loads(figures.read_text())["rows"]
    floors = {row["kind"]: row["cpu"] for row in rows if row["proxy"] == "floor"}
    return {
        f"gateway {row['kind']}, times a plain proxy": row["cpu"] / max(floors[row["kind"]], 1e-6)
        for row in rows
        if row["proxy"] == "lamina"
    }


def list_ratios(rows: dict[str, dict[str, float]]) -> dict[str, float]:
    """Each figure as a ratio to JSON, by what it is of."""
    return {
        f"{name} {column}, times JSON": seconds / row["json"]
        for name, row in rows.items()
        for column, seconds in row.items()
        if column != "json"
    }


def name_changes(ratios: dict[str, float], history: list[dict[str, float]]) -> Iterator[str]:
    """The ratios that are others than their median in the last runs."""
    for name, ratio in ratios.items():
        earlier_ratios = [earlier[name] for earlier in history[-REMEMBERED:] if name in earlier]
        if not earlier_ratios:
            continue
        median = statistics.median(earlier_ratios)
        if abs(ratio - median) > CHANGED * median:
            yield f"{name}: {median:.1f} -> {ratio:.1f}"


def keep_history(ratios: dict[str, float], file: Path) -> None:
    """Name what has changed, and add these ratios to the history."""
    history: list[dict[str, float]] = []
    if file.exists():
        history = list(map(json.loads, file.read_text().splitlines()))
    for change in name_changes(ratios, history):
        print(f"changed: {change}")
    print(f"compared with {len(history[-REMEMBERED:])} runs of {file}")
    file.parent.mkdir(parents=True, exist_ok=True)
    rounded = {name: round(ratio, 3) for name, ratio in ratios.items()}
    with file.open("a") as lines:
        lines.write(json.dumps(rounded) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=split_numbers, default=split_numbers(SIZES))
    parser.add_argument("--dialects", default=",".join(FIELDS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--largest-cut", type=int, default=LARGEST_CUT)
    parser.add_argument("--history", type=Path)
    parser.add_argument("--proxy", action="store_true")
    parser.add_argument("--guard", action="store_true")
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    options = parser.parse_args()
    if options.guard:
        vars(options).update(GUARD)
    if options.quick:
        vars(options).update(sizes=(40, 80), runs=1)
    columns = ("count", "first", "next", "frozen", "cut", "after", "trim")
    print(f"{'':<26}{'json ms':>9}{'next ms':>9}" + "".join(f"{column:>8}" for column in columns))
    rows: dict[str, dict[str, float]] = {}
    for dialect in options.dialects.split(","):
        for messages in options.sizes:
            name = f"{dialect} {messages:,}"
            try:
                row = rows[name] = measure_row(dialect, messages, options.runs, options.largest_cut)
            except BadInput as error:
                print(f"{name}: {error}", file=sys.stderr)
                continue
            ratios = [f"{row[column] / row['json']:.1f}" if column in row else "" for column in columns]
            times = f"{row['json'] * 1000:>9.2f}{row['next'] * 1000:>9.2f}"
            print(f"{name:<26}{times}" + "".join(f"{ratio:>8}" for ratio in ratios), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    all_ratios = list_ratios(rows)
    if options.proxy:
        proxy_ratios = measure_proxy("chat,unmarked", requests=120)
        for name, ratio in proxy_ratios.items():
            print(f"{name}: {ratio:.1f}")
        all_ratios |= proxy_ratios
    if options.history:
        keep_history(all_ratios, options.history)
    return 0


if __name__ == "__main__":
    sys.exit(main())
