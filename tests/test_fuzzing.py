"""The short run of the fuzzer, from fixed seeds, and what its clients are; bench/fuzz.py is the long run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from itertools import count as counting

import pytest

import lamina.fitting
from lamina.core.hashing import digest
from lamina.fitting import Policy
from tests.fuzzing import (
    Account,
    Script,
    Subject,
    Violation,
    never_played,
    play,
    script_for,
    table,
    turns,
    violations_table,
)
from tests.fuzzing.account import every_class, merged
from tests.fuzzing.counting import count, tolerance
from tests.fuzzing.moves import MOVES
from tests.fuzzing.profiles import DIALECTS, OPTIONAL, profile_for
from tests.fuzzing.reading import read, stream
from tests.fuzzing.words import CANARY, SCRIPTS, Words, canaries

LAMINA = Subject(fit=lamina.fit_request, memo=lamina.fitting.RequestMemo)

FIRST_MOVES = 4
"""Moves of a short conversation: enough for a fold and something that a client does to it."""

CHUNKS = (0, *(pytest.param(chunk, marks=pytest.mark.thorough) for chunk in range(1, 6)))
"""All are played every night, one with each change; the long run plays thousands of others."""

SHORT, WHOLE = 12, 3
"""Conversations of each chunk: with their first moves only, and with all."""


@pytest.mark.parametrize("chunk", CHUNKS)
def test_no_client_finds_a_law_broken(chunk: int) -> None:
    found: list[tuple[Script, Violation]] = []
    for script in scripts(chunk):
        found += [(script, violation) for violation in play(script, LAMINA).violations]
    assert not found, told(found)


def scripts(chunk: int) -> list[Script]:
    seeds = (seed for seed in counting(chunk * 1000) if is_small(seed))
    short = [next(seeds) for _ in range(SHORT)]
    whole = [next(seeds) for _ in range(WHOLE)]
    return [Script(seed=seed, moves=script_for(seed).moves[:FIRST_MOVES]) for seed in short] + [
        script_for(seed) for seed in whole
    ]


def is_small(seed: int) -> bool:
    profile = profile_for(seed)
    return profile.window <= 3000 and not profile.long


def told(found: list[tuple[Script, Violation]]) -> str:
    """Each sort of violation with how often it was found, and the first of it with what replays it."""
    counts = Counter(violation.sort for _, violation in found)
    lines = [f"{len(found)} violations"]
    for sort, times in counts.most_common():
        script, violation = next(pair for pair in found if pair[1].sort == sort)
        lines += [f"{sort}, {times} times: {violation.detail}", f"  python bench/fuzz.py {script} --show"]
    return "\n".join(lines)


def test_a_seed_is_the_same_client_everywhere() -> None:
    """In another process with another hash seed the requests of the same seeds are the same."""
    here = requests_of(range(8))
    program = "from tests.test_fuzzing import requests_of; print(requests_of(range(8)))"
    environment = os.environ | {"PYTHONHASHSEED": "77"}
    said = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == here


def requests_of(seeds: range) -> str:
    """A digest of what the clients of these seeds send when everything is refused."""
    refusing = Subject(fit=refuse, memo=dict)
    came = [turn.came for seed in seeds for turn in turns(script_for(seed), refusing)]
    return f"{len(came)} requests: {digest(came)}"


def refuse(*_: object, **__: object) -> lamina.Fitted:
    raise lamina.BadInput("nothing is taken")


@pytest.mark.thorough
def test_every_move_and_every_class_is_played() -> None:
    refusing = Subject(fit=refuse, memo=dict)
    account = Account()
    for seed in range(250):
        account.add(play(Script(seed=seed, moves=script_for(seed).moves[:12]), refusing))
    assert never_played(account) == ["has passed as it came"]
    assert {name for _, name in script_for(0).names} <= set(MOVES)


def test_a_move_does_the_same_when_others_are_taken_away() -> None:
    """The words of a move come from its own place, so a shrunk script says the same as the whole one."""
    script = next(script_for(seed) for seed in counting() if len(script_for(seed).moves) > 4)
    last = script.moves[-1]
    whole = [turn.came for turn in turns(script, LAMINA)]
    assert canaries(whole[-1])
    alone = list(turns(Script(seed=script.seed, moves=(0, last)), LAMINA))
    assert alone[0].came == whole[0]


def test_a_trait_that_is_taken_away_leaves_the_others() -> None:
    for seed in range(30):
        profile = profile_for(seed)
        plain = profile_for(seed, frozenset(OPTIONAL))
        assert (plain.dialect, plain.model, plain.window) == (profile.dialect, profile.model, profile.window)
        assert not any((plain.thinking, plain.images, plain.markers, plain.system))


@pytest.mark.parametrize("script", SCRIPTS)
def test_words_have_canaries_of_their_own(script: str) -> None:
    words = Words("test", (script,), imitates=True)
    texts = [words.text(tokens) for tokens in (3, 20, 400)]
    found = [canaries(text) for text in texts]
    assert len(found[2]) == 3
    assert all(found)
    assert len(set().union(*found)) == sum(map(len, found))
    assert all(CANARY.fullmatch(word) for words_ in found for word in words_)


def test_a_string_is_one_text_block_and_markers_are_not_read() -> None:
    text = {"type": "text", "text": "q", "cache_control": {"type": "ephemeral"}}
    one = {"model": "claude-opus-4-8", "messages": [{"role": "user", "content": "q"}]}
    other = {"model": "claude-opus-4-8", "messages": [{"role": "user", "content": [text]}]}
    assert stream(read(one, "anthropic")) == stream(read(other, "anthropic"))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_count_from_the_wire_is_not_above_lamina_s_own(dialect: str) -> None:
    """Where there is room for all, it is counted here as there, but for what the tolerance allows."""
    refusing = Subject(fit=refuse, memo=dict)
    seeds = (seed for seed in counting() if profile_for(seed).dialect == dialect and is_plain(seed))
    compared = 0
    for _ in range(12):
        for turn in turns(script_for(next(seeds)), refusing):
            if turn.came_breaches:
                continue
            fitted = lamina.fit_request(
                turn.came_request, dialect=dialect, budget=ROOMY, policy=Policy(counter=turn.counter)
            )
            if fitted.request == turn.came_request:
                tokens = count(turn.came_request, dialect, turn.counter, None)
                assert tokens <= fitted.envelope.tokens + tolerance(turn.came_request, dialect)
                compared += 1
    assert compared > 20


ROOMY = lamina.Budget(window=10_000_000, reserve=0)


def is_plain(seed: int) -> bool:
    profile = profile_for(seed)
    special = profile.thinking or profile.answer_schema or profile.reported_usage or profile.items
    return is_small(seed) and not special


def test_accounts_of_parts_are_the_account_of_the_whole() -> None:
    refusing = Subject(fit=refuse, memo=dict)
    parts = [Account() for _ in range(3)]
    whole = Account()
    for seed in range(12):
        played = play(script_for(seed), refusing)
        whole.add(played)
        parts[seed % 3].add(played)
    assert json.loads(merged(parts).dump()) == json.loads(whole.dump())
    assert Account.load(whole.dump()) == whole


def test_the_tables_name_every_class_and_every_violation() -> None:
    account = Account()
    account.add(play(script_for(1), Subject(fit=lambda *_, **__: 1 // 0, memo=dict)))  # type: ignore[arg-type]
    rows = table(account)
    assert all(f"| {name} |" in rows for name in every_class())
    assert "| raises:ZeroDivisionError | 1 | 1000.0 | 1 |" in violations_table(account)
