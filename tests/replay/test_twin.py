"""The twin run: planted policies are found, good ones are not accused, and no dollar too many is spent."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.caches import all_rules
from lamina.dialects import DIALECTS
from lamina.errors import BadInput
from lamina.models.counters import counter_for
from lamina.replay.message_sizes import MessageSizes
from lamina.replay.policies import find_policy
from lamina.replay.policies.port import Setting
from lamina.replay.twin import (
    Decision,
    SequentialTest,
    Twin,
    TwinPair,
    TwinSettings,
    TwinTally,
    Verdict,
    bound_share,
    compare_choices,
    decide,
    read_choice,
)

FAR = TwinSettings(share=1.0, spend=1_000.0, most=10_000)


def chat_answer(*calls: tuple[str, str], text: str = "") -> dict[str, Any]:
    tool_calls = [
        {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for at, (name, arguments) in enumerate(calls)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if tool_calls:
        message["tool_calls"] = tool_calls
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


def make_pair(original: dict[str, Any], fitted: dict[str, Any]) -> TwinPair:
    return TwinPair(
        dialect="openai_chat", original={}, fitted={}, answer_to_original=original, answer_to_fitted=fitted
    )


READ_A = chat_answer(("read", '{"path": "a.py", "line": 1}'))


@pytest.mark.parametrize(
    ("other", "verdict"),
    [
        (chat_answer(("read", '{"line":1,"path":"a.py"}')), Verdict.SAME),
        (chat_answer(("read", '{"path": "b.py", "line": 1}')), Verdict.OTHER_ARGUMENTS),
        (chat_answer(("write", '{"path": "a.py", "line": 1}')), Verdict.OTHER_TOOL),
        (chat_answer(text="It is done."), Verdict.ONE_WITHOUT_CALL),
        (chat_answer(("recall", '{"key": "k1"}')), Verdict.UNFINISHED),
    ],
)
def test_two_answers_are_compared_by_what_they_call(other: dict[str, Any], verdict: Verdict) -> None:
    assert make_pair(READ_A, other).compare() is verdict


def test_the_order_of_parallel_calls_does_not_matter_and_texts_are_not_compared() -> None:
    one = chat_answer(("read", '{"path": "a"}'), ("read", '{"path": "b"}'))
    other = chat_answer(("read", '{"path": "b"}'), ("read", '{"path": "a"}'))
    assert make_pair(one, other).compare() is Verdict.SAME
    assert make_pair(chat_answer(text="Yes."), chat_answer(text="No.")).compare() is Verdict.BOTH_TEXT


ANSWERS: dict[str, dict[str, Any]] = {
    "anthropic": {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t", "name": "read", "input": {"line": 1, "path": "a.py"}}],
        "stop_reason": "tool_use",
    },
    "openai_responses": {
        "object": "response",
        "status": "completed",
        "output": [
            {"type": "function_call", "call_id": "c", "name": "read", "arguments": '{"path":"a.py","line":1}'}
        ],
    },
    "gemini": {
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [{"functionCall": {"name": "read", "args": {"path": "a.py", "line": 1}}}],
                }
            }
        ]
    },
    "ollama": {
        "message": {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "read", "arguments": {"path": "a.py", "line": 1}}}],
        },
        "done": True,
    },
    "openai_chat": READ_A,
    "bedrock_converse": {
        "output": {
            "message": {
                "role": "assistant",
                "content": [
                    {"toolUse": {"toolUseId": "c1", "name": "read", "input": {"path": "a.py", "line": 1}}}
                ],
            }
        },
        "stopReason": "tool_use",
    },
}


def test_a_choice_is_read_in_every_dialect_that_has_tools() -> None:
    assert set(ANSWERS) == set(DIALECTS) - {"text"}
    choices = {name: read_choice(name, answer) for name, answer in ANSWERS.items()}
    first = choices["openai_chat"]
    assert first.calls == (("read", '{"line":1,"path":"a.py"}'),)
    for choice in choices.values():
        assert compare_choices(first, choice) is Verdict.SAME


# The statistics.


def test_a_coin_at_the_bar_is_accused_no_more_often_than_alpha_says() -> None:
    """The worst case of a good policy: its share is the bar itself, and every call is looked at."""
    test = SequentialTest(bar=0.9, alpha=0.05)
    accused = 0
    runs = 50
    for seed in range(runs):
        randomness = random.Random(seed)  # noqa: S311 - coins
        same = other = 0
        for _ in range(200):
            if randomness.random() < test.bar:
                same += 1
                continue
            other += 1
            if decide(test, same, other) is Decision.BELOW:  # a same choice never makes it more likely
                accused += 1
                break
    assert accused <= 4


@given(same=st.integers(0, 400), other=st.integers(0, 400))
def test_the_interval_has_the_share_and_agrees_with_the_test(same: int, other: int) -> None:
    low, high = bound_share(same, other)
    assert 0 <= low <= high <= 1
    if same + other:
        assert low <= same / (same + other) <= high
    wider_low, wider_high = bound_share(same, other, alpha=0.01)
    assert wider_low <= low + 1e-3
    assert wider_high >= high - 1e-3


def test_the_interval_covers_a_share_at_every_look() -> None:
    missed = 0
    for seed in range(60):
        randomness = random.Random(seed)  # noqa: S311 - coins
        same = other = 0
        for _ in range(30):
            for _ in range(10):
                if randomness.random() < 0.95:
                    same += 1
                else:
                    other += 1
            low, high = bound_share(same, other)
            if not low <= 0.95 <= high:
                missed += 1
                break
    assert missed <= 4


def test_many_calls_do_not_underflow() -> None:
    test = SequentialTest(bar=0.9)
    assert decide(test, 97_000, 3_000) is Decision.ABOVE
    assert decide(test, 85_000, 15_000) is Decision.BELOW
    low, high = bound_share(97_000, 3_000)
    assert high - low < 0.01


# A planted policy, with real requests and a player who reads them.


def make_session(randomness: random.Random, *, steps: int = 12, lines: int = 3) -> list[dict[str, Any]]:
    """A long session in which the file to write at the end was named by the user or a result, long before."""
    name = f"module_{randomness.randrange(10**6)}.py"
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": f"Read the files and then mend TARGET:{name} as I said."}
    ]
    for step in range(steps):
        function = {"name": "read", "arguments": json.dumps({"path": f"src/part_{step}.py"})}
        call = {"id": f"c{step}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        text = f"value_{randomness.randrange(10**6)} = {step}\n" + "a line of the file\n" * lines
        messages.append({"role": "tool", "tool_call_id": f"c{step}", "content": text})
        messages.append({"role": "assistant", "content": f"Part {step} is read."})
        messages.append({"role": "user", "content": "Go on."})
    return messages


def play(messages: list[dict[str, Any]], randomness: random.Random) -> dict[str, Any]:
    """A player who calls by what can be read, and now and then does something else, as models do."""
    if randomness.random() < 0.02:
        return chat_answer(("list", '{"path": "."}'))
    text = json.dumps(messages)
    at = text.find("TARGET:")
    if at < 0:
        return chat_answer(("ask", '{"question": "Which file?"}'))
    return chat_answer(("write", json.dumps({"path": text[at + 7 :].split()[0]})))


Fit = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


def fit_with_lamina(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return _run_policy("lamina", messages)


def forget_the_beginning(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The planted bad policy: in a third of the conversations it drops everything but the end."""
    if len(json.dumps(messages)) % 3:
        return messages
    return messages[-4:]


