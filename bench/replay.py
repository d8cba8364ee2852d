"""Replays recorded agent sessions through `fit_request`, call by call, and checks every promise on the way.

    python bench/replay.py PATH... [--windows 16000,32000] [--dialects own,gemini] [--every 5] [--damage]
    python bench/replay.py --quick

A path is a JSONL file (also .gz, or .zst where `zstandard` is installed) of sessions, each with `messages`
and perhaps `tools` in the OpenAI chat or Anthropic messages format, or `input` in that of OpenAI responses.
Each model call of each session is converted to each dialect and fitted in order with the ledger passed on.
Counted per dialect and window: conversions that break a rule, requests that do, that are over the room
recounted by another counter, `BudgetExceeded`, prefix changes without a recorded cut, cuts that free too
little, sessions cut more often than their growth explains, sums that are not exact, and segments that do not
come back.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.arguments import split_numbers
from bench.samples import QUICK_HELP, sample_sessions
from bench.simulators import rows
from lamina.core import Layout
from lamina.core.build import build
from lamina.core.cut_target import BALANCED
from lamina.core.hashing import canonical_json
from lamina.core.laws import LAWS, Case
from lamina.core.memo import BuildMemo
from lamina.core.recall import list_refs
from lamina.core.values import Budget, Form, Ledger
from lamina.dialects import DIALECTS, Dialect
from lamina.dialects.memos import ParseMemo
from lamina.dialects.translate import choose_options, translate_head
from lamina.errors import BadInput, BudgetExceeded
from lamina.fitting import Fitted, Policy, RequestMemo, fit_request
from lamina.models.counters.openai import o200k
from lamina.testing.conformance import MODELS

RESERVE = 0.125
BOUND = "claude-opus-5-5"
SAMPLED = 23  # the whole audit, law by law, on every so many calls
FORMATS = {
    "anthropic-messages": "anthropic",
    "openai-chat": "openai_chat",
    "openai-responses": "openai_responses",
}


def requests(row: dict[str, Any], dialect: str, bound: str) -> Iterator[dict[str, Any]]:
    """The request of each model call: what stands before each thing that the model said."""
    model = BOUND if bound and dialect == "anthropic" else MODELS[dialect]
    named = "input" if dialect == "openai_responses" else "messages"
    items, tools = row[named], row.get("tools") or []
    extra: dict[str, Any] = {"max_tokens": 1_000} if dialect == "anthropic" else {}
    extra |= {"instructions": row["instructions"]} if row.get("instructions") else {}
    if tools and dialect == "openai_chat":
        extra["tools"] = tools
    if bound == "drop":
        extra["thinking"] = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    for i, item in enumerate(items):
        if i and _by_the_model(item) and not _by_the_model(items[i - 1]):
            yield {"model": model, **extra, named: items[:i]}


def _by_the_model(item: dict[str, Any]) -> bool:
    sort = str(item.get("type", ""))
    return item.get("role") == "assistant" or sort == "reasoning" or sort.endswith("_call")


class Converted:
    """Requests of one dialect as those of another, each from the whole log so far."""

    def __init__(self, source: Dialect, target: Dialect) -> None:
        self.source, self.target = source, target
        self.parsing, self.memo, self.found = ParseMemo(), BuildMemo(), Tally[str]()

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        if self.source is self.target:
            return request
        parsed = self.source.wire.parse(request, memo=self.parsing)
        head = translate_head(parsed.head, self.source, self.target, model=MODELS[self.target.name]).head
        options = choose_options(self.target, head, layout=Layout(context="logged"))
        made = self.target.wire.render(build(parsed.log, head=head, options=options, memo=self.memo))
        self.found["unconverted"] += bool(self.target.wire.check(made))
        return made


def damaged(messages: list[Any], dice: random.Random) -> list[Any]:
    """The messages with some dropped, doubled, moved or cut short; what is done depends on the place only."""
    result: list[Any] = []
    for message in messages:
        roll = dice.random()
        if roll < 0.02:
            continue
        result.append(message)
        if roll < 0.04:
            result.append(message)
        elif roll < 0.06 and len(result) > 1:
            result[-1], result[-2] = result[-2], result[-1]
        elif roll < 0.07 and isinstance(message.get("content"), str):
            result[-1] = {**message, "content": message["content"][: len(message["content"]) // 3]}
    return result


def recount(request: dict[str, Any]) -> int:
    """Tokens of a request counted without lamina's own arithmetic: all text in it, by o200k."""
    total = sum(_counted(canonical_json(tool).decode()) for tool in request.get("tools", ()))
    for message in request.get("messages", ()):
        content = message.get("content")
        for text in [content] if isinstance(content, str) else [_said(block) for block in content or ()]:
            total += _counted(text)
        called = (call.get("function") or {} for call in message.get("tool_calls") or ())
        total += sum(_counted(f"{call.get('name')}{call.get('arguments')}") for call in called)
    return total


