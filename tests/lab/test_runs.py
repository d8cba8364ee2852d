from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench.lab.policies import find_policy
from bench.lab.port import PolicyRun, ReplayPolicy, Setting
from bench.lab.runs import ReplayOptions, replay, replay_trace
from bench.lab.values import LabAccount, ReplayOutcome
from lamina.costs import Trace, UnreadableLine, read_traces
from tests.costs.recorded import written
from tests.costs.talks import says, scripted, session, trace, user

TRACES = [trace(*session(steps, words=40), name=f"t{steps}") for steps in (2, 9, 20, 5)]


def timeless(account: LabAccount) -> list[ReplayOutcome]:
    return [msgspec.structs.replace(each, seconds=0.0) for each in account.outcomes]


def test_figures_and_order_do_not_depend_on_processes() -> None:
    traces: list[Trace | UnreadableLine] = [*TRACES, UnreadableLine(place="f:1", reason="r"), *TRACES]

    def run(jobs: int) -> LabAccount:
        return replay(
            traces, policies=["sliding", "lamina"], windows=[600],
            rules=["anthropic", "vllm"], count_as="gpt-5.4", jobs=jobs, points=True,
        )  # fmt: skip

    one, two = run(1), run(2)
    assert timeless(one) == timeless(two)
    assert one.damaged == two.damaged == (UnreadableLine(place="f:1", reason="r"),)
    names = dict.fromkeys(each.trace for each in one.outcomes)
    assert [name.split()[0] for name in names] == ["t2", "t9", "t20", "t5"] * 2
    assert len(one.outcomes) == 8 * 2 * 2


def test_every_trace_comes_under_every_policy_window_and_cache() -> None:
    account = replay(
        TRACES[:2], policies=["none", "sliding"], windows=[600, 900], rules=["anthropic", "gemini"],
        count_as="gpt-5.4",
    )  # fmt: skip
    found = {(each.trace, each.policy, each.window, each.rules) for each in account.outcomes}
    assert len(found) == len(account.outcomes) == 16


def test_pressed_leaves_out_what_never_passes_the_trigger() -> None:
    def run(*, pressed: bool) -> list[str]:
        account = replay(TRACES, policies=["none"], windows=[900], count_as="gpt-5.4", pressed=pressed)
        return [each.trace for each in account.outcomes]

    assert run(pressed=False) == ["t2", "t9", "t20", "t5"]
    assert run(pressed=True) == ["t20"]


def test_a_conversation_without_an_answer_has_no_outcome_and_is_not_damaged() -> None:
    found = replay_trace(trace(user("a")), ReplayOptions(policies=("none",), windows=(600,)))
    assert (found.outcomes, found.damaged) == ((), None)


def test_a_trace_that_cannot_be_read_is_damaged_at_its_place() -> None:
    broken = Trace(id="b", place="f:7", dialect="anthropic", items=[{"role": "user", "content": 5}])
    account = replay([broken, TRACES[0]], policies=["none"], windows=[600], count_as="gpt-5.4")
    assert [each.place for each in account.damaged] == ["f:7"]
    assert [each.trace for each in account.outcomes] == ["t2"]


@pytest.mark.parametrize(
    "tool_calls",
    [
        [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": {"path": "a.py"}}}],
        [{"id": "c1", "function": "read"}],
        [{"id": "c1", "function": {"name": 7, "arguments": None}}],
        ["read"],
        [None],
        {"id": "c1"},
        "read",
        7,
    ],
)
def test_odd_calls_of_a_record_do_not_end_the_replay_of_others(tool_calls: object) -> None:
    messages = [
        user("Read a.py"),
        {"role": "assistant", "content": None, "tool_calls": tool_calls},
        {"role": "tool", "tool_call_id": "c1", "content": "def main(): pass"},
        says("It has main."),
    ]
    odd = trace(*messages, name="odd")
    account = replay([odd, TRACES[0]], policies=["none"], windows=[600], count_as="gpt-5.4")
    assert TRACES[0].id in {outcome.trace for outcome in account.outcomes}
    assert len(account.outcomes) + len(account.damaged) == 2


def test_damaged_lines_are_counted_and_the_rest_is_replayed(tmp_path: Path) -> None:
    rows = [
        {"messages": session(3)},
        b'{"messages": [',
        {"messages": [user("Else?"), says("No.")]},
        {"messages": "x"},
        {"nothing": 1},
    ]
    account = replay(
        read_traces(written(tmp_path / "a.jsonl", rows)),
        policies=["lamina"],
        windows=[600],
        count_as="gpt-5.4",
    )
    assert len(account.outcomes) == 2
    assert len(account.damaged) == 3
    assert not any(each.invalid or each.failed or each.over for each in account.outcomes)


def test_a_policy_that_raises_sinks_neither_the_trace_nor_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    raising = scripted(*[RuntimeError("no")] * 99)
    monkeypatch.setattr(
        "bench.lab.runs.find_policy", lambda name: raising if name == "raising" else find_policy(name)
    )
    account = replay(TRACES[:1], policies=["raising", "none"], windows=[600], count_as="gpt-5.4")
    first, second = account.outcomes
    assert (first.failed, first.sent, second.failed) == (first.calls, 0, 0)
    assert account.damaged == ()


@pytest.mark.parametrize(("by_rules", "times"), [(False, 1), (True, 3)])
def test_a_policy_runs_once_for_each_cache_only_if_it_asks_for_its_rules(
    monkeypatch: pytest.MonkeyPatch, *, by_rules: bool, times: int
) -> None:
    started: list[str] = []

    def start(setting: Setting) -> PolicyRun:
        started.append(setting.rules.name)
        return find_policy("none").start(setting)

    found = ReplayPolicy(name="p", title="p", start=start, by_rules=by_rules)
    monkeypatch.setattr("bench.lab.runs.find_policy", lambda _: found)
    account = replay(
        TRACES[:1], policies=["p"], windows=[600], rules=["anthropic", "gemini", "vllm"], count_as="gpt-5.4"
    )
    assert len(started) == times
    assert [each.rules for each in account.outcomes] == ["anthropic", "gemini", "vllm"]


def test_progress_hears_of_every_trace() -> None:
    heard: list[int] = []
    replay(TRACES, policies=["none"], windows=[600], count_as="gpt-5.4", progress=lambda p: heard.append(len(p.outcomes)))  # noqa: E501  # fmt: skip
    assert heard == [1, 1, 1, 1]
