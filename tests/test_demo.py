from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parent.parent / "examples" / "demo.py"
CALL = re.compile(r" *(\d+) +(\d+) +([\d,]+)  \[(#*)(\.*)\] +(\d+ %|-)(?:  cut (\d+), (.+))?")
PRICE = re.compile(r"read at ([\d.]+) of .* written\s+to the cache at ([\d.]+);")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(DEMO), *arguments], capture_output=True, text=True, check=False
    )


@cache
def output(*arguments: str) -> str:
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def number(text: str) -> int:
    return int(text.replace(",", ""))


def rows(text: str) -> list[re.Match[str]]:
    """The lines of the account, one for each call."""
    return [found for line in text.splitlines() if (found := CALL.fullmatch(line))]


def summed(text: str, what: str) -> list[str]:
    """One line of the summary: lamina, sliding window, no management."""
    (line,) = re.findall(rf"^{what}  +(.*)$", text, re.MULTILINE)
    return re.split(r"  +", line)


@pytest.mark.parametrize("arguments", [(), ("--seed", "8"), ("--window", "24000")])
def test_the_summary_is_the_sum_of_the_lines(arguments: tuple[str, ...]) -> None:
    text = output(*arguments)
    calls = rows(text)
    assert [number(call[1]) for call in calls] == list(range(1, len(calls) + 1))
    assert number(summed(text, "calls")[0]) == len(calls)
    assert number(summed(text, "tokens sent")[0]) == sum(number(call[3]) for call in calls)
    cuts = [call for call in calls if call[7]]
    assert [number(cut[7]) for cut in cuts] == list(range(1, len(cuts) + 1))
    assert number(summed(text, "calls that moved the prefix")[0]) == len(cuts)
    assert {call[6] for call in calls if not call[7]} == {"-", "100 %"}


@pytest.mark.parametrize("arguments", [(), ("--seed", "8"), ("--window", "24000")])
def test_nothing_of_lamina_is_over_the_room(arguments: tuple[str, ...]) -> None:
    text = output(*arguments)
    (room,) = map(number, re.findall(r"of which ([\d,]+) tokens are room", text))
    assert max(number(call[3]) for call in rows(text)) <= room
    ours, sliding, plain = map(number, summed(text, "calls over the room"))
    assert (ours, sliding) == (0, 0)
    assert plain > 0
    assert f"without management {plain} of {len(rows(text))} calls" in text


def test_bars_show_the_room_used() -> None:
    text = output()
    (room,) = map(number, re.findall(r"of which ([\d,]+) tokens are room", text))
    for call in rows(text):
        assert len(call[4]) + len(call[5]) == 20
        assert 0 <= len(call[4]) - 20 * number(call[3]) / room < 1


def test_costs_follow_from_the_stated_prices() -> None:
    text = output("--window", "1000000")  # nothing is cut: each token is written once, then read
    (prices,) = PRICE.findall(text)
    read, write = map(float, prices)
    *earlier, last = (number(call[3]) for call in rows(text))
    assert number(summed(text, "input cost, in tokens")[0]) == round(read * sum(earlier) + write * last)


def test_relative_costs_are_those_of_lamina() -> None:
    costs = [number(cost) for cost in summed(output(), "input cost, in tokens")]
    relative = [float(cost) for cost in summed(output(), "input cost, relative")]
    assert relative == [round(cost / costs[0], 2) for cost in costs]


def test_a_sliding_window_moves_the_prefix_more_often_and_keeps_less_of_it() -> None:
    moved = [number(count) for count in summed(output(), "calls that moved the prefix")]
    kept = [float(share.removesuffix(" %")) for share in summed(output(), "of the prefix kept")]
    assert moved[0] < moved[1]
    assert kept[1] < kept[0] < kept[2] == 100


def test_what_was_lowered_comes_back_equal() -> None:
    text = output()
    (key,) = re.findall(r'^sent as: .*recall\("(k\w+)"\)', text, re.MULTILINE)
    assert f"by the key {key}" in text
    assert text.endswith("equal to what was lowered: yes\n")


def test_same_seed_prints_the_same_and_another_does_not() -> None:
    assert run().stdout == output() == run("--once").stdout == run("--seed", "7").stdout
    assert output("--seed", "8") != output()


def test_in_a_wide_window_nothing_is_cut_and_nothing_is_refused() -> None:
    text = output("--window", "1000000")
    assert not any(call[7] for call in rows(text))
    assert summed(text, "calls over the room") == ["0", "0", "0"]
    assert summed(text, "of the prefix kept") == ["100.0 %"] * 3


def test_a_window_that_cannot_hold_the_session_says_so() -> None:
    done = run("--window", "600")
    assert done.returncode == 1
    assert done.stderr.startswith("The session does not fit: ")


def test_help_names_the_options() -> None:
    shown = run("--help")
    assert shown.returncode == 0
    assert all(option in shown.stdout for option in ("--seed", "--window", "--once"))
