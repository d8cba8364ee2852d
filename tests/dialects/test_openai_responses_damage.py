from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import ResponseInputItemParam
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import TypeAdapter

from lamina.core.build import build
from lamina.core.values import Budget, Form
from lamina.dialects import DIALECTS
from lamina.dialects.memos import ParseMemo
from lamina.dialects.openai_responses import DIALECT
from lamina.dialects.origins import read_origin
from lamina.dialects.translate import choose_options, translate_head
from lamina.errors import BadInput, BudgetExceeded
from lamina.testing.conformance import MODELS, DialectTrial
from tests.dialects.openai_chat_requests import conversation as chat
from tests.dialects.openai_responses_requests import (
    AS_LOGGED,
    Json,
    answers,
    calls,
    conversation,
    fitted,
    request,
    says,
    thinks,
    user,
)

SEEDS = st.integers(0, 100_000)
WINDOWS = st.sampled_from((700, 1500, 3000, 6000))
ITEM: TypeAdapter[Any] = TypeAdapter(ResponseInputItemParam)
REQUEST: TypeAdapter[Any] = TypeAdapter(ResponseCreateParamsNonStreaming)


def validated(rendered: Json) -> None:
    """Ask the SDK's own types, of the request and of each item."""
    exhausted(REQUEST.validate_python(rendered | {"input": ""}))
    if isinstance(rendered["input"], str):
        return
    for item in rendered["input"]:
        exhausted(ITEM.validate_python(as_the_sdk_has_it(item)))


def as_the_sdk_has_it(item: Json) -> Json:
    """The types ask for an id that clients which store nothing leave out, and so does the API."""
    if item.get("role") == "assistant" and not isinstance(item["content"], str):
        return {"id": "msg_0", "status": "completed", **item}
    return {"id": "rs_0", **item} if item.get("type") == "reasoning" else item


def exhausted(value: Any) -> None:
    """Lists are validated only as they are read."""
    if isinstance(value, Mapping):
        for inner in value.values():
            exhausted(inner)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for inner in value:
            exhausted(inner)


@given(SEEDS)
def test_a_conversation_comes_back_as_the_same_objects(seed: int) -> None:
    before = conversation(seed)
    rendered = DIALECT.wire.render(fitted(before))
    assert rendered == before
    assert all(a is b for a, b in zip(rendered["input"], before["input"], strict=True))


@given(SEEDS, WINDOWS, st.sampled_from((0, 1, 5)))
def test_a_small_window_gives_a_valid_request(seed: int, window: int, keep_last: int) -> None:
    before = conversation(seed)
    with suppress(BudgetExceeded):
        envelope = fitted(before, window=window, keep_last=keep_last)
        rendered = DIALECT.wire.render(envelope)
        assert DIALECT.wire.check(rendered) == []
        validated(rendered)
        whole = [e for e in envelope.entries if e.form is Form.FULL and e.segment.kind == "tool_call"]
        sent_ids = {id(item) for item in rendered["input"]} if isinstance(rendered["input"], list) else set()
        items = [origin.message for origin in (read_origin(e.segment) for e in whole) if origin is not None]
        functions = [item for item in items if "id" not in item and item["type"] == "function_call"]
        assert all(id(item) in sent_ids for item in functions)


def damaged(items: list[Json], dice: Random) -> list[Json]:
    """Items dropped, doubled, swapped, cut off, with ids made equal or empty and texts emptied."""
    result: list[Json] = []
    for item in copy.deepcopy(items):
        roll = dice.random()
        if roll < 0.1:
            continue
        if roll < 0.15 and "call_id" in item:
            item["call_id"] = dice.choice(("same", "", "x" * 80))
        elif roll < 0.2 and "id" in item:
            item["id"] = dice.choice(("msg_1", "call_1", ""))
        elif roll < 0.25:
            item |= {name: dice.choice(("", [])) for name in ("content",) if name in item}
        result += [item, item] if 0.25 < roll < 0.33 else [item]
        if roll > 0.9 and len(result) > 1:
            result[-1], result[-2] = result[-2], result[-1]
    return result[dice.randint(0, 2) : len(result) - dice.randint(0, 2)]


@given(SEEDS, st.sampled_from((None, 1500, 4000)), st.booleans())
def test_damage_is_mended(seed: int, window: int | None, store: bool) -> None:  # noqa: FBT001
    dice, before = Random(seed), conversation(seed)  # noqa: S311
    harmed = request(user("Hello"), *damaged(before["input"], dice), store=store)
    with suppress(BudgetExceeded):
        rendered = DIALECT.wire.render(fitted(harmed, window=window))
        assert DIALECT.wire.check(rendered) == []
        validated(rendered)


@given(SEEDS, st.sampled_from(("role", "content", "id", "call_id")))
def test_an_item_that_changed_under_a_memo_is_read_again(seed: int, field: str) -> None:
    body, memo = copy.deepcopy(conversation(seed)), ParseMemo()
    DIALECT.wire.parse(body, memo=memo)
    item = body["input"][seed % len(body["input"])]
    item |= user("changed") if field == "role" else {field: "changed"}
    with suppress(BadInput):
        assert DIALECT.wire.parse(body, memo=memo) == DIALECT.wire.parse(body)


