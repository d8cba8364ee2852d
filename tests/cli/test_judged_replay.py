"""`lamina replay --judge` with a real model server: tables, JSON, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lamina.testing.model_server import run_model_server
from tests.cli.running import run

STEPS = 9
"""Only before the last answer a session has more tokens than a policy leaves alone in a window of 1,600."""

POLICIES = ("--policy", "sliding,lamina", "--window", "1600")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sessions in which the last answer needs a name of the first result."""
    folder = tmp_path_factory.mktemp("logs")
    lines = []
    for session in ("north", "south"):
        messages: list[dict[str, Any]] = [{"role": "user", "content": f"Mend the parser of {session}."}]
        for step in range(STEPS):
            path = f"src/{session}_{step}.py"
            function = {"name": "read", "arguments": json.dumps({"path": path})}
            call = {"id": f"c{step}", "type": "function", "function": function}
            text = f"def parse_{session}_{step}(): ...\n" + f"line_{step} of the file\n" * 18
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": f"c{step}", "content": text})
        answer = {"role": "assistant", "content": f"It is parse_{session}_0."}
        request = {"model": "gpt-5", "messages": messages}
        lines.append(json.dumps({"request": request, "response": {"choices": [{"message": answer}]}}))
    (folder / "log.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def judge() -> Iterator[str]:
    with run_model_server(window=16_384) as server:
        yield server.url


def test_a_model_judges_what_each_policy_loses(logs: Path, judge: str, tmp_path: Path) -> None:
    data = tmp_path / "losses.json"
    done = run("replay", logs, "--judge", judge, *POLICIES, "--json", data)
    assert done.code == 0, done.err
    (comparison,) = json.loads(data.read_text("utf-8"))["comparisons"]
    assert (comparison["answers"], comparison["sessions"]) == (2, 2)
    rows = {row["policy"]: row for row in comparison["policies"]}
    assert list(rows) == ["sliding", "lamina"]
    for row in rows.values():
        low, high = row["needed"][1:]
        assert low <= row["needed"][0] <= high
        assert row["cost"] > 0
        assert f"{row['cost']:,.0f}" in done.out
    (difference,) = comparison["differences"]
    assert (difference["policy"], difference["other"]) == ("lamina", "sliding")
    needed = rows["lamina"]["needed"][0] - rows["sliding"]["needed"][0]
    assert difference["needed"][0] == pytest.approx(needed)
    assert done.out.startswith("window 1,600: 2 answers of 2 sessions; full context: ")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--window", "auto,1600"), "--window: --judge needs a window in tokens"),
        (("--window", "1600", "--losses", "nowhere/judged.jsonl"), "its folder is not there"),
        (("--window", "1600", "--rules", "openai,vllm"), "--rules: --judge compares under one cache"),
        (("--window", "1600", "--policy", "none"), "nothing to be compared with"),
        (("--window", "1600", "--html", "page.html"), "--html: --judge has only tables and JSON"),
        (("--window", "1600", "--judge", "gpt-5"), "judge: 'gpt-5'; give a .gguf file"),
        (("--window", "90000"), "no answer in 2 sessions has between 74,813 and "),
    ],
)
def test_what_cannot_be_judged_is_refused(
    logs: Path, judge: str, options: tuple[str, ...], problem: str
) -> None:
    done = run("replay", logs, "--judge", judge, *options)
    assert done.code == 2
    assert problem in done.err
    assert done.err.count("\n") == 1


def test_the_address_of_a_server_is_enough_and_the_work_is_told_before_it_begins(logs: Path) -> None:
    with run_model_server(window=5_000) as server:
        done = run("replay", logs, "--judge", server.url, "--plan", "--price", "2")
    assert done.code == 0, done.err
    assert "window: 1,000 tokens, a third of what the judge reads at once" in done.err
    assert "to judge: " in done.err
    assert "tokens, $0.0" in done.err
    assert done.out == ""


def test_a_run_goes_on_where_it_was_ended(logs: Path, judge: str, tmp_path: Path) -> None:
    kept = tmp_path / "judged.jsonl"
    options = ("--judge", judge, *POLICIES, "--losses", kept, "--json", "-")
    first = run("replay", logs, *options)
    assert first.code == 0, first.err
    lines = kept.read_bytes().splitlines(keepends=True)
    assert len(lines) == 2
    kept.write_bytes(lines[0] + lines[1][: len(lines[1]) // 2])  # the run was killed in the middle of a line
    again = run("replay", logs, *options)
    assert "1 answer had been judged before" in again.err
    third = run("replay", logs, *options)
    assert "2 answers had been judged before" in third.err
    assert third.out == again.out
    other_window = run(
        "replay", logs, "--judge", judge, "--policy", "sliding", "--window", "1700", "--losses", kept
    )
    assert "had been judged before" not in other_window.err


def test_too_few_answers_are_not_called_precise(logs: Path, judge: str) -> None:
    done = run("replay", logs, "--judge", judge, *POLICIES, "--precision", "0.05")
    assert done.code == 0, done.err
    assert "too few answers and sessions to say how precise this is" in done.err


def test_a_precision_of_nothing_is_refused(logs: Path) -> None:
    done = run("replay", logs, "--judge", "x.gguf", "--precision", "0")
    assert done.code == 2
    assert "'0' is no number above 0" in done.err
