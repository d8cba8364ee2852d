"""A body that resembles a known one is read as what it is: what the gateway remembers changes nothing."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lamina.gateway.refusals import Refusal
from lamina.gateway.request_bodies import decode_body
from lamina.gateway.turn_memory import TurnMemory


def write_body(count: int) -> bytes:
    """A request with so many messages, each long enough to be remembered."""
    turns = [
        {
            "role": ("user", "assistant")[number % 2],
            "content": f"message number {number}, long enough to matter",
        }
        for number in range(count)
    ]
    return json.dumps({"model": "gpt-5", "messages": turns}, separators=(",", ":")).encode()


def read(body: bytes, memory: TurnMemory) -> Any:
    """The request in a body, or that it is refused."""
    try:
        return decode_body(body, memory).request
    except Refusal as refusal:
        return refusal.status


BODY = write_body(7)


@given(place=st.integers(0, len(BODY) - 1), byte=st.sampled_from(b';,{}[]":x0 \n'))
def test_one_other_byte_anywhere_is_read_as_without_a_memory(place: int, byte: int) -> None:
    memory = TurnMemory()
    read(BODY, memory)
    changed = BODY[:place] + bytes([byte]) + BODY[place + 1 :]
    assert read(changed, memory) == read(changed, TurnMemory())


def test_broken_json_between_known_messages_is_refused() -> None:
    memory = TurnMemory()
    assert read(BODY, memory)["model"] == "gpt-5"
    for old in range(1, 7):
        parts = BODY.split(b"},{")
        broken = b"},{".join(parts[:old]) + b"};{" + b"},{".join(parts[old:])
        assert len(broken) == len(BODY)
        assert read(broken, memory) == 400


@given(lengths=st.lists(st.integers(1, 12), min_size=2, max_size=6))
def test_requests_that_grow_and_shrink_are_read_as_without_a_memory(lengths: list[int]) -> None:
    memory = TurnMemory()
    for length in lengths:
        body = write_body(length)
        assert read(body, memory) == read(body, TurnMemory())


# What is forgotten gives its room back.


def write_question(number: int) -> bytes:
    turns = [{"role": "user", "content": f"question {number:04} " * 40}]
    return json.dumps({"model": "gpt-5", "messages": turns}).encode()


def test_what_follows_the_messages_counts_as_what_they_hold() -> None:
    memory = TurnMemory(limit=100_000)
    bodies = []
    for number in range(9):
        system = json.dumps("x" * 30_000)
        bodies.append(b'{"messages":[{"content":"%d"}],"system":%b}' % (number, system.encode()))
        decode_body(bodies[-1], memory)
    assert sum(memory.find_repeated(body) is not None for body in bodies) == 3


def test_a_memory_holds_as_many_messages_after_a_thousand_as_before() -> None:
    memory = TurnMemory(limit=20_000)
    held: list[int] = []
    for number in range(1_000):
        read(write_question(number), memory)
        held.append(len(memory))
        assert decode_body(write_question(number), memory).new_bytes == 0
    assert held[-1] == max(held) > 5


def test_a_conversation_that_grows_for_long_is_known_at_every_request() -> None:
    """Each request takes the place of the one before it, and of its room."""
    memory = TurnMemory(limit=4 * len(write_body(300)) + 400_000)
    for count in range(1, 300, 3):
        body = write_body(count)
        before = decode_body(body, memory)
        assert memory.find_repeated(body) is not None
        decode_body(body, memory)
        assert before.new_bytes < 400


def test_outlines_of_many_requests_are_forgotten_one_by_one() -> None:
    """The newest ones stay: each was the last of its conversation, which goes on some time."""
    memory = TurnMemory(limit=30_000)
    for number in range(200):
        read(write_question(number), memory)
    assert memory.find_repeated(write_question(199)) is not None
    assert memory.find_repeated(write_question(190)) is not None
    assert memory.find_repeated(write_question(145)) is None  # by its bytes: it is not among the last 50
