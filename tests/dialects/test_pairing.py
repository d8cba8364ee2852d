"""Results go to the calls that their client meant, in every dialect, whatever ids and names calls share."""

from __future__ import annotations

import json
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import Budget, fit_request, translate
from lamina.core import Text, ToolResult
from lamina.core.waiting_calls import WaitingCalls
from lamina.dialects import DIALECTS
from lamina.dialects.memos import ParseMemo
from tests.dialects.wires import WIRES, Call, Result, Wire

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


NAMED = [name for name in WIRES if name not in ("anthropic", "bedrock_converse")]
"""APIs in which a result may name its tool."""

NEEDS_IDS = ("anthropic", "openai_responses", "bedrock_converse")


def say(result: Answered) -> str:
    return f"of {result.number}"


def write_calls(wire: Wire, calls: list[Asked]) -> list[Json]:
    return wire.call([Call(call.id, call.name, {"n": call.number}) for call in calls])


def write_results(wire: Wire, results: list[Answered]) -> list[Json]:
    if not results:
        return []
    return wire.answer([Result(result.id, result.name, say(result)) for result in results])


def make_step(wire: Wire, dice: Random) -> tuple[list[Asked], list[Answered]]:
    """Parallel calls that may share ids, and their results as a client may send them.

    Results come in any order in which the id, then the name, then the position still says what is meant.
    Some are missing: of those that only their position tells apart, the last.
    """
    ids = ["", "", "x", "y", "z1"]
    if wire.name in NEEDS_IDS:
        ids = ["x", "x", "y", "z1"]
    shared_id = dice.choice(ids)
    calls: list[Asked] = []
    for number in range(dice.randint(1, 5)):
        call_id = shared_id
        if shared_id == "z1":
            call_id = dice.choice(("x", "y", f"own{number}"))
        calls.append(Asked(number, dice.choice(TOOL_NAMES), call_id))
    says_names = wire.name in NAMED and dice.random() < 0.8
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


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
@given(seed=st.integers(0, 2**32))
def test_each_result_goes_to_the_call_that_its_client_meant(wire: Wire, seed: int) -> None:
    calls, results = make_step(wire, Random(seed))  # noqa: S311 - repeatable dice
    turns = [wire.ask("go"), *write_calls(wire, calls), *write_results(wire, results), wire.ask("on")]
    request = wire.request(turns)
    expected = {result.number: 1 for result in results}
    check_pairs(request, wire, expected)
    # A call without a result, further down, has the whole request written anew.
    more = [*turns, *write_calls(wire, [Asked(9, "ls", "late")]), wire.ask("last")]
    fitted = fit_request(wire.request(more), dialect=wire.name, budget=BUDGET)
    assert DIALECTS[wire.name].wire.check(fitted.request) == []
    check_pairs(fitted.request, wire, expected)


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
@given(seed=st.integers(0, 2**32))
def test_a_longer_request_keeps_the_bytes_of_the_one_before_it(wire: Wire, seed: int) -> None:
    dice = Random(seed)  # noqa: S311 - repeatable dice
    turns: list[Json] = []
    ledger: Any = None
    last_data: list[tuple[str, bytes]] = []
    for step in range(3):
        calls, results = make_step(wire, dice)
        turns += [wire.ask(f"question {step}"), *write_calls(wire, calls)]
        turns += write_results(wire, results)
        turns.append(wire.ask(f"go on {step}"))
        request = wire.request(list(turns))
        fitted = fit_request(request, dialect=wire.name, budget=BUDGET, ledger=ledger)
        blocks = DIALECTS[wire.name].cache.stream(fitted.request).blocks
        sent_data = [(block.role, block.data) for block in blocks]
        if fitted.envelope.cut is None:
            assert sent_data[: len(last_data)] == last_data
        if not DIALECTS[wire.name].wire.check(request):
            assert fitted.request[wire.field] == turns
        last_data = sent_data
        ledger = fitted.ledger.dump()


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
@given(seed=st.integers(0, 2**32), seen=st.integers(1, 12))
def test_a_memo_changes_no_pair(wire: Wire, seed: int, seen: int) -> None:
    dice = Random(seed)  # noqa: S311 - repeatable dice
    turns: list[Json] = []
    for step in range(2):
        calls, results = make_step(wire, dice)
        turns += [wire.ask(f"question {step}"), *write_calls(wire, calls), *write_results(wire, results)]
    dialect = DIALECTS[wire.name]
    memo = ParseMemo()
    dialect.wire.parse(wire.request(turns[:seen]), memo=memo)
    remembered = dialect.wire.parse(wire.request(turns), memo=memo)
    fresh = dialect.wire.parse(wire.request(turns))
    assert [segment.parts for segment in remembered.log] == [segment.parts for segment in fresh.log]


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_a_result_is_named_after_its_call_by_position_where_ids_repeat(wire: Wire) -> None:
    calls = [Call("x", "read", {"path": "a.py"}), Call("x", "grep", {"path": "b.py"})]
    results = wire.answer([Result("x", "", "1"), Result("x", "", "2")])
    log = DIALECTS[wire.name].wire.parse(wire.request([wire.ask("go"), *wire.call(calls), *results])).log
    named = [(part.name, each.attrs) for each in log if isinstance(part := each.parts[0], ToolResult)]
    assert named == [("read", {"path": "a.py"}), ("grep", {"path": "b.py"})]


@given(seed=st.integers(0, 2**32))
def test_a_name_that_a_client_of_ollama_gave_is_never_overwritten(seed: int) -> None:
    wire = WIRES["ollama"]
    dice = Random(seed)  # noqa: S311 - repeatable dice
    calls, results = make_step(wire, dice)
    if len(calls) == 1 and results:
        results = [results[0]._replace(name=dice.choice(("Read", "read.v2", results[0].name)))]
    turns = [wire.ask("go"), *write_calls(wire, calls), *write_results(wire, results), wire.ask("on")]
    turns += [*write_calls(wire, [Asked(9, "ls", "")]), wire.ask("last")]
    fitted = fit_request(wire.request(turns), dialect="ollama", budget=BUDGET)
    sent = {turn["content"]: turn.get("tool_name") for turn in fitted.request["messages"]}
    for result in results:
        if result.name:
            assert sent[say(result)] == result.name


@pytest.mark.parametrize("shared_id", ["", "call_0"])
@pytest.mark.parametrize("name", NAMED)
def test_a_second_result_of_a_tool_is_none_of_another_call(name: str, shared_id: str) -> None:
    wire = WIRES[name]
    shared_id = shared_id or ("x" if name in NEEDS_IDS else "")
    calls = [Asked(0, "delete", shared_id), Asked(1, "read", shared_id)]
    results = [Answered(1, "read", shared_id), Answered(1, "read", shared_id)]
    turns = [wire.ask("go"), *write_calls(wire, calls), *write_results(wire, results), wire.ask("on")]
    check_pairs(wire.request(turns), wire, {1: 1})


def test_a_flat_prompt_gives_a_result_to_the_call_of_its_name() -> None:
    calls = [Asked(0, "delete", "x"), Asked(1, "read", "x")]
    results = [Answered(1, "read", "x"), Answered(0, "delete", "x")]
    wire = WIRES["openai_chat"]
    turns = [wire.ask("go"), *write_calls(wire, calls), *write_results(wire, results), wire.ask("on")]
    fitted = translate(wire.request(turns), dialect="openai_chat", to="text", budget=BUDGET)
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
