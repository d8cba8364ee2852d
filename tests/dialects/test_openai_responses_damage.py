from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import ResponseInputItemParam
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import TypeAdapter

from lamina.core.build import build
from lamina.core.values import Budget
from lamina.dialects import DIALECTS
from lamina.dialects.memos import ParseMemo
from lamina.dialects.openai_responses import DIALECT
from lamina.dialects.translate import choose_options, translate_head
from lamina.errors import BadInput, BudgetExceeded
from lamina.testing.conformance import MODELS, DialectTrial
from tests.dialects.openai_chat_requests import conversation as chat
from tests.dialects.openai_responses_requests import (
    AS_LOGGED,
    Json,
    answers,
    request,
    says,
    thinks,
    user,
)
from tests.dialects.test_any_json import values

SEEDS = st.integers(0, 100_000)
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


@given(st.lists(values("openai_responses"), min_size=1, max_size=4))
def test_no_item_is_lost(items: list[Any]) -> None:
    with suppress(BadInput):
        assert len(DIALECT.wire.parse(request(user(), *items)).log) >= len(items)
