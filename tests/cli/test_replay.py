from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet  # type: ignore[import-untyped]

from lamina.cli.recording import make_recording
from tests.cli.running import run
from tests.replay.recorded import chat_log, written

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


SMALL = ("--window", "8000", "--jobs", "1")


def told(logs: Path, *arguments: str) -> dict[str, Any]:
    done = run("replay", logs, *SMALL, *arguments, "--json", "-")
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_with_a_window_it_says_what_was_paid_and_what_each_policy_costs(logs: Path) -> None:
    done = run("replay", logs, "--window", "auto", "--jobs", "1")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("3 sessions, ")
    assert [line.split("$")[0].strip() for line in lines[1:3]] == ["they cost", "under lamina"]
    title = "the window of each session's model, the cache rules of its provider: "
    at = next(at for at, line in enumerate(lines) if line.startswith(title))
    names = [line.split("  ")[0] for line in lines[at + 2 : at + 7]]
    assert names == ["as it was", "none", "drop_oldest", "sliding", "lamina"]
    assert "1 damaged, and skipped" in lines
    assert max(len(line) for line in lines[: lines.index("")]) <= 80


def test_table_and_json_have_the_same_figures(logs: Path, tmp_path: Path) -> None:
    data = tmp_path / "account.json"
    done = run("replay", logs, *SMALL, "--json", data)
    assert done.err.splitlines()[-1] == f"wrote {data}"
    found = json.loads(data.read_text("utf-8"))
    assert len(found["totals"]) == 4
    for total in found["totals"]:
        (line,) = [line for line in done.out.splitlines() if line.startswith(f"{total['policy']} ")]
        assert f"{total['equivalents']:,.0f}" in line.split()


def test_windows_policies_and_rules_are_multiplied(logs: Path) -> None:
    found = told(logs, "--window", "8000,9000", "--policy", "sliding,lamina", "--rules", "anthropic,gemini")
    rows = {(each["window"], each["policy"], each["rules"]) for each in found["totals"]}
    assert len(rows) == len(found["totals"]) == 8
    assert {len({each["sessions"] for each in found["totals"]}), found["totals"][0]["sessions"]} == {1, 3}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--policy", "magic"), "--policy: 'magic'"),
        (("--policy", ","), "--policy: ','"),
        (("--rules", "abacus"), "--rules: 'abacus'"),
        (("--window", "0"), "--window: '0'"),
        (("--window", "many"), "--window: 'many'"),
        (("--json", "missing/page.json"), "its folder is not there"),
        (("--engine", "spark"), "--engine: 'spark'"),
    ],
)
def test_what_cannot_be_used_is_said_before_anything_is_read(arguments: tuple[str, str], said: str) -> None:
    done = run("replay", "no-such-folder", *arguments)
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1


def test_a_path_that_is_not_there_is_said() -> None:
    done = run("replay", "no-such-folder")
    assert done.code == 2
    assert "no-such-folder" in done.err


def test_a_folder_without_sessions_is_not_an_empty_account(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text("hello\n", encoding="utf-8")
    done = run("replay", tmp_path, "--jobs", "1")
    assert done.code == 2
    assert "there is no session in it" in done.err
    assert done.out == ""


def test_a_terminal_sees_how_far_it_is_and_a_file_does_not(logs: Path) -> None:
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "lamina", "replay", str(logs), *SMALL, "--policy", "lamina"]
    done = subprocess.run(command, stderr=its, stdout=subprocess.PIPE, check=True, text=True)
    os.close(its)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert shown.endswith("\r\x1b[K")
    assert "\x1b" not in done.stdout
    assert run("replay", logs, *SMALL, "--policy", "lamina").err == ""


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
    assert {row["name"]: row["sessions"] for row in found["user"]} == {"ada": 1, "bob": 2}
    assert [row["name"] for row in found["project"]] == ["parser"]
    assert [row["name"] for row in found["client"]] == ["requests"]
    assert {row["name"]: row["calls"] for row in found["model"]} == {"gpt-5": 2, "gpt-5.4": 1}
    assert [row["name"] for row in found["day"]] == ["2026-11-01", "2026-11-02"]
    for rows_of_group in found.values():
        assert sum(row["dollars"] for row in rows_of_group) == pytest.approx(found["month"][0]["dollars"])
    shown = run("replay", tmp_path, *SMALL, "--by", "user").out
    assert "by user, as the records say" in shown
    assert run("replay", tmp_path, *SMALL, "--by", "team").code == 2


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
    assert len(told(folder)["sessions"]) == 2
    assert [each["title"] for each in told(folder, "--since", "2026-03-04")["sessions"]] == ["About new."]
    old.write_bytes(b"{damaged\n")
    os.utime(old, (moment, moment))
    assert told(folder, "--since", "2026-03-04")["damaged"] == [], "a file that is too old is not opened"
    nothing = run("replay", folder, *SMALL, "--since", "2027-01-01")
    assert (nothing.code, "none of its calls is so new" in nothing.err) == (2, True)


def test_tables_have_the_sessions_of_the_account(logs: Path, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    for _ in range(2):  # the same command again writes them anew
        account = told(logs, "--parquet", str(tables))
        rows = parquet.ParquetFile(tables / "reported.parquet").read().to_pylist()
        assert {row["trace"] for row in rows} == {each["trace"] for each in account["sessions"]}
    assert {path.suffix for path in tables.iterdir()} == {".parquet"}
