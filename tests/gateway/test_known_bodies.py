"""A body that resembles a known one is read as what it is: what the gateway remembers changes nothing."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lamina.gateway.bodies import decode_body
from lamina.gateway.config import RequestLimits
from lamina.gateway.refusals import Refusal
from lamina.gateway.turn_memory import TurnMemory

LIMITS = RequestLimits()


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
        return decode_body(body, "", LIMITS, memory).request
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