@lru_cache(maxsize=100_000)
def _counted(text: str) -> int:
    return o200k().count(text)


def _said(block: dict[str, Any]) -> str:
    if block.get("type") == "tool_result":
        content = block.get("content") or ""
        return content if isinstance(content, str) else " ".join(_said(b) for b in content)
    if block.get("type") == "tool_use":
        return f"{block['name']}{json.dumps(block['input'], ensure_ascii=False)}"
    return str(block.get("text") or block.get("thinking") or "")


class Replay:
    """One session under one window; `found` counts what happened."""

    def __init__(self, window: int, dialect: Dialect) -> None:
        self.budget = Budget(window=window, reserve=int(window * RESERVE))
        self.room = window - int(window * RESERVE)
        self.dialect = dialect
        self.found: Tally[str] = Tally(sessions=1)
        self.memo, self.ledger = RequestMemo(), Ledger()
        self.before: list[bytes] = []
        self.asked: dict[str, Any] = {}
        self.fitted: Fitted | None = None

    def call(self, request: dict[str, Any]) -> None:
        self.found["calls"] += 1
        self.asked = request
        started = time.process_time()
        try:
            fitted = fit_request(
                request,
                dialect=self.dialect,
                budget=self.budget,
                ledger=self.ledger,
                policy=Policy(counter=o200k()),
                memo=self.memo,
            )
        except BudgetExceeded:
            self.found["exceeded"] += 1
            return
        except BadInput:
            self.found["refused"] += 1
            return
        self.found["microseconds"] += int((time.process_time() - started) * 1e6)
        self._check(fitted)
        self.ledger, self.fitted = fitted.ledger, fitted

    def _check(self, fitted: Fitted) -> None:
        found, envelope = self.found, fitted.envelope
        found["invalid"] += bool(self.dialect.wire.check(fitted.request))
        found["over"] += recount(fitted.request) > self.room or envelope.tokens > self.room
        found["inexact"] += sum(e.tokens for e in envelope.entries) != envelope.account.entries
        found["cuts"] += envelope.cut is not None and envelope.cut.lowered > 0
        found["edits"] += envelope.cut is not None and envelope.cut.lowered == 0
        if envelope.cut and envelope.cut.lowered and not envelope.cut.floor:
            found["shallow"] += envelope.cut.before - envelope.cut.after < self.room // 5
        stream = [block.data for block in self.dialect.cache.stream(fitted.request).blocks]
        if envelope.cut is None and self.dialect.cache.steady:
            found["moved"] += stream[: len(self.before)] != self.before
        self.before = stream
        if found["calls"] % SAMPLED == 0:
            previous = self.fitted.envelope if self.fitted else None
            case = Case(log=fitted.log, envelope=envelope, before=previous, counter=o200k())
            found["unlawful"] += any(True for law in LAWS.values() for _ in law(case))

    def finish(self) -> Tally[str]:
        """Recall what is lowered at the end, with the ledger through JSON; count cuts against growth."""
        apart = self.room * (self.budget.trigger - BALANCED.highest / 100)
        if "messages" in self.asked:  # what `recount` can read
            self.found["often"] += self.found["cuts"] > recount(self.asked) / apart + 1
        if self.fitted:
            kept = Ledger.load(json.loads(json.dumps(self.fitted.ledger.dump())))
            self.found["lost"] += kept != self.fitted.ledger
            known = dict(list_refs(self.fitted.log))
            for entry in self.fitted.envelope.entries:
                if entry.form is not Form.FULL and entry.segment.origin != "lamina":
                    self.found["lowered"] += 1
                    self.found["lost"] += known[entry.ref].parts != entry.segment.parts
        return self.found


