from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyarrow import parquet  # type: ignore[import-untyped]

from lamina.errors import BadInput
from lamina.replay import ReplayOptions, figures_folder
from lamina.replay.figures_folder import is_figures_folder, open_figures, read_figures
from lamina.replay.parquet import make_id
from lamina.replay.runs import TraceReplay, replay_trace
from lamina.replay.shards import FileReplay, replay_files
from lamina.replay.traces import find_files
from tests.replay.recorded import chat_log, claude_code, session, written
from tests.replay.talks import session as talk
from tests.replay.talks import trace

OPTIONS = ReplayOptions(policies=("none", "lamina"), windows=(600,), count_as="gpt-5.4", fill_head=True)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    written(folder / "a.jsonl", claude_code())
    written(folder / "b.jsonl", [*chat_log(6), b"{broken"])
    written(folder / "c.jsonl", [session(4, id="s2"), session(3, id="s3")])
    return folder


def add_files(folder: Path, logs: Path, options: ReplayOptions = OPTIONS) -> list[str]:
    """Replay what is new into the folder, and say which files that were."""
    names = []
    with open_figures(folder, options=options) as figures:
        files = figures.select_new(find_files(logs))
        for file_replay in replay_files(files, options, seen=figures.seen()):
            figures.add(file_replay)
            names.append(Path(file_replay.file).name)
    return names


def plain(replays: Sequence[TraceReplay] | Iterator[TraceReplay]) -> list[Any]:
    """Everything that was found, without times that were measured, in an order of its own."""
    values = msgspec.to_builtins(list(replays))
    for value in values:
        for outcome in value["outcomes"]:
            outcome["seconds"] = 0
    return sorted(values, key=repr)


def all_replays(logs: Path) -> list[TraceReplay]:
    replays: list[TraceReplay] = []
    for file_replay in replay_files(find_files(logs), OPTIONS):
        replays += file_replay.replays
    return replays


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path in sorted((folder / table).glob("month=*/*.parquet")):
        found += parquet.ParquetFile(path).read().to_pylist()
    return found


