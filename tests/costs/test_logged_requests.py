from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lamina.costs import Request, RequestTable, price_file
from lamina.costs.logs.json_fields import parse_moment
from lamina.costs.logs.logged_requests import PricedFile
from lamina.costs.logs.own_answers import WITHOUT_TIMES
from tests.costs.recorded import chat_log, claude_code, codex, line, piece, said, session, written


def resumed() -> list[dict[str, Any]]:
    """A session of Claude Code that begins with a copy of the answers of another, and goes on."""
    rows = [{**row, "sessionId": "T"} for row in claude_code() if "sessionId" in row]
    answer = piece("D", {"type": "text", "text": "More."})
    return [*rows, line("11", "10", "user", said("More?")), line("12", "11", "assistant", answer)]


def moment(minute: int) -> float:
    seconds = parse_moment(f"2026-03-01T10:{minute:02}:00Z")
    assert seconds is not None
    return seconds


def price(path: Path, rows: list[Any], since: float | None = None) -> PricedFile:
    return price_file(written(path, rows), since=since)


def test_every_answer_is_a_row_with_what_was_reported(tmp_path: Path) -> None:
    priced = price(tmp_path / "a.jsonl", [*chat_log(2), b"{broken"])
    [damaged] = priced.skipped
    assert damaged.place.endswith("a.jsonl:4")
    assert [(row.tokens, row.read, row.output) for row in priced.requests] == [
        (2_000, 1_800, 9),
        (4_000, 3_600, 9),
        (6_000, 5_400, 9),
    ]
    assert [row.tools for row in priced.requests] == ["read", "read", ""]
    assert [row.pause for row in priced.requests] == [None, 120.0, 120.0]
    assert {row.title for row in priced.requests} == {"Mend the parser."}
    for row in priced.requests:
        assert row.whole == row.tokens
        assert row.dollars == row.dollars_uncut == row.dollars_without


@pytest.mark.parametrize(("rows", "tools"), [(claude_code(), "Read"), (codex(), "shell")])
def test_clients_of_their_own_are_read(rows: list[Any], tools: str, tmp_path: Path) -> None:
    priced = price(tmp_path / "a.jsonl", rows)
    assert priced.requests
    assert tools in " ".join(row.tools for row in priced.requests)


def test_a_resumed_session_counts_once(tmp_path: Path) -> None:
    table = RequestTable()
    first = price(tmp_path / "a.jsonl", claude_code())
    second = price(tmp_path / "b.jsonl", resumed())
    table.add(first.requests)
    table.add(second.requests)
    assert len(second.requests) > 1
    assert table.sum("count(*)") == len(first.requests) + 1


def test_only_calls_since_a_moment_count(tmp_path: Path) -> None:
    rows = [*chat_log(6)]
    counts = [
        len(price(tmp_path / "a.jsonl", rows, since).requests) for since in (None, moment(7), moment(11))
    ]
    assert counts == [7, 4, 2]
    untimed = {"messages": session(1)["messages"], "id": "untimed"}
    priced = price(tmp_path / "b.jsonl", [*chat_log(2), untimed], moment(50))
    assert priced.requests == ()
    [skipped] = priced.skipped
    assert (skipped.reason, skipped.foreign) == (WITHOUT_TIMES, True)


def test_a_session_that_reports_nothing_has_calls_and_no_price(tmp_path: Path) -> None:
    rows = chat_log(2)
    for row in rows:
        del row["response"]["usage"]
    priced = price(tmp_path / "a.jsonl", rows)
    assert [(row.tokens, row.dollars) for row in priced.requests] == [(None, None)] * 3


def test_a_log_of_what_lamina_shortened_does_not_say_what_was_whole(tmp_path: Path) -> None:
    rows = chat_log(2)
    stub = '[trimmed: read src/0.py · 4,310 bytes · recall("k7f3qlwutqypsivab")]'
    for row in rows[1:]:
        row["request"]["messages"][3]["content"] = stub
    priced = price(tmp_path / "a.jsonl", rows)
    shortened: list[Request] = [row for row in priced.requests if row.whole is None]
    assert shortened
    assert all(row.dollars is not None and row.dollars_without is None for row in shortened)
