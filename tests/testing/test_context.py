"""The suite for context managers: lamina passes it, and managers that break one promise each do not."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest

from lamina.adapters.bridge import ContextFitter
from lamina.core.values import Budget
from lamina.testing import Conformance
from lamina.testing.context import ContextSizes, ManagedContext, Message, context_manager

HANDLE = re.compile(r"recall(?:\(\"|=\")([a-z0-9-]+)")


class LaminaContext:
    """lamina through the bridge that adapters use."""

    def __init__(self, sizes: ContextSizes, state: Any) -> None:
        budget = Budget(window=sizes.window, reserve=sizes.window - sizes.room)
        self._fitter = ContextFitter(model="gpt-5", budget=budget)
        self._ledger: dict[str, Any] | None = state
        self._history: Sequence[Message] = ()

    def fit(self, request: Message) -> Sequence[Message]:
        head = {name: value for name, value in request.items() if name != "messages"}
        self._history = request["messages"]
        fitted = self._fitter.fit(self._history, head=head, ledger=self._ledger, conversation="one")
        self._ledger = fitted.ledger
        return fitted.messages

    def reach(self, messages: Sequence[Message]) -> str:
        """Call `recall` for every handle, from the first character to the last."""
        texts: list[str] = []
        for key in HANDLE.findall(repr([message.get("content") for message in messages])):
            start = 0
            while True:
                piece = self._fitter.answer(self._history, {"key": key, "start": start}, ledger=self._ledger)
                texts.append(piece)
                more = re.match(r"\[characters [\d,]+ to [\d,]+ of [\d,]+; go on with start=(\d+)", piece)
                if more is None:
                    break
                start = int(more[1])
        return "\n".join(texts)

    def dump(self) -> Any:
        return self._ledger


@pytest.mark.parametrize("case", context_manager("lamina", LaminaContext), ids=str)
def test_lamina_keeps_every_promise(case: Conformance) -> None:
    case()


class Simple:
    """A manager that is a function of the messages, and can bring nothing back."""

    def __init__(self, choose: Callable[[Sequence[Message]], Sequence[Message]]) -> None:
        self._choose = choose

    def fit(self, request: Message) -> Sequence[Message]:
        return self._choose(request["messages"])

    def reach(self, _: Sequence[Message]) -> str:
        return ""

    def dump(self) -> Any:
        return None


def find_failures(choose: Callable[[Sequence[Message]], Sequence[Message]]) -> set[str]:
    def start(_: ContextSizes, __: Any) -> ManagedContext:
        return Simple(choose)

    failures: set[str] = set()
    for case in context_manager("planted", start):
        try:
            case()
        except AssertionError:
            failures.add(case.name.removeprefix("planted: "))
    return failures


def test_sending_everything_is_over() -> None:
    assert find_failures(list) == {"within the room"}


def test_a_sliding_window_breaks_pairs_and_prefixes() -> None:
    failures = find_failures(lambda messages: [messages[0], *messages[1:][-7:]])
    assert {"valid", "pairs", "prefix kept", "nothing lost"} <= failures
    assert "deterministic" not in failures


def test_chance_is_seen() -> None:
    numbers = count()

    def choose(messages: Sequence[Message]) -> Sequence[Message]:
        return [{"role": "user", "content": f"try {next(numbers)}"}, messages[-1]][:1]

    failures = find_failures(choose)
    assert {"prefix kept", "nothing lost", "stable after a restart", "deterministic"} <= failures
    assert "valid" not in failures
