"""Results go to the calls that their client meant, in every dialect, whatever ids and names calls share."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import Budget, fit_request, translate
from lamina.core.values import Text, ToolResult
from lamina.core.waiting_calls import WaitingCalls
from lamina.dialects import DIALECTS
from lamina.dialects.memos import ParseMemo

Json = dict[str, Any]
BUDGET = Budget(window=8_000, reserve=500)
TOOL_NAMES = ("read", "grep", "delete")


class Asked(NamedTuple):
    """A call: its number, its name, and its id on the wire; "" is none."""

    number: int
    name: str
    id: str


class Answered(NamedTuple):
    """A result: the number of the call that it answers, and what it says of it; "" is nothing."""

    number: int
    name: str
    id: str


class Wire(NamedTuple):
    """How a dialect writes a request of turns. `has_names`: a result may name its tool."""

    name: str
    has_names: bool
    needs_ids: bool
    user: Callable[[str], Json]
    calls: Callable[[list[Asked]], list[Json]]
    results: Callable[[list[Answered]], list[Json]]
    wrap: Callable[[list[Json]], Json]


def without_empty(value: Json) -> Json:
    return {field: inner for field, inner in value.items() if inner != ""}


def chat_calls(calls: list[Asked]) -> list[Json]:
    written = [
        without_empty({"id": call.id, "type": "function"})
        | {"function": {"name": call.name, "arguments": json.dumps({"n": call.number})}}
        for call in calls
    ]
    return [{"role": "assistant", "content": None, "tool_calls": written}]


def ollama_calls(calls: list[Asked]) -> list[Json]:
    written = [
        without_empty({"id": call.id}) | {"function": {"name": call.name, "arguments": {"n": call.number}}}
        for call in calls
    ]
    return [{"role": "assistant", "content": "", "tool_calls": written}]


def gemini_calls(calls: list[Asked]) -> list[Json]:
    parts = [
        {"functionCall": without_empty({"id": call.id, "name": call.name}) | {"args": {"n": call.number}}}
        for call in calls
    ]
    return [{"role": "model", "parts": parts}]


def gemini_results(results: list[Answered]) -> list[Json]:
    parts = [
        {
            "functionResponse": without_empty({"id": result.id, "name": result.name})
            | {"response": {"output": say(result)}}
        }
        for result in results
    ]
    return [{"role": "user", "parts": parts}]


def say(result: Answered) -> str:
    return f"of {result.number}"


WIRES = [
    Wire(
        "anthropic",
        has_names=False,
        needs_ids=True,
        user=lambda text: {"role": "user", "content": text},
        calls=lambda calls: [
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": call.id, "name": call.name, "input": {"n": call.number}}
                    for call in calls
                ],
            }
        ],
        results=lambda results: [
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": result.id, "content": say(result)}
                    for result in results
                ],
            }
        ],
        wrap=lambda turns: {"model": "claude-opus-4-8", "max_tokens": 9, "messages": turns},
    ),
    Wire(
        "openai_chat",
        has_names=True,
        needs_ids=False,
        user=lambda text: {"role": "user", "content": text},
        calls=chat_calls,
        results=lambda results: [
            without_empty({"role": "tool", "tool_call_id": result.id, "name": result.name})
            | {"content": say(result)}
            for result in results
        ],
        wrap=lambda turns: {"model": "gpt-4o", "messages": turns},
    ),
    Wire(
        "openai_responses",
        has_names=True,
        needs_ids=True,
        user=lambda text: {"role": "user", "content": text},
        calls=lambda calls: [
            {
                "type": "function_call",
                "call_id": call.id,
                "name": call.name,
                "arguments": json.dumps({"n": call.number}),
            }
            for call in calls
        ],
        results=lambda results: [
            without_empty({"type": "function_call_output", "call_id": result.id, "name": result.name})
            | {"output": say(result)}
            for result in results
        ],
        wrap=lambda turns: {"model": "gpt-5", "input": turns},
    ),
    Wire(
        "gemini",
        has_names=True,
        needs_ids=False,
        user=lambda text: {"role": "user", "parts": [{"text": text}]},
        calls=gemini_calls,
        results=gemini_results,
        wrap=lambda turns: {"model": "gemini-2.5-pro", "contents": turns},
    ),
    Wire(
        "ollama",
        has_names=True,
        needs_ids=False,
        user=lambda text: {"role": "user", "content": text},
        calls=ollama_calls,
        results=lambda results: [
            without_empty({"role": "tool", "tool_call_id": result.id, "tool_name": result.name})
            | {"content": say(result)}
            for result in results
        ],
        wrap=lambda turns: {"model": "qwen3", "messages": turns},
    ),
]
TURNS = {"openai_responses": "input", "gemini": "contents"}


def make_step(wire: Wire, dice: Random) -> tuple[list[Asked], list[Answered]]:
    """Parallel calls that may share ids, and their results as a client may send them.

    Results come in any order in which the id, then the name, then the position still says what is meant.
    Some are missing: of those that only their position tells apart, the last.
    """
    ids = ["", "", "x", "y", "z1"]
    if wire.needs_ids:
        ids = ["x", "x", "y", "z1"]
    shared_id = dice.choice(ids)
    calls: list[Asked] = []
    for number in range(dice.randint(1, 5)):
        call_id = shared_id
        if shared_id == "z1":
            call_id = dice.choice(("x", "y", f"own{number}"))
        calls.append(Asked(number, dice.choice(TOOL_NAMES), call_id))
    says_names = wire.has_names and dice.random() < 0.8
    groups: dict[Any, list[Answered]] = {}
    for call in calls:
        group = (call.id, call.name if says_names else "")
        name = call.name if says_names else ""
        groups.setdefault(group, []).append(Answered(call.number, name, call.id))
    order = [group for group, members in groups.items() for _ in members]
    dice.shuffle(order)
    results = [groups[group].pop(0) for group in order]
    while results and dice.random() < 0.3:
        results.pop()
    return calls, results


def list_turns(request: Json, wire: Wire) -> list[Json]:
    turns: list[Json] = request[TURNS.get(wire.name, "messages")]
    return turns


def check_pairs(request: Json, wire: Wire, expected: dict[int, int]) -> None:
    """Check that each result in a request answers the call that it was meant for.

    `expected` counts the results that must be there, by the number of their call.
    """
    fitted = fit_request(request, dialect=wire.name, budget=BUDGET)
    seen: dict[int, int] = {}
    for entry in fitted.envelope.sent:
        part = entry.parts[0]
        if not isinstance(part, ToolResult) or not part.content:
            continue
        text = part.content[0]
        assert isinstance(text, Text)
        if not text.text.startswith("of "):
            continue
        assert entry.asked is not None
        number = int(text.text.removeprefix("of "))
        assert json.loads(entry.asked.arguments)["n"] == number
        seen[number] = seen.get(number, 0) + 1
    assert seen == expected


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@given(seed=st.integers(0, 2**32))
def test_each_result_goes_to_the_call_that_its_client_meant(wire: Wire, seed: int) -> None:
    calls, results = make_step(wire, Random(seed))  # noqa: S311 - repeatable dice
    answers = wire.results(results) if results else []
    turns = [wire.user("go"), *wire.calls(calls), *answers, wire.user("on")]
    request = wire.wrap(turns)
    expected = {result.number: 1 for result in results}
    check_pairs(request, wire, expected)
    # A call without a result, further down, has the whole request written anew.
    more = [*turns, *wire.calls([Asked(9, "ls", "late")]), wire.user("last")]
    fitted = fit_request(wire.wrap(more), dialect=wire.name, budget=BUDGET)
    assert DIALECTS[wire.name].wire.check(fitted.request) == []
    check_pairs(fitted.request, wire, expected)


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@given(seed=st.integers(0, 2**32))
def test_a_longer_request_keeps_the_bytes_of_the_one_before_it(wire: Wire, seed: int) -> None:
    dice = Random(seed)  # noqa: S311 - repeatable dice
    turns: list[Json] = []
    ledger: Any = None
    last_turns: list[Json] = []
    for step in range(3):
        calls, results = make_step(wire, dice)
        turns += [wire.user(f"question {step}"), *wire.calls(calls)]
        if results:
            turns += wire.results(results)
        turns.append(wire.user(f"go on {step}"))
        request = wire.wrap(list(turns))
        fitted = fit_request(request, dialect=wire.name, budget=BUDGET, ledger=ledger)
        sent_turns = list_turns(dict(fitted.request), wire)
        if fitted.envelope.cut is None:
            assert sent_turns[: len(last_turns)] == last_turns
        if not DIALECTS[wire.name].wire.check(request):
            assert sent_turns == turns
        last_turns = sent_turns
        ledger = fitted.ledger.dump()


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@given(seed=st.integers(0, 2**32), seen=st.integers(1, 12))
def test_a_memo_changes_no_pair(wire: Wire, seed: int, seen: int) -> None:
    dice = Random(seed)  # noqa: S311 - repeatable dice
    turns: list[Json] = []
    for step in range(2):
        calls, results = make_step(wire, dice)
        turns += [wire.user(f"question {step}"), *wire.calls(calls), *wire.results(results)]
    dialect = DIALECTS[wire.name]
    memo = ParseMemo()
    dialect.wire.parse(wire.wrap(turns[:seen]), memo=memo)
    remembered = dialect.wire.parse(wire.wrap(turns), memo=memo)
    fresh = dialect.wire.parse(wire.wrap(turns))
    assert [segment.parts for segment in remembered.log] == [segment.parts for segment in fresh.log]


@given(seed=st.integers(0, 2**32))
def test_a_name_that_a_client_of_ollama_gave_is_never_overwritten(seed: int) -> None:
    wire = WIRES[-1]
    dice = Random(seed)  # noqa: S311 - repeatable dice
    calls, results = make_step(wire, dice)
    if len(calls) == 1 and results:
        results = [results[0]._replace(name=dice.choice(("Read", "read.v2", results[0].name)))]
    turns = [wire.user("go"), *wire.calls(calls), *wire.results(results), wire.user("on")]
    turns += [*wire.calls([Asked(9, "ls", "")]), wire.user("last")]
    fitted = fit_request(wire.wrap(turns), dialect="ollama", budget=BUDGET)
    sent = {turn["content"]: turn.get("tool_name") for turn in fitted.request["messages"]}
    for result in results:
        if result.name:
            assert sent[say(result)] == result.name


@pytest.mark.parametrize("shared_id", ["", "call_0"])
@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire.has_names], ids=lambda wire: wire.name)
def test_a_second_result_of_a_tool_is_none_of_another_call(wire: Wire, shared_id: str) -> None:
    shared_id = shared_id or ("x" if wire.needs_ids else "")
    calls = [Asked(0, "delete", shared_id), Asked(1, "read", shared_id)]
    results = [Answered(1, "read", shared_id), Answered(1, "read", shared_id)]
    turns = [wire.user("go"), *wire.calls(calls), *wire.results(results), wire.user("on")]
    check_pairs(wire.wrap(turns), wire, {1: 1})


def test_a_flat_prompt_gives_a_result_to_the_call_of_its_name() -> None:
    calls = [Asked(0, "delete", "x"), Asked(1, "read", "x")]
    results = [Answered(1, "read", "x"), Answered(0, "delete", "x")]
    wire = next(wire for wire in WIRES if wire.name == "openai_chat")
    turns = [wire.user("go"), *wire.calls(calls), *wire.results(results), wire.user("on")]
    fitted = translate(wire.wrap(turns), dialect="openai_chat", to="text", budget=BUDGET)
    log = DIALECTS["text"].wire.parse(fitted.request).log
    answers = [segment.parts[0] for segment in log if isinstance(segment.parts[0], ToolResult)]
    assert [(answer.name, answer.content) for answer in answers] == [
        ("read", (Text("of 1"),)),
        ("delete", (Text("of 0"),)),
    ]


def test_many_calls_with_one_id_are_paired_in_linear_time() -> None:
    """Count how often a place is looked at, and not how long it takes."""
    looked_at = 0

    class Counted(set[int]):
        def __contains__(self, place: object) -> bool:
            nonlocal looked_at
            looked_at += 1
            return super().__contains__(place)

    step = WaitingCalls()
    step._answered = Counted()  # noqa: SLF001 - there is no other way to see a lookup
    count = 2_000
    for place in range(count):
        step.add(place, "x", f"tool {place % 7}")
    for place in reversed(range(count)):
        step.take("x", f"tool {place % 7}")
    assert len(step) == 0
    assert looked_at < 10 * count


def test_a_call_whose_arguments_are_nested_beyond_any_depth_is_sent_as_it_came() -> None:
    """No file is found in them for the handle of the result."""
    arguments = '{"path": "a.py", "tree": ' + "[" * 100_000 + "]" * 100_000 + "}"
    function = {"name": "read", "arguments": arguments}
    request = {
        "model": "gpt-5",
        "messages": [
            {"role": "user", "content": "Read it."},
            {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "1", "content": "done"},
        ],
    }
    assert fit_request(request, budget=Budget(window=400_000)).request == request
