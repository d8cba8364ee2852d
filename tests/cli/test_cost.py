from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lamina.cli.recording import make_recording
from lamina.costs import price_file
from lamina.costs.logs.logged_requests import PricedFile
from tests.cli.running import run
from tests.costs.recorded import chat_log, written

USAGE = {"prompt_tokens": 9000, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 0}}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three sessions, the last call of each with its usage, and a line that is none."""
    folder = tmp_path_factory.mktemp("logs")
    lines = []
    for seed in (1, 2, 3):
        request = make_recording(seed, turns=3, steps=4)
        *asked, answer = request["messages"]
        response = {"model": request["model"], "choices": [{"message": answer}], "usage": USAGE}
        lines.append(json.dumps({"request": {**request, "messages": asked}, "response": response}))
    (folder / "log.jsonl").write_text("\n".join([*lines, "{not json"]) + "\n", encoding="utf-8")
    return folder


def told(logs: Path, *arguments: str) -> dict[str, Any]:
    done = run("cost", logs, "--jobs", "1", *arguments, "--json", "-")
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_it_says_what_was_paid_and_what_run_would_have_saved(logs: Path, tmp_path: Path) -> None:
    data = tmp_path / "account.json"
    done = run("cost", logs, "--jobs", "2", "--json", data)
    assert done.code == 0, done.err
    assert done.err.splitlines()[-1] == f"wrote {data}"
    found = json.loads(data.read_text("utf-8"))
    lines = done.out.splitlines()
    assert lines[0] == "3 conversations, 3 calls"
    assert lines[1].startswith(f"cost: ${found['sums']['dollars']:.4f} (prices of ")
    assert "what lamina run would have saved in 3 conversations" in lines
    assert "1 damaged, and skipped" in lines
    assert len(found["damaged"]) == 1
    assert found == told(logs)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--by", "magic"), "--by: 'magic'"),
        (("--json", "missing/page.json"), "its folder is not there"),
        (("--table", "missing/page.db"), "its folder is not there"),
        (("--engine", "spark"), "invalid choice: 'spark'"),
        (("--policy", "sliding"), "bench/policies.py"),
        (("--window", "8000"), "bench/policies.py"),
        (("--parquet", "out"), "--table FILE.parquet"),
    ],
)
def test_what_cannot_be_used_is_said_before_anything_is_read(arguments: tuple[str, str], said: str) -> None:
    done = run("cost", "no-such-folder", *arguments)
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1


def test_the_name_it_had_is_refused_with_the_one_it_has() -> None:
    done = run("replay", "logs")
    assert done.code == 2
    assert "it is lamina cost now" in done.err


def test_a_path_that_is_not_there_is_said() -> None:
    done = run("cost", "no-such-folder")
    assert done.code == 2
    assert "no-such-folder" in done.err


def test_a_folder_without_sessions_is_not_an_empty_account(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text("hello\n", encoding="utf-8")
    done = run("cost", tmp_path, "--jobs", "1")
    assert done.code == 2
    assert "there is no call of a model in it" in done.err
    assert done.out == ""


def test_a_terminal_sees_how_far_it_is_and_a_file_does_not(logs: Path) -> None:
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "lamina", "cost", str(logs), "--jobs", "1"]
    done = subprocess.run(command, stderr=its, stdout=subprocess.PIPE, check=True, text=True)
    os.close(its)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "100 %" in shown
    assert shown.endswith("\r\x1b[K")
    assert "\x1b" not in done.stdout
    assert run("cost", logs, "--jobs", "1").err == ""


def test_ctrl_c_prints_what_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "a.jsonl", chat_log(3))

    def interrupt(file: Path, **_: object) -> PricedFile:
        if file.name == "b.jsonl":
            raise KeyboardInterrupt
        return price_file(file)

    (tmp_path / "b.jsonl").write_text("{}\n", encoding="utf-8")
    monkeypatch.setattr("lamina.cli.cost.price_file", interrupt)
    account = tmp_path / "account.json"
    ran = run("cost", tmp_path, "--jobs", "1", "--json", account)
    assert ran.code == 130
    assert "1 conversation, 4 calls" in ran.out
    assert "stopped by Ctrl-C: this is of 1 conversation, not of all of them" in ran.err
    assert not account.exists()
    assert run("cost", tmp_path, "--jobs", "1", "--json", "-").out == ""


def test_groups_say_what_each_user_project_and_day_cost(tmp_path: Path) -> None:
    folder = tmp_path / "user=ada" / "project=parser"
    folder.mkdir(parents=True)
    rows = []
    for number, (model, user, day) in enumerate(
        [("gpt-5", "", "01"), ("gpt-5", "bob", "01"), ("gpt-5.4", "bob", "02")]
    ):
        request = {"model": model, "messages": [{"role": "user", "content": f"Question {number}."}]}
        answer = {"id": f"r{number}", "choices": [{"message": {"role": "assistant", "content": "So."}}]}
        when = {"timestamp": f"2026-11-{day}T10:00:00Z"}
        rows.append(
            {"request": request | ({"user": user} if user else {}), "response": answer | {"usage": USAGE}}
            | when
        )
    (folder / "log.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = told(tmp_path, "--by", "user,project,client,model,day,month")["groups"]
    assert {row["name"]: row["conversations"] for row in found["user"]} == {"ada": 1, "bob": 2}
    assert [row["name"] for row in found["project"]] == ["parser"]
    assert [row["name"] for row in found["client"]] == ["requests"]
    assert {row["name"]: row["calls"] for row in found["model"]} == {"gpt-5": 2, "gpt-5.4": 1}
    assert [row["name"] for row in found["day"]] == ["2026-11-01", "2026-11-02"]
    for rows_of_group in found.values():
        assert sum(row["dollars"] for row in rows_of_group) == pytest.approx(found["month"][0]["dollars"])
    shown = run("cost", tmp_path, "--jobs", "1", "--by", "user").out
    assert "by user" in shown
    assert run("cost", tmp_path, "--jobs", "1", "--by", "team").code == 2


def test_calls_and_files_before_a_date_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    old = folder / "old.jsonl"
    for name, day in (("old", "01"), ("new", "05")):
        rows = chat_log(3, ask=f"About {name}.")
        for row in rows:
            row["timestamp"] = row["timestamp"].replace("2026-03-01", f"2026-03-{day}")
        written(folder / f"{name}.jsonl", rows)
    moment = datetime(2026, 3, 2, tzinfo=UTC).timestamp()
    os.utime(old, (moment, moment))
    assert len(told(folder)["conversations"]) == 2
    assert [each["title"] for each in told(folder, "--since", "2026-03-04")["conversations"]] == [
        "About new."
    ]
    old.write_bytes(b"{damaged\n")
    os.utime(old, (moment, moment))
    assert told(folder, "--since", "2026-03-04")["damaged"] == [], "a file that is too old is not opened"
    nothing = run("cost", folder, "--jobs", "1", "--since", "2027-01-01")
    assert (nothing.code, "none of its calls is so new" in nothing.err) == (2, True)


def test_the_table_of_requests_is_written(logs: Path, tmp_path: Path) -> None:
    path = tmp_path / "requests.db"
    account = told(logs, "--table", str(path))
    database = sqlite3.connect(path)
    rows = database.execute("select count(*), sum(dollars) from requests").fetchall()
    database.close()
    assert rows == [(3, pytest.approx(account["sums"]["dollars"]))]
