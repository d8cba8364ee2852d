"""Way in 2: `fit_request` before every call of an agent. Requests stay small, and the history stays whole.

    python examples/fit_request.py

No model is asked here; `answered` stands where the call of an SDK would.
"""

from __future__ import annotations

from typing import Any

from lamina import Budget, Ledger
from lamina.fitting import fit_request

BUDGET = Budget(window=6_000, reserve=500)


def main() -> None:
    ledger, history = Ledger(), [{"role": "user", "content": "Read every part of the manual."}]
    for step in range(12):
        request = {"model": "gpt-5", "messages": history}
        fitted = fit_request(request, budget=BUDGET, ledger=ledger)
        ledger = fitted.ledger
        print(f"step {step}: {fitted.envelope.tokens:,} tokens{', cut' if fitted.envelope.cut else ''}")
        history = [*history, *answered(fitted.request, step)]


def answered(_: dict[str, Any], step: int) -> list[dict[str, Any]]:
    """What a model and its tool would have said to the request."""
    function = {"name": "read_part", "arguments": f'{{"number": {step}}}'}
    call = {"id": f"call_{step}", "type": "function", "function": function}
    text = f"Part {step}. Press the key, wait for the lamp, release the key.\n" * 50
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": text},
    ]


if __name__ == "__main__":
    main()
