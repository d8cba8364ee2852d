from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core.values import Segment
from lamina.dialects.gemini import DIALECT
from lamina.dialects.memos import ParseMemo
from lamina.dialects.origins import read_origin
from lamina.errors import BadInput, BudgetExceeded
from tests.dialects.gemini_requests import Json, answers, asks, body, conversation, fitted, model, user

SEEDS = st.integers(0, 10_000)


def _dropped(contents: list[Json], dice: Random) -> None:
    del contents[dice.randrange(len(contents))]


def _doubled(contents: list[Json], dice: Random) -> None:
    at = dice.randrange(len(contents))
    contents.insert(at, copy.deepcopy(contents[at]))


def _shuffled(contents: list[Json], dice: Random) -> None:
    dice.shuffle(contents)


def _truncated(contents: list[Json], dice: Random) -> None:
    del contents[dice.randrange(1, len(contents) + 1) :]


def _beheaded(contents: list[Json], dice: Random) -> None:
    del contents[: dice.randrange(len(contents))]


def _thinned(contents: list[Json], dice: Random) -> None:
    for content in contents:
        if dice.random() < 0.3:
            del content["parts"][dice.randrange(len(content["parts"]))]
    contents[:] = [content for content in contents if content["parts"]] or [user()]


def _split(contents: list[Json], _: Random) -> None:
    contents[:] = [{**content, "parts": [part]} for content in contents for part in content["parts"]]


def _one_id(contents: list[Json], _: Random) -> None:
    for inner in _linked(contents):
        inner["id"] = "call"


def _no_ids(contents: list[Json], _: Random) -> None:
    for inner in _linked(contents):
        inner.pop("id", None)


def _some_ids(contents: list[Json], dice: Random) -> None:
    for inner in _linked(contents):
        if dice.random() < 0.4:
            inner["id"] = dice.choice(("", "x", "y"))


def _other_names(contents: list[Json], dice: Random) -> None:
    for inner in _linked(contents):
        if dice.random() < 0.3:
            inner["name"] = dice.choice(("", "bash", "1 + 1", "nächste"))


def _unsigned(contents: list[Json], _: Random) -> None:
    for content in contents:
        for part in content["parts"]:
            part.pop("thoughtSignature", None)


def _emptied(contents: list[Json], dice: Random) -> None:
    for content in contents:
        for part in content["parts"]:
            if "text" in part and dice.random() < 0.3:
                part["text"] = dice.choice(("", " "))


def _linked(contents: list[Json]) -> list[Json]:
    all_parts = [part for content in contents for part in content["parts"]]
    return [part[name] for part in all_parts for name in ("functionCall", "functionResponse") if name in part]


Damage = Callable[[list[Json], Random], None]
DAMAGES: tuple[Damage, ...] = (
    _dropped, _doubled, _shuffled, _truncated, _beheaded, _thinned, _split, _one_id, _no_ids, _some_ids,
    _other_names, _unsigned, _emptied,
)  # fmt: skip


@given(SEEDS, st.lists(st.sampled_from(DAMAGES), min_size=1, max_size=3), st.sampled_from((None, 3000)))
def test_damaged_requests_are_sent_valid(seed: int, damages: list[Damage], window: int | None) -> None:
    original_request = copy.deepcopy(conversation(seed))
    for damage in damages:
        if len(original_request["contents"]) > 1:
            damage(original_request["contents"], Random(seed))  # noqa: S311
    original_request["contents"].append(
        user("And now?")
    )  # else there is nothing to ask, and the request is refused
    with suppress(BudgetExceeded):
        rendered_request = DIALECT.wire.render(fitted(original_request, window=window))
        assert DIALECT.wire.check(rendered_request) == []


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


