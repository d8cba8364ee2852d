from __future__ import annotations

import json
import runpy
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.lab.demo import play_demo
from bench.lab.sums import sum_outcomes
from lamina.cli import demo
from lamina.cli.recording import make_recording, split_calls
from lamina.cli.text_picture import HEIGHT, WIDTH, draw_session
from lamina.dialects import DIALECTS
from tests.cli.running import Ran, run

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "fit_request.py"
TURNS = 5
"""Turns of the session that these tests watch, where they do not watch the usual one: it is quicker."""

SMALL = ("--window", "12000")
WIDE = ("--window", "1000000")


@cache
def output(*arguments: str) -> str:
    done = run_demo(*arguments)
    assert (done.code, done.err) == (0, "")
    return done.out


PLAYED: dict[tuple[str, str, int], Any] = {}
"""What came of the two long parts of the demo: its text and its JSON are written from the same."""


def run_demo(*arguments: str) -> Ran:
    """The demo in this process; in another window than the usual one, of a short session."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        if "--window" in arguments:
            monkeypatch.setattr(demo, "TURNS", TURNS)
        for part in ("_ask", "_play_policies"):
            monkeypatch.setattr(demo, part, play_once(part, getattr(demo, part)))
        return run("demo", *arguments)


def play_once(part: str, play: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def play_or_look_up(session: Any, asked: Any) -> Any:
        window = getattr(asked, "window", asked)
        key = (part, json.dumps(session), window)
        if key not in PLAYED:
            PLAYED[key] = play(session, asked)
        return PLAYED[key]

    return play_or_look_up


@cache
def facts(*arguments: str) -> dict[str, Any]:
    done = run_demo(*arguments, "--json")
    decoded: dict[str, Any] = json.loads(done.out)
    return decoded


def number(text: str) -> int:
    return int(text.replace(",", ""))


def costs(*arguments: str) -> dict[str, dict[str, Any]]:
    return {cost["policy"]: cost for cost in facts(*arguments)["costs"]}


def test_a_question_about_the_beginning_finds_its_answer_in_a_reminder() -> None:
    question = facts()["question"]
    assert demo.FACT in question["reminder"]
    assert 0 < question["reminder_tokens"] < 400
    assert 1 < question["lost_at"] < question["calls"]
    assert f"      {question['reminder']}\n" in output()
    assert f"nothing: the file left the window at request {question['lost_at']}" in output()


@pytest.mark.parametrize("arguments", [(), SMALL])
def test_each_policy_has_a_sentence_with_its_money(arguments: tuple[str, ...]) -> None:
    lines = output(*arguments).splitlines()
    assert len(lines) <= 36
    assert max(map(len, lines)) <= 80
    printed = output(*arguments).partition("What the session cost")[2].splitlines()
    for policy, title in demo.TITLES.items():
        [line] = [line for line in printed if line.startswith(f"  {title} ")]
        cost = costs(*arguments)[policy]
        assert f"${cost['price']:.2f}  " in line
        if cost["refused"]:
            assert f"{cost['refused']} of {len(cost['sizes'])} requests are too large" in line
        else:
            assert f" {len(cost['cuts'])} cuts, " in line
    everything, ours = costs(*arguments)["none"], costs(*arguments)["lamina"]
    assert everything["refused"] > 0
    assert ours["refused"] == 0
    assert max(ours["sizes"]) < max(everything["sizes"])


@pytest.mark.thorough  # twenty sessions take a minute
def test_the_average_that_is_printed_is_that_of_twenty_sessions() -> None:
    """Needed names are counted by the lab."""
    ratio = 0.0
    lost: Counter[str] = Counter()
    needed = 0
    for seed in range(1, 21):
        sums = {total.policy: total for total in sum_outcomes(play_demo(seed, demo.WINDOW).outcomes)}
        ratio += (sums["lamina"].price or 0.0) / (sums["sliding"].price or 1.0) / 20
        needed += sums["lamina"].needed
        for policy in ("lamina", "sliding"):
            lost[policy] += sums[policy].needed - sums[policy].recallable
    printed = " ".join(output().split())
    assert f"lamina costs {ratio:.2f} times as much as the sliding window" in printed
    assert lost["lamina"] == 0
    assert f"the window loses {lost['sliding'] / 20:.0f} of {needed / 20:.0f}." in printed


def test_in_a_wide_window_nothing_is_cut_and_every_policy_is_the_same() -> None:
    prices = [cost["price"] for cost in costs(*WIDE).values()]
    assert prices == pytest.approx([prices[0]] * 3, rel=0.01)  # lamina has its recall tool from the first cut
    assert "nothing had to be left out" in output(*WIDE)


def test_another_seed_prints_something_else() -> None:
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


def test_the_example_cuts_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 12
    assert any(line.endswith(", cut") for line in printed)
    assert all(number(line.split()[2]) <= 5_500 for line in printed)


def test_the_demo_ends_with_the_picture_of_the_session() -> None:
    """Bars under the line of what everything would have been, and a mark for each cut."""
    lines = output().splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("What was sent of each request"))
    *bars, marks = lines[start + 2 : start + 2 + HEIGHT + 1]
    assert "tokens without lamina" in bars[0]
    assert all(len(bar.split(" tokens")[0]) <= WIDTH + 12 for bar in bars)
    assert marks.count("✂") == int(lines[start].split(", ")[1].split(" ")[0])
    assert "without lamina" not in output("--window", "1000000")


@given(st.lists(st.integers(1, 90_000), min_size=1, max_size=300), st.data())
def test_a_picture_has_every_cut_and_no_line_through_a_bar(sent: list[int], data: st.DataObject) -> None:
    whole = [tokens + data.draw(st.integers(0, 50_000)) for tokens in sent]
    cuts = data.draw(st.sets(st.integers(0, len(sent) - 1), max_size=4))
    *bars, marks = draw_session(sent, whole, sorted(cuts))
    assert len(bars) == HEIGHT
    assert bool(cuts) == ("✂" in marks)
    columns = [bar.ljust(2 + WIDTH)[2 : 2 + WIDTH] for bar in bars[1:]]
    for column in zip(*columns, strict=True):
        assert "".join(column).count("-") <= 1
        assert "-" not in "".join(column).lstrip(" -")
