"""Made-up sessions in which each result takes a twentieth to a fifth of the window.

Recorded sessions have few results of that size, and they are the hardest for a planner: a handful of them
fills the room. An agent reads modules of a made-up project, one after the other, and calls functions by the
names that it has read. It takes most names from the module that it read last, and few from old ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

LEAST, MOST = 0.05, 0.2
"""Of the window: what a result takes, at least and at most."""

CALLS = 60
CHARACTERS = 3.2
"""Characters for a token of such code, about."""

_VERBS = "load merge split settle rank quote check archive assign price audit index".split()
_NOUNS = "order invoice parcel route tariff voucher shelf courier rebate depot pallet manifest".split()


@contextmanager
def large_result_sessions(window: int, sessions: int) -> Iterator[Path]:
    """A file of such sessions, as `lamina replay` reads them."""
    with TemporaryDirectory(prefix="lamina-bench-") as folder:
        path = Path(folder) / "large-results.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for seed in range(sessions):
                file.write(json.dumps(_make_session(seed, window)) + "\n")
        yield path


def _make_session(seed: int, window: int) -> dict[str, Any]:
    rng = Random(seed)  # noqa: S311 - a sample, not a secret
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a careful programmer. Read before you call."},
        {"role": "user", "content": "Find out where the total of an order is computed, and check each step."},
    ]
    names_by_module: list[list[str]] = []
    for number in range(CALLS):
        text, names = _make_module(rng, number, int(window * rng.uniform(LEAST, MOST)))
        reason = _choose_names(rng, names_by_module)
        messages += _make_step(number, f"Next I follow {reason}." if reason else "I begin here.", text)
        names_by_module.append(names)
    messages.append({"role": "assistant", "content": f"It is in {_choose_names(rng, names_by_module)}."})
    return {
        "id": f"large-results-{seed}",
        "format": "openai-chat",
        "messages": messages,
        "meta": {"model": "gpt-5", "source": "made up"},
    }


def _make_module(rng: Random, number: int, tokens: int) -> tuple[str, list[str]]:
    """The text of a module of so many tokens, and the names of its functions."""
    lines: list[str] = []
    names: list[str] = []
    characters = 0
    while characters < tokens * CHARACTERS:
        name = f"{rng.choice(_VERBS)}_{rng.choice(_NOUNS)}_{number}_{len(names)}"
        body = f"    return {rng.choice(_NOUNS)}.{rng.choice(_VERBS)}({rng.randrange(10_000)})"
        lines += [f"def {name}({rng.choice(_NOUNS)}):", body, ""]
        characters += len(name) + len(body) + 20
        names.append(name)
    return "\n".join(lines), names


def _choose_names(rng: Random, names_by_module: list[list[str]]) -> str:
    """Three names of modules that were read: the older a module, the rarer."""
    if not names_by_module:
        return ""
    weights = [(len(names_by_module) - at) ** -1.5 for at in range(len(names_by_module))]
    modules = rng.choices(names_by_module, weights, k=3)
    return ", ".join(rng.choice(names) for names in modules)


def _make_step(number: int, reason: str, text: str) -> list[dict[str, Any]]:
    arguments = json.dumps({"path": f"src/module_{number}.py"})
    call = {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": "read_file", "arguments": arguments},
    }
    return [
        {"role": "assistant", "content": reason, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": text},
    ]
