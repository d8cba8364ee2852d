from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet  # type: ignore[import-untyped]

from lamina.errors import BadInput
from lamina.replay import ReplayOptions
from lamina.replay.parquet import TABLES, open_tables
from lamina.replay.runs import TraceReplay
from lamina.replay.shards import replay_files
from lamina.replay.traces import find_files
from lamina.replay.values import make_id
from tests.replay.recorded import chat_log, claude_code, session, written

OPTIONS = ReplayOptions(policies=("none", "lamina"), windows=(600,), count_as="gpt-5.4", fill_head=True)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    written(folder / "a.jsonl", claude_code())
    written(folder / "b.jsonl", [*chat_log(6), b"{broken"])
    written(folder / "c.jsonl", [session(4, id="s2"), session(3, id="s3")])
    return folder


def write_tables(folder: Path, logs: Path) -> list[TraceReplay]:
    replays: list[TraceReplay] = []
    with open_tables(folder) as tables:
        for file_replay in replay_files(find_files(logs), OPTIONS):
            tables.add(str(file_replay.file), file_replay.replays)
            replays += file_replay.replays
        tables.finish()
    return replays


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = parquet.ParquetFile(folder / f"{table}.parquet").read().to_pylist()
    return found


@pytest.mark.parametrize("rows_in_memory", [1, 20_000])
def test_every_table_has_a_row_for_all_that_was_found(
    rows_in_memory: int, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lamina.replay.parquet.ROWS_IN_MEMORY", rows_in_memory)
    folder = tmp_path / "tables"
    replays = write_tables(folder, logs)
    reported = [each.reported for each in replays if each.reported]
    columns = ("session", "calls", "dollars", "day")
    assert [tuple(row[name] for name in columns) for row in rows(folder, "reported")] == [
        (make_id(each.source, each.place, each.trace), each.calls, each.dollars, "2026-03-01")
        for each in reported
    ]
    outcomes = [outcome for each in replays for outcome in each.outcomes]
    assert [(row["policy"], row["sent"]) for row in rows(folder, "outcomes")] == [
        (each.policy, each.sent) for each in outcomes
    ]
    assert [row["reason"] for row in rows(folder, "unreadable")] == [
        each.damaged.reason for each in replays if each.damaged
    ]
    assert len(rows(folder, "lost_caches")) == sum(len(each.lost) for each in reported)
    assert {path.name for path in folder.iterdir()} == {f"{table}.parquet" for table in TABLES}


def test_a_replay_that_ends_early_leaves_the_tables_of_the_last_one(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lamina.replay.parquet.ROWS_IN_MEMORY", 1)
    folder = tmp_path / "tables"
    write_tables(folder, logs)
    before = rows(folder, "reported")

    def fail() -> None:
        with open_tables(folder) as tables:
            tables.add("a.jsonl", next(replay_files(find_files(logs), OPTIONS)).replays)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert rows(folder, "reported") == before
    assert {path.suffix for path in folder.iterdir()} == {".parquet"}


@pytest.mark.skipif(os.name == "nt", reason="another message")
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="it cannot be written"), open_tables(tmp_path / "file" / "tables"):
        pass


def test_duckdb_reads_the_tables(logs: Path, tmp_path: Path) -> None:
    duckdb: Any = pytest.importorskip("duckdb", reason="only where it is installed")
    folder = tmp_path / "tables"
    write_tables(folder, logs)
    table = duckdb.read_parquet(str(folder / "reported.parquet"))
    assert table.aggregate("count(*)").fetchall() == [(len(rows(folder, "reported")),)]
