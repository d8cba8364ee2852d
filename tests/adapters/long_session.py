"""One long session that every adapter passes: 100 tool calls in four turns, in a window of 16,000 tokens.

`make adapters` runs it at this length. `make test` has the light frameworks only, and runs 32 calls in a
window of 7,000 tokens.

A framework's test module has one function, `play(folder, script, turns, fitted)`. It opens the framework's
own agent with a model that asks `script`, takes up what `folder` holds of the conversation, and asks one
question for each of `turns`. `fitted` says whether lamina is in the agent. The rest is here.

The server of a model that lamina does not know counts four fifths of the estimate, and reports that with
each answer. So an
adapter that passes reports on is seen by its larger requests, and by what each fit has learnt.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

from lamina.adapters import bridge
from lamina.adapters.bridge import _REPORTED as REPORTED
from lamina.adapters.bridge import RECALL, ContextFitter, FittedMessages
from lamina.core.values import Budget
from lamina.dialects import recognise
from lamina.fitting import RequestMemo, fit_request

IS_LONG = os.environ.get("LAMINA_LONG_SESSIONS") == "1"
WINDOW = 16_000 if IS_LONG else 7_000
BUDGET = Budget(window=WINDOW, reserve=1_000)
TURNS = 4
CALLS = 25 if IS_LONG else 8
"""Tool calls of each turn."""

MOST_CUTS = 16

FIELDS = {
    "openai_chat": "messages",
    "openai_responses": "input",
    "anthropic": "messages",
    "gemini": "contents",
}
"""The field of a request that holds its turns, by dialect."""

SYSTEM = "You read a manual and answer briefly."
HANDLE = re.compile(r"recall(?:\(\"|=\")([a-z0-9-]+)")

Play = Callable[[Path, "Script", Sequence[int], bool], None]


def read_page(number: int) -> str:
    """What the agent's tool returns: about 500 tokens that no other page has."""
    lines = [f"Page {number}, line {line}: press key {number * 31 + line}, then wait." for line in range(26)]
    return "\n".join(lines)


@dataclass
class Answer:
    """What the model does next: a call with its arguments, or a text. `tokens` is what the request took."""

    tokens: int
    text: str = ""
    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    call_id: str = ""


class FitWatch:
    """What the fitters did: the tokens that each fit counted, and how many conversations they read anew.

    `reports` are the reports that each of them could learn from.
    """

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.reports: list[int | None] = []
        self.memos = 0
        self._taken = 0

    def take_count(self) -> int | None:
        """What the last fit counted. None if it was taken before."""
        if self._taken == len(self.counts):
            return None
        self._taken = len(self.counts)
        return self.counts[-1]


@contextmanager
def watch_fits() -> Iterator[FitWatch]:
    """Watch every fit of every adapter."""
    watch = FitWatch()
    fit = ContextFitter.fit

    def watched_fit(self: ContextFitter, *args: Any, **kwargs: Any) -> FittedMessages:
        fitted = fit(self, *args, **kwargs)
        watch.reports.append((kwargs.get("ledger") or {}).get(REPORTED))
        watch.counts.append(fitted.fitted.envelope.tokens)
        return fitted

    def make_memo() -> RequestMemo:
        watch.memos += 1
        return RequestMemo()

    with (
        mock.patch.object(ContextFitter, "fit", watched_fit),
        mock.patch.object(bridge, "RequestMemo", make_memo),
    ):
        yield watch


