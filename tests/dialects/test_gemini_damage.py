from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lamina.dialects.gemini import DIALECT
from lamina.dialects.memos import ParseMemo
from lamina.errors import BadInput
from tests.dialects.gemini_requests import Json, answers, asks, body, fitted, model, user

NAMES = (
    "role parts text inlineData inline_data fileData functionCall function_call functionResponse id name "
    "args response mimeType data fileUri uri thought thoughtSignature executableCode toolCall x"
).split()
WORDS = ("user", "model", "function", "system", "read.it", "image/png", "aGk=")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=10,
)
PARTS = st.dictionaries(st.sampled_from(NAMES[2:]), JSON, max_size=3) | JSON
CONTENTS = st.builds(
    lambda role, parts: {"role": role, "parts": parts},
    st.sampled_from(("user", "user", "model", "model", "function", None)),
    st.lists(PARTS, max_size=3),
)
FIELDS = st.dictionaries(
    st.sampled_from(("systemInstruction", "system_instruction", "tools", "toolConfig", "generationConfig")),
    JSON,
)


@given(st.lists(CONTENTS | JSON, max_size=4) | JSON, FIELDS, st.booleans())
def test_any_json_is_a_request_or_bad_input(contents: Any, fields: Json, inside: bool) -> None:  # noqa: FBT001
    original_request = {"model": "gemini-3", "contents": contents} | (
        {"config": fields} if inside else fields
    )
    DIALECT.wire.check(original_request)
    DIALECT.recognises(original_request)
    with suppress(BadInput):
        DIALECT.cache.stream(original_request)
    with suppress(BadInput):
        rendered_request = DIALECT.wire.render(fitted(original_request))
        DIALECT.head.read(DIALECT.wire.parse(original_request).head)
        broken = {v.rule for v in DIALECT.wire.check(rendered_request) if v.place.startswith("contents")}
        unmended = {"media_are_whole", "parts_say_one_thing"}  # what is unknown is rendered as it came
        assert broken <= unmended | {"ends_with_the_user"}


@given(JSON)
def test_any_value_is_a_request_or_bad_input(value: Any) -> None:
    for read in (DIALECT.wire.parse, DIALECT.cache.stream, DIALECT.answers.absorb):
        with suppress(BadInput):
            read(value)
    DIALECT.wire.check(value)
    with suppress(BadInput):
        DIALECT.answers.absorb_stream([value])
    with suppress(BadInput):
        DIALECT.answers.absorb({"candidates": [{"content": value}], "usageMetadata": value})


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
