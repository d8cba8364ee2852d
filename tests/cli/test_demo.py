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

from lamina.cli.bar import SIGNS
from lamina.cli.recording import calls, recording
from lamina.dialects import DIALECTS
from tests.cli.running import run, shell

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "fit_request.py"
CALL = re.compile(r" *(\d+) +(\d+) +([\d,]+)  \[([^\]]{32})\] +(\d+ %|-)(?:  cut (\d+), (.+))?")
PRICE = re.compile(r"read at ([\d.]+) of .* written\s+to the cache at ([\d.]+);")
RUNS = pytest.mark.parametrize("arguments", [(), ("--seed", "8"), ("--window", "24000")])


@cache
def output(*arguments: str) -> str:
    done = run("demo", *arguments)
    assert (done.code, done.err) == (0, "")
    return done.out


@cache
def facts(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output(*arguments, "--json"))
    return found


def number(text: str) -> int:
    return int(text.replace(",", ""))


def rows(text: str) -> list[re.Match[str]]:
    """The lines of the account, one for each call."""
    return [found for line in text.splitlines() if (found := CALL.fullmatch(line))]


def summed(text: str, what: str) -> list[str]:
    """One line of the summary: lamina, sliding window, no management."""
    (line,) = re.findall(rf"^{what}  +(.*)$", text, re.MULTILINE)
    return re.split(r"  +", line)


def room(text: str) -> int:
    (found,) = map(number, re.findall(r"of which ([\d,]+) tokens are room", text))
    return found


@RUNS
def test_the_summary_is_the_sum_of_the_lines(arguments: tuple[str, ...]) -> None:
    text = output(*arguments)
    made = rows(text)
    assert [number(call[1]) for call in made] == list(range(1, len(made) + 1))
    assert number(summed(text, "calls")[0]) == len(made)
    assert number(summed(text, "tokens sent")[0]) == sum(number(call[3]) for call in made)
    cuts = [call for call in made if call[6]]
    assert [number(cut[6]) for cut in cuts] == list(range(1, len(cuts) + 1))
    assert number(summed(text, "calls that moved the prefix")[0]) == len(cuts)
    assert {call[5] for call in made if not call[6]} == {"-", "100 %"}


@RUNS
def test_nothing_of_lamina_is_over_the_room(arguments: tuple[str, ...]) -> None:
    text = output(*arguments)
    assert max(number(call[3]) for call in rows(text)) <= room(text)
    ours, sliding, plain = map(number, summed(text, "calls over the room"))
    assert (ours, sliding) == (0, 0)
    assert plain > 0
    assert f"without management {plain} of {len(rows(text))} calls" in text


def test_bars_show_the_room_used() -> None:
    text = output()
    for call in rows(text):
        used = 32 - call[4].count(".")
        assert set(call[4]) <= set(SIGNS.values())
        assert abs(used - 32 * number(call[3]) / room(text)) < len(SIGNS)


def test_costs_follow_from_the_stated_prices() -> None:
    text = output("--window", "1000000")  # nothing is cut: each token is written once, then read
    (prices,) = PRICE.findall(text)
    read, write = map(float, prices)
    *earlier, last = (number(call[3]) for call in rows(text))
    assert number(summed(text, "input cost, in tokens")[0]) == round(read * sum(earlier) + write * last)


def test_in_a_wide_window_nothing_is_cut_and_every_way_is_the_same() -> None:
    text = output("--window", "1000000")
    assert not any(call[6] for call in rows(text))
    assert summed(text, "calls over the room") == ["0", "0", "0"]
    assert len(set(summed(text, "input cost, in tokens"))) == 1
    assert summed(text, "of the prefix kept") == ["100.0 %"] * 3
    assert text.endswith("everything is sent in full: there is nothing to bring back\n")


def test_relative_costs_are_those_of_lamina() -> None:
    costs = [number(cost) for cost in summed(output(), "input cost, in tokens")]
    relative = [float(cost) for cost in summed(output(), "input cost, relative")]
    assert relative == [round(cost / costs[0], 2) for cost in costs]


