"""Bodies are decoded at their end only, and to the same values and refusals as if they were decoded whole."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import brotli  # type: ignore[import-untyped]
import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from lamina.gateway.packed_bodies import unpack
from lamina.relay import limits, request_bodies
from lamina.relay.answer import make_answer_unpacker
from lamina.relay.refusals import Refusal
from lamina.relay.request_bodies import RequestBody, decode_body, encode_body
from lamina.relay.turn_memory import TurnMemory


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
                changed[place] = chance.choice(b'{}[],:;" 0a\\')
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
    ("value", "key"),
    [
        ('{"role":"user","content":[{"type":"text","text":"a","text":"b"}]}', "text"),
        ('{"role": "user", "content": [{"type": "text", "text": "a", "te\\u0078t": "b"}]}', "text"),
        ('{"role":"user","content":"a","x":{"y":{"first":1,"z":1,"z":1}}}', "z"),
    ],
)
def test_a_key_that_is_there_twice_is_refused_at_any_depth(value: str, key: str) -> None:
    for text in (f'{{"messages":[{value}]}}', f'{{"messages":[],"metadata":{value}}}'):
        with pytest.raises(Refusal, match=f"has the key '{key}' twice"):
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

    def note_text(text: bytes) -> int:
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
    decode_body(text, memory)
    assert len(memory) == 0
    assert decode_body(text, memory).new_bytes > 0


def test_short_messages_count_with_what_they_take_in_memory() -> None:
    memory = TurnMemory(limit=100_000)
    for number in range(1_000):
        text = json.dumps({"messages": [{"role": "user", "content": f"{number}"}]}).encode()
        decode_body(text, memory)
    assert len(memory) <= 100


@pytest.mark.parametrize(("limit", "is_taken"), [(2, True), (1, False)])
def test_a_body_may_have_as_many_tools_as_the_limit(
    limit: int, monkeypatch: pytest.MonkeyPatch, *, is_taken: bool
) -> None:
    text = b'{"model":"m","tools":[{"name":"a"},{"name":"b"}]}'
    monkeypatch.setattr(limits, "TOOLS", limit)
    if is_taken:
        assert len(decode_body(text, TurnMemory()).request["tools"]) == 2
        return
    with pytest.raises(Refusal, match="tools has 2 items; the limit is 1") as refused:
        decode_body(text, TurnMemory())
    assert refused.value.status == 413


@pytest.mark.parametrize("text", [b'{"model":"m"}', b'{"model":"m","input":"Hello."}', b"{}"])
def test_a_body_without_messages_is_decoded_without_any(text: bytes) -> None:
    body = decode_body(text, TurnMemory())
    assert body.request == json.loads(text)
    assert body.turns == ()
    assert body.new_bytes == 0
    assert body.turn_bytes == 0
    assert body.head_bytes == len(text)


PACK = {"gzip": gzip.compress, "deflate": zlib.compress, "br": brotli.compress, "zstd": zstandard.compress}


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "identity", "", "GZIP", "identity, gzip "])
def test_a_body_may_be_as_large_as_the_limit_when_unpacked(encoding: str) -> None:
    name = encoding.lower().rpartition(",")[2].strip()
    text = b"0123456789" * 20
    packed = PACK[name](text) if name in PACK else text
    assert unpack(packed, encoding, 200) == text
    if name in PACK:
        with pytest.raises(Refusal, match="larger than 199 bytes") as refused:
            unpack(packed, encoding, 199)
        assert refused.value.status == 413
        with pytest.raises(Refusal, match="not valid") as refused:
            unpack(packed[:-9], encoding, 200)
        assert refused.value.status == 400


def test_an_encoding_that_nobody_knows_is_refused() -> None:
    with pytest.raises(Refusal, match="'zip' is unknown") as refused:
        unpack(b"x", "zip", 9)
    assert refused.value.status == 415
    twice = gzip.compress(zlib.compress(b"text"))
    assert unpack(twice, "deflate, gzip", 99) == b"text"


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
@given(texts=st.lists(st.binary(max_size=200), min_size=1, max_size=5), cuts=st.lists(st.integers(0, 999)))
def test_all_members_of_a_packed_file_are_read_whole_or_piece_by_piece(
    encoding: str, pack: Callable[[bytes], bytes], texts: list[bytes], cuts: list[int]
) -> None:
    packed = b"".join(map(pack, texts))
    assert unpack(packed, encoding, 2_000) == b"".join(texts)
    unpack_piece = make_answer_unpacker(encoding)
    pieces = [packed[start:end] for start, end in pairwise(sorted([0, *cuts, len(packed) + 999]))]
    assert b"".join(map(unpack_piece, pieces)) == b"".join(texts)


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
def test_a_body_with_something_behind_its_end_is_refused(name: str) -> None:
    """The upstream may read it otherwise than the gateway."""
    with pytest.raises(Refusal, match="not valid"):
        unpack(PACK[name](b"{}") + b"more", name, 99)


@pytest.mark.parametrize(("window_log", "refused"), [(27, False), (28, True)])
def test_a_body_in_zstd_may_ask_for_a_window_of_128_mib_and_no_more(
    window_log: int, *, refused: bool
) -> None:
    """The client chooses the window, and unpacking takes so much memory, however short the body is."""
    window = bytes([(window_log - 10) << 3])
    last_raw_block = ((2 << 3) | 1).to_bytes(3, "little") + b"{}"
    packed = b"\x28\xb5\x2f\xfd\x00" + window + last_raw_block
    if refused:
        with pytest.raises(Refusal, match="not valid zstd"):
            unpack(packed, "zstd", 99)
    else:
        assert unpack(packed, "zstd", 99) == b"{}"


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
