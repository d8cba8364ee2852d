from __future__ import annotations

import json
import os
import pty
import re
import runpy
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lamina.cli import demo
from lamina.cli.bar import SIGNS
from lamina.cli.recording import make_recording, split_calls
from lamina.dialects import DIALECTS
from tests.cli.running import Ran, run, shell

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "fit_request.py"
CALL = re.compile(r" *(\d+)  \[([^\]]{40})\] +([\d,]+) tokens, +(\d+) % cached")
CUT = re.compile(r"(?:\x1b\[33m)?  cut [\d,]+ to [\d,]+ tokens: (.+) left out(?:\x1b\[0m)?")
TURNS = 5
"""Turns of the session that these tests watch, where they do not watch the usual one: it is quicker."""

SMALL = ("--window", "12000")
WIDE = ("--window", "1000000")
SHORT_DEMO = (
    "import sys; from lamina.cli import demo, main; "
    f"demo.TURNS = {TURNS}; sys.exit(main(['demo', *sys.argv[1:]]))"
)
TITLES = {
    "none": "untouched",
    "drop_oldest": "drop oldest",
    "sliding": "sliding window",
    "lamina": "lamina",
}


@cache
def output(*arguments: str) -> str:
    done = run_demo(*arguments)
    assert (done.code, done.err) == (0, "")
    return done.out


