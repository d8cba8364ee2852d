"""The same bytes in every process and thread, whatever hash seed, locale or time zone, after a restart."""

from __future__ import annotations

import json
import locale
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.core.hashing import digest
from lamina.core.laws import is_same_request
from lamina.core.memo import BuildMemo
from lamina.core.values import Budget, Ledger
from lamina.testing import generate_session, split_calls

ROOT = Path(__file__).resolve().parent.parent
LOG = generate_session(3, turns=3, steps=6, thinking=True)
BUDGET = Budget(window=6_000, reserve=0)

SCRIPT = """
import locale, sys
from tests.test_determinism import told
locale.setlocale(locale.LC_ALL, "")
print(told(restarts="restarts" in sys.argv))
"""


def requests(*, restarts: bool = False) -> list[Envelope]:
    """Every request of the session, with one memo, or from the ledger as JSON each time."""
    ledger, memo, made = Ledger(), BuildMemo(), []
    for log in split_calls(LOG):
        if restarts:
            ledger, memo = Ledger.load(json.loads(json.dumps(ledger.dump()))), BuildMemo()
        made.append(build(log, budget=BUDGET, ledger=ledger, memo=memo))
        ledger = made[-1].ledger
    return made


def told(*, restarts: bool = False) -> str:
    """The whole session in one digest: what was sent, why, and the ledgers."""
    made = requests(restarts=restarts)
    return digest([(e.entries, e.account, e.ledger, e.prefix, e.notes) for e in made])


@cache
def here() -> str:
    return told()


def elsewhere(*arguments: str, **environment: str) -> str:
    """The same in a process of its own."""
    command = [sys.executable, "-c", SCRIPT, *arguments]
    run = subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return run.stdout.strip()


def has(name: str) -> bool:
    before = locale.setlocale(locale.LC_ALL)
    try:
        locale.setlocale(locale.LC_ALL, name)
    except locale.Error:
        return False
    locale.setlocale(locale.LC_ALL, before)
    return True


def test_the_session_has_what_could_differ() -> None:
    last = requests()[-1].ledger
    assert len(last.cuts) > 1
    assert last.lines
    assert last.folds


@pytest.mark.parametrize(
    ("seed", "name", "zone"),
    [
        pytest.param("0", "C", "UTC", marks=pytest.mark.thorough),
        pytest.param("1", "tr_TR.UTF-8", "Pacific/Kiritimati", marks=pytest.mark.thorough),
        ("random", "de_DE.UTF-8", "America/St_Johns"),
    ],
)
def test_neither_hash_seed_nor_locale_nor_time_zone_matters(seed: str, name: str, zone: str) -> None:
    """A locale that is not installed here gives way to one that every system has."""
    installed = name if has(name) else "C.UTF-8"
    assert elsewhere("restarts", PYTHONHASHSEED=seed, LC_ALL=installed, TZ=zone) == here()


def test_a_restart_at_every_request_does_not_matter() -> None:
    assert all(map(is_same_request, requests(restarts=True), requests()))
    assert told(restarts=True) == here()


def test_the_thread_does_not_matter() -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: told(restarts=number % 2 == 0), range(4)))
    assert found == [here()] * 4