@given(SEEDS)
def test_a_growing_request_is_parsed_the_same_with_a_memo(seed: int) -> None:
    body, memo = conversation(seed), ParseMemo()
    before: tuple[Any, ...] = ()
    for end in range(1, len(body["input"]) + 1):
        part = body | {"input": copy.deepcopy(body["input"][:end])}
        now = DIALECT.wire.parse(part, memo=memo)
        assert now == DIALECT.wire.parse(part)
        steady = [s for s in before if s.kind != "thinking" or s is not before[-1]]
        assert all(a is b for a, b in zip(steady, now.log, strict=False))
        before = now.log


def test_a_memo_forgets_when_what_surrounds_the_items_changes() -> None:
    memo = ParseMemo()
    items = [user(), thinks(1, encrypted_content=""), says(n=1), answers("c")]
    for fields in ({}, {"store": False}, {"previous_response_id": "r"}, {"instructions": "Be brief."}):
        body = request(*items, **fields)
        assert DIALECT.wire.parse(body, memo=memo) == DIALECT.wire.parse(body)


@pytest.mark.parametrize("name", ["anthropic", "openai_chat"])
def test_logs_of_others_become_valid_requests(name: str) -> None:
    other = DIALECTS[name]
    for before in DialectTrial(other, MODELS[name], (), (1, 2, 3)).samples:
        said_here(name, before)


@given(SEEDS, st.sampled_from((None, 2000)))
def test_chats_become_valid_requests(seed: int, window: int | None) -> None:
    with suppress(BudgetExceeded):
        said_here("openai_chat", chat(seed), window)


def said_here(name: str, before: Any, window: int | None = None) -> None:
    other = DIALECTS[name]
    parsed = other.wire.parse(before)
    own = translate_head(parsed.head, other, DIALECT, model="gpt-5.6-sol")
    budget = Budget(window=window, reserve=0) if window else None
    envelope = build(
        parsed.log, head=own.head, budget=budget, options=choose_options(DIALECT, own.head, layout=AS_LOGGED)
    )
    rendered = DIALECT.wire.render(envelope)
    assert DIALECT.wire.check(rendered) == []
    validated(rendered)
    again = DIALECT.wire.parse(json.loads(msgspec.json.encode(rendered)))
    assert (
        DIALECT.wire.render(build(again.log, head=again.head, options=choose_options(DIALECT, own.head)))
        == rendered
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                (
                    "input",
                    "type",
                    "role",
                    "content",
                    "output",
                    "id",
                    "call_id",
                    "name",
                    "arguments",
                    "tools",
                    "x",
                    "summary",
                    "action",
                    "instructions",
                    "caller",
                    "text",
                    "prompt_cache_options",
                    "reasoning",
                )
            )
            | st.text(max_size=3),
            inner
            | st.sampled_from(
                (
                    "message",
                    "user",
                    "assistant",
                    "function_call",
                    "function_call_output",
                    "reasoning",
                    "input_text",
                    "input_image",
                    "computer_call_output",
                    "shell_call_output",
                    "mcp_approval_request",
                )
            ),
            max_size=5,
        )
    ),
    max_leaves=25,
)


@given(JSON | st.builds(lambda items: {"model": "m", "input": items}, st.lists(JSON, max_size=4)))
def test_arbitrary_json_raises_nothing_but_bad_input(value: Any) -> None:
    for ask in (DIALECT.wire.parse, DIALECT.wire.check, DIALECT.cache.stream, DIALECT.recognises):
        with suppress(BadInput):
            ask(value)


@given(st.lists(JSON, min_size=1, max_size=4))
def test_whatever_can_be_read_becomes_a_valid_request(items: list[Any]) -> None:
    with suppress(BadInput):
        body = request(user(), *items)
        parsed = DIALECT.wire.parse(body)
        left = [v for v in DIALECT.wire.check(DIALECT.wire.render(fitted(body))) if v.rule in STRUCTURE]
        assert left == []
        assert len(parsed.log) >= len(items)


STRUCTURE = ("outputs_have_calls", "calls_are_answered", "reasoning_is_followed", "call_ids_are_unique")


def test_what_is_nested_for_ever_is_bad_input() -> None:
    item: Json = user([{"type": "mirror"}])
    item["content"][0]["mirror"] = item
    with pytest.raises(BadInput):
        DIALECT.wire.parse(request(item), memo=ParseMemo())
    with pytest.raises(BadInput):
        fitted(request(item))


def test_a_megabyte_of_one_character_is_read_like_any_text() -> None:
    for letter in ("<", "{", "\\", ";", "a"):
        text = letter * 1_000_000
        picture = {"type": "input_image", "image_url": "data:" + text, "detail": "auto"}
        body = request(
            user([{"type": "input_text", "text": text}, picture]), calls("c", "f", text), answers("c", text)
        )
        assert DIALECT.wire.check(body) == []
        assert len(DIALECT.wire.parse(body).log) == 4
