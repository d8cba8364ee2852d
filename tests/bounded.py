"""A bound on the processor time of a test, so that work that would take hours ends as a failure.

It is no stopwatch: the bound is many times what the work needs, and a slow machine does not reach it.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

GENEROUS = 30.0
"""Seconds of this process's own processor time, for work that needs less than one."""


class TooMuchWork(AssertionError):
    """The work was not done within its bound."""


@contextmanager
def bounded_work(seconds: float = GENEROUS) -> Iterator[None]:
    """Fail if what is done inside takes more than so many seconds of processor time."""

    def fail(_: int, __: FrameType | None) -> NoReturn:
        raise TooMuchWork(f"more than {seconds:g} seconds of processor time")

    before = signal.signal(signal.SIGVTALRM, fail)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
