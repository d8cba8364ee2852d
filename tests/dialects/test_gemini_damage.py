from __future__ import annotations

from lamina.dialects.gemini import DIALECT
from lamina.dialects.memos import ParseMemo
from tests.dialects.gemini_requests import Json, answers, asks, body, model, user


def test_equal_calls_without_ids_get_the_same_ids_with_and_without_a_memo() -> None:
    """The second call is equal to the first, in a content that goes on with the first one's."""
    call, memo = asks("search", path="a"), ParseMemo()
    DIALECT.wire.parse(body(user(), model(call)), memo=memo)
    grown = body(user(), model(call), model("again", call), user(answers("search"), answers("search")))
    assert DIALECT.wire.parse(grown, memo=memo) == DIALECT.wire.parse(grown)


def test_loose_parts_are_remembered_too() -> None:
    memo = ParseMemo()
    one = DIALECT.wire.parse({"contents": ["Hi", "there"]}, memo=memo)
    two = DIALECT.wire.parse(
        {"contents": ["Hi", "there", {"role": "model", "parts": [{"text": "Hi."}]}]}, memo=memo
    )
    assert all(a is b for a, b in zip(one.log, two.log, strict=False))


def test_a_schema_that_holds_itself_is_read() -> None:
    schema: Json = {"type": "OBJECT"}
    schema["items"] = schema
    tools = [{"functionDeclarations": [{"name": "f", "parameters": schema}]}]
    DIALECT.head.read(DIALECT.wire.parse(body(user(), tools=tools)).head)


def test_many_calls_without_ids_are_paired_in_linear_time() -> None:
    count = 4_000
    calls = model(*(asks(f"f{i % 7}", signed=i == 0, n=i % 3) for i in range(count)))
    original_request = body(user(), calls, user(*(answers(f"f{i % 7}", "x") for i in range(count))))
    assert DIALECT.wire.check(original_request) == []
    assert len(DIALECT.wire.parse(original_request).log) == 2 * count + 1