class Script:
    """Plays the model. In each turn it reads pages, recalls one thing if it sees a handle, and answers.

    `sizes` are the requests as the model's server counts them. With a `watch` the script writes down what the
    fit before each request had counted, in `counts`, and what had been reported to it, in `reports`.
    `last_words` is what it answers in the end, if the framework expects something of a certain form.
    """

    def __init__(self, watch: FitWatch | None = None, *, last_words: str = "", calls: int = CALLS) -> None:
        self.calls = calls
        self.requests: list[dict[str, Any]] = []
        self.recalled: list[str] = []
        self.sizes: list[int] = []
        self.counts: list[int | None] = []
        self.reports: list[int | None] = []
        self._memo = RequestMemo()
        self._watch = watch
        self._last_words = last_words
        self._turn = 0
        self._step = 0

    def begin(self, turn: int) -> str:
        """Begin a turn, and return the user's question."""
        self._turn = turn
        self._step = 0
        return f"Read pages {turn * self.calls} to {turn * self.calls + self.calls - 1}."

    def end(self) -> None:
        """End the turn: the model answers next."""
        self._step = self.calls + 2

    def answer(
        self, turns: Sequence[Any], tools: Sequence[Any] = (), *, field: str = "messages", **head: Any
    ) -> Answer:
        """Record the request, written in its dialect, and answer it."""
        request = self.record(turns, tools, field=field, **head)
        step = self._step
        self._step += 1
        answer = Answer(self.sizes[-1], call_id=f"call_{self._turn}_{step}")
        handles = HANDLE.findall(json.dumps(request[field]).replace('\\"', '"'))
        if step < self.calls:
            return replace(answer, name="read_page", arguments={"number": self._turn * self.calls + step})
        if step == self.calls and handles:
            return replace(answer, name=RECALL.name, arguments={"key": handles[0]})
        if step == self.calls + 1:
            self.recalled.append(_text_of_last(request))
        return replace(answer, text=self._last_words or f"Turn {self._turn} is read.")

    def record(
        self, turns: Sequence[Any], tools: Sequence[Any] = (), *, field: str = "messages", **head: Any
    ) -> dict[str, Any]:
        """Record a request, and what the fit before it counted: None if nothing was fitted for it."""
        request: dict[str, Any] = json.loads(json.dumps({**head, field: list(turns), "tools": list(tools)}))
        self.requests.append(request)
        self.sizes.append(count_at_server(request, self._memo))
        if self._watch is not None:
            self.counts.append(self._watch.take_count())
            self.reports.append(next(reversed(self._watch.reports), None))
        return request