def test_what_is_read_back_is_what_was_replayed(logs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "figures"
    assert not is_figures_folder(folder)
    assert add_files(folder, logs) == ["a.jsonl", "b.jsonl", "c.jsonl"]
    assert is_figures_folder(folder)
    replays = all_replays(logs)
    assert plain(read_figures(folder)) == plain(replays)
    reported = [each.reported for each in replays if each.reported]
    assert {(row["session"], row["day"]) for row in rows(folder, "reported")} == {
        (make_id(each.source, each.place, each.trace), "2026-03-01") for each in reported
    }
    months = {path.parent.name for path in folder.glob("*/*/*.parquet")}
    assert months == {"month=2026-03", "month=__HIVE_DEFAULT_PARTITION__"}, "a damaged line has no month"


def test_the_next_replay_reads_only_what_is_new_or_has_changed(logs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "figures"
    add_files(folder, logs)
    assert add_files(folder, logs) == []
    written(logs / "b.jsonl", chat_log(9))
    written(logs / "d.jsonl", [session(5, id="s4")])
    assert add_files(folder, logs) == ["b.jsonl", "d.jsonl"]
    assert plain(read_figures(folder)) == plain(all_replays(logs))
    assert rows(folder, "unreadable") == [], "the damaged line is no longer in the file"
    numbers = {path.stem for path in folder.glob("*/*/*.parquet")}
    assert numbers == {path.stem for path in (folder / "state").glob("0*.json")}


def test_figures_of_a_file_that_was_deleted_stay(logs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "figures"
    add_files(folder, logs)
    before = plain(read_figures(folder))
    (logs / "a.jsonl").unlink()
    assert add_files(folder, logs) == []
    assert plain(read_figures(folder)) == before


def test_answers_that_the_folder_has_do_not_count_again(logs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "figures"
    add_files(folder, logs)
    written(logs / "z.jsonl", claude_code())
    assert add_files(folder, logs) == ["z.jsonl"]
    assert plain(read_figures(folder)) == plain(all_replays(logs))
    assert len([row for row in rows(folder, "reported") if row["source"] == "claude-code"]) == 2


@pytest.mark.parametrize("broken_write", range(1, 11))
def test_a_replay_that_is_killed_loses_at_most_its_part(
    broken_write: int, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every write of a part, and of what replaces it, is the one at which the process is killed."""

    class Killed(BaseException):
        pass

    folder = tmp_path / "figures"
    add_files(folder, logs)
    written(logs / "b.jsonl", chat_log(9))
    written(logs / "d.jsonl", [session(5, id="s4")])
    writes = 0

    def die_at_write() -> bool:
        nonlocal writes
        writes += 1
        if writes >= broken_write:
            raise Killed
        return True

    write_table = parquet.write_table
    write_whole = figures_folder.write_whole
    unlink = Path.unlink
    with monkeypatch.context() as patch:
        patch.setattr(parquet, "write_table", lambda *a, **k: die_at_write() and write_table(*a, **k))
        patch.setattr(figures_folder, "write_whole", lambda *a: die_at_write() and write_whole(*a))
        patch.setattr(Path, "unlink", lambda *a, **k: die_at_write() and unlink(*a, **k))
        with pytest.raises(Killed):
            add_files(folder, logs)
    add_files(folder, logs)
    assert plain(read_figures(folder)) == plain(all_replays(logs))
    numbers = {path.stem for path in folder.glob("*/*/*.parquet")}
    assert numbers == {path.stem for path in (folder / "state").glob("0*.json")}


def test_an_error_leaves_what_was_done_before_it(logs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "figures"
    files = find_files(logs)

    def fail() -> None:
        with open_figures(folder, options=OPTIONS) as figures:
            figures.add(next(replay_files(files, OPTIONS)))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert add_files(folder, logs) == ["b.jsonl", "c.jsonl"]


def test_a_large_replay_is_written_in_parts(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures_folder, "ROWS_OF_PART", 1)
    folder = tmp_path / "figures"
    add_files(folder, logs)
    assert [path.stem for path in sorted((folder / "state").glob("0*.json"))] == [
        "000001",
        "000002",
        "000003",
    ]
    assert plain(read_figures(folder)) == plain(all_replays(logs))


def test_what_a_store_has_is_replayed_anew_each_time(tmp_path: Path) -> None:
    folder = tmp_path / "figures"
    for name in ("first", "second"):
        with open_figures(folder, options=OPTIONS) as figures:
            figures.add_stored("chats.db", [replay_trace(trace(*talk(2), name=name), OPTIONS)])
    assert [row["trace"] for row in rows(folder, "reported")] == ["second"]


def test_figures_of_other_settings_are_refused(logs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "figures"
    add_files(folder, logs)
    other = msgspec.structs.replace(OPTIONS, windows=(900,))
    with pytest.raises(BadInput, match="other settings: windows"), open_figures(folder, options=other):
        pass
    with (
        pytest.raises(BadInput, match="other settings: since"),
        open_figures(folder, options=OPTIONS, since=1.0),
    ):
        pass


def test_a_damaged_folder_says_what_to_do(logs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "figures"
    add_files(folder, logs)
    (folder / "state" / "000001.json").write_bytes(b"{")
    with pytest.raises(BadInput, match="delete the folder and replay again"):
        add_files(folder, logs)


@pytest.mark.skipif(os.name == "nt", reason="no such locks")
def test_two_replays_do_not_write_to_one_folder(tmp_path: Path) -> None:
    folder = tmp_path / "figures"
    with (
        open_figures(folder, options=OPTIONS),
        pytest.raises(BadInput, match="another replay writes to it"),
        open_figures(folder, options=OPTIONS),
    ):
        pass


def test_a_file_that_grew_while_it_was_read_is_read_again(logs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "figures"
    path = logs / "c.jsonl"
    with open_figures(folder, options=OPTIONS) as figures:
        [file_replay] = replay_files([path], OPTIONS)
        written(path, [session(4, id="s2"), session(3, id="s3"), session(2, id="s9")])
        figures.add(file_replay)
    assert isinstance(file_replay, FileReplay)
    assert "c.jsonl" in add_files(folder, logs)


def test_duckdb_reads_the_tables_by_month(logs: Path, tmp_path: Path) -> None:
    duckdb: Any = pytest.importorskip("duckdb", reason="only where it is installed")
    folder = tmp_path / "figures"
    add_files(folder, logs)
    tables = duckdb.read_parquet(f"{folder}/reported/**/*.parquet", hive_partitioning=True)
    assert tables.aggregate("month, count(*)").fetchall() == [("2026-03", len(rows(folder, "reported")))]
