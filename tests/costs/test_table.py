from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet  # type: ignore[import-untyped]

from lamina.conversations.costs import price_usage
from lamina.costs import Request, RequestTable, compare_settings, cost_lines, costs_as_json
from lamina.costs.report import group_requests, sum_requests
from lamina.costs.requests import Provenance, RequestPricer
from lamina.costs.uncut_requests import AnsweredRequest
from lamina.dialects import Usage
from lamina.errors import BadInput

MODEL = "claude-sonnet-5"
HOSTILE = "evil\x1b[31m\nname"


def fill(count: int = 3, *, cut: bool = False, **origin: Any) -> RequestTable:
    """A conversation that grows, as one of lamina's doors would have measured it."""
    table = RequestTable()
    pricer = RequestPricer(Provenance(**origin))
    for number in range(count):
        answer = AnsweredRequest(
            conversation="c",
            model=MODEL,
            at=1_772_000_000.0 + 60 * number,
            input=5_000 + 1_000 * number,
            full=5_000 + 1_000 * number,
            cached=4_000 + 1_000 * number if number else 0,
            written=1_000,
            output=10,
            gap=60.0,
        )
        table.add([pricer.price(answer)])
    if cut:
        last = AnsweredRequest(
            conversation="c", model=MODEL, input=2_000, full=9_000, new=1_000, written=2_000, cut=True
        )
        table.add([pricer.price(last)])
    return table


def test_a_row_has_what_was_paid_with_nothing_cut_and_without_lamina() -> None:
    table = fill(3, cut=True, door="gateway")
    sums = sum_requests(table)
    [row] = table.select("whole, dollars, dollars_uncut, dollars_without", "is_cut")
    assert row["whole"] == 8_000
    assert row["dollars"] == price_usage(Usage(input=2_000, written=2_000), MODEL)
    assert row["dollars_without"] == price_usage(Usage(input=8_000, cached=7_000, written=1_000), MODEL)
    assert sums["dollars_without"] - sums["dollars"] == pytest.approx(row["dollars_without"] - row["dollars"])
    assert (sums["calls"], sums["requests"], sums["cuts"]) == (4, 4, 1)


def test_a_recall_is_a_request_and_no_call() -> None:
    table = fill(1)
    pricer = RequestPricer()
    table.add([pricer.price(AnsweredRequest(conversation="d", model=MODEL, input=900, recalled=True))])
    sums = sum_requests(table)
    assert (sums["calls"], sums["requests"]) == (1, 2)
    [row] = table.select("dollars, dollars_without", "recalled")
    assert row["dollars"] > 0
    assert row["dollars_without"] == 0


def test_an_answer_counts_once_whatever_the_number_of_files_that_have_it() -> None:
    table = RequestTable()
    table.add([Request(file="a", answer="r1", tokens=5), Request(file="a"), Request(file="a")])
    table.add([Request(file="b", answer="r1", tokens=5), Request(file="b", answer="r2")])
    assert [row["file"] for row in table.select("file")] == ["a", "a", "a", "b"]


@pytest.mark.parametrize(("logged", "left"), [(2, ["gateway"] * 2), (3, [""] * 3 + ["gateway"] * 2)])
def test_a_client_s_own_log_does_not_count_beside_the_record(logged: int, left: list[str]) -> None:
    table = RequestTable()
    table.add(Request(client_session="claude-code:1") for _ in range(logged))
    table.add(Request(door="gateway", client_session="claude-code:1") for _ in range(2))
    table.add([Request(door="gateway")])
    table.drop_recorded()
    assert sorted(row["door"] for row in table.select("door")) == [*left, "gateway"]


@pytest.mark.parametrize("ending", [".db", ".parquet"])
def test_the_table_is_written_for_others_to_ask(ending: str, tmp_path: Path) -> None:
    table = fill(3, cut=True, door="gateway", client="claude-code")
    path = tmp_path / f"requests{ending}"
    for _ in range(2):  # the same command again writes it anew
        table.save(path)
    if ending == ".parquet":
        rows = parquet.ParquetFile(path).read().to_pylist()
        dollars = sum(row["dollars"] for row in rows)
    else:
        database = sqlite3.connect(path)
        [(dollars,)] = database.execute("select sum(dollars) from requests").fetchall()
        database.close()
    assert dollars == pytest.approx(sum_requests(table)["dollars"])
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_file_that_holds_something_else_is_not_overwritten(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "chats.db")
    database.execute("create table conversation (name)")
    database.close()
    (tmp_path / "notes.txt").write_text("my notes " * 99, encoding="utf-8")
    for path in tmp_path.iterdir():
        before = path.read_bytes()
        with pytest.raises(BadInput, match="holds something else"):
            fill().save(path)
        assert path.read_bytes() == before


def test_every_setting_is_a_share_of_what_would_have_been_paid() -> None:
    saving = compare_settings(fill(200))
    assert saving is not None
    assert saving.rows[0].dollars == pytest.approx(sum_requests(fill(200))["dollars_uncut"])
    assert [row.cuts > 0 for row in saving.rows] == [False, True, True, True]
    assert saving.command == "lamina run -- claude"
    assert compare_settings(RequestTable()) is None


def test_text_and_json_have_the_same_figures_and_nothing_that_a_terminal_obeys() -> None:
    table = fill(3, cut=True, door="gateway", project=HOSTILE)
    lines = cost_lines(table, ["project", "day"])
    facts = costs_as_json(table, ["project"])
    assert not any("\x1b" in line or "\n" in line for line in lines)
    assert lines[0].startswith("1 conversation, 4 calls, 1 cut, 2026-02-25")
    assert f"${facts['sums']['dollars']:.4f}" in lines[1]
    assert f"${facts['sums']['dollars_without']:.4f}" in lines[2]
    assert [row["name"] for row in facts["groups"]["project"]] == [HOSTILE]


def test_groups_are_sums_of_requests() -> None:
    table = fill(3, user="ada")
    table.add([Request(model="no-such-model", tokens=5, at=1_772_200_000.0)])
    assert [(row["name"], row["calls"], row["dollars"]) for row in group_requests(table, "user")] == [
        ("ada", 3, sum_requests(table, "user = 'ada'")["dollars"]),
        ("(not named)", 1, None),
    ]
    assert [row["name"] for row in group_requests(table, "day")] == ["2026-02-25", "2026-02-27"]
    assert sum_requests(table)["dollars"] is None
    assert str(table.sum_money()).endswith("no price of 'no-such-model' is known")
