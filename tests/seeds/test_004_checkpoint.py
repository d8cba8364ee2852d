"""Source system 004: its checkpoints, and the trim index in their metadata (S4-80 to S4-82)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from examples.importers.checkpoint import (
    FORMAT,
    INDEX,
    MIRROR,
    AgentCheckpoint,
    read,
    read_state,
    signature,
    trim_index,
    trimmed_ledger,
    with_index,
    write,
)
from examples.importers.messages import read_messages, write_messages
from lamina import BadInput, BudgetExceeded, Ledger, Options, Segment, build
from lamina.core import RFC
from lamina.segments import assistant, user
from tests.seeds import rfc
from tests.seeds.rfc import agent_turns, before, bodies, smallest, trim, trimmed, turns, untrimmed

HELLO = {"role": "user", "content": "hello"}


def payload(**fields: Any) -> str:
    whole = {"version": 1, "format": FORMAT, "run_id": None, "messages": [HELLO], "metadata": {}} | fields
    return json.dumps({name: value for name, value in whole.items() if value != "missing"})


def test_the_configuration_is_the_one_of_these_tests() -> None:
    assert MIRROR == rfc.MIRROR


def test_s4_80_a_state_may_have_no_messages_and_no_metadata() -> None:
    assert read_state({}) == AgentCheckpoint()
    old = read_state({"messages": [HELLO]})
    assert (old.metadata, old.log) == (None, (user("hello"),))
    assert read_state({"messages": [], "metadata": {INDEX: 0, "x": [1]}}).metadata == {INDEX: 0, "x": [1]}


def test_s4_80_chained_checkpoints_keep_their_own_metadata() -> None:
    log = turns(5, "u{i}", "y*300")
    chain = [
        write(log[: 2 * n], metadata=m)
        for n, m in ((1, None), (3, {INDEX: 5}), (4, {INDEX: 8}), (5, {INDEX: 8}))
    ]
    assert [(read(each).metadata or {}).get(INDEX) for each in chain] == [None, 5, 8, 8]
    assert trimmed(untrimmed_with(read(chain[-1]))) == [1, 3, 5, 7]


def untrimmed_with(checkpoint: AgentCheckpoint) -> Any:
    return build(checkpoint.log, ledger=checkpoint.ledger, options=MIRROR, counter=RFC)


def resumed_with(checkpoint: AgentCheckpoint) -> Any:
    """With the next question: a request's last step goes out as it came, so without it nothing is trimmed."""
    log = [*checkpoint.log, user("go on")]
    return build(log, ledger=checkpoint.ledger, options=MIRROR, counter=RFC)


def test_s4_81_the_first_version_comes_back() -> None:
    log = tuple(agent_turns(2, "q{i}", "r*50", "a*50"))
    run = "0191b6f0-0000-7000-8000-000000000000"
    back = read(write(log, metadata={"cwd": "/srv"}, run=run))
    assert (back.log, back.metadata, back.run, back.ledger, back.notes) == (
        log,
        {"cwd": "/srv"},
        run,
        Ledger(),
        (),
    )


def test_s4_81_forms_without_a_version_are_read() -> None:
    bare = read(json.dumps([HELLO]))
    assert (bare.log, bare.metadata) == ((user("hello"),), {"migrated_from": "legacy_messages_array"})
    older = read(payload(version="missing", format="missing", run_id="r", metadata={"legacy": True}))
    assert (older.log, older.metadata, older.run) == ((user("hello"),), {"legacy": True}, "r")
    assert read(payload(version="missing", metadata="missing")).metadata == {}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"version": 2}, "unsupported checkpoint version: 2"),
        ({"version": "1"}, "unsupported checkpoint version: '1'"),
        ({"format": "legacy"}, "unsupported checkpoint format: 'legacy'"),
        ({"version": "missing", "messages": "missing"}, "missing version"),
        ({"messages": "missing"}, "messages are missing"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "message 0 has no role"),
        ({"messages": [HELLO, None]}, "message 1 has no role"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "not a text, image"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "not a text, image"),
    ],
)
def test_s4_81_what_cannot_be_read_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read(payload(**wrong))


def test_s4_81_broken_bytes_are_refused() -> None:
    for broken in (b"", b"{", b"\xff", b"3", b"[" * 100_000):
        with pytest.raises(BadInput, match="checkpoint"):
            read(broken)


def test_s4_82_a_signature_is_that_of_messages_and_metadata() -> None:
    one = AgentCheckpoint(log=(user("a"),), metadata={"x": 1})
    same = read(write(one.log, metadata=one.metadata, run="other"))
    assert signature(same) == signature(one)
    others = [
        AgentCheckpoint(log=(user("b"),), metadata={"x": 1}),
        AgentCheckpoint(log=one.log, metadata={"x": 2}),
        AgentCheckpoint(log=one.log),
    ]
    assert len({signature(each) for each in [one, *others]}) == 4


# the index, in and out


