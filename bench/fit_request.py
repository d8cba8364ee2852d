"""What `fit_request` costs at each size of a conversation, as ratios to one JSON round trip of its request.

    python bench/fit_request.py [--sizes N,N] [--dialects A,B] [--runs N] [--quick]
                                [--json FILE] [--before FILE]

CPU time of this process, the best of several runs, in one run with what it is compared with. The conversation
is made up: a question, a call, its result, an answer, and so on. Columns, per dialect and number of messages:

    json        one round trip of the request, in milliseconds
    count       counting all its text once with the exact counter of OpenAI's models
    first       a call without a memo and without a ledger, as after a restart
    next        a turn later, with the memo and the ledger of the call before
    next ms     the same in milliseconds, which should not grow with the conversation
    cut         a call that has to make a cut, in a window of two thirds of the request
    after       the next turn after it
    trim        LangChain's `trim_messages` with the same counter, if it is installed

With `--before`, the figures of an earlier run, what has changed by more than a fifth is named.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import sys
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
from lamina.fitting.policy import Policy
from lamina.fitting.request import RequestMemo, fit_request
from lamina.models.counters.openai import o200k
from lamina.segments import assistant, call, result, system, user

HUGE = 100_000_000
SIZES = "100,1000,10000,50000"
LARGEST_CUT = 10_000
"""Messages above which no cut is measured: it takes a minute."""

CHANGED = 0.2
"""A change of a ratio by more than this share is named. Less may be the machine."""

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
    log = make_log(messages + 4 * turns)
    requests = []
    for end in range(messages - 4 * turns, messages + 1, 4):
        envelope = build(log[: end + 2], head=RequestHead(parameters=dict(others)))
        requests.append({**DIALECTS[dialect].wire.render(envelope), **others})
    whole = requests[-1]
    if isinstance(whole[field], list):
        # A client that keeps its list of messages sends the same objects again.
        requests = [{**request, field: whole[field][: len(request[field])]} for request in requests]
    return requests


def measure(work: Callable[[], Any], runs: int) -> float:
    return min(_time(work) for _ in range(runs))


def _time(work: Callable[[], Any]) -> float:
    gc.collect()
    started = time.process_time()
    work()
    return time.process_time() - started


def fit(request: Request, dialect: str, **arguments: Any) -> Any:
    return fit_request(request, dialect=dialect, policy=Policy(counter=o200k()), **arguments)


def next_turn(requests: list[Request], dialect: str, window: int, runs: int) -> float:
    """The last request, after those before it."""
    best = float("inf")
    for _ in range(runs):
        memo = RequestMemo()
        ledger = Ledger()
        for request in requests[:-1]:
            ledger = fit(request, dialect, budget=window, ledger=ledger, memo=memo).ledger
        last = requests[-1]
        now = ledger
        best = min(best, _time(lambda: fit(last, dialect, budget=window, ledger=now, memo=memo)))  # noqa: B023
    return best


def measure_row(dialect: str, messages: int, runs: int) -> dict[str, float]:
    """Seconds of everything, for one dialect and one number of messages."""
    requests = make_requests(dialect, messages, turns=3)
    whole = requests[-1]
    fitted = fit(whole, dialect, budget=HUGE)
    texts = [repr(segment.parts) for segment in fitted.log]
    count = o200k().count
    row = {
        "json": measure(lambda: orjson.loads(orjson.dumps(whole)), runs * 3),
        "count": measure(lambda: list(map(count, texts)), runs),
        "first": measure(lambda: fit(whole, dialect, budget=HUGE), runs),
        "next": next_turn(requests, dialect, HUGE, runs),
    }
    if messages <= LARGEST_CUT:
        window = fitted.envelope.tokens * 2 // 3
        row["cut"] = measure(lambda: fit(whole, dialect, budget=window), 1)
        row["after"] = next_turn(requests, dialect, window, 1)
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


def name_changes(rows: dict[str, Any], before: dict[str, Any]) -> Iterator[str]:
    """The ratios to JSON that are others than in an earlier run."""
    for name, row in rows.items():
        earlier = before.get(name, {})
        for column in row.keys() & earlier.keys() - {"json"}:
            ratio = row[column] / row["json"]
            earlier_ratio = earlier[column] / earlier["json"]
            if abs(ratio / earlier_ratio - 1) > CHANGED:
                yield f"{name}, {column}: {earlier_ratio:.1f} -> {ratio:.1f} times JSON"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=split_numbers, default=split_numbers(SIZES))
    parser.add_argument("--dialects", default=",".join(FIELDS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    options = parser.parse_args()
    sizes = (40, 80) if options.quick else options.sizes
    runs = 1 if options.quick else options.runs
    columns = ("count", "first", "next", "cut", "after", "trim")
    print(f"{'':<26}{'json ms':>9}{'next ms':>9}" + "".join(f"{column:>8}" for column in columns))
    rows: dict[str, dict[str, float]] = {}
    for dialect in options.dialects.split(","):
        for messages in sizes:
            name = f"{dialect} {messages:,}"
            try:
                row = rows[name] = measure_row(dialect, messages, runs)
            except BadInput as error:
                print(f"{name}: {error}", file=sys.stderr)
                continue
            ratios = [f"{row[column] / row['json']:.1f}" if column in row else "" for column in columns]
            times = f"{row['json'] * 1000:>9.2f}{row['next'] * 1000:>9.2f}"
            print(f"{name:<26}{times}" + "".join(f"{ratio:>8}" for ratio in ratios), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    if options.before:
        for change in name_changes(rows, json.loads(options.before.read_text())):
            print(f"changed: {change}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