@given(SEEDS, st.integers(1, 8))
def test_a_memo_changes_nothing_and_keeps_the_segments(seed: int, pieces: int) -> None:
    original_request, memo = conversation(seed), ParseMemo()
    before: tuple[Segment, ...] = ()
    for end in sorted(
        {max(1, len(original_request["contents"]) * i // pieces) for i in range(1, pieces + 1)}
    ):
        part = original_request | {"contents": copy.deepcopy(original_request["contents"][:end])}
        now = DIALECT.wire.parse(part, memo=memo)
        assert now == DIALECT.wire.parse(part)
        message_segments = [s for s in now.log if s.kind != "system"]
        assert all(a is b for a, b in zip(before, message_segments, strict=False))
        before = tuple(message_segments)


def test_equal_calls_without_ids_get_the_same_ids_with_and_without_a_memo() -> None:
    """The second call is equal to the first, in a content that goes on with the first one's."""
    call, memo = asks("search", path="a"), ParseMemo()
    DIALECT.wire.parse(body(user(), model(call)), memo=memo)
    grown = body(user(), model(call), model("again", call), user(answers("search"), answers("search")))
    assert DIALECT.wire.parse(grown, memo=memo) == DIALECT.wire.parse(grown)


@given(SEEDS, st.sampled_from((0, 1, 2, 3, 5, 8)))
def test_a_content_that_changed_under_a_memo_is_read_again(seed: int, at: int) -> None:
    original_request, memo = copy.deepcopy(conversation(seed)), ParseMemo()
    DIALECT.wire.parse(original_request, memo=memo)
    content = original_request["contents"][at % len(original_request["contents"])]
    content["parts"].append({"text": "changed"})
    assert DIALECT.wire.parse(original_request, memo=memo) == DIALECT.wire.parse(original_request)


def test_loose_parts_are_remembered_too() -> None:
    memo = ParseMemo()
    one = DIALECT.wire.parse({"contents": ["Hi", "there"]}, memo=memo)
    two = DIALECT.wire.parse(
        {"contents": ["Hi", "there", {"role": "model", "parts": [{"text": "Hi."}]}]}, memo=memo
    )
    assert all(a is b for a, b in zip(one.log, two.log, strict=False))


def test_an_old_object_that_its_owner_changed_is_not_sent() -> None:
    memo, old = ParseMemo(), model("as it was")
    DIALECT.wire.parse(body(user(), old), memo=memo)
    again = body(user(), copy.deepcopy(old))
    old["parts"][0]["text"] = "changed since"
    origin = read_origin(DIALECT.wire.parse(again, memo=memo).log[1])
    assert origin is not None
    assert origin.message is again["contents"][1]


def test_what_is_nested_for_ever_is_bad_input() -> None:
    content: Json = user({"mirror": None})
    content["parts"][0]["mirror"] = content
    with pytest.raises(BadInput):
        DIALECT.wire.parse(body(content), memo=ParseMemo())
    with pytest.raises(BadInput):
        fitted(body(content))
    with pytest.raises(BadInput):
        DIALECT.cache.stream(body(content))
    schema: Json = {"type": "OBJECT"}
    schema["items"] = schema
    tools = [{"functionDeclarations": [{"name": "f", "parameters": schema}]}]
    DIALECT.head.read(DIALECT.wire.parse(body(user(), tools=tools)).head)


def test_a_megabyte_of_one_character_is_read_like_any_text() -> None:
    for letter in ("<", "{", "\\", ";", "a"):
        text = letter * 1_000_000
        picture = {"fileData": {"mimeType": "image/png", "fileUri": f"data:{text}"}}
        calls = model(asks(text, id_=text, path=text))
        original_request = body(user(text, picture), calls, user(answers(text, text, id_=text)))
        assert {v.rule for v in DIALECT.wire.check(original_request)} == {"names_fit_the_pattern"}
        assert len(DIALECT.wire.parse(original_request).log) == 4


def test_many_calls_without_ids_are_paired_in_linear_time() -> None:
    count = 20_000
    calls = model(*(asks(f"f{i % 7}", signed=i == 0, n=i % 3) for i in range(count)))
    original_request = body(user(), calls, user(*(answers(f"f{i % 7}", "x") for i in range(count))))
    assert DIALECT.wire.check(original_request) == []
    assert len(DIALECT.wire.parse(original_request).log) == 2 * count + 1
