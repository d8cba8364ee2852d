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
from lamina.dialects.memos import ParseMemo
from lamina.dialects.openai_chat import DIALECT
from lamina.dialects.origins import read_origin
from lamina.errors import BadInput, BudgetExceeded
from tests.dialects.openai_chat_requests import Json, answered, conversation, fitted, request, user

SEEDS = st.integers(0, 10_000)


def _dropped(messages: list[Json], dice: Random) -> None:
    del messages[dice.randrange(len(messages))]


def _doubled(messages: list[Json], dice: Random) -> None:
    at = dice.randrange(len(messages))
    messages.insert(at, copy.deepcopy(messages[at]))


def _shuffled(messages: list[Json], dice: Random) -> None:
    dice.shuffle(messages)


def _truncated(messages: list[Json], dice: Random) -> None:
    del messages[dice.randrange(1, len(messages) + 1) :]


def _beheaded(messages: list[Json], dice: Random) -> None:
    del messages[: dice.randrange(len(messages))]


def _one_id(messages: list[Json], _: Random) -> None:
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["id"] = "call"
        if "tool_call_id" in message:
            message["tool_call_id"] = "call"


def _no_ids(messages: list[Json], _: Random) -> None:
    for message in messages:
        message.pop("tool_call_id", None)
        for call in message.get("tool_calls", ()):
            call.pop("id", None)


def _emptied(messages: list[Json], dice: Random) -> None:
    for message in messages:
        if dice.random() < 0.3:
            message["content"] = dice.choice(("", " ", None, []))


DAMAGES: tuple[Callable[[list[Json], Random], None], ...] = (
    _dropped, _doubled, _shuffled, _truncated, _beheaded, _one_id, _no_ids, _emptied,
)  # fmt: skip


@given(SEEDS, st.lists(st.sampled_from(DAMAGES), min_size=1, max_size=3), st.sampled_from((None, 3000)))
def test_damaged_requests_are_sent_valid(
    seed: int, damages: list[Callable[[list[Json], Random], None]], window: int | None
) -> None:
    original_request = copy.deepcopy(conversation(seed))
    for damage in damages:
        if len(original_request["messages"]) > 1:
            damage(original_request["messages"], Random(seed))  # noqa: S311
    with suppress(BudgetExceeded, BadInput):
        rendered_request = DIALECT.wire.render(fitted(original_request, window=window))
        assert DIALECT.wire.check(rendered_request) == []


NAMES = (
    "role content tool_calls tool_call_id function_call function custom name arguments input id type text "
    "image_url url file input_audio refusal audio reasoning_content prompt_cache_breakpoint x"
).split()
WORDS = ("user", "assistant", "tool", "function", "text", "image_url", "function_call", "read.it")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=10,
)
ROLES = st.sampled_from(("system", "developer", "user", "assistant", "assistant", "tool", "tool", "function"))
MESSAGES = st.builds(
    lambda role, rest: {"role": role, **rest},
    ROLES,
    st.dictionaries(st.sampled_from(NAMES[1:]), JSON, max_size=4),
)


NOT_MENDED = ("markers_stand_on_parts", "calls_are_whole")
"""Rules that a request may break after rendering, and is refused for: a message of the user that has calls is
not mended, for one."""


@given(st.lists(MESSAGES | JSON, max_size=4), JSON)
def test_any_json_is_a_request_or_bad_input(messages: list[Any], tools: Any) -> None:
    original_request = {"messages": messages, "tools": tools}
    DIALECT.wire.check(original_request)
    DIALECT.recognises(original_request)
    with suppress(BadInput):
        rendered_request = DIALECT.wire.render(fitted(original_request))
        broken = DIALECT.wire.check(rendered_request)
        assert [v for v in broken if not v.place.startswith("tools") and v.rule not in NOT_MENDED] == []


@given(SEEDS, st.integers(1, 8))
def test_a_memo_changes_nothing_and_keeps_the_segments(seed: int, pieces: int) -> None:
    original_request, memo = conversation(seed), ParseMemo()
    before: tuple[Segment, ...] = ()
    for end in sorted(
        {max(1, len(original_request["messages"]) * i // pieces) for i in range(1, pieces + 1)}
    ):
        part = original_request | {"messages": copy.deepcopy(original_request["messages"][:end])}
        now = DIALECT.wire.parse(part, memo=memo)
        assert now == DIALECT.wire.parse(part)
        assert all(a is b for a, b in zip(before, now.log, strict=False))
        before = now.log


@given(SEEDS, st.sampled_from((0, 1, 2, 3, 5, 8)), st.sampled_from(("tool_call_id", "content", "role")))
def test_a_message_that_changed_under_a_memo_is_read_again(seed: int, at: int, field: str) -> None:
    original_request, memo = copy.deepcopy(conversation(seed)), ParseMemo()
    DIALECT.wire.parse(original_request, memo=memo)
    message = original_request["messages"][at % len(original_request["messages"])]
    message |= {"role": "user", "content": "changed"} if field == "role" else {field: "changed"}
    assert DIALECT.wire.parse(original_request, memo=memo) == DIALECT.wire.parse(original_request)


def test_an_old_object_that_its_owner_changed_is_not_sent() -> None:
    memo, old = ParseMemo(), answered("as it was")
    DIALECT.wire.parse(request(user(), old), memo=memo)
    again = request(user(), dict(old))
    old["content"] = "changed since"
    origin = read_origin(DIALECT.wire.parse(again, memo=memo).log[1])
    assert origin is not None
    assert origin.message is again["messages"][1]


def test_what_is_nested_for_ever_is_bad_input() -> None:
    message: Json = user([{"type": "mirror"}])
    message["content"][0]["mirror"] = message
    with pytest.raises(BadInput):
        DIALECT.wire.parse(request(message), memo=ParseMemo())
    with pytest.raises(BadInput):
        fitted(request(message))


def test_a_megabyte_of_one_character_is_read_like_any_text() -> None:
    for letter in ("<", "{", "\\", ";", "a"):
        text = letter * 1_000_000
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}
        parts: list[Any] = [
            {"type": "text", "text": text},
            {"type": "image_url", "image_url": {"url": "data:" + text}},
        ]
        messages = [user(parts), {"role": "assistant", "content": None, "tool_calls": [call]}]
        messages.append({"role": "tool", "tool_call_id": "c", "content": text})
        original_request = request(*messages)
        assert DIALECT.wire.check(original_request) == []
        assert len(DIALECT.wire.parse(original_request).log) == 4


@pytest.mark.parametrize("role", ["system", "user", "assistant"])
@pytest.mark.parametrize("calls", [None, []])
def test_a_message_that_says_it_has_no_calls_is_sent_without_the_field(role: str, calls: Any) -> None:
    """So an SDK's object looks when it is dumped with its unset fields."""
    message = {"role": role, "content": "Hello.", "tool_calls": calls}
    original_request = {"model": "gpt-4o", "messages": [message, {"role": "user", "content": "Go."}]}
    rendered_request = DIALECT.wire.render(fitted(original_request))
    assert rendered_request["messages"][0] == {"role": role, "content": "Hello."}
    assert DIALECT.wire.check(rendered_request) == []
