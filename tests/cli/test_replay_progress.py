from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lamina.cli.output import ProgressLine
from lamina.cli.replay_progress import ReplayBar, ReplaysUntilInterrupted, describe_rest
from lamina.replay import ReplayOptions, UnreadableLine
from lamina.replay.runs import TraceReplay, replay_trace
from lamina.replay.shards import FileReplay
from tests.cli.running import run
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
    bar = ReplayBar(ProgressLine())
    options = ReplayOptions(policies=("none",), windows=(600,), count_as="gpt-5.4")
    replays = [
        TraceReplay(damaged=UnreadableLine(place="a.jsonl:1", reason="it is not JSON")),
        replay_trace(trace(*session(1)), options),
    ]
    for each in replays:
        bar.count_one(each)
    told = [line.removeprefix("lamina: ") for line in stream.getvalue().splitlines()]
    assert [line for line in told if line.startswith("replayed")] == lines


@pytest.mark.parametrize(
    ("seconds", "share", "words"),
    [
        (10.0, 0.01, ""),  # too early to say
        (10.0, 0.5, ", about 10 s left"),
        (60.0, 0.1, ", about 9 min left"),
        (10.0, 1.0, ""),
    ],
)
def test_the_time_that_is_left_is_said_once_it_is_known(seconds: float, share: float, words: str) -> None:
    assert describe_rest(seconds, share) == words


def interrupted_files(*_: object, count: Any, **__: object) -> Iterator[FileReplay]:
    """One file is replayed, and then somebody types Ctrl-C."""
    options = ReplayOptions(policies=("none", "lamina"), windows=(600,), count_as="gpt-5.4")
    replay = replay_trace(trace(*session(1)), options)
    count(replay)
    yield FileReplay(file=Path("a.jsonl"), replays=(replay,))
    raise KeyboardInterrupt


def test_ctrl_c_prints_the_table_of_what_was_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n", encoding="utf-8")
    monkeypatch.setattr("lamina.cli.replay.replay_files", interrupted_files)
    written = tmp_path / "account.json"
    ran = run("replay", tmp_path, "--json", written)
    assert ran.code == 130
    assert "lamina  " in ran.out
    assert "stopped by Ctrl-C: this is of 1 session, not of all of them" in ran.err
    assert not written.exists()
    assert run("replay", tmp_path, "--json", "-").out == ""


def test_ctrl_c_before_the_first_session_prints_nothing() -> None:
    def interrupt() -> Iterator[TraceReplay]:
        yield TraceReplay(damaged=UnreadableLine(place="a.jsonl:1", reason="it is not JSON"))
        raise KeyboardInterrupt

    replays = ReplaysUntilInterrupted()
    with pytest.raises(KeyboardInterrupt):
        list(replays.take(interrupt()))
    assert not replays.was_interrupted


def test_the_bar_of_a_narrow_terminal_stays_on_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "20")
    ReplayBar(ProgressLine()).read(1, 2)
    drawn = terminal.getvalue().removeprefix("\r\x1b[K")
    assert drawn.startswith("[######")
    assert len(drawn) < 20
