"""Long random loops with bound thinking: the server never refuses, the recall tool stays, thinking stays.

Each loop is played against `ThinkingBinding`, which enforces what the API enforces. The client calls tools,
several at once or none, asks new questions, and now and then changes its tools or an old message.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from lamina import Budget, BudgetExceeded, Fitted, Ledger, Policy, fit_request
from lamina.core import CHARS4
from lamina.dialects.anthropic.server import BETAS
from lamina.fitting import RequestMemo
from tests.servers.bound_thinking import THINKING, ThinkingBinding
from tests.wrapped.scripted_api import Call, Said, Thought, message_block

WORDS = "parse render ledger cut window server client retry limit error and the of".split()
MODELS = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-fable-5-1")


class LoopTally(NamedTuple):
    """What happened in one loop. All but `requests` and `cuts` should be 0."""

    requests: int = 0
    cuts: int = 0
    recall_taken_away: int = 0
    thinking_changed: int = 0
    switch_taken_away: int = 0
    over_budget: int = 0


class _Client:
    """A client with its own history, which it sends whole each time."""

    def __init__(self, seed: int, window: int) -> None:
        self.random = Random(seed)  # noqa: S311
        self.window = window
        self.model = self.random.choice(MODELS)
        self.tools = [self._make_tool(name) for name in ("read_file", "bash", "grep")]
        self.messages: list[Any] = [{"role": "user", "content": f"Task {self._say(60)}"}]
        self.calls = 0

    def write_request(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "max_tokens": 500,
            "tools": self.tools,
            "messages": self.messages,
            "thinking": {"type": "adaptive"},
        }

    def answer(self) -> Said:
        """What the model says next: calls of tools, or an end of its turn. It does not always think."""
        said: Said = []
        if self.random.random() < 0.8:
            said.append(Thought(self._say(self._choose_size() // 4)))
        if self.random.random() < 0.25:
            return [*said, self._say(30)]
        for _ in range(self.random.choice((1, 1, 2, 3))):
            self.calls += 1
            path = f"f{self.random.randrange(9)}"
            said.append(Call(self.random.choice(("read_file", "bash")), {"path": path}, f"call_{self.calls}"))
        return said

    def take(self, said: Said) -> None:
        """Append an answer, and the results of its calls or the next question."""
        self.messages = [
            *self.messages,
            {"role": "assistant", "content": [message_block(one) for one in said]},
        ]
        calls = [one for one in said if isinstance(one, Call)]
        size = self._choose_size() // max(len(calls), 1) + 5
        content: Any = [
            {"type": "tool_result", "tool_use_id": call.id, "content": self._say(size)} for call in calls
        ]
        self.messages.append({"role": "user", "content": content or f"Next {self._say(20)}"})
        if self.random.random() < 0.03:
            self._meddle()

    def _meddle(self) -> None:
        """Change what was sent before, as some clients do."""
        if self.random.random() < 0.5:
            self.tools = [*self.tools, self._make_tool(f"tool_{self.calls}")]
        else:
            self.messages = [{"role": "user", "content": f"Task {self._say(60)}"}, *self.messages[1:]]

    def _choose_size(self) -> int:
        """How many words a text has: mostly a small part of the window, seldom a large one."""
        return int(self.window * self.random.choice((0.002, 0.01, 0.03, 0.06, 0.12)))

    def _say(self, words: int) -> str:
        return " ".join(self.random.choice(WORDS) for _ in range(max(words, 3)))

    @staticmethod
    def _make_tool(name: str) -> dict[str, Any]:
        return {"name": name, "description": "Does it.", "input_schema": {"type": "object"}}


def run_fuzzed_loop(seed: int, *, window: int, requests: int) -> LoopTally:
    """Play one loop. Raises if the server refuses a request."""
    client = _Client(seed, window)
    binding = ThinkingBinding()
    ledger: Ledger | None = None
    last: Fitted | None = None
    memo = RequestMemo()
    tally = LoopTally()
    for _ in range(requests):
        request = client.write_request()
        try:
            fitted = fit_request(
                request,
                budget=Budget(window=window),
                ledger=ledger,
                memo=memo,
                policy=Policy(recall="tool", counter=CHARS4, breakpoints="keep"),
            )
        except BudgetExceeded:
            return tally._replace(over_budget=1)
        ledger = fitted.ledger
        binding.check(json.loads(json.dumps(fitted.request)), fitted.headers.get(BETAS, ""))
        tally = _count(tally, request, fitted, last)
        last = fitted
        client.take(binding.issue(fitted.request, client.answer()))
    return tally


def _count(tally: LoopTally, request: dict[str, Any], fitted: Fitted, last: Fitted | None) -> LoopTally:
    changed = _read_latest_thinking(request) != _read_latest_thinking(fitted.request)
    return LoopTally(
        requests=tally.requests + 1,
        cuts=len(fitted.ledger.cuts),
        recall_taken_away=tally.recall_taken_away
        + (last is not None and last.has_recall and not fitted.has_recall),
        thinking_changed=tally.thinking_changed + (changed and fitted.envelope.cut is None),
        switch_taken_away=tally.switch_taken_away
        + (last is not None and bool(last.headers) and not fitted.headers),
    )


def _read_latest_thinking(request: dict[str, Any]) -> list[Any]:
    """The thinking of the latest answer, if the model waits for the results of its calls."""
    if isinstance(request["messages"][-1]["content"], str):
        return []
    for message in reversed(request["messages"]):
        if message["role"] == "assistant":
            return [block for block in message["content"] if block["type"] in THINKING]
    return []


@given(seed=st.integers(0, 1 << 30), window=st.sampled_from((2_800, 8_000)))
def test_in_random_loops_the_recall_tool_and_the_latest_thinking_stay(seed: int, window: int) -> None:
    tally = run_fuzzed_loop(seed, window=window, requests=24)
    assert tally.requests == 24
    assert tally[2:] == (0, 0, 0, 0)
