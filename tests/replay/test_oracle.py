"""The oracle: its model of a cache, the best way through a conversation, and what is played for real."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from bench.schedules import Ground, Left, Paths, Schedule, Shown, Tariff, compared, cost_at, scheduled
from lamina.caches import all_rules
from lamina.models.counters.openai import o200k
from lamina.replay.message_sizes import MessageSizes
from lamina.replay.model_calls import read_conversation
from lamina.replay.needed_names import NeededTerms
from lamina.replay.policies.port import Setting
from lamina.replay.values import RecordedUsage, Trace
from lamina.replay.walk import walk

WINDOW = 4_000
ANTHROPIC = Tariff(read=0.1, write=1.25, lifetime=300.0)


def trace(steps: int = 24, *, gap: int | None = None) -> Trace:
    """Read of files that name words of earlier ones; `gap` is the step that an hour goes by before."""
    items: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Mend the parser."},
    ]
    used, now = {}, 0.0
    for step in range(steps):
        now += 3600.0 if step == gap else 10.0
        used[len(items)] = RecordedUsage(at=now)
        given = {"path": f"src/part_{step}.py", "near": f"word{step - 2}x37", "far": f"word{step - 12}x31"}
        function = {"name": "read", "arguments": json.dumps(given)}
        call = {"id": f"c{step}", "type": "function", "function": function}
        words = " ".join(f"word{step}x{n}" for n in range(60))
        items += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{step}", "content": words},
        ]
    used[len(items)] = RecordedUsage(at=now + 10.0)
    items.append({"role": "assistant", "content": "Done: see word8x37 and word8x49."})
    return Trace(id="made-up", place="here", dialect="openai_chat", items=items, used=used)


def setting(message_sizes: MessageSizes) -> Setting:
    return Setting(
        window=WINDOW,
        room=3_500,
        trigger=2_800,
        target=1_750,
        message_sizes=message_sizes,
        rules=all_rules()["anthropic"],
    )


def ground(found: Trace) -> Ground:
    talk = read_conversation(found)
    message_sizes = MessageSizes(o200k(), talk.tools)
    return Ground(talk, setting(message_sizes), NeededTerms(talk, message_sizes))


def cuts(there: Ground, calls: range, depths: tuple[int, ...]) -> list[Left]:
    return [left for place in product(calls, depths) if (left := there.left(*place)) is not None]


def test_a_tariff_reads_what_was_kept_and_writes_the_rest() -> None:
    assert ANTHROPIC.spent(1000, 600, 10.0) == pytest.approx(0.1 * 600 + 1.25 * 400)
    assert ANTHROPIC.spent(1000, 600, 301.0) == pytest.approx(1250)


def test_a_tariff_knows_the_minimum_and_the_steps_of_a_hit() -> None:
    steps = Tariff(read=0.1, write=1.0, minimum=512, granularity=256)
    assert steps.spent(1000, 600, 0.0) == pytest.approx(0.1 * 512 + 488)
    assert steps.spent(1000, 511, 0.0) == pytest.approx(1000)
    assert Tariff(read=0.1, write=1.25, minimum=512).spent(500, 400, 0.0) == pytest.approx(500)


def test_what_a_cut_leaves_is_what_was_asked_for_and_grows_as_the_conversation_does() -> None:
    there = ground(trace())
    call = there.calls - 2
    left = there.left(call, 10)
    assert left is not None
    assert left.size(call) <= 3_500 * 10 // 20 < there.sizes[call]
    assert left.size(call + 1) - left.size(call) == there.sizes[call + 1] - there.sizes[call]
    assert there.left(0, 10) is None


def test_what_is_told_of_a_first_cut_is_what_happens_when_it_is_played() -> None:
    there = ground(trace())
    left = there.left(9, 11)
    assert left is not None
    needs = NeededTerms(there.talk, there.message_sizes)
    steps = walk(there.talk, scheduled(Schedule(cuts=((9, 11),))), there.setting, needs)
    same = steps[9].sent.messages[: steps[9].same] if steps[9].sent else []
    assert there.kept(there.uncut, left) == there.message_sizes.count_tokens(same)
    later = range(9, left.fits)
    assert [left.size(call) for call in later] == [steps[call].tokens for call in later]
    missed = [left.missed(call + 1) - left.missed(call) for call in later]
    assert missed == [steps[call].needed - steps[call].visible for call in later]
    assert len(later) > 3
    assert any(missed)


def test_the_way_found_is_the_cheapest_of_all_ways() -> None:
    """Against every sequence of cuts, each summed call by call."""
    there = ground(trace())
    nodes = cuts(there, range(8, there.calls, 4), (8, 12))
    for price in (0.0, 50.0, 5000.0):
        [best] = Paths(there, nodes).best(ANTHROPIC, [price])
        ways = [way for way in _ways(nodes) if _worth(there, way, price) is not None]
        lowest = min(_worth(there, way, price) for way in ways)
        assert best.cost + price * best.hidden == pytest.approx(lowest)


def _ways(nodes: list[Left]) -> list[list[Left]]:
    ways: list[list[Left]] = [[]]
    for node in nodes:
        ways += [[*way, node] for way in ways if not way or way[-1].call < node.call]
    return ways


def _worth(there: Ground, way: list[Left], price: float) -> float:
    total, now, before = 0.0, there.uncut, 0
    for call in range(there.calls):
        cut = next((node for node in way if node.call == call), None)
        kept = before if cut is None else there.kept(now, cut)
        now = cut or now
        size = now.size(call)
        total += ANTHROPIC.spent(size, kept if call else 0, there.idle[call])
        total += 20.0 * max(size - there.limit, 0) + price * (now.missed(call + 1) - now.missed(call))
        before = size
    return total


def test_a_cut_waits_for_the_gap_in_which_it_is_free() -> None:
    there = ground(trace(gap=11))
    nodes = cuts(there, range(8, there.calls), (10,))
    [best] = Paths(there, nodes).best(ANTHROPIC, [0.0])
    assert 11 in [call for call, _ in best.cuts]


def test_what_is_hidden_is_avoided_when_it_is_dear() -> None:
    there = ground(trace())
    nodes = cuts(there, range(8, there.calls, 2), (8, 12, 16))
    cheap, dear = Paths(there, nodes).best(ANTHROPIC, [0.0, 1e5])
    assert dear.hidden <= cheap.hidden
    assert dear.cost >= cheap.cost


def test_a_schedule_is_played_when_and_as_deep_as_it_says() -> None:
    there = ground(trace())
    policy, needs = scheduled(Schedule(cuts=((9, 11),))), NeededTerms(there.talk, there.message_sizes)
    steps = walk(there.talk, policy, there.setting, needs)
    assert [at for at, step in enumerate(steps) if step.sent and step.sent.cut][:1] == [9]
    depth = 3_500 * 11 // 20
    assert steps[9].tokens <= depth * 1.03 < steps[8].tokens
    assert all(step.tokens <= 3_500 and not step.invalid for step in steps)


def test_a_frontier_is_read_between_its_points() -> None:
    points = [Shown(cost=100.0, recall=0.5), Shown(cost=200.0, recall=1.0), Shown(cost=190.0, recall=0.6)]
    assert cost_at(0.75, points) == pytest.approx(150.0)
    assert cost_at(0.5, points) == 100.0
    assert cost_at(1.0, points) == 200.0


def test_the_oracle_is_never_dearer_than_lamina_at_its_recall() -> None:
    found = compared(trace(14, gap=12), window=WINDOW, rules=("anthropic", "vllm"))
    assert [each.rules for each in found] == ["anthropic", "vllm"]
    for each in found:
        assert each.ratio >= 1.0
        assert each.best.recall >= each.own.recall
        assert each.points
    assert [each.gaps for each in found] == [1, 0]


def test_a_session_that_fits_is_not_compared() -> None:
    assert compared(trace(2), window=WINDOW, rules=("anthropic",)) == []