def test_a_sliding_window_moves_the_prefix_more_often_and_keeps_less_of_it() -> None:
    moved = [number(count) for count in summed(output(), "calls that moved the prefix")]
    kept = [float(share.removesuffix(" %")) for share in summed(output(), "of the prefix kept")]
    assert moved[0] < moved[1]
    assert kept[1] < kept[0] < kept[2] == 100


@RUNS
def test_what_was_lowered_comes_back_equal(arguments: tuple[str, ...]) -> None:
    text = output(*arguments)
    assert re.search(r"^recalled: [\d,]+ bytes, [\d,]+ lines by the key k\w+$", text, re.MULTILINE)
    assert text.endswith("equal to what was lowered: yes\n")


def test_json_says_the_same_as_the_lines() -> None:
    found, text = facts(), output()
    assert found["room"] == room(text)
    assert [call["tokens"] for call in found["calls"]] == [number(call[3]) for call in rows(text)]
    assert [call["cut"]["number"] for call in found["calls"] if call["cut"]] == [
        number(call[6]) for call in rows(text) if call[6]
    ]
    assert [f"{way['cost']:,.0f}" for way in found["ways"]] == summed(text, "input cost, in tokens")


def test_layers_and_what_is_free_make_up_the_room() -> None:
    found = facts()
    for call in found["calls"]:
        assert sum(call["layers"].values()) == call["tokens"]
        assert call["tokens"] + call["free"] == found["room"]
    for before, after in pairwise(found["calls"]):
        assert after["could_be_kept"] == before["tokens"]
        assert (after["kept"] == before["tokens"]) is (after["cut"] is None)


def test_same_seed_prints_the_same_and_another_does_not() -> None:
    assert run("demo", "--once").out == output() == run("demo", "--seed", "7").out
    assert output("--seed", "8") != output()


def test_a_window_that_cannot_hold_the_session_says_so() -> None:
    done = run("demo", "--window", "600")
    assert done.code == 3
    assert done.err.startswith("lamina: the smallest possible request has ")


def test_every_request_of_the_recording_is_valid_and_continues_the_last() -> None:
    requests = [*calls(recording(3, turns=4, steps=4))]
    assert len(requests) > 4
    for request in requests:
        assert DIALECTS["openai_chat"].check(request) == []
        assert request["messages"][-1]["role"] != "assistant"
    for before, after in pairwise(requests):
        assert after["messages"][: len(before["messages"])] == before["messages"]


def test_a_terminal_sees_one_account_that_is_updated_in_place() -> None:
    shown = on_a_terminal("demo", "--window", "24000")
    cuts = [call[6] for call in rows(output("--window", "24000")) if call[6]]
    redrawn = re.findall(r"\x1b\[(\d+)F\x1b\[J", shown)
    assert len(redrawn) == len(rows(output("--window", "24000"))) - 1
    assert set(redrawn) == {"5"}
    assert re.findall(r"  cut (\d+), ", shown) == cuts
    assert shown.endswith(output("--window", "24000")[-200:])


def test_plain_lines_on_a_terminal_are_to_be_had() -> None:
    assert on_a_terminal("demo", "--once") == output()
    assert "\x1b" not in on_a_terminal("demo", "--json")
    assert on_a_terminal("demo", term="dumb") == output()


def on_a_terminal(*arguments: str, term: str = "xterm") -> str:
    """What a command writes to a terminal."""
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "lamina", *arguments]
    with subprocess.Popen(command, stdout=its, env={**os.environ, "TERM": term}):
        os.close(its)
        read = b""
        while chunk := _chunk(ours):
            read += chunk
    os.close(ours)
    return read.decode().replace("\r\n", "\n")


def _chunk(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # how Linux says that the other side is closed
        return b""


def test_the_demo_needs_nothing_that_only_tests_need(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['hypothesis'] = sys.modules['pytest'] = None; "
        "from lamina.cli import main; sys.exit(main(['demo', '--once']))"
    )
    done = shell(f'"{sys.executable}" -c "{code}"', tmp_path)
    assert (done.code, done.out, done.err) == (0, output(), "")


def test_the_example_cuts_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 12
    assert any(line.endswith(", cut") for line in printed)
    assert all(number(line.split()[2]) <= 5_500 for line in printed)
