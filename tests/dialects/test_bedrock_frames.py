"""Frames of a real event stream of Converse: lamina reads what botocore reads, however the bytes are cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from botocore.eventstream import EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from lamina.conversations.answer_bodies import read_answer
from lamina.conversations.record import Answered
from lamina.dialects import DIALECTS
from lamina.dialects.bedrock_converse.event_stream import FrameReader, read_events
from tests.dialects.bedrock_requests import frame
from tests.dialects.test_answers import CONVERSE_EVENTS

WIRE = b"".join(map(frame, CONVERSE_EVENTS))


def decode(pieces: list[bytes]) -> Iterator[dict[str, Any]]:
    """The events of a stream, as botocore reads them from pieces of any size."""
    buffer = EventStreamBuffer()
    for piece in pieces:
        buffer.add_data(piece)
        for message in buffer:
            yield {message.headers[":event-type"]: json.loads(message.payload)}


@given(st.lists(st.integers(1, 200), min_size=1, max_size=20))
def test_lamina_reads_the_frames_that_botocore_reads(sizes: list[int]) -> None:
    reader, names, pieces, left = FrameReader(), list[str](), list[bytes](), WIRE
    for size in [*sizes, len(WIRE)]:
        pieces.append(left[:size])
        left = left[size:]
        names += [each.event_type for each in reader.feed(pieces[-1])]
    assert names == [name for event in CONVERSE_EVENTS for name in event]
    assert read_events(WIRE) == CONVERSE_EVENTS == list(decode(pieces))


def test_a_recorded_stream_is_read_again() -> None:
    answered = Answered(id="a", at=0.0, content_type="application/vnd.amazon.eventstream")
    absorbed = DIALECTS["bedrock_converse"].answers.absorb_stream(CONVERSE_EVENTS)
    assert read_answer(WIRE, answered, "bedrock_converse") == absorbed


@given(st.binary(max_size=200), st.integers(0, 400))
def test_bytes_that_are_no_frames_end_the_reading_and_raise_nothing(noise: bytes, place: int) -> None:
    wire = b"".join(map(frame, CONVERSE_EVENTS[:3]))
    read_events(wire[:place] + noise + wire[place:])
