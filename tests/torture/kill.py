"""kill -9 at random instants: what was acknowledged is there, whole, once, and the rest can be sent again.

Half of the instants are counted from the birth of the process, so that the opening of a store is among them,
half from the first acknowledged turn. After some kills the store begins anew, in an empty folder.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.torture.children import failure, forked
from tests.torture.outcome import Outcome, Tally
from tests.torture.telling import Subject

LATEST = 0.06
"""Seconds after which a kill comes at the latest."""

ANEW = 25
"""Kills after which the store begins anew."""


def kills(
    subject: Callable[[], Subject],
    count: int,
    *,
    seed: int = 0,
    within: str | None = None,
    latest: float = LATEST,
) -> Outcome:
    """Kill so many writers. `subject` is made anew with each new folder."""
    tally, dice = Tally("kill -9"), Random(seed)  # noqa: S311
    while tally.tries < count:
        with TemporaryDirectory(prefix="torture-", dir=within, ignore_cleanup_errors=True) as folder:
            _series(
                subject(), Path(folder) / "store", min(ANEW, count - tally.tries), _Hunt(dice, latest, tally)
            )
    return tally.outcome()


class _Hunt(NamedTuple):
    dice: Random
    latest: float
    tally: Tally


def _series(subject: Subject, folder: Path, count: int, hunt: _Hunt) -> None:
    folder.mkdir()
    known, tally = 0, hunt.tally
    for _ in range(count):
        tally.tries += 1
        acknowledged = _killed(subject, str(folder), known, hunt)
        tally.acknowledged += acknowledged
        try:
            known = subject.check(str(folder), known + acknowledged)
        except Exception as error:  # noqa: BLE001 - whatever it is, the store does not hold
            tally.broken(f"kill {tally.tries}", error)
            rmtree(folder)
            return


def _killed(subject: Subject, folder: str, start: int, hunt: _Hunt) -> int:
    """How many turns one writer had acknowledged when it died."""
    child = forked(lambda say: subject.write(folder, lambda number: say(str(number)), start=start))
    try:
        if hunt.dice.random() < 0.5:
            child.first()
        time.sleep(hunt.dice.random() * hunt.latest)
    finally:
        child.kill()
    lines = child.said()
    if words := failure(lines):
        hunt.tally.broken(f"kill {hunt.tally.tries}, the writer", AssertionError(words))
        return len(lines) - 1
    hunt.tally.note("died before the first group" if not lines else "died after one or more")
    return len(lines)
