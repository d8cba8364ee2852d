"""Tables of a replay: a row for everything that was found, and no folder that has some already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyarrow import parquet as arrow_parquet  # type: ignore[import-untyped]

from lamina.errors import BadInput
from lamina.replay import parquet
from lamina.replay.runs import ReplayOptions, TraceReplay
from lamina.replay.shards import replay_files
from lamina.replay.traces import find_files
from tests.replay.recorded import chat_log, claude_code, session, written

OPTIONS = ReplayOptions(policies=("none", "lamina"), windows=(600,), count_as="gpt-5.4", fill_head=True)


def write_logs(folder: Path) -> Path:
    folder.mkdir()
    written(folder / "a.jsonl", claude_code())
    written(folder / "b.jsonl", [*chat_log(6), b"{broken"])
    written(folder / "c.jsonl", [session(4, id="s2"), session(3, id="s3")])
    return folder


def write_tables(folder: Path, logs: Path) -> list[TraceReplay]:
    """Replay the logs into the folder; what was found."""
    replays: list[TraceReplay] = []
    with parquet.open_tables(str(folder)) as tables:
        for file_replay in replay_files(find_files(logs), OPTIONS):
            tables.add(str(file_replay.file), file_replay.replays)
            replays += file_replay.replays
    return replays


def read_table(folder: Path, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for path in sorted((folder / table).glob("month=*/*.parquet")):
        rows += arrow_parquet.ParquetFile(path).read().to_pylist()
    return rows


@pytest.mark.parametrize("rows_of_part", [1, parquet.ROWS_OF_PART])
def test_every_figure_has_a_row(rows_of_part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROWS_OF_PART", rows_of_part)
    folder = tmp_path / "figures"
    replays = write_tables(folder, write_logs(tmp_path / "logs"))
    reported = [each.reported for each in replays if each.reported]
    assert {(row["session"], row["day"]) for row in read_table(folder, "reported")} == {
        (parquet.session_id(each.source, each.place, each.trace), "2026-03-01") for each in reported
    }
    outcomes = [outcome for each in replays for outcome in each.outcomes]
    rows = read_table(folder, "outcomes")
    assert len(rows) == len(outcomes) > 0
    for outcome in outcomes:
        values = {name: value for name, value in msgspec.to_builtins(outcome).items() if name in rows[0]}
        assert any(values.items() <= row.items() for row in rows)
    for table, fields in (("settings", "by_setting"), ("lost_caches", "lost")):
        assert len(read_table(folder, table)) == sum(len(getattr(each, fields)) for each in reported)
    assert len(read_table(folder, "unreadable")) == sum(each.damaged is not None for each in replays) == 1


def test_tables_that_are_there_are_not_mixed_with_others(tmp_path: Path) -> None:
    logs = write_logs(tmp_path / "logs")
    write_tables(tmp_path / "figures", logs)
    with pytest.raises(BadInput, match="tables already"):
        write_tables(tmp_path / "figures", logs)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(BadInput, match="cannot be written"):
        write_tables(tmp_path / "file" / "figures", write_logs(tmp_path / "logs"))
