"""Reports how far a long answer is: the page asks while it waits, and draws a bar with the time left.

    with progress.job("7"):                      # around the view that the page asked for as its job 7
        for place in report_steps(places, "looking into requests"):
            ...
    progress.look("7")                           # from another thread, meanwhile

A view that nobody watches reports into nothing: no code that does the work has to know who waits for it. If
the reader has gone (`watch_reader`), the work ends with its next step.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import msgspec

_Item = TypeVar("_Item")

MOST_JOBS = 64
"""Answers that are under way at a time and are watched. One more is answered all the same."""

LONGEST_NAME = 40


class JobProgress(msgspec.Struct, kw_only=True):
    """What is being done, how much of it is done, and since when, in seconds of a clock that never jumps."""

    what: str = ""
    done: int = 0
    total: int = 0
    began: float = 0.0

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes at the pace until now; None while nothing is done."""
        if not self.done or not self.total:
            return None
        return (time.monotonic() - self.began) * (self.total - self.done) / self.done


_current: ContextVar[JobProgress | None] = ContextVar("lamina_inspector_job", default=None)


class ReaderGone(Exception):
    """Whoever asked has closed the connection: nobody waits for the answer."""


def _stays() -> bool:
    return False


_is_gone: ContextVar[Callable[[], bool]] = ContextVar("lamina_inspector_reader", default=_stays)


@contextmanager
def watch_reader(is_gone: Callable[[], bool]) -> Iterator[None]:
    """What is done inside ends with ReaderGone at its next step, once `is_gone` says so."""
    token = _is_gone.set(is_gone)
    try:
        yield
    finally:
        _is_gone.reset(token)


class AnswerProgress:
    """The answers that are under way, by the names that the page gave them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, JobProgress] = {}

    @contextmanager
    def job(self, name: str) -> Iterator[None]:
        """What is reported inside belongs to this job. Without a name, nothing is kept."""
        if not name or len(name) > LONGEST_NAME:
            yield
            return
        job = JobProgress(began=time.monotonic())
        with self._lock:
            if len(self._jobs) < MOST_JOBS:
                self._jobs[name] = job
        token = _current.set(job)
        try:
            yield
        finally:
            _current.reset(token)
            with self._lock:
                self._jobs.pop(name, None)

    def look(self, name: str) -> JobProgress:
        """How far a job is. One that has ended, or never began, has nothing to do."""
        with self._lock:
            return self._jobs.get(name, JobProgress())


def report_steps(items: Sequence[_Item], what: str) -> Iterator[_Item]:
    """The same items, one by one; each that was taken and worked on counts as done.

    Raises ReaderGone if nobody waits any more.
    """
    job = _current.get() or JobProgress()
    is_gone = _is_gone.get()
    job.what = what
    job.total = len(items)
    job.done = 0
    job.began = time.monotonic()
    for item in items:
        if is_gone():
            raise ReaderGone
        yield item
        job.done += 1
