"""The page across all sessions: its figures are those of the sessions, and each leads to its place."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from lamina.errors import BadInput
from lamina.inspector import Inspector, Sessions
from lamina.inspector.pages import Access, answer_request, show_across
from lamina.inspector.request_views import show_request
from lamina.inspector.views import show_sessions
from tests.inspector.recorded import make_reading_turns, open_inspector, write_agent_log, write_session
from tests.replay.recorded import claude_code, line, piece, said, written


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sessions")
    write_session(folder, seed=7, turns=2, extra=[*make_reading_turns(2), *make_reading_turns(2)])
    write_session(folder, seed=8, turns=2)
    write_agent_log(folder)
    return folder


@pytest.fixture(scope="module")
def inspector(folder: Path) -> Inspector:
    return open_inspector(folder)


def test_sums_are_those_of_the_list_of_sessions(inspector: Inspector) -> None:
    across = show_across(inspector, {})
    listed = show_sessions(inspector)["sessions"]
    assert across["sessions"] == across["of"] == len(listed)
    priced = [session["dollars"] for session in listed if session["dollars"] is not None]
    assert across["dollars"] == pytest.approx(sum(priced))
    assert across["losses"] == sum(session["lost_caches"] for session in listed)
    assert {place["place"]["session"] for place in across["dearest"]} == {each["id"] for each in listed}
    for rows in across["groups"].values():
        assert sum(row["sessions"] for row in rows) == across["sessions"]


def test_a_lost_cache_leads_to_the_request_that_lost_it(inspector: Inspector) -> None:
    across = show_across(inspector, {})
    lost = across["lost"][0]
    place = lost["place"]
    request = show_request(inspector, place["session"], place["request"])
    assert request["call"]["read"] < lost["tokens"]
    assert sum(reason["times"] for reason in across["reasons"]) == across["losses"]
    assert all(reason["advice"] for reason in across["reasons"])


@pytest.mark.parametrize("name", ["client", "project", "model", "user"])
def test_each_row_of_a_group_is_a_filter(name: str, inspector: Inspector) -> None:
    across = show_across(inspector, {})
    for row in across["groups"][name]:
        chosen = show_across(inspector, {name: row["name"]})
        assert (chosen["sessions"], chosen["of"]) == (row["sessions"], across["sessions"])
        assert chosen["dollars"] == (None if row["dollars"] is None else pytest.approx(row["dollars"]))


def test_the_last_days_are_those_before_now(tmp_path: Path) -> None:
    now = time.time()
    for number, age in enumerate((1, 40)):
        rows = [dict(row) for row in claude_code()]
        for row in rows:
            row["timestamp"] = now - age * 86_400
            row["sessionId"] = f"S{number}"
            if "message" in row and "id" in row["message"]:
                row["message"] = {**row["message"], "id": f"{row['message']['id']}{number}"}
        written(tmp_path / f"{number}.jsonl", rows)
    inspector = open_inspector(tmp_path)
    every = show_across(inspector, {})["sessions"]
    assert show_across(inspector, {"days": "7"})["sessions"] == every // 2 > 0
    for days in ("week", "9" * 400):  # 400 digits are too many for a float, 5,000 for Python
        with pytest.raises(BadInput, match="whole number of days"):
            show_across(inspector, {"days": days})


def test_a_copied_answer_counts_in_the_session_that_had_it_first(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", claude_code())
    rows = [{**row, "sessionId": "T"} for row in claude_code() if "sessionId" in row]
    answer = piece("D", {"type": "text", "text": "More."})
    later = [line("11", "10", "user", said("More?")), line("12", "11", "assistant", answer)]
    written(tmp_path / "b.jsonl", [*rows, *({**row, "sessionId": "T"} for row in later)])
    across = show_across(open_inspector(tmp_path), {})
    alone = show_across(open_inspector(tmp_path / "a.jsonl"), {})
    assert across["calls"] == alone["calls"] + 1


def test_what_has_not_changed_is_not_looked_at_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inspector = open_inspector(folder)
    first = show_across(inspector, {})
    opened: list[str] = []
    monkeypatch.setattr(Sessions, "get", lambda _, name: opened.append(name))
    assert show_across(inspector, {}) == first
    assert opened == []


def test_the_page_is_json_like_every_other_view(inspector: Inspector) -> None:
    access = Access(hosts=frozenset(["127.0.0.1:1"]))
    answer = answer_request(inspector, "GET", "/api/across?client=requests", {"host": "127.0.0.1:1"}, access)
    value: dict[str, Any] = json.loads(answer.body)
    assert (answer.status, value["sessions"]) == (200, 2)
