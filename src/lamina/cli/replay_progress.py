"""Lines that say how far a replay is, if its messages go to a file: no terminal draws a bar there."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from lamina.cli.output import tell
from lamina.dialects.usage import count_noun
from lamina.replay.runs import TraceReplay

SECONDS_BETWEEN_LINES = 30.0


class ReplayedSessions:
    """State: how many sessions were replayed, and when that was said last."""

    def __init__(self, keep_rows: Callable[[TraceReplay], None] | None) -> None:
        """`keep_rows` gets each replay first."""
        self._keep_rows = keep_rows
        self._is_terminal = sys.stderr.isatty()
        self._began = time.monotonic()
        self._last = self._began
        self._sessions = 0

    def add(self, trace_replay: TraceReplay) -> None:
        if self._keep_rows is not None:
            self._keep_rows(trace_replay)
        self._sessions += bool(trace_replay.outcomes)
        now = time.monotonic()
        if self._is_terminal or now - self._last < SECONDS_BETWEEN_LINES:
            return
        self._last = now
        tell(f"replayed {count_noun(self._sessions, 'session')} in {now - self._began:.0f} s")
