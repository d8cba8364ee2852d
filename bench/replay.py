"""Replays recorded agent sessions through `fit_request`, call by call, and checks every promise on the way.

    python bench/replay.py PATH... [--windows 16000,32000] [--damage] [--bound drop] [--jobs 2] [--json FILE]

A path is a JSONL file (also .gz, or .zst where `zstandard` is installed) of sessions, each with `messages`
and perhaps `tools` in the OpenAI chat or Anthropic messages format. Each model call of each session is
fitted in order with the ledger passed on. Counted per window: requests that break a rule of their
dialect, that are over the room recounted by another counter, `BudgetExceeded`, prefix changes without a
recorded cut, cuts that free too little, sessions cut more often than their growth explains, sums that are
not exact, and segments that do not come back.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import io
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

from lamina.core.hashing import canonical
from lamina.core.laws import LAWS, Case
from lamina.core.recall import refs
from lamina.core.target import SHARE
from lamina.core.values import Budget, Form, Ledger
from lamina.counters.openai import o200k
from lamina.dialects import DIALECTS
from lamina.dialects.port import Dialect
from lamina.errors import BadInput, BudgetExceeded
from lamina.request import Fitted, RequestMemo, fit_request

RESERVE = 0.125
MODELS = {"openai_chat": "gpt-5", "anthropic": "claude-sonnet-4-5"}
BOUND = "claude-opus-5-5"
SAMPLED = 23  # the whole audit, law by law, on every so many calls


def rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as raw:
        stream: Any = raw
        if path.suffix == ".gz":
            stream = gzip.open(raw)  # noqa: SIM115 - it reads from `raw`, which is closed
        elif path.suffix == ".zst":
            zstandard: Any = importlib.import_module("zstandard")  # only where a file needs it
            stream = zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(raw)
        for line in io.TextIOWrapper(stream, "utf-8"):
            yield json.loads(line)


def requests(row: dict[str, Any], dialect: str, bound: str) -> Iterator[dict[str, Any]]:
    """The request of each model call: the messages before each assistant message."""
    model = BOUND if bound and dialect == "anthropic" else MODELS[dialect]
    messages, tools = row["messages"], row.get("tools") or []
    extra: dict[str, Any] = {"max_tokens": 1_000} if dialect == "anthropic" else {}
    if tools and dialect == "openai_chat":
        extra["tools"] = tools
    if bound == "drop":
        extra["thinking"] = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    for i, message in enumerate(messages):
        if message["role"] == "assistant" and i:
            yield {"model": model, **extra, "messages": messages[:i]}


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
    count = _counted
    total = sum(count(canonical(tool).decode()) for tool in request.get("tools", ()))
    for message in request["messages"]:
        content = message.get("content")
        for text in [content] if isinstance(content, str) else [_said(block) for block in content or ()]:
            total += count(text)
        total += sum(
            count(c["function"]["name"] + c["function"]["arguments"]) for c in message.get("tool_calls") or ()
        )
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
        self.before: list[Any] = []
        self.asked: dict[str, Any] = {"messages": []}
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
                counter=o200k(),
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
        found["invalid"] += bool(self.dialect.check(fitted.request))
        found["over"] += recount(fitted.request) > self.room or envelope.tokens > self.room
        found["inexact"] += sum(e.tokens for e in envelope.entries) != envelope.account.entries
        found["cuts"] += envelope.cut is not None and envelope.cut.lowered > 0
        found["edits"] += envelope.cut is not None and envelope.cut.lowered == 0
        if envelope.cut and envelope.cut.lowered and not envelope.cut.floor:
            found["shallow"] += envelope.cut.before - envelope.cut.after < self.room // 5
        stream = list(fitted.request["messages"])
        if envelope.cut is None:
            found["moved"] += len(stream) < len(self.before) or not all(map(_same, self.before, stream))
        self.before = stream
        if found["calls"] % SAMPLED == 0:
            previous = self.fitted.envelope if self.fitted else None
            case = Case(log=fitted.log, envelope=envelope, before=previous, counter=o200k())
            found["unlawful"] += any(True for law in LAWS.values() for _ in law(case))

    def finish(self) -> Tally[str]:
        """Recalls what is lowered at the end, with the ledger through JSON; counts cuts against growth."""
        apart = self.room * (self.budget.trigger - SHARE)
        self.found["often"] += self.found["cuts"] > recount(self.asked) / apart + 1
        if self.fitted:
            kept = Ledger.load(json.loads(json.dumps(self.fitted.ledger.dump())))
            self.found["lost"] += kept != self.fitted.ledger
            known = dict(refs(self.fitted.log))
            for entry in self.fitted.envelope.entries:
                if entry.form is not Form.FULL and entry.segment.origin != "lamina":
                    self.found["lowered"] += 1
                    self.found["lost"] += known[entry.ref].parts != entry.segment.parts
        return self.found


def _same(one: Any, other: Any) -> bool:
    return one is other or canonical(_plain(one)) == canonical(_plain(other))


def _plain(message: Any) -> Any:
    """String content read as one text block, cache markers removed: the prefix stream of the laws."""
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if isinstance(blocks, list):
        blocks = [
            {k: v for k, v in b.items() if k != "cache_control"} if isinstance(b, dict) else b for b in blocks
        ]
    return {**message, "content": blocks}


def session(row: dict[str, Any], window: int, *, harm: bool, bound: str = "", seed: int = 0) -> Tally[str]:
    name = "anthropic" if "anthropic" in row.get("format", "") else "openai_chat"
    run = Replay(window, DIALECTS[name])
    if harm:
        row = {**row, "messages": damaged(row["messages"], random.Random(seed))}  # noqa: S311
    for request in requests(row, name, bound):
        run.call(request)
    return run.finish()


COLUMNS = (
    "sessions", "calls", "cuts", "exceeded", "invalid", "over", "moved", "shallow", "inexact", "unlawful",
    "often", "lowered", "lost", "refused", "edits",
)  # fmt: skip


def main() -> int:
    options = _options()
    sums: dict[int, Tally[str]] = {window: Tally() for window in options.windows}
    files = [
        p for path in options.paths for p in ([path] if path.is_file() else sorted(path.glob("*.jsonl*")))
    ]
    batches = [
        (str(path), window, options.damage, options.bound, options.limit)
        for path in files
        for window in options.windows
    ]
    with ProcessPoolExecutor(options.jobs) as pool:
        for done, (window, found) in enumerate(pool.map(whole_file, batches), start=1):
            sums[window] += found
            print(f"\r{done} of {len(batches)} files", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    _print(sums)
    if options.json:
        options.json.write_text(json.dumps({str(w): dict(t) for w, t in sums.items()}, indent=1))
    bad = ("invalid", "over", "moved", "inexact", "unlawful", "lost")
    return int(any(tally[name] for tally in sums.values() for name in bad))


def whole_file(batch: tuple[str, int, bool, str, int]) -> tuple[int, Tally[str]]:
    path, window, harm, bound, limit = batch
    found: Tally[str] = Tally()
    for seed, row in enumerate(rows(Path(path))):
        if limit and seed >= limit:
            break
        found += session(row, window, harm=harm, bound=bound, seed=seed)
    return window, found


def _print(sums: dict[int, Tally[str]]) -> None:
    print(" ".join(f"{name:>9}" for name in ("window", *COLUMNS, "ms/call")))
    for window, tally in sums.items():
        cells = [f"{window:>9,}", *(f"{tally[name]:>9,}" for name in COLUMNS)]
        print(" ".join([*cells, f"{tally['microseconds'] / max(tally['calls'], 1) / 1000:>9.2f}"]))


def _options() -> Any:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path, help="JSONL files, or folders of them")
    parser.add_argument(
        "--windows", type=_numbers, default=[16_000, 32_000, 64_000, 200_000], help="tokens, by commas"
    )
    parser.add_argument("--damage", action="store_true", help="drop, double, move and cut messages first")
    parser.add_argument(
        "--bound", choices=("", "strict", "drop"), default="", help="thinking is bound to its past"
    )
    parser.add_argument("--limit", type=int, default=0, help="at most so many sessions of a file")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def generated(seeds: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Sessions of the project's own, in the OpenAI chat format, for the tests."""
    from lamina.core.build import build  # noqa: PLC0415
    from lamina.testing.sessions import session as made  # noqa: PLC0415

    for seed in seeds:
        request = DIALECTS["openai_chat"].render(build(made(seed, turns=6)))
        yield {"format": "openai-chat", "messages": request["messages"]}


if __name__ == "__main__":
    sys.exit(main())
