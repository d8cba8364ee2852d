"""The record gives back every body byte for byte, whatever was sent, and stores each text once."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lamina.conversations import export_conversation, import_conversation
from lamina.conversations.record import Answered, ConversationRecord, SentRequest
from lamina.conversations.record_writer import RecordWriter
from lamina.conversations.store import ConversationState, conversation_place, read_record, recorded_workspace
from lamina.core import Cut
from lamina.core.values import Ledger
from lamina.dialects import Usage
from lamina.errors import BadInput
from lamina.stores import MemoryStore

BODIES = st.lists(
    st.one_of(
        st.binary(max_size=2_000),
        st.lists(
            st.fixed_dictionaries(
                {"role": st.sampled_from(["user", "assistant"]), "content": st.text(max_size=600)}
            ),
            max_size=8,
        ).map(
            lambda messages: msgspec.json.encode({"model": "m", "messages": messages, "tools": ["t" * 300]})
        ),
    ),
    min_size=1,
    max_size=8,
)


def write_body(letters: str) -> bytes:
    """A body with a long message for each letter."""
    return msgspec.json.encode({"messages": [{"role": "user", "content": each * 400} for each in letters]})


ALIKE = st.lists(st.text("xyz", max_size=6).map(write_body), min_size=2, max_size=6)
"""Bodies of a few messages that repeat: the beginning and the end of one may overlap in the next."""


def save(writer: RecordWriter, stored: list[bytes]) -> None:
    assert writer.count == len(stored)
    stored += writer.encode()
    writer.saved()


def read(stored: list[bytes]) -> ConversationRecord:
    record = ConversationRecord()
    record.read(stored)
    return record


def grow(number: int) -> bytes:
    """A request with so many messages of 1,000 bytes, and tools after them."""
    messages = [{"role": "user", "content": f"{index} " + "x" * 1_000} for index in range(number)]
    return msgspec.json.encode({"model": "m", "messages": messages, "tools": [{"name": "t" * 5_000}]})


@given(st.one_of(BODIES, ALIKE), BODIES, st.lists(st.booleans(), max_size=8))
@example(sent=[write_body("yxxxx"), write_body("yxxx")], came=[], saves=[])
def test_every_body_comes_back_byte_for_byte(sent: list[bytes], came: list[bytes], saves: list[bool]) -> None:
    writer = RecordWriter()
    stored: list[bytes] = []
    expected: list[tuple[bytes, bytes]] = []
    for number, body in enumerate(sent):
        client_body = came[number] if number < len(came) else None
        writer.add_sent(SentRequest(id=str(number), at=0.0), body=body, came=client_body)
        writer.add_answer(Answered(id=str(number), at=1.0, status=200), body=body[::-1])
        expected.append((body, body if client_body is None else client_body))
        if number < len(saves) and saves[number]:
            save(writer, stored)
    save(writer, stored)
    record = read(stored)
    assert [(record.sent_body(call), record.came_body(call)) for call in record.calls] == expected
    assert [record.answer_body(call) for call in record.calls] == [body[::-1] for body in sent]


EXPORTED = (
    b'{"model":"m"}', b'{"model":\n"m"}', b'{"model":\r"m"}', b'{"model"', b"", b'"text"', b"data: 1\n\n",
    b'{"lamina.base64":"AA=="}', b'{"lamina.base64":1}', b'{"a":"\xff"}', b'{"a":"\\ud800"}', b"\xff",
)  # fmt: skip
"""Bodies that need care on one line: spread over lines, no JSON, no text, or like what stands for bytes."""


@pytest.mark.parametrize("body", EXPORTED, ids=str)
def test_every_body_is_one_line_of_an_export_and_comes_back_byte_for_byte(body: bytes) -> None:
    async def export_and_import() -> tuple[list[bytes], list[bytes | None]]:
        store = MemoryStore()
        writer = RecordWriter()
        writer.add_sent(SentRequest(id="1", at=0.0), body=body, came=body[::-1])
        writer.add_answer(Answered(id="1", at=1.0, status=200), body=body)
        place = conversation_place(recorded_workspace("w"), "first")
        await store.append(place, writer.encode(), expect=0, state=ConversationState(door="wrap").encode())
        lines = await export_conversation(store, "w", "first")
        await import_conversation(store, "w", "second", lines)
        record = await read_record(store, recorded_workspace("w"), "second")
        [call] = record.calls
        return lines, [record.sent_body(call), record.came_body(call), record.answer_body(call)]

    lines, bodies = asyncio.run(export_and_import())
    assert not any(line.count(b"\n") or line.count(b"\r") for line in lines)
    assert bodies == [body, body[::-1], body]


@pytest.mark.parametrize("body", [b'{"lamina.base64":1}', b'{"lamina.base64":"A"}'], ids=str)
def test_an_export_whose_bytes_are_damaged_is_refused(body: bytes) -> None:
    sent = msgspec.json.encode(SentRequest(id="1", at=0.0))
    line = b'{"v":1,"sent":%s,"request":%s}' % (sent, body)
    with pytest.raises(BadInput, match=r"lamina\.base64"):
        asyncio.run(import_conversation(MemoryStore(), "w", "first", [line]))


def test_a_growing_request_is_stored_once() -> None:
    writer = RecordWriter()
    stored: list[bytes] = []
    for number in range(1, 101):
        writer.add_sent(SentRequest(id=str(number), at=0.0), body=grow(number))
        save(writer, stored)
    assert sum(map(len, stored)) < 1.5 * len(grow(100))
    record = read(stored)
    assert [record.sent_body(call) for call in record.calls] == [grow(number) for number in range(1, 101)]


def test_a_cut_stores_only_what_is_new() -> None:
    """After a cut the first messages are others, and the rest are the same bytes at another place."""
    writer = RecordWriter()
    stored: list[bytes] = []
    whole = grow(100)
    cut = whole.replace(b"0 " + b"x" * 1_000, b"[trimmed]", 1)
    writer.add_sent(SentRequest(id="1", at=0.0), body=whole)
    save(writer, stored)
    before = sum(map(len, stored))
    writer.add_sent(SentRequest(id="2", at=0.0), body=cut, came=whole)
    save(writer, stored)
    assert sum(map(len, stored)) - before < 3_000
    record = read(stored)
    assert record.sent_body(record.calls[1]) == cut
    assert record.came_body(record.calls[1]) == whole


def test_two_writers_share_a_record() -> None:
    """The second one has to learn what the first has stored, and then stores no text again."""
    first, second = RecordWriter(), RecordWriter()
    stored: list[bytes] = []
    first.add_sent(SentRequest(id="a", at=0.0), body=grow(50))
    save(first, stored)
    second.add_sent(SentRequest(id="b", at=0.0), body=grow(51))
    second.encode()  # the store says that there are records already
    second.learn(stored)
    before = sum(map(len, stored))
    save(second, stored)
    assert sum(map(len, stored)) - before < 4_000
    record = read(stored)
    assert [record.sent_body(call) for call in record.calls] == [grow(50), grow(51)]


def test_forgotten_bodies_are_compared_piece_by_piece() -> None:
    writer = RecordWriter()
    stored: list[bytes] = []
    writer.add_sent(SentRequest(id="a", at=0.0), body=grow(50))
    save(writer, stored)
    before = sum(map(len, stored))
    writer.forget_bodies()
    writer.add_sent(SentRequest(id="b", at=0.0), body=grow(51))
    save(writer, stored)
    assert sum(map(len, stored)) - before < 4_000
    record = read(stored)
    assert record.sent_body(record.calls[-1]) == grow(51)


def test_equal_requests_are_separate() -> None:
    writer = RecordWriter()
    stored: list[bytes] = []
    for number in range(3):
        writer.add_sent(SentRequest(id=str(number), at=float(number)), body=grow(5))
        writer.add_answer(Answered(id=str(number), at=1.0, usage=Usage(input=number)))
    save(writer, stored)
    record = read(stored)
    assert [call.answer.usage.input for call in record.calls if call.answer and call.answer.usage] == [
        0,
        1,
        2,
    ]
    assert len(record.calls) == 3


def test_the_ledger_of_each_epoch_is_kept() -> None:
    writer = RecordWriter()
    stored: list[bytes] = []
    cut = Ledger(cuts=(Cut(number=1, reason="over the budget"),))
    for number, ledger in enumerate((None, cut, cut)):
        writer.add_sent(SentRequest(id=str(number), at=0.0), body=grow(number + 1), ledger=ledger)
        save(writer, stored)
    record = read(stored)
    assert [len(record.ledger(call).cuts) for call in record.calls] == [0, 1, 1]
    assert sum(b"over the budget" in body for body in stored) == 1


def test_a_request_that_two_have_noted_is_one_and_has_its_texts() -> None:
    """A gateway that starts reads in the log of another one what that one is about to record."""
    writer = RecordWriter()
    writer.add_sent(SentRequest(id="1", at=2.0))
    writer.add_answer(Answered(id="1", status=200, usage=Usage(input=5)))
    writer.add_sent(SentRequest(id="1", at=1.0), body=b"{}")
    writer.add_answer(Answered(id="1", status=200, usage=Usage(input=5)), body=b"[]")
    record = ConversationRecord()
    record.read(writer.encode())
    [call] = record.calls
    assert (call.request.at, record.sent_body(call), record.answer_body(call)) == (1.0, b"{}", b"[]")


def test_a_request_in_flight_has_no_answer() -> None:
    writer = RecordWriter()
    stored: list[bytes] = []
    writer.add_sent(SentRequest(id="a", at=0.0), body=b"{}")
    save(writer, stored)
    assert read(stored).calls[0].answer is None


def test_a_store_without_bodies_says_when_and_how_large() -> None:
    writer = RecordWriter()
    stored: list[bytes] = []
    writer.add_sent(SentRequest(id="a", at=3.0, size=17, digest="d"))
    save(writer, stored)
    record = read(stored)
    assert record.sent_body(record.calls[0]) is None
    assert record.calls[0].request.size == 17


ON_NOTHING = b'{"v":1,"sent":{"id":"a","at":0,"sent":{"base":3}}}'
"""A request that goes on from one that the record does not have."""


@pytest.mark.parametrize("body", [b"nothing", b'{"v":9}', b'{"sent":5}', ON_NOTHING])
def test_a_foreign_record_is_refused(body: bytes) -> None:
    with pytest.raises(BadInput, match="record 0"):
        ConversationRecord().read([body])