def session(
    row: dict[str, Any], window: int, *, harm: bool = False, bound: str = "", seed: int = 0, into: str = "",
    every: int = 1,
) -> Tally[str]:  # fmt: skip
    """One session under one window, in its own dialect or `into` another; `every` so many calls."""
    source = DIALECTS[FORMATS[row["format"]]]
    target = DIALECTS[into or source.name]
    run, converted = Replay(window, target), Converted(source, target)
    named = "input" if source.name == "openai_responses" else "messages"
    if harm:
        row = {**row, named: damaged(row[named], random.Random(seed))}  # noqa: S311
    asked = list(requests(row, source.name, bound))
    for request in asked[::-1][::every][::-1]:  # always with the last, the largest
        run.call(converted(request))
    return run.finish() + converted.found


COLUMNS = (
    "sessions", "calls", "cuts", "exceeded", "unconverted", "invalid", "over", "moved", "shallow",
    "inexact", "unlawful", "often", "lowered", "lost", "refused", "edits",
)  # fmt: skip


def main() -> int:
    options = _options()
    if not options.quick:
        return replay_all(options)
    with sample_sessions(sessions=1, turns=5) as path:
        options.paths, options.windows, options.jobs = [path], [12_000], 1
        return replay_all(options)


def replay_all(options: argparse.Namespace) -> int:
    files = [
        p for path in options.paths for p in ([path] if path.is_file() else sorted(path.rglob("*.jsonl*")))
    ]
    batches = [
        (str(path), window, into, options)
        for into in options.dialects
        for window in options.windows
        for path in files
    ]
    sums: dict[tuple[str, int], Tally[str]] = {(b[2], b[1]): Tally() for b in batches}
    with ProcessPoolExecutor(options.jobs) as pool:
        for done, (where, found) in enumerate(pool.map(whole_file, batches), start=1):
            sums[where] += found
            print(f"\r{done} of {len(batches)} files", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    _print(sums)
    if options.json:
        options.json.write_text(json.dumps({f"{d}@{w}": dict(t) for (d, w), t in sums.items()}, indent=1))
    bad = ("unconverted", "invalid", "over", "moved", "inexact", "unlawful", "lost")
    return int(any(tally[name] for tally in sums.values() for name in bad))


def whole_file(batch: tuple[str, int, str, Any]) -> tuple[tuple[str, int], Tally[str]]:
    path, window, into, options = batch
    found: Tally[str] = Tally()
    for seed, row in enumerate(rows(Path(path))):
        if options.limit and seed >= options.limit:
            break
        found += session(
            row, window, harm=options.damage, bound=options.bound, seed=seed,
            into="" if into == "own" else into, every=options.every,
        )  # fmt: skip
    return (into, window), found


def _print(sums: dict[tuple[str, int], Tally[str]]) -> None:
    print(f"{'dialect':>16} " + " ".join(f"{name:>11}" for name in ("window", *COLUMNS, "ms/call")))
    for (into, window), tally in sums.items():
        cells = [f"{into:>16}", f"{window:>11,}", *(f"{tally[name]:>11,}" for name in COLUMNS)]
        print(" ".join([*cells, f"{tally['microseconds'] / max(tally['calls'], 1) / 1000:>11.2f}"]))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path, help="JSONL files, or folders of them")
    parser.add_argument(
        "--windows", type=split_numbers, default=[16_000, 32_000, 64_000, 200_000], help="tokens, by commas"
    )
    parser.add_argument(
        "--dialects", type=_names, default=["own"], help='by commas; "own" is the session\'s, "all" each one'
    )
    parser.add_argument("--every", type=int, default=1, help="only every so many calls of a session")
    parser.add_argument("--damage", action="store_true", help="drop, double, move and cut messages first")
    parser.add_argument(
        "--bound", choices=("", "strict", "drop"), default="", help="thinking is bound to its past"
    )
    parser.add_argument("--limit", type=int, default=0, help="at most so many sessions of a file")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    options = parser.parse_args()
    if not options.paths and not options.quick:
        parser.error("name recorded sessions, or say --quick")
    return options


def _names(text: str) -> list[str]:
    return list(DIALECTS) if text == "all" else text.split(",")


def generated(seeds: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Sessions of the project's own, in the OpenAI chat format, for the tests."""
    from lamina.testing._generated_sessions import generate_session as made  # noqa: PLC0415

    for seed in seeds:
        request = DIALECTS["openai_chat"].wire.render(build(made(seed, turns=6)))
        yield {"format": "openai-chat", "messages": request["messages"]}


if __name__ == "__main__":
    sys.exit(main())
