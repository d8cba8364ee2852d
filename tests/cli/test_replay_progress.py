from __future__ import annotations

import io

import pytest

from lamina.cli.replay_progress import ReplayedSessions
from lamina.replay.runs import ReplayOptions, TraceReplay, replay_trace
from lamina.replay.values import UnreadableLine
from tests.replay.talks import session, trace


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "seconds", "lines"),
    [
        (io.StringIO(), 0.0, ["replayed 0 sessions in 0 s", "replayed 1 session in 0 s"]),
        (io.StringIO(), 60.0, []),
        (Terminal(), 0.0, []),
    ],
)
def test_a_replay_without_a_terminal_says_how_far_it_is(
    stream: io.StringIO, seconds: float, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lamina.cli.replay_progress.SECONDS_BETWEEN_LINES", seconds)
    monkeypatch.setattr("sys.stderr", stream)
    rows: list[TraceReplay] = []
    replayed = ReplayedSessions(rows.append)
    options = ReplayOptions(policies=("none",), windows=(600,), count_as="gpt-5.4")
    replays = [
        TraceReplay(damaged=UnreadableLine(place="a.jsonl:1", reason="it is not JSON")),
        replay_trace(trace(*session(1)), options),
    ]
    for each in replays:
        replayed.add(each)
    assert rows == replays
    assert [line.removeprefix("lamina: ") for line in stream.getvalue().splitlines()] == lines