def _run_policy(name: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    setting = Setting(
        window=2_000, room=1_800, trigger=1_710, target=900,
        message_sizes=MessageSizes(counter_for("gpt-5.4"), []), rules=all_rules()["anthropic"],
    )  # fmt: skip
    return find_policy(name).start(setting)({"model": "gpt-5", "messages": messages}, 0).messages


def run_twin(fit: Fit, *, seed: int, calls: int, steps: int = 12, lines: int = 3) -> Twin:
    twin = Twin(FAR)
    randomness = random.Random(seed)  # noqa: S311 - coins
    for number in range(calls):
        call = f"session {number}"
        if not twin.wants(call, cost=0.01):
            break
        messages = make_session(randomness, steps=steps, lines=lines)
        fitted = fit(messages)
        pair = TwinPair(
            dialect="openai_chat",
            original={"messages": messages},
            fitted={"messages": fitted},
            answer_to_original=play(messages, randomness),
            answer_to_fitted=play(fitted, randomness),
        )
        twin.add(call, pair, cost=0.01)
    return twin


@pytest.mark.parametrize("seed", range(5))
def test_a_planted_bad_policy_is_found_within_200_calls(seed: int) -> None:
    twin = run_twin(forget_the_beginning, seed=seed, calls=200)
    assert twin.decision is Decision.BELOW
    assert twin.tally.compared < 200
    assert "below the bar of 90 %" in str(twin.report())


def test_a_good_policy_is_not_accused_in_20_runs() -> None:
    """The player disagrees with itself in 4 of 100 pairs; that is no fault of the policy."""
    for seed in range(20):
        twin = run_twin(lambda messages: messages, seed=seed, calls=200, steps=1)
        assert twin.decision is not Decision.BELOW


def test_lamina_is_not_accused_and_its_requests_really_differ() -> None:
    messages = make_session(random.Random(0), lines=30)  # noqa: S311 - made up
    assert fit_with_lamina(messages) != messages
    twin = run_twin(fit_with_lamina, seed=1, calls=15, lines=30)
    assert twin.tally.compared == 15
    assert twin.decision is not Decision.BELOW
    assert twin.report().share > 0.9


# Which calls, and at what price.


def test_the_report_is_one_sentence() -> None:
    twin = Twin(FAR, tally=TwinTally(verdicts={"same": 971, "other tool": 29, "both text": 70}, spent=2.5))
    text = str(twin.report())
    assert text.startswith("same call in 97.1 ± 2.4 %")
    assert text.endswith("% of 1,000 calls (above the bar of 90 %); $2.50 of $1000.00 spent")
    assert str(Twin(FAR).report()) == "no call was compared yet; $0.00 of $1000.00 spent"


def test_a_share_of_the_calls_is_chosen_always_the_same() -> None:
    settings = TwinSettings(share=0.1, spend=1_000.0, most=10_000)
    salted = TwinSettings(share=0.1, spend=1_000.0, most=10_000, salt="again")

    def choose(twin: Twin) -> list[str]:
        return [call for call in map(str, range(2_000)) if twin.wants(call, cost=0.0)]

    chosen = choose(Twin(settings))
    assert 150 < len(chosen) < 250
    assert chosen == choose(Twin(settings))
    assert chosen != choose(Twin(salted))


@given(costs=st.lists(st.floats(0.0, 0.4), max_size=30), fails=st.integers(0, 5))
def test_calls_in_flight_never_spend_more_than_the_limit(costs: list[float], fails: int) -> None:
    twin = Twin(TwinSettings(share=1.0, spend=1.0))
    wanted = [(str(at), cost) for at, cost in enumerate(costs) if twin.wants(str(at), cost=cost)]
    assert sum(cost for _, cost in wanted) <= 1.0 + 1e-9
    for at, (call, cost) in enumerate(wanted):
        if at < fails:
            twin.give_up(call, cost=cost)
        else:
            twin.add(call, make_pair(READ_A, READ_A), cost=cost)
    assert twin.tally.spent <= 1.0 + 1e-9
    assert twin.tally.failed == min(fails, len(wanted))


def test_no_more_pairs_than_asked_for_and_none_after_the_decision() -> None:
    twin = Twin(TwinSettings(share=1.0, spend=10.0, most=2))
    assert [twin.wants(call, cost=0.0) for call in "abc"] == [True, True, False]
    decided = Twin(FAR, tally=TwinTally(verdicts={"same": 50, "other tool": 50}))
    assert decided.decision is Decision.BELOW
    assert not decided.wants("a", cost=0.0)


def test_a_tally_goes_through_json() -> None:
    twin = run_twin(lambda messages: messages, seed=1, calls=5)
    stored = msgspec.json.encode(twin.tally)
    again = Twin(FAR, tally=msgspec.json.decode(stored, type=TwinTally))
    assert again.report() == twin.report()


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"share": 0.0}, "twin.share"),
        ({"bar": 1.0}, "twin.bar"),
        ({"spend": 0.0}, "twin"),
        ({"most": 0}, "twin"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings: dict[str, Any], place: str) -> None:
    with pytest.raises(BadInput, match=place):
        TwinSettings(**settings)
