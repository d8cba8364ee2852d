"""Broken histories of the Messages API: whatever happened to a request, what is sent is valid.

Each damaged request ends with a question, so that it has a valid reading. Without one there is nothing to
ask: `test_hostile` shows that such a request is refused.
"""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from lamina.dialects.anthropic import DIALECT
from lamina.errors import BudgetExceeded
from tests.dialects.test_anthropic import (
    EVERYTHING,
    SHARES,
    Json,
    fitted,
    make_request,
    requests,
    unique,
    windows,
)


class Damage:
    """Ways in which histories break, each on a list of messages at a place."""

    @staticmethod
    def drop(messages: list[Json], at: int) -> None:
        del messages[at]

    @staticmethod
    def double(messages: list[Json], at: int) -> None:
        messages.insert(at, copy.deepcopy(messages[at]))

    @staticmethod
    def reorder(messages: list[Json], at: int) -> None:
        messages.insert(0, messages.pop(at))

    @staticmethod
    def truncate(messages: list[Json], at: int) -> None:
        del messages[at + 1 :]

    @staticmethod
    def blank(messages: list[Json], at: int) -> None:
        messages[at] = {"role": messages[at]["role"], "content": "  "}

    @staticmethod
    def empty(messages: list[Json], at: int) -> None:
        messages[at] = {"role": messages[at]["role"], "content": []}

    @staticmethod
    def blank_blocks(messages: list[Json], at: int) -> None:
        for part in blocks(messages[at]):
            if part["type"] == "text":
                part["text"] = "\n"
            if isinstance(part.get("content"), list) and part["type"] == "tool_result":
                part["content"].insert(0, {"type": "text", "text": ""})

    @staticmethod
    def same_id(messages: list[Json], _at: int) -> None:
        for part in (part for message in messages for part in blocks(message)):
            for name in ("id", "tool_use_id"):
                if name in part and part["type"] in ("tool_use", "tool_result"):
                    part[name] = "functions.call:0"

    @staticmethod
    def orphan(messages: list[Json], at: int) -> None:
        messages.insert(at, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "lost"}]})

    @staticmethod
    def reverse(messages: list[Json], at: int) -> None:
        if messages[at]["role"] == "user":
            blocks(messages[at]).reverse()

    @staticmethod
    def split(messages: list[Json], at: int) -> None:
        alone = [messages[at] | {"content": [part]} for part in blocks(messages[at])]
        messages[at : at + 1] = alone or messages[at : at + 1]

    @staticmethod
    def instruct(messages: list[Json], at: int) -> None:
        messages.insert(at, {"role": "system", "content": "Be brief."})


def blocks(message: Json) -> list[Json]:
    return message["content"] if isinstance(message["content"], list) else []


WAYS = sorted(name for name in vars(Damage) if not name.startswith("_"))
DAMAGES = st.lists(st.tuples(st.sampled_from(WAYS), st.integers(0, 30)), min_size=1, max_size=5)


QUESTION: Json = {"role": "user", "content": "And now?"}


def damaged(request: Json, damages: list[tuple[str, int]]) -> Json:
    messages = copy.deepcopy(request["messages"])
    for way, at in damages:
        if messages:
            getattr(Damage, way)(messages, at % len(messages))
    return request | {"messages": [*messages, QUESTION]}


@given(requests(), DAMAGES)
def test_a_damaged_request_is_sent_valid(request_: Json, damages: list[tuple[str, int]]) -> None:
    rendered, envelope = fitted(damaged(request_, damages))
    assert DIALECT.wire.check(rendered) == []
    assert fitted(rendered)[0] == rendered
    assert DIALECT.wire.check(rendered, ledger=envelope.ledger) == []


@given(requests(), DAMAGES)
def test_mended_thinking_is_not_taken_for_unbound(request_: Json, damages: list[tuple[str, int]]) -> None:
    rendered, envelope = fitted(damaged(request_ | {"model": "claude-opus-5-5"}, damages))
    assert DIALECT.wire.check(rendered, ledger=envelope.ledger) == []


@given(requests(), DAMAGES, SHARES)
def test_a_damaged_request_is_fitted_valid(
    request_: Json, damages: list[tuple[str, int]], share: float
) -> None:
    broken = damaged(request_, damages)
    try:
        rendered, _ = fitted(broken, budget=windows(broken, share))
    except BudgetExceeded:
        reject()
    assert DIALECT.wire.check(rendered) == []


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_break_a_request_breaks_one(way: str) -> None:
    """Else the two tests above could not fail."""
    whole = unique(make_request([1, 5, 8, 13, 21, 34]))
    valid_anyway = ("truncate", "blank_blocks")
    is_broken = any(
        DIALECT.wire.check(damaged(request, [(way, at)])) or way in valid_anyway
        for request in (whole, EVERYTHING)
        for at in range(len(request["messages"]))
    )
    assert is_broken


def test_a_message_that_lost_one_block_and_gained_another_is_not_the_original() -> None:
    """An empty text is left out and the next message's call joins: as many blocks, but not the same ones."""
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    used = [{"type": "tool_use", "id": f"t{i}", "name": "bash", "input": {}} for i in range(2)]
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [thought, {"type": "text", "text": "\n"}, used[0]]},
        {"role": "assistant", "content": [used[1]]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": f"t{i}", "content": "ok"} for i in range(2)],
        },
    ]
    rendered, _ = fitted({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": messages})
    assert DIALECT.wire.check(rendered) == []
    assert rendered["messages"][1]["content"] == [thought, *used]


def test_words_that_join_a_message_which_lost_a_block_are_sent() -> None:
    """The result is doubled, the first beside an empty text: the later words must not be lost."""
    use = {"type": "tool_use", "id": "t0", "name": "bash", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": "t0", "content": "ok"}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [answer, {"type": "text", "text": "\n"}]},
        {"role": "user", "content": [answer, {"type": "text", "text": "and then?"}]},
    ]
    rendered, _ = fitted({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": messages})
    assert DIALECT.wire.check(rendered) == []
    assert "and then?" in str(rendered["messages"])
