"""Bodies are decoded at their end only, and to the same values and refusals as if they were decoded whole."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from lamina.gateway import limits, request_bodies
from lamina.gateway.refusals import Refusal
from lamina.gateway.request_bodies import RequestBody, decode_body, encode_body
from lamina.gateway.turn_memory import TurnMemory


def make_body(steps: int, *, separators: tuple[str, str] = (",", ":"), **fields: Any) -> bytes:
    messages: list[Any] = [{"role": "user", "content": "Go."}]
    for step in range(steps):
        messages.append({"role": "assistant", "content": f"step {step} é"})
        messages.append({"role": "user", "content": [{"type": "text", "text": f"result {step}"}]})
    request = {"model": "gpt-5", "messages": messages, "tools": [{"name": "read" * 200}], **fields}
    return json.dumps(request, separators=separators).encode()


def decode_or_refuse(text: bytes, memory: TurnMemory) -> tuple[int, Any]:
    """The status of a refusal, or 200 and the request."""
    try:
        body = decode_body(text, memory)
    except Refusal as refusal:
        return refusal.status, None
    assert body.turns == tuple(body.request.get("messages", ()))
    assert [msgspec.json.decode(source) for source in body.decoded.sources] == list(body.turns)
    assert len(body.bounds) == len(body.turns)
    return 200, body.request


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,\n", " : ")])
def test_a_body_that_repeats_another_is_decoded_to_the_same(separators: tuple[str, str]) -> None:
    memory = TurnMemory()
    last: RequestBody | None = None
    for steps in range(1, 12):
        text = make_body(steps, separators=separators)
        body = decode_body(text, memory)
        assert body.request == json.loads(text)
        assert body.turn_bytes == sum(map(len, body.decoded.sources))
        assert json.loads(encode_body(body.request, body)) == json.loads(text)
        if last is not None:
            assert all(old is new for old, new in zip(last.turns, body.turns, strict=False))
            assert body.request["tools"] is last.request["tools"]
            assert body.new_bytes == sum(map(len, body.decoded.sources[-2:]))
        last = body


def test_no_change_of_a_body_is_missed() -> None:
    """Any byte may change, come or go: a memory that knows the body before says the same as an empty one."""
    chance = random.Random(18)  # noqa: S311 - no secret depends on it
    text = make_body(6)
    outcomes: set[int] = set()
    for _ in range(300):
        memory = TurnMemory()
        decode_or_refuse(text, memory)
        changed = bytearray(text if chance.random() < 0.5 else make_body(7))
        place = chance.randrange(len(changed))
        match chance.randrange(3):
            case 0:
                changed[place] = chance.choice(b'{}[],:" 0a\\')
            case 1:
                del changed[place : place + chance.choice((1, 1, 2, 30))]
            case _:
                changed[place:place] = chance.choice((b",", b" ", b"]", b"}", b'"', b",{}", b" 5", b',"n":1'))
        outcome = decode_or_refuse(bytes(changed), memory)
        assert outcome == decode_or_refuse(bytes(changed), TurnMemory())
        outcomes.add(outcome[0])
    assert outcomes == {200, 400}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"messages":[{"a":1}]}', b'{"messages":[{"a":1},]}'),
        (b'{"messages":[{"a":1}]}', b'{"messages":[{"a":1} 5]}'),
        (b'{"messages":[{"a":1}]}', b'{"messages":[{"a":1}}'),
        (b'{"messages":[{"a":1}]}', b'{"messages":[{"a":1}],"messages":[{"b":2}]}'),
        (b'{"messages":[{"a":1}]}', b'{"messages":[{"a":1}]} '),
        (b'{"messages":[{"a":1}]}', b'{"messages":[{"a":1}],"input":[{"b":2}]}'),
        (b'{"messages":[{"a":1}],"n":[2]}', b'{"messages":[{"a":1},{"b":2}],"n":[1],"n":[2]}'),
        (b'{"messages":[{"a":1}],"n":[2]}', b'{"messages":[{"a":1}],"n":[1],"n":[2]}'),
        (b'{"messages":[{"a":1}],"n":[2]}', b'{"messages":[{"a":1},],"n":[2]}'),
        (b'{"messages":[{"a":1}],"n":[2]}', b'{"messages":[{"a":1},{"b":"\\ud800"}],"n":[2]}'),
        (b'{"messages":[{"a":1}],"n":[2]}', b'{"messages":[{"a":1},{"b":"\xff"}],"n":[2]}'),
        (b'{"messages":[{"a":1},{"b":2}],"n":2}', b'{"messages":[{"a":1}],"n":2}'),
        (b'{"messages":[{"a":1}],"n":2}', b'{"messages":[{"a":1},{"b":2}],"n":2}'),
        (
            b'{"x":"\\"messages\\":[","messages":[{"a":1}]}',
            b'{"x":"\\"messages\\":[","messages":[{"a":1},2]}',
        ),
    ],
)
def test_a_body_that_ends_otherwise_is_not_taken_for_the_last_one(before: bytes, after: bytes) -> None:
    memory = TurnMemory()
    decode_or_refuse(before, memory)
    try:
        expected: tuple[int, Any] = 200, decode_body(after, TurnMemory()).request
    except Refusal as refusal:
        expected = refusal.status, None
    try:
        outcome: tuple[int, Any] = 200, decode_body(after, memory).request
    except Refusal as refusal:
        outcome = refusal.status, None
    assert outcome == expected


@pytest.mark.parametrize(
    "value",
    [
        '{"role":"user","content":[{"type":"text","text":"a","text":"b"}]}',
        '{"role": "user", "content": [{"type": "text", "text": "a", "te\\u0078t": "b"}]}',
        '{"role":"user","content":"a","x":{"y":{"z":1,"z":1}}}',
    ],
)
def test_a_key_that_is_there_twice_is_refused_at_any_depth(value: str) -> None:
    for text in (f'{{"messages":[{value}]}}', f'{{"messages":[],"metadata":{value}}}'):
        with pytest.raises(Refusal, match="twice"):
            decode_body(text.encode(), TurnMemory())


def test_a_body_without_blanks_or_with_other_spellings_of_numbers_passes() -> None:
    text = b'{"messages":[{"role":"user","content":"a\\/b","n":[1e3,1.50,-0.0,12345678901234567890]}]}'
    assert decode_body(text, TurnMemory()).turns[0]["content"] == "a/b"


def test_the_memory_forgets_what_was_not_used_for_longest() -> None:
    memory = TurnMemory(limit=4_000)
    first = make_body(3, user="a")
    decode_body(first, memory)
    for number in range(20):
        text = json.dumps({"messages": [{"role": "user", "content": f"{number} " * 200}]}).encode()
        decode_body(text, memory)
    assert decode_body(first, memory).new_bytes > 0


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "text", "text": "p"}] * 200,
        [{"type": "tool_result", "content": [{"type": "text", "text": "p"}] * 200}],
        {"a": {"b": [[]] * 500}},
        list(range(1_000)),
        {str(number): number for number in range(1_000)},
    ],
)
def test_values_are_limited_at_every_depth(content: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VALUES", 300)
    text = json.dumps({"messages": [{"role": "user", "content": content}]}).encode()
    with pytest.raises(Refusal, match="values at all depths") as refused:
        decode_body(text, TurnMemory())
    assert refused.value.status == 413


def test_a_growing_body_reaches_the_limit_of_values_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VALUES", 300)
    memory = TurnMemory()
    decode_body(make_body(10), memory)
    with pytest.raises(Refusal, match="values at all depths"):
        decode_body(make_body(60), memory)


def test_tools_after_the_messages_are_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were counted for every request: 50 kB of them took as long as a plain proxy takes in all."""
    memory = TurnMemory()
    decode_body(make_body(10), memory)
    counted_texts: list[bytes] = []

    def note_text(text: bytes, _: int) -> int:
        counted_texts.append(text)
        return 0

    monkeypatch.setattr(request_bodies, "count_values", note_text)
    decode_body(make_body(11), memory)
    assert b"result 10" in counted_texts[0]
    assert b"tools" not in b"".join(counted_texts)
    decode_body(make_body(12, temperature=1), memory)
    assert b"temperature" in b"".join(counted_texts)


def test_signs_inside_of_texts_are_not_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VALUES", 300)
    memory = TurnMemory()
    content = 'a,b,[c],{d}, "quoted, too" \\ ' * 400
    for steps in range(4):
        turns = [{"role": "user", "content": content}, {"role": "assistant", "content": "Yes."}] * (steps + 1)
        text = json.dumps({"messages": turns}).encode()
        assert len(decode_body(text, memory).turns) == 2 * (steps + 1)


def test_a_message_that_is_larger_than_the_memory_is_not_kept() -> None:
    memory = TurnMemory(limit=10_000)
    text = json.dumps({"messages": [{"role": "user", "content": "a" * 20_000}]}).encode()
    source = decode_body(text, memory).decoded.sources[0]
    assert memory.recall(source) is None
    assert decode_body(text, memory).new_bytes > 0


def test_short_messages_count_with_what_they_take_in_memory() -> None:
    memory = TurnMemory(limit=100_000)
    for number in range(1_000):
        text = json.dumps({"messages": [{"role": "user", "content": f"{number}"}]}).encode()
        decode_body(text, memory)
    assert len(memory) <= 100
