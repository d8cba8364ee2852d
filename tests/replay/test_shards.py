from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lamina.errors import BadInput
from lamina.replay import ReplayOptions, Trace, read_traces
from lamina.replay.engines import Engine, open_engine
from lamina.replay.runs import TraceReplay
from lamina.replay.shards import FileReplay, replay_files
from lamina.replay.traces import find_files
from lamina.replay.traces.json_fields import parse_moment
from lamina.replay.traces.own_answers import WITHOUT_TIMES
from tests.replay.recorded import chat_log, claude_code, codex, line, piece, said, session, written

OPTIONS = ReplayOptions(policies=("none", "lamina"), windows=(600,), count_as="gpt-5.4", fill_head=True)


def resumed() -> list[dict[str, Any]]:
    """A session of Claude Code that begins with a copy of the answers of another, and goes on."""
    rows = [{**row, "sessionId": "T"} for row in claude_code() if "sessionId" in row]
    answer = piece("D", {"type": "text", "text": "More."})
    return [*rows, line("11", "10", "user", said("More?")), line("12", "11", "assistant", answer)]


def write_folder(folder: Path) -> Path:
    """Files of every shape, among them two that share answers, and one that is damaged."""
    folder.mkdir()
    written(folder / "a.jsonl", claude_code())
    written(folder / "b.jsonl", chat_log(6))
    written(folder / "c.jsonl", [*chat_log(2, ask="Another."), b"{broken", session(4, id="s2")])
    written(folder / "d.jsonl", resumed())
    written(folder / "e.jsonl", codex())
    written(folder / "f.jsonl", chat_log(6))
    written(folder / "g.jsonl", [{"nothing": 1}])
    (folder / "h.jsonl").touch()
    return folder


def figures(replays: Sequence[FileReplay]) -> list[Any]:
    """Everything that was found, without the time that it took."""
    found = []
    for each in replays:
        plain = msgspec.to_builtins(each.replays)
        for replay in plain:
            for outcome in replay["outcomes"]:
                outcome["seconds"] = 0
        found.append([str(each.file), plain])
    return found


@pytest.fixture
def alone(tmp_path: Path) -> list[Any]:
    return figures(list(replay_files(find_files(write_folder(tmp_path / "logs")), OPTIONS)))


def test_one_process_reads_files_as_read_traces_does(tmp_path: Path, alone: list[Any]) -> None:
    names = [replay["reported"]["trace"] for _, replays in alone for replay in replays if replay["reported"]]
    traces = [each for each in read_traces(tmp_path / "logs") if isinstance(each, Trace)]
    assert names == [trace.id for trace in traces]
    assert names.count("T") == 1, "the resumed session is there with its own answer"


@pytest.mark.parametrize("jobs", [2, 5])
def test_many_readers_find_what_one_does(jobs: int, tmp_path: Path, alone: list[Any]) -> None:
    files = find_files(tmp_path / "logs")
    counted: list[TraceReplay] = []
    progress: list[tuple[int, int]] = []
    with ThreadPoolExecutor(jobs) as executor:
        replays = list(
            replay_files(
                files,
                OPTIONS,
                engine=Engine(executor, jobs),
                count=counted.append,
                progress=lambda *sizes: progress.append(sizes),
            )
        )
    assert figures(replays) == alone
    assert len(counted) >= sum(len(replays) for _, replays in alone)
    assert progress[-1] == (progress[-1][1], sum(file.stat().st_size for file in files))


class _Elsewhere(Executor):
    """Workers of another machine: they see no file of this one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.records = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.records += args[0].record is not None
        hidden = self._folder.with_name("hidden")
        self._folder.rename(hidden)
        try:
            future.set_result(fn(*args, **kwargs))
        finally:
            hidden.rename(self._folder)
        return future


def test_files_that_no_worker_has_are_read_here(tmp_path: Path, alone: list[Any]) -> None:
    executor = _Elsewhere(tmp_path / "logs")
    replays = list(replay_files(find_files(tmp_path / "logs"), OPTIONS, engine=Engine(executor, 8)))
    assert figures(replays) == alone
    assert executor.records >= 7, "each session was given to a worker by itself"


class _DiesWith(Executor):
    """Workers that die with a session of a name, and so with the file that holds it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        work = args[0]
        record = work.record
        dies = record is not None and getattr(record, "id", "") == self._name
        if record is None:
            dies = any(getattr(each, "id", "") == self._name for each in read_traces(work.file))
        if dies:
            future.set_exception(ConnectionResetError())
        else:
            future.set_result(fn(*args, **kwargs))
        return future


def test_of_a_file_that_kills_its_workers_only_the_deadly_session_is_lost(
    tmp_path: Path, alone: list[Any]
) -> None:
    engine = Engine(_DiesWith("s2"), jobs=2, lost_errors=(ConnectionResetError,))
    replays = figures(list(replay_files(find_files(tmp_path / "logs"), OPTIONS, engine=engine)))
    differing = [at for at, each in enumerate(replays) if each != alone[at]]
    assert differing == [2]
    assert len(replays[2][1]) == len(alone[2][1])
    damaged = [each["damaged"] for each in replays[2][1] if each["damaged"]]
    assert [each["reason"].split(":")[0] for each in damaged][-1:] == ["every worker that replayed it died"]


def test_a_replay_of_files_ends_if_every_worker_dies(tmp_path: Path) -> None:
    class Deadly(Executor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            del fn, args, kwargs
            future: Future[Any] = Future()
            future.set_exception(ConnectionResetError())
            return future

    written(tmp_path / "a.jsonl", [session(1, id=f"s{number}") for number in range(9)])
    engine = Engine(Deadly(), jobs=1, lost_errors=(ConnectionResetError,))
    with pytest.raises(BadInput, match="the workers died with each of 5 sessions"):
        list(replay_files(find_files(tmp_path), OPTIONS, engine=engine))


@pytest.mark.parametrize("name", ["dask", "ray"])
def test_workers_of_an_engine_read_files(name: str, tmp_path: Path, alone: list[Any]) -> None:
    pytest.importorskip(name, reason="make scale installs it")
    with open_engine(name, jobs=2) as engine:
        replays = list(replay_files(find_files(tmp_path / "logs"), OPTIONS, engine=engine))
    assert figures(replays) == alone


def moment(minute: int) -> float:
    seconds = parse_moment(f"2026-03-01T10:{minute:02}:00Z")
    assert seconds is not None
    return seconds


def test_only_calls_since_a_moment_count(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", chat_log(6))
    calls = []
    for since in (None, moment(7), moment(11)):
        [file] = list(replay_files([path], OPTIONS, since=since))
        [replay] = file.replays
        assert replay.reported is not None
        assert replay.outcomes[0].calls == replay.reported.calls
        assert replay.reported.began is not None
        assert replay.reported.began >= (since or 0)
        calls.append(replay.reported.calls)
    assert calls == [7, 4, 2]


def test_an_earlier_session_is_left_out_and_one_without_times_says_so(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a.jsonl", [*chat_log(2), {"messages": session(1)["messages"], "id": "untimed"}]
    )
    [file] = list(replay_files([path], OPTIONS, since=moment(50)))
    assert [replay.reported for replay in file.replays] == [None]
    [damaged] = [replay.damaged for replay in file.replays if replay.damaged]
    assert damaged.reason == WITHOUT_TIMES
    assert damaged.foreign