def run_demo(*arguments: str) -> Ran:
    """The demo in this process; in another window than the usual one, of a short session."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        if "--window" in arguments:
            monkeypatch.setattr(demo, "TURNS", TURNS)
        return run("demo", *arguments)


@cache
def facts(*arguments: str) -> dict[str, Any]:
    done = run_demo(*arguments, "--json")
    decoded: dict[str, Any] = json.loads(done.out)
    return decoded


def number(text: str) -> int:
    return int(text.replace(",", ""))


def matches(pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    return [match for line in text.splitlines() if (match := pattern.fullmatch(line))]


def totals(*arguments: str) -> dict[str, dict[str, Any]]:
    return {total["policy"]: total for total in facts(*arguments)["account"]["totals"]}


@pytest.mark.parametrize("arguments", [(), SMALL])
def test_it_is_short_and_narrow_and_says_what_left(arguments: tuple[str, ...]) -> None:
    lines = output(*arguments).splitlines()
    assert len(lines) <= 26
    assert max(map(len, lines)) <= 80
    cuts = matches(CUT, output(*arguments))
    assert len(cuts) == min(totals(*arguments)["lamina"]["cuts"], 2) > 0
    assert all(re.match(r"\d+ (result|reply|replie|file|question)s?", cut[1]) for cut in cuts)


@pytest.mark.parametrize("arguments", [(), SMALL])
def test_the_cuts_are_those_of_the_account(arguments: tuple[str, ...]) -> None:
    account = facts(*arguments)["account"]
    [own] = [outcome for outcome in account["outcomes"] if outcome["policy"] == "lamina"]
    calls = [at for at, point in enumerate(own["points"], 1) if point["cut"]]
    assert [cut["call"] for cut in facts(*arguments)["cuts"]] == calls
    shown = [number(call[1]) for call in matches(CALL, output(*arguments))]
    assert shown == sorted({*calls[:2], own["calls"]})


@pytest.mark.parametrize("arguments", [(), SMALL])
def test_each_policy_has_a_sentence_with_its_money(arguments: tuple[str, ...]) -> None:
    for policy, title in TITLES.items():
        [line] = [line for line in output(*arguments).splitlines() if line.startswith(f"  {title} ")]
        total = totals(*arguments)[policy]
        assert f"${total['price']:.2f}  " in line
        if total["refused"]:
            assert f"{total['refused']} of {total['calls']} requests are too large" in line


def test_the_session_that_is_shown_is_one_in_which_it_matters() -> None:
    """What the last lines say of this session, and of another one."""
    shown = totals()
    assert shown["none"]["refused"] == 64
    assert shown["lamina"]["price"] < shown["sliding"]["price"] < shown["drop_oldest"]["price"]
    other = totals("--seed", "5")
    assert other["sliding"]["price"] < other["lamina"]["price"]
    gone = other["sliding"]["needed"] - other["sliding"]["recallable"]
    assert f"with --seed 5, sliding is cheaper, and {gone} of {other['sliding']['needed']} names" in output()


@pytest.mark.parametrize("arguments", [(), SMALL])
def test_nothing_of_lamina_is_over_the_window_and_all_of_it_within_reach(arguments: tuple[str, ...]) -> None:
    ours = totals(*arguments)["lamina"]
    assert (ours["over"], ours["invalid"], ours["failed"]) == (0, 0, 0)
    assert ours["within_reach"] == 1.0
    assert totals(*arguments)["none"]["over"] > 0


def test_bars_show_the_window_used() -> None:
    for call in matches(CALL, output(*SMALL)):
        used = 40 - call[2].count(".")
        assert set(call[2]) <= set(SIGNS.values())
        assert abs(used - 40 * number(call[3]) / 12_000) < len(SIGNS)


def test_in_a_wide_window_nothing_is_cut_and_every_policy_is_the_same() -> None:
    assert not matches(CUT, output(*WIDE))
    assert len({(each["equivalents"], each["recall"]) for each in totals(*WIDE).values()}) == 1
    assert "there is nothing to recall" in output(*WIDE)


def test_what_was_lowered_comes_back_as_it_was() -> None:
    recalled = facts(*SMALL)["recalled"]
    assert recalled["equal"] is True
    assert recalled["size"] >= len(recalled["text"]) > 0
    assert recalled["key"] in recalled["sent"]
    first_line = recalled["text"].split("\n")[0][:70]
    assert f"    {first_line}" in output(*SMALL)


def test_same_seed_prints_the_same_and_another_does_not() -> None:
    assert run_demo(*SMALL).out == output(*SMALL)
    assert output(*SMALL, "--seed", "8") != output(*SMALL)


def test_a_window_that_cannot_hold_the_session_says_so() -> None:
    done = run("demo", "--window", "600")
    assert done.code == 3
    assert done.err.startswith("lamina: the smallest possible request has ")


def test_every_request_of_the_recording_is_valid_and_continues_the_last() -> None:
    requests = [*split_calls(make_recording(3, turns=4, steps=4))]
    assert len(requests) > 4
    for request in requests:
        assert DIALECTS["openai_chat"].wire.check(request) == []
        assert request["messages"][-1]["role"] != "assistant"
    for before, after in pairwise(requests):
        assert after["messages"][: len(before["messages"])] == before["messages"]


def test_a_terminal_sees_one_bar_that_is_updated_in_place() -> None:
    shown = on_a_terminal(*SMALL)
    assert shown.count("\r\x1b[K") == totals(*SMALL)["lamina"]["calls"]
    assert len(matches(CUT, shown)) == len(matches(CUT, output(*SMALL)))
    assert shown.endswith(output(*SMALL)[-200:])
    assert shown.count("\n") == output(*SMALL).count("\n")


def test_plain_lines_on_a_terminal_are_to_be_had() -> None:
    assert on_a_terminal(*SMALL, term="dumb") == output(*SMALL)


def on_a_terminal(*arguments: str, term: str = "xterm") -> str:
    """What the demo of a short session writes to a terminal."""
    ours, its = pty.openpty()
    command = [sys.executable, "-c", SHORT_DEMO, *arguments]
    with subprocess.Popen(
        command, stdout=its, stderr=subprocess.PIPE, env={**os.environ, "TERM": term}
    ) as begun:
        os.close(its)
        read = b""
        while chunk := _chunk(ours):
            read += chunk
        begun.communicate()
    os.close(ours)
    return read.decode().replace("\r\n", "\n")


def _chunk(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # how Linux says that the other side is closed
        return b""


def test_the_demo_needs_nothing_that_only_tests_need(tmp_path: Path) -> None:
    code = "import sys; sys.modules.update(dict.fromkeys(['hypothesis', 'pytest', 'numpy'])); " + SHORT_DEMO
    done = shell(f'"{sys.executable}" -c "{code}" {" ".join(SMALL)}', tmp_path)
    assert (done.code, done.out) == (0, output(*SMALL))


def test_the_example_cuts_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 12
    assert any(line.endswith(", cut") for line in printed)
    assert all(number(line.split()[2]) <= 5_500 for line in printed)
