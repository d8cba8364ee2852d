"""What a window over history saves and costs: tokens sent, and what a provider's cache would have read.

    python bench/window.py [--turns 100] [--messages 20] [--json FILE]
    python bench/window.py --quick

A made-up chat of messages of about 140 tokens, sent whole, with `LastN` in steps and with `LastN` exactly, to
the simulated caches of two providers. Cache markers are planned as a session plans them.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.samples import QUICK_HELP
from lamina.caches import rules_for, simulator
from lamina.core.build import build
from lamina.core.history_window import LastN
from lamina.core.options import Options
from lamina.core.tokens import ESTIMATE
from lamina.core.values import Ledger, RequestHead, SentMark
from lamina.dialects import DIALECTS
from lamina.fitting.markers import place_markers
from lamina.segments import assistant, system, user

WORDS = "Some words that a user or a model would say in an ordinary message of a chat. " * 8
MODELS = {"gpt-5": "openai_chat", "claude-sonnet-4-5": "anthropic"}
APART = 30.0
"""Seconds between two turns."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--messages", type=int, default=20, help="messages of the window")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    asked = parser.parse_args()
    if asked.quick:
        asked.turns, asked.messages = 12, 4
    windows = {
        "all of it": None,
        f"LastN({asked.messages})": LastN(asked.messages),
        f"LastN({asked.messages}, slack=0)": LastN(asked.messages, 0),
    }
    figures: list[dict[str, Any]] = []
    print(f"{'model':<20} {'window':<20} {'cuts':>5} {'sent':>11} {'read':>7}")
    for model in MODELS:
        for name, window in windows.items():
            found = talk(model, window, asked.turns)
            figures.append({"model": model, "window": name, **found})
            share = found["read"] / found["sent"]
            print(f"{model:<20} {name:<20} {found['cuts']:>5} {found['sent']:>11,} {share:>7.1%}")
    if asked.json:
        asked.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def talk(model: str, window: LastN | None, turns: int) -> dict[str, int]:
    """A chat of so many turns: cuts, tokens sent, and tokens that the cache had."""
    dialect, rules = DIALECTS[MODELS[model]], rules_for(model)
    head = RequestHead(
        parameters={"model": model, "max_tokens": 100} if "claude" in model else {"model": model}
    )
    cache, options = simulator(rules), Options(window=window)
    log, ledger = [system(f"Be brief. {WORDS * 2}")], Ledger()
    before: SentMark | None = None
    sent = read = 0
    for number in range(turns):
        log.append(user(f"{number} {WORDS}"))
        envelope = build(log, head=head, ledger=ledger, options=options)
        request = place_markers(
            dialect.wire.render(envelope),
            envelope,
            dialect,
            breakpoints="plan",
            counter=ESTIMATE,
            rules=rules,
            before=before,
            cut=envelope.cut,
        ).request
        stream = dialect.cache.stream(request)
        counts = [ESTIMATE.count(block.data.decode()) for block in stream.blocks]
        tally = cache.send(stream.weighed(counts), at=number * APART)
        sent += tally.total
        read += tally.read
        ledger, before = envelope.ledger, None if envelope.cut else envelope.ledger.mark
        log.append(assistant(f"{number} {WORDS}"))
    return {"cuts": len(ledger.cuts), "sent": sent, "read": read}


if __name__ == "__main__":
    main()
