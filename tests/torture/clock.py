"""A clock that steps by ten years, forwards and back, between processes and under an open store.

Order is by place, so nothing may change but names and stamps. The clock is stepped for Python code, in a
child; a database server has its own.
"""

from __future__ import annotations

import datetime as dt
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tests.torture.children import Say, failure, forked
from tests.torture.outcome import Outcome, Tally
from tests.torture.telling import Subject

DECADE = 3653 * 86_400.0
STEPS = (0.0, DECADE, -DECADE, 0.0, -2 * DECADE, 3600.0, -3600.0)
TURNS = 4


def clock(subject: Callable[[], Subject], *, within: str | None = None) -> Outcome:
    """A process for each step, and within each process another step after every turn."""
    tally, held = Tally("stepping clock"), find_clocks()
    with TemporaryDirectory(prefix="torture-", dir=within, ignore_cleanup_errors=True) as folder:
        store, told = subject(), 0
        Path(folder, "store").mkdir()
        for number in range(len(STEPS)):
            tally.tries += 1
            stepped = Stepped(held, first=number)
            lines = forked(lambda say: _write(store, f"{folder}/store", told, stepped, say)).said()  # noqa: B023
            tally.acknowledged += len(lines)
            try:
                assert not failure(lines), failure(lines)
                told = store.check(f"{folder}/store", told + len(lines))
            except Exception as error:  # noqa: BLE001 - whatever it is, the store does not hold
                tally.broken(f"step {number}", error)
                break
    return tally.outcome()


def _write(subject: Subject, folder: str, start: int, stepped: Stepped, say: Say) -> None:
    stepped.place()

    def acknowledge(turn: int) -> None:
        say(str(turn))
        stepped.step(turn)

    subject.write(folder, acknowledge, start=start, most=TURNS)


class HeldClock(NamedTuple):
    """A clock of the standard library, and the name by which a module holds it."""

    module: Any
    name: str
    clock: Any


def find_clocks() -> list[HeldClock]:
    """All that there are: looked for once, since thousands of modules are gone through."""
    clocks = {id(clock) for clock in (time.time, time.time_ns, dt.datetime)}
    return [
        HeldClock(module, name, value)
        for module in list(sys.modules.values())
        for name, value in list(getattr(module, "__dict__", {}).items())
        if id(value) in clocks
    ]


class Stepped:
    """Another time for all Python code of this process; `by` is how many seconds it is off."""

    def __init__(self, held: Sequence[HeldClock], *, first: int) -> None:
        self._held = held
        self._first = first
        self.step(0)

    def step(self, turn: int) -> None:
        self.by = STEPS[(self._first + turn) % len(STEPS)]

    def place(self) -> None:
        real, real_ns = time.time, time.time_ns
        others: dict[Any, Any] = {
            real: lambda: real() + self.by,
            real_ns: lambda: real_ns() + int(self.by * 1e9),
            dt.datetime: self._datetime(),
        }
        for module, name, clock in self._held:
            setattr(module, name, others[clock])

    def _datetime(self) -> type[dt.datetime]:
        stepped = self

        class Moved(dt.datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return super().now(tz) + dt.timedelta(seconds=stepped.by)

            @classmethod
            def utcnow(cls) -> Any:
                return super().now(dt.UTC).replace(tzinfo=None) + dt.timedelta(seconds=stepped.by)

        return Moved
