"""Every way to lose a cache is named, with its place, and no harmless change is called a loss."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from functools import cache
from random import Random
from typing import Any

import pytest

from lamina.caches import CacheRules, rules_for
from lamina.core.build import build
from lamina.diagnose import CAUSES, Difference, diff
from lamina.dialects import DIALECTS
from lamina.testing import generate_session
from tests.fixtures.damages import Pair
from tests.fixtures.faults import FAULTS, Fault, damaged
from tests.fixtures.harmless import HARMLESS, Harmless, changed
from tests.fixtures.moves import mark

SEEDS = range(4)
MODELS = {"anthropic": "claude-opus-5", "openai_chat": "gpt-6-sol"}
PIXELS = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
PAGES = "JVBERi0xLjEKMSAwIG9iajw8Pj5lbmRvYmoKdHJhaWxlcg"
NAMES = "read_file edit_file write_file search shell".split()
CASES = [(fault, dialect) for fault in FAULTS for dialect in fault.dialects]


@cache
def whole(dialect: str, seed: int) -> dict[str, Any]:
    """A session as a request, with tools, a picture, a document and, where it has a place, thinking."""
    log = generate_session(seed, turns=5, steps=4, thinking=dialect == "anthropic")
    request = DIALECTS[dialect].wire.render(build(log))
    shape = {"type": "object", "properties": {"path": {"type": "string"}}}
    if dialect == "anthropic":
        tools = [{"name": n, "description": f"Does {n}.", "input_schema": shape} for n in NAMES]
    else:
        tools = [{"type": "function", "function": {"name": n, "parameters": shape}} for n in NAMES]
    user_messages = [i for i, message in enumerate(request["messages"]) if message["role"] == "user"]
    request["messages"][user_messages[0]] = {
        "role": "user",
        "content": [*media(dialect), _text("Look at this first.")],
    }
    return {**request, "model": MODELS[dialect], "max_tokens": 900, "tools": tools}


def media(dialect: str) -> list[dict[str, Any]]:
    if dialect == "anthropic":
        return [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXELS}},
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": PAGES},
            },
        ]
    return [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXELS}"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PAGES}"}},
    ]


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def two_calls(dialect: str, rng: Random, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The request of one call of a session, and that of a later one; marked as applications do."""
    request = whole(dialect, seed)
    messages = request["messages"]
    ends = [
        i + 1 for i, m in enumerate(messages[:-1])
        if m["role"] != "assistant" and messages[i + 1]["role"] == "assistant"
    ]  # fmt: skip
    one = rng.randrange(len(ends) * 2 // 3, len(ends) - 1)
    before, after = (
        {**deepcopy(request), "messages": deepcopy(messages[:end])} for end in ends[one : one + 2]
    )
    for each in (before, after):
        mark(each)
    return before, after


def rules_of(dialect: str) -> CacheRules:
    return rules_for(MODELS[dialect], dialect=dialect)


def diff_pair(pair: Pair, rules: CacheRules | None) -> Difference:
    return diff(pair.before, pair.after, rules=rules, gap=pair.gap)


def right_place(difference: Difference, pair: Pair) -> bool:
    return difference.was.startswith(pair.place) or difference.entry.startswith(pair.place)


@pytest.mark.parametrize(("fault", "dialect"), CASES, ids=[f"{f.name}, {d}" for f, d in CASES])
def test_a_fault_is_named_with_its_place(fault: Fault, dialect: str) -> None:
    tried = 0
    for seed in SEEDS:
        rng = Random(seed)  # noqa: S311 - the same places each time
        pair = damaged(fault, *two_calls(dialect, rng, seed), rng)
        if pair is None:
            continue
        tried += 1
        for rules in (None, rules_of(dialect)) if not fault.cached else (rules_of(dialect),):
            difference = diff_pair(pair, rules)
            assert right_place(difference, pair), (difference, pair.place)
            assert difference.cause in fault.causes, difference
            assert difference.advice
            if rules is None:
                assert difference.lost > 0
            else:
                missing = (difference.cached or 0) - difference.kept
                assert 0 <= difference.lost <= missing, difference
                assert difference.lost > 0 or not missing or difference.cause == "removed", difference
    assert tried


@pytest.mark.parametrize("harmless", HARMLESS, ids=[h.name for h in HARMLESS])
def test_a_harmless_change_is_no_loss(harmless: Harmless) -> None:
    for dialect in harmless.dialects:
        for seed in SEEDS:
            rng = Random(seed)  # noqa: S311 - the same places each time
            pair = changed(harmless, *two_calls(dialect, rng, seed), rng)
            for rules in (None, rules_of(dialect)) if harmless.cached else (None,):
                difference = diff_pair(pair, rules)
                assert (difference.cause, difference.lost) == ("none", 0), (dialect, seed, difference)


def test_the_catalogue_is_as_wide_as_it_says() -> None:
    assert len(FAULTS) >= 40
    assert len(HARMLESS) >= 20
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    named = Counter(cause for fault in FAULTS for cause in fault.causes)
    assert set(named) <= set(CAUSES)
