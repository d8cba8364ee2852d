from __future__ import annotations

import json
import os
import pty
import re
import runpy
import subprocess
import sys
import tempfile
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lamina.cli.bar import SIGNS
from lamina.cli.recording import make_recording, split_calls
from lamina.dialects import DIALECTS
from tests.cli.running import run, shell

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "fit_request.py"
CALL = re.compile(r" *(\d+) +(\d+) +([\d,]+)  \[([^\]]{32})\] +(\d+) %(?:  cut (\d+), (.+))?")
SHORT = ("--turns", "5")
SMALL = (*SHORT, "--window", "12000")
WIDE = (*SHORT, "--window", "1000000")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages go where the test's files are."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@cache
def ran(*arguments: str) -> tuple[str, str]:
    """What a demo prints, without its times, and the page that it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        done = run("demo", *arguments, "--html", page)
        assert done.code == 0
        assert done.err == f"the page with drawings: {page}\n"
        return timeless(done.out), page.read_text("utf-8")


def timeless(text: str) -> str:
    """Without the last column, which is a time."""
    return re.sub(r" +[\d.]+$", "", text, flags=re.MULTILINE)


def output(*arguments: str) -> str:
    return ran(*arguments)[0]


@cache
def facts(*arguments: str) -> dict[str, Any]:
    done = run("demo", *arguments, "--json")
    found: dict[str, Any] = json.loads(done.out)
    return found


def number(text: str) -> int:
    return int(text.replace(",", ""))


def rows(text: str) -> list[re.Match[str]]:
    """The lines of the session, one for each call."""
    return [found for line in text.splitlines() if (found := CALL.fullmatch(line))]


def totals(*arguments: str) -> dict[str, dict[str, Any]]:
    return {total["policy"]: total for total in facts(*arguments)["account"]["totals"]}


def test_every_call_has_a_line_and_the_account_is_their_sum() -> None:
    made, ours = rows(output(*SMALL)), totals(*SMALL)["lamina"]
    assert [number(call[1]) for call in made] == list(range(1, ours["calls"] + 1))
    assert sum(number(call[3]) for call in made) == ours["sent"]
    cuts = [number(call[6]) for call in made if call[6]]
    assert cuts == list(range(1, ours["cuts"] + 1))
    assert cuts


def test_the_table_has_four_policies_and_the_figures_of_the_json() -> None:
    for policy in ("none", "drop_oldest", "sliding", "lamina"):
        (line,) = [line for line in output(*SMALL).splitlines() if line.startswith(f"{policy} ")]
        assert number(line.split()[1]) == round(totals(*SMALL)[policy]["equivalents"])


@pytest.mark.parametrize("arguments", [(), SMALL])
def test_nothing_of_lamina_is_over_the_window_and_all_of_it_within_reach(arguments: tuple[str, ...]) -> None:
    ours = totals(*arguments)["lamina"]
    assert (ours["over"], ours["invalid"], ours["failed"]) == (0, 0, 0)
    assert ours["within_reach"] == 1.0
    assert totals(*arguments)["none"]["over"] > 0


def test_bars_show_the_window_used() -> None:
    for call in rows(output(*SMALL)):
        used = 32 - call[4].count(".")
        assert set(call[4]) <= set(SIGNS.values())
        assert abs(used - 32 * number(call[3]) / 12_000) < len(SIGNS)


def test_in_a_wide_window_nothing_is_cut_and_every_policy_is_the_same() -> None:
    assert not any(call[6] for call in rows(output(*WIDE)))
    assert len({(each["equivalents"], each["recall"]) for each in totals(*WIDE).values()}) == 1
    assert output(*WIDE).endswith("everything is sent in full: there is nothing to bring back\n")


def test_what_was_lowered_comes_back_as_it_was() -> None:
    recalled = facts(*SMALL)["recalled"]
    assert recalled["equal"] is True
    assert len(recalled["text"]) > len(recalled["sent"])
    assert output(*SMALL).endswith("equal to what was lowered: yes\n")


def test_the_page_has_the_figures_of_the_json() -> None:
    page = ran(*SMALL)[1]
    for total in totals(*SMALL).values():
        assert f'data-name="equivalents" data-value="{total["equivalents"]!r}"' in page


def test_the_page_is_written_to_a_new_folder_that_is_named(tmp_path: Path) -> None:
    done = run("demo", "--once", *WIDE)
    named = Path(done.err.removeprefix("the page with drawings: ").strip())
    assert named.parent.parent == tmp_path
    assert named.read_text("utf-8").startswith("<!doctype html>")


def test_same_seed_prints_the_same_and_another_does_not() -> None:
    assert timeless(run("demo", *SMALL, "--once", "--html", os.devnull).out) == output(*SMALL)
    assert output(*SMALL, "--seed", "8") != output(*SMALL)


def test_a_window_that_cannot_hold_the_session_says_so() -> None:
    done = run("demo", "--window", "600")
    assert done.code == 3
    assert done.err.startswith("lamina: the smallest possible request has ")


def test_every_request_of_the_recording_is_valid_and_continues_the_last() -> None:
    requests = [*split_calls(make_recording(3, turns=4, steps=4))]
    assert len(requests) > 4
    for request in requests:
        assert DIALECTS["openai_chat"].check(request) == []
        assert request["messages"][-1]["role"] != "assistant"
    for before, after in pairwise(requests):
        assert after["messages"][: len(before["messages"])] == before["messages"]


def test_a_terminal_sees_one_account_that_is_updated_in_place() -> None:
    shown = on_a_terminal("demo", *SMALL)
    made = rows(output(*SMALL))
    redrawn = re.findall(r"\x1b\[(\d+)F\x1b\[J", shown)
    assert len(redrawn) == len(made) - 1
    assert set(redrawn) == {"4"}
    assert re.findall(r"  cut (\d+), ", shown) == [call[6] for call in made if call[6]]
    assert shown.endswith(output(*SMALL)[-200:])


def test_plain_lines_on_a_terminal_are_to_be_had() -> None:
    assert timeless(on_a_terminal("demo", *SMALL, "--once")) == output(*SMALL)
    assert timeless(on_a_terminal("demo", *SMALL, term="dumb")) == output(*SMALL)


def on_a_terminal(*arguments: str, term: str = "xterm") -> str:
    """What a command writes to a terminal."""
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "lamina", *arguments]
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
    code = (
        "import sys; sys.modules['hypothesis'] = sys.modules['pytest'] = sys.modules['numpy'] = None; "
        "from lamina.cli import main; sys.exit(main(['demo', *sys.argv[1:]]))"
    )
    done = shell(f'"{sys.executable}" -c "{code}" {" ".join(SMALL)}', tmp_path)
    assert (done.code, timeless(done.out)) == (0, output(*SMALL))


def test_the_example_cuts_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 12
    assert any(line.endswith(", cut") for line in printed)
    assert all(number(line.split()[2]) <= 5_500 for line in printed)