@given(rfc.STEPS, st.integers(0, 60))
def test_an_index_trims_the_messages_that_it_trims_there(steps: list[rfc.Step], index: int) -> None:
    log = rfc.conversation(steps)
    count = len(rfc.messages(untrimmed(log)))
    checkpoint = read(write(log, metadata={INDEX: index}))
    made = resumed_with(checkpoint)
    if index > count:
        assert (trimmed(made), len(checkpoint.notes)) == ([], 1)
    else:
        assert trimmed(made) == before(log, index)
        assert trim_index(made) <= index
        again = read(write(log, metadata=with_index(checkpoint.metadata, made)))
        assert bodies(resumed_with(again)) == bodies(made)


@given(rfc.STEPS, st.integers(0, 3), st.floats(0.5, 1))
def test_a_trimmed_request_goes_out_as_its_index_and_comes_back(
    steps: list[rfc.Step], keep: int, share: float
) -> None:
    log = rfc.conversation(steps)
    floor, full = smallest(log), untrimmed(log).tokens
    window = max(int((floor + share * (full - floor)) / 0.8), 1)
    try:
        made = trim(log, window, keep=keep)
        metadata = with_index(None, made)
    except (BudgetExceeded, BadInput):  # not what that system can say: a digest
        reject()
    there = read(write(log, metadata=metadata))
    assert bodies(untrimmed_with(there)) == bodies(made)
    assert set(there.ledger.lines) == set(made.ledger.lines)


def test_a_resumed_session_goes_on_as_if_it_had_not_been_exported() -> None:
    log = turns(5, "User {i}: x*100", "Asst {i}: y*100")
    first = trim(log, 500)
    assert (trim_index(first), with_index({"a": 1}, first)) == (6, {"a": 1, INDEX: 6})
    there = read(write(log, metadata=with_index(None, first)))
    more: list[Segment] = [user("short"), assistant("brief")]
    here = trim([*log, *more], 500, ledger=first.ledger)
    resumed = trim([*there.log, *more], 500, ledger=there.ledger)
    assert (bodies(resumed), resumed.tokens) == (bodies(here), 343)


def test_without_an_index_metadata_stays_as_it_was() -> None:
    small = untrimmed(turns(1, "a", "b"))
    assert [with_index(m, small) for m in (None, {}, {"x": 1})] == [None, {}, {"x": 1}]
    assert with_index({INDEX: 3}, small) == {INDEX: 0}


def test_the_index_of_another_history_trims_nothing_and_says_so() -> None:
    log = turns(2, "u{i}", "y*300")
    for index in (100, -1, "5", True, 1.5):
        checkpoint = read(write(log, metadata={INDEX: index}))
        assert checkpoint.ledger == Ledger()
        assert checkpoint.notes == (f"{INDEX} is {index!r}, not a place in this history: nothing is trimmed",)
    assert trimmed_ledger(log, 5) is None
    assert trimmed_ledger(log, 4) is not None


def test_metadata_that_is_none_is_dropped_with_a_note() -> None:
    assert read(payload(metadata=[1])).notes == ("metadata is [1]: it was dropped",)


def test_what_that_system_cannot_say_has_no_index() -> None:
    log = [user("q " * 300), assistant("a " * 300), user("r " * 300), assistant("b " * 300), user("now?")]
    other = trim(log, 400, options=Options())
    with pytest.raises(BadInput, match="MIRROR"):
        trim_index(other)


# messages

PARTS = [
    {"type": "text", "text": "hello"},
    {"type": "image", "url": "data:image/png;base64,aGk="},
    {"type": "image", "url": "https://example.org/a.png", "detail": "low"},
    {
        "type": "text",
        "text": "see",
        "provider_options": {"anthropic": {"cache_control": {"type": "ephemeral"}}},
    },
]
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": PARTS, "name": "ann"},
    {"role": "user", "content": [PARTS[0]]},
    {"role": "user", "content": []},
    {"role": "user", "content": ""},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "Thinking..."},
            {"type": "tool_call", "id": "t1", "name": "run", "arguments": {"b": [1, 2.5, None], "a": "ü"}},
            {"type": "tool_call", "id": "t2", "name": "run", "arguments": "not json"},
        ],
    },
    {"role": "tool", "content": [{"type": "tool_result", "tool_call_id": "t1", "content": "done"}]},
    {"role": "tool", "content": [{"type": "tool_result", "tool_call_id": "t2", "content": {"ok": [True]}}]},
]


def test_messages_come_back_as_they_were() -> None:
    found = read_messages(MESSAGES)
    assert write_messages(found.log) == MESSAGES
    assert found.skipped == ()
    assert [s.kind for s in found.log[-5:]] == [
        "assistant",
        "tool_call",
        "tool_call",
        "tool_result",
        "tool_result",
    ]


@given(rfc.STEPS)
def test_logs_come_back_from_messages(steps: list[rfc.Step]) -> None:
    log = tuple(rfc.conversation(steps))
    assert read(write(log)).log == log
