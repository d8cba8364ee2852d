"""Power cuts: a program is recorded once, and its disk made as it may be after a cut at any of its calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from shutil import rmtree
from tempfile import TemporaryDirectory

from tests.torture.children import Say, failure
from tests.torture.medium import Journal
from tests.torture.outcome import Outcome, Tally
from tests.torture.shim import Recorder
from tests.torture.telling import Subject

TURNS = 30
ANEW = 100
"""Cuts of one recording."""


def cuts(
    subject: Callable[[], Subject],
    count: int,
    recorder: Recorder,
    *,
    seed: int = 0,
    turns: int = TURNS,
    within: str | None = None,
) -> Outcome:
    """Lay out so many disks, open the store on each, and look whether everything acknowledged is there."""
    tally, dice = Tally("power cut"), Random(seed)  # noqa: S311
    while tally.tries < count:
        with TemporaryDirectory(prefix="torture-", dir=within, ignore_cleanup_errors=True) as folder:
            told, some = subject(), min(ANEW, count - tally.tries)
            journal = _recorded(told, Path(folder) / "live", recorder, turns)
            for _ in range(some):
                _cut(told, journal, Path(folder) / "laid", dice, tally)
    return tally.outcome()


def _recorded(subject: Subject, live: Path, recorder: Recorder, turns: int) -> Journal:
    live.mkdir()

    def work(say: Say) -> None:
        subject.write(str(live), lambda number: say(str(number)), start=0, most=turns)

    calls, said = recorder(work, str(live))
    assert not failure(said), failure(said)
    assert len(said) == turns, f"{len(said)} of {turns} turns were recorded"
    return Journal(str(live), calls)


def _cut(subject: Subject, journal: Journal, laid: Path, dice: Random, tally: Tally) -> None:
    tally.tries += 1
    cut = dice.randrange(len(journal) + 1)
    kind = journal.lay_out(cut, dice, laid)
    acknowledged = journal.acknowledged(cut)
    tally.acknowledged += acknowledged
    tally.note(kind)
    try:
        subject.check(str(laid), acknowledged)
    except Exception as error:  # noqa: BLE001 - whatever it is, the store does not hold
        tally.broken(f"cut at call {cut} of {len(journal)}, {kind}", error)
    finally:
        rmtree(laid)
