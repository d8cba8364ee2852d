"""As in stakpak's agent: a hook trims above 80 % of the window, and a checkpoint keeps the state.

    python examples/trimming.py

The process "stops" in the middle: the ledger goes through JSON, and the next request goes on byte for byte.
`docs/from-stakpak.md` says more.
"""

from __future__ import annotations

import json
from typing import Any

from lamina import Budget, fit_request

BUDGET = Budget(window=8_000, reserve=1_600, trigger=0.8)
STEPS = 30
STOP = 20


def main() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read the modules."}]
    checkpoint = ""
    for step in range(STEPS):
        if step == STOP:
            print(f"step {step}: stopped and resumed from a checkpoint of {len(checkpoint):,} characters")
        ledger = json.loads(checkpoint) if checkpoint else None
        fitted = fit_request({"model": "gpt-4o", "messages": messages}, budget=BUDGET, ledger=ledger)
        checkpoint = json.dumps(fitted.ledger.dump())
        cut = fitted.envelope.cut
        if cut:
            print(f"step {step}: a cut, {cut.before:,} to {cut.after:,} tokens")
        messages = [*messages, *read_module(step)]
    print(f"{len(messages)} messages, {len(fitted.request['messages'])} sent")


def read_module(step: int) -> list[dict[str, Any]]:
    """One step of an agent: a call, and its result."""
    function = {"name": "read_file", "arguments": json.dumps({"path": f"src/module_{step}.py"})}
    call = {"id": f"c{step}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "def f(x): return x\n" * 40},
    ]


if __name__ == "__main__":
    main()
