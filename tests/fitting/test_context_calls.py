"""Whose calls of a context tool count: those of lamina's own tool, and of `lamina mcp` behind a client."""

from __future__ import annotations

from typing import Any

import pytest

from lamina import Budget, Fitted, Policy, fit_request
from lamina.core import CHARS4
from tests.dialects.wires import WIRES, Call, Result


def make_request(tool: str, answer: str, steps: int = 24) -> dict[str, Any]:
    """A tool loop in which the model pins the first result, if `tool` may do that."""
    wire = WIRES["anthropic"]
    messages = [wire.ask("Read them all.")]
    for step in range(steps):
        messages += wire.call([Call(f"c{step}")])
        messages += wire.answer([Result(f"c{step}", text=f"result number {step} " + "word " * 200)])
        if step == 0:
            messages += wire.call([Call("pin", tool, {"action": "pin", "what": "result number 0 word"})])
            messages += wire.answer([Result("pin", text=answer)])
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in ("read", tool)]
    return {**wire.request(messages), "tools": tools}


def fit(request: dict[str, Any], **policy: Any) -> Fitted:
    chosen = Policy(counter=CHARS4, recall="handles", **policy)
    return fit_request(request, budget=Budget(window=4_000, reserve=0), policy=chosen)


@pytest.mark.parametrize(
    ("tool", "answer", "is_on", "holds"),
    [
        ("mcp__lamina__context", "pinned: it", True, True),
        ("lamina__context", "pinned: it", True, True),
        ("mcp__lamina__context", "pinned: it", False, False),
        ("mcp__lamina__context", "not done: nothing is called so", True, False),
        ("mcp__other__context", "pinned: it", True, False),
        ("context", "pinned: it", True, False),
    ],
)
def test_which_calls_count(tool: str, answer: str, *, is_on: bool, holds: bool) -> None:
    fitted = fit(make_request(tool, answer), context_tools=is_on)
    assert fitted.envelope.cut is not None
    stands = "result number 0 " + "word " * 200 in str(fitted.request["messages"])
    assert stands is holds
    assert bool(fitted.ledger.wishes) is holds
