"""Shows how far a replay is: a bar on a terminal, a line now and then elsewhere. Ctrl-C ends it early."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from typing import Self

from lamina.cli.output import ProgressLine, tell
from lamina.dialects.usage import count_noun
from lamina.replay.runs import TraceReplay

SECONDS_BETWEEN_LINES = 30.0
BAR_WIDTH = 30


SMALLEST_SHARE = 0.05
"""Of the work: before so much is done, nobody knows how long the rest takes."""


def describe_rest(seconds: float, share: float) -> str:
    """The end of a line about how far it is: ", about 2 min left"; "" as long as that is not known."""
    if share < SMALLEST_SHARE or share >= 1:
        return ""
    left = seconds * (1 - share) / share
    if left < 1:
        return ""
    if left < 90:
        return f", about {left:.0f} s left"
    return f", about {left / 60:.0f} min left"


class ReplaysUntilInterrupted:
    """Replays that end at Ctrl-C as if there were no more: whoever waited for some wants to see these.

    If none was replayed yet, Ctrl-C ends the command as usual.
    """

    def __init__(self) -> None:
        self.was_interrupted = False

    def take(self, replays: Iterator[TraceReplay]) -> Iterator[TraceReplay]:
        sessions = 0
        try:
            for trace_replay in replays:
                sessions += trace_replay.reported is not None
                yield trace_replay
        except KeyboardInterrupt:
            if not sessions:
                raise
            self.was_interrupted = True


class ReplayBar:
    """How far a replay is, on a terminal: the share of bytes read, sessions, and the time that is left.

    As a context it is drawn again each second: a long session gives no other sign of life. Elsewhere a line
    comes now and then.
    """

    def __init__(self, line: ProgressLine) -> None:
        self._line = line
        self._is_terminal = sys.stderr.isatty()
        self._began = time.monotonic()
        self._told = self._began
        self._share = 0.0
        self._sessions = 0
        self._done = threading.Event()
        self._clock = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Self:
        self._clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._clock.join()

    def read(self, done: int, total: int) -> None:
        self._share = 1.0
        if total:
            self._share = done / total
        self._draw()

    def count_one(self, trace_replay: TraceReplay) -> None:
        self._sessions += trace_replay.reported is not None
        self._draw()
        now = time.monotonic()
        if self._is_terminal or now - self._told < SECONDS_BETWEEN_LINES:
            return
        self._told = now
        tell(f"replayed {count_noun(self._sessions, 'session')} in {now - self._began:.0f} s")

    def _tick(self) -> None:
        while not self._done.wait(1.0):
            self._draw()

    def _draw(self) -> None:
        full = round(BAR_WIDTH * self._share)
        drawn = f"[{'#' * full}{'.' * (BAR_WIDTH - full)}] {100 * self._share:.0f} %"
        seconds = time.monotonic() - self._began
        rest = describe_rest(seconds, self._share)
        self._line.draw(f"{drawn}, {count_noun(self._sessions, 'session')}, {seconds:.0f} s{rest}")