def count_at_server(request: Mapping[str, Any], memo: RequestMemo) -> int:
    """The tokens of a request as the model's server counts and reports them."""
    envelope = fit_request(request, budget=Budget(window=10_000_000), memo=memo).envelope
    if envelope.account.basis == "exact":
        return envelope.tokens
    return -(-envelope.tokens * 4 // 5)


@dataclass(frozen=True)
class Account:
    """What a session's requests were: how many were refused by the rules, over the room, or began anew."""

    requests: int
    invalid: list[str]
    over: int
    cuts: int
    sizes: list[int]


def count_requests(requests: Sequence[Mapping[str, Any]], *, budget: Budget = BUDGET) -> Account:
    """Check and count every request, and compare each with the one before it."""
    invalid: list[str] = []
    sizes: list[int] = []
    cuts = 0
    memo = RequestMemo()
    before: Sequence[Any] = ()
    for request in requests:
        dialect = recognise(request)
        invalid += [violation.message for violation in dialect.wire.check(request)]
        sizes.append(count_at_server(request, memo))
        turns = _drop_markers(request[FIELDS[dialect.name]])
        if turns[: len(before)] != before:
            cuts += 1
        before = turns
    over = sum(size > budget.window - (budget.reserve or 0) for size in sizes)
    return Account(len(sizes), invalid, over, cuts, sizes)


def _drop_markers(turns: Sequence[Any]) -> Any:
    """The turns without cache markers, which frameworks move: caches look at the rest."""

    def drop(fields: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if name != "cache_control"}

    return json.loads(json.dumps(turns), object_hook=drop)


def check_counts(
    play: Play,
    folder: Path,
    *,
    turns: int = 1,
    last_words: str = "",
    memos: int = 1,
) -> Sequence[dict[str, Any]]:
    """Play some turns. No request that the model got is larger than what was counted for it.

    So everything that the framework adds after lamina's hook is counted. A conversation is read once, for
    each of the `memos` ways in which the adapter fits it. Each fit then reads only what is new in it. Returns
    the requests.
    """
    with watch_fits() as watch:
        script = Script(watch, last_words=last_words)
        play(_make(folder / "counted"), script, range(turns), True)
    account = count_requests(script.requests)
    assert account.invalid == []
    assert account.over == 0
    assert_counted(script, account)
    assert 1 <= watch.memos <= memos
    return script.requests


def assert_counted(script: Script, account: Account) -> None:
    """Each request that was fitted is at most as large as lamina counted it.

    What was learnt is the mean of eight reports, so it may be off by a hundredth.
    """
    undercounted: list[str] = []
    for number, (size, counted) in enumerate(zip(account.sizes, script.counts, strict=True)):
        if counted is not None and size > counted * 1.01:
            undercounted.append(f"request {number}: {size} tokens, counted {counted}")
    assert undercounted == [], undercounted


def assert_reported(script: Script) -> None:
    """Each request was fitted with what the server had reported for the one before it."""
    reported_before = [None, *script.sizes[:-1]]
    missing: list[str] = []
    for number, (report, expected) in enumerate(zip(script.reports, reported_before, strict=True)):
        if script.counts[number] is not None and report != expected:
            missing.append(f"request {number}: fitted with {report}, the server had reported {expected}")
    assert missing == [], missing


def check_session(
    play: Play,
    module: str,
    folder: Path,
    record_property: Callable[[str, object], None],
    *,
    memos: int = 1,
    has_reports: bool = True,
) -> None:
    """The session with and without lamina, and once more with its second half in a new agent.

    At its full length the second half has a new process, which imports the framework again.
    What it was is recorded for `tools.adapters`, which prints it as a row of a table. `has_reports`: the
    framework tells the adapter what the server reported.
    """
    bare = Script()
    play(_make(folder / "bare"), bare, range(TURNS), False)
    without = count_requests(bare.requests)
    assert without.over > TURNS * CALLS // 2

    with watch_fits() as watch:
        whole = Script(watch)
        play(_make(folder / "whole"), whole, range(TURNS), True)
    account = count_requests(whole.requests)
    assert_counted(whole, account)
    if has_reports:
        assert_reported(whole)
    assert 1 <= watch.memos <= memos
    assert account.invalid == []
    assert account.over == 0
    # A window of this size spares 2,600 tokens of the newest steps, so its cuts are shallow.
    assert 2 <= account.cuts <= MOST_CUTS
    assert account.requests >= TURNS * (CALLS + 1) + 3
    assert len(whole.recalled) >= 3
    assert all("press key" in text for text in whole.recalled)

    first = Script()
    play(_make(folder / "halves"), first, range(TURNS // 2), True)
    play_second_half = _play_elsewhere if IS_LONG else _play_second_half
    assert first.requests + play_second_half(module, folder / "halves") == whole.requests
    row = [
        account.requests,
        without.over,
        account.over,
        account.cuts,
        max(account.sizes),
        len(whole.recalled),
    ]
    record_property("session", " ".join(map(str, row)))


def _make(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _play_elsewhere(module: str, folder: Path) -> list[dict[str, Any]]:
    """Play the second half in another process, and return its requests."""
    root = Path(__file__).resolve().parent.parent.parent
    command = [sys.executable, "-m", "tests.adapters.long_session", module, str(folder)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    requests: list[dict[str, Any]] = json.loads((folder / "requests.json").read_text(encoding="utf-8"))
    return requests


def _text_of_last(request: Mapping[str, Any]) -> str:
    for name in ("messages", "input", "contents"):
        if request.get(name):
            return json.dumps(request[name][-1])
    return ""


def _play_second_half(module: str, folder: Path) -> list[dict[str, Any]]:
    script = Script()
    importlib.import_module(module).play(folder, script, range(TURNS // 2, TURNS), True)
    return script.requests


def main(module: str, folder: str) -> None:
    requests = _play_second_half(module, Path(folder))
    (Path(folder) / "requests.json").write_text(json.dumps(requests), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
