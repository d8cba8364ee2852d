from __future__ import annotations

import os
import random
import re
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.core import Thinking, ToolCall, ToolResult, text_of
from lamina.core.build import build
from lamina.core.hashing import digest
from lamina.core.memo import BuildMemo
from lamina.core.values import Budget, Ledger, Role, Segment
from lamina.testing import generate_session, split_calls

Log = tuple[Segment, ...]
SEEDS = range(1, 6)
PRINT_DIGEST = """
from lamina.core.hashing import digest
from lamina.testing import generate_session
print(digest(generate_session(4, thinking=True)))
"""


@cache
def made(seed: int) -> Log:
    return generate_session(seed)


def exchanges(log: Log) -> Iterator[tuple[ToolCall, ToolResult]]:
    """Calls and results in the order in which they were logged."""
    asked = [part for segment in log for part in segment.parts if isinstance(part, ToolCall)]
    answered = [part for segment in log for part in segment.parts if isinstance(part, ToolResult)]
    return zip(asked, answered, strict=True)


def reads(log: Log) -> list[tuple[str, str]]:
    """The arguments of each read, and what it gave."""
    return [(c.arguments, text_of(r.content)) for c, r in exchanges(log) if c.name == "read_file"]


def attached(log: Log) -> dict[str, list[str]]:
    """The contents under which each file was attached."""
    found: dict[str, list[str]] = {}
    for segment in log:
        if segment.kind == "file":
            found.setdefault(segment.key, []).append(text_of(segment.parts))
    return found


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_same_seed_gives_the_same_session_in_every_process(hash_seed: str) -> None:
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "LC_ALL": "C"}
    printed = subprocess.run(
        [sys.executable, "-c", PRINT_DIGEST], env=env, capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == digest(generate_session(4, thinking=True))


def test_global_randomness_is_neither_used_nor_moved() -> None:
    random.seed(1)
    before = random.getstate()
    one = generate_session(2, turns=3)
    assert random.getstate() == before
    random.seed(2)
    assert generate_session(2, turns=3) == one


def test_seeds_give_different_sessions() -> None:
    assert len({digest(made(seed)) for seed in SEEDS}) == len(SEEDS)


def test_a_session_survives_json() -> None:
    log = generate_session(1, turns=3, thinking=True)
    assert msgspec.json.decode(msgspec.json.encode(log), type=tuple[Segment, ...]) == log


@given(seed=st.integers(0, 2**32), turns=st.integers(1, 6), steps=st.integers(1, 5), thinking=st.booleans())
@settings(max_examples=25)
def test_every_call_of_the_model_sees_a_log_that_needs_no_repair(
    *, seed: int, turns: int, steps: int, thinking: bool
) -> None:
    memo, ledger = BuildMemo(), Ledger()
    for prefix in split_calls(generate_session(seed, turns=turns, steps=steps, thinking=thinking)):
        ledger = build(prefix, ledger=ledger, memo=memo).ledger
    assert ledger.repairs == {}
    assert ledger.cuts == ()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_call_has_its_result(seed: int) -> None:
    pairs = list(exchanges(made(seed)))
    assert [call.id for call, _ in pairs] == [result.id for _, result in pairs]
    assert max(Counter(call.id for call, _ in pairs).values()) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_calls_are_growing_prefixes_that_end_where_the_model_speaks(seed: int) -> None:
    log = made(seed)
    found = list(split_calls(log))
    assert all(len(one) < len(two) and two[: len(one)] == one for one, two in pairwise(found))
    assert all(prefix[-1].role is not Role.ASSISTANT for prefix in found)
    assert all(log[len(prefix)].role is Role.ASSISTANT and not log[len(prefix)].joins for prefix in found)
    assert len(found) == sum(s.role is Role.ASSISTANT and not s.joins for s in log)


def test_a_log_that_waits_for_the_model_is_a_call_itself() -> None:
    log = made(1)
    last = list(split_calls(log))[-1]
    assert list(split_calls(last))[-1] == last


@pytest.mark.parametrize("turns", [1, 2, 5])
def test_each_turn_has_one_prompt(turns: int) -> None:
    assert sum(segment.kind == "user" for segment in generate_session(3, turns=turns)) == turns


@pytest.mark.parametrize("seed", SEEDS)
def test_files_are_read_again_changed_and_unchanged(seed: int) -> None:
    found = reads(made(seed))
    distinct = set(found)
    assert len(distinct) < len(found)
    assert max(Counter(arguments for arguments, _ in distinct).values()) > 1


@pytest.mark.parametrize("seed", SEEDS)
def test_a_file_is_attached_again_unchanged_and_then_changed(seed: int) -> None:
    versions = max(attached(made(seed)).values(), key=len)
    assert len(versions) > len(set(versions)) > 1


@pytest.mark.parametrize("seed", SEEDS)
def test_some_steps_call_several_tools_at_once(seed: int) -> None:
    roles = [segment.kind for segment in made(seed)]
    assert ("tool_call", "tool_call") in set(pairwise(roles))


def test_some_results_are_errors_and_most_are_not() -> None:
    failed = [result.error for seed in SEEDS for _, result in exchanges(made(seed))]
    assert 0.01 < statistics.mean(failed) < 0.1


def test_tracebacks_searches_and_listings_come_up() -> None:
    text = "\n".join(text_of(result.content) for seed in SEEDS for _, result in exchanges(made(seed)))
    assert "E   ValueError" in text
    assert re.search(r"^src/\w+\.py:\d+:def ", text, re.MULTILINE)
    assert re.search(r"^-rw-r--r-- +\d+ src/", text, re.MULTILINE)


def test_results_are_mostly_small_and_sometimes_large() -> None:
    sizes = [len(text_of(r.content)) for seed in SEEDS for _, r in exchanges(made(seed))]
    assert statistics.median(sizes) < 1_000
    assert max(sizes) > 15_000
    assert statistics.mean(sizes) > 1.3 * statistics.median(sizes)


def test_thinking_opens_each_message_of_the_assistant_where_asked_for() -> None:
    opening = [
        s for s in generate_session(1, turns=3, thinking=True) if s.role is Role.ASSISTANT and not s.joins
    ]
    assert all(isinstance(s.parts[0], Thinking) and s.parts[0].signature for s in opening)
    assert not any(isinstance(s.parts[0], Thinking) for s in made(1))


def test_a_session_is_long_enough_to_need_cuts() -> None:
    memo, ledger = BuildMemo(), Ledger()
    for prefix in split_calls(made(1)):
        ledger = build(prefix, budget=Budget(window=24_000), ledger=ledger, memo=memo).ledger
    assert len(ledger.cuts) > 1


@pytest.mark.parametrize("thinking", [False, True])
def test_a_memo_changes_nothing_in_a_session_with_cuts_and_folds(*, thinking: bool) -> None:
    memo, ledger, budget = BuildMemo(), Ledger(), Budget(window=6_000)
    for prefix in split_calls(generate_session(5, turns=4, thinking=thinking)):
        envelope = build(prefix, budget=budget, ledger=ledger, memo=memo)
        assert envelope == build(prefix, budget=budget, ledger=ledger)
        ledger = envelope.ledger
    assert ledger.cuts
    assert ledger.folds
