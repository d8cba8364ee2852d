from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given

from lamina.core import Layout
from lamina.core.build import build
from lamina.core.hashing import canonical_json
from lamina.core.values import Budget, Segment
from lamina.dialects import DIALECTS
from lamina.dialects.origins import WireOrigin
from lamina.dialects.translate import choose_options
from lamina.errors import BadInput
from lamina.formats.codec import decode, encode
from lamina.segments import user
from lamina.testing.conformance import MODELS, DialectTrial
from lamina.testing.strategies import logs


@given(logs(thinks=True))
def test_a_log_comes_back_as_it_was(log: tuple[Segment, ...]) -> None:
    assert tuple(decode([encode(segment) for segment in log])) == log


@pytest.mark.parametrize("window", [None, 4_000])
@pytest.mark.parametrize("name", DIALECTS)
def test_what_is_read_back_renders_to_the_same_bytes(name: str, window: int | None) -> None:
    dialect = DIALECTS[name]
    budget = Budget(window=window, reserve=0) if window else None
    for request in DialectTrial(dialect, MODELS[name], (), (3,)).samples:
        parsed = dialect.wire.parse(request)
        options = choose_options(dialect, parsed.head, layout=Layout(context="logged"))
        again = decode([encode(segment) for segment in parsed.log])
        one, other = (
            dialect.wire.render(build(log, head=parsed.head, budget=budget, options=options))
            for log in (parsed.log, again)
        )
        assert canonical_json(one) == canonical_json(other)


def test_objects_of_an_sdk_are_written_as_what_they_hold() -> None:
    class Held:
        def model_dump(self, **_: Any) -> dict[str, str]:
            return {"role": "user"}

    [segment] = decode([encode(user("hi", meta={"wire": {"dialect": "d", "message": Held(), "count": 1}}))])
    assert segment.meta["wire"].message == {"role": "user"}


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"[]",
        b'{"v": 2, "segment": {}}',
        b'{"segment": {}}',
        b'{"v": 1, "segment": {"role": "god"}}',
        b"\xff",
        b'{"v": 1, "segment": {"role": "user", "kind": "user", "parts": [{"type": "os.system"}]}}',
    ],
)
def test_what_is_no_record_is_refused_with_its_place(record: bytes) -> None:
    with pytest.raises(BadInput, match="record 1"):
        decode([encode(user("hi")), record])


def test_what_json_cannot_carry_is_refused() -> None:
    with pytest.raises(BadInput, match="meta"):
        encode(user("hi", meta={"x": object()}))
    with pytest.raises(BadInput, match="surrogates"):
        encode(user("\ud800"))


def test_keys_keep_their_order_so_that_a_message_goes_back_as_it_came() -> None:
    message = {"role": "user", "input": {"z": 1, "a": 2}}
    [segment] = decode([encode(user("hi", meta={"wire": {"dialect": "d", "message": message, "count": 1}}))])
    assert json.dumps(segment.meta["wire"].message) == json.dumps(message)


def test_a_record_says_which_version_wrote_it() -> None:
    assert msgspec.json.decode(encode(user("hi")))["v"] == 1


@pytest.mark.parametrize("is_mended", [False, True])
def test_the_origin_of_a_segment_is_stored_as_it_always_was(*, is_mended: bool) -> None:
    message = {"role": "user", "content": ["a", "b"]}
    first = WireOrigin(
        dialect="d", message=message, block="a", is_first=True, count=2, is_mended=is_mended, notes={"at": 0}
    )
    second = WireOrigin(dialect="d", message=message, block="b")
    records = [encode(user("a", meta={"wire": first})), encode(user("b", joins=True, meta={"wire": second}))]
    stored = [msgspec.json.decode(record)["segment"]["meta"]["wire"] for record in records]
    count = 0 if is_mended else 2
    assert list(stored[0].items()) == [
        ("dialect", "d"),
        ("message", message),
        ("count", count),
        ("block", "a"),
        ("at", 0),
    ]
    assert stored[1] == {"dialect": "d", "block": "b"}
    one, other = (segment.meta["wire"] for segment in decode(records))
    assert (one.is_mended, one.is_first, one.notes, other.is_first) == (is_mended, True, {"at": 0}, False)
    assert one.message == message
    assert other.message is one.message
    assert [encode(segment) for segment in decode(records)] == records
